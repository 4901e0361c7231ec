//===- SimulateTest.cpp - When everything happens -------------------------===//

#include "Testing/Build.h"

#include "penstock/Analysis/RunOrder.h"
#include "penstock/Analysis/Simulate.h"

#include <gtest/gtest.h>

using namespace penstock;
using namespace penstock::test;

/// Those of a rank, the first `size` of them.
static std::vector<double> timesOf(const InstructionTimes &times, size_t rank,
                                   size_t size = ~size_t(0)) {
  const std::span all = times[rank];
  return {all.begin(), all.begin() + std::min(size, all.size())};
}

TEST(SimulateOrder, AnActionStartsWhenItsOperandsAreThere) {
  Program program = makeProgram(2, 1);
  program.problem.link = {0.5, 100};
  program.problem.stages[0].bytes.output = 25; // 0.75 on the way
  program.problem.stages[1].cost = {3, 5, 2, 3, 3};
  RankBuilder(program, 0).f(0, 0).b(0, 0).step();
  RankBuilder(program, 1).f(1, 0).b(1, 0);
  std::optional<Timing> timing = simulateOrder(program);
  ASSERT_TRUE(timing);
  EXPECT_EQ(timesOf(timing->start, 1), (std::vector<double>{1.75, 4.75}));
  EXPECT_EQ(timesOf(timing->end, 1), (std::vector<double>{4.75, 9.75}));
  EXPECT_EQ(timesOf(timing->start, 0), (std::vector<double>{0, 10.5, 12.5}));
  EXPECT_EQ(timesOf(timing->end, 0), (std::vector<double>{1, 12.5, 12.5}));
  EXPECT_EQ(timing->makespan, 12.5);
  EXPECT_EQ(timing->span, 12.5);
  EXPECT_EQ(timing->bubbleRate, (12.5 - 8) / 12.5);
  EXPECT_EQ(timing->ranks[1].busy, 8);
  EXPECT_EQ(timing->ranks[1].start, 1.75);
  EXPECT_EQ(timing->ranks[1].end, 9.75);
}

TEST(SimulateOrder, NoLatencyWithinARank) {
  Program program = makeProgram(1, 1, 2);
  program.problem.link.latency = 100;
  RankBuilder(program, 0).f(0, 0).f(1, 0).b(1, 0).b(0, 0);
  std::optional<Timing> timing = simulateOrder(program);
  ASSERT_TRUE(timing);
  EXPECT_EQ(timing->makespan, 6);
  EXPECT_EQ(timing->bubbleRate, 0);
}

/// One rank and stage; a stash of 10 bytes takes 2 to host memory or back.
static Program withHostMemory(int32_t numMicrobatches) {
  Program program = makeProgram(1, numMicrobatches);
  program.problem.hostLink.bytesPerTime = 5;
  program.problem.stages[0].bytes.stash = 10;
  return program;
}

TEST(SimulateOrder, CopiesToHostMemoryRunBesideTheActions) {
  Program program = withHostMemory(3);
  RankBuilder(program, 0)
      .f(0, 0)
      .action(Op::Offload, 0, 0)
      .f(0, 1)
      .f(0, 2)
      .b(0, 2)
      .action(Op::Reload, 0, 0)
      .b(0, 1)
      .b(0, 0);
  std::optional<Timing> timing = simulateOrder(program);
  ASSERT_TRUE(timing);
  EXPECT_EQ(timesOf(timing->start, 0),
            (std::vector<double>{0, 1, 1, 2, 3, 5, 5, 7}));
  EXPECT_EQ(timesOf(timing->end, 0),
            (std::vector<double>{1, 3, 2, 3, 5, 7, 7, 9}));
  EXPECT_EQ(timing->makespan, 9);
  EXPECT_EQ(timing->moves, (std::vector<Site>{{0, 1}, {0, 5}}));
  // While the third forward runs the first stash is still on its way.
  EXPECT_EQ(timing->ranks[0].peakActivations, 3);
  EXPECT_EQ(timing->ranks[0].peakBytes, 30);
  EXPECT_EQ(timing->ranks[0].peakHostBytes, 10);
  // With a link that takes no time it is away when the second one comes.
  program.problem.hostLink = {};
  timing = simulateOrder(program);
  ASSERT_TRUE(timing);
  EXPECT_EQ(timing->makespan, 9);
  EXPECT_EQ(timing->ranks[0].peakActivations, 2);
  EXPECT_EQ(timing->ranks[0].peakBytes, 20);
  EXPECT_EQ(timing->ranks[0].peakHostBytes, 10);
}

TEST(SimulateOrder, AStashMovesToAnotherRankAsLongAsTheLinkTakes) {
  Program program = makeProgram(2, 2);
  program.problem.link = {5, 10};
  for (Stage &stage : program.problem.stages)
    stage.bytes.stash = 1000; // 105 one way
  addWithStashAway(program);
  RankBuilder(program, 1).f(1, 0).f(1, 1).b(1, 1).b(1, 0);
  auto &list = program.ranks[0].instructions;
  list[1].peer = list[4].peer = 1;
  const auto check = [](const Timing &timing) {
    EXPECT_EQ(timesOf(timing.start, 0),
              (std::vector<double>{0, 1, 1, 15, 106, 211}));
    EXPECT_EQ(timesOf(timing.end, 0),
              (std::vector<double>{1, 106, 2, 17, 211, 213}));
    EXPECT_EQ(timing.makespan, 213);
    EXPECT_EQ(timing.moves, (std::vector<Site>{{0, 1}, {0, 4}}));
    // In the program a second stash waits for the place of the first.
    EXPECT_EQ(timing.ranks[0].peakActivations, 1);
    EXPECT_EQ(timing.ranks[0].peakBytes, 1000);
  };
  Timing timing = *simulateOrder(program);
  check(timing);
  EXPECT_EQ(timing.ranks[1].peakActivations, 3);
  EXPECT_EQ(timing.ranks[1].peakBytes, 3000);
  // The order of a program has transfers instead.
  Program lowered = program;
  auto &transfers = lowered.ranks[0].instructions;
  transfers[1].op = Op::Send;
  transfers[4].op = Op::Recv;
  transfers[1].payload = transfers[4].payload = Payload::Stash;
  check(*simulateOrder(lowered));

  program.problem.link = {};
  timing = *simulateOrder(program);
  EXPECT_EQ(timing.makespan, 9);
  EXPECT_EQ(timing.ranks[0].peakActivations, 1);
  EXPECT_EQ(timing.ranks[1].peakActivations, 3);
}

TEST(SimulateOrder, ABackwardWaitsForItsReload) {
  Program program = withHostMemory(2);
  program.problem.hostLink.latency = 1; // 3 in all
  addWithStashAway(program);
  std::optional<Timing> timing = simulateOrder(program);
  ASSERT_TRUE(timing);
  EXPECT_EQ(timesOf(timing->start, 0), (std::vector<double>{0, 1, 1, 2, 4, 7}));
  EXPECT_EQ(timing->makespan, 9);
  EXPECT_EQ(timing->ranks[0].peakActivations, 2);
}

TEST(SimulateOrder, AStashThatLeavesAndComesBackDuringAnActionIsOne) {
  Program program = withHostMemory(2);
  program.problem.stages[0].cost.forward = 6;
  RankBuilder(program, 0)
      .f(0, 0)
      .action(Op::Offload, 0, 0)
      .action(Op::Reload, 0, 0)
      .f(0, 1)
      .b(0, 0)
      .b(0, 1);
  const Timing timing = *simulateOrder(program);
  EXPECT_EQ(timesOf(timing.end, 0),
            (std::vector<double>{6, 8, 10, 12, 14, 16}));
  EXPECT_EQ(timing.ranks[0].peakActivations, 2);
  EXPECT_EQ(timing.ranks[0].peakBytes, 20);
}

TEST(SimulateOrder, AReloadWaitsForItsOffload) {
  Program program = withHostMemory(1);
  RankBuilder(program, 0)
      .f(0, 0)
      .action(Op::Offload, 0, 0)
      .action(Op::Reload, 0, 0)
      .b(0, 0);
  std::optional<Timing> timing = simulateOrder(program);
  ASSERT_TRUE(timing);
  EXPECT_EQ(timesOf(timing->start, 0), (std::vector<double>{0, 1, 3, 5}));
  EXPECT_EQ(timing->makespan, 7);
}

TEST(SimulateOrder, CopiesOfARankWaitForEachOther) {
  Program program = withHostMemory(3);
  RankBuilder(program, 0)
      .f(0, 0)
      .action(Op::Offload, 0, 0)
      .f(0, 1)
      .action(Op::Offload, 0, 1)
      .f(0, 2)
      .b(0, 2)
      .action(Op::Reload, 0, 1)
      .b(0, 1)
      .action(Op::Reload, 0, 0)
      .b(0, 0);
  std::optional<Timing> timing = simulateOrder(program);
  ASSERT_TRUE(timing);
  EXPECT_EQ(timesOf(timing->start, 0),
            (std::vector<double>{0, 1, 1, 3, 2, 3, 5, 7, 9, 11}));
  EXPECT_EQ(timing->makespan, 13);
  // The second is on its way until 5, and comes back at 5.
  EXPECT_EQ(timing->ranks[0].peakActivations, 3);
  EXPECT_EQ(timing->ranks[0].peakHostBytes, 20);
}

TEST(SimulateOrder, BetweenIAndWAStashMayBeInHostMemory) {
  Program program = withHostMemory(1);
  RankBuilder(program, 0)
      .f(0, 0)
      .i(0, 0)
      .action(Op::Offload, 0, 0)
      .action(Op::Reload, 0, 0)
      .w(0, 0);
  ASSERT_TRUE(checkMoves(program));
  std::optional<Timing> timing = simulateOrder(program);
  ASSERT_TRUE(timing);
  EXPECT_EQ(timesOf(timing->start, 0), (std::vector<double>{0, 1, 2, 4, 6}));
  EXPECT_EQ(timing->ranks[0].peakActivations, 1);
}

TEST(SimulateOrder, MovesToHostMemoryThatAreWrong) {
  using enum Op;
  auto fault = [](std::initializer_list<Op> ops) {
    Program program = withHostMemory(1);
    for (Op op : ops)
      RankBuilder(program, 0).action(op, 0, 0);
    Status status = checkMoves(program);
    return status ? std::string() : status.message();
  };
  EXPECT_EQ(fault({Forward, Offload, Reload, Offload, Reload, Backward}), "");
  EXPECT_EQ(fault({Forward, Offload, Recompute, Backward}), "");
  EXPECT_EQ(fault({Forward, Offload, Backward}),
            "needs stash 0 mb 0, which is in host memory; reload it before");
  EXPECT_EQ(fault({Forward, Offload, Offload, Reload, Backward}),
            "moves stash 0 mb 0, which is in host memory; reload it before");
  EXPECT_EQ(fault({Forward, Reload, Backward}),
            "gets back stash 0 mb 0, which is not in host memory; offload it "
            "first, or remove this");
  EXPECT_EQ(fault({Offload, Forward, Reload, Backward}),
            "moves stash 0 mb 0, which is not there yet; put it after the "
            "forward");
  EXPECT_EQ(fault({Forward, BackwardInput, Offload, BackwardWeight}),
            "needs stash 0 mb 0, which is in host memory; reload it before");
  EXPECT_EQ(fault({Forward, Backward, Offload}),
            "moves stash 0 mb 0, which the backward has used already; put it "
            "before that");
}

TEST(SimulateOrder, AnOverlapHandsOverAtItsEnd) {
  Program program = makeProgram(2, 2);
  RankBuilder(program, 0).f(0, 0).f(0, 1).b(0, 0).b(0, 1);
  RankBuilder(program, 1).f(1, 0).f(1, 1).with().b(1, 0).b(1, 1);
  std::optional<Timing> timing = simulateOrder(program);
  ASSERT_TRUE(timing);
  EXPECT_EQ(timesOf(timing->start, 1), (std::vector<double>{1, 2, 2, 5}));
  EXPECT_EQ(timesOf(timing->end, 1), (std::vector<double>{2, 5, 5, 7}));
  EXPECT_EQ(timesOf(timing->start, 0), (std::vector<double>{0, 1, 5, 7}));
  // Within the overlap both micro-batches are alive.
  EXPECT_EQ(timing->ranks[1].peakActivations, 2);
}

TEST(SimulateOrder, TheWeightPartHoldsTheActivation) {
  Program program = makeProgram(1, 2);
  program.problem.stages[0].bytes = {0, 7, 100, 20, 3};
  RankBuilder(program, 0).f(0, 0).i(0, 0).f(0, 1).w(0, 0).i(0, 1).w(0, 1);
  std::optional<Timing> timing = simulateOrder(program);
  ASSERT_TRUE(timing);
  EXPECT_EQ(timing->makespan, 6);
  EXPECT_EQ(timing->ranks[0].peakActivations, 2);
  EXPECT_EQ(timing->ranks[0].peakBytes, 123 + 2 * 7);
}

TEST(SimulateOrder, RefusesAnOrderThatCannotRun) {
  Program program = makeProgram(2, 1);
  RankBuilder(program, 0).f(0, 0).b(0, 0);
  RankBuilder(program, 1).b(1, 0).f(1, 0);
  EXPECT_FALSE(simulateOrder(program));
  std::swap(program.ranks[1].instructions[0], program.ranks[1].instructions[1]);
  EXPECT_TRUE(simulateOrder(program));

  Program broken = program;
  broken.ranks[1].instructions.pop_back();
  EXPECT_FALSE(simulateOrder(broken));
  // Missing, and another one there twice.
  broken.ranks[1].instructions.push_back(broken.ranks[1].instructions[0]);
  EXPECT_FALSE(simulateOrder(broken));
  broken = program;
  broken.problem.numMicrobatches = kMaxMicrobatches;
  EXPECT_FALSE(simulateOrder(broken));
  for (auto field : {&Instruction::stage, &Instruction::microbatch})
    for (int32_t wrong : {-1, 2}) {
      broken = program;
      broken.ranks[1].instructions[0].*field = wrong;
      EXPECT_FALSE(simulateOrder(broken));
    }
  // On the rank of another stage.
  broken = program;
  std::swap(broken.ranks[0].instructions, broken.ranks[1].instructions);
  EXPECT_FALSE(simulateOrder(broken));
}

TEST(SimulateOrder, EmptyProblem) {
  Program program;
  std::optional<Timing> timing = simulateOrder(program);
  ASSERT_TRUE(timing);
  EXPECT_EQ(timing->makespan, 0);
}

TEST(PersistentBytes, EachCopyCountsOnce) {
  Problem problem = makeProgram(2, 2).problem;
  problem.stages[0].bytes = {9, 9, 1, 2, 4};
  problem.stages[1].bytes = {9, 9, 10, 20, 40};
  EXPECT_EQ(persistentBytes(problem), (std::vector<int64_t>{7, 70}));
  problem.placement = {0, 1, 1, 0};
  EXPECT_EQ(persistentBytes(problem), (std::vector<int64_t>{77, 77}));
  problem.placement = {0, 1, 0, 1};
  EXPECT_EQ(persistentBytes(problem), (std::vector<int64_t>{7, 70}));
}

/// Rank 0 computes F 0 and F 1 and sends both to rank 1, from queue 0 or 1.
static Program twoSends(uint8_t queue) {
  Program program = makeProgram(2, 2);
  program.problem.link.latency = 0.5;
  RankBuilder sender(program, 0), receiver(program, 1);
  for (int32_t mb : {0, 1}) {
    sender.onQueue(0).f(0, mb);
    const uint32_t forward = sender.last();
    sender.onQueue(queue).after({forward}).sendAct(0, mb, 1);
    receiver.onQueue(queue).recvAct(0, mb, 0);
    const uint32_t received = receiver.last();
    receiver.onQueue(0).after({received}).f(1, mb);
  }
  return program;
}

TEST(SimulateProgram, CopiesToHostMemoryTakeTheTimeOfTheLink) {
  Program program = withHostMemory(2);
  // On their queue, as the order has them; the action before each is waited
  // for, and the backward waits for the reload.
  RankBuilder(program, 0)
      .f(0, 0)
      .onQueue(2)
      .after({0})
      .action(Op::Offload, 0, 0)
      .onQueue(0)
      .f(0, 1)
      .b(0, 1)
      .onQueue(2)
      .after({3})
      .action(Op::Reload, 0, 0)
      .onQueue(0)
      .after({4})
      .b(0, 0);
  std::optional<Timing> timing = simulateProgram(program);
  ASSERT_TRUE(timing);
  EXPECT_EQ(timesOf(timing->start, 0), (std::vector<double>{0, 1, 1, 2, 4, 6}));
  EXPECT_EQ(timesOf(timing->end, 0), (std::vector<double>{1, 3, 2, 4, 6, 8}));
  EXPECT_EQ(timing->ranks[0].busy, 6);
  EXPECT_EQ(timing->ranks[0].peakActivations, 2);
  EXPECT_EQ(timing->ranks[0].peakBytes, 20);
  EXPECT_EQ(timing->ranks[0].peakHostBytes, 10);
}

TEST(SimulateProgram, ATransferOccupiesTheQueuesOfBothRanks) {
  std::optional<Timing> timing = simulateProgram(twoSends(0));
  ASSERT_TRUE(timing);
  EXPECT_EQ(timesOf(timing->start, 0), (std::vector<double>{0, 1, 1.5, 2.5}));
  EXPECT_EQ(timesOf(timing->end, 0), (std::vector<double>{1, 1.5, 2.5, 3}));
  // The second receive waits until F 0 has left queue 0.
  EXPECT_EQ(timesOf(timing->start, 1), (std::vector<double>{1, 1.5, 2.5, 3}));
  EXPECT_EQ(timing->makespan, 4);
}

TEST(SimulateProgram, AQueueOfItsOwnHidesTransfers) {
  std::optional<Timing> timing = simulateProgram(twoSends(1));
  ASSERT_TRUE(timing);
  EXPECT_EQ(timesOf(timing->start, 0), (std::vector<double>{0, 1, 1, 2}));
  EXPECT_EQ(timesOf(timing->start, 1), (std::vector<double>{1, 1.5, 2, 2.5}));
  EXPECT_EQ(timing->makespan, 3.5);
  EXPECT_EQ(timing->span, 2);
}

TEST(SimulateProgram, WaitsCountEvenWithoutNeed) {
  Program program = twoSends(1);
  // F 1 of rank 0 after the send of F 0.
  program.ranks[0].instructions[2].numWaits = 1;
  program.ranks[0].instructions[2].firstWait = 1;
  program.ranks[0].instructions[3].firstWait = 2;
  program.ranks[0].waits = {0, 1, 2};
  std::optional<Timing> timing = simulateProgram(program);
  ASSERT_TRUE(timing);
  EXPECT_EQ(timing->start[0][2], 1.5);
}

TEST(SimulateProgram, AGroupTakesAsLongAsItsLongestMember) {
  Program program = makeProgram(2, 1);
  program.problem.link.bytesPerTime = 10;
  program.problem.stages[0].bytes.output = 20;
  RankBuilder(program, 0).sendAct(0, 0, 1).with().recvGrad(1, 0, 1).f(0, 0);
  RankBuilder(program, 1).recvAct(0, 0, 0).with().sendGrad(1, 0, 0).f(1, 0);
  program.ranks[0].instructions[1].bytes = 50;
  program.ranks[1].instructions[1].bytes = 50;
  std::optional<Timing> timing = simulateProgram(program);
  ASSERT_TRUE(timing);
  EXPECT_EQ(timesOf(timing->end, 0), (std::vector<double>{5, 5, 6}));
}

TEST(SimulateProgram, ACollectiveMeetsAtOnce) {
  Program program = makeProgram(2, 1);
  RankBuilder(program, 0).f(0, 0).collective(Op::Barrier).f(0, 0);
  RankBuilder(program, 1).collective(Op::Barrier).f(1, 0);
  std::optional<Timing> timing = simulateProgram(program);
  ASSERT_TRUE(timing);
  EXPECT_EQ(timesOf(timing->start, 1), (std::vector<double>{1, 1}));
}

TEST(SimulateProgram, PeakBytesWithoutAndWithAPlan) {
  Program program = makeProgram(2, 1);
  program.problem.stages[0].bytes = {10, 100, 1, 0, 0};
  RankBuilder(program, 0).f(0, 0).sendAct(0, 0, 1).recvGrad(1, 0, 1).b(0, 0);
  RankBuilder(program, 1).recvAct(0, 0, 0).f(1, 0).b(1, 0).sendGrad(1, 0, 0);
  std::optional<Timing> timing = simulateProgram(program);
  ASSERT_TRUE(timing);
  // Stash, and either the activation on its way out or the gradient.
  EXPECT_EQ(timing->ranks[0].peakBytes, 1 + 100 + 10);
  // The activation until B has read it, and the gradient that B writes.
  EXPECT_EQ(timing->ranks[1].peakBytes, 10 + 10);
  program.ranks[0].slotBytes = {100, 10};
  timing = simulateProgram(program);
  ASSERT_TRUE(timing);
  EXPECT_EQ(timing->ranks[0].peakBytes, 1 + 2 * kSlotAlignment);
}

TEST(SimulateProgram, ADeadlockHasNoTiming) {
  Program program = makeProgram(2, 1);
  RankBuilder(program, 0).recvGrad(1, 0, 1).sendAct(0, 0, 1);
  RankBuilder(program, 1).recvAct(0, 0, 0).sendGrad(1, 0, 0);
  EXPECT_FALSE(simulateProgram(program));
}

/// Programs that run in host order are timed without a graph, others with one.
TEST(SimulateProgram, WithAndWithoutHostOrder) {
  for (bool planned : {false, true}) {
    Program program = oneForwardOneBackward(3, 5, planned);
    program.problem.link.latency = 0.25;
    std::optional<Timing> inHostOrder = simulateProgram(program);
    ASSERT_TRUE(inHostOrder);
    // Two barriers that cross, on queues and communicators of their own: the
    // ranks cannot run them in host order.
    for (int32_t r = 0; r < 3; ++r) {
      const uint8_t first = r == 0 ? 7 : 8, second = 15 - first;
      RankBuilder(program, r)
          .onQueue(first)
          .onComm(first)
          .collective(Op::Barrier)
          .onQueue(second)
          .onComm(second)
          .collective(Op::Barrier);
    }
    std::optional<Timing> byGraph = simulateProgram(program);
    ASSERT_TRUE(byGraph);
    for (size_t r = 0; r < 3; ++r) {
      const size_t size = inHostOrder->start[r].size();
      EXPECT_EQ(timesOf(byGraph->start, r, size),
                timesOf(inHostOrder->start, r));
      EXPECT_EQ(timesOf(byGraph->end, r, size), timesOf(inHostOrder->end, r));
    }
  }
}
