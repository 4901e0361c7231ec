#!/bin/sh
# no-llvm-included.sh DIRECTORY...: fails, and says where, when a file below
# includes a header of LLVM, MLIR or the dialect.
set -u
for directory; do
  files=$(find "$directory" -name '*.h' -o -name '*.cpp' -o -name '*.cu' \
    -o -name '*.inc') || exit 2
  if [ -z "$files" ]; then
    echo "$directory has no sources to look at" >&2
    exit 2
  fi
  if grep -nE \
    '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<](llvm|mlir|penstock/Dialect)(-c)?/' \
    $files; then
    echo "the files above must not include LLVM or MLIR" >&2
    exit 1
  fi
done
