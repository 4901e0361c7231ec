#!/usr/bin/env bash
# runtime-alone.sh SOURCE BIN SCRATCH: configures and builds the runtime alone, as
# a node without the compiler would, and runs a program file with it. SCRATCH is
# kept, so that the next time only what has changed is built.
set -euo pipefail
source=$1 bin=$2 scratch=$3

mkdir -p "$scratch"
cmake -S "$source/runtime" -B "$scratch/build" -G Ninja -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_CXX_FLAGS_DEBUG= \
  -DCMAKE_DISABLE_FIND_PACKAGE_LLVM=ON -DCMAKE_DISABLE_FIND_PACKAGE_MLIR=ON
cmake --build "$scratch/build" -j2
run=$scratch/build/bin/penstock-run
if ldd "$run" | grep -E 'LLVM|MLIR'; then
  echo "penstock-run is linked with the compiler" >&2
  exit 1
fi
"$bin/penstock-opt" "$source/examples/byte_lm.mlir" --pipe-compile |
  "$bin/penstock-translate" --pipe-to-program - -o "$scratch/byte_lm.psp"
"$run" "$scratch/byte_lm.psp" --text="$source/README.md" --steps=2 |
  tee "$scratch/output"
grep -q '^trained  2 steps' "$scratch/output"
