//===- ProgramTest.cpp - The plain data -----------------------------------===//

#include "penstock/Program/Program.h"

#include "RandomProgram.h"

#include <gtest/gtest.h>

using namespace penstock;

namespace {

TEST(Program, AnInstructionHas48BytesWithoutPadding) {
  EXPECT_EQ(sizeof(Instruction), 48u);
  EXPECT_TRUE(std::has_unique_object_representations_v<Instruction>);
}

TEST(Program, OrdersAndPlans) {
  Program program;
  program.ranks.resize(2);
  Instruction inst;
  program.ranks[0].instructions = {inst};
  EXPECT_TRUE(program.isOrder());
  EXPECT_FALSE(program.isPlanned());

  inst.op = Op::Step;
  program.ranks[1].instructions = {inst};
  EXPECT_TRUE(program.isOrder());

  for (Op op : {Op::Send, Op::Recv, Op::AllReduce, Op::Barrier}) {
    inst.op = op;
    program.ranks[1].instructions = {inst};
    EXPECT_FALSE(program.isOrder());
  }
  program.ranks[1].instructions.clear();
  program.ranks[1].slotBytes = {8};
  EXPECT_FALSE(program.isOrder());
  EXPECT_TRUE(program.isPlanned());
}

TEST(Program, SlotsAreAligned) {
  RankProgram rank;
  EXPECT_EQ(slotOffsets(rank), std::vector<int64_t>({0}));
  rank.slotBytes = {1, 256, 257, 0, 8};
  EXPECT_EQ(slotOffsets(rank),
            std::vector<int64_t>({0, 256, 512, 1024, 1024, 1280}));
}

TEST(Program, Durations) {
  Problem problem;
  problem.stages.resize(2);
  problem.stages[1].cost = {1, 2, 3, 4, 5};
  problem.link = {0.5, 10};
  Instruction inst;
  inst.stage = 1;
  inst.bytes = 20;
  const std::pair<Op, double> expected[] = {
      {Op::Forward, 1},        {Op::Backward, 2},  {Op::BackwardInput, 3},
      {Op::BackwardWeight, 4}, {Op::Recompute, 5}, {Op::Send, 2.5},
      {Op::Recv, 2.5},         {Op::AllReduce, 0}, {Op::Step, 0}};
  for (auto [op, duration] : expected) {
    inst.op = op;
    EXPECT_EQ(durationOf(problem, inst), duration) << int(op);
  }
  problem.link.bytesPerTime = 0;
  inst.op = Op::Send;
  EXPECT_EQ(durationOf(problem, inst), 0.5) << "unlimited";

  Instruction forward, backward;
  forward.stage = backward.stage = 0;
  backward.op = Op::Backward;
  const double f = durationOf(problem, forward),
               b = durationOf(problem, backward);
  const std::vector<Instruction> both = {forward, backward};
  EXPECT_EQ(durationOfItem(problem, both), f + b);
  problem.overlap = 0.5;
  EXPECT_EQ(durationOfItem(problem, both), std::max(f, b) + std::min(f, b) / 2);
  EXPECT_EQ(durationOfItem(problem, {both.data(), 1}), f) << "alone";
}

TEST(Program, PlacementFollowsTheChain) {
  Problem problem;
  problem.numRanks = 2;
  problem.numMicrobatches = 3;
  problem.stages.resize(2);
  EXPECT_EQ(Problem().numChains(), 0);
  problem.placement = {0, 1};
  EXPECT_EQ(problem.numChains(), 1);
  EXPECT_EQ(problem.rankOf(1, 2), 1);
  problem.placement = {0, 1, 1, 0};
  problem.chains = {0, 1, 0};
  EXPECT_EQ(problem.numChains(), 2);
  EXPECT_EQ(problem.rankOf(0, 0), 0);
  EXPECT_EQ(problem.rankOf(0, 1), 1);
  EXPECT_EQ(problem.rankOf(1, 1), 0);
}

/// What an instruction touches, as "R act 0 @0" and so on.
std::vector<std::string> accesses(Op op, int32_t stage, int32_t numStages,
                                  Payload payload = Payload::None) {
  Instruction inst;
  inst.op = op;
  inst.stage = stage;
  inst.microbatch = 4;
  inst.payload = payload;
  std::vector<std::string> result;
  forEachAccess(inst, numStages, [&](const Access &access) {
    static const char *modes[] = {"R", "W", "U"};
    static const char *kinds[] = {"act", "grad", "stash"};
    EXPECT_EQ(access.tensor.microbatch, 4);
    result.push_back(std::string(modes[access.mode]) + ' ' +
                     kinds[int(access.tensor.kind)] + ' ' +
                     std::to_string(access.tensor.stage) + " @" +
                     std::to_string(access.role));
  });
  return result;
}

TEST(Program, Accesses) {
  using List = std::vector<std::string>;
  EXPECT_EQ(accesses(Op::Forward, 1, 3),
            List({"R act 0 @0", "W act 1 @2", "W stash 1 @3"}));
  EXPECT_EQ(accesses(Op::Forward, 0, 3), List({"W act 0 @2", "W stash 0 @3"}));
  EXPECT_EQ(accesses(Op::Forward, 2, 3), List({"R act 1 @0", "W stash 2 @3"}));
  EXPECT_EQ(accesses(Op::Backward, 1, 3),
            List({"R act 0 @0", "R grad 2 @1", "W grad 1 @2", "R stash 1 @3"}));
  EXPECT_EQ(accesses(Op::Backward, 0, 1), List({"R stash 0 @3"}));
  EXPECT_EQ(accesses(Op::BackwardInput, 1, 3),
            List({"R act 0 @0", "R grad 2 @1", "W grad 1 @2", "U stash 1 @3"}));
  EXPECT_EQ(accesses(Op::BackwardWeight, 1, 3),
            List({"R act 0 @0", "R grad 2 @1", "R stash 1 @3"}));
  EXPECT_EQ(accesses(Op::Recompute, 1, 3),
            List({"R act 0 @0", "W stash 1 @3"}));
  EXPECT_EQ(accesses(Op::Send, 1, 3, Payload::Activation),
            List({"R act 1 @0"}));
  EXPECT_EQ(accesses(Op::Recv, 1, 3, Payload::Gradient), List({"W grad 1 @0"}));
  EXPECT_EQ(accesses(Op::Send, 1, 3, Payload::Stash), List({"R stash 1 @0"}));
  EXPECT_EQ(accesses(Op::Recv, 1, 3, Payload::Stash), List({"W stash 1 @0"}));
  EXPECT_EQ(accesses(Op::Step, 0, 3), List());
}

TEST(Program, BytesOfTensors) {
  Problem problem;
  problem.stages.resize(2);
  problem.stages[0].bytes = {10, 20, 0, 0, 0};
  problem.stages[1].bytes = {30, 40, 0, 0, 0};
  EXPECT_EQ(bytesOf(problem, {TensorKind::Activation, 1, 0}), 30);
  EXPECT_EQ(bytesOf(problem, {TensorKind::Gradient, 1, 0}), 10);
  EXPECT_EQ(bytesOf(problem, {TensorKind::Gradient, 0, 0}), 0);
  EXPECT_EQ(bytesOf(problem, {TensorKind::Stash, 1, 0}), 40);
}

TEST(Program, NumberRankSets) {
  size_t changed = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Program program = test::RandomProgram(seed).make();
    // Backwards, with one that nobody uses, and the last one twice.
    Program shuffled = program;
    const int32_t n = program.rankSets.size();
    std::reverse(shuffled.rankSets.begin(), shuffled.rankSets.end());
    shuffled.rankSets.push_back({5});
    if (n > 0)
      shuffled.rankSets.push_back(program.rankSets[n - 1]);
    for (RankProgram &rank : shuffled.ranks)
      for (Instruction &inst : rank.instructions)
        if (isCollective(inst.op) && inst.peer >= 0)
          inst.peer =
              inst.peer == n - 1 && seed % 2 ? n + 1 : n - 1 - inst.peer;
    changed += n > 1;
    numberRankSets(shuffled);
    EXPECT_EQ(shuffled, program);
  }
  EXPECT_GT(changed, 50u);
}

} // namespace
