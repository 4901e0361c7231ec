//===- VerifyTest.cpp - Every rule accepts and refuses --------------------===//

#include "Testing/Build.h"

#include "penstock/Analysis/Verify.h"
#include "penstock/Program/Text.h"

#include <gtest/gtest.h>

using namespace penstock;
using namespace penstock::test;

namespace {

std::string allMessages(const Verdict &verdict) {
  std::string text;
  for (const Finding &finding : verdict.findings) {
    text += std::string(name(finding.rule)) + ": " + finding.message + "\n";
    for (const Note &note : finding.notes)
      text += "  note: " + note.text + "\n";
  }
  return text;
}

/// Some finding of the rule has the message and is at the site.
void expectFinding(const Verdict &verdict, Rule rule, Site site,
                   const std::string &message, size_t numNotes = 0) {
  for (const Finding &finding : verdict.findings)
    if (finding.rule == rule && finding.site == site &&
        finding.message == message && finding.notes.size() == numNotes)
      return;
  ADD_FAILURE() << "no " << name(rule) << " finding at (" << site.rank << ", "
                << site.instruction << ") with " << numNotes
                << " notes: " << message << "\nbut:\n"
                << allMessages(verdict);
}

constexpr uint32_t kRank = kNoInstruction;

/// The smallest complete program: one forward and backward on each of two
/// ranks.
Program smallProgram() {
  Program program = makeProgram(2, 1);
  RankBuilder(program, 0).f(0, 0).sendAct(0, 0, 1).recvGrad(1, 0, 1).b(0, 0);
  RankBuilder(program, 1).recvAct(0, 0, 0).f(1, 0).b(1, 0).sendGrad(1, 0, 0);
  return program;
}

TEST(Verify, AcceptsOneForwardOneBackward) {
  for (bool planned : {false, true})
    for (int32_t p : {1, 2, 3, 5})
      for (int32_t m : {1, 2, 4, 9}) {
        Verdict verdict = verify(oneForwardOneBackward(p, m, planned));
        EXPECT_TRUE(verdict.accepted())
            << p << " ranks, " << m << " micro-batches, planned " << planned
            << "\n"
            << allMessages(verdict);
        EXPECT_TRUE(verdict.deadlockFree && verdict.documentedOk);
        EXPECT_EQ(verdict.minCapacity, 0);
        EXPECT_TRUE(verdict.cycle.empty());
      }
}

TEST(Verify, RefusesWhatIsNotWellFormed) {
  Program program = smallProgram();
  program.ranks[0].instructions[1].peer = 7;
  Verdict verdict = verify(program);
  ASSERT_EQ(verdict.findings.size(), 1u);
  EXPECT_EQ(verdict.findings[0].rule, Rule::Structure);
  EXPECT_EQ(verdict.findings[0].site, (Site{0, 1}));
  program.ranks[0].instructions[1].peer = 0; // with itself
  verdict = verify(program);
  ASSERT_EQ(verdict.findings.size(), 1u);
  EXPECT_EQ(verdict.findings[0].site, (Site{0, 1}));
}

TEST(Verify, CollectsAtMostSoMany) {
  Program program = makeProgram(1, 40);
  EXPECT_EQ(verify(program).findings.size(), 16u);
  VerifyOptions options;
  options.maxFindings = 3;
  EXPECT_EQ(verify(program, options).findings.size(), 3u);
}

//===----------------------------------------------------------------------===//
// Structure
//===----------------------------------------------------------------------===//

TEST(Structure, TransferWithoutOtherEnd) {
  Program program = smallProgram();
  program.ranks[1].instructions.erase(program.ranks[1].instructions.begin());
  expectFinding(verify(program), Rule::Structure, {0, 1},
                "no receive matches this: from rank 0 to rank 1 on "
                "communicator 0 there are 1 sends and 0 receives; add the "
                "missing end or remove this one");
  program = smallProgram();
  program.ranks[1].instructions.pop_back();
  expectFinding(verify(program), Rule::Structure, {0, 2},
                "no send matches this: from rank 1 to rank 0 on communicator 0 "
                "there are 0 sends and 1 receives; add the missing end or "
                "remove this one");
}

TEST(Structure, EndsThatDisagree) {
  Program program = makeProgram(2, 2);
  RankBuilder(program, 0).sendAct(0, 0, 1).sendAct(0, 1, 1);
  RankBuilder(program, 1).recvAct(0, 1, 0).recvAct(0, 0, 0);
  expectFinding(
      verify(program), Rule::Structure, {0, 0},
      "`send activation 0 mb 0 to 1` arrives in rank 1's `recv activation 0 mb "
      "1 from 0`, and `send activation 0 mb 1 to 1` in its `recv activation 0 "
      "mb 0 from 0`: the two are swapped, because messages from rank 0 to rank "
      "1 on communicator 0 have no tags and match first to first; make the "
      "order equal at both ends",
      3);
}

/// Three messages go round: none of them is just swapped with the next.
TEST(Structure, OrdersThatDisagree) {
  Program program = makeProgram(2, 3);
  RankBuilder(program, 0).sendAct(0, 0, 1).sendAct(0, 1, 1).sendAct(0, 2, 1);
  RankBuilder(program, 1).recvAct(0, 1, 0).recvAct(0, 2, 0).recvAct(0, 0, 0);
  expectFinding(
      verify(program), Rule::Structure, {0, 0},
      "`send activation 0 mb 0 to 1` arrives in rank 1's `recv activation 0 mb "
      "1 from 0`, because messages from rank 0 to rank 1 on communicator 0 "
      "have no tags and match first to first; make the order equal at both "
      "ends",
      1);
}

/// One end is missing in the middle: the finding is there, not at the end.
TEST(Structure, EndsThatAreShifted) {
  Program program = makeProgram(2, 3);
  RankBuilder(program, 0).sendAct(0, 0, 1).sendAct(0, 1, 1).sendAct(0, 2, 1);
  RankBuilder(program, 1).recvAct(0, 0, 0).recvAct(0, 2, 0);
  expectFinding(
      verify(program), Rule::Structure, {0, 1},
      "no receive on rank 1 is meant for this, so `send activation 0 mb 1 to "
      "1` arrives in rank 1's `recv activation 0 mb 2 from 0`, and what "
      "follows is shifted too, because messages from rank 0 to rank 1 on "
      "communicator 0 have no tags and match first to first; add the missing "
      "end or remove this one",
      1);
  for (RankProgram &rank : program.ranks)
    for (Instruction &inst : rank.instructions) {
      inst.op = inst.op == Op::Send ? Op::Recv : Op::Send;
      inst.payload = Payload::Gradient;
      inst.stage = 1;
    }
  expectFinding(
      verify(program), Rule::Structure, {0, 1},
      "no send on rank 1 is meant for this, so `send gradient 1 mb 2 to 0` "
      "arrives in rank 0's `recv gradient 1 mb 1 from 1`, and what follows is "
      "shifted too, because messages from rank 1 to rank 0 on communicator 0 "
      "have no tags and match first to first; add the missing end or remove "
      "this one",
      1);
}

/// Nothing hangs, but a gradient lands where an activation belongs.
/// NVIDIA/Megatron-LM#1450, PR#5271
TEST(Structure, PreviousAndNextPeerCoincide) {
  Program program = makeProgram(2, 1, 4);
  RankBuilder(program, 0).sendGrad(2, 0, 1).with().sendAct(0, 0, 1);
  RankBuilder(program, 1).recvAct(0, 0, 0).with().recvGrad(2, 0, 0);
  expectFinding(
      verify(program), Rule::Structure, {0, 0},
      "`send gradient 2 mb 0 to 1` arrives in rank 1's `recv activation 0 mb 0 "
      "from 0`, and `send activation 0 mb 0 to 1` in its `recv gradient 2 mb 0 "
      "from 0`: the two are swapped, because messages from rank 0 to rank 1 on "
      "communicator 0 have no tags and match first to first; rank 1 comes both "
      "after and before rank 0, so make the order of activations and gradients "
      "equal at both ends or give gradients a communicator of their own",
      3);
}

TEST(Structure, SizesThatDisagree) {
  Program program = smallProgram();
  program.problem.stages[0].bytes.output = 16;
  program.ranks[0].instructions[1].bytes = 16;
  program.ranks[0].instructions[2].bytes = 16;
  program.ranks[1].instructions[3].bytes = 16;
  Verdict verdict = verify(program);
  expectFinding(verdict, Rule::Structure, {0, 1},
                "`send activation 0 mb 0 to 1` of 16 bytes arrives in rank 1's "
                "`recv activation 0 mb 0 from 0` of 0 bytes; make the sizes "
                "equal",
                1);
  expectFinding(
      verdict, Rule::Structure, {1, 0},
      "moves 0 bytes, but activation 0 mb 0 has 16 in the stage table; "
      "make them equal");
}

TEST(Structure, PayloadsThatGoNowhere) {
  Program program = makeProgram(2, 1);
  RankBuilder(program, 0).sendGrad(0, 0, 1);
  RankBuilder(program, 1).sendAct(1, 0, 0);
  Verdict verdict = verify(program);
  expectFinding(verdict, Rule::Structure, {0, 0},
                "stage 0 sends no gradient, nothing comes before it; remove "
                "the transfer");
  expectFinding(verdict, Rule::Structure, {1, 0},
                "stage 1 is the last one, its activation goes nowhere; remove "
                "the transfer");
}

TEST(Structure, WrongPeer) {
  Program program = makeProgram(3, 1);
  RankBuilder(program, 0).sendAct(0, 0, 2);
  RankBuilder(program, 2).recvAct(0, 0, 0).sendGrad(1, 0, 0);
  Verdict verdict = verify(program);
  expectFinding(verdict, Rule::Structure, {0, 0},
                "goes to rank 2, but stage 1 of micro-batch 0 is on rank 1; "
                "make that its peer");
  expectFinding(verdict, Rule::Structure, {2, 0},
                "goes to rank 2, but stage 1 of micro-batch 0 is on rank 1; "
                "move the transfer there");
  expectFinding(verdict, Rule::Structure, {2, 1},
                "comes from rank 2, but stage 1 of micro-batch 0 is on rank 1; "
                "move the transfer there");
}

TEST(Structure, SameTensorTwiceInAGroup) {
  Program program = makeProgram(2, 1);
  RankBuilder(program, 0).sendAct(0, 0, 1).with().sendAct(0, 0, 1);
  RankBuilder(program, 1).recvAct(0, 0, 0).with().recvAct(0, 0, 0);
  Verdict verdict = verify(program);
  expectFinding(verdict, Rule::Structure, {0, 1},
                "the group moves this tensor twice; remove one", 1);
  expectFinding(verdict, Rule::Structure, {1, 1},
                "the group moves this tensor twice; remove one", 1);
}

TEST(Structure, Collectives) {
  Program program = makeProgram(3, 1);
  program.rankSets = {{0, 2}};
  RankBuilder(program, 0)
      .collective(Op::Barrier)
      .collective(Op::AllReduce, 0, 0);
  RankBuilder(program, 1).collective(Op::AllReduce, 0, 0);
  RankBuilder(program, 2).collective(Op::Barrier);
  Verdict verdict = verify(program);
  expectFinding(verdict, Rule::Structure, {0, 0},
                "rank 1 never reaches this collective, or less often than rank "
                "0 does; every rank of the set must issue it");
  expectFinding(verdict, Rule::Structure, {0, 1},
                "rank 2 never reaches this collective, or less often than rank "
                "0 does; every rank of the set must issue it");
  expectFinding(
      verdict, Rule::Structure, {1, 0},
      "rank 1 is not in the rank set of this collective; add it to the "
      "set or remove the collective here");

  program = makeProgram(2, 1);
  RankBuilder(program, 0).collective(Op::AllReduce, 0);
  RankBuilder(program, 1).collective(Op::AllReduce, 0);
  program.ranks[1].instructions[0].bytes = 8;
  expectFinding(verify(program), Rule::Structure, {0, 0},
                "moves 0 bytes here and 8 on rank 1; make them equal", 1);
}

//===----------------------------------------------------------------------===//
// Completeness
//===----------------------------------------------------------------------===//

TEST(Completeness, MissingActions) {
  Program program = makeProgram(1, 2);
  RankBuilder(program, 0).f(0, 0).w(0, 1);
  Verdict verdict = verify(program);
  expectFinding(verdict, Rule::Completeness, {0, 0},
                "stage 0 of micro-batch 0 has no backward on rank 0: neither "
                "`backward 0 mb 0` nor `backward_input 0 mb 0` and "
                "`backward_weight 0 mb 0`; add one of them");
  expectFinding(verdict, Rule::Completeness, {0, kRank},
                "`forward 0 mb 1` is missing on rank 0; add it");
  expectFinding(verdict, Rule::Completeness, {0, 1},
                "`backward_input 0 mb 1` is missing on rank 0; add it");
}

TEST(Completeness, MissingWeightPart) {
  Program program = makeProgram(1, 1);
  RankBuilder(program, 0).f(0, 0).i(0, 0);
  expectFinding(verify(program), Rule::Completeness, {0, 1},
                "`backward_weight 0 mb 0` is missing on rank 0; add it");
}

TEST(Completeness, ActionsTwice) {
  Program program = makeProgram(1, 1);
  RankBuilder(program, 0).f(0, 0).f(0, 0).b(0, 0).b(0, 0);
  Verdict verdict = verify(program);
  expectFinding(verdict, Rule::Completeness, {0, 1},
                "is here a second time; remove one", 1);
  expectFinding(verdict, Rule::Completeness, {0, 3},
                "is here a second time, its weight gradient would count twice; "
                "remove one",
                1);
}

TEST(Completeness, WholeAndSplitBackward) {
  Program program = makeProgram(1, 1);
  RankBuilder(program, 0).f(0, 0).b(0, 0).w(0, 0);
  expectFinding(
      verify(program), Rule::Completeness, {0, 2},
      "repeats a part of `backward 0 mb 0`, the weight gradient would "
      "count twice; keep the whole backward or its two parts",
      1);
  program = makeProgram(1, 1);
  RankBuilder(program, 0).f(0, 0).i(0, 0).b(0, 0);
  expectFinding(verify(program), Rule::Completeness, {0, 1},
                "repeats a part of `backward 0 mb 0`; keep the whole backward "
                "or its two parts",
                1);
}

TEST(Completeness, WrongRank) {
  Program program = makeProgram(2, 1);
  RankBuilder(program, 0).f(1, 0);
  expectFinding(verify(program), Rule::Completeness, {0, 0},
                "is on the wrong rank: stage 1 of micro-batch 0 is on rank 1; "
                "move it there");
}

TEST(Completeness, ParametersOnTheWrongRank) {
  for (Op op :
       {Op::Step, Op::AllReduce, Op::ReduceGrad, Op::Unshard, Op::Reshard}) {
    auto verdictOf = [&](int32_t stage, bool twoChains) {
      Program program = smallProgram();
      RankBuilder(program, 0).action(op, stage, -1);
      if (op == Op::AllReduce) { // of this rank alone
        program.rankSets = {{0}};
        program.ranks[0].instructions.back().peer = 0;
      }
      if (twoChains) {
        program.problem.placement = {0, 1, 1, 0};
        program.problem.chains = {0};
      }
      return verify(program);
    };
    expectFinding(verdictOf(1, false), Rule::Completeness, {0, 4},
                  "is on the wrong rank: stage 1 is on rank 1; move it there");
    for (const Verdict &verdict : {verdictOf(0, false), verdictOf(1, true)})
      for (const Finding &finding : verdict.findings)
        EXPECT_EQ(finding.message.find("wrong rank"), std::string::npos)
            << finding.message;
  }
}

/// Two copies of two stages, one micro-batch on each chain, with all transfers
/// left out: only completeness is asked here.
static Program twoCopies() {
  Program program = makeProgram(2, 2);
  program.problem.placement = {0, 1, 1, 0};
  program.problem.chains = {0, 1};
  RankBuilder(program, 0).f(0, 0).f(1, 1).b(1, 1).b(0, 0);
  RankBuilder(program, 1).f(0, 1).f(1, 0).b(1, 0).b(0, 1);
  return program;
}

static size_t numFindings(const Verdict &verdict, Rule rule) {
  return std::count_if(
      verdict.findings.begin(), verdict.findings.end(),
      [&](const Finding &finding) { return finding.rule == rule; });
}

TEST(Completeness, CopiesAddUpTheirGradients) {
  Program program = twoCopies();
  // Nothing uses the gradients, or transfers and sums are yet to come.
  for (int32_t rank : {0, 1})
    RankBuilder(program, rank).collective(Op::Barrier);
  EXPECT_EQ(numFindings(verify(program), Rule::Completeness), 0u);
  program = twoCopies();
  for (int32_t rank : {0, 1})
    RankBuilder(program, rank).step();
  ASSERT_TRUE(program.isOrder());
  VerifyOptions order;
  order.order = true;
  EXPECT_EQ(numFindings(verify(program, order), Rule::Completeness), 0u);
  EXPECT_EQ(numFindings(verify(program), Rule::Completeness), 4u);

  program = twoCopies();
  for (int32_t rank : {0, 1})
    RankBuilder(program, rank)
        .collective(Op::AllReduce, 0)
        .collective(Op::AllReduce, 1)
        .step();
  EXPECT_EQ(numFindings(verify(program), Rule::Completeness), 0u);

  // The sum of one stage is forgotten on all ranks: nothing hangs, but the
  // copies drift apart.
  program = twoCopies();
  for (int32_t rank : {0, 1})
    RankBuilder(program, rank).collective(Op::AllReduce, 1).step();
  const std::string why =
      ": stage 0 has copies on ranks 0, 1, each with a part of its gradients, "
      "while `step` on rank 0 uses gradients; add them up on all these ranks";
  Verdict verdict = verify(program);
  for (int32_t rank : {0, 1})
    expectFinding(
        verdict, Rule::Completeness, {rank, kNoInstruction},
        "`all_reduce 0` is missing on rank " + std::to_string(rank) + why, 1);
  EXPECT_EQ(numFindings(verdict, Rule::Completeness), 2u);

  // Without a step too, when another stage has its sum.
  program = twoCopies();
  for (int32_t rank : {0, 1})
    RankBuilder(program, rank).collective(Op::AllReduce, 1);
  EXPECT_EQ(numFindings(verify(program), Rule::Completeness), 2u);

  // Over ranks of which one is left out.
  program = twoCopies();
  program.rankSets = {{0}, {1}};
  for (int32_t rank : {0, 1}) {
    RankBuilder builder(program, rank);
    builder.collective(Op::AllReduce, 0, rank);
    builder.collective(Op::AllReduce, 1).step();
  }
  verdict = verify(program);
  for (int32_t rank : {0, 1})
    expectFinding(verdict, Rule::Completeness, {rank, 4},
                  "leaves out rank " + std::to_string(1 - rank) +
                      ", but stage 0 has copies on ranks 0, 1, each with a "
                      "part of its gradients; add it to the rank set");
  EXPECT_EQ(numFindings(verdict, Rule::Completeness), 2u);

  // Of another size.
  program = twoCopies();
  program.problem.stages[1].bytes.gradients = 8;
  for (int32_t rank : {0, 1})
    RankBuilder(program, rank)
        .collective(Op::AllReduce, 0)
        .collective(Op::AllReduce, 1)
        .step();
  expectFinding(verify(program), Rule::Completeness, {1, 5},
                "moves 0 bytes, but what it adds up has 8; write bytes(8)");

  // A sum or a step of one micro-batch: the others would be added up twice, or
  // the copies drift apart.
  for (Op op : {Op::AllReduce, Op::Step}) {
    program = twoCopies();
    for (int32_t rank : {0, 1})
      RankBuilder(program, rank)
          .action(op, 0, 1)
          .collective(Op::AllReduce, 0)
          .collective(Op::AllReduce, 1)
          .step();
    expectFinding(verify(program), Rule::Completeness, {0, 4},
                  "is for one micro-batch, but stage 0 has copies on ranks 0, "
                  "1, each with a part of its gradients, which are added up "
                  "once, for all micro-batches; leave the micro-batch out");
  }

  // Both copies on the same rank share their gradients.
  program = makeProgram(1, 2, 1);
  program.problem.placement = {0, 0};
  program.problem.chains = {0, 1};
  RankBuilder(program, 0)
      .f(0, 0)
      .b(0, 0)
      .f(0, 1)
      .b(0, 1)
      .collective(Op::Barrier)
      .step();
  EXPECT_TRUE(verify(program).accepted());
}

TEST(DataFlow, AStepConcernsTheStagesOfItsRank) {
  Program program = smallProgram(); // whose ranks have one stage each
  for (int32_t rank : {0, 1})
    RankBuilder(program, rank).step();
  RankBuilder(program, 1).step();
  const Verdict verdict = verify(program);
  EXPECT_EQ(numFindings(verdict, Rule::DataFlow), 1u);
  EXPECT_NE(verdict.findings[0].message.find(
                "uses the weight gradients of stage 1 a second time"),
            std::string::npos);
}

TEST(Completeness, ForwardsOnly) {
  Program program = makeProgram(1, 3);
  RankBuilder(program, 0).f(0, 0).f(0, 1).f(0, 2);
  const Verdict verdict = verify(program);
  ASSERT_EQ(numFindings(verdict, Rule::Completeness), 1u);
  expectFinding(verdict, Rule::Completeness, {},
                "there are forwards and no backward at all; only schedules for "
                "training are verified, so add the backwards");
}

TEST(Completeness, TiedStagesAddUpTheirGradient) {
  auto make = [](bool onRank1) {
    Program program = makeProgram(3, 1);
    program.problem.tied = {{{0, 2}, 4}};
    program.rankSets = {{0, 2}};
    RankBuilder(program, 0).f(0, 0).sendAct(0, 0, 1).recvGrad(1, 0, 1).b(0, 0);
    RankBuilder(program, 1)
        .recvAct(0, 0, 0)
        .f(1, 0)
        .sendAct(1, 0, 2)
        .recvGrad(2, 0, 2)
        .b(1, 0)
        .sendGrad(1, 0, 0);
    RankBuilder(program, 2).recvAct(1, 0, 1).f(2, 0).b(2, 0).sendGrad(2, 0, 1);
    for (int32_t rank : {0, 1, 2}) {
      if (rank != 1 || onRank1) {
        RankBuilder(program, rank)
            .collective(Op::ReduceTied, 0, onRank1 ? -1 : 0);
        Instruction &sum = program.ranks[rank].instructions.back();
        sum.bytes = 4;
        sum.comm = 1;
      }
      RankBuilder(program, rank).step();
    }
    if (onRank1)
      program.rankSets.clear();
    return program;
  };
  EXPECT_TRUE(verify(make(false)).accepted())
      << verify(make(false)).findings[0].message;
  expectFinding(verify(make(true)), Rule::Completeness, {1, 6},
                "is on the wrong rank: none of the stages that are tied with "
                "stage 0 is on rank 1; remove it here");

  Program program = make(false);
  program.ranks[0].instructions.erase(program.ranks[0].instructions.begin() +
                                      4);
  const std::string parts = "stages 0, 2 use one parameter on ranks 0, 2, each "
                            "with a part of its gradients";
  expectFinding(verify(program), Rule::Completeness, {0, kRank},
                "`reduce_tied 0` is missing on rank 0: " + parts +
                    ", while `step` on rank 0 uses gradients; add them up on "
                    "all these ranks",
                1);

  // The gradient is not complete before the backward of either stage.
  program = make(false);
  std::swap(program.ranks[2].instructions[2], program.ranks[2].instructions[4]);
  expectFinding(verify(program), Rule::DataFlow, {2, 4},
                "adds a weight gradient of stage 2 after `reduce_tied 0` has "
                "used them; put it before that",
                1);

  program = make(false);
  program.ranks[0].instructions.insert(program.ranks[0].instructions.begin() +
                                           4,
                                       program.ranks[0].instructions[4]);
  expectFinding(verify(program), Rule::DataFlow, {0, 5},
                "reduces the weight gradients of stage 0 a second time, they "
                "would count twice; remove one",
                1);

  program = make(false);
  for (int32_t rank : {0, 2})
    program.ranks[rank].instructions[4].bytes = 8;
  expectFinding(verify(program), Rule::Completeness, {2, 4},
                "moves 8 bytes, but what it adds up has 4; write bytes(4)", 0);

  program = make(false);
  program.rankSets = {{0}, {2}};
  program.ranks[2].instructions[4].peer = 1;
  expectFinding(verify(program), Rule::Completeness, {0, 4},
                "leaves out rank 2, but " + parts + "; add it to the rank set");

  program = make(false);
  RankBuilder(program, 2).action(Op::Step, 2, 0);
  expectFinding(verify(program), Rule::Completeness, {2, 6},
                "is for one micro-batch, but " + parts +
                    ", which are added up once, for all micro-batches; leave "
                    "the micro-batch out");
}

TEST(Completeness, ActionsBeforeWhatTheyNeed) {
  Program program = makeProgram(1, 3);
  RankBuilder(program, 0).b(0, 0).f(0, 0).i(0, 1).f(0, 1).w(0, 1);
  RankBuilder(program, 0).f(0, 2).w(0, 2).i(0, 2);
  Verdict verdict = verify(program);
  expectFinding(verdict, Rule::Completeness, {0, 0},
                "stands before `forward 0 mb 0`, which it needs; put it after "
                "that",
                1);
  expectFinding(verdict, Rule::Completeness, {0, 2},
                "stands before `forward 0 mb 1`, which it needs; put it after "
                "that",
                1);
  expectFinding(verdict, Rule::Completeness, {0, 6},
                "stands before `backward_input 0 mb 2`, which it needs; put it "
                "after that",
                1);
}

TEST(Completeness, StepOnSomeRanksOnly) {
  Program program = smallProgram();
  RankBuilder(program, 0).step();
  Verdict verdict = verify(program);
  expectFinding(verdict, Rule::Completeness, {1, kRank},
                "`step 1` is missing on rank 1, while `step` on rank 0 uses "
                "the gradients of another stage or copy; add it",
                1);
  EXPECT_EQ(verdict.findings.size(), 1u) << allMessages(verdict);
  RankBuilder(program, 1).action(Op::Step, 1, -1);
  EXPECT_TRUE(verify(program).accepted()) << allMessages(verify(program));
  RankBuilder(program, 1).action(Op::ReduceGrad, 1, -1);
  expectFinding(verify(program), Rule::Completeness, {0, kRank},
                "`reduce_grad 0` is missing on rank 0, while `reduce_grad 1` "
                "on rank 1 uses the gradients of another stage or copy; add it",
                1);
  // Steps for a micro-batch each are another schedule, but of all stages too.
  program = smallProgram();
  RankBuilder(program, 0).action(Op::Step, 0, 0);
  verdict = verify(program);
  ASSERT_EQ(verdict.findings.size(), 1u) << allMessages(verdict);
  EXPECT_EQ(verdict.findings[0].rule, Rule::Completeness);
  EXPECT_EQ(verdict.findings[0].message,
            "adds a weight gradient that no step uses; add `step 1 mb 0` after "
            "it");
  RankBuilder(program, 1).action(Op::Step, 1, 0);
  EXPECT_TRUE(verify(program).accepted()) << allMessages(verify(program));
}

TEST(Completeness, FarTooFewInstructions) {
  Program program = makeProgram(1, 1 << 24);
  RankBuilder(program, 0).f(0, 0).b(0, 0);
  expectFinding(verify(program), Rule::Completeness, {-1, kNoInstruction},
                "1 stages and 16777216 micro-batches need 16777216 forwards; "
                "the program has only 2 instructions");
}

//===----------------------------------------------------------------------===//
// Data flow
//===----------------------------------------------------------------------===//

TEST(DataFlow, TensorThatNobodyProduces) {
  Program program = smallProgram();
  program.ranks[1].instructions.erase(program.ranks[1].instructions.begin());
  expectFinding(verify(program), Rule::DataFlow, {1, 0},
                "reads activation 0 mb 0, which nothing on this rank produces "
                "or receives before; insert what does");
  program = smallProgram();
  program.ranks[0].instructions.erase(program.ranks[0].instructions.begin());
  expectFinding(verify(program), Rule::DataFlow, {0, 0},
                "sends activation 0 mb 0, which nothing on this rank produces "
                "or receives before; insert what does");
}

TEST(DataFlow, ReadBeforeWritten) {
  Program program = smallProgram();
  std::swap(program.ranks[1].instructions[0], program.ranks[1].instructions[1]);
  Verdict verdict = verify(program);
  expectFinding(verdict, Rule::DataFlow, {1, 0},
                "reads activation 0 mb 0 before `recv activation 0 mb 0 from "
                "0` writes it; put it after that",
                1);
  EXPECT_EQ(verdict.findings[0].notes[0].site, (Site{1, 1}));
  EXPECT_EQ(verdict.findings[0].notes[0].text, "written here");
  std::swap(program.ranks[0].instructions[0], program.ranks[0].instructions[1]);
  expectFinding(verify(program), Rule::DataFlow, {0, 0},
                "sends activation 0 mb 0 before `forward 0 mb 0` writes it; "
                "put it after that",
                1);
}

TEST(DataFlow, MissingWaitOfAnUnplannedProgram) {
  Program program = makeProgram(2, 1);
  RankBuilder(program, 0).f(0, 0).onQueue(1).sendAct(0, 0, 1);
  RankBuilder(program, 0).onQueue(1).recvGrad(1, 0, 1).onQueue(0).b(0, 0);
  RankBuilder(program, 1).recvAct(0, 0, 0).f(1, 0).b(1, 0).sendGrad(1, 0, 0);
  Verdict verdict = verify(program);
  expectFinding(verdict, Rule::DataFlow, {0, 1},
                "sends activation 0 mb 0 on queue 1, not ordered after "
                "`forward 0 mb 0` on queue 0, which writes it; let it wait for "
                "that",
                1);
  expectFinding(verdict, Rule::DataFlow, {0, 3},
                "reads gradient 1 mb 0 on queue 0, not ordered after `recv "
                "gradient 1 mb 0 from 1` on queue 1, which writes it; let it "
                "wait for that",
                1);
  // The waits that are asked for make it right; one on a member counts for all.
  program.ranks[0].instructions.clear();
  RankBuilder rank(program, 0);
  rank.f(0, 0).onQueue(1).after({0}).sendAct(0, 0, 1);
  rank.with().recvGrad(1, 0, 1).onQueue(0).after({1}).b(0, 0);
  program.ranks[1].instructions.clear();
  verdict = verify(program);
  for (const Finding &finding : verdict.findings)
    EXPECT_NE(finding.rule, Rule::DataFlow) << finding.message;
}

/// One stage, two micro-batches, slots of 8 bytes.
Program slotProgram() {
  Program program = makeProgram(1, 2);
  program.problem.stages[0].bytes.stash = 8;
  program.ranks[0].slotBytes = {8, 8};
  return program;
}

TEST(DataFlow, SlotReusedTooEarly) {
  Program program = slotProgram();
  RankBuilder(program, 0)
      .f(0, 0)
      .slot(Stash, 0)
      .f(0, 1)
      .slot(Stash, 0)
      .b(0, 0)
      .slot(Stash, 0)
      .b(0, 1)
      .slot(Stash, 0);
  Verdict verdict = verify(program);
  expectFinding(verdict, Rule::DataFlow, {0, 2},
                "reads stash 0 mb 0 from slot 0, where `forward 0 mb 1` has "
                "put stash 0 mb 1 over it: the slot is reused too early; give "
                "that another slot, or put it after this",
                2);
  EXPECT_EQ(verdict.findings[0].notes[0].text, "slot 0 gets stash 0 mb 1 here");
  EXPECT_EQ(verdict.findings[0].notes[0].site, (Site{0, 1}));
  EXPECT_EQ(verdict.findings[0].notes[1].text, "stash 0 mb 0 was put there "
                                               "here");
  EXPECT_EQ(verdict.findings[0].notes[1].site, (Site{0, 0}));
  EXPECT_EQ(verdict.findings.size(), 1u);
}

/// I leaves the stash to W; what reads it last before W overwrites it.
TEST(DataFlow, StashUsedAfterItsLastReaderOverwroteIt) {
  Program program = makeProgram(2, 1);
  program.ranks[1].slotBytes.assign(3, 0);
  RankBuilder rank(program, 1);
  rank.recvAct(0, 0, 0).slot(Slot, 0);
  rank.f(1, 0).slot(Input, 0).slot(Stash, 1);
  rank.i(1, 0).slot(Input, 0).slot(Stash, 1).slot(Output, 2);
  rank.sendGrad(1, 0, 0).slot(Slot, 2);
  rank.w(1, 0).slot(Input, 0).slot(Stash, 1);
  for (const Finding &finding : verify(program).findings)
    EXPECT_FALSE(finding.rule == Rule::DataFlow && finding.site.rank == 1)
        << finding.message;
  program.ranks[1].instructions[2].slots[Output] = 0;
  program.ranks[1].instructions[3].slots[Slot] = 0;
  const Verdict verdict = verify(program);
  expectFinding(verdict, Rule::DataFlow, {1, 4},
                "reads activation 0 mb 0 from slot 0, where `backward_input 1 "
                "mb 0` has put gradient 1 mb 0 over it: the slot is reused too "
                "early; give that another slot, or put it after this",
                2);
  program.ranks[1].instructions[2].slots[Output] = 1;
  expectFinding(verify(program), Rule::DataFlow, {1, 2},
                "writes slot 1 and reads it at once; use another slot");
}

TEST(DataFlow, SlotHoldsAnotherTensor) {
  // Wrong micro-batch: where the right one is.
  Program program = slotProgram();
  RankBuilder rank(program, 0);
  rank.f(0, 0).slot(Stash, 0).f(0, 1).slot(Stash, 1);
  rank.b(0, 0).slot(Stash, 1).b(0, 1).slot(Stash, 1);
  Verdict verdict = verify(program);
  expectFinding(verdict, Rule::DataFlow, {0, 2},
                "reads stash 0 mb 0 from slot 1, which holds stash 0 mb 1, "
                "another micro-batch; `forward 0 mb 0` puts it into slot 0, so "
                "name that one",
                2);
  EXPECT_EQ(verdict.findings[0].notes[0].site, (Site{0, 1}));
  EXPECT_EQ(verdict.findings[0].notes[1].site, (Site{0, 0}));
  EXPECT_EQ(verdict.findings[0].notes[1].text, "put there here");

  // Wrong stage and kind, and the right tensor comes later or never.
  program = makeProgram(1, 1, 3);
  program.ranks[0].slotBytes.assign(6, 0);
  RankBuilder stages(program, 0);
  stages.f(0, 0).slot(Output, 0).slot(Stash, 1);
  stages.f(2, 0).slot(Input, 0).slot(Stash, 2);
  stages.f(1, 0).slot(Input, 1).slot(Stash, 3).slot(Output, 4);
  stages.b(2, 0).slot(Input, 4).slot(Stash, 5).slot(Output, 0);
  stages.b(1, 0).slot(Input, 0).slot(Gradient, 0).slot(Stash, 3);
  verdict = verify(program);
  expectFinding(verdict, Rule::DataFlow, {0, 1},
                "reads activation 1 mb 0 from slot 0, which holds activation 0 "
                "mb 0, another stage; `forward 1 mb 0` writes the tensor only "
                "later; put this after that",
                2);
  expectFinding(verdict, Rule::DataFlow, {0, 2},
                "reads activation 0 mb 0 from slot 1, which holds stash 0 mb "
                "0, another kind of tensor; `forward 0 mb 0` puts it into slot "
                "0, so name that one",
                2);
  expectFinding(verdict, Rule::DataFlow, {0, 3},
                "reads stash 2 mb 0 from slot 5, which nothing has written "
                "before; `forward 2 mb 0` puts it into slot 2, so name that "
                "one",
                1);
  program.ranks[0].instructions.erase(program.ranks[0].instructions.begin());
  expectFinding(verify(program), Rule::DataFlow, {0, 3},
                "reads activation 0 mb 0 from slot 0, which holds gradient 2 "
                "mb 0, another kind of tensor; write it there first",
                1);
}

TEST(DataFlow, SlotNeverWrittenMissingOrTooSmall) {
  Program program = slotProgram();
  program.ranks[0].slotBytes[1] = 4;
  RankBuilder(program, 0)
      .f(0, 0)
      .slot(Stash, 1)
      .b(0, 0)
      .slot(Stash, 0)
      .f(0, 1)
      .b(0, 1);
  Verdict verdict = verify(program);
  expectFinding(verdict, Rule::DataFlow, {0, 0},
                "puts stash 0 mb 0 of 8 bytes into slot 1, which has 4; use a "
                "larger one");
  expectFinding(
      verdict, Rule::DataFlow, {0, 1},
      "reads stash 0 mb 0 from slot 0, which nothing has written before; "
      "`forward 0 mb 0` puts it into slot 1, so name that one",
      1);
  expectFinding(verdict, Rule::DataFlow, {0, 2},
                "has no slot for stash 0 mb 1, which it writes; plan the "
                "buffers");
  expectFinding(verdict, Rule::DataFlow, {0, 3},
                "has no slot for stash 0 mb 1, which it reads; plan the "
                "buffers");
}

TEST(DataFlow, SlotOverwrittenWhileInUse) {
  // Stage 0 on rank 0 sends from slot 0 on queue 1; the next forward writes it.
  Program program = makeProgram(2, 2);
  program.ranks[0].slotBytes.assign(8, 0);
  RankBuilder rank(program, 0);
  rank.f(0, 0).slot(Output, 0).slot(Stash, 1);
  rank.onQueue(1).after({0}).sendAct(0, 0, 1).slot(Slot, 0);
  rank.onQueue(0).f(0, 1).slot(Output, 0).slot(Stash, 2);
  rank.onQueue(1).recvGrad(1, 0, 1).slot(Slot, 1);
  Verdict verdict = verify(program);
  expectFinding(verdict, Rule::DataFlow, {0, 2},
                "writes slot 0 on queue 0, not ordered after `send activation "
                "0 mb 0 to 1` on queue 1, which sends it; let it wait for that",
                1);
  // Through the wait of the send, the receive comes after forward 0 mb 0.
  for (const Finding &finding : verdict.findings)
    EXPECT_FALSE(finding.rule == Rule::DataFlow &&
                 finding.site == Site({0, 3}));

  program.ranks[0].instructions[3].comm = 1;
  program.ranks[0].instructions[3].queue = 2;
  expectFinding(verify(program), Rule::DataFlow, {0, 3},
                "receives into slot 1 on queue 2, not ordered after `forward 0 "
                "mb 0` on queue 0, which writes it; let it wait for that",
                1);
}

TEST(DataFlow, OneInstructionReadsAndWritesASlot) {
  Program program = makeProgram(2, 1);
  for (RankProgram &rank : program.ranks)
    rank.slotBytes.assign(4, 0);
  RankBuilder(program, 1)
      .recvAct(0, 0, 0)
      .slot(Slot, 0)
      .f(1, 0)
      .slot(Input, 0)
      .slot(Stash, 1)
      .b(1, 0)
      .slot(Input, 0)
      .slot(Stash, 1)
      .slot(Output, 0);
  expectFinding(verify(program), Rule::DataFlow, {1, 2},
                "writes slot 0 and reads it at once; use another slot");
}

TEST(DataFlow, MembersOfAnOverlapAreNotOrdered) {
  Program program = makeProgram(1, 1);
  RankBuilder(program, 0).f(0, 0).with().b(0, 0);
  expectFinding(verify(program), Rule::DataFlow, {0, 1},
                "reads stash 0 mb 0 while `forward 0 mb 0`, which is issued "
                "together with it, writes it; issue one after the other",
                1);
}

TEST(DataFlow, InputPartUpdatesTheStash) {
  Program program = makeProgram(1, 1);
  RankBuilder rank(program, 0);
  rank.f(0, 0).i(0, 0).w(0, 0).step();
  EXPECT_TRUE(verify(program).accepted()) << allMessages(verify(program));
  // W on another queue has to wait for I, not only for F.
  program = makeProgram(1, 1);
  RankBuilder other(program, 0);
  other.f(0, 0).i(0, 0).onQueue(2).after({0}).w(0, 0);
  expectFinding(verify(program), Rule::DataFlow, {0, 2},
                "reads stash 0 mb 0 on queue 2, not ordered after "
                "`backward_input 0 mb 0` on queue 0, which writes it; let it "
                "wait for that",
                1);
}

/// What I adds to the stash is lost when it is computed again.
TEST(DataFlow, RecomputeBetweenTheParts) {
  Program program = makeProgram(1, 1);
  RankBuilder(program, 0).f(0, 0).i(0, 0).r(0, 0).w(0, 0);
  Verdict verdict = verify(program);
  expectFinding(verdict, Rule::DataFlow, {0, 3},
                "reads stash 0 mb 0 as `recompute 0 mb 0` has left it, without "
                "what `backward_input 0 mb 0` has added; put `recompute 0 mb "
                "0` before that",
                2);
  EXPECT_EQ(verdict.findings[0].notes[0].site, (Site{0, 2}));
  EXPECT_EQ(verdict.findings[0].notes[1].site, (Site{0, 1}));
}

TEST(DataFlow, OffloadAndReload) {
  auto actions = [](Program &program) {
    program = makeProgram(1, 1);
    return RankBuilder(program, 0);
  };
  Program program;
  actions(program)
      .f(0, 0)
      .i(0, 0)
      .action(Op::Offload, 0, 0)
      .action(Op::Reload, 0, 0)
      .w(0, 0);
  EXPECT_TRUE(verify(program).accepted()) << allMessages(verify(program));
  actions(program).f(0, 0).action(Op::Offload, 0, 0).b(0, 0);
  expectFinding(verify(program), Rule::DataFlow, {0, 2},
                "reads stash 0 mb 0, which `offload 0 mb 0` has moved to host "
                "memory; reload it before",
                1);
  actions(program).f(0, 0).action(Op::Reload, 0, 0).b(0, 0);
  expectFinding(verify(program), Rule::DataFlow, {0, 1},
                "reloads stash 0 mb 0, which nothing has offloaded before; "
                "offload it first, or remove this");
  actions(program)
      .f(0, 0)
      .onQueue(1)
      .action(Op::Offload, 0, 0)
      .onQueue(2)
      .action(Op::Reload, 0, 0)
      .onQueue(0)
      .b(0, 0);
  const Verdict verdict = verify(program);
  expectFinding(verdict, Rule::DataFlow, {0, 1},
                "offloads stash 0 mb 0 on queue 1, not ordered after `forward "
                "0 mb 0` on queue 0, which writes it; let it wait for that",
                1);
  expectFinding(verdict, Rule::DataFlow, {0, 2},
                "reloads stash 0 mb 0 on queue 2, not ordered after `offload 0 "
                "mb 0` on queue 1, which offloads it; let it wait for that",
                1);
  expectFinding(verdict, Rule::DataFlow, {0, 3},
                "reads stash 0 mb 0 on queue 0, not ordered after `reload 0 mb "
                "0` on queue 2, which writes it; let it wait for that",
                1);
  // I's part is lost where the copy is older.
  actions(program)
      .f(0, 0)
      .action(Op::Offload, 0, 0)
      .r(0, 0)
      .i(0, 0)
      .action(Op::Reload, 0, 0)
      .w(0, 0);
  expectFinding(verify(program), Rule::DataFlow, {0, 5},
                "reads stash 0 mb 0 as `reload 0 mb 0` has left it, without "
                "what `backward_input 0 mb 0` has added; put `reload 0 mb 0` "
                "before that",
                2);
}

/// Of all parameters of stage 0.
static Instruction weightsOp(Op op) {
  Instruction inst;
  inst.op = op;
  inst.stage = 0;
  return inst;
}

TEST(DataFlow, UnshardAndReshard) {
  Program program = makeProgram(1, 1);
  const Instruction unshard = weightsOp(Op::Unshard),
                    reshard = weightsOp(Op::Reshard);
  RankBuilder(program, 0)
      .add(unshard)
      .f(0, 0)
      .add(reshard)
      .add(unshard)
      .b(0, 0)
      .add(reshard);
  EXPECT_TRUE(verify(program).accepted()) << allMessages(verify(program));
  program.ranks[0].instructions.clear();
  RankBuilder(program, 0)
      .add(reshard)
      .f(0, 0)
      .add(unshard)
      .add(unshard)
      .add(reshard)
      .i(0, 0)
      .w(0, 0)
      .add(reshard);
  const Verdict verdict = verify(program);
  expectFinding(verdict, Rule::DataFlow, {0, 0},
                "drops the parameters of stage 0, which are not gathered; "
                "unshard them before, or remove this");
  expectFinding(verdict, Rule::DataFlow, {0, 1},
                "needs the parameters of stage 0, which `reshard 0` has "
                "dropped; unshard them again before",
                1);
  expectFinding(verdict, Rule::DataFlow, {0, 3},
                "gathers the parameters of stage 0, which are gathered "
                "already; reshard them between, or remove this",
                1);
  expectFinding(verdict, Rule::DataFlow, {0, 5},
                "needs the parameters of stage 0, which `reshard 0` has "
                "dropped; unshard them again before",
                1);
  expectFinding(verdict, Rule::DataFlow, {0, 7},
                "drops the parameters of stage 0, which are not gathered; "
                "unshard them before, or remove this",
                1);
  // Gathered too late, and not waited for.
  program.ranks[0].instructions.clear();
  RankBuilder(program, 0).f(0, 0).onQueue(1).add(unshard).onQueue(0).b(0, 0);
  const Verdict late = verify(program);
  expectFinding(late, Rule::DataFlow, {0, 0},
                "needs the parameters of stage 0 before anything has gathered "
                "them; unshard them first");
  expectFinding(late, Rule::DataFlow, {0, 1},
                "changes the parameters of stage 0 on queue 1, not ordered "
                "after `forward 0 mb 0` on queue 0, which reads them; let it "
                "wait for that",
                1);
  expectFinding(late, Rule::DataFlow, {0, 2},
                "reads the parameters of stage 0 on queue 0, not ordered after "
                "`unshard 0` on queue 1, which writes them; let it wait for "
                "that",
                1);
}

// torch raises on each of these.
TEST(DataFlow, WhatIsGatheredIsNeeded) {
  const Instruction unshard = weightsOp(Op::Unshard),
                    reshard = weightsOp(Op::Reshard);
  // W needs the parameters too, also on another queue than what drops them.
  Program program = makeProgram(1, 1);
  RankBuilder(program, 0).add(unshard).f(0, 0).i(0, 0).add(reshard).w(0, 0);
  const Verdict early = verify(program);
  ASSERT_EQ(early.findings.size(), 1u) << allMessages(early);
  expectFinding(early, Rule::DataFlow, {0, 4},
                "needs the parameters of stage 0, which `reshard 0` has "
                "dropped; unshard them again before",
                1);
  program.ranks[0].instructions.clear();
  RankBuilder(program, 0)
      .add(unshard)
      .f(0, 0)
      .i(0, 0)
      .w(0, 0)
      .onQueue(1)
      .add(reshard);
  expectFinding(verify(program), Rule::DataFlow, {0, 4},
                "changes the parameters of stage 0 on queue 1, not ordered "
                "after `backward_weight 0 mb 0` on queue 0, which reads them; "
                "let it wait for that",
                1);

  // Dropped, or left, before anything has needed it.
  program.ranks[0].instructions.clear();
  RankBuilder(program, 0)
      .add(unshard)
      .add(reshard)
      .add(unshard)
      .f(0, 0)
      .b(0, 0)
      .add(reshard)
      .add(unshard);
  const Verdict unused = verify(program);
  ASSERT_EQ(unused.findings.size(), 2u) << allMessages(unused);
  expectFinding(unused, Rule::DataFlow, {0, 1},
                "drops the parameters of stage 0, which no action has needed "
                "since `unshard 0` has gathered them; remove both, or put the "
                "actions of the stage between",
                1);
  expectFinding(unused, Rule::DataFlow, {0, 6},
                "gathers the parameters of stage 0, which no action behind it "
                "needs; remove it");
}

TEST(DataFlow, RecomputeRestoresTheStash) {
  Program program = slotProgram();
  RankBuilder rank(program, 0);
  rank.f(0, 0).slot(Stash, 0).f(0, 1).slot(Stash, 0);
  rank.r(0, 0).slot(Stash, 1).b(0, 0).slot(Stash, 1);
  rank.b(0, 1).slot(Stash, 0);
  EXPECT_TRUE(verify(program).accepted()) << allMessages(verify(program));
}

TEST(DataFlow, WeightGradientsAreCompleteBeforeTheStep) {
  Program program = makeProgram(1, 1);
  RankBuilder(program, 0).f(0, 0).step().b(0, 0);
  expectFinding(verify(program), Rule::DataFlow, {0, 2},
                "adds a weight gradient of stage 0 after `step` has used them; "
                "put it before that",
                1);
  program = makeProgram(1, 1);
  RankBuilder(program, 0)
      .f(0, 0)
      .b(0, 0)
      .onQueue(1)
      .collective(Op::AllReduce, 0);
  expectFinding(
      verify(program), Rule::DataFlow, {0, 2},
      "uses the weight gradients of stage 0 on queue 1, not ordered "
      "after `backward 0 mb 0` on queue 0, which adds to them; let it "
      "wait for that",
      1);
}

/// All additions to the gradients of a stage are in one order, so that sums do
/// not depend on timing.
TEST(DataFlow, GradientsAreAddedInOneOrder) {
  Program program = makeProgram(1, 2);
  RankBuilder(program, 0).f(0, 0).f(0, 1).b(0, 0).onQueue(1).after({1}).b(0, 1);
  expectFinding(verify(program), Rule::DataFlow, {0, 3},
                "adds to the weight gradients of stage 0 on queue 1, not "
                "ordered after `backward 0 mb 0` on queue 0, which adds to "
                "them; let it wait for that",
                1);
  program.ranks[0].waits = {2};
  EXPECT_TRUE(verify(program).accepted()) << allMessages(verify(program));
  program.ranks[0].waits = {1};
  program.ranks[0].instructions[3].queue = 0;
  program.ranks[0].instructions[3].joined = true;
  program.ranks[0].instructions[3].numWaits = 0;
  program.ranks[0].waits.clear();
  expectFinding(verify(program), Rule::DataFlow, {0, 3},
                "adds to the weight gradients of stage 0 while `backward 0 mb "
                "0`, which is issued together with it, adds to them; issue one "
                "after the other",
                1);
}

TEST(DataFlow, GradientsAreUsedOnce) {
  auto make = [](std::initializer_list<Op> ops) {
    Program program = makeProgram(1, 1);
    RankBuilder rank(program, 0);
    rank.f(0, 0).b(0, 0);
    for (Op op : ops)
      if (op == Op::Step)
        rank.step();
      else
        rank.collective(op, 0);
    return program;
  };
  using enum Op;
  EXPECT_TRUE(verify(make({ReduceGrad, AllReduce, Step})).accepted());
  expectFinding(verify(make({Step, Step})), Rule::DataFlow, {0, 3},
                "uses the weight gradients of stage 0 a second time, after "
                "`step`; remove one",
                1);
  expectFinding(verify(make({Step, AllReduce})), Rule::DataFlow, {0, 3},
                "uses the weight gradients of stage 0 after `step` has; put it "
                "before that",
                1);
  for (Op op : {ReduceGrad, AllReduce})
    expectFinding(verify(make({op, op})), Rule::DataFlow, {0, 3},
                  "reduces the weight gradients of stage 0 a second time, they "
                  "would count twice; remove one",
                  1);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

TEST(Memory, SlotsAndPersistentBytesUpToTheLimit) {
  Program program = slotProgram();
  program.problem.stages[0].bytes = {0, 8, 100, 20, 3};
  RankBuilder(program, 0).f(0, 0).slot(Stash, 0).f(0, 1).slot(Stash, 1);
  RankBuilder(program, 0).b(0, 0).slot(Stash, 0).b(0, 1).slot(Stash, 1);
  program.problem.memory = 123 + 2 * 256;
  EXPECT_TRUE(verify(program).accepted()) << allMessages(verify(program));
  --program.problem.memory;
  Verdict verdict = verify(program);
  expectFinding(
      verdict, Rule::Memory, {0, kRank},
      "needs 123 bytes for the parameters, gradients and optimizer state of "
      "its stages and 512 for its slots, more than the limit of 634; most of "
      "it, 16 bytes, is alive at `forward 0 mb 1`: 2 stashes of stage 0 (16 "
      "bytes); use more ranks, a schedule with fewer activations alive, or "
      "recompute",
      1);
  EXPECT_EQ(verdict.findings[0].notes[0].site, (Site{0, 1}));
  EXPECT_EQ(verdict.findings[0].notes[0].text, "most is alive here");
}

TEST(Memory, OnlyPersistentBytes) {
  Program program = makeProgram(1, 1);
  RankBuilder(program, 0).f(0, 0).b(0, 0);
  program.problem.stages[0].bytes.parameters = 101;
  program.problem.memory = 100;
  expectFinding(
      verify(program), Rule::Memory, {0, kRank},
      "needs 101 bytes for the parameters, gradients and optimizer state of "
      "its stages and 0 for the tensors alive at once, more than the limit of "
      "100; use more ranks, a schedule with fewer activations alive, or "
      "recompute");
}

/// Before buffers are planned the tensors alive count, most bytes first, and
/// at most four kinds of them are named.
TEST(Memory, TensorsAliveAtOnce) {
  Program program = makeProgram(2, 2, 3);
  for (Stage &stage : program.problem.stages)
    stage.bytes = {8, 100, 1, 1, 1};
  program.problem.stages[2].bytes.stash = 30;
  RankBuilder(program, 0) // stages 0 and 2
      .f(0, 0)
      .sendAct(0, 0, 1)
      .f(0, 1)
      .sendAct(0, 1, 1)
      .recvAct(1, 0, 1)
      .f(2, 0)
      .b(2, 0)
      .sendGrad(2, 0, 1)
      .recvAct(1, 1, 1)
      .f(2, 1)
      .b(2, 1)
      .sendGrad(2, 1, 1)
      .recvGrad(1, 0, 1)
      .b(0, 0)
      .recvGrad(1, 1, 1)
      .b(0, 1);
  RankBuilder(program, 1)
      .recvAct(0, 0, 0)
      .f(1, 0)
      .recvAct(0, 1, 0)
      .sendAct(1, 0, 0)
      .f(1, 1)
      .recvGrad(2, 0, 0)
      .sendAct(1, 1, 0)
      .recvGrad(2, 1, 0)
      .b(1, 0)
      .sendGrad(1, 0, 0)
      .b(1, 1)
      .sendGrad(1, 1, 0);
  // Rank 0 holds most in `backward 2 mb 0`: 200 + 30 + 8 + 8.
  program.problem.memory = 6 + 246;
  for (const Finding &finding : verify(program).findings)
    EXPECT_NE(finding.rule, Rule::Memory) << finding.message;
  --program.problem.memory;
  Verdict verdict = verify(program);
  expectFinding(
      verdict, Rule::Memory, {0, kRank},
      "needs 6 bytes for the parameters, gradients and optimizer state of its "
      "stages and 246 for the tensors alive at once, more than the limit of "
      "251; most is alive at `backward 2 mb 0`: 2 stashes of stage 0 (200 "
      "bytes), 1 stash of stage 2 (30 bytes), 1 activation of stage 1 (8 "
      "bytes), 1 gradient of stage 2 (8 bytes); use more ranks, a schedule "
      "with fewer activations alive, or recompute",
      1);
  program.problem.memory = 6 + 230 - 1;
  // As an order: only the stashes.
  for (RankProgram &rank : program.ranks)
    std::erase_if(rank.instructions,
                  [](const Instruction &inst) { return isTransfer(inst.op); });
  VerifyOptions options;
  options.order = true;
  verdict = verify(program, options);
  ASSERT_EQ(verdict.findings.size(), 1u) << allMessages(verdict);
  expectFinding(
      verdict, Rule::Memory, {0, kRank},
      "needs 6 bytes for the parameters, gradients and optimizer state of its "
      "stages and 230 for the stashes alive at once, more than the limit of "
      "235; most is alive at `forward 2 mb 0`: 2 stashes of stage 0 (200 "
      "bytes), 1 stash of stage 2 (30 bytes); use more ranks, a schedule with "
      "fewer activations alive, or recompute",
      1);
  ++program.problem.memory;
  EXPECT_TRUE(verify(program, options).accepted());
}

TEST(Memory, NamesTheLargestKindsOnly) {
  constexpr int32_t kStages = 6;
  Program program = makeProgram(1, 2, kStages);
  RankBuilder rank(program, 0);
  for (int32_t s = 0; s < kStages; ++s) {
    program.problem.stages[s].bytes.stash = 10 + s;
    rank.f(s, 0).f(s, 1);
  }
  for (int32_t s = kStages - 1; s >= 0; --s)
    rank.b(s, 0).b(s, 1);
  program.problem.memory = 1;
  expectFinding(
      verify(program), Rule::Memory, {0, kRank},
      "needs 0 bytes for the parameters, gradients and optimizer state of its "
      "stages and 150 for the tensors alive at once, more than the limit of 1; "
      "most is alive at `forward 5 mb 1`: 2 stashes of stage 5 (30 bytes), 2 "
      "stashes of stage 4 (28 bytes), 2 stashes of stage 3 (26 bytes), 2 "
      "stashes of stage 2 (24 bytes) and 14 more (42 bytes); use more ranks, a "
      "schedule with fewer activations alive, or recompute",
      1);
}

/// An offloaded stash needs no room on the rank until it is reloaded.
TEST(Memory, OffloadedStashes) {
  Program program = makeProgram(1, 2);
  program.problem.stages[0].bytes.stash = 8;
  program.problem.memory = 8;
  addWithStashAway(program);
  EXPECT_TRUE(verify(program).accepted()) << allMessages(verify(program));
  --program.problem.memory;
  EXPECT_FALSE(verify(program).accepted());
}

//===----------------------------------------------------------------------===//
// Warnings
//===----------------------------------------------------------------------===//

TEST(Warnings, LossesOutOfOrder) {
  Program program = makeProgram(2, 3);
  RankBuilder(program, 0).f(0, 0).f(0, 1).f(0, 2).b(0, 0).b(0, 1).b(0, 2);
  RankBuilder(program, 1).f(1, 1).f(1, 0).f(1, 2).b(1, 2).b(1, 1).b(1, 0);
  VerifyOptions options;
  options.order = true;
  Verdict verdict = verify(program, options);
  EXPECT_TRUE(verdict.accepted()) << allMessages(verdict);
  ASSERT_EQ(verdict.warnings.size(), 1u);
  EXPECT_EQ(verdict.warnings[0].site, (Site{1, 1}));
  EXPECT_EQ(verdict.warnings[0].message,
            "computes a loss after `forward 1 mb 1`; Penstock knows losses by "
            "micro-batch, but torch pairs them with targets in the order in "
            "which they come: run the forwards of the last stage in ascending "
            "order before exporting there");
  ASSERT_EQ(verdict.warnings[0].notes.size(), 1u);
  EXPECT_EQ(verdict.warnings[0].notes[0].site, (Site{1, 0}));
  EXPECT_EQ(verdict.warnings[0].notes[0].text,
            "a later micro-batch comes first here");
  // On other stages, and of backwards, any order will do.
  std::swap(program.ranks[1].instructions[0], program.ranks[1].instructions[1]);
  std::swap(program.ranks[0].instructions[0], program.ranks[0].instructions[1]);
  EXPECT_TRUE(verify(program, options).warnings.empty());
  // Of two chains each has a last stage of its own.
  program.problem.placement = {0, 1, 1, 0};
  program.problem.chains = {1, 0, 1};
  for (RankProgram &rank : program.ranks)
    rank.instructions.clear();
  RankBuilder(program, 0).f(1, 0).f(1, 2).f(0, 1);
  RankBuilder(program, 1).f(0, 0).f(0, 2).f(1, 1);
  EXPECT_TRUE(verify(program, options).warnings.empty());
}

//===----------------------------------------------------------------------===//
// Orders
//===----------------------------------------------------------------------===//

Verdict verifyOrder(const Program &program) {
  VerifyOptions options;
  options.order = true;
  return verify(program, options);
}

TEST(Order, Accepted) {
  Program program = makeProgram(2, 2);
  RankBuilder(program, 0).f(0, 0).f(0, 1).b(0, 0).b(0, 1).step();
  RankBuilder(program, 1).f(1, 0).b(1, 0).f(1, 1).i(1, 1).w(1, 1).step();
  Verdict verdict = verifyOrder(program);
  EXPECT_TRUE(verdict.accepted()) << allMessages(verdict);
  EXPECT_TRUE(verdict.deadlockFree);
  // As a program it lacks its transfers.
  EXPECT_FALSE(verify(program).accepted());
}

TEST(Order, ThatCannotRun) {
  Program program = makeProgram(2, 2);
  RankBuilder(program, 0).f(0, 0).b(0, 0).f(0, 1).b(0, 1);
  RankBuilder(program, 1).f(1, 0).f(1, 1).b(1, 0).b(1, 1);
  Verdict verdict = verifyOrder(program);
  ASSERT_EQ(verdict.findings.size(), 1u) << allMessages(verdict);
  expectFinding(
      verdict, Rule::Deadlock, {0, 1},
      "the order cannot run: rank 0 waits in `backward 0 mb 0`, which "
      "waits for rank 1's `backward 1 mb 0`, which stands behind "
      "`forward 1 mb 1`, which waits for rank 0's `forward 0 mb 1`, "
      "which stands behind `backward 0 mb 0`. Put `backward 1 mb 0` "
      "before `forward 1 mb 1` on rank 1.",
      4);
  EXPECT_EQ(verdict.cycle.size(), 4u);
  EXPECT_FALSE(verdict.deadlockFree);
}

TEST(Order, ThatCannotRunOnOneRank) {
  Program program = makeProgram(1, 1, 2);
  RankBuilder(program, 0).f(1, 0).f(0, 0).b(1, 0).b(0, 0);
  expectFinding(verifyOrder(program), Rule::Deadlock, {0, 0},
                "the order cannot run: rank 0 waits in `forward 1 mb 0`, which "
                "waits for `forward 0 mb 0`, which stands behind `forward 1 mb "
                "0`. Put `forward 0 mb 0` before `forward 1 mb 0` on rank 0.",
                2);
}

/// What is issued together hands over nothing before its end.
TEST(Order, ThatCannotRunInOneItem) {
  Program program = makeProgram(1, 1);
  RankBuilder(program, 0).f(0, 0).i(0, 0).with().w(0, 0);
  expectFinding(
      verifyOrder(program), Rule::Deadlock, {0, 2},
      "the order cannot run: rank 0 waits in `backward_weight 0 mb 0`, which "
      "is issued together with `backward_input 0 mb 0`, which is issued "
      "together with `backward_weight 0 mb 0`. Put `backward_input 0 mb 0` "
      "before `backward_weight 0 mb 0` on rank 0.",
      2);
}

TEST(Order, WithTransfersOrSlots) {
  Program program = smallProgram();
  program.ranks[1].slotBytes = {8};
  Verdict verdict = verifyOrder(program);
  expectFinding(verdict, Rule::Structure, {0, 1},
                "does not belong into an order, where transfers are implied; "
                "remove it, or check the whole as a program");
  expectFinding(verdict, Rule::Structure, {1, kRank},
                "has slots, which do not belong into an order; remove them, or "
                "check the whole as a program");
}

TEST(Order, Incomplete) {
  Program program = makeProgram(1, 1);
  RankBuilder(program, 0).f(0, 0);
  Verdict verdict = verifyOrder(program);
  ASSERT_EQ(verdict.findings.size(), 1u);
  EXPECT_EQ(verdict.findings[0].rule, Rule::Completeness);
}

} // namespace
