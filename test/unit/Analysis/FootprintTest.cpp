//===- FootprintTest.cpp - Bytes held and moved ---------------------------===//

#include "penstock/Analysis/Footprint.h"

#include "Testing/Build.h"

#include <gtest/gtest.h>

using namespace penstock;
using namespace penstock::test;

TEST(Footprint, MemoryIsBrokenDownByWhatItIsFor) {
  Program order = makeProgram(2, 2);
  for (Stage &stage : order.problem.stages)
    stage.bytes = {1, 10, 100, 1000, 10000};
  RankBuilder(order, 0)
      .action(Op::Forward, 0, 0)
      .action(Op::Forward, 0, 1)
      .action(Op::Backward, 0, 0)
      .action(Op::Backward, 0, 1);
  RankBuilder(order, 1)
      .action(Op::Forward, 1, 0)
      .action(Op::Backward, 1, 0)
      .action(Op::Forward, 1, 1)
      .action(Op::Backward, 1, 1);
  std::optional<Timing> timing = simulateOrder(order);
  ASSERT_TRUE(timing);
  const std::vector<RankMemory> memory = memoryOf(order.problem, *timing);
  EXPECT_EQ(memory, (std::vector<RankMemory>{{100, 1000, 10000, 0, 20},
                                             {100, 1000, 10000, 0, 10}}));
  EXPECT_EQ(memory[0].total(), timing->ranks[0].peakBytes);
  EXPECT_EQ(stashesAlive(order), (std::vector<int64_t>{2, 1}));
}

TEST(Footprint, PostValidationKeepsACopy) {
  Problem problem = makeProgram(2, 2).problem;
  for (Stage &stage : problem.stages)
    stage.bytes = {1, 10, 100, 1000, 10000};
  problem.postValidation = true;
  EXPECT_EQ(persistentMemory(problem)[1],
            (RankMemory{100, 1000, 10000 + 100 + 10000, 0, 0}));
}

TEST(Footprint, RecomputedStashesLiveFromTheRecomputation) {
  Program order = makeProgram(1, 3);
  RankBuilder rank(order, 0);
  for (int32_t mb = 0; mb < 3; ++mb)
    rank.action(Op::Forward, 0, mb);
  for (int32_t mb = 0; mb < 3; ++mb)
    rank.action(Op::Recompute, 0, mb).action(Op::Backward, 0, mb);
  EXPECT_EQ(stashesAlive(order), (std::vector<int64_t>{1}));
}

TEST(Footprint, SplitBackwardsKeepTheStashToTheirWeightPart) {
  Program order = makeProgram(1, 2);
  RankBuilder(order, 0)
      .action(Op::Forward, 0, 0)
      .action(Op::BackwardInput, 0, 0)
      .action(Op::Forward, 0, 1)
      .action(Op::BackwardWeight, 0, 0)
      .action(Op::BackwardInput, 0, 1)
      .action(Op::BackwardWeight, 0, 1);
  EXPECT_EQ(stashesAlive(order), (std::vector<int64_t>{2}));
}

// Llama 3 70B has a hidden size of 8,192 (arXiv:2407.21783, table 3): at 8,192
// tokens in bf16 a micro-batch hands on 134 MB, and as much comes back.
TEST(Footprint, LlamaActivationsAre134MegabytesADirection) {
  Problem problem = makeProgram(8, 1).problem;
  for (Stage &stage : problem.stages)
    stage.bytes.output = int64_t(8192) * 8192 * 2;
  problem.link = {0, 50e9}; // bytes a second
  const std::vector<RankTraffic> traffic = trafficOf(problem);
  EXPECT_EQ(traffic[0].transfers, 1);
  EXPECT_EQ(traffic[0].bytes, 134217728);
  EXPECT_DOUBLE_EQ(traffic[0].time, 134217728 / 50e9);
  EXPECT_EQ(traffic[1].bytes, 2 * 134217728);
  EXPECT_EQ(traffic[7].bytes, 134217728);
}

TEST(Footprint, TrafficLeavesOutNeighboursOnOneRank) {
  // A V on two ranks: 0 1 1 0.
  Problem problem = makeProgram(2, 5, 4).problem;
  problem.placement = {0, 1, 1, 0};
  for (int32_t s = 0; s < 4; ++s)
    problem.stages[s].bytes.output = s + 1;
  problem.link = {2, 1};
  // Rank 0 sends the activation of 0 and the gradient of 3, rank 1 the gradient
  // of 1 and the activation of 2; a gradient is as large as its activation.
  EXPECT_EQ(trafficOf(problem),
            (std::vector<RankTraffic>{{10, 5 * (1 + 3), 5 * (3.0 + 5.0)},
                                      {10, 5 * (1 + 3), 5 * (3.0 + 5.0)}}));
}

TEST(Footprint, TrafficCountsEveryMicrobatchOnItsChain) {
  Problem problem = makeProgram(2, 3).problem;
  problem.placement = {0, 1, 1, 1}; // nothing moves on chain 1
  problem.chains = {0, 1, 0};
  problem.stages[0].bytes.output = 7;
  EXPECT_EQ(trafficOf(problem),
            (std::vector<RankTraffic>{{2, 14, 0}, {2, 14, 0}}));
}
