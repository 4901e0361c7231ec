//===- FamilyBenchmark.cpp - Orders of all families, and their times ------===//
//
// For every family on 64 ranks, at a quarter and at about one million actions:
// the generator, the simulation of its order, and that of its planned program.
// Times are given per action of the order; equal figures in both sizes show
// that a step is linear.
//
//===----------------------------------------------------------------------===//

#include "../test/unit/Support/Families.h"

#include "penstock/Analysis/CriticalPath.h"
#include "penstock/Lowering/Lowering.h"

#include <benchmark/benchmark.h>
#include <cstdlib>
#include <string>

using namespace penstock;
using penstock::test::PlacedFamily;

static Problem problemOf(const PlacedFamily &family, int64_t numActions) {
  constexpr int32_t numRanks = 64;
  Problem problem;
  problem.name = family.name;
  problem.numRanks = numRanks;
  problem.stages.resize(static_cast<size_t>(numRanks) * family.chunks);
  for (int32_t s = 0; s < problem.numStages(); ++s)
    problem.stages[s] = {s, 1, {}, {16384, 65536, 4096, 4096, 8192}};
  problem.numMicrobatches = static_cast<int32_t>(
      numActions / 2 / problem.numStages() / family.slices);
  problem.link.latency = 0.1;
  family.place(problem);
  return problem;
}

static Program orderOf(const PlacedFamily &family, const Problem &problem) {
  Result<Program> order = family.make(problem);
  if (!order)
    std::abort();
  return std::move(*order);
}

/// Times `step()`.
template <typename Step>
static void measure(benchmark::State &state, const Program &order,
                    Step &&step) {
  size_t numActions = 0;
  for (const RankProgram &rank : order.ranks)
    for (const Instruction &inst : rank.instructions)
      numActions += isAction(inst.op);
  for (auto _ : state)
    step();
  const auto n = static_cast<double>(numActions);
  state.counters["actions"] = n;
  state.counters["time/action"] =
      benchmark::Counter(n, benchmark::Counter::kIsIterationInvariantRate |
                                benchmark::Counter::kInvert);
}

static void generate(benchmark::State &state, const PlacedFamily &family) {
  const Problem problem = problemOf(family, state.range(0));
  measure(state, orderOf(family, problem),
          [&] { benchmark::DoNotOptimize(orderOf(family, problem)); });
}

static void simulate(benchmark::State &state, const PlacedFamily &family) {
  const Program order = orderOf(family, problemOf(family, state.range(0)));
  measure(state, order,
          [&] { benchmark::DoNotOptimize(simulateOrder(order).value()); });
}

static void path(benchmark::State &state, const PlacedFamily &family) {
  const Program order = orderOf(family, problemOf(family, state.range(0)));
  const Timing timing = simulateOrder(order).value();
  measure(state, order,
          [&] { benchmark::DoNotOptimize(criticalPath(order, timing)); });
}

static void simulatePlanned(benchmark::State &state,
                            const PlacedFamily &family) {
  const Program order = orderOf(family, problemOf(family, state.range(0)));
  Program program = order;
  appendSteps(program);
  if (!insertTransfers(program) || !planBuffers(program))
    std::abort();
  measure(state, order,
          [&] { benchmark::DoNotOptimize(simulateProgram(program).value()); });
}

static void add(const PlacedFamily &family) {
  for (auto [what, function] :
       {std::pair("order", &generate), std::pair("simulate_order", &simulate),
        std::pair("critical_path", &path),
        std::pair("simulate_program", &simulatePlanned)})
    benchmark::RegisterBenchmark(
        (std::string(family.name) + '/' + what).c_str(), function, family)
        ->ArgName("actions")
        ->Arg(250'000)
        ->Arg(1'000'000)
        ->Unit(benchmark::kMillisecond);
}

[[maybe_unused]] static const bool added = [] {
  using namespace penstock::test;
  for (const PlacedFamily &family :
       {kNaive, kGPipe, kOneForwardOneBackward, kPipeDream, kPipeDream2BW})
    add(family);
  for (const PlacedFamily &family : kInOrder)
    add(family);
  for (const PlacedFamily &family : kInAnotherOrder)
    add(family);
  return true;
}();
