//===- CapacityTest.cpp - What buffering known schedules rely on ----------===//

#include "Testing/Build.h"

#include "penstock/Analysis/Interpret.h"

#include <gtest/gtest.h>

using namespace penstock;
using namespace penstock::test;

namespace {

/// All forwards, then all backwards.
Program gpipe(int32_t p, int32_t m) {
  Program program = makeProgram(p, m);
  for (int32_t r = 0; r < p; ++r) {
    RankBuilder rank(program, r);
    for (int32_t mb = 0; mb < m; ++mb) {
      if (r > 0)
        rank.recvAct(r - 1, mb, r - 1);
      rank.f(r, mb);
      if (r + 1 < p)
        rank.sendAct(r, mb, r + 1);
    }
    for (int32_t mb = 0; mb < m; ++mb) {
      if (r + 1 < p)
        rank.recvGrad(r + 1, mb, r + 1);
      rank.b(r, mb);
      if (r > 0)
        rank.sendGrad(r, mb, r - 1);
    }
  }
  return program;
}

/// Neighbours shift a value along the line; even ranks send first.
Program evenOdd(int32_t p, int32_t m) {
  Program program = makeProgram(p, m);
  for (int32_t r = 0; r < p; ++r) {
    RankBuilder rank(program, r);
    for (int32_t mb = 0; mb < m; ++mb)
      for (bool send : {r % 2 == 0, r % 2 != 0}) {
        if (send && r + 1 < p)
          rank.sendAct(r, mb, r + 1);
        if (!send && r > 0)
          rank.recvAct(r - 1, mb, r - 1);
      }
  }
  return program;
}

TEST(Capacity, BreadthFirstForwardNeedsAsManyAsMicrobatchesPerRank) {
  for (int32_t chunks : {2, 3, 4})
    for (int32_t p = 2; p <= 6; ++p)
      for (int32_t m = 1; m <= 10; ++m) {
        SCOPED_TRACE(testing::Message()
                     << "V=" << chunks << " P=" << p << " m=" << m);
        const Program program = breadthFirstForward(p, chunks, m, 100);
        const CapacityNeed need = capacityNeed(program);
        ASSERT_EQ(need.least, m / p);
        EXPECT_TRUE(need.minimal);
        EXPECT_EQ(minCapacity(program), m / p);
        EXPECT_EQ(minCapacity(program, Semantics::Layered), m / p);
        EXPECT_EQ(minCapacity(program, {Semantics::Documented, 0, true}),
                  m / p);
        EXPECT_EQ(checkDeadlock(program, Semantics::Documented).ok, m < p);
        EXPECT_EQ(checkDeadlock(program, {Semantics::Documented, m / p}).ok &&
                      (m < p || !checkDeadlock(program, {Semantics::Documented,
                                                         m / p - 1})
                                     .ok),
                  true);
        int64_t most = 0;
        for (const ChannelNeed &channel : need.channels) {
          most = std::max(most, channel.messages);
          EXPECT_EQ(channel.destination, (channel.source + 1) % p);
          EXPECT_EQ(channel.bytes, 100 * channel.messages);
        }
        EXPECT_EQ(most, m / p);
      }
}

TEST(Capacity, OneForwardOneBackward) {
  for (int32_t p = 2; p <= 6; ++p)
    for (int32_t m = 1; m <= 10; ++m) {
      SCOPED_TRACE(testing::Message() << "P=" << p << " m=" << m);
      const Program plain = oneForwardOneBackward(p, m, false, false);
      EXPECT_EQ(minCapacity(plain), m >= 2 ? 1 : 0);
      EXPECT_EQ(checkDeadlock(plain, Semantics::Documented).ok, m < 2);
      const Program grouped = oneForwardOneBackward(p, m, false);
      EXPECT_EQ(minCapacity(grouped), 0);
      EXPECT_TRUE(checkDeadlock(grouped, Semantics::Closure).ok);
    }
}

TEST(Capacity, GPipeAndEvenOddNeedNone) {
  for (int32_t p = 2; p <= 6; ++p)
    for (int32_t m = 1; m <= 10; ++m) {
      SCOPED_TRACE(testing::Message() << "P=" << p << " m=" << m);
      EXPECT_EQ(minCapacity(gpipe(p, m)), 0);
      EXPECT_TRUE(checkDeadlock(gpipe(p, m), Semantics::Closure).ok);
      EXPECT_EQ(minCapacity(evenOdd(p, m)), 0);
      EXPECT_TRUE(capacityNeed(gpipe(p, m)).channels.empty());
    }
}

/// Either of two crossed sends will do; the other channel needs nothing.
TEST(Capacity, NamesTheChannelAndTheMessage) {
  Program program = makeProgram(2, 3);
  RankBuilder(program, 0)
      .sendAct(0, 0, 1)
      .sendAct(0, 1, 1)
      .sendAct(0, 2, 1)
      .recvGrad(1, 0, 1);
  RankBuilder(program, 1)
      .recvAct(0, 0, 0)
      .sendGrad(1, 0, 0)
      .recvAct(0, 1, 0)
      .recvAct(0, 2, 0);
  for (uint32_t i : {0, 1, 2})
    program.ranks[0].instructions[i].bytes = 10 + i;
  program.ranks[1].instructions[1].bytes = 7;
  const CapacityNeed need = capacityNeed(program);
  EXPECT_EQ(need.least, 1);
  ASSERT_EQ(need.channels.size(), 1u);
  const ChannelNeed &channel = need.channels[0];
  EXPECT_EQ(channel.source, 1);
  EXPECT_EQ(channel.destination, 0);
  EXPECT_EQ(channel.messages, 1);
  EXPECT_EQ(channel.message, (Site{1, 1}));
  EXPECT_EQ(channel.bytes, 7);
}

TEST(Capacity, UnmatchedSendNeedsOneReceiveNone) {
  Program sends = makeProgram(2, 2);
  RankBuilder(sends, 0).sendAct(0, 0, 1).sendAct(0, 1, 1);
  const CapacityNeed need = capacityNeed(sends);
  EXPECT_EQ(need.least, 2);
  ASSERT_EQ(need.channels.size(), 1u);
  EXPECT_EQ(need.channels[0].message, (Site{0, 1}));
  EXPECT_FALSE(checkDeadlock(sends, {Semantics::Documented, 1}).ok);
  EXPECT_TRUE(checkDeadlock(sends, {Semantics::Documented, 2}).ok);

  Program receives = makeProgram(2, 1);
  RankBuilder(receives, 0).recvGrad(1, 0, 1);
  EXPECT_EQ(capacityNeed(receives).least, std::nullopt);
  EXPECT_TRUE(capacityNeed(receives).channels.empty());
}

/// What the search for a least set of buffers costs is bounded.
TEST(Capacity, LargeProgramsAreNotLowered) {
  const Program program = breadthFirstForward(2, 2, 1 << 16, 100);
  const CapacityNeed need = capacityNeed(program);
  EXPECT_EQ(need.least, 1 << 15);
  EXPECT_FALSE(need.minimal);
  EXPECT_FALSE(need.channels.empty());
}

} // namespace
