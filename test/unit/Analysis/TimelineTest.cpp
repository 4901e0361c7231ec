//===- TimelineTest.cpp - A schedule as text ------------------------------===//

#include "Testing/Build.h"

#include "penstock/Analysis/Timeline.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <sstream>

using namespace penstock;
using namespace penstock::test;

static std::string drawn(const Program &program, unsigned maxColumns = 80) {
  std::optional<Timing> timing = simulateOrder(program);
  EXPECT_TRUE(timing);
  return renderTimeline(program, *timing, maxColumns);
}

/// One rank that runs F and B of m micro-batches in turn.
static Program alternating(int32_t m, double forward, double backward) {
  Program program = makeProgram(1, m);
  program.problem.stages[0].cost.forward = forward;
  program.problem.stages[0].cost.backward = backward;
  for (int32_t mb = 0; mb < m; ++mb)
    RankBuilder(program, 0).f(0, mb).b(0, mb);
  return program;
}

TEST(Timeline, DrawsToScale) {
  Program program = makeProgram(2, 2);
  RankBuilder(program, 0).f(0, 0).f(0, 1).b(0, 0).b(0, 1).step();
  RankBuilder(program, 1).f(1, 0).b(1, 0).f(1, 1).b(1, 1).step();
  EXPECT_EQ(drawn(program), "rank 0 F0F1....B0--..B1--\n"
                            "rank 1 ..F0B0--F1B1--....\n"
                            "time   |0        |5\n");
}

TEST(Timeline, AnOverlapIsOneCell) {
  Program program = alternating(2, 1, 2);
  auto &list = program.ranks[0].instructions; // F0 {B0 F1} B1
  list[2].joined = true;
  EXPECT_EQ(drawn(program), "rank 0 F0--B0F1--------B1------\n"
                            "time   |0                  |5\n");
}

/// A label has room for one more mark, but not for the number of a stage.
TEST(Timeline, EverySecondStageOfARankHasSmallLetters) {
  Program program = makeProgram(2, 1);
  program.problem.stages.resize(6, program.problem.stages[0]);
  program.problem.placement = {0, 1, 1, 0, 0, 1};
  RankBuilder(program, 0).f(0, 0).f(3, 0).f(4, 0).b(4, 0).b(3, 0).b(0, 0);
  RankBuilder(program, 1).f(1, 0).f(2, 0).f(5, 0).b(5, 0).b(2, 0).b(1, 0);
  EXPECT_EQ(drawn(program), "rank 0 F0....f0F0......B0--b0--........B0--\n"
                            "rank 1 ..F0f0....F0B0--........b0--B0--....\n"
                            "time   |0        |5        |10       |15\n");
}

TEST(Timeline, TheSecondChainHasSmallLetters) {
  Program program = makeProgram(2, 2);
  program.problem.chains = {0, 1};
  program.problem.placement = {0, 1, 1, 0};
  RankBuilder(program, 0).f(0, 0).f(1, 1).b(1, 1).b(0, 0);
  RankBuilder(program, 1).f(0, 1).f(1, 0).b(1, 0).b(0, 1);
  EXPECT_EQ(drawn(program), "rank 0 F0f1b1--B0--\n"
                            "rank 1 f1F0B0--b1--\n"
                            "time   |0        |5\n");
}

TEST(Timeline, ActionsWithoutTimeAreNotDrawn) {
  EXPECT_EQ(drawn(alternating(2, 0, 3)), "rank 0 B0B1\n"
                                         "time   |0\n");
  EXPECT_EQ(drawn(alternating(2, 0, 0)), "nothing takes time\n");
  EXPECT_EQ(drawn(Program()), "nothing takes time\n");
}

TEST(Timeline, ScalesDownThenCuts) {
  EXPECT_EQ(drawn(alternating(7, 1, 1), 40),
            "rank 0 F0B0F1B1F2B2F3B3F4B4F5B5F6B6\n"
            "time   |0        |5        |10\n");
  EXPECT_EQ(drawn(alternating(11, 1, 2), 40),
            "rank 0 FB0FB1FB2FB3FB4FB5FB6FB7FB8FB9FB-\n"
            "time   |0        |10       |20       |30\n");
  EXPECT_EQ(drawn(alternating(20, 1, 2), 40),
            "rank 0 FB0FB1FB2FB3FB4FB5FB6FB7FB8FB9FB-\n"
            "time   |0        |10       |20       |30\n"
            "cut at time 33 of 60\n");
}

TEST(Timeline, NoLineIsLongerThanAsked) {
  for (unsigned columns : {40u, 57u, 80u, 120u})
    for (int32_t m : {1, 3, 10, 100, 1000})
      for (double backward : {0.001, 1.7, 300.0}) {
        std::istringstream lines(drawn(alternating(m, 1.3, backward), columns));
        for (std::string line; std::getline(lines, line);)
          EXPECT_LE(line.size(), columns) << line;
      }
}

/// Times at both ends of what a double holds are drawn like any others.
TEST(Timeline, AnyFiniteTime) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  constexpr double kLeast = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(drawn(alternating(1, kLargest / 4, kLargest / 2)), "rank 0 F0B0--\n"
                                                               "time   |0\n");
  EXPECT_EQ(drawn(alternating(1, kLeast, 2 * kLeast)), "rank 0 F0B0--\n"
                                                       "time   |0\n");
  EXPECT_EQ(drawn(alternating(2, kLeast, kLargest / 4), 40), "rank 0 B0B1\n"
                                                             "time   |0\n");
}
