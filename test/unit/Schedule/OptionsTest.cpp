//===- OptionsTest.cpp - Variants of GPipe and 1F1B -----------------------===//

#include "../Support/FamilyChecks.h"

using namespace penstock;
using namespace penstock::test;

static GPipeOptions options(bool descending, bool recompute) {
  GPipeOptions result;
  result.descending = descending;
  result.recompute = recompute;
  return result;
}

TEST(GPipe, Descending) {
  const Problem problem = pipeline(2, 3);
  EXPECT_EQ(listing(gpipe(problem, options(true, false))),
            "0F0 0F1 0F2 0B2 0B1 0B0\n"
            "1F0 1F1 1F2 1B2 1B1 1B0\n");
}

TEST(GPipe, Recompute) {
  const Problem problem = pipeline(2, 2);
  EXPECT_EQ(listing(gpipe(problem, options(false, true))),
            "0F0 0F1 0R0 0B0 0R1 0B1\n"
            "1F0 1F1 1R0 1B0 1R1 1B1\n");
  EXPECT_EQ(listing(gpipe(problem, options(true, true))),
            "0F0 0F1 0R1 0B1 0R0 0B0\n"
            "1F0 1F1 1R1 1B1 1R0 1B0\n");
}

TEST(GPipe, ClosedFormsOfTheOptions) {
  for (int32_t p = 1; p <= 16; ++p)
    for (int32_t m : kMicrobatches)
      for (bool descending : {false, true}) {
        SCOPED_TRACE(testing::Message() << "p=" << p << " m=" << m);
        StageCost c = cost(2, 3, 1);
        c.recompute = 1.5;
        Problem problem = pipeline(p, m, c);
        for (Stage &stage : problem.stages)
          stage.bytes = {1, 100, 1000, 0, 0};
        const double work = c.forward + c.backward;
        const Timing timing =
            checked(gpipe(problem, options(descending, false)));
        EXPECT_EQ(timing.makespan, (m + p - 1) * work);
        const Timing again = checked(gpipe(problem, options(descending, true)));
        EXPECT_EQ(again.makespan, (m + p - 1) * work + m * c.recompute);
        for (int32_t r = 0; r < p; ++r) {
          EXPECT_EQ(timing.ranks[r].peakBytes, 1000 + 100 * m);
          // An input of each micro-batch and one activation; what the first
          // stage gets has no size.
          EXPECT_EQ(again.ranks[r].peakBytes, 1000 + 100 + (r > 0 ? m : 0));
          EXPECT_EQ(timing.ranks[r].peakActivations, m);
          EXPECT_EQ(again.ranks[r].peakActivations, 1);
        }
      }
}

// Where B recomputes by itself, F = 1 and B = 2 become F = 1 and B = 3.
TEST(GPipe, MakespanWithRecomputationInTheBackward) {
  EXPECT_EQ(simulated(gpipe(pipeline(4, 8, cost(1, 1, 2)))).makespan, 44);
  EXPECT_EQ(simulated(gpipe(pipeline(8, 8, cost(1, 1, 2)))).makespan, 60);
  // As an action of its own it runs earlier.
  EXPECT_EQ(simulated(gpipe(pipeline(4, 8), options(true, true))).makespan, 41);
  EXPECT_EQ(simulated(gpipe(pipeline(8, 8), options(true, true))).makespan, 53);
}

TEST(EagerOneForwardOneBackward, Order) {
  EXPECT_EQ(listing(eagerOneForwardOneBackward(pipeline(3, 5))),
            "0F0 0F1 0F2 0F3 0F4 0B0 0B1 0B2 0B3 0B4\n"
            "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1B3 1B4\n"
            "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 2F4 2B4\n");
}

TEST(EagerOneForwardOneBackward, ClosedForms) {
  for (int32_t p = 1; p <= 16; ++p)
    for (int32_t m : kMicrobatches) {
      SCOPED_TRACE(testing::Message() << "p=" << p << " m=" << m);
      const Timing timing =
          checked(eagerOneForwardOneBackward(pipeline(p, m, cost(2, 1, 0.5))));
      EXPECT_EQ(timing.makespan, (m + p - 1) * 3.5);
      for (int32_t r = 0; r < p; ++r)
        EXPECT_EQ(timing.ranks[r].peakActivations,
                  std::min(m, 2 * (p - r) - 1));
    }
}

TEST(EagerOneForwardOneBackward, Latency) {
  constexpr double latency = 1.0 / 64;
  for (int32_t p = 2; p <= 8; ++p)
    for (int32_t m = p; m <= 4 * p; ++m) {
      const Problem problem = pipeline(p, m, cost(1, 1, 1), latency);
      EXPECT_EQ(simulated(eagerOneForwardOneBackward(problem)).makespan,
                3 * (m + p - 1) + 2 * (p - 1) * latency)
          << "p=" << p << " m=" << m;
    }
  // p = 8, m = 24, F = 1, B = 2, latency 0.1: idle time of both variants.
  const Problem problem = pipeline(8, 24, cost(1, 1, 1), 0.1);
  EXPECT_NEAR(idle(simulated(oneForwardOneBackward(problem))), 26.4, 1e-9);
  EXPECT_NEAR(idle(simulated(eagerOneForwardOneBackward(problem))), 22.4, 1e-9);
}
