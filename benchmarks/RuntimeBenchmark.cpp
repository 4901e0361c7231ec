//===- RuntimeBenchmark.cpp - What the runtime itself costs ---------------===//
//
// Whole runs on the host back end with a model that does nothing. An iteration
// is a run of some steps; the counters are the time of one instruction or
// transfer, and how many there are in a second. `handOver` is what the machine
// allows: a value to and fro between two threads that look all the time, or
// that sleep. With fewer cores than threads, and on a busy machine, everything
// is as slow as sleeping.
//
//===----------------------------------------------------------------------===//

#include "penstock/Runtime/Run.h"

#include <benchmark/benchmark.h>

#include <atomic>
#include <chrono>
#include <thread>

using namespace penstock;
using namespace penstock::runtime;

namespace {

constexpr int kPerStep = 4096;

Program makeProgram(int32_t numRanks) {
  Program program;
  program.problem.name = "bench";
  program.problem.numRanks = numRanks;
  program.problem.numMicrobatches = kPerStep;
  for (int32_t s = 0; s < numRanks; ++s) {
    program.problem.stages.emplace_back();
    program.problem.placement.push_back(s);
  }
  program.ranks.resize(numRanks);
  for (RankProgram &rank : program.ranks)
    rank.slotBytes.assign(1, 4096);
  return program;
}

Instruction forward(int32_t rank, int32_t mb) {
  Instruction inst;
  inst.stage = rank;
  inst.microbatch = mb;
  return inst;
}

Instruction transfer(Op op, int32_t stage, int32_t mb, int32_t peer,
                     int64_t bytes) {
  Instruction inst;
  inst.op = op;
  inst.payload = Payload::Activation;
  inst.stage = stage;
  inst.microbatch = mb;
  inst.peer = peer;
  inst.bytes = bytes;
  inst.slots[Slot] = 0;
  return inst;
}

/// Runs steps until the benchmark has enough; `count` things happen in each.
void runSteps(benchmark::State &state, const Program &program, double count) {
  RunOptions options;
  options.force = true; // no training step, only its parts
  options.steps = 20;
  double seconds = 0;
  int64_t steps = 0;
  for (auto _ : state) {
    const RunReport report = runProgram(program, makeNullModel(), options);
    if (!report)
      return state.SkipWithError(report.error.message.c_str());
    state.SetIterationTime(report.seconds);
    seconds += report.seconds;
    steps += report.steps;
  }
  count *= static_cast<double>(steps);
  state.counters["each"] = seconds / count;
  state.counters["per_second"] = count / seconds;
}

/// A number to and fro between two threads, by `await(number, target)`.
template <typename Await>
void handOver(benchmark::State &state, std::atomic<int> &number,
              Await &&await) {
  for (auto _ : state) {
    number = 0;
    const auto start = std::chrono::steady_clock::now();
    std::thread other([&] {
      for (int i = 1; i < 2 * kPerStep; i += 2) {
        await(i);
        number = i + 1;
        number.notify_one();
      }
    });
    for (int i = 0; i < 2 * kPerStep; i += 2) {
      await(i);
      number = i + 1;
      number.notify_one();
    }
    other.join();
    const std::chrono::duration<double> time =
        std::chrono::steady_clock::now() - start;
    state.SetIterationTime(time.count());
    state.counters["each"] = time.count() / (2 * kPerStep);
  }
}
void handOverSpinning(benchmark::State &state) {
  std::atomic<int> number;
  handOver(state, number, [&](int target) {
    while (number.load() != target)
      ;
  });
}
void handOverByAtomicWait(benchmark::State &state) {
  std::atomic<int> number;
  handOver(state, number, [&](int target) {
    for (int now; (now = number.load()) != target;)
      number.wait(now);
  });
}
BENCHMARK(handOverSpinning)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(handOverByAtomicWait)->UseManualTime()->Unit(benchmark::kMillisecond);

/// Actions of one rank, one queue: enqueue, hand-over, records, call.
void action(benchmark::State &state) {
  Program program = makeProgram(1);
  for (int32_t mb = 0; mb < kPerStep; ++mb)
    program.ranks[0].instructions.push_back(forward(0, mb));
  runSteps(state, program, kPerStep);
}
BENCHMARK(action)->UseManualTime()->Unit(benchmark::kMillisecond);

/// Every instruction on the other queue than the one before, which it waits
/// for: the price of an event between two threads.
void eventBetweenQueues(benchmark::State &state) {
  Program program = makeProgram(1);
  RankProgram &rank = program.ranks[0];
  for (int32_t mb = 0; mb < kPerStep; ++mb) {
    Instruction inst = forward(0, mb);
    if (mb % 2) {
      inst = {};
      inst.op = Op::Unshard;
      inst.stage = 0;
      inst.queue = 1;
    }
    if (mb > 0) {
      inst.firstWait = static_cast<uint32_t>(rank.waits.size());
      inst.numWaits = 1;
      rank.waits.push_back(static_cast<uint32_t>(mb - 1));
    }
    rank.instructions.push_back(inst);
  }
  runSteps(state, program, kPerStep);
}
BENCHMARK(eventBetweenQueues)->UseManualTime()->Unit(benchmark::kMillisecond);

/// Messages of `range(0)` bytes all from rank 0 to rank 1.
void streamOfMessages(benchmark::State &state) {
  Program program = makeProgram(2);
  for (int32_t mb = 0; mb < kPerStep; ++mb) {
    program.ranks[0].instructions.push_back(
        transfer(Op::Send, 0, mb, 1, state.range(0)));
    program.ranks[1].instructions.push_back(
        transfer(Op::Recv, 0, mb, 0, state.range(0)));
  }
  runSteps(state, program, kPerStep);
}
BENCHMARK(streamOfMessages)
    ->Arg(8)
    ->Arg(4096)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

/// Messages to and fro: each is a full rendezvous that nothing hides.
void pingPong(benchmark::State &state) {
  Program program = makeProgram(2);
  for (int32_t mb = 0; mb < kPerStep; ++mb) {
    const int32_t from = mb % 2, to = 1 - from;
    program.ranks[from].instructions.push_back(
        transfer(Op::Send, 0, mb, to, 8));
    program.ranks[to].instructions.push_back(
        transfer(Op::Recv, 0, mb, from, 8));
  }
  runSteps(state, program, kPerStep);
}
BENCHMARK(pingPong)->UseManualTime()->Unit(benchmark::kMillisecond);

} // namespace

BENCHMARK_MAIN();
