//===- InsertTransfersTest.cpp - Sends and receives -----------------------===//

#include "Orders.h"

#include "penstock/Analysis/Verify.h"
#include "penstock/Lowering/Lowering.h"
#include "penstock/Program/Text.h"

#include <sstream>

using namespace penstock;
using namespace penstock::test;

/// One instruction a line, a group in braces.
static std::string listing(const RankProgram &rank) {
  std::ostringstream os;
  const auto &list = rank.instructions;
  for (size_t i = 0; i < list.size(); ++i) {
    const bool head = !list[i].joined;
    const bool more = i + 1 < list.size() && list[i + 1].joined;
    os << (head && more ? "{ " : "") << describe(list[i])
       << (more   ? ", "
           : head ? "\n"
                  : " }\n");
  }
  return os.str();
}

TEST(InsertTransfers, ReceivesStandWhereTheyHappen) {
  Result<Program> program = gpipe(pipeline(2, 2));
  Result<TransferStatistics> statistics = insertTransfers(*program);
  ASSERT_TRUE(statistics) << statistics.message();
  EXPECT_EQ(statistics->transfers, 4);
  EXPECT_EQ(statistics->groups, 0);
  EXPECT_EQ(listing(program->ranks[0]), "forward 0 mb 0\n"
                                        "send activation 0 mb 0 to 1\n"
                                        "forward 0 mb 1\n"
                                        "send activation 0 mb 1 to 1\n"
                                        "recv gradient 1 mb 0 from 1\n"
                                        "backward 0 mb 0\n"
                                        "recv gradient 1 mb 1 from 1\n"
                                        "backward 0 mb 1\n");
  // At time 2 rank 1 has run F of micro-batch 0 since 1.
  EXPECT_EQ(listing(program->ranks[1]), "recv activation 0 mb 0 from 0\n"
                                        "forward 1 mb 0\n"
                                        "recv activation 0 mb 1 from 0\n"
                                        "forward 1 mb 1\n"
                                        "backward 1 mb 0\n"
                                        "send gradient 1 mb 0 to 0\n"
                                        "backward 1 mb 1\n"
                                        "send gradient 1 mb 1 to 0\n");
}

TEST(InsertTransfers, GroupsOppositeTransfersOfOneInstant) {
  // Costs whose sums depend on the order of summation in binary: without
  // integer time F + B and B + F would be two instants.
  const Problem problem = pipeline(2, 3, cost(0.1, 0.3, 0.3));
  Result<Program> program = oneForwardOneBackward(problem);
  Result<TransferStatistics> statistics = insertTransfers(*program);
  ASSERT_TRUE(statistics);
  EXPECT_EQ(statistics->transfers, 6);
  EXPECT_EQ(statistics->groups, 1);
  EXPECT_EQ(listing(program->ranks[0]),
            "forward 0 mb 0\n"
            "send activation 0 mb 0 to 1\n"
            "forward 0 mb 1\n"
            "send activation 0 mb 1 to 1\n"
            "recv gradient 1 mb 0 from 1\n"
            "backward 0 mb 0\n"
            "forward 0 mb 2\n"
            "{ send activation 0 mb 2 to 1, recv gradient 1 mb 1 from 1 }\n"
            "backward 0 mb 1\n"
            "recv gradient 1 mb 2 from 1\n"
            "backward 0 mb 2\n");
  EXPECT_EQ(listing(program->ranks[1]),
            "recv activation 0 mb 0 from 0\n"
            "forward 1 mb 0\n"
            "recv activation 0 mb 1 from 0\n"
            "backward 1 mb 0\n"
            "send gradient 1 mb 0 to 0\n"
            "forward 1 mb 1\n"
            "backward 1 mb 1\n"
            "{ recv activation 0 mb 2 from 0, send gradient 1 mb 1 to 0 }\n"
            "forward 1 mb 2\n"
            "backward 1 mb 2\n"
            "send gradient 1 mb 2 to 0\n");
}

TEST(InsertTransfers, GroupsNothingWhenToldSo) {
  Result<Program> program = oneForwardOneBackward(pipeline(2, 3));
  Result<TransferStatistics> statistics =
      insertTransfers(*program, {.group = false});
  ASSERT_TRUE(statistics);
  EXPECT_EQ(statistics->groups, 0);
  for (const RankProgram &rank : program->ranks)
    for (const Instruction &inst : rank.instructions)
      EXPECT_FALSE(inst.joined);
}

TEST(InsertTransfers, NoTransferWithinARank) {
  Problem problem = pipeline(4, 2);
  problem.numRanks = 2;
  problem.placement = {0, 1, 1, 0}; // a V: stages 1 and 2 are neighbours
  problem.stages[0].bytes.output = 10;
  problem.stages[2].bytes.output = 30;
  Result<Program> program = naive(problem);
  ASSERT_TRUE(insertTransfers(*program));
  for (int mb = 0; mb < 2; ++mb) {
    const auto *list = &program->ranks[1].instructions[8 * mb];
    EXPECT_EQ(describe(list[0]),
              "recv activation 0 mb " + std::to_string(mb) + " from 0");
    EXPECT_EQ(list[0].bytes, 10);
    EXPECT_EQ(list[1].op, Op::Forward);
    EXPECT_EQ(list[2].op, Op::Forward);
    EXPECT_EQ(describe(list[3]),
              "send activation 2 mb " + std::to_string(mb) + " to 0");
    EXPECT_EQ(list[3].bytes, 30);
    EXPECT_EQ(describe(list[4]),
              "recv gradient 3 mb " + std::to_string(mb) + " from 0");
    EXPECT_EQ(list[4].bytes, 30); // as large as the activation it is for
    EXPECT_EQ(describe(list[7]),
              "send gradient 1 mb " + std::to_string(mb) + " to 0");
    EXPECT_EQ(list[7].bytes, 10);
  }
}

TEST(InsertTransfers, TwoChains) {
  Problem problem = pipeline(2, 2);
  problem.placement = {0, 1, 1, 0};
  problem.chains = {0, 1};
  problem.stages[1].bytes.gradients = 40;
  Result<Program> program = naive(problem);
  appendSteps(*program);
  ASSERT_TRUE(insertTransfers(*program));
  EXPECT_EQ(listing(program->ranks[0]), "forward 0 mb 0\n"
                                        "send activation 0 mb 0 to 1\n"
                                        "recv gradient 1 mb 0 from 1\n"
                                        "recv activation 0 mb 1 from 1\n"
                                        "backward 0 mb 0\n"
                                        "forward 1 mb 1\n"
                                        "backward 1 mb 1\n"
                                        "send gradient 1 mb 1 to 1\n"
                                        "all_reduce 0\n"
                                        "all_reduce 1\n"
                                        "step\n");
  EXPECT_EQ(program->rankSets, (std::vector<std::vector<int32_t>>{{0, 1}}));
  for (const RankProgram &rank : program->ranks) {
    const Instruction &sum = rank.instructions[rank.instructions.size() - 2];
    EXPECT_EQ(sum.stage, 1);
    EXPECT_EQ(sum.bytes, 40);
    EXPECT_EQ(sum.peer, 0);
    EXPECT_NE(sum.comm, rank.instructions[0].comm);
  }
  EXPECT_TRUE(verify(*program).accepted());
}

TEST(InsertTransfers, SumsOnlyWhatHasCopiesOnSeveralRanks) {
  Problem problem = pipeline(3, 2);
  problem.placement = {0, 1, 2, 0, 2, 1};
  problem.chains = {0, 1};
  Result<Program> program = naive(problem);
  ASSERT_TRUE(insertTransfers(*program));
  auto tail = [&](int rank) {
    std::string text = listing(program->ranks[rank]);
    return text.substr(std::min(text.size(), text.find("all_reduce")));
  };
  EXPECT_EQ(tail(0), "");
  EXPECT_EQ(tail(1), "all_reduce 1\nall_reduce 2\n");
  EXPECT_EQ(tail(2), "all_reduce 1\nall_reduce 2\n");
  EXPECT_EQ(program->rankSets, (std::vector<std::vector<int32_t>>{{1, 2}}));
}

TEST(InsertTransfers, RefusesAStepBeforeTheSumOfGradients) {
  Problem problem = pipeline(2, 2);
  problem.placement = {0, 1, 1, 0};
  problem.chains = {0, 1};
  Result<Program> program = naive(problem);
  Instruction step;
  step.op = Op::Step;
  step.stage = 1;
  auto &list = program->ranks[1].instructions;
  list.insert(list.begin() + 2, step);
  const Program before = *program;
  Result<TransferStatistics> statistics = insertTransfers(*program);
  ASSERT_FALSE(statistics);
  EXPECT_EQ(statistics.message(),
            "`step 1` stands before the last action of rank 1, but gradients "
            "that several ranks have parts of are added up behind it; put the "
            "step there");
  EXPECT_EQ(statistics.failure().site, (Site{1, 2}));
  EXPECT_EQ(*program, before);
}

TEST(InsertTransfers, KeepsOtherInstructionsInPlace) {
  Result<Program> program = naive(pipeline(2, 1));
  Instruction unshard;
  unshard.op = Op::Unshard;
  unshard.stage = 1;
  auto &list = program->ranks[1].instructions;
  list.insert(list.begin(), unshard);
  appendSteps(*program);
  ASSERT_TRUE(insertTransfers(*program));
  EXPECT_EQ(listing(program->ranks[1]), "recv activation 0 mb 0 from 0\n"
                                        "unshard 1\n"
                                        "forward 1 mb 0\n"
                                        "backward 1 mb 0\n"
                                        "send gradient 1 mb 0 to 0\n"
                                        "step\n");
}

TEST(InsertTransfers, AnOverlapSendsWhenItEnds) {
  Result<Program> program = oneForwardOneBackward(pipeline(2, 2));
  auto &list = program->ranks[1].instructions; // F0 B0 F1 B1
  std::swap(list[1], list[2]);                 // F0 {F1 B0} B1
  list[2].joined = true;
  ASSERT_TRUE(insertTransfers(*program));
  EXPECT_EQ(listing(program->ranks[1]), "recv activation 0 mb 0 from 0\n"
                                        "forward 1 mb 0\n"
                                        "recv activation 0 mb 1 from 0\n"
                                        "{ forward 1 mb 1, backward 1 mb 0 }\n"
                                        "send gradient 1 mb 0 to 0\n"
                                        "backward 1 mb 1\n"
                                        "send gradient 1 mb 1 to 0\n");
}

TEST(InsertTransfers, RunsStrictlyInHostOrderOnAGrid) {
  forEachOrder(8, 16, [](const Program &order) {
    for (bool group : {false, true}) {
      Program program = order;
      Result<TransferStatistics> statistics =
          insertTransfers(program, {.group = group});
      ASSERT_TRUE(statistics) << statistics.message();
      EXPECT_TRUE(checkDeadlock(program, Semantics::Closure).ok);
      EXPECT_TRUE(checkDeadlock(program, Semantics::Documented).ok);
      const int64_t p = program.problem.numRanks;
      EXPECT_EQ(statistics->transfers,
                2 * (p - 1) * program.problem.numMicrobatches);
      EXPECT_EQ(program.numInstructions(),
                order.numInstructions() + 2 * statistics->transfers);
    }
  });
}

TEST(InsertTransfers, RefusesWhatIsNoOrder) {
  Result<Program> program = naive(pipeline(2, 1));
  ASSERT_TRUE(insertTransfers(*program));
  Result<TransferStatistics> again = insertTransfers(*program);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.message(),
            "transfers are inserted into an order, but this program has "
            "transfers, collectives or slots already; give the actions only");
}

TEST(InsertTransfers, SaysWhyAnOrderCannotRun) {
  Program order = *oneForwardOneBackward(pipeline(2, 2));
  auto failure = [](Program broken) {
    Result<TransferStatistics> result = insertTransfers(broken);
    EXPECT_FALSE(result);
    return result ? Failure{"accepted"} : result.failure();
  };

  Program broken = order; // rank 0: F0 B0 F1 B1, rank 1: F0 F1 B0 B1
  std::swap(broken.ranks[0].instructions[1], broken.ranks[0].instructions[2]);
  std::swap(broken.ranks[1].instructions[1], broken.ranks[1].instructions[2]);
  EXPECT_EQ(
      failure(broken).message,
      "the order cannot run: rank 0 waits in `backward 0 mb 0`, which waits "
      "for rank 1's `backward 1 mb 0`, which stands behind `forward 1 mb 1`, "
      "which waits for rank 0's `forward 0 mb 1`, which stands behind "
      "`backward 0 mb 0`. Put `backward 1 mb 0` before `forward 1 mb 1` on "
      "rank 1.");
  EXPECT_EQ(failure(broken).site, (Site{0, 1}));

  broken = order;
  std::swap(broken.ranks[1].instructions[0], broken.ranks[1].instructions[1]);
  EXPECT_EQ(failure(broken).message,
            "the order cannot run: rank 1 waits in `backward 1 mb 0`, which "
            "waits for `forward 1 mb 0`, which stands behind `backward 1 mb "
            "0`. Put `forward 1 mb 0` before `backward 1 mb 0` on rank 1.");

  broken = order;
  broken.ranks[1].instructions.erase(broken.ranks[1].instructions.begin() + 1);
  EXPECT_EQ(failure(broken).message,
            "`backward 1 mb 0` is missing; add it to rank 1");
  EXPECT_EQ(failure(broken).site, (Site{1, kNoInstruction}));

  broken = order;
  broken.problem.numMicrobatches = kMaxMicrobatches;
  EXPECT_EQ(failure(broken).message,
            "`forward 0 mb 2` is missing; add it to rank 0");

  broken = order;
  broken.ranks[0].instructions.push_back(broken.ranks[0].instructions[0]);
  EXPECT_EQ(failure(broken).message,
            "`forward 0 mb 0` is there a second time; remove one");
  EXPECT_EQ(failure(broken).site, (Site{0, 4}));

  broken = order;
  broken.ranks[0].instructions.push_back(broken.ranks[1].instructions[3]);
  broken.ranks[1].instructions.pop_back();
  EXPECT_EQ(failure(broken).message,
            "`backward 1 mb 1` stands on rank 0, but its stage is on rank 1; "
            "move the action or the stage");

  broken = order;
  broken.ranks[0].instructions[0].stage = 2;
  EXPECT_EQ(failure(broken).message,
            "`forward 2 mb 0` is out of range; there are 2 stages and 2 "
            "micro-batches");
}

/// A rank that has ended its actions still holds stashes for others: its step
/// stands behind their transfers, and sums of gradients between the two.
TEST(InsertTransfers, SumsStandBehindStashesHeldForOthers) {
  Problem problem = pipeline(4, 6);
  problem.tied = {{{0, 3}, 8}};
  Result<Program> program = bPipe(problem);
  ASSERT_TRUE(program);
  appendSteps(*program);
  ASSERT_TRUE(insertTransfers(*program));
  const Verdict verdict = verify(*program);
  EXPECT_TRUE(verdict.accepted())
      << (verdict.accepted() ? "" : verdict.findings.front().message);
}
