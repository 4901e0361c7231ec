//===- TwoChainsTest.cpp - Families with two chains -----------------------===//
//
// Every rank has two stages, one of either chain; with unit times unless a
// source says otherwise.
//
//===----------------------------------------------------------------------===//

#include "../Support/FamilyChecks.h"

using namespace penstock;
using namespace penstock::test;

//===----------------------------------------------------------------------===//
// DualPipe
//===----------------------------------------------------------------------===//

// Figures of github.com/deepseek-ai/DualPipe: idle is (p/2 - 1) (FB + B - 3W)
// with FB = F + B, and DualPipeV on half the ranks takes as long with half the
// micro-batches.
TEST(DualPipe, ClosedForms) {
  const StageCost costs[] = {cost(1, 1, 1), cost(2, 2, 0.5), cost(1, 1, 0)};
  for (int32_t p = 2; p <= 16; p += 2)
    for (int32_t m :
         {1, 2, 3, p, 2 * p - 1, 2 * p, 2 * p + 1, 2 * p + 2, 5 * p})
      for (const StageCost &c : costs) {
        SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m));
        const Timing timing = checked(dualPipe(bothWays(p, m, c)));
        EXPECT_LE(largestPeak(timing), std::min(m, p + 1));
        if (m < 2 * p || m % 2 != 0)
          continue;
        for (const RankTiming &rank : timing.ranks)
          EXPECT_EQ(rank.peakActivations, p + 1);
        EXPECT_EQ(idle(timing),
                  (p / 2 - 1) * (c.forward + 2 * c.backward - 3 * c.weight));
        EXPECT_EQ(timing.makespan,
                  simulated(dualPipeV(snake(p / 2, 2, m / 2, c))).makespan);
      }
}

TEST(DualPipe, Figures) {
  Timing timing = simulated(dualPipe(bothWays(8, 20)));
  EXPECT_EQ(timing.makespan, 66);
  EXPECT_EQ(idle(timing), 6);
  EXPECT_EQ(simulated(dualPipe(bothWays(4, 8))).makespan, 26);
  EXPECT_EQ(simulated(dualPipe(bothWays(4, 10))).makespan, 32);
}

// Where F = I does not hold the formula of the README is off.
TEST(DualPipe, FiguresOfUnequalTimes) {
  const struct {
    StageCost cost;
    double idle[3]; // p = 4, 8, 16
  } rows[] = {{cost(1, 0.8, 0.8), {2, 6, 14}},
              {cost(1, 1.5, 0.5), {3, 9.5, 23.5}}};
  for (const auto &row : rows)
    for (int i = 0; i < 3; ++i) {
      const int32_t p = 4 << i;
      EXPECT_NEAR(idle(simulated(dualPipe(bothWays(p, 4 * p, row.cost)))),
                  row.idle[i], 1e-9)
          << "p=" << p;
    }
}

// F&B may take anything from their sum to the longer one: the figures hold for
// the ranks in the middle, which run one F and one B more apart.
TEST(DualPipe, IdleOfOverlappedPairs) {
  const std::pair<double, double> rows[] = {
      {0, 6}, {0.25, 5.25}, {0.5, 4.5}, {0.75, 3.75}, {1, 3}};
  for (const auto &[overlap, idleTime] : rows) {
    Problem problem = bothWays(8, 20);
    problem.overlap = overlap;
    const Timing timing = simulated(dualPipe(problem));
    for (int32_t r : {3, 4})
      EXPECT_EQ(timing.span - timing.ranks[r].busy, idleTime)
          << "overlap=" << overlap;
  }
}

TEST(DualPipe, IsDualPipeVOnEitherHalf) {
  Result<Program> dual = dualPipe(bothWays(4, 10));
  Result<Program> half = dualPipeV(snake(2, 2, 5));
  ASSERT_TRUE(dual && half);
  for (int32_t r = 0; r < 2; ++r) {
    const auto &want = half->ranks[r].instructions;
    for (int32_t rank : {r, 3 - r}) {
      const auto &list = dual->ranks[rank].instructions;
      ASSERT_EQ(list.size(), want.size());
      for (size_t i = 0; i < list.size(); ++i) {
        // Stages 0 and 1 are on the way out, 2 and 3 on the way back.
        const bool out = want[i].stage < 2;
        Instruction inst = want[i];
        inst.microbatch += out == (rank < 2) ? 0 : 5;
        EXPECT_EQ(list[i], inst) << rank << ' ' << i;
      }
    }
  }
}

//===----------------------------------------------------------------------===//
// Chimera
//===----------------------------------------------------------------------===//

// S. Li, T. Hoefler (arXiv:2107.06925), figure 2: micro-batches 0 and 1 go
// down, 2 and 3 go up.
TEST(Chimera, Order) {
  Result<Program> order = chimera(bothWays(4, 4));
  ASSERT_TRUE(order) << order.message();
  EXPECT_EQ(listing(order->ranks[0]), "0F0 0F1 3F2 3B2 3F3 3B3 0B0 0B1");
  EXPECT_EQ(listing(order->ranks[1]), "1F0 2F2 1F1 2F3 2B2 1B0 2B3 1B1");
  EXPECT_EQ(listing(order->ranks[2]), "1F2 2F0 1F3 2F1 2B0 1B2 2B1 1B3");
  EXPECT_EQ(listing(order->ranks[3]), "0F2 0F3 3F0 3B0 3F1 3B1 0B2 0B3");
}

TEST(Chimera, ClosedForms) {
  for (int32_t p = 2; p <= 16; p += 2)
    for (int32_t m : {1, 2, p - 1, p, p + 1, 2 * p, 3 * p}) {
      SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m));
      const Timing equal = checked(chimera(bothWays(p, m, cost(1, 0.5, 0.5))));
      const Timing timing = checked(chimera(bothWays(p, m)));
      EXPECT_LE(largestPeak(timing), std::min(m, p));
      if (m % p != 0)
        continue;
      EXPECT_EQ(equal.makespan, 2 * m + p - 2);
      if (m == p) {
        EXPECT_EQ(timing.makespan, 3 * m + 2 * (p - 2));
      }
      for (int32_t r = 0; r < p; ++r)
        EXPECT_EQ(timing.ranks[r].peakActivations,
                  std::min(p, p / 2 + 1 + std::min(r, p - 1 - r)));
    }
}

// Units that follow each other, where a backward takes two forwards.
TEST(Chimera, Figures) {
  auto excess = [](int32_t p, int32_t m) {
    return simulated(chimera(bothWays(p, m))).makespan - 3 * m;
  };
  EXPECT_EQ(excess(4, 4), 4);
  EXPECT_EQ(excess(8, 8), 12);
  EXPECT_EQ(excess(4, 8), 6);
  EXPECT_EQ(excess(4, 16), 10);
  EXPECT_EQ(excess(8, 16), 18);
  EXPECT_EQ(excess(8, 32), 30);
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

static constexpr Family kTwoChains[] = {{"dualpipe", dualPipe},
                                        {"chimera", chimera}};

TEST(TwoChains, TimelinesInTheSources) {
  expectTimelineInSource(dualPipe(bothWays(4, 8)), "DualPipe");
  expectTimelineInSource(chimera(bothWays(4, 8)), "Chimera");
}

TEST(TwoChains, PlaceBothWays) {
  const Problem problem = bothWays(3, 5);
  EXPECT_EQ(problem.placement, (std::vector<int32_t>{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(problem.chains, (std::vector<uint8_t>{0, 0, 0, 1, 1}));
}

TEST(TwoChains, TakeAnyNamesOfTheRanks) {
  for (const Family &family : kTwoChains) {
    Problem problem = bothWays(4, 9);
    Result<Program> order = family.generate(problem);
    problem.placement = {2, 0, 3, 1, 1, 3, 0, 2};
    Result<Program> renamed = family.generate(problem);
    ASSERT_TRUE(order && renamed);
    for (int32_t r = 0; r < 4; ++r)
      EXPECT_EQ(renamed->ranks[problem.placement[r]], order->ranks[r]);
  }
}

TEST(TwoChains, TakeTheChainsThatTheMicrobatchesHave) {
  for (const Family &family : kTwoChains) {
    Problem problem = bothWays(2, 5);
    problem.chains = {1, 0, 0, 1, 0};
    checked(family.generate(problem));
    problem.chains = {0, 0, 0, 0, 0};
    checked(family.generate(problem));
  }
}

TEST(TwoChains, OneMicrobatchIsTheNaiveOrder) {
  for (int32_t p = 2; p <= 6; p += 2)
    for (const Family &family : kTwoChains)
      EXPECT_EQ(withoutSplit(family.generate(bothWays(p, 1))),
                *naive(bothWays(p, 1)))
          << family.name << " p=" << p;
}

TEST(TwoChains, RefuseWhatTheyCannotSchedule) {
  for (const Family &family : kTwoChains) {
    const std::string name = std::string(family.name) + ": ";
    auto message = [&](const Problem &problem) {
      Result<Program> order = family.generate(problem);
      return order ? "accepted" : order.message();
    };
    EXPECT_EQ(message(bothWays(5, 10)),
              name +
                  "needs an even number of ranks, but there are 5; give 4 or "
                  "6");
    EXPECT_EQ(message(bothWays(1, 10)),
              name + "needs an even number of ranks, but there are 1; give 2");
    EXPECT_EQ(message(pipeline(2, 4)),
              name + "needs two chains, but the problem has 1; place every "
                     "stage on two ranks");
    EXPECT_EQ(message(snake(2, 2, 4)),
              name +
                  "needs as many stages as ranks, but there are 4 stages and "
                  "2 ranks; make the numbers equal");
    Problem problem = bothWays(2, 4);
    problem.placement = {0, 0, 0, 0};
    EXPECT_EQ(message(problem),
              name +
                  "needs one stage of either chain on every rank, but stages "
                  "0 and 1 are both on rank 0; place one of them elsewhere");
    problem.placement = {0, 1, 0, 1};
    EXPECT_EQ(message(problem),
              name + "stage 0 of chain 1 is on rank 0, but the two chains go "
                     "against each other; place it on rank 1, with stage 1 of "
                     "chain 0");
    EXPECT_EQ(message(bothWays(2, 0)),
              name + "there are no micro-batches; give at least one");
  }
}
