//===- FamiliesTest.cpp - Orders and figures of the families --------------===//

#include "../Support/FamilyChecks.h"

#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

using namespace penstock;
using namespace penstock::test;

/// "F0 F1 B0 B1": one stage, so its number says nothing.
static std::string letters(const RankProgram &rank) {
  std::string text;
  for (const Instruction &inst : rank.instructions) {
    if (!text.empty())
      text += ' ';
    text += letter(inst.op);
    text += std::to_string(inst.microbatch);
  }
  return text;
}

TEST(Families, NaiveKeepsOneMicrobatchInThePipe) {
  const Problem problem = pipeline(3, 2);
  Result<Program> order = naive(problem);
  ASSERT_TRUE(order);
  for (const RankProgram &rank : order->ranks)
    EXPECT_EQ(letters(rank), "F0 B0 F1 B1");
  EXPECT_EQ(simulated(order).makespan, 2 * 3 * 3);
}

TEST(Families, NaiveTakesAnyPlacement) {
  Problem problem = pipeline(2, 2);
  problem.stages.resize(4);
  problem.placement = {0, 1, 1, 0};
  Result<Program> order = naive(problem);
  ASSERT_TRUE(order);
  std::string text;
  for (const Instruction &inst : order->ranks[0].instructions)
    text += describe(inst) + "; ";
  EXPECT_EQ(text, "forward 0 mb 0; forward 3 mb 0; backward 3 mb 0; backward 0 "
                  "mb 0; forward 0 mb 1; forward 3 mb 1; backward 3 mb 1; "
                  "backward 0 mb 1; ");
  EXPECT_EQ(simulated(order).makespan, 2 * 4 * 3);
}

// The sum of all F and B, and 2 (p - 1) transfers.
TEST(Families, LatencyOfNaive) {
  EXPECT_EQ(simulated(naive(pipeline(4, 1, cost(1, 1, 1), 0.25))).makespan,
            13.5);
  for (int32_t p = 1; p <= 16; ++p)
    EXPECT_EQ(simulated(naive(pipeline(p, 1, cost(1, 2, 1), 0.5))).makespan,
              4 * p + (p - 1));
}

TEST(Families, GPipeRunsAllForwardsThenAllBackwardsAscending) {
  Result<Program> order = gpipe(pipeline(2, 3));
  ASSERT_TRUE(order);
  for (const RankProgram &rank : order->ranks)
    EXPECT_EQ(letters(rank), "F0 F1 F2 B0 B1 B2");
}

TEST(Families, OneForwardOneBackwardWarmsUpByDistanceToTheEnd) {
  Result<Program> order = oneForwardOneBackward(pipeline(4, 5));
  ASSERT_TRUE(order);
  EXPECT_EQ(letters(order->ranks[0]), "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4");
  EXPECT_EQ(letters(order->ranks[1]), "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4");
  EXPECT_EQ(letters(order->ranks[2]), "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4");
  EXPECT_EQ(letters(order->ranks[3]), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
  EXPECT_EQ(listing(oneForwardOneBackward(pipeline(4, 6))),
            "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0B3 0B4 0B5\n"
            "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1B4 1B5\n"
            "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2B5\n"
            "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5\n");
}

TEST(Families, OneForwardOneBackwardWithFewerMicrobatchesThanRanks) {
  Result<Program> order = oneForwardOneBackward(pipeline(4, 2));
  ASSERT_TRUE(order);
  EXPECT_EQ(letters(order->ranks[0]), "F0 F1 B0 B1");
  EXPECT_EQ(letters(order->ranks[2]), "F0 F1 B0 B1");
  EXPECT_EQ(letters(order->ranks[3]), "F0 B0 F1 B1");
}

TEST(Families, OneMicrobatchIsTheNaiveOrder) {
  for (int32_t p = 1; p <= 8; ++p)
    for (const Family &family : kFamilies)
      EXPECT_EQ(*family.generate(pipeline(p, 1)), *naive(pipeline(p, 1)))
          << family.name << " p=" << p;
}

// Y. Huang et al., GPipe (arXiv:1811.06965), section 2.3: the bubble of p - 1
// out of m + p - 1. Figures for F = 1, B = 2.
TEST(Families, MakespanOfGPipe) {
  EXPECT_EQ(simulated(gpipe(pipeline(4, 8))).makespan, 33);
  EXPECT_EQ(simulated(gpipe(pipeline(8, 8))).makespan, 45);
}

// S. Fan et al., DAPPLE (arXiv:2007.01045): 1F1B has the makespan of GPipe.
TEST(Families, MakespanOfOneForwardOneBackward) {
  EXPECT_EQ(simulated(oneForwardOneBackward(pipeline(4, 8))).makespan, 33);
}

TEST(Families, ClosedFormsOnAGrid) {
  const StageCost costs[] = {cost(1, 1, 1), cost(2, 0.5, 0.25), cost(0, 3, 1)};
  for (int32_t p = 1; p <= 16; ++p)
    for (int32_t m : kMicrobatches)
      for (const StageCost &c : costs) {
        SCOPED_TRACE(testing::Message() << "p=" << p << " m=" << m);
        const Problem problem = pipeline(p, m, c);
        const double work = c.forward + c.backward;
        const Timing naiveTiming = checked(naive(problem));
        EXPECT_EQ(naiveTiming.makespan, m * p * work);
        const Timing all = checked(gpipe(problem));
        EXPECT_EQ(all.makespan, (m + p - 1) * work);
        const Timing alternating = checked(oneForwardOneBackward(problem));
        EXPECT_EQ(alternating.makespan, (m + p - 1) * work);
        for (int32_t r = 0; r < p; ++r) {
          EXPECT_EQ(naiveTiming.ranks[r].peakActivations, 1);
          EXPECT_EQ(all.ranks[r].peakActivations, m);
          EXPECT_EQ(alternating.ranks[r].peakActivations, std::min(m, p - r));
          EXPECT_EQ(alternating.ranks[r].busy, m * work);
        }
        // Rank 0 is there from the first to the last moment.
        EXPECT_EQ(alternating.span, alternating.makespan);
        EXPECT_DOUBLE_EQ(alternating.bubbleRate,
                         static_cast<double>(p - 1) / (m + p - 1));
      }
}

// D. Narayanan et al., PipeDream-Flush: every round of p micro-batches shows
// the latency of 2 (p - 1) transfers. The remainder term is from enumeration.
TEST(Families, LatencyOfOneForwardOneBackward) {
  constexpr double latency = 1.0 / 64;
  for (int32_t p = 2; p <= 8; ++p)
    for (int32_t m = p; m <= 4 * p; ++m) {
      const int32_t rest = m % p;
      const double shown = 2 * (p - 1) * (m / p) + 2 * (p - 2) +
                           2 * std::max(rest - 1, std::min(rest, 1));
      const Problem problem = pipeline(p, m, cost(1, 1, 1), latency);
      EXPECT_EQ(simulated(oneForwardOneBackward(problem)).makespan,
                3 * (m + p - 1) + latency * shown)
          << "p=" << p << " m=" << m;
    }
}

// P. Qi et al., Zero Bubble Pipeline Parallelism (arXiv:2401.10241): times of
// table 6, bubble rates of 1F1B from table 5.
TEST(Families, BubbleRatesOfTheZeroBubblePaper) {
  const struct {
    int32_t p, m;
    double forward, input, weight, latency, rate;
  } rows[] = {
      {8, 24, 18.522, 18.086, 9.337, 0.601, 0.2431},
      {8, 32, 18.513, 18.086, 9.331, 0.626, 0.1985},
      {8, 64, 18.546, 18.097, 9.321, 0.762, 0.1240},
      {16, 48, 11.347, 11.248, 8.132, 0.377, 0.2552},
      {16, 64, 11.307, 11.254, 8.101, 0.379, 0.2082},
      {16, 128, 11.325, 11.308, 8.109, 0.378, 0.1251},
  };
  for (const auto &row : rows) {
    const Problem problem = pipeline(
        row.p, row.m, cost(row.forward, row.input, row.weight), row.latency);
    EXPECT_NEAR(simulated(oneForwardOneBackward(problem)).bubbleRate, row.rate,
                0.00005)
        << "p=" << row.p << " m=" << row.m;
  }
}

TEST(Families, SplitBackwardPutsTheWeightPartBehindTheInputPart) {
  Result<Program> order = oneForwardOneBackward(pipeline(2, 2));
  splitBackward(*order);
  EXPECT_EQ(letters(order->ranks[0]), "F0 F1 I0 W0 I1 W1");
  EXPECT_EQ(letters(order->ranks[1]), "F0 I0 W0 F1 I1 W1");
  const Timing timing = simulated(order);
  EXPECT_EQ(timing.ranks[0].peakActivations, 2);
  // I alone reaches the stage before: one W less in the way of the last B.
  EXPECT_EQ(timing.makespan, 3 * 3 - 1);
}

TEST(Families, SplitBackwardPutsTheWeightPartBehindAnOverlap) {
  Result<Program> order = oneForwardOneBackward(pipeline(1, 2));
  auto &list = order->ranks[0].instructions;
  std::swap(list[1], list[2]); // F0 {F1 B0} B1
  list[2].joined = true;
  splitBackward(*order);
  EXPECT_EQ(letters(order->ranks[0]), "F0 F1 I0 W0 I1 W1");
  std::string joined;
  for (const Instruction &inst : list)
    joined += inst.joined ? '+' : '.';
  EXPECT_EQ(joined, "..+...");
}

TEST(Families, SplitBackwardKeepsWaits) {
  Result<Program> order = oneForwardOneBackward(pipeline(1, 3));
  RankProgram &rank = order->ranks[0]; // F0 B0 {F1 B1} F2 B2
  auto &list = rank.instructions;
  list[3].joined = true;
  auto wait = [&](uint32_t index, std::vector<uint32_t> forThese) {
    list[index].firstWait = static_cast<uint32_t>(rank.waits.size());
    list[index].numWaits = static_cast<uint16_t>(forThese.size());
    rank.waits.insert(rank.waits.end(), forThese.begin(), forThese.end());
  };
  wait(1, {0});
  wait(2, {1, 0});
  wait(5, {3, 4});
  ASSERT_TRUE(wellFormed(*order)) << wellFormed(*order).message();
  splitBackward(*order);
  ASSERT_TRUE(wellFormed(*order)) << wellFormed(*order).message();
  EXPECT_EQ(letters(rank), "F0 I0 W0 F1 I1 W1 F2 I2 W2");
  EXPECT_EQ(rank.waits, (std::vector<uint32_t>{0, 2, 0, 5, 6}));
  std::string counts;
  for (const Instruction &inst : list)
    counts += std::to_string(inst.numWaits);
  EXPECT_EQ(counts, "010200020");
}

TEST(Families, AppendStepsOnlyWhereThereIsNone) {
  Result<Program> order = naive(pipeline(2, 1));
  Instruction step;
  step.op = Op::Step;
  order->ranks[1].instructions.push_back(step);
  appendSteps(*order);
  appendSteps(*order);
  for (const RankProgram &rank : order->ranks) {
    ASSERT_EQ(rank.instructions.size(), 3u);
    EXPECT_EQ(rank.instructions.back(), step);
  }
  EXPECT_EQ(simulated(order).makespan, 6);
}

// The timeline in the comment of each family is what the family gives.
TEST(Families, TimelinesInTheSources) {
  const struct {
    Family family;
    const char *file;
    int32_t microbatches;
  } pages[] = {{kFamilies[0], "Naive", 2},
               {kFamilies[1], "GPipe", 4},
               {kFamilies[2], "OneForwardOneBackward", 4}};
  for (const auto &page : pages) {
    std::ifstream file(std::string(PENSTOCK_SOURCE_DIR) +
                       "/lib/Schedule/Families/" + page.file + ".cpp");
    std::ostringstream source;
    source << file.rdbuf();
    Result<Program> order =
        page.family.generate(pipeline(4, page.microbatches));
    std::string comment;
    std::istringstream timeline(renderTimeline(*order, simulated(order), 72));
    for (std::string line; std::getline(timeline, line);)
      comment += "//   " + line + "\n";
    EXPECT_NE(source.str().find(comment), std::string::npos) << comment;
  }
}

TEST(Families, PlaceLoop) {
  EXPECT_EQ(placeLoop(5, 2), (std::vector<int32_t>{0, 1, 0, 1, 0}));
}

TEST(Families, RefuseWhatTheyCannotSchedule) {
  auto message = [](const Problem &problem, const Family &family) {
    Result<Program> order = family.generate(problem);
    return order ? "accepted" : order.message();
  };
  for (const Family &family : kFamilies) {
    const std::string name = std::string(family.name) + ": ";
    Problem problem = pipeline(2, 2);
    problem.numRanks = 0;
    EXPECT_EQ(message(problem, family),
              name + "there are no ranks; give at least one");
    problem = pipeline(2, 0);
    EXPECT_EQ(message(problem, family),
              name + "there are no micro-batches; give at least one");
    problem = pipeline(0, 2);
    problem.numRanks = 2;
    EXPECT_EQ(message(problem, family),
              name + "there are no stages; give at least one");
    problem = pipeline(2, 2);
    problem.placement.pop_back();
    EXPECT_EQ(message(problem, family),
              name + "the placement has 1 entries; give every chain one entry "
                     "for each of the 2 stages");
    problem = pipeline(2, 2);
    problem.placement[1] = 2;
    EXPECT_EQ(message(problem, family),
              name + "stage 1 is placed on rank 2; place it on a rank below 2");
  }
  for (const Family &family : {kFamilies[1], kFamilies[2]}) {
    const std::string name = std::string(family.name) + ": ";
    Problem problem = pipeline(4, 2);
    problem.numRanks = 2;
    problem.placement = placeLoop(4, 2);
    EXPECT_EQ(message(problem, family),
              name +
                  "needs one stage on every rank, but there are 4 stages and "
                  "2 ranks; make the numbers equal");
    problem = pipeline(3, 2);
    problem.placement[2] = 0;
    EXPECT_EQ(message(problem, family),
              name + "needs one stage on every rank, but stages 0 and 2 are "
                     "both on rank 0; place one of them elsewhere");
    problem = pipeline(2, 2);
    problem.placement = {0, 1, 1, 0};
    problem.chains = {0, 1};
    EXPECT_EQ(message(problem, family),
              name + "the problem has 2 chains; this family has one");
  }
}
