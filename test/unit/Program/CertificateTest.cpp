//===- CertificateTest.cpp - Times that prove that a program ends ---------===//
//
// Every rule has a certificate that breaks only it, and around a right one each
// change is judged as the definitions judge it. What certify() makes, and what
// the times say about execution, is tested with the analyses.
//
//===----------------------------------------------------------------------===//

#include "penstock/Program/Certificate.h"

#include "Certified.h"

#include "penstock/Program/File.h"

#include <gtest/gtest.h>

using namespace penstock;
using namespace penstock::test;

namespace {

constexpr const char *kNotTheOtherEnd =
    "the other end of its channel does not have its time";
constexpr const char *kNotTheSet =
    "at its time not exactly the ranks of its set issue it";

void expectRefused(const Program &program, Site site, const std::string &why) {
  const Status status = checkCertificate(program);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.message(),
            "the certificate does not hold: " + why +
                "; certify the program anew, as penstock-translate "
                "--pipe-to-program does");
  EXPECT_EQ(status.failure().site, site);
  EXPECT_FALSE(SlowCertificate(program).holds());
}

TEST(Certificate, Accepted) {
  const Program program = certifiedProgram();
  const Status status = wellFormed(program);
  ASSERT_TRUE(status) << status.message();
  EXPECT_TRUE(hasCertificate(program));
  EXPECT_TRUE(checkCertificate(program));
  EXPECT_TRUE(SlowCertificate(program).holds());
}

TEST(Certificate, Dropped) {
  Program program = certifiedProgram();
  dropCertificate(program);
  EXPECT_FALSE(hasCertificate(program));
  for (const RankProgram &rank : program.ranks)
    EXPECT_TRUE(rank.times.empty());
  EXPECT_TRUE(wellFormed(program));
  expectRefused(program, {0, kNoInstruction},
                "not every instruction has a time");
}

TEST(Certificate, AProgramWithoutInstructionsHasNone) {
  Program program = makeProgram(2, 1);
  EXPECT_FALSE(hasCertificate(program));
  EXPECT_TRUE(checkCertificate(program)) << "it ends";
}

TEST(Certificate, OfSomeRanksOnly) {
  Program program = certifiedProgram();
  program.ranks[1].times.clear();
  EXPECT_TRUE(hasCertificate(program));
  expectRefused(program, {1, kNoInstruction},
                "not every instruction has a time");
}

TEST(Certificate, OfTheWrongLength) {
  Program program = certifiedProgram();
  program.ranks[1].times.push_back(7);
  expectRefused(program, {1, kNoInstruction},
                "not every instruction has a time");
  const Status status = wellFormed(program);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.message(), "has 5 times for 4 instructions; certify the "
                              "program anew, or drop the times");
  EXPECT_EQ(status.failure().site, (Site{1, kNoInstruction}));
}

TEST(Certificate, Item) {
  Program program = certifiedProgram();
  program.ranks[0].times[2] = 3;
  expectRefused(program, {0, 2},
                "its time is not that of the item it belongs to");
}

TEST(Certificate, Queue) {
  Program program = certifiedProgram();
  program.ranks[0].times[3] = 0;
  expectRefused(program, {0, 3},
                "it is not later than the item before on its queue");
}

TEST(Certificate, Communicator) {
  Program program = certifiedProgram();
  program.ranks[1].times[3] = 2;
  expectRefused(program, {1, 3},
                "it is not later than the item before on its communicator");
}

TEST(Certificate, EveryCommunicatorOfAGroup) {
  // The group uses communicator 5 with its second member only.
  Program program = makeProgram(2, 3, 2);
  RankBuilder(program, 0)
      .onComm(5)
      .sendAct(0, 0, 1)
      .onQueue(1)
      .onComm(4)
      .sendAct(0, 1, 1)
      .with()
      .onComm(5)
      .sendAct(0, 2, 1);
  RankBuilder(program, 1)
      .onComm(5)
      .recvAct(0, 0, 0)
      .onQueue(1)
      .onComm(4)
      .recvAct(0, 1, 0)
      .with()
      .onComm(5)
      .recvAct(0, 2, 0);
  program.ranks[0].times = program.ranks[1].times = {0, 1, 1};
  EXPECT_TRUE(checkCertificate(program));
  program.ranks[0].times = program.ranks[1].times = {1, 1, 1};
  expectRefused(program, {0, 2},
                "it is not later than the item before on its communicator");
}

TEST(Certificate, Wait) {
  Program program = certifiedProgram();
  program.ranks[0].times[0] = 2;
  expectRefused(program, {0, 1}, "it is not later than what it waits for");
}

TEST(Certificate, SendWithoutReceive) {
  Program program = certifiedProgram();
  program.ranks[1].times[1] = program.ranks[1].times[2] = 3;
  expectRefused(program, {0, 1}, kNotTheOtherEnd);
}

TEST(Certificate, ReceiveWithoutSend) {
  Program program = certifiedProgram();
  program.ranks[1].times[1] = program.ranks[1].times[2] = 1;
  expectRefused(program, {1, 1}, kNotTheOtherEnd);
}

TEST(Certificate, TheLastEndsOfAll) {
  // Nothing is left to compare these with.
  Program program = makeProgram(3, 1);
  RankBuilder(program, 1).sendAct(1, 0, 2);
  program.ranks[1].times = {0};
  expectRefused(program, {1, 0}, kNotTheOtherEnd);
  program = makeProgram(3, 1);
  RankBuilder(program, 2).recvAct(1, 0, 1);
  program.ranks[2].times = {0};
  expectRefused(program, {2, 0}, kNotTheOtherEnd);
}

TEST(Certificate, OtherEndTwice) {
  // Two sends in one group, and one receive at their time.
  Program program = makeProgram(2, 2, 2);
  RankBuilder(program, 0).sendAct(0, 0, 1).with().sendAct(0, 1, 1);
  RankBuilder(program, 1).recvAct(0, 0, 0);
  program.ranks[0].times = {0, 0};
  program.ranks[1].times = {0};
  EXPECT_FALSE(checkCertificate(program));
  RankBuilder(program, 1).with().recvAct(0, 1, 0);
  program.ranks[1].times = {0, 0};
  EXPECT_TRUE(checkCertificate(program));
}

TEST(Certificate, CollectiveAtTwoTimes) {
  Program program = certifiedProgram();
  program.ranks[2].times[0] = 0;
  expectRefused(program, {2, 0}, kNotTheSet);
}

TEST(Certificate, CollectiveWithoutOneRank) {
  Program program = certifiedProgram();
  program.ranks[2].instructions.pop_back();
  program.ranks[2].times.pop_back();
  expectRefused(program, {0, 4}, kNotTheSet);
}

TEST(Certificate, CollectiveWithAStranger) {
  for (int32_t stranger : {1, 3}) {
    Program program = makeProgram(4, 1);
    program.rankSets = {{0, 2}};
    for (int32_t r : {0, 2, stranger}) {
      RankBuilder(program, r).collective(Op::Barrier, -1, 0);
      program.ranks[r].times = {5};
    }
    expectRefused(program, {stranger, 0}, kNotTheSet);
  }
}

TEST(Certificate, CollectivesThatDifferDoNotMeet) {
  auto two = [](const Instruction &a, const Instruction &b) {
    Program program = makeProgram(2, 2, 2);
    program.rankSets = {{0, 1}};
    program.ranks[0].instructions = {a};
    program.ranks[1].instructions = {b};
    program.ranks[0].times = program.ranks[1].times = {0};
    return bool(checkCertificate(program));
  };
  Instruction a;
  a.op = Op::AllReduce;
  a.stage = 0;
  EXPECT_TRUE(two(a, a));
  Instruction b = a;
  b.peer = 0;
  EXPECT_TRUE(two(a, b)) << "all ranks, by name";
  b = a;
  b.comm = 1;
  EXPECT_FALSE(two(a, b));
  b = a;
  b.stage = 1;
  EXPECT_FALSE(two(a, b));
  b = a;
  b.microbatch = 1;
  EXPECT_FALSE(two(a, b));
}

TEST(Certificate, ChannelsDifferInEverything) {
  // One end each; the other end is on another communicator or rank.
  auto two = [](uint16_t comm, int32_t source, int32_t destination) {
    Program program = makeProgram(3, 1);
    RankBuilder(program, 0).sendAct(0, 0, 1);
    RankBuilder(program, destination).onComm(comm).recvAct(0, 0, source);
    for (RankProgram &rank : program.ranks)
      rank.times.resize(rank.instructions.size());
    return bool(checkCertificate(program));
  };
  EXPECT_TRUE(two(0, 0, 1));
  EXPECT_FALSE(two(1, 0, 1));
  EXPECT_FALSE(two(65535, 0, 1));
  EXPECT_FALSE(two(0, 2, 1));
  EXPECT_FALSE(two(0, 0, 2));
}

TEST(Certificate, TheLargestTimes) {
  Program program = certifiedProgram();
  for (RankProgram &rank : program.ranks)
    for (uint32_t &time : rank.times)
      time += ~0u - 4;
  EXPECT_TRUE(checkCertificate(program));
}

TEST(Certificate, EveryChangeOfAnEntryIsJudgedByTheDefinitions) {
  Program program = certifiedProgram();
  size_t accepted = 0, refused = 0;
  for (RankProgram &rank : program.ranks)
    for (uint32_t &time : rank.times)
      for (const uint32_t right = time;
           uint32_t wrong : {0u, 1u, 2u, 3u, 4u, 5u, 6u, ~0u}) {
        time = wrong;
        const bool holds = SlowCertificate(program).holds();
        EXPECT_EQ(bool(checkCertificate(program)), holds);
        ++(holds ? accepted : refused);
        time = right;
      }
  EXPECT_GT(accepted, 11u) << "more than what was right";
  EXPECT_GT(refused, 60u);
}

} // namespace
