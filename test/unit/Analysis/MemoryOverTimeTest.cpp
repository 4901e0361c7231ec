//===- MemoryOverTimeTest.cpp - What is held when -------------------------===//

#include "Testing/Build.h"

#include "penstock/Analysis/MemoryOverTime.h"

#include <gtest/gtest.h>

namespace penstock {
static void PrintTo(const MemoryStep &step, std::ostream *os) {
  *os << '{' << step.time << ", " << step.activations << ", " << step.bytes
      << '}';
}
} // namespace penstock

using namespace penstock;
using namespace penstock::test;

using Steps = std::vector<MemoryStep>;

TEST(MemoryOverTime, OfAnOrderCountsStashes) {
  Program program = makeProgram(2, 2);
  program.problem.stages[0].bytes = {100, 7, 1000, 0, 0};
  RankBuilder(program, 0).f(0, 0).f(0, 1).b(0, 0).b(0, 1);
  RankBuilder(program, 1).f(1, 0).b(1, 0).f(1, 1).b(1, 1);
  const auto steps = memoryOverTime(program, *simulateOrder(program));
  EXPECT_EQ(steps[0],
            (Steps{{0, 1, 1007}, {1, 2, 1014}, {6, 1, 1007}, {9, 0, 1000}}));
  // From the F to the end of the B, and the next one at once.
  EXPECT_EQ(steps[1], (Steps{{0, 0, 0}, {1, 1, 0}, {7, 0, 0}}));
}

TEST(MemoryOverTime, TheWeightPartHoldsTheActivation) {
  Program program = makeProgram(1, 1);
  program.problem.stages[0].bytes = {0, 7, 0, 0, 0};
  RankBuilder(program, 0).f(0, 0).i(0, 0).w(0, 0).step();
  EXPECT_EQ(memoryOverTime(program, *simulateOrder(program))[0],
            (Steps{{0, 1, 7}, {3, 0, 0}}));
}

// What the stage gets is kept from its F to its R, its activation is there
// during the F and from the R on.
TEST(MemoryOverTime, RecomputationKeepsInputs) {
  Program program = makeProgram(2, 2);
  program.problem.stages[0].bytes.output = 10;
  program.problem.stages[1].bytes.stash = 100;
  RankBuilder(program, 0).f(0, 0).f(0, 1).b(0, 0).b(0, 1);
  RankBuilder(program, 1)
      .f(1, 0)
      .f(1, 1)
      .action(Op::Recompute, 1, 0)
      .b(1, 0)
      .action(Op::Recompute, 1, 1)
      .b(1, 1);
  const Timing timing = *simulateOrder(program);
  EXPECT_EQ(memoryOverTime(program, timing)[1], (Steps{{0, 0, 0},
                                                       {1, 1, 110},
                                                       {2, 1, 120},
                                                       {4, 1, 110},
                                                       {7, 1, 100},
                                                       {9, 0, 0}}));
  EXPECT_EQ(timing.ranks[1].peakBytes, 120);
  EXPECT_EQ(timing.ranks[1].peakActivations, 1);
}

TEST(MemoryOverTime, OfAProgramCountsWhatIsOnItsWay) {
  Program program = makeProgram(2, 1);
  program.problem.link.latency = 0.5;
  program.problem.stages[0].bytes = {10, 100, 1, 0, 0};
  RankBuilder(program, 0).f(0, 0).sendAct(0, 0, 1).recvGrad(1, 0, 1).b(0, 0);
  RankBuilder(program, 1).recvAct(0, 0, 0).f(1, 0).b(1, 0).sendGrad(1, 0, 0);
  const Timing timing = *simulateProgram(program);
  const auto steps = memoryOverTime(program, timing);
  EXPECT_EQ(steps[0], (Steps{{0, 1, 111},   // F writes stash and output
                             {1.5, 1, 101}, // it is sent
                             {4.5, 1, 111}, // the gradient arrives
                             {7, 0, 1}}));
  EXPECT_EQ(steps[1], (Steps{{0, 0, 0},
                             {1, 0, 10},   // the activation arrives
                             {1.5, 1, 10}, // F
                             {2.5, 1, 20}, // B writes a gradient
                             {4.5, 0, 10}, // and needs the activation no more
                             {5, 0, 0}}));
  for (size_t r : {0, 1}) {
    int64_t most = 0;
    for (const MemoryStep &step : steps[r])
      most = std::max(most, step.bytes);
    EXPECT_EQ(most, timing.ranks[r].peakBytes);
  }
}

TEST(MemoryOverTime, AnOffloadFreesAndAReloadTakes) {
  Program program = makeProgram(1, 1, 2);
  program.problem.stages[0].bytes.stash = 8;
  RankBuilder(program, 0)
      .f(0, 0)
      .action(Op::Offload, 0, 0)
      .f(1, 0)
      .b(1, 0)
      .action(Op::Reload, 0, 0)
      .b(0, 0);
  EXPECT_EQ(memoryOverTime(program, *simulateProgram(program))[0],
            (Steps{{0, 1, 8}, {1, 1, 0}, {4, 1, 8}, {6, 0, 0}}));
}

TEST(MemoryOverTime, AStashIsThereWhileItIsCopied) {
  Program program = makeProgram(1, 1, 2);
  program.problem.stages[0].bytes.stash = 8;
  program.problem.hostLink.latency = 0.5;
  RankBuilder(program, 0)
      .f(0, 0)
      .action(Op::Offload, 0, 0)
      .f(1, 0)
      .action(Op::Reload, 0, 0)
      .b(1, 0)
      .b(0, 0);
  EXPECT_EQ(memoryOverTime(program, *simulateOrder(program))[0],
            (Steps{{0, 1, 8},
                   {1, 2, 8},
                   {1.5, 1, 0}, // it has gone
                   {2, 2, 8},   // it comes
                   {4, 1, 8},
                   {6, 0, 0}}));
}

TEST(MemoryOverTime, FurtherVersionsOfWeights) {
  Program program = makeProgram(1, 2);
  program.problem.stages[0].bytes = {0, 0, 5, 0, 0};
  // Micro-batch 1 goes forward with the weights before the step.
  RankBuilder(program, 0)
      .f(0, 0)
      .f(0, 1)
      .b(0, 0)
      .action(Op::Step, 0, 0)
      .b(0, 1)
      .action(Op::Step, 0, 1);
  const Timing timing = *simulateOrder(program);
  const auto steps = memoryOverTime(program, timing);
  EXPECT_EQ(steps[0], (Steps{{0, 1, 5}, {1, 2, 5}, {4, 1, 10}, {6, 0, 5}}));
  EXPECT_EQ(timing.ranks[0].peakBytes, 10);
}

TEST(MemoryOverTime, WhatIsThereForNoTimeDoesNotCount) {
  Program program = makeProgram(1, 1);
  program.problem.stages[0].cost = {0, 0, 0, 0, 0};
  program.problem.stages[0].bytes = {0, 7, 3, 0, 0};
  RankBuilder(program, 0).f(0, 0).b(0, 0);
  EXPECT_EQ(memoryOverTime(program, *simulateOrder(program))[0],
            (Steps{{0, 0, 3}}));
}
