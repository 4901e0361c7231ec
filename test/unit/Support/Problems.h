//===- Problems.h - Problems to schedule, for tests -------------*- C++ -*-===//
//
// Pipelines with one stage on every rank, or several in a loop: uniform ones
// with the figures of the literature, and irregular ones from a seed.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_TEST_UNIT_SUPPORT_PROBLEMS_H
#define PENSTOCK_TEST_UNIT_SUPPORT_PROBLEMS_H

#include "penstock/Schedule/Schedule.h"

#include <random>

namespace penstock::test {

/// Costs F, I, W; B is I + W.
inline StageCost cost(double forward, double input, double weight) {
  return {forward, input + weight, input, weight, forward};
}

inline Problem pipeline(int32_t numRanks, int32_t numMicrobatches,
                        StageCost stageCost = {}, double latency = 0) {
  Problem problem;
  problem.name = "test";
  problem.numRanks = numRanks;
  problem.numMicrobatches = numMicrobatches;
  problem.stages.resize(numRanks);
  for (int32_t s = 0; s < numRanks; ++s) {
    problem.stages[s].firstLayer = s;
    problem.stages[s].cost = stageCost;
  }
  problem.placement = placeLoop(numRanks, numRanks);
  problem.link.latency = latency;
  return problem;
}

/// As pipeline, with `chunks` stages on every rank, in a loop.
inline Problem loopedPipeline(int32_t numRanks, int32_t chunks,
                              int32_t numMicrobatches, StageCost stageCost = {},
                              double latency = 0) {
  Problem problem =
      pipeline(numRanks * chunks, numMicrobatches, stageCost, latency);
  problem.numRanks = numRanks;
  problem.placement = placeLoop(problem.numStages(), numRanks);
  return problem;
}

/// Every stage its own costs, multiples of 1/16 so that sums are exact, one in
/// four of them zero; sizes of a few classes; stages on shuffled ranks.
inline Problem irregularPipeline(int32_t numRanks, int32_t numMicrobatches,
                                 uint32_t seed) {
  Problem problem = pipeline(numRanks, numMicrobatches);
  std::mt19937 random(seed);
  auto draw = [&] {
    return random() % 4 == 0 ? 0.0 : static_cast<double>(random() % 64) / 16;
  };
  for (Stage &stage : problem.stages) {
    stage.cost = cost(draw(), draw(), draw());
    stage.bytes.output = 64 * static_cast<int64_t>(random() % 3);
    stage.bytes.stash = 128 * static_cast<int64_t>(random() % 3);
    stage.bytes.parameters = 10;
    stage.bytes.gradients = 20;
    stage.bytes.optimizer = 30;
  }
  for (size_t i = problem.placement.size(); i > 1; --i)
    std::swap(problem.placement[i - 1], problem.placement[random() % i]);
  return problem;
}

struct Family {
  const char *name;
  Result<Program> (*generate)(const Problem &);
};
inline constexpr Family kFamilies[] = {
    {"naive", naive}, {"gpipe", gpipe}, {"one_f_one_b", oneForwardOneBackward}};

} // namespace penstock::test

#endif // PENSTOCK_TEST_UNIT_SUPPORT_PROBLEMS_H
