//===- TimeTest.cpp - Where the time and the memory go --------------------===//
//
// The critical path, the waiting times and the memory over time of every
// family, as an order, with transfers, and planned.
//
//===----------------------------------------------------------------------===//

#include "../Support/Families.h"
#include "../Support/PathChecks.h"
#include "../Support/Problems.h"

#include "penstock/Analysis/MemoryOverTime.h"
#include "penstock/Lowering/Lowering.h"

#include <gtest/gtest.h>

using namespace penstock;
using namespace penstock::test;

static std::vector<PlacedFamily> allFamilies() {
  std::vector<PlacedFamily> families = {kNaive, kGPipe, kOneForwardOneBackward,
                                        kPipeDream, kPipeDream2BW};
  families.insert(families.end(), std::begin(kInOrder), std::end(kInOrder));
  families.insert(families.end(), std::begin(kInAnotherOrder),
                  std::end(kInAnotherOrder));
  return families;
}

/// What the steps hold at most, against what the simulation found.
static void expectPeaks(const Program &program, const Timing &timing,
                        bool movesStashes) {
  const auto steps = memoryOverTime(program, timing);
  for (size_t r = 0; r < steps.size(); ++r) {
    MemoryStep most;
    double time = -1;
    for (const MemoryStep &step : steps[r]) {
      EXPECT_GT(step.time, time);
      time = step.time;
      most.activations = std::max(most.activations, step.activations);
      most.bytes = std::max(most.bytes, step.bytes);
    }
    EXPECT_EQ(steps[r].front().time, 0);
    EXPECT_EQ(steps[r].back().activations, 0);
    if (movesStashes) {
      // The simulation counts these by whole actions, and in a program not
      // while they travel.
      if (timing.ofOrder) {
        EXPECT_LE(most.activations, timing.ranks[r].peakActivations) << r;
      }
      EXPECT_LE(most.bytes, timing.ranks[r].peakBytes) << r;
      continue;
    }
    EXPECT_EQ(most.activations, timing.ranks[r].peakActivations) << r;
    if (program.isPlanned()) {
      EXPECT_LE(most.bytes, timing.ranks[r].peakBytes) << r;
    } else {
      EXPECT_EQ(most.bytes, timing.ranks[r].peakBytes) << r;
    }
  }
}

class OfFamily : public testing::TestWithParam<PlacedFamily> {};
INSTANTIATE_TEST_SUITE_P(Time, OfFamily, testing::ValuesIn(allFamilies()),
                         [](const auto &info) { return info.param.name; });

TEST_P(OfFamily, AddsUp) {
  const bool movesStashes = std::string(GetParam().name) == "bpipe";
  for (auto [p, m] : {std::pair(2, 3), std::pair(4, 9)})
    for (const Link &link : {Link{}, Link{0.25, 0}, Link{0.5, 256}})
      for (uint32_t seed = 0; seed < 4; ++seed) {
        Problem problem =
            seed == 0 ? pipeline(p * GetParam().chunks, m)
                      : irregularPipeline(p * GetParam().chunks, m, seed);
        problem.numRanks = p;
        problem.link = link;
        problem.overlap = seed / 4.0;
        if (seed == 3) // every action takes time
          for (Stage &stage : problem.stages)
            stage.cost = cost(1 + stage.cost.forward, 1 + stage.cost.input,
                              1 + stage.cost.weight);
        GetParam().place(problem);
        SCOPED_TRACE(testing::Message()
                     << "p = " << p << ", m = " << m << ", latency "
                     << link.latency << ", seed " << seed);
        Result<Program> order = GetParam().make(problem);
        ASSERT_TRUE(order) << order.message();
        const bool takesTime = seed == 0 || seed == 3;
        std::optional<Timing> timing = simulateOrder(*order);
        ASSERT_TRUE(timing);
        expectTimeAddsUp(*order, *timing);
        if (takesTime)
          expectPeaks(*order, *timing, movesStashes);
        if (link.latency == 0) {
          for (const RankWaiting &rank : waitingTimes(*order, *timing))
            EXPECT_EQ(rank.transfers, 0);
        }
        Program program = *order;
        appendSteps(program);
        ASSERT_TRUE(insertTransfers(program));
        timing = simulateProgram(program);
        ASSERT_TRUE(timing);
        expectTimeAddsUp(program, *timing);
        if (takesTime && link.latency > 0)
          expectPeaks(program, *timing, movesStashes);
        ASSERT_TRUE(planBuffers(program));
        timing = simulateProgram(program);
        ASSERT_TRUE(timing);
        expectTimeAddsUp(program, *timing);
        if (takesTime && link.latency > 0)
          expectPeaks(program, *timing, movesStashes);
      }
}
