#!/usr/bin/env bash
# program-fbs.sh FLATC DIRECTORY [--renew]: compares the Program_generated.h of a
# directory with what flatc makes of its Program.fbs, or writes it. The check for
# the library's version is left out: nodes have others, and what is used of them
# has been the same for long.
set -euo pipefail
flatc=$1 directory=$2

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$flatc" --cpp --scoped-enums --filename-suffix _generated -o "$scratch" \
  "$directory/Program.fbs"
made=$scratch/Program_generated.h
sed -i '/^\/\/ Ensure the included flatbuffers.h/,/Non-compatible/d' "$made"
sed -i -e '/./b' -e '$!N;/^\n$/D' "$made" # one empty line is enough
if [ "${3:-}" = --renew ]; then
  cp "$made" "$directory/Program_generated.h"
elif ! diff -u "$directory/Program_generated.h" "$made"; then
  echo "Program.fbs has changed, or flatc: program-fbs.sh $flatc $directory" \
    "--renew" >&2
  exit 1
fi
