//===- VShapesTest.cpp - Families whose stages go there and back ----------===//
//
// Figures are of schedules of unit times unless a source says otherwise; a
// stage is half of what a rank holds.
//
//===----------------------------------------------------------------------===//

#include "../Support/FamilyChecks.h"

#include <array>
#include <map>
#include <set>

using namespace penstock;
using namespace penstock::test;

//===----------------------------------------------------------------------===//
// ZB-V
//===----------------------------------------------------------------------===//

// The order of torch's ZBVZeroBubble, idle cells left out.
TEST(ZBV, Order) {
  Result<Program> order = zbV(snake(4, 2, 8));
  ASSERT_TRUE(order) << order.message();
  const char *lists[] = {
      "0F0 0F1 0F2 0F3 0F4 0F5 0F6 7F0 7I0 7W0 7F1 7I1 7W1 7F2 7I2 7W2 7F3 7I3 "
      "7W3 0F7 0I0 0W0 7F4 7I4 7W4 0I1 0W1 7F5 7I5 7W5 0I2 0W2 7F6 7I6 7W6 0I3 "
      "0W3 7F7 7I7 7W7 0I4 0W4 0I5 0W5 0I6 0W6 0I7 0W7",
      "1F0 1F1 1F2 1F3 1F4 6F0 1F5 6F1 6I0 6W0 6F2 6I1 6W1 6F3 6I2 6W2 1F6 1I0 "
      "1W0 6F4 6I3 6W3 1F7 1I1 1W1 6F5 6I4 6W4 1I2 1W2 6F6 6I5 6W5 1I3 1W3 6F7 "
      "6I6 6W6 1I4 6I7 1I5 1W4 1I6 1W5 1I7 1W6 6W7 1W7",
      "2F0 2F1 2F2 5F0 2F3 5F1 2F4 5F2 5I0 5W0 5F3 5I1 5W1 2F5 2I0 2W0 5F4 5I2 "
      "5W2 2F6 2I1 2W1 5F5 5I3 5W3 2F7 2I2 2W2 5F6 5I4 5W4 2I3 2W3 5F7 5I5 5W5 "
      "2I4 5I6 2I5 5I7 2I6 2W4 2I7 2W5 5W6 5W7 2W6 2W7",
      "3F0 4F0 3F1 4F1 3F2 4F2 3F3 4F3 4I0 4W0 3F4 3I0 3W0 4F4 4I1 4W1 3F5 3I1 "
      "3W1 4F5 4I2 4W2 3F6 3I2 3W2 4F6 4I3 4W3 3F7 3I3 3W3 4F7 4I4 4W4 3I4 4I5 "
      "3I5 4I6 3I6 4I7 3I7 3W4 4W5 4W6 4W7 3W5 3W6 3W7"};
  for (int r = 0; r < 4; ++r)
    EXPECT_EQ(listing(order->ranks[r]), lists[r]);
}

TEST(ZBV, ClosedForms) {
  for (int32_t p = 1; p <= 16; ++p)
    for (int32_t m : {1, 2, p, 2 * p - 2, 2 * p - 1, 2 * p, 4 * p + 1}) {
      if (m < 1)
        continue;
      SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m));
      const Timing timing = checked(zbV(snake(p, 2, m)));
      EXPECT_LE(largestPeak(timing), 2 * std::min(m, p));
      if (m < 2 * p - 1)
        continue;
      for (const RankTiming &rank : timing.ranks)
        EXPECT_EQ(rank.peakActivations, 2 * p);
      EXPECT_EQ(timing.span, 6 * m);
      EXPECT_EQ(timing.makespan, 6 * m + p - 1);
    }
}

// P. Qi et al. (arXiv:2401.10241), by hand: fewer micro-batches than 2p - 1,
// and unequal times.
TEST(ZBV, Figures) {
  EXPECT_EQ(idle(simulated(zbV(snake(4, 2, 6)))), 2);
  EXPECT_EQ(idle(simulated(zbV(snake(4, 2, 4)))), 6);
  EXPECT_NEAR(idle(simulated(zbV(snake(4, 2, 8, cost(1, 1.2, 0.7))))), 3.0,
              1e-9);
  EXPECT_NEAR(idle(simulated(zbV(snake(8, 2, 16, cost(1, 1.2, 0.7))))), 7.0,
              1e-9);
}

TEST(ZBV, LeavesOutMicrobatches) {
  Result<Program> order = zbV(snake(2, 2, 2));
  ASSERT_TRUE(order);
  EXPECT_EQ(listing(order->ranks[0]),
            "0F0 0F1 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 0I1 0W1");
  EXPECT_EQ(listing(order->ranks[1]),
            "1F0 2F0 1F1 2F1 2I0 2W0 1I0 1W0 2I1 2W1 1I1 1W1");
}

/// The phases of torch's ZBVZeroBubble as they are written down for it: of at
/// least 2p - 1 micro-batches, without those that are not there.
static std::string phasesOfZBV(int32_t p, int32_t r, int32_t m) {
  const int32_t n = std::max(2 * p - 1, m);
  std::string text;
  std::map<std::string, int32_t> next;
  auto run = [&](int32_t repetitions, std::initializer_list<const char *> ops) {
    for (int32_t k = 0; k < repetitions; ++k)
      for (const std::string op : ops) { // letter and chunk
        const int32_t mb = next[op];
        if (mb == n)
          continue;
        ++next[op];
        if (mb < m)
          text += (text.empty() ? "" : " ") +
                  std::to_string(op[1] == '0' ? r : 2 * p - 1 - r) + op[0] +
                  std::to_string(mb);
      }
  };
  run(2 * (p - r) - 1, {"F0"});
  run(r, {"F1", "F0"});
  run(p - r, {"F1", "I1", "W1"});
  while (next["F0"] < n || next["F1"] < n)
    run(1, {"F0", "I0", "W0", "F1", "I1", "W1"});
  run(r, {"I0", "I1"});
  run(p - r, {"I0", "W0"});
  run(n, {"W1"});
  run(n, {"W0"});
  return text;
}

TEST(ZBV, Phases) {
  for (int32_t p = 1; p <= 16; ++p)
    for (int32_t m : kMicrobatches) {
      const Result<Program> order = zbV(snake(p, 2, m));
      ASSERT_TRUE(order) << order.message();
      for (int32_t r = 0; r < p; ++r)
        EXPECT_EQ(listing(order->ranks[r]), phasesOfZBV(p, r, m))
            << "p=" << p << " m=" << m;
    }
}

//===----------------------------------------------------------------------===//
// DualPipeV
//===----------------------------------------------------------------------===//

TEST(DualPipeV, Order) {
  Result<Program> order = dualPipeV(snake(2, 2, 4));
  ASSERT_TRUE(order) << order.message();
  EXPECT_EQ(listing(order->ranks[0]),
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 (0F3&3B1) (3F2&0B0) 3B2 (3F3&0B1) 3B3 "
            "0I2 0W2 0I3 0W3");
  EXPECT_EQ(listing(order->ranks[1]),
            "1F0 2F0 1F1 2F1 1F2 2B0 (2F2&1B0) (1F3&2B1) (2F3&1B1) 2B2 1B2 2I3 "
            "1I3 2W3 1W3");
}

TEST(DualPipeV, ClosedForms) {
  const StageCost costs[] = {cost(1, 1, 1), cost(2, 2, 0.5), cost(1, 1, 0)};
  for (int32_t p = 1; p <= 16; ++p)
    for (int32_t m : {1, 2, p, 2 * p - 1, 2 * p, 2 * p + 1, 4 * p})
      for (const StageCost &c : costs) {
        SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m));
        const Timing timing = checked(dualPipeV(snake(p, 2, m, c)));
        EXPECT_LE(largestPeak(timing), std::min(2 * m, 2 * p + 1));
        if (m < 2 * p)
          continue;
        for (const RankTiming &rank : timing.ranks)
          EXPECT_EQ(rank.peakActivations, 2 * p + 1);
        EXPECT_EQ(idle(timing),
                  (p - 1) * (c.forward + 2 * c.backward - 3 * c.weight));
      }
}

// github.com/deepseek-ai/DualPipe, unit times.
TEST(DualPipeV, Figures) {
  const Timing timing = simulated(dualPipeV(snake(4, 2, 10)));
  EXPECT_EQ(timing.makespan, 66);
  EXPECT_EQ(idle(timing), 6);
  EXPECT_EQ(simulated(dualPipeV(snake(2, 2, 4))).makespan, 26);
}

//===----------------------------------------------------------------------===//
// V-Half and V-Min
//===----------------------------------------------------------------------===//

/// The F and I of a rank.
static std::string withoutWeights(RankProgram rank) {
  std::erase_if(rank.instructions, [](const Instruction &inst) {
    return inst.op == Op::BackwardWeight;
  });
  return listing(rank);
}

// The generator of the paper, sail-sg/zero-bubble-pipeline-parallelism, puts
// some W elsewhere.
TEST(VHalf, Order) {
  Result<Program> order = vHalf(snake(4, 2, 6));
  ASSERT_TRUE(order) << order.message();
  const char *lists[] = {
      "0F0 0F1 0F2 0F3 0F4 7F0 7I0 7F1 7I1 7F2 0I0 7I2 7F3 0F5 0I1 7I3 7F4 7I4 "
      "0I2 7F5 7I5 0I3 0I4 0I5",
      "1F0 1F1 1F2 1F3 6F0 6F1 6I0 6F2 6I1 1I0 1F4 6F3 6I2 1I1 1F5 6F4 6I3 1I2 "
      "6I4 6F5 1I3 6I5 1I4 1I5",
      "2F0 2F1 2F2 5F0 5F1 5F2 5I0 2F3 5I1 2I0 5F3 2F4 2I1 5I2 5F4 2F5 2I2 5I3 "
      "5F5 5I4 2I3 2I4 5I5 2I5",
      "3F0 4F0 3F1 4F1 3F2 4F2 4I0 3I0 3F3 4F3 4I1 3I1 3F4 4F4 4I2 3I2 3F5 4F5 "
      "4I3 3I3 4I4 3I4 4I5 3I5"};
  for (int r = 0; r < 4; ++r)
    EXPECT_EQ(withoutWeights(order->ranks[r]), lists[r]);
  const Timing timing = simulated(order);
  EXPECT_EQ(idle(timing), 5);
  EXPECT_EQ(peaks(timing), std::vector<int64_t>(4, 6));
}

// P. Qi et al. (arXiv:2405.15362): the offsets of the building blocks, and what
// follows from them.
TEST(VHalf, ClosedForms) {
  for (int32_t p = 1; p <= 16; ++p)
    for (int32_t m : {1, p, 2 * p - 1, 2 * p, 2 * p + 1, 4 * p}) {
      SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m));
      const Timing timing = checked(vHalf(snake(p, 2, m)));
      EXPECT_LE(largestPeak(timing), (p + 2) / 2 * 2);
      if (m < 2 * p)
        continue;
      EXPECT_EQ(largestPeak(timing), (p + 2) / 2 * 2);
      EXPECT_EQ(idle(timing), p <= 2       ? p - 1
                              : p % 2 == 0 ? 3 * p - 7
                                           : 3 * p - 4);
    }
}

TEST(VMin, ClosedForms) {
  for (int32_t p = 1; p <= 16; ++p)
    for (int32_t m : {1, p, 2 * p - 1, 2 * p, 2 * p + 1, 4 * p}) {
      SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m));
      const Timing timing = checked(vMin(snake(p, 2, m)));
      EXPECT_LE(largestPeak(timing), (p + 4) / 3 * 2);
      if (m < 2 * p)
        continue;
      EXPECT_EQ(largestPeak(timing), (p + 4) / 3 * 2);
      EXPECT_EQ(idle(timing), p == 1 ? 0 : p % 3 == 0 ? 4 * p - 7 : 4 * p - 5);
    }
}

/// Start slots of micro-batch 0 on rank r: F of its two stages along the V, and
/// I of them on the way back. Micro-batch k is 6 k later.
using Slots = std::array<int32_t, 4>;
static Slots slotsOfVMin(int32_t r, int32_t p) {
  const int32_t d = p % 3 == 0 ? 2 : 0;
  return {r, 2 * p - 1 - r, 2 * p + d + r, 4 * p + d - 1 - r};
}
static Slots slotsOfVHalf(int32_t r, int32_t p) {
  const int32_t d = p % 2 == 0 ? 3 : 0;
  return {2 * r, 3 * p - 2 - r, 3 * p + d - 1 + 2 * r, 6 * p + d - 2 - r};
}

// P. Qi et al. (arXiv:2405.15362): the building blocks repeat every 6 slots
// without collisions, and between warm-up and cool-down the orders are theirs.
TEST(VHalf, BuildingBlocks) {
  const struct {
    Slots (*slots)(int32_t, int32_t);
    Result<Program> (*generate)(const Problem &);
  } families[] = {{slotsOfVMin, vMin}, {slotsOfVHalf, vHalf}};
  for (const auto &[slots, generate] : families)
    for (int32_t p = 2; p <= 16; ++p) {
      SCOPED_TRACE("p=" + std::to_string(p));
      const int32_t m = 5 * p;
      const Result<Program> order = generate(snake(p, 2, m));
      ASSERT_TRUE(order);
      for (int32_t r = 0; r < p; ++r) {
        const Slots own = slots(r, p);
        std::set<int32_t> residues;
        for (int32_t slot : own)
          residues.insert(slot % 6);
        EXPECT_EQ(residues.size(), 4u);
        EXPECT_LT(own[0], own[1]);
        EXPECT_LT(own[1], own[2]);
        EXPECT_LT(own[2], own[3]);
        if (r > 0) {
          const Slots before = slots(r - 1, p);
          EXPECT_LT(before[0], own[0]);
          EXPECT_LT(own[1], before[1]);
          EXPECT_LT(before[2], own[2]);
          EXPECT_LT(own[3], before[3]);
        }

        auto isInside = [&](int32_t mb) {
          return mb >= 2 * p && mb < m - 2 * p;
        };
        std::vector<std::pair<int32_t, std::string>> block;
        for (int32_t mb = 0; mb < m; ++mb)
          for (int32_t k = 0; k < 4 && isInside(mb); ++k)
            block.emplace_back(
                own[k] + 6 * mb,
                std::to_string(k == 0 || k == 3 ? r : 2 * p - 1 - r) +
                    (k < 2 ? 'F' : 'I') + std::to_string(mb));
        std::sort(block.begin(), block.end());
        std::string expected;
        for (const auto &[slot, op] : block)
          expected += (expected.empty() ? "" : " ") + op;
        RankProgram inside = order->ranks[r];
        std::erase_if(inside.instructions, [&](const Instruction &inst) {
          return !isInside(inst.microbatch);
        });
        EXPECT_EQ(withoutWeights(inside), expected) << "rank " << r;
      }
    }
}

// The same: of the bubble of 1F1B, (p - 1) of both stages, a half and two
// thirds where there are many ranks.
TEST(VHalf, ShareOfTheBubbleOf1F1B) {
  for (int32_t p : {16, 32, 64}) {
    const double whole = idle(
        simulated(oneForwardOneBackward(pipeline(p, 2 * p, cost(2, 2, 2)))));
    EXPECT_EQ(whole, 6 * (p - 1));
    EXPECT_NEAR(idle(simulated(vHalf(snake(p, 2, 2 * p)))) / whole, 1. / 2,
                1. / p);
    EXPECT_NEAR(idle(simulated(vMin(snake(p, 2, 2 * p)))) / whole, 2. / 3,
                1. / p);
  }
}

TEST(VHalf, RefusesSoManyRanksThatItTakesTooLong) {
  EXPECT_EQ(vHalf(snake(1025, 2, 1)).message(),
            "v_half: 1025 ranks are too many for it; give at most 1024");
  EXPECT_EQ(vMin(snake(1025, 2, 1)).message(),
            "v_min: 1025 ranks are too many for it; give at most 1024");
}

// V-Half keeps its bubble while W + 2I >= 2F and W + 2F >= 2I.
TEST(VHalf, UnequalTimes) {
  auto idles = [](auto generate, StageCost c) {
    std::vector<double> result;
    for (int32_t m : {16, 32, 64})
      result.push_back(idle(simulated(generate(snake(8, 2, m, c)))));
    return result;
  };
  using Idles = std::vector<double>;
  EXPECT_EQ(idles(vMin, cost(3, 4, 2)), (Idles{183, 279, 471}));
  EXPECT_EQ(idles(vHalf, cost(3, 4, 2)), (Idles{81, 81, 81}));
  EXPECT_EQ(idles(vHalf, cost(1, 2, 0.5)), (Idles{58, 82, 130}));
  EXPECT_EQ(idles(vMin, cost(1, 2, 0.5)), (Idles{114, 194, 354}));
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

static constexpr Family kVShapes[] = {{"zb_v", zbV},
                                      {"dualpipe_v", dualPipeV},
                                      {"v_half", vHalf},
                                      {"v_min", vMin}};

TEST(VShapes, TimelinesInTheSources) {
  expectTimelineInSource(zbV(snake(3, 2, 5)), "ZBV");
  expectTimelineInSource(vHalf(snake(3, 2, 4)), "VHalf");
  expectTimelineInSource(vMin(snake(3, 2, 4)), "VMin");
  expectTimelineInSource(dualPipeV(snake(2, 2, 4)), "DualPipe");
}

TEST(VShapes, PlaceSnake) {
  EXPECT_EQ(placeSnake(9, 3),
            (std::vector<int32_t>{0, 1, 2, 2, 1, 0, 0, 1, 2}));
}

TEST(VShapes, OneMicrobatchIsTheNaiveOrder) {
  for (int32_t p = 1; p <= 5; ++p)
    for (const Family &family : kVShapes)
      EXPECT_EQ(withoutSplit(family.generate(snake(p, 2, 1))),
                *naive(snake(p, 2, 1)))
          << family.name << " p=" << p;
}

TEST(VShapes, TakeAnyNamesOfTheRanks) {
  for (const Family &family : kVShapes) {
    Problem problem = snake(3, 2, 7);
    Result<Program> order = family.generate(problem);
    problem.placement = {2, 0, 1, 1, 0, 2};
    Result<Program> renamed = family.generate(problem);
    ASSERT_TRUE(order && renamed);
    for (int32_t r = 0; r < 3; ++r)
      EXPECT_EQ(renamed->ranks[problem.placement[r]], order->ranks[r]);
  }
}

TEST(VShapes, RefuseWhatTheyCannotSchedule) {
  for (const Family &family : kVShapes) {
    const std::string name = std::string(family.name) + ": ";
    auto message = [&](const Problem &problem) {
      Result<Program> order = family.generate(problem);
      return order ? "accepted" : order.message();
    };
    Problem problem = snake(2, 3, 4);
    EXPECT_EQ(message(problem),
              name + "needs 2 stages on every rank, but there are 6 stages and "
                     "2 ranks; make it 4 stages");
    problem = snake(2, 2, 4);
    problem.placement = {0, 0, 1, 1};
    EXPECT_EQ(message(problem),
              name + "stages 0 and 1 are both on rank 0; place the first 2 "
                     "stages on ranks of their own");
    problem.placement = {0, 1, 0, 1};
    EXPECT_EQ(message(problem),
              name + "stage 2 is on rank 0, but the stages go along the ranks "
                     "and back; place it on rank 1, with stage 1");
    problem.placement = {0, 1, 1, 0, 1, 0, 0, 1};
    problem.chains = {0, 1, 0, 1};
    EXPECT_EQ(message(problem),
              name + "the problem has 2 chains; this family has one");
    EXPECT_EQ(message(snake(2, 2, 0)),
              name + "there are no micro-batches; give at least one");
  }
}
