//===- HanayoTest.cpp - Waves ---------------------------------------------===//

#include "../Support/FamilyChecks.h"

using namespace penstock;
using namespace penstock::test;

// By hand: F of micro-batch 2 waits until 0 has left.
TEST(Hanayo, Order) {
  EXPECT_EQ(listing(hanayo(snake(2, 2, 3))),
            "0F0 0F1 3F0 3B0 3F1 3B1 0B0 0F2 0B1 3F2 3B2 0B2\n"
            "1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1 1F2 2F2 2B2 1B2\n");
}

// Z. Liu et al. (arXiv:2308.15762): (2p-2) / (3pw + p-1) for B = 2F and m = p.
// The list scheduler's values were computed apart from this implementation.
TEST(Hanayo, BubbleRates) {
  const struct {
    int32_t p, waves;
    double rate;
  } rows[] = {{4, 1, 0.333}, {4, 2, 0.213}, {4, 4, 0.119},
              {8, 1, 0.368}, {8, 2, 0.238}, {8, 4, 0.135}};
  for (const auto &[p, w, rate] : rows) {
    const Timing timing = simulated(hanayo(snake(p, 2 * w, p), w));
    EXPECT_NEAR(timing.bubbleRate, rate, 0.0005) << "p=" << p << " w=" << w;
    EXPECT_LE(timing.bubbleRate, (2.0 * p - 2) / (3 * p * w + p - 1) * 1.02);
  }
}

TEST(Hanayo, CompleteWithinTheMemoryOf1F1B) {
  for (int32_t p = 1; p <= 16; ++p)
    for (int32_t w : {1, 2, 3})
      for (int32_t m : kMicrobatches) {
        // Of the large ones, which take time, one.
        if (m > 8 && m != kMicrobatches[11 - (p + 2 * w) % 4])
          continue;
        SCOPED_TRACE("p=" + std::to_string(p) + " w=" + std::to_string(w) +
                     " m=" + std::to_string(m));
        const Timing timing = checked(hanayo(snake(p, 2 * w, m), w));
        EXPECT_LE(largestPeak(timing), 2 * w * std::min(m, p));
      }
}

TEST(Hanayo, OneMicrobatchIsTheNaiveOrder) {
  for (int32_t p = 1; p <= 5; ++p)
    for (int32_t w : {1, 2, 32})
      EXPECT_EQ(*hanayo(snake(p, 2 * w, 1), w), *naive(snake(p, 2 * w, 1)));
}

TEST(Hanayo, TakesAnyNamesOfTheRanks) {
  Problem problem = snake(3, 4, 7);
  Result<Program> order = hanayo(problem, 2);
  problem.placement = {2, 0, 1, 1, 0, 2, 2, 0, 1, 1, 0, 2};
  Result<Program> renamed = hanayo(problem, 2);
  ASSERT_TRUE(order && renamed);
  for (int32_t r = 0; r < 3; ++r)
    EXPECT_EQ(renamed->ranks[problem.placement[r]], order->ranks[r]);
}

TEST(Hanayo, TimelineInTheSource) {
  expectTimelineInSource(hanayo(snake(3, 2, 3)), "Hanayo");
}

TEST(Hanayo, RefusesWhatItCannotSchedule) {
  EXPECT_EQ(hanayo(snake(2, 2, 4), 0).message(),
            "hanayo: 0 waves; give a number from 1 to 32");
  EXPECT_EQ(hanayo(snake(2, 2, 4), 33).message(),
            "hanayo: 33 waves; give a number from 1 to 32");
  EXPECT_EQ(
      hanayo(snake(2, 3, 4), 1).message(),
      "hanayo: needs 2 stages on every rank, but there are 6 stages and 2 "
      "ranks; make it 4 stages");
  Problem problem = snake(2, 4, 4);
  problem.placement = placeLoop(8, 2);
  EXPECT_EQ(hanayo(problem, 2).message(),
            "hanayo: stage 2 is on rank 0, but the stages go along the ranks "
            "and back; place it on rank 1, with stage 1");
  EXPECT_EQ(hanayo(snake(2, 2, 0)).message(),
            "hanayo: there are no micro-batches; give at least one");
}
