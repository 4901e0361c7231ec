#!/usr/bin/env bash
# device-pack.sh BIN FOLDER [KEYS]: collects what device.sh needs on a machine that has
# CUDA, NCCL, CMake and a compiler, but neither MLIR nor the libraries of a
# distribution: headers of FlatBuffers, sources of GoogleTest, and programs, which
# WriteFamilies in BIN writes. A few MiB. KEYS are those of the larger model, in bf16
# where this build knows that.
set -euo pipefail
bin=$1 out=$2
large=${3:-width=4096,hidden=12288,context=8,embed=64,samples=256,lr=0.0001} # 1.8 GB of weights

rm -rf "$out"
mkdir -p "$out/include" "$out/families"
flatbuffers=$(echo '#include <flatbuffers/flatbuffers.h>' | ${CXX:-c++} -E -x c++ - |
  sed -n 's/^# [0-9]* "\(.*\)\/flatbuffers\/flatbuffers.h".*/\1/p' | head -n 1)
cp -r "$flatbuffers/flatbuffers" "$out/include/"
if [ -d /usr/src/googletest ]; then
  mkdir -p "$out/googletest/googletest"
  cp /usr/src/googletest/CMakeLists.txt "$out/googletest/"
  for part in CMakeLists.txt cmake include src; do
    cp -r "/usr/src/googletest/googletest/$part" "$out/googletest/googletest/"
  done
else
  echo "no sources of GoogleTest: the device machine must have it (libgtest-dev)" >&2
fi
model=byte-lm:type=bf16,$large
if ! "$bin/WriteFamilies" "$out/families" "$model" >"$out/large.txt" 2>/dev/null; then
  model=byte-lm:$large
  "$bin/WriteFamilies" "$out/families" "$model" >"$out/large.txt"
fi
mv "$out"/families/large-*.psp "$out/"
echo "$model" >"$out/model.txt"
cat "$out/large.txt"
du -sh "$out"
