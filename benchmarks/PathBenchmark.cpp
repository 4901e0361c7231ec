//===- PathBenchmark.cpp - From a problem to a program file ---------------===//
//
// Every step of the C++ path on its own, and the path as a whole, for 1F1B on
// 64 ranks: 325 to 2600 micro-batches are 0.12 to 1 million instructions. Time
// and peak heap beyond the input are given per instruction of the complete
// program; equal figures in all sizes show that a step is linear.
//
//===----------------------------------------------------------------------===//

#include "HeapMeter.h"

#include "penstock/Analysis/Certify.h"
#include "penstock/Analysis/ChromeTrace.h"
#include "penstock/Analysis/CriticalPath.h"
#include "penstock/Analysis/Verify.h"
#include "penstock/Lowering/Lowering.h"
#include "penstock/Program/Certificate.h"
#include "penstock/Program/File.h"
#include "penstock/Schedule/Schedule.h"

#include <algorithm>
#include <benchmark/benchmark.h>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <variant>

#include <unistd.h>

using namespace penstock;
using penstock::benchmarks::HeapMeter;

/// The value, or the end of the benchmark.
template <typename T>
static T require(Result<T> result) {
  if (!result)
    std::abort();
  return std::move(*result);
}
static void require(const Status &status) {
  if (!status)
    std::abort();
}

static Problem problemOf(const benchmark::State &state) {
  constexpr int32_t numRanks = 64;
  Problem problem;
  problem.name = "benchmark";
  problem.numRanks = numRanks;
  problem.numMicrobatches = static_cast<int32_t>(state.range(0));
  problem.stages.resize(numRanks);
  for (int32_t s = 0; s < numRanks; ++s)
    problem.stages[s] = {s, 1, {}, {16384, 65536, 4096, 4096, 8192}};
  problem.placement = placeLoop(numRanks, numRanks);
  problem.link.latency = 0.1;
  return problem;
}

static Program orderOf(const Problem &problem) {
  Program order = require(oneForwardOneBackward(problem));
  appendSteps(order);
  return order;
}

/// The forms of the program on its way, computed once for each size.
struct Forms {
  Program order, complete, planned;
};
static const Forms &formsOf(const benchmark::State &state) {
  static std::map<int64_t, Forms> cache;
  Forms &forms = cache[state.range(0)];
  if (forms.order.ranks.empty()) {
    forms.order = orderOf(problemOf(state));
    forms.complete = forms.order;
    require(insertTransfers(forms.complete));
    forms.planned = forms.complete;
    require(planBuffers(forms.planned));
  }
  return forms;
}

/// Times `step(input)`, where every round gets its own copy of the input.
template <typename Input, typename Step>
static void measure(benchmark::State &state, const Input &input, Step &&step) {
  const auto n = static_cast<double>(formsOf(state).planned.numInstructions());
  size_t peak = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto copy = std::make_unique<Input>(input);
    HeapMeter meter;
    state.ResumeTiming();
    step(*copy);
    state.PauseTiming();
    peak = std::max(peak, meter.peak());
    copy.reset();
    state.ResumeTiming();
  }
  state.SetComplexityN(static_cast<int64_t>(n));
  state.counters["instructions"] = n;
  state.counters["time/instruction"] =
      benchmark::Counter(n, benchmark::Counter::kIsIterationInvariantRate |
                                benchmark::Counter::kInvert);
  state.counters["bytes/instruction"] = static_cast<double>(peak) / n;
}

static void order(benchmark::State &state) {
  measure(state, problemOf(state), [](const Problem &problem) {
    benchmark::DoNotOptimize(orderOf(problem));
  });
}

static void transfers(benchmark::State &state) {
  measure(state, formsOf(state).order,
          [](Program &program) { require(insertTransfers(program)); });
}

static void buffers(benchmark::State &state) {
  measure(state, formsOf(state).complete,
          [](Program &program) { require(planBuffers(program)); });
}

static void deadlock(benchmark::State &state) {
  measure(state, formsOf(state).planned, [](const Program &program) {
    if (!checkDeadlock(program, Semantics::Closure).ok)
      std::abort();
  });
}

static void certify(benchmark::State &state) {
  measure(state, formsOf(state).planned, [](Program &program) {
    if (!penstock::certify(program))
      std::abort();
  });
}

static void certificate(benchmark::State &state) {
  Program program = formsOf(state).planned;
  if (!penstock::certify(program))
    std::abort();
  measure(state, program,
          [](const Program &program) { require(checkCertificate(program)); });
}

/// A group in the middle of the program is split: what follows waits in a
/// circle. The explanation has the cycle, a checked repair and the capacity
/// that would help.
static Program splitGroup(Program program) {
  auto &list = program.ranks[program.ranks.size() / 2].instructions;
  auto member = std::find_if(
      list.begin() + static_cast<ptrdiff_t>(list.size() / 2), list.end(),
      [](const Instruction &inst) { return inst.joined; });
  member->joined = false;
  return program;
}

static void explain(benchmark::State &state) {
  measure(
      state, splitGroup(formsOf(state).planned), [](const Program &program) {
        const DeadlockResult result =
            checkDeadlock(program, Semantics::Closure);
        if (result.ok || describeDeadlock(program, result, Semantics::Closure)
                                 .message.find("with it the program ends") ==
                             std::string::npos)
          std::abort();
      });
}

static void verify_all(benchmark::State &state) {
  measure(state, formsOf(state).planned, [](const Program &program) {
    if (!verify(program).accepted())
      std::abort();
  });
}

static void simulate_order(benchmark::State &state) {
  measure(state, formsOf(state).order, [](const Program &program) {
    benchmark::DoNotOptimize(simulateOrder(program).value());
  });
}

static void simulate_program(benchmark::State &state) {
  measure(state, formsOf(state).planned, [](const Program &program) {
    benchmark::DoNotOptimize(simulateProgram(program).value());
  });
}

static void critical_path(benchmark::State &state) {
  const Timing timing = simulateProgram(formsOf(state).planned).value();
  measure(state, formsOf(state).planned, [&](const Program &program) {
    benchmark::DoNotOptimize(criticalPath(program, timing));
  });
}

static void chrome_trace(benchmark::State &state) {
  const Timing timing = simulateProgram(formsOf(state).planned).value();
  measure(state, formsOf(state).planned, [&](const Program &program) {
    writeChromeTrace(program, timing, [](std::string_view text) {
      benchmark::DoNotOptimize(text.data());
    });
  });
}

/// Where files go: in memory where there is such a place, so that no disk is
/// measured.
static std::string fileName() {
  const std::string shared = "/dev/shm";
  const std::string directory =
      access(shared.c_str(), W_OK) == 0 ? shared : "/tmp";
  return directory + "/penstock-bench-" + std::to_string(getpid()) + ".psp";
}

static void write_file(benchmark::State &state) {
  measure(state, formsOf(state).planned, [](const Program &program) {
    require(writeProgramFile(program, fileName()));
  });
  std::remove(fileName().c_str());
}

static void load_file(benchmark::State &state) {
  require(writeProgramFile(formsOf(state).planned, fileName()));
  measure(state, std::monostate(), [](std::monostate) {
    benchmark::DoNotOptimize(require(readProgramFile(fileName())));
  });
  std::remove(fileName().c_str());
}

/// Order, transfers, buffers, all five rules, simulation, file.
static void order_to_verified_file(benchmark::State &state) {
  measure(state, problemOf(state), [](const Problem &problem) {
    Program program = orderOf(problem);
    require(insertTransfers(program));
    require(planBuffers(program));
    if (!verify(program).accepted())
      std::abort();
    benchmark::DoNotOptimize(simulateProgram(program).value());
    require(writeProgramFile(program, fileName()));
  });
  std::remove(fileName().c_str());
}

static void sizes(benchmark::internal::Benchmark *benchmark) {
  for (int64_t microbatches : {325, 650, 1300, 2600})
    benchmark->Arg(microbatches);
  benchmark->ArgName("microbatches")
      ->Complexity(benchmark::oN)
      ->Unit(benchmark::kMillisecond);
}

BENCHMARK(order)->Apply(sizes);
BENCHMARK(transfers)->Apply(sizes);
BENCHMARK(buffers)->Apply(sizes);
BENCHMARK(deadlock)->Apply(sizes);
BENCHMARK(certify)->Apply(sizes);
BENCHMARK(certificate)->Apply(sizes);
BENCHMARK(explain)->Apply(sizes);
BENCHMARK(verify_all)->Apply(sizes);
BENCHMARK(simulate_order)->Apply(sizes);
BENCHMARK(simulate_program)->Apply(sizes);
BENCHMARK(critical_path)->Apply(sizes);
BENCHMARK(chrome_trace)->Apply(sizes);
BENCHMARK(write_file)->Apply(sizes);
BENCHMARK(load_file)->Apply(sizes);
BENCHMARK(order_to_verified_file)->Apply(sizes);

BENCHMARK_MAIN();
