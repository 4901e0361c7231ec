//===- CriticalPathTest.cpp - What the time goes to -----------------------===//

#include "Testing/Build.h"
#include "Testing/RandomProgram.h"

#include "../Support/PathChecks.h"
#include "penstock/Analysis/Timeline.h"
#include "penstock/Program/Text.h"

#include <gtest/gtest.h>

using namespace penstock;
using namespace penstock::test;

/// "0 forward 0 mb 0, 1 0>1, 1.5 forward 1 mb 0": start and what runs.
static std::string listing(const Program &program,
                           const std::vector<CriticalStep> &path) {
  std::string text;
  for (const CriticalStep &step : path) {
    const auto &list = program.ranks[step.site.rank].instructions;
    text += (text.empty() ? "" : ", ") + formatNumber(step.start) + ' ';
    text += step.isTransfer() ? std::to_string(step.source) + '>' +
                                    std::to_string(step.destination)
                              : describe(list[step.site.instruction]);
  }
  return text;
}

TEST(CriticalPath, OfAnOrderGoesThroughWhatIsSlow) {
  Program program = makeProgram(2, 2);
  program.problem.link.latency = 0.5;
  program.problem.stages[1].cost = {3, 5, 2, 3, 3};
  RankBuilder(program, 0).f(0, 0).f(0, 1).b(0, 0).b(0, 1).step();
  RankBuilder(program, 1).f(1, 0).b(1, 0).f(1, 1).b(1, 1);
  const Timing timing = *simulateOrder(program);
  const auto path = criticalPath(program, timing);
  EXPECT_EQ(listing(program, path),
            "0.0 forward 0 mb 0, 1.0 0>1, 1.5 forward 1 mb 0, "
            "4.5 backward 1 mb 0, 9.5 forward 1 mb 1, 12.5 backward 1 mb 1, "
            "17.5 1>0, 18.0 backward 0 mb 1");
  const PathSummary summary = summarize(program, path);
  EXPECT_EQ(summary.actions, (PathSummary::Actions{7, 12, 0, 0, 0}));
  EXPECT_EQ(summary.stages[0], (PathSummary::Actions{1, 2, 0, 0, 0}));
  EXPECT_EQ(summary.stages[1], (PathSummary::Actions{6, 10, 0, 0, 0}));
  EXPECT_EQ(summary.transfers, 1);
  ASSERT_EQ(summary.links.size(), 2u);
  EXPECT_EQ(summary.links[0].source, 0);
  EXPECT_EQ(summary.links[0].time, 0.5);
  EXPECT_EQ(summary.links[1].source, 1);
  EXPECT_EQ(summary.links[1].destination, 0);
  // Rank 0 gets the first gradient at 10, and waits from 12 on for the second:
  // until 17.5 rank 1 works on it.
  EXPECT_EQ(waitingTimes(program, timing),
            (std::vector<RankWaiting>{{0, 1, 13, 0}, {1.5, 0, 0, 2.5}}));
  expectTimeAddsUp(program, timing);
}

TEST(CriticalPath, KeepsToARankAndThenToTheLowest) {
  // Both ranks work all the time: F 1 could as well have come from F 0.
  Program program = makeProgram(2, 2);
  RankBuilder(program, 0).f(0, 0).f(0, 1).b(0, 0).b(0, 1);
  RankBuilder(program, 1).f(1, 0).b(1, 0).f(1, 1).b(1, 1);
  Timing timing = *simulateOrder(program);
  EXPECT_EQ(listing(program, criticalPath(program, timing)),
            "0.0 forward 0 mb 0, 1.0 0>1, 1.0 forward 1 mb 0, "
            "2.0 backward 1 mb 0, 4.0 forward 1 mb 1, 5.0 backward 1 mb 1, "
            "7.0 1>0, 7.0 backward 0 mb 1");
  // Ranks 0 and 1 end together.
  Program independent = makeProgram(2, 1);
  RankBuilder(independent, 1).f(1, 0);
  RankBuilder(independent, 0).f(0, 0);
  timing = *simulateProgram(independent);
  const auto path = criticalPath(independent, timing);
  ASSERT_EQ(path.size(), 1u);
  EXPECT_EQ(path[0].site, (Site{0, 0}));
}

TEST(CriticalPath, AnOverlapSharesItsTime) {
  Program program = makeProgram(1, 2);
  program.problem.overlap = 0.5; // 1 and 2 take 2.5
  RankBuilder(program, 0).f(0, 0).f(0, 1).with().b(0, 0).b(0, 1);
  const Timing timing = *simulateOrder(program);
  const auto path = criticalPath(program, timing);
  EXPECT_EQ(path.size(), 3u);
  const PathSummary summary = summarize(program, path);
  EXPECT_DOUBLE_EQ(summary.actions[0], 1 + 2.5 / 3);
  EXPECT_DOUBLE_EQ(summary.actions[1], 2 + 2.5 * 2 / 3);
}

/// Rank 0 computes F 0 and F 1 and sends both to rank 1 on queue 1.
static Program twoSends(double latency) {
  Program program = makeProgram(2, 2);
  program.problem.link.latency = latency;
  RankBuilder sender(program, 0), receiver(program, 1);
  for (int32_t mb : {0, 1}) {
    sender.onQueue(0).f(0, mb);
    const uint32_t forward = sender.last();
    sender.onQueue(1).after({forward}).sendAct(0, mb, 1);
    receiver.onQueue(1).recvAct(0, mb, 0);
    const uint32_t received = receiver.last();
    receiver.onQueue(0).after({received}).f(1, mb);
  }
  return program;
}

TEST(CriticalPath, OfAProgramGoesAlongQueuesAndTransfers) {
  // A slow link: the second transfer stands behind the first.
  Program program = twoSends(4);
  Timing timing = *simulateProgram(program);
  auto path = criticalPath(program, timing);
  EXPECT_EQ(listing(program, path),
            "0.0 forward 0 mb 0, 1.0 0>1, 5.0 0>1, 9.0 forward 1 mb 1");
  EXPECT_EQ(path[1].site, (Site{0, 1})); // the send
  EXPECT_EQ(summarize(program, path).transfers, 8);
  // Rank 1 starts at 5, ends at 6 and waits for a transfer that is under way.
  EXPECT_EQ(waitingTimes(program, timing)[1], (RankWaiting{5, 3, 0, 0}));
  EXPECT_EQ(waitingTimes(program, timing)[0], (RankWaiting{0, 0, 0, 8}));
  expectTimeAddsUp(program, timing);
  // A fast one: the second action of rank 0 is on the path, and rank 1 waits
  // for it before it waits for the transfer.
  program = twoSends(0.25);
  program.problem.stages[0].cost.forward = 3;
  timing = *simulateProgram(program);
  path = criticalPath(program, timing);
  EXPECT_EQ(listing(program, path),
            "0.0 forward 0 mb 0, 3.0 forward 0 mb 1, 6.0 0>1, "
            "6.25 forward 1 mb 1");
  EXPECT_EQ(waitingTimes(program, timing)[1],
            (RankWaiting{3.25, 0.25, 1.75, 0}));
  expectTimeAddsUp(program, timing);
}

TEST(CriticalPath, OfAGroupNamesTheLongestTransfer) {
  Program program = makeProgram(2, 1);
  program.problem.link.bytesPerTime = 10;
  program.problem.stages[0].bytes.output = 20;
  RankBuilder(program, 0).sendAct(0, 0, 1).with().recvGrad(1, 0, 1).f(0, 0);
  RankBuilder(program, 1).recvAct(0, 0, 0).with().sendGrad(1, 0, 0).f(1, 0);
  program.ranks[0].instructions[1].bytes = 50;
  program.ranks[1].instructions[1].bytes = 50;
  const Timing timing = *simulateProgram(program);
  EXPECT_EQ(listing(program, criticalPath(program, timing)),
            "0.0 1>0, 5.0 forward 0 mb 0");
}

TEST(CriticalPath, GoesThroughCollectives) {
  Program program = makeProgram(2, 1);
  RankBuilder(program, 0).f(0, 0).collective(Op::Barrier).f(0, 0);
  RankBuilder(program, 1).collective(Op::Barrier).b(1, 0);
  const Timing timing = *simulateProgram(program);
  EXPECT_EQ(listing(program, criticalPath(program, timing)),
            "0.0 forward 0 mb 0, 1.0 barrier, 1.0 backward 1 mb 0");
  EXPECT_EQ(waitingTimes(program, timing)[1], (RankWaiting{1, 0, 0, 0}));
  expectTimeAddsUp(program, timing);
}

TEST(CriticalPath, ActionsOnSeveralQueuesMayRunTogether) {
  Program program = makeProgram(1, 3);
  RankBuilder rank(program, 0);
  rank.f(0, 0).f(0, 1).onQueue(2).f(0, 2);
  const Timing timing = *simulateProgram(program);
  EXPECT_EQ(timing.makespan, 2);
  EXPECT_EQ(waitingTimes(program, timing)[0], RankWaiting{});
  expectTimeAddsUp(program, timing, /*oneAtATime=*/false);
}

TEST(CriticalPath, GoesThroughCopiesToHostMemory) {
  Program program = makeProgram(1, 2);
  program.problem.hostLink.latency = 3.5;
  addWithStashAway(program);
  const auto check = [](const Program &program, const Timing &timing) {
    const auto path = criticalPath(program, timing);
    EXPECT_EQ(listing(program, path),
              "0.0 forward 0 mb 0, 1.0 offload 0 mb 0, 4.5 reload 0 mb 0, "
              "8.0 backward 0 mb 0");
    EXPECT_EQ(summarize(program, path).copies, 7);
    // From 4 on nothing but copies is under way.
    EXPECT_EQ(waitingTimes(program, timing)[0], (RankWaiting{0, 4, 0, 0}));
    expectTimeAddsUp(program, timing);
  };
  check(program, *simulateOrder(program));
  auto &list = program.ranks[0].instructions;
  list[1].queue = list[4].queue = 2;
  program.ranks[0].waits = {0, 3, 4};
  for (uint32_t wait = 0; uint32_t i : {1, 4, 5}) {
    list[i].firstWait = wait++;
    list[i].numWaits = 1;
  }
  check(program, *simulateProgram(program));
}

TEST(CriticalPath, OfAnOrderGoesThroughStashesThatMove) {
  Program program = makeProgram(2, 2);
  program.problem.link = {5, 10};
  program.problem.stages[0].bytes.stash = 1000; // 105 one way
  addWithStashAway(program);
  RankBuilder(program, 1).f(1, 0).f(1, 1).b(1, 1).b(1, 0);
  auto &list = program.ranks[0].instructions;
  list[1].peer = list[4].peer = 1;
  const Timing timing = *simulateOrder(program);
  const auto path = criticalPath(program, timing);
  EXPECT_EQ(listing(program, path),
            "0.0 forward 0 mb 0, 1.0 0>1, 106.0 1>0, 211.0 backward 0 mb 0");
  EXPECT_EQ(renderCriticalPath(program, path),
            "critical path: F 1.0, B 2.0, transfers 210.0\n"
            "0.0    rank 0       forward 0 mb 0\n"
            "1.0    rank 0 to 1  offload 0 mb 0 to 1\n"
            "106.0  rank 1 to 0  reload 0 mb 0 from 1\n"
            "211.0  rank 0       backward 0 mb 0\n");
  EXPECT_EQ(summarize(program, path).transfers, 210);
  // The gradient takes 5, and from 17 on only the stash is under way.
  EXPECT_EQ(waitingTimes(program, timing),
            (std::vector<RankWaiting>{{0, 199, 8, 0}, {6, 0, 0, 201}}));
  expectTimeAddsUp(program, timing);
}

TEST(CriticalPath, AnActionMayWaitForSeveralCopies) {
  Program program = makeProgram(1, 2);
  program.problem.hostLink.latency = 2;
  RankBuilder(program, 0)
      .f(0, 0)
      .action(Op::Offload, 0, 0)
      .f(0, 1)
      .action(Op::Offload, 0, 1)
      .action(Op::Reload, 0, 0)
      .b(0, 0)
      .action(Op::Reload, 0, 1)
      .b(0, 1);
  const Timing timing = *simulateOrder(program);
  EXPECT_EQ(listing(program, criticalPath(program, timing)),
            "0.0 forward 0 mb 0, 1.0 offload 0 mb 0, 3.0 offload 0 mb 1, "
            "5.0 reload 0 mb 0, 7.0 backward 0 mb 0, 9.0 reload 0 mb 1, "
            "11.0 backward 0 mb 1");
  EXPECT_EQ(waitingTimes(program, timing)[0], (RankWaiting{0, 7, 0, 0}));
  expectTimeAddsUp(program, timing);
}

TEST(CriticalPath, OfNothingIsEmpty) {
  const Program program = makeProgram(2, 1);
  const Timing timing = *simulateProgram(program);
  EXPECT_TRUE(criticalPath(program, timing).empty());
  EXPECT_EQ(waitingTimes(program, timing), std::vector<RankWaiting>(2));
}

TEST(CriticalPath, OfRandomPrograms) {
  std::mt19937 random(7);
  int finished = 0;
  for (int k = 0; k < 3000; ++k) {
    Program program = randomProgram(random);
    program.problem.link.latency = static_cast<double>(random() % 3) / 8;
    program.problem.link.bytesPerTime = static_cast<double>(random() % 2);
    program.problem.overlap = static_cast<double>(random() % 3) / 2;
    for (Stage &stage : program.problem.stages)
      stage.cost = {static_cast<double>(random() % 5) / 4,
                    static_cast<double>(random() % 9) / 4, 1, 0.5, 1};
    const std::optional<Timing> timing = simulateProgram(program);
    if (!timing)
      continue;
    ++finished;
    expectTimeAddsUp(program, *timing, /*oneAtATime=*/false);
    if (HasFailure())
      FAIL() << k << '\n' << dump(program);
  }
  EXPECT_GT(finished, 500);
}
