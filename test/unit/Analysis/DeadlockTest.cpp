//===- DeadlockTest.cpp - Known deadlocks, and how they are told ----------===//
//
// Programs from public bug reports with the verdict of every model. The name of
// each test is the case's; the comment names its source.
//
//===----------------------------------------------------------------------===//

#include "Testing/Build.h"
#include "Testing/Oracle.h"

#include "penstock/Analysis/Interpret.h"
#include "penstock/Analysis/Verify.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace penstock;
using namespace penstock::test;

namespace {

/// "D" deadlock, "o" ok, "E" error.
struct Expected {
  /// documented, buffered, layered, closure, first use, serialised, serialised
  /// and buffered
  std::string_view outcomes;
  std::optional<int64_t> capacity;
  size_t cycle = 0;     ///< entries of the cycle under documented semantics
  size_t unmatched = 0; ///< entries under documented semantics
};

void expectVerdict(const Program &program, const Expected &expected) {
  const Semantics models[] = {
      Semantics::Documented,
      {Semantics::Documented, Semantics::kUnlimited},
      Semantics::Layered,
      Semantics::Closure,
      {Semantics::Documented, 0, false, true},
      {Semantics::Documented, 0, true},
      {Semantics::Documented, Semantics::kUnlimited, true}};
  std::string verified, interpreted;
  for (const Semantics &model : models) {
    verified += "oDE"[int(checkDeadlock(program, model).outcome())];
    interpreted += "oDE"[int(interpret(program, model).outcome)];
  }
  EXPECT_EQ(verified, expected.outcomes);
  EXPECT_EQ(interpreted, expected.outcomes);
  const DeadlockResult documented =
      checkDeadlock(program, Semantics::Documented);
  EXPECT_EQ(documented.cycle.size(), expected.cycle);
  EXPECT_EQ(documented.unmatched.size(), expected.unmatched);
  EXPECT_EQ(minCapacity(program), expected.capacity);
}

std::string tell(const Program &program, Semantics semantics = {}) {
  return describeDeadlock(program, checkDeadlock(program, semantics), semantics)
      .message;
}

/// Crossed sends: both ranks send first. NVIDIA/nccl#479
TEST(Cases, C01) {
  Program program = makeProgram(2, 2);
  RankBuilder(program, 0).sendAct(0, 0, 1).recvGrad(1, 0, 1);
  RankBuilder(program, 1).sendGrad(1, 0, 0).recvAct(0, 0, 0);
  expectVerdict(program, {"DoDDEDo", 1, 4});
  EXPECT_TRUE(endsMatch(program));
  EXPECT_EQ(
      tell(program),
      "under closure semantics rank 0 waits in `send activation 0 mb 0 to 1`, "
      "which waits for rank 1's `recv activation 0 mb 0 from 0`, which stands "
      "behind `send gradient 1 mb 0 to 0`, which waits for rank 0's `recv "
      "gradient 1 mb 0 from 1`, which stands behind `send activation 0 mb 0 to "
      "1`. Repair, checked: group `send gradient 1 mb 0 to 0` and `recv "
      "activation 0 mb 0 from 0` on rank 1, and `send activation 0 mb 0 to 1` "
      "and `recv gradient 1 mb 0 from 1` on rank 0; with it the program ends. "
      "As it stands, it ends where 1 message from rank 0 to rank 1 is "
      "buffered, which NCCL does not promise.");
  const Finding finding = describeDeadlock(
      program, checkDeadlock(program, Semantics::Closure), Semantics::Closure);
  EXPECT_EQ(finding.rule, Rule::Deadlock);
  EXPECT_EQ(finding.site, (Site{0, 0}));
  ASSERT_EQ(finding.notes.size(), 6u);
  EXPECT_EQ(finding.notes[0].text,
            "`send activation 0 mb 0 to 1` waits for rank 1's `recv activation "
            "0 mb 0 from 0`");
  EXPECT_EQ(finding.notes[1].site, (Site{1, 1}));
  EXPECT_EQ(finding.notes[1].text, "`recv activation 0 mb 0 from 0` stands "
                                   "behind `send gradient 1 mb 0 to 0`");
  EXPECT_EQ(finding.notes[4].site, (Site{0, 0}));
  EXPECT_EQ(finding.notes[4].text,
            "rank 0 stops here: 0 of its 2 instructions have ended");
}

/// The two transfers of each rank in one group. NVIDIA/nccl#479
TEST(Cases, C01fix) {
  Program program = makeProgram(2, 2);
  RankBuilder(program, 0).sendAct(0, 0, 1).with().recvGrad(1, 0, 1);
  RankBuilder(program, 1).sendGrad(1, 0, 0).with().recvAct(0, 0, 0);
  expectVerdict(program, {"ooooooo", 0});
}

/// Two communicators on two queues, crossed. NVIDIA/nccl#783
static Program crossedOnTwoQueues() {
  Program program = makeProgram(2, 2);
  RankBuilder(program, 0)
      .onQueue(1)
      .onComm(1)
      .sendAct(0, 0, 1)
      .onQueue(2)
      .onComm(2)
      .recvGrad(1, 0, 1);
  RankBuilder(program, 1)
      .onQueue(2)
      .onComm(2)
      .sendGrad(1, 0, 0)
      .onQueue(1)
      .onComm(1)
      .recvAct(0, 0, 0);
  return program;
}

TEST(Cases, C02) {
  const Program program = crossedOnTwoQueues();
  expectVerdict(program, {"ooooDDo", 0});
}

/// Only one side puts its two transfers in a group. NVIDIA/nccl PR#2407
TEST(Cases, C03b) {
  Program program = makeProgram(2, 2);
  RankBuilder(program, 0).sendAct(0, 0, 1).with().recvGrad(1, 0, 1);
  RankBuilder(program, 1).recvAct(0, 0, 0).sendGrad(1, 0, 0);
  expectVerdict(program, {"oooDEoo", 0});
  EXPECT_EQ(
      tell(program),
      "under closure semantics rank 1 waits in `recv activation 0 mb 0 from "
      "0`, which waits for rank 0's `send activation 0 mb 0 to 1`, which is in "
      "one group with `recv gradient 1 mb 0 from 1`, which waits for rank 1's "
      "`send gradient 1 mb 0 to 0`, which stands behind `recv activation 0 mb "
      "0 from 0`. Repair, checked: group `recv activation 0 mb 0 from 0` and "
      "`send gradient 1 mb 0 to 0` on rank 1; with it the program ends. As it "
      "stands, the documented semantics of groups let it end; NCCL does not "
      "keep that promise in all cases.");
}

/// Breadth-first looped forward, P=2, V=2, m=4: two buffered messages a
/// channel. NVIDIA/nccl#1541 (logical class), meta-pytorch/torchrec PR#4472
TEST(Cases, C07) {
  Program program = makeProgram(2, 4, 4);
  RankBuilder first(program, 0), second(program, 1);
  for (int32_t mb = 0; mb < 4; ++mb)
    first.f(0, mb).sendAct(0, mb, 1);
  for (int32_t mb = 0; mb < 4; ++mb)
    first.recvAct(1, mb, 1).f(2, mb).sendAct(2, mb, 1);
  for (int32_t mb = 0; mb < 4; ++mb)
    second.recvAct(0, mb, 0).f(1, mb).sendAct(1, mb, 0);
  for (int32_t mb = 0; mb < 4; ++mb)
    second.recvAct(2, mb, 0).f(3, mb);
  expectVerdict(program, {"DoDDDDo", 2, 4});
  EXPECT_NE(
      tell(program).find("it ends where 2 messages from rank 0 to rank 1, and "
                         "some on 1 other channel, are buffered, which NCCL "
                         "does not promise."),
      std::string::npos)
      << tell(program);
  EXPECT_NE(
      tell(program).find("group `recv activation 1 mb 0 from 1` with the "
                         "earlier `send activation 0 mb 1 to 1` on rank 0"),
      std::string::npos)
      << tell(program);
}

/// Send and receive orders of the two ranks disagree; no buffering repairs it.
/// pytorch/pytorch#109401
TEST(Cases, C10) {
  Program program = makeProgram(2, 2);
  RankBuilder(program, 0)
      .sendAct(0, 0, 1)
      .recvGrad(1, 0, 1)
      .sendAct(0, 1, 1)
      .recvGrad(1, 1, 1);
  RankBuilder(program, 1)
      .recvAct(0, 0, 0)
      .recvAct(0, 1, 0)
      .sendGrad(1, 0, 0)
      .sendGrad(1, 1, 0);
  expectVerdict(program, {"DDDDDDD", std::nullopt, 4});
  EXPECT_NE(tell(program).find("no buffering of messages would help."),
            std::string::npos);
}

/// A send that is never received. pytorch/pytorch#108378
TEST(Cases, C11) {
  Program program = makeProgram(2, 1);
  RankBuilder(program, 0).sendAct(0, 0, 1);
  expectVerdict(program, {"DoDDDDo", 1, 0, 1});
  EXPECT_FALSE(endsMatch(program));
  EXPECT_EQ(
      tell(program),
      "under closure semantics rank 0 waits in `send activation 0 mb 0 to 1` "
      "for ever: rank 1 has no receive that matches it. Add the missing part "
      "or remove this one. As it stands, it ends where 1 message from rank 0 "
      "to rank 1 is buffered, which NCCL does not promise.");
}

/// Previous and next peer coincide, no tags: first-to-first matching swaps
/// gradient and activation. NVIDIA/Megatron-LM#1450, PR#5271
TEST(Cases, C13) {
  Program program = makeProgram(2, 1, 4);
  RankBuilder(program, 0)
      .sendAct(2, 0, 1)
      .with()
      .sendGrad(2, 0, 1)
      .with()
      .recvAct(1, 0, 1)
      .with()
      .recvGrad(3, 0, 1);
  RankBuilder(program, 1)
      .sendAct(1, 0, 0)
      .with()
      .sendGrad(3, 0, 0)
      .with()
      .recvGrad(2, 0, 0)
      .with()
      .recvAct(2, 0, 0);
  expectVerdict(program, {"ooooooo", 0});
  EXPECT_FALSE(endsMatch(program));
}

/// The second transfer to a peer waits for the whole first layer of the group:
/// legal as documented, stuck in layers. Derived from the NCCL 2.28.9 source
TEST(Cases, C23) {
  Program program = makeProgram(3, 2);
  RankBuilder(program, 0)
      .sendAct(0, 0, 1)
      .with()
      .sendAct(0, 1, 1)
      .with()
      .recvGrad(2, 0, 2);
  RankBuilder(program, 1)
      .recvAct(0, 0, 0)
      .with()
      .recvAct(0, 1, 0)
      .sendAct(1, 0, 2);
  RankBuilder(program, 2).recvAct(1, 0, 1).sendGrad(2, 0, 0);
  expectVerdict(program, {"ooDDDoo", 0});
}

/// P=2, m=2: the smallest 1F1B that deadlocks without groups.
TEST(Cases, C25) {
  Program program = makeProgram(2, 2);
  RankBuilder(program, 0)
      .f(0, 0)
      .sendAct(0, 0, 1)
      .f(0, 1)
      .sendAct(0, 1, 1)
      .recvGrad(1, 0, 1)
      .b(0, 0)
      .recvGrad(1, 1, 1)
      .b(0, 1);
  RankBuilder(program, 1)
      .recvAct(0, 0, 0)
      .f(1, 0)
      .b(1, 0)
      .sendGrad(1, 0, 0)
      .recvAct(0, 1, 0)
      .f(1, 1)
      .b(1, 1)
      .sendGrad(1, 1, 0);
  expectVerdict(program, {"DoDDDDo", 1, 4});
  // Everything else about it is right: the deadlock is the only finding.
  Verdict verdict = verify(program);
  ASSERT_EQ(verdict.findings.size(), 1u);
  EXPECT_EQ(verdict.findings[0].rule, Rule::Deadlock);
  EXPECT_FALSE(verdict.deadlockFree || verdict.documentedOk);
  EXPECT_EQ(verdict.minCapacity, 1);
  ASSERT_EQ(verdict.buffers.size(), 1u);
  EXPECT_EQ(verdict.buffers[0].message, (Site{0, 3}));
  EXPECT_EQ(verdict.cycle.size(), 4u);
}

// The buffers that would let it end are named with their size, which is that of
// any messages in a row.
TEST(Deadlock, NamesTheBuffersThatWouldDo) {
  Program program = makeProgram(2, 2);
  RankBuilder(program, 0)
      .onComm(2)
      .sendAct(0, 0, 1)
      .recvGrad(1, 0, 1)
      .sendAct(0, 1, 1)
      .recvGrad(1, 1, 1);
  RankBuilder(program, 1)
      .onComm(2)
      .sendGrad(1, 0, 0)
      .recvAct(0, 0, 0)
      .sendGrad(1, 1, 0)
      .recvAct(0, 1, 0);
  for (RankProgram &rank : program.ranks)
    for (Instruction &inst : rank.instructions)
      inst.bytes = inst.microbatch == 0 ? 10 : 4000;
  const std::string text = tell(program);
  EXPECT_TRUE(text.ends_with(
      " As it stands, it ends where 1 message (up to 4000 bytes) from rank 0 "
      "to rank 1 on communicator 2 is buffered, which NCCL does not promise."))
      << text;
}

TEST(Deadlock, CollectivesInDifferentOrder) {
  Program program = makeProgram(2, 1);
  RankBuilder(program, 0)
      .collective(Op::AllReduce, 0)
      .collective(Op::AllReduce, 1);
  RankBuilder(program, 1)
      .collective(Op::AllReduce, 1)
      .collective(Op::AllReduce, 0);
  expectVerdict(program, {"DDDDDDD", std::nullopt, 4});
  EXPECT_NE(tell(program).find("issue `all_reduce 0` before `all_reduce 1` on "
                               "rank 1; with it the program ends."),
            std::string::npos)
      << tell(program);
}

TEST(Deadlock, CollectiveThatARankNeverReaches) {
  Program program = makeProgram(2, 1);
  RankBuilder(program, 0).collective(Op::Barrier);
  expectVerdict(program, {"DDDDDDD", std::nullopt, 0, 1});
  EXPECT_EQ(tell(program),
            "under closure semantics rank 0 waits in `barrier` for ever: not "
            "every rank of its set reaches it. Add the missing part or remove "
            "this one. As it stands, no buffering of messages would help.");
}

/// A wait of the receive on another queue closes the circle.
TEST(Deadlock, ThroughAWait) {
  Program program = makeProgram(2, 1);
  RankBuilder rank(program, 0);
  rank.onQueue(1).onComm(1).recvGrad(1, 0, 1);
  rank.onQueue(2).onComm(2).after({0}).sendAct(0, 0, 1);
  RankBuilder(program, 1)
      .onComm(2)
      .recvAct(0, 0, 0)
      .onComm(1)
      .sendGrad(1, 0, 0);
  expectVerdict(program, {"DDDDDDD", std::nullopt, 4});
}

/// The watchdog asks from where an execution has stuck.
TEST(Deadlock, ExplainedFromWhatHasEnded) {
  Program program = makeProgram(2, 2);
  RankBuilder(program, 0).sendAct(0, 0, 1).sendAct(0, 1, 1).recvGrad(1, 0, 1);
  RankBuilder(program, 1).recvAct(0, 0, 0).sendGrad(1, 0, 0).recvAct(0, 1, 0);
  std::vector<std::vector<uint8_t>> done = {{1, 0, 0}, {0, 0, 0}};
  const DeadlockResult result =
      explainBlocked(program, Semantics::Closure, done);
  EXPECT_FALSE(result.ok);
  EXPECT_EQ(result.cycle, (std::vector<Site>{{0, 1}, {1, 2}, {1, 1}, {0, 2}}));
  EXPECT_TRUE(
      explainBlocked(program, Semantics::Closure, {{1, 1, 1}, {1, 1, 1}}).ok);
}

/// A long cycle is told in part in the message and in full in the notes.
TEST(Deadlock, RingOfManyRanks) {
  const int32_t p = 12;
  Program program = makeProgram(p, 1);
  for (int32_t r = 0; r < p; ++r)
    RankBuilder(program, r)
        .sendAct(r, 0, (r + 1) % p)
        .recvAct((r + p - 1) % p, 0, (r + p - 1) % p);
  const DeadlockResult result = checkDeadlock(program, Semantics::Closure);
  EXPECT_EQ(result.cycle.size(), 2u * p);
  const Finding finding = describeDeadlock(program, result, Semantics::Closure);
  // And how far eight ranks come, and the number of the others.
  EXPECT_EQ(finding.notes.size(), 2u * p + 9);
  EXPECT_EQ(finding.notes.back().text,
            "other ranks that end: 0, that stop too: 4");
  EXPECT_NE(finding.message.find("and so on through 24 places, the last of "
                                 "which stands behind the first"),
            std::string::npos)
      << finding.message;
}

/// The shortest of several cycles is reported: two ranks, not the ring.
TEST(Deadlock, ShortestCycle) {
  const int32_t p = 6;
  Program program = makeProgram(p, 1);
  for (int32_t r = 0; r < p; ++r) {
    RankBuilder rank(program, r);
    if (r >= 4) { // two that cross; everybody else is in the ring
      rank.onQueue(1).onComm(1);
      rank.sendGrad(r, 0, 9 - r).recvGrad(9 - r, 0, 9 - r);
      rank.onQueue(0).onComm(0);
    }
    rank.sendAct(r, 0, (r + 1) % p)
        .recvAct((r + p - 1) % p, 0, (r + p - 1) % p);
  }
  EXPECT_EQ(checkDeadlock(program, Semantics::Closure).cycle.size(), 4u);
  EXPECT_EQ(checkDeadlock(program, Semantics::Documented).cycle.size(), 4u);
}

TEST(Semantics, Names) {
  EXPECT_EQ(name(Semantics()), "closure");
  EXPECT_EQ(name(Semantics(Semantics::Closure, 3)), "closure");
  EXPECT_EQ(name({Semantics::Documented, 2}), "documented with capacity 2");
  EXPECT_EQ(name({Semantics::Layered, Semantics::kUnlimited, true, true}),
            "serialised layered with unlimited capacity, first use");
  EXPECT_EQ(name(Outcome::Ok), "ok");
  EXPECT_EQ(name(Outcome::Deadlock), "deadlock");
  EXPECT_EQ(name(Outcome::Error), "error");
}

/// The second transfer to a peer stands behind the first layer of its group.
TEST(Semantics, CycleThroughLayers) {
  Program program = makeProgram(3, 2);
  RankBuilder(program, 0)
      .sendAct(0, 0, 1)
      .with()
      .sendAct(0, 1, 1)
      .with()
      .recvGrad(2, 0, 2);
  RankBuilder(program, 1)
      .recvAct(0, 0, 0)
      .with()
      .recvAct(0, 1, 0)
      .sendAct(1, 0, 2);
  RankBuilder(program, 2).recvAct(1, 0, 1).sendGrad(2, 0, 0);
  EXPECT_EQ(
      checkDeadlock(program, Semantics::Layered).cycle,
      (std::vector<Site>{{0, 2}, {2, 1}, {2, 0}, {1, 2}, {1, 1}, {0, 1}}));
}

/// Crossed first use: not a wait but an error. NVIDIA/nccl#2057
TEST(FirstUse, CrossedConnectionsAreAnError) {
  Program program = makeProgram(2, 2);
  RankBuilder(program, 0).sendAct(0, 0, 1).recvGrad(1, 0, 1);
  RankBuilder(program, 1).sendGrad(1, 0, 0).recvAct(0, 0, 0);
  const Semantics firstUse(Semantics::Documented, 1, false, true);
  const DeadlockResult result = checkDeadlock(program, firstUse);
  EXPECT_EQ(result.outcome(), Outcome::Error);
  EXPECT_EQ(result.conflict, (std::vector<Site>{{0, 0}, {1, 0}}));
  const std::string message =
      describeDeadlock(program, result, firstUse).message;
  EXPECT_NE(
      message.find(
          "Group the same transfers at both ends. As it stands, it ends when "
          "all channels are connected beforehand."),
      std::string::npos)
      << message;
}

TEST(FirstUse, TheHostBlocksAcrossQueues) {
  const Program program = crossedOnTwoQueues();
  const Semantics firstUse(Semantics::Documented, 0, false, true);
  const DeadlockResult result = checkDeadlock(program, firstUse);
  EXPECT_EQ(result.outcome(), Outcome::Deadlock);
  EXPECT_EQ(result.cycle, (std::vector<Site>{{0, 0}, {1, 1}, {1, 0}, {0, 1}}));
  // Both sends have been issued and have ended: these channels are connected.
  EXPECT_TRUE(explainBlocked(program, firstUse, {{1, 0}, {0, 1}}).ok);

  // That it needs queues side by side is said, and refused if one wishes so.
  const Verdict verdict = verify(program);
  EXPECT_TRUE(verdict.deadlockFree);
  EXPECT_EQ(verdict.serialisedOk, false);
  auto tells = [](const std::vector<Finding> &findings, const char *text) {
    return std::any_of(findings.begin(), findings.end(), [&](const Finding &f) {
      return f.rule == Rule::Deadlock &&
             f.message.find(text) != std::string::npos;
    });
  };
  EXPECT_TRUE(tells(verdict.warnings,
                    "needs queues that really run side by side, which no "
                    "device promises: "));
  EXPECT_FALSE(tells(verdict.findings, ""));
  VerifyOptions strict;
  strict.require = {{Semantics::Documented, 0, true}, firstUse};
  const Verdict refused = verify(program, strict);
  EXPECT_TRUE(tells(refused.findings,
                    "it ends where queues run side by side, which no device "
                    "promises."));
  EXPECT_TRUE(tells(refused.findings,
                    "it ends when all channels are connected beforehand."));
}

/// One communicator keeps the host's order by itself.
TEST(Semantics, SerialisedVerdictOfOneCommunicator) {
  EXPECT_EQ(verify(oneForwardOneBackward(3, 4, true)).serialisedOk, true);
  EXPECT_EQ(verify(oneForwardOneBackward(3, 4, false, false)).serialisedOk,
            false);
  VerifyOptions order;
  order.order = true;
  EXPECT_EQ(verify(makeProgram(1, 1), order).serialisedOk, std::nullopt);
}

} // namespace
