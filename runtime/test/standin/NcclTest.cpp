//===- NcclTest.cpp - NCCL of the stand-in --------------------------------===//

#include "Testing.h"

using namespace penstock::standin;
using namespace penstock::standin::test;

namespace {

class StandInNccl : public testing::Test {
protected:
  void SetUp() override { reset(); }
  void TearDown() override { reset(); }
};

TEST_F(StandInNccl, SendsMeetReceivesFirstToFirst) {
  runRanks(2, [](Rank &r) {
    if (r.rank == 0) {
      r.send(1, 3);
      r.send(1, 4);
    } else {
      r.recv(0, 0);
      r.recv(0, 1);
    }
    EXPECT_CUDA(r.synchronize());
    if (r.rank == 1) {
      EXPECT_EQ(r.memory[0], 3);
      EXPECT_EQ(r.memory[1], 4);
    }
    EXPECT_NCCL(r.worst);
  });
  EXPECT_FALSE(isDeadlocked()) << report();
  EXPECT_EQ(findings(), "");
  EXPECT_EQ(leaks(), "");
}

TEST_F(StandInNccl, Collectives) {
  runRanks(3, [](Rank &r) {
    ncclAllReduce(r.memory, r.memory + 4, 2, ncclFloat, ncclSum, r.comm,
                  r.stream);
    ncclBroadcast(r.memory, r.memory + 6, 1, ncclFloat, 1, r.comm, r.stream);
    ncclAllGather(r.memory + 1, r.memory + 8, 1, ncclFloat, r.comm, r.stream);
    ncclAllReduce(r.memory, r.memory + 12, 1, ncclFloat, ncclMax, r.comm,
                  r.stream);
    EXPECT_CUDA(r.synchronize());
    EXPECT_EQ(r.memory[4], 300);
    EXPECT_EQ(r.memory[5], 303);
    EXPECT_EQ(r.memory[6], 100);
    EXPECT_EQ(r.memory[8], 1);
    EXPECT_EQ(r.memory[9], 101);
    EXPECT_EQ(r.memory[10], 201);
    EXPECT_EQ(r.memory[12], 200);
  });
  EXPECT_EQ(findings(), "");
}

/// C01: both ranks send first.
void crossed(Rank &r) {
  r.send(1 - r.rank, 0);
  r.recv(1 - r.rank, 1);
  r.synchronize();
}

TEST_F(StandInNccl, CrossedSendsHangUnderRendezvousOnly) {
  runRanks(2, [](Rank &r) {
    r.send(1 - r.rank, 0);
    r.recv(1 - r.rank, 1);
    EXPECT_EQ(r.synchronize(), cudaErrorUnknown);
    ncclResult_t error = ncclSuccess;
    EXPECT_NCCL(ncclCommGetAsyncError(r.comm, &error));
    EXPECT_EQ(error, ncclInternalError);
  });
  EXPECT_TRUE(isDeadlocked());
  EXPECT_NE(report().find("cycle of waits"), std::string::npos) << report();
  EXPECT_NE(report().find("ncclSend of 4 bytes to rank 1"), std::string::npos);

  Options options;
  options.capacity = 1;
  reset(options);
  runRanks(2, [](Rank &r) {
    crossed(r);
    EXPECT_EQ(r.memory[1], r.rank ? 0 : 100);
  });
  EXPECT_FALSE(isDeadlocked()) << report();
}

} // namespace
