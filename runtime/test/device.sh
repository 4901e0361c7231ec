#!/usr/bin/env bash
# device.sh: the check of the runtime on one real GPU, or on the stand-in for it.
#
#   device.sh [--pack=FOLDER] [--build=FOLDER] [--steps=A,B,...] [--limit=SECONDS]
#   device.sh --stand-in=BUILD [--pack=FOLDER] [--steps=A,B,...] [--limit=SECONDS]
#
# Needs nvcc, CMake, ninja, a C++ compiler, NCCL (its Python package will do), and
# the folder that device-pack.sh has made (build/device-pack). It builds the runtime
# alone in --build (build/device), then takes its steps one after the other, each
# with a time limit of its own; one that fails stops no other. With --stand-in the
# same commands run without a GPU, on the programs of a complete build. A table comes
# last, and in $OUT/table.md, the logs beside it. Steps: see the end. Exit code 1: a
# step has failed.
set -uo pipefail
cd "$(dirname "$0")/../.."
script=$PWD/runtime/test/device.sh

# device.sh --ranks N COMMAND...: the command as N processes, which share the GPU
# because each is a host of its own (nccl.md, 9.2). % is the number of the process.
if [ "${1-}" = --ranks ]; then
  number=$2
  shift 2
  place=$(mktemp -u)
  pids=()
  for ((r = 0; r < number; ++r)); do
    NCCL_HOSTID=process$r "$@" --rendezvous="file://$place" --rank=$r \
      --world-size="$number" >"$place.$r" 2>&1 &
    pids+=($!)
  done
  code=0
  for pid in "${pids[@]}"; do
    wait "$pid" || code=$?
  done
  for ((r = 0; r < number; ++r)); do
    sed "s/^/[$r] /" "$place.$r"
  done
  rm -f "$place".*
  exit $code
fi

pack=$PWD/build/device-pack build=$PWD/build/device standin= steps= limit=460
for argument; do
  value=${argument#*=}
  case $argument in
  --pack=*) pack=$value ;;
  --build=*) build=$value ;;
  --stand-in=*) standin=$(cd "$value" && pwd) || exit 2 ;;
  --steps=*) steps=,$value, ;;
  --limit=*) limit=$value ;;
  *)
    sed -n '2,16s/^# \?//p' "$script" >&2
    exit 2
    ;;
  esac
done
out=${OUT:-$build/out}
logs=$(mktemp -d)
mkdir -p "$out"
trap 'rm -rf "$logs"' EXIT

export NCCL_SOCKET_IFNAME=lo NCCL_NET=Socket NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0
export NCCL_NVLS_ENABLE=0 NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_MAX_CTAS=2
export NCCL_RAS_ENABLE=0 NCCL_DEBUG=${NCCL_DEBUG-WARN} CUDA_MODULE_LOADING=EAGER
export PENSTOCK_FAMILIES=$pack/families

if [ -n "$standin" ]; then
  export PENSTOCK_STANDIN=devices=1,processes
  run=$standin/bin/penstock-run-standin
  cases=$standin/bin/StandInCases
  suite=$standin/runtime/test/conformance
  conformance=$suite/StandInJobTests families=$suite/StandInJobFamiliesTests
else
  run=$build/bin/penstock-run
  cases=$build/bin/GpuCases
  suite=$build/test/conformance
  conformance=$suite/GpuTests families=$suite/GpuFamiliesTests
fi

#------------------------------------------------------------------------------
# Steps
#------------------------------------------------------------------------------

rows=() failed=0 started=$SECONDS

# take NAME SECONDS WHAT COMMAND...: runs the command within the time; its last line
# that begins with `figure ` is the figure of the row. Exit code 77: skipped, the
# figure says why.
take() {
  local name=$1 seconds=$2 what=$3 left result figure code=0 begin=$SECONDS
  shift 3
  [ -z "$steps" ] || [[ $steps == *,$name,* ]] || return 0
  left=$((limit - (SECONDS - started)))
  if [ "$left" -lt 5 ]; then
    code=77
    echo "figure no time was left" >"$logs/$name.log"
  else
    export -f "${functions[@]}"
    timeout -k 3 "$((seconds < left ? seconds : left))" bash -uo pipefail -c '"$@"' - "$@" \
      >"$logs/$name.log" 2>&1 </dev/null || code=$?
  fi
  figure=$(sed -n 's/^figure //p' "$logs/$name.log" | tail -n 1)
  case $code in
  0) result=pass ;;
  77) result=skip ;;
  124 | 137) result=FAIL figure="${figure:+$figure; }ran out of time" ;;
  *) result=FAIL figure=${figure:-exit code $code: $(grep -v '^$' "$logs/$name.log" | tail -n 1 | cut -c1-160)} ;;
  esac
  [ $result != FAIL ] || failed=1
  rows+=("| $name | $result | $what | ${figure//|//} | $((SECONDS - begin)) s |")
  echo "$name: $result, $((SECONDS - begin)) s, $figure"
}

# needs FILE...: skips the step if one of them is not there.
needs() {
  for file; do
    if [ ! -e "$file" ]; then
      echo "figure $file is missing"
      exit 77
    fi
  done
}

# Headers and libraries of NCCL where CMake does not look: in a Python package.
find_nccl() {
  local folder
  if [ -e /usr/include/nccl.h ] || [ -e /usr/local/cuda/include/nccl.h ]; then
    return
  fi
  folder=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])') || return
  mkdir -p "$build/nccl/lib"
  ln -sfn "$folder/include" "$build/nccl/include"
  ln -sf "$folder/lib/libnccl.so.2" "$build/nccl/lib/libnccl.so"
  ln -sf "$folder/lib/libnccl.so.2" "$build/nccl/lib/"
  export NCCL_HOME=$build/nccl
}

machine() {
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>&1 | head -n 1
  ${CUDACXX:-nvcc} --version 2>&1 | tail -n 2
  echo "figure $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1), CUDA $(
    ${CUDACXX:-nvcc} --version | sed -n 's/.*release \([0-9.]*\).*/\1/p'), NCCL $(
    grep -h '#define NCCL_\(MAJOR\|MINOR\|PATCH\)' "${NCCL_HOME:-/usr/local/cuda}"/include/nccl.h |
      awk '{ printf "%s%s", dot, $3; dot = "." }'), $(nproc) cores"
}

build_alone() {
  local begin=$SECONDS
  needs "$pack/include" "$pack/googletest"
  cmake -S runtime -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DPENSTOCK_ENABLE_CUDA=ON -DPENSTOCK_ENABLE_MPI=OFF -DPENSTOCK_ENABLE_TESTS=ON \
    -DPENSTOCK_CUDA_ARCH="${PENSTOCK_CUDA_ARCH:-native}" \
    -DPENSTOCK_GOOGLETEST="$pack/googletest" \
    -DFLATBUFFERS_INCLUDE_DIR="$pack/include" "$@" || return
  cmake --build "$build" || return
  echo "figure built in $((SECONDS - begin)) s"
}

# A program of GoogleTest.
suite_of() {
  needs "$1"
  local code=0 log
  log=$(mktemp)
  "$@" >"$log" 2>&1 || code=$?
  # Processes speak at the same time.
  grep -a -v '\[ RUN \|\[       OK' "$log" | cut -c1-300
  if [ $code = 77 ]; then
    echo "figure there is no GPU"
  elif grep -a -q '^\[  PASSED  \]' "$log"; then
    echo "figure $(grep -a -o '^\[  PASSED  \] [0-9]* tests' "$log" |
      sort -u | sed 's/.*\] //' | tail -n 1) passed, $(grep -a -c '^\[  FAILED  \].*ms)' "$log") failed"
  fi
  rm -f "$log"
  return $code
}

# Steps of several ranks on the GPU: steps/s, and CPU time per instruction.
train() {
  local ranks=$1 log code=0
  shift
  needs "$run" "$1"
  log=$(mktemp)
  local begin=$EPOCHREALTIME
  if [ "$ranks" = 1 ]; then
    "$run" "$@" --backend=cuda >"$log" 2>&1 || code=$?
  else
    "$script" --ranks "$ranks" "$run" "$@" --backend=cuda >"$log" 2>&1 || code=$?
  fi
  cat "$log"
  if [ $code != 0 ] && grep -q 'computes on the host\|is not a key\|unknown key\|without cuBLAS\|no model for GPUs' "$log"; then
    echo "figure $(grep -h 'penstock-run: ' "$log" | head -n 1 | sed 's/.*penstock-run: //' | cut -c1-150)"
    code=77
  elif [ $code = 0 ]; then
    echo "figure $(sed -n 's/^\(\[0\] \)\?\(check\|graph\|trained\|loss\) *//p' "$log" |
      grep -v '^not used' | paste -sd ';' | sed 's/;/; /g')"
    if grep -q 'graph *not used' "$log"; then
      echo "figure $(sed -n 's/.*graph *\(not used\)/\1/p' "$log" | head -n 1)"
      code=1
    fi
  fi
  rm -f "$log"
  return $code
}

# Cases of NCCL: what happens is the figure, whatever it is.
nccl_case() {
  needs "$cases"
  local log code=0
  log=$(mktemp)
  "$cases" "$1" >"$log" 2>&1 || code=$?
  cat "$log"
  if [ $code = 77 ]; then
    echo "figure there is no GPU"
  elif [ "$1" = eager ]; then
    # The table in one line: the largest size that does not wait.
    echo "figure does not wait up to $(sed -n 's/^eager \(.*\): rank 0 does not.*/\1/p' "$log" |
      tail -n 1 | grep . || echo nothing); waits from $(sed -n 's/^eager \(.*\): rank 0 waits.*/\1/p' \
        "$log" | head -n 1 | grep . || echo nothing) on"
  else
    echo "figure $(grep "^$1" "$log" | sed "s/^$1[: ]*//" | paste -sd ';' | sed 's/;/; /g')"
  fi
  rm -f "$log"
  return $code
}

faults() {
  needs "$suite/FaultRun" "$run"
  "$suite/FaultRun" --run="$run" --backend=cuda --processes=4 "$@" >"$logs/faults.txt" 2>&1
  local code=$?
  cat "$logs/faults.txt"
  echo "figure $(sed -n 's/^\(kill -9\|SIGSTOP\|SIGTERM\|mismatch\) *\([0-9]*\) of *\([0-9]*\).*worst \([0-9.]* s\).*/\1 \2 of \3, worst \4/p' \
    "$logs/faults.txt" | paste -sd ';' | sed 's/;/; /g')"
  return $code
}

functions=(needs machine build_alone suite_of train nccl_case faults find_nccl)
export script pack build run cases suite logs

[ -n "$standin" ] || find_nccl
if [ -n "${NCCL_HOME-}" ]; then
  export LD_LIBRARY_PATH=$NCCL_HOME/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

order=$pack/families/m8_zb_h1_fused.psp
text=$PWD/README.md
if [ -z "$standin" ]; then
  take machine 20 "GPU, driver and libraries" machine
  take build 240 "the runtime alone, with its suite" build_alone
fi
take host 60 "suite, host devices in one process" suite_of "$suite/ConformanceTests"
take sockets 60 "suite, two processes over sockets" suite_of "$suite/SocketTests"
take cuda 120 "suite and whole runs, two processes on one GPU" suite_of "$conformance"
take eager 60 "NCCL: sends that end before their receive" nccl_case eager
take C01 40 "NCCL: both send first, connected" nccl_case C01
take C03 40 "NCCL: both send first, first use" nccl_case C03
take C23 40 "NCCL: second message to a peer in a group" nccl_case C23
take C24 60 "NCCL: one-sided group, 9 ranks" nccl_case C24
take kill 40 "NCCL: a killed peer" nccl_case kill
take capture 60 "NCCL: a group in a graph" nccl_case graph
take stream 60 "4 ranks of zb_h1, no model, streams" train 4 "$order" --model=none --steps=50
take graph 60 "4 ranks of zb_h1, no model, a graph" train 4 "$order" --model=none --steps=50 --graph
take memory 60 "the same with registered memory of NCCL" train 4 "$order" --model=none --steps=50 --graph --nccl-memory
take faults 90 "kill -9, SIGSTOP, SIGTERM, another program: 4 ranks" faults --kills=5 --stops=2 --terms=2 --mismatches=1
model=$(cat "$pack/model.txt" 2>/dev/null)
large=$(sed -n 's/^large-1: //p' "$pack/large.txt" 2>/dev/null)
take large-1 90 "$model, $large, p = 1, compared with the unpipelined model" \
  train 1 "$pack/large-1.psp" --model="$model" --text="$text" --steps=10 --check-gradients
take large-graph 60 "the same as a graph" \
  train 1 "$pack/large-1.psp" --model="$model" --text="$text" --steps=10 --graph
take large-4 90 "the same model, p = 4 on the shared GPU" \
  train 4 "$pack/large-4.psp" --model="$model" --text="$text" --steps=3 --check-gradients
some='*/m3_one_f_one_b_*:*/m3_interleaved*:*/m3_zb_v*:*/m3_dualpipe*:*/m3_hanayo*:*/m3_chimera*'
take families 100 "some families over 4 processes, bitwise as on threads" \
  suite_of "$families" --gtest_filter="$some"

{
  echo "| step | result | what | figure | time |"
  echo "| --- | --- | --- | --- | --- |"
  printf '%s\n' "${rows[@]-}"
} >"$out/table.md"
tar -C "$logs" -czf "$out/logs.tar.gz" .
echo
echo "$((SECONDS - started)) s; logs in $out/logs.tar.gz"
cat "$out/table.md"
exit $failed
