#!/usr/bin/env bash
# runtime-alone.sh SOURCE BIN SCRATCH: configures and builds the runtime alone, as
# a node would that has a compiler for C++, CMake and the headers of FlatBuffers,
# and runs a program file with it. SCRATCH is kept, so that the next time only what
# has changed is built.
set -euo pipefail
source=$1 bin=$2 scratch=$3 build=$3/build

mkdir -p "$scratch"
without=()
for package in LLVM MLIR nlohmann_json CLI11 Eigen3 GTest benchmark; do
  without+=(-DCMAKE_DISABLE_FIND_PACKAGE_$package=ON)
done
# flatc is a program that a node need not have.
mkdir -p "$scratch/path"
printf '#!/bin/sh\necho "flatc was called" >&2\nexit 1\n' >"$scratch/path/flatc"
chmod +x "$scratch/path/flatc"
export PATH=$scratch/path:$PATH
cmake -S "$source/runtime" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_CXX_FLAGS_DEBUG= "${without[@]}" | tee "$scratch/configured"
grep -q 'own loops, Eigen was not found' "$scratch/configured"
cmake --build "$build" -j2

# What was included: this source, the standard library and the system, and
# FlatBuffers; MPI, CUDA and NCCL where they are.
foreign=$(ninja -C "$build" -t deps | sed -n 's/^    //p' | sort -u | grep '^/' |
  grep -vF -e "$source/" -e "$build/" | while read -r file; do realpath "$file"; done |
  grep -vE -e '^/usr/lib/(gcc|llvm[^/]*/lib/clang)/|/(openmpi|mpich|cuda)[^/]*/|/nccl[^/]*\.h$' \
    -e "^/usr/include/($(uname -m)-[^/]*|c\+\+|asm-generic|linux|flatbuffers|arpa|net|netinet|rpc)/" \
    -e '^/usr/include/[a-z0-9_-]*\.h$' | grep -vx '' || true)
foreign+=$(ninja -C "$build" -t deps | grep -E 'xxhash|nlohmann|CLI11|/CLI/|[Ee]igen' || true)
if [ -n "$foreign" ]; then
  printf 'the runtime includes what a node need not have:\n%s\n' "$foreign" >&2
  exit 1
fi
run=$build/bin/penstock-run
if ldd "$run" | grep -E 'LLVM|MLIR|flatbuffers'; then
  echo "penstock-run is linked with what a node need not have" >&2
  exit 1
fi
"$bin/penstock-opt" "$source/examples/byte_lm.mlir" --pipe-compile |
  "$bin/penstock-translate" --pipe-to-program - -o "$scratch/byte_lm.psp"
"$run" "$scratch/byte_lm.psp" --text="$source/README.md" --steps=2 \
  --check-gradients | tee "$scratch/output"
grep -q 'gradients and parameters are bitwise equal' "$scratch/output"
grep -q '^trained  2 steps' "$scratch/output"
