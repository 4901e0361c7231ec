//===- NcclTest.cpp - NCCL of the stand-in --------------------------------===//
//
// The programs C01, C02, C03, C06 and C23 are those of the reference's cases.
//
//===----------------------------------------------------------------------===//

#include "Testing.h"

#include <atomic>
#include <thread>

using namespace penstock::standin;
using namespace penstock::standin::test;

namespace {

class StandInNccl : public testing::Test {
protected:
  void SetUp() override { reset(); }
  void TearDown() override { reset(); }
};

/// Runs a program of n ranks with the options. True if it ends.
bool ends(const Options &options, int n,
          const std::function<void(Rank &)> &program) {
  reset(options);
  runRanks(n, [&](Rank &r) {
    program(r);
    r.synchronize();
  });
  return !isDeadlocked();
}
Options with(Groups groups) {
  Options options;
  options.groups = groups;
  return options;
}
Options withCapacity(size_t capacity) {
  Options options;
  options.capacity = capacity;
  return options;
}

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
    float *m = r.memory;
    ncclAllReduce(m, m + 4, 2, ncclFloat, ncclSum, r.comm, r.stream);
    ncclBroadcast(m, m + 6, 1, ncclFloat, 1, r.comm, r.stream);
    ncclAllGather(m + 1, m + 8, 1, ncclFloat, r.comm, r.stream);
    ncclAllReduce(m, m + 12, 1, ncclFloat, ncclMax, r.comm, r.stream);
    EXPECT_CUDA(r.synchronize());
    EXPECT_EQ(m[4], 300);
    EXPECT_EQ(m[5], 303);
    EXPECT_EQ(m[6], 100);
    EXPECT_EQ(m[8], 1);
    EXPECT_EQ(m[9], 101);
    EXPECT_EQ(m[10], 201);
    EXPECT_EQ(m[12], 200);
    ncclReduceScatter(m, m + 13, 1, ncclFloat, ncclSum, r.comm, r.stream);
    ncclReduce(m, m + 14, 1, ncclFloat, ncclProd, 2, r.comm, r.stream);
    EXPECT_CUDA(r.synchronize());
    EXPECT_EQ(m[13], 300 + 3 * r.rank);
    EXPECT_EQ(m[14], r.rank == 2 ? 0 : m[0] + 14);
    ncclAlltoAll(m, m + 4, 1, ncclFloat, r.comm, r.stream);
    ncclGather(m + 1, m + 7, 1, ncclFloat, 1, r.comm, r.stream);
    ncclScatter(m, m + 12, 1, ncclFloat, 1, r.comm, r.stream);
    EXPECT_CUDA(r.synchronize());
    EXPECT_EQ(m[4], r.rank);
    EXPECT_EQ(m[6], 200 + r.rank);
    if (r.rank == 1) {
      EXPECT_EQ(m[9], 201);
    }
    EXPECT_EQ(m[12], 100 + r.rank);
  });
  EXPECT_EQ(findings(), "");
  EXPECT_FALSE(isDeadlocked()) << report();
}

TEST_F(StandInNccl, ReductionsOfHalfTypesAndIntegers) {
  runRanks(2, [](Rank &r) {
    auto *half = reinterpret_cast<__half *>(r.memory);
    auto *bf16 = reinterpret_cast<__nv_bfloat16 *>(r.memory + 1);
    auto *integer = reinterpret_cast<int32_t *>(r.memory + 2);
    *half = __float2half(1.5f);
    *bf16 = __float2bfloat16(2.25f);
    *integer = 1 << 30;
    auto sum = [&](void *p, ncclDataType_t type, ncclRedOp_t op) {
      EXPECT_NCCL(ncclAllReduce(p, p, 1, type, op, r.comm, r.stream));
    };
    sum(half, ncclHalf, ncclSum);
    sum(bf16, ncclBfloat16, ncclAvg);
    sum(integer, ncclInt32, ncclMin);
    EXPECT_CUDA(r.synchronize());
    EXPECT_EQ(__half2float(*half), 3.0f);
    EXPECT_EQ(__bfloat162float(*bf16), 2.25f);
    EXPECT_EQ(*integer, 1 << 30);
  });
}

TEST_F(StandInNccl, CollectivesInDifferentOrdersHang) { // C17
  EXPECT_FALSE(ends({}, 2, [](Rank &r) {
    for (int i = 0; i < 2; ++i)
      ncclAllReduce(r.memory, r.memory, (i + r.rank) % 2 + 1, ncclFloat,
                    ncclSum, r.comm, r.stream);
  }));
  EXPECT_NE(report().find("ncclAllReduce waits for rank"), std::string::npos)
      << report();
}

//===----------------------------------------------------------------------===//
// Rendezvous and capacity
//===----------------------------------------------------------------------===//

/// C01: both ranks send first.
void crossed(Rank &r) {
  r.send(1 - r.rank, 0);
  r.recv(1 - r.rank, 1);
}
void crossedInGroup(Rank &r) {
  r.group([&] { crossed(r); });
}

TEST_F(StandInNccl, ADeadlockIsAnErrorOfAllThatWait) {
  runRanks(2, [](Rank &r) {
    crossed(r);
    EXPECT_EQ(r.synchronize(), cudaErrorUnknown);
    ncclResult_t error = ncclSuccess;
    EXPECT_NCCL(ncclCommGetAsyncError(r.comm, &error));
    EXPECT_EQ(error, ncclInternalError);
  });
  EXPECT_TRUE(isDeadlocked());
  const std::string text = report();
  EXPECT_NE(text.find("thread of rank 1 waits in cudaStreamSynchronize"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("rank 0 of communicator 2: ncclSend of 4 bytes to rank 1 "
                      "waits for rank 1 of communicator 2: ncclRecv of 4 bytes "
                      "from rank 0, which has not started"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("cycle of waits"), std::string::npos) << text;
}

TEST_F(StandInNccl, MessagesFitIntoTheCapacity) {
  EXPECT_FALSE(ends({}, 2, crossed));
  EXPECT_TRUE(ends({}, 2, crossedInGroup));
  EXPECT_TRUE(ends(withCapacity(1), 2, crossed));
  auto twoAhead = [](Rank &r) {
    r.send(1 - r.rank, 0);
    r.send(1 - r.rank, 1);
    r.recv(1 - r.rank, 2);
    r.recv(1 - r.rank, 3);
  };
  EXPECT_FALSE(ends(withCapacity(1), 2, twoAhead));
  EXPECT_TRUE(ends(withCapacity(2), 2, twoAhead));
}

TEST_F(StandInNccl, AMessageThatRunsAheadIsCopied) {
  reset(withCapacity(1));
  runRanks(2, [](Rank &r) {
    crossed(r);
    EXPECT_CUDA(r.synchronize());
    EXPECT_EQ(r.memory[1], r.rank ? 0 : 100);
    if (r.rank == 0) {
      r.send(1, 5);
      EXPECT_CUDA(r.synchronize()); // the buffer is free
      r.memory[5] = -1;
      r.group([&] { r.send(1, 6); });
    } else {
      r.recv(0, 7);
      r.recv(0, 8);
      EXPECT_CUDA(r.synchronize());
      EXPECT_EQ(r.memory[7], 5);
      EXPECT_EQ(r.memory[8], 6);
    }
  });
  EXPECT_FALSE(isDeadlocked()) << report();
}

TEST_F(StandInNccl, ASendWithoutAReceiveHangs) { // C11
  EXPECT_FALSE(ends({}, 2, [](Rank &r) {
    if (r.rank == 0)
      r.send(1);
  }));
  EXPECT_NE(report().find("to rank 1 waits for rank 1, "), std::string::npos)
      << report();
  EXPECT_TRUE(ends(withCapacity(1), 2, [](Rank &r) {
    if (r.rank == 0)
      r.send(1);
  }));
}

TEST_F(StandInNccl, RegisteredBuffersAreARendezvous) {
  auto program = [](Rank &r) {
    void *memory = nullptr, *handle = nullptr;
    EXPECT_NCCL(ncclMemAlloc(&memory, 64));
    EXPECT_NCCL(ncclCommRegister(r.comm, memory, 64, &handle));
    auto *p = static_cast<float *>(memory);
    EXPECT_NCCL(ncclSend(p, 1, ncclFloat, 1 - r.rank, r.comm, r.stream));
    EXPECT_NCCL(ncclRecv(p + 1, 1, ncclFloat, 1 - r.rank, r.comm, r.stream));
    r.synchronize();
    ncclCommDeregister(r.comm, handle);
    ncclMemFree(memory);
  };
  Options options = withCapacity(1);
  EXPECT_FALSE(ends(options, 2, program));
  options.registeredIsRendezvous = false;
  EXPECT_TRUE(ends(options, 2, program));
  EXPECT_EQ(findings(), "");
  EXPECT_EQ(leaks(), "");
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

/// C03b: grouped on one side only.
void oneSided(Rank &r) {
  if (r.rank == 0) {
    crossedInGroup(r);
    return;
  }
  r.recv(0, 1);
  r.send(0, 0);
}
/// C23: the second transfer to a peer waits for the first layer.
void layers(Rank &r) {
  if (r.rank == 0)
    r.group([&] {
      r.send(1, 0);
      r.send(1, 1);
      r.recv(2, 2);
    });
  if (r.rank == 1) {
    r.group([&] {
      r.recv(0, 0);
      r.recv(0, 1);
    });
    r.group([&] { r.send(2, 0); });
  }
  if (r.rank == 2) {
    r.group([&] { r.recv(1, 1); });
    r.group([&] { r.send(0, 0); });
  }
}

TEST_F(StandInNccl, GroupRules) {
  EXPECT_TRUE(ends(with(Groups::Documented), 2, oneSided));
  EXPECT_TRUE(ends(with(Groups::Layered), 2, oneSided));
  EXPECT_FALSE(ends(with(Groups::Closure), 2, oneSided));
  EXPECT_TRUE(ends(with(Groups::Plan), 2, oneSided));

  EXPECT_TRUE(ends(with(Groups::Documented), 3, layers));
  EXPECT_FALSE(ends(with(Groups::Layered), 3, layers));
  EXPECT_FALSE(ends(with(Groups::Closure), 3, layers));
  EXPECT_FALSE(ends(with(Groups::Plan), 3, layers));

  for (Groups groups :
       {Groups::Documented, Groups::Layered, Groups::Closure, Groups::Plan}) {
    EXPECT_FALSE(ends(with(groups), 2, crossed));
    EXPECT_TRUE(ends(with(groups), 2, crossedInGroup));
  }
}

TEST_F(StandInNccl, BlocksOfEightRoundsRunOneAfterTheOther) {
  // Nine ranks in a ring: the next rank is round 1, the previous one round 8.
  auto ring = [](bool together) {
    return [together](Rank &r) {
      const int next = (r.rank + 1) % 9, previous = (r.rank + 8) % 9;
      if (together)
        return r.group([&] {
          r.send(next, 0);
          r.recv(next, 1);
          r.send(previous, 2);
          r.recv(previous, 3);
        });
      // Rank 0 first does what others do in one group.
      if (r.rank != 0)
        return r.group([&] {
          r.send(next, 0);
          r.recv(next, 1);
          r.send(previous, 2);
          r.recv(previous, 3);
        });
      r.group([&] {
        r.send(previous, 2);
        r.recv(next, 1);
      });
      r.group([&] {
        r.send(next, 0);
        r.recv(previous, 3);
      });
    };
  };
  Options options = with(Groups::Plan);
  options.devices = 9;
  EXPECT_TRUE(ends(options, 9, ring(true)));
  EXPECT_FALSE(ends(options, 9, ring(false)));
  options.groups = Groups::Documented;
  EXPECT_TRUE(ends(options, 9, ring(false)));
}

TEST_F(StandInNccl, LargeGroupsAreFound) {
  runRanks(2, [](Rank &r) {
    r.group([&] {
      for (int i = 0; i < 8; ++i)
        r.rank ? r.recv(0, i) : r.send(1, i);
    });
  });
  EXPECT_NE(findings().find("a group has 8 sends to rank 1, which NCCL splits"),
            std::string::npos)
      << findings();
}

TEST_F(StandInNccl, ASendToOneselfNeedsItsReceiveInTheGroup) {
  runRanks(1, [](Rank &r) {
    EXPECT_EQ(ncclSend(r.memory, 1, ncclFloat, 0, r.comm, r.stream),
              ncclInvalidUsage);
    r.group([&] {
      r.send(0, 3);
      r.recv(0, 5);
    });
    EXPECT_NCCL(r.worst);
    EXPECT_CUDA(r.synchronize());
    EXPECT_EQ(r.memory[5], 3);
  });
}

/// Two communicators in one group on one stream, in different orders.
void twoComms(Rank &r) {
  ncclComm_t other = nullptr;
  EXPECT_NCCL(ncclCommSplit(r.comm, 0, r.rank, &other, nullptr));
  ncclComm_t first = r.rank ? other : r.comm, second = r.rank ? r.comm : other;
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclSend(r.memory, 1, ncclFloat, 1 - r.rank, first, r.stream));
  EXPECT_NCCL(
      ncclRecv(r.memory + 1, 1, ncclFloat, 1 - r.rank, second, r.stream));
  EXPECT_NCCL(ncclGroupEnd());
  r.synchronize();
  ncclCommDestroy(other);
}

TEST_F(StandInNccl, EveryCommunicatorOfAGroupHasAKernel) {
  Options options;
  EXPECT_FALSE(ends(options, 2, twoComms));
  options.kernelPerComm = false;
  EXPECT_TRUE(ends(options, 2, twoComms));
}

TEST_F(StandInNccl, AGroupHoldsAllItsStreams) {
  runRanks(2, [](Rank &r) {
    cudaStream_t other = makeStream();
    if (r.rank == 0) {
      std::atomic<bool> open{false};
      call(other, [&] {
        while (!open)
          std::this_thread::yield();
      });
      r.group([&] {
        r.send(1, 0);
        ncclSend(r.memory, 1, ncclFloat, 1, r.comm, other);
      });
      EXPECT_EQ(cudaStreamQuery(r.stream), cudaErrorNotReady);
      open = true;
      EXPECT_CUDA(r.synchronize());
      EXPECT_CUDA(cudaStreamQuery(other)); // they end together
    } else {
      r.group([&] {
        r.recv(0, 0);
        r.recv(0, 1);
      });
    }
    EXPECT_CUDA(r.synchronize());
    cudaStreamDestroy(other);
  });
  EXPECT_FALSE(isDeadlocked()) << report();
}

//===----------------------------------------------------------------------===//
// Order on a rank
//===----------------------------------------------------------------------===//

/// C02 after connecting: two streams, a communicator for each if `split`.
std::function<void(Rank &)> twoStreams(bool split, int share) {
  return [=](Rank &r) {
    ncclComm_t other = r.comm;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.splitShare = share;
    if (split) {
      EXPECT_NCCL(ncclCommSplit(r.comm, 0, r.rank, &other, &config));
    }
    cudaStream_t stream = makeStream();
    const int peer = 1 - r.rank;
    ncclSend(r.memory, 1, ncclFloat, peer, r.rank ? other : r.comm, r.stream);
    ncclRecv(r.memory + 1, 1, ncclFloat, peer, r.rank ? r.comm : other, stream);
    cudaStreamSynchronize(stream);
    r.synchronize();
    if (split)
      ncclCommDestroy(other);
    cudaStreamDestroy(stream);
  };
}

TEST_F(StandInNccl, ACommunicatorKeepsHostOrderWhateverTheStreams) {
  EXPECT_FALSE(ends({}, 2, twoStreams(false, 0)));
  EXPECT_TRUE(ends({}, 2, twoStreams(true, 0)));
  EXPECT_FALSE(ends({}, 2, twoStreams(true, 1))); // shares resources
}

TEST_F(StandInNccl, OneHardwareQueueMakesIndependentStreamsHang) {
  Options options;
  options.queues = Queues::Shared;
  EXPECT_FALSE(ends(options, 2, twoStreams(true, 0)));
  options.connections = 2;
  EXPECT_TRUE(ends(options, 2, twoStreams(true, 0)));
}

TEST_F(StandInNccl, AFullLaunchQueueMakesIndependentStreamsHang) { // C06
  auto program = [](Rank &r) {
    ncclComm_t other = nullptr;
    EXPECT_NCCL(ncclCommSplit(r.comm, 0, r.rank, &other, nullptr));
    cudaStream_t stream = makeStream();
    auto reduce = [&] {
      ncclAllReduce(r.memory, r.memory + 1, 1, ncclFloat, ncclSum, other,
                    stream);
    };
    if (r.rank == 0) {
      reduce();
      r.send(1, 2);
    } else {
      r.recv(0, 2);
      reduce();
    }
    cudaStreamSynchronize(stream);
    r.synchronize();
    ncclCommDestroy(other);
    cudaStreamDestroy(stream);
  };
  Options options;
  EXPECT_TRUE(ends(options, 2, program));
  options.launchQueue = 1;
  EXPECT_FALSE(ends(options, 2, program));
  EXPECT_NE(report().find("because the launch queue is full"),
            std::string::npos)
      << report();
  options.launchQueue = 2;
  EXPECT_TRUE(ends(options, 2, program));
}

TEST_F(StandInNccl, ReleasingMemoryWaitsForTheDevice) {
  // And an allocation may.
  auto program = [](bool allocates) {
    return [=](Rank &r) {
      void *p = nullptr;
      if (!allocates) {
        EXPECT_CUDA(cudaMalloc(&p, 16));
      }
      r.recv(1 - r.rank, 1);
      allocates ? cudaMalloc(&p, 16) : cudaFree(p);
      r.send(1 - r.rank, 0);
      r.synchronize();
      if (allocates)
        cudaFree(p);
    };
  };
  // The receives wait for each other's sends in any case; what differs is
  // where the hosts wait.
  Options options;
  EXPECT_FALSE(ends(options, 2, program(false)));
  EXPECT_NE(report().find("waits in cudaFree"), std::string::npos) << report();
  EXPECT_FALSE(ends(options, 2, program(true)));
  EXPECT_EQ(report().find("waits in an allocation"), std::string::npos);
  options.mallocSynchronizes = true;
  EXPECT_FALSE(ends(options, 2, program(true)));
  EXPECT_NE(report().find("waits in an allocation"), std::string::npos);
}

//===----------------------------------------------------------------------===//
// First use
//===----------------------------------------------------------------------===//

TEST_F(StandInNccl, FirstUseIsARendezvousOfTheHosts) {
  Options options;
  options.firstUse = true;
  auto twoComms = twoStreams(true, 0); // C02
  EXPECT_FALSE(ends(options, 2, twoComms));
  EXPECT_NE(report().find("ncclGroupEnd, which connects"), std::string::npos)
      << report();
  EXPECT_TRUE(ends(options, 2, crossedInGroup));
  // Once connected, the host does not block.
  EXPECT_TRUE(ends(options, 2, [&](Rank &r) {
    crossedInGroup(r);
    if (r.rank == 0) {
      r.send(1, 0);
      r.recv(1, 1);
    } else {
      r.recv(0, 1);
      r.send(0, 0);
    }
  }));
}

TEST_F(StandInNccl, CrossedFirstUseIsAnError) { // C03
  for (bool always : {true, false}) {
    Options options;
    options.firstUse = true;
    options.mirrorAlways = always;
    reset(options);
    runRanks(2, [](Rank &r) {
      EXPECT_EQ(ncclSend(r.memory, 1, ncclFloat, 1 - r.rank, r.comm, r.stream),
                ncclInternalError);
    });
    EXPECT_FALSE(isDeadlocked()) << report();
  }
}

TEST_F(StandInNccl, ConnectionRecordsMirrorWhereTheyTravelTogether) {
  // In three ranks no send peer is a receive peer of the same round.
  auto program = [](Rank &r) {
    if (r.rank < 2)
      r.note(ncclSend(r.memory, 1, ncclFloat, 1 - r.rank, r.comm, r.stream));
  };
  Options options;
  options.firstUse = true;
  for (bool always : {true, false}) {
    options.mirrorAlways = always;
    EXPECT_EQ(ends(options, 3, program), always);
  }
}

//===----------------------------------------------------------------------===//
// Communicators
//===----------------------------------------------------------------------===//

TEST_F(StandInNccl, SplitsByColorAndKey) {
  runRanks(4, [](Rank &r) {
    ncclComm_t child = nullptr;
    const int color = r.rank == 3 ? NCCL_SPLIT_NOCOLOR : r.rank / 2;
    EXPECT_NCCL(ncclCommSplit(r.comm, color, -r.rank, &child, nullptr));
    if (r.rank == 3) {
      EXPECT_EQ(child, nullptr);
      return;
    }
    int size = 0, rank = -1, device = -1;
    EXPECT_NCCL(ncclCommCount(child, &size));
    EXPECT_NCCL(ncclCommUserRank(child, &rank));
    EXPECT_NCCL(ncclCommCuDevice(child, &device));
    EXPECT_EQ(size, r.rank == 2 ? 1 : 2);
    EXPECT_EQ(rank, r.rank == 0 ? 1 : 0);
    EXPECT_EQ(device, r.rank);
    EXPECT_NCCL(ncclCommDestroy(child));
  });
  EXPECT_EQ(leaks(), "");
}

TEST_F(StandInNccl, AllCommunicatorsInOneThread) {
  ncclComm_t comms[3];
  cudaStream_t streams[3];
  void *memory[3];
  ASSERT_NCCL(ncclCommInitAll(comms, 3, nullptr));
  for (int r = 0; r < 3; ++r) {
    EXPECT_CUDA(cudaSetDevice(r));
    streams[r] = makeStream();
    EXPECT_CUDA(cudaMalloc(&memory[r], 4));
    *static_cast<int *>(memory[r]) = r + 1;
  }
  EXPECT_NCCL(ncclGroupStart());
  for (int r = 0; r < 3; ++r)
    EXPECT_NCCL(ncclAllReduce(memory[r], memory[r], 1, ncclInt, ncclSum,
                              comms[r], streams[r]));
  EXPECT_NCCL(ncclGroupEnd());
  for (int r = 0; r < 3; ++r) {
    EXPECT_CUDA(cudaStreamSynchronize(streams[r]));
    EXPECT_EQ(*static_cast<int *>(memory[r]), 6);
    EXPECT_NCCL(ncclCommDestroy(comms[r]));
  }
  const int twice[] = {1, 1};
  EXPECT_EQ(ncclCommInitAll(comms, 2, twice), ncclInvalidUsage);
}

TEST_F(StandInNccl, AMissingRankIsADeadlockOfTheOthers) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  runThreads(2, [&](int r) {
    ncclComm_t comm = nullptr;
    EXPECT_CUDA(cudaSetDevice(r));
    EXPECT_EQ(ncclCommInitRank(&comm, 3, id, r), ncclInternalError);
  });
  EXPECT_TRUE(isDeadlocked());
  EXPECT_NE(report().find("waits in ncclCommInitRank"), std::string::npos);
}

TEST_F(StandInNccl, WrongUsesAreErrors) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  ncclComm_t none = nullptr;
  EXPECT_EQ(ncclCommInitRank(&none, 2, id, 2), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&none, 0, id, 0), ncclInvalidArgument);
  ncclUniqueId wrong = {};
  EXPECT_EQ(ncclCommInitRank(&none, 1, wrong, 0), ncclInvalidArgument);
  ncclConfig_t config = {};
  EXPECT_EQ(ncclCommInitRankConfig(&none, 1, id, 0, &config),
            ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_EQ(ncclCommDestroy(nullptr), ncclInvalidArgument);
  EXPECT_STREQ(ncclGetLastError(nullptr), "not a communicator");

  runRanks(2, [](Rank &r) {
    float host = 0;
    EXPECT_EQ(ncclSend(r.memory, 1, ncclFloat, 2, r.comm, r.stream),
              ncclInvalidArgument);
    EXPECT_EQ(ncclSend(r.memory, 1, ncclNumTypes, 0, r.comm, r.stream),
              ncclInvalidArgument);
    EXPECT_EQ(ncclSend(&host, 1, ncclFloat, 1 - r.rank, r.comm, r.stream),
              ncclInvalidArgument);
    EXPECT_EQ(ncclSend(r.memory, 17, ncclFloat, 1 - r.rank, r.comm, r.stream),
              ncclInvalidArgument);
    // What is wrong in a group makes all of it wrong.
    EXPECT_NCCL(ncclGroupStart());
    EXPECT_NCCL(ncclSend(r.memory, 1, ncclFloat, 1 - r.rank, r.comm, r.stream));
    EXPECT_EQ(ncclRecv(r.memory, 1, ncclFloat, -1, r.comm, r.stream),
              ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_CUDA(cudaStreamQuery(r.stream)); // nothing was launched
    // A stream of another device.
    EXPECT_CUDA(cudaSetDevice(5));
    cudaStream_t other = makeStream();
    EXPECT_EQ(ncclSend(r.memory, 1, ncclFloat, 1 - r.rank, r.comm, other),
              ncclUnhandledCudaError);
    EXPECT_CUDA(cudaStreamDestroy(other));
  });
}

TEST_F(StandInNccl, RanksThatDisagreeAreErrors) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  std::atomic<int> numErrors{0};
  runThreads(2, [&](int r) { // both on device 0
    ncclComm_t comm = nullptr;
    numErrors += ncclCommInitRank(&comm, 2, id, r) == ncclInvalidUsage;
  });
  EXPECT_EQ(numErrors, 2);
  EXPECT_EQ(leaks(), "");
  ncclUniqueId second;
  ASSERT_NCCL(ncclGetUniqueId(&second));
  runThreads(2, [&](int r) { // the second one that comes is refused
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, 2 + r, second, r), ncclInternalError);
  });
}

TEST_F(StandInNccl, PairsAreCompared) {
  auto program = [](Rank &r) {
    if (r.rank == 0)
      r.send(1, 4, 1);
    else
      r.recv(0, 0, 2);
  };
  runRanks(2, [&](Rank &r) {
    program(r);
    EXPECT_CUDA(r.synchronize());
    ncclResult_t error = ncclSuccess;
    EXPECT_NCCL(ncclCommGetAsyncError(r.comm, &error));
    EXPECT_EQ(error, ncclInvalidUsage);
  });
  EXPECT_NE(findings().find("meets ncclRecv of 8 bytes from rank 0 for 2 "
                            "elements"),
            std::string::npos)
      << findings();
  Options options;
  options.checkPairs = false; // as NCCL
  reset(options);
  runRanks(2, [&](Rank &r) {
    program(r);
    EXPECT_CUDA(r.synchronize());
    if (r.rank == 1) {
      EXPECT_EQ(r.memory[0], 4);
      EXPECT_EQ(r.memory[1], 101); // stale
    }
  });
  EXPECT_EQ(findings(), "");
}

TEST_F(StandInNccl, BuffersThatAreReleasedTooSoonAreFound) {
  runRanks(2, [](Rank &r) {
    void *early = nullptr;
    EXPECT_NCCL(ncclMemAlloc(&early, 4));
    if (r.rank == 0) {
      EXPECT_NCCL(ncclSend(early, 1, ncclFloat, 1, r.comm, r.stream));
      EXPECT_NCCL(ncclMemFree(early)); // does not wait
      EXPECT_NCCL(ncclSend(r.memory, 1, ncclFloat, 1, r.comm, r.stream));
    } else {
      EXPECT_NCCL(ncclMemFree(early));
      r.synchronize();
      // Rank 0 has issued and released by the time that its second send comes.
      EXPECT_NCCL(ncclGroupStart());
      r.recv(0, 0);
      r.recv(0, 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_NCCL(ncclGroupEnd());
    }
    r.synchronize();
  });
  EXPECT_NE(findings().find("after its release"), std::string::npos)
      << findings();
}

//===----------------------------------------------------------------------===//
// Communicators that do not block
//===----------------------------------------------------------------------===//

ncclResult_t poll(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    EXPECT_NCCL(ncclCommGetAsyncError(comm, &state));
    std::this_thread::yield();
  }
  return state;
}

/// As runRanks(), with a communicator that does not block.
void runNonBlocking(int n, const std::function<void(Rank &)> &fn) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  runThreads(n, [&](int r) {
    Rank rank;
    rank.rank = r;
    ASSERT_CUDA(cudaSetDevice(r));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ASSERT_EQ(ncclCommInitRankConfig(&rank.comm, n, id, r, &config),
              ncclInProgress);
    ASSERT_NE(rank.comm, nullptr);
    rank.stream = makeStream();
    void *memory = nullptr;
    ASSERT_CUDA(cudaMalloc(&memory, 64));
    rank.memory = static_cast<float *>(memory);
    std::fill_n(rank.memory, 16, static_cast<float>(r));
    fn(rank);
    cudaStreamDestroy(rank.stream);
    cudaFree(rank.memory);
  });
}

TEST_F(StandInNccl, CallsThatDoNotBlockAreInProgress) {
  Options options;
  options.maxDelay = 2000;
  for (bool firstUse : {false, true}) {
    options.firstUse = firstUse;
    reset(options);
    runNonBlocking(2, [](Rank &r) {
      EXPECT_NCCL(poll(r.comm));
      EXPECT_NCCL(ncclGroupStart());
      EXPECT_NCCL(
          ncclSend(r.memory, 1, ncclFloat, 1 - r.rank, r.comm, r.stream));
      EXPECT_NCCL(
          ncclRecv(r.memory + 1, 1, ncclFloat, 1 - r.rank, r.comm, r.stream));
      EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
      EXPECT_NCCL(poll(r.comm));
      EXPECT_CUDA(r.synchronize());
      EXPECT_EQ(r.memory[1], 1 - r.rank);
      ncclComm_t child = nullptr;
      EXPECT_EQ(ncclCommSplit(r.comm, 0, r.rank, &child, nullptr),
                ncclInProgress);
      EXPECT_NCCL(poll(r.comm));
      EXPECT_NCCL(poll(child));
      EXPECT_EQ(ncclCommFinalize(child), ncclInProgress);
      EXPECT_NCCL(poll(child));
      EXPECT_NCCL(ncclCommDestroy(child));
      EXPECT_EQ(ncclCommFinalize(r.comm), ncclInProgress);
      EXPECT_NCCL(poll(r.comm));
      EXPECT_NCCL(ncclCommDestroy(r.comm));
    });
    EXPECT_EQ(findings(), "");
    EXPECT_EQ(leaks(), "");
    EXPECT_FALSE(isDeadlocked()) << report();
  }
}

TEST_F(StandInNccl, WhoDoesNotPollIsFound) {
  Options options;
  options.maxDelay = 100000;
  reset(options);
  runNonBlocking(2, [](Rank &r) {
    EXPECT_NCCL(poll(r.comm));
    EXPECT_NCCL(ncclGroupStart());
    EXPECT_NCCL(ncclSend(r.memory, 1, ncclFloat, 1 - r.rank, r.comm, r.stream));
    EXPECT_NCCL(
        ncclRecv(r.memory + 1, 1, ncclFloat, 1 - r.rank, r.comm, r.stream));
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    // The group is not on the stream yet.
    EXPECT_EQ(ncclSend(r.memory, 1, ncclFloat, 1 - r.rank, r.comm, r.stream),
              ncclInvalidArgument);
    call(r.stream, [] {});
    EXPECT_NCCL(poll(r.comm));
    EXPECT_CUDA(r.synchronize());
    EXPECT_NCCL(ncclCommDestroy(r.comm));
  });
  EXPECT_NE(
      findings().find("uses a stream while a group of a communicator that "
                      "does not block is in progress"),
      std::string::npos)
      << findings();
}

//===----------------------------------------------------------------------===//
// Abort
//===----------------------------------------------------------------------===//

TEST_F(StandInNccl, AnAbortEndsWhatRuns) {
  Options options;
  options.onDeadlock = OnDeadlock::Hang;
  for (bool seen : {false, true}) {
    options.abortIsSeen = seen;
    reset(options);
    runNonBlocking(2, [&](Rank &r) {
      EXPECT_NCCL(poll(r.comm));
      EXPECT_EQ(ncclRecv(r.memory, 1, ncclFloat, 1 - r.rank, r.comm, r.stream),
                ncclInProgress);
      EXPECT_NCCL(poll(r.comm));
      while (!isDeadlocked()) {
        EXPECT_EQ(cudaStreamQuery(r.stream), cudaErrorNotReady);
      }
      ncclResult_t state = ncclSuccess;
      while (seen && r.rank == 1 && state == ncclSuccess)
        EXPECT_NCCL(ncclCommGetAsyncError(r.comm, &state));
      EXPECT_EQ(state, seen && r.rank == 1 ? ncclRemoteError : ncclSuccess);
      EXPECT_NCCL(ncclCommAbort(r.comm));
      EXPECT_CUDA(r.synchronize());
    });
    EXPECT_TRUE(isDeadlocked());
    EXPECT_EQ(leaks(), "");
  }
}

TEST_F(StandInNccl, AfterAnAbortThePeerStillWaits) {
  Options options;
  reset(options);
  runRanks(2, [](Rank &r) {
    if (r.rank == 0) {
      EXPECT_NCCL(ncclCommAbort(r.comm));
      r.comm = nullptr;
      return;
    }
    EXPECT_NCCL(ncclRecv(r.memory, 1, ncclFloat, 0, r.comm, r.stream));
    EXPECT_EQ(r.synchronize(), cudaErrorUnknown);
  });
  EXPECT_TRUE(isDeadlocked());
  EXPECT_NE(report().find("whose communicator was aborted or destroyed"),
            std::string::npos)
      << report();
}

TEST_F(StandInNccl, ABlockedCallAndAnAbortAreFound) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  std::thread rank(
      [&] { EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 0), ncclInternalError); });
  while (report().find("waits in ncclCommInitRank") == std::string::npos)
    std::this_thread::yield();
  EXPECT_NCCL(ncclCommAbort(comm));
  rank.join();
  EXPECT_NE(findings().find("ncclCommAbort is called while another thread"),
            std::string::npos);
}

TEST_F(StandInNccl, RevokedCommunicatorsRefuseWork) {
  runRanks(2, [](Rank &r) {
    EXPECT_EQ(ncclCommRevoke(r.comm, 1), ncclInvalidArgument);
    if (r.rank == 0) {
      EXPECT_NCCL(ncclRecv(r.memory, 1, ncclFloat, 1, r.comm, r.stream));
    }
    EXPECT_NCCL(ncclCommRevoke(r.comm, NCCL_REVOKE_DEFAULT));
    EXPECT_CUDA(r.synchronize()); // the receive was stopped
    EXPECT_EQ(ncclRecv(r.memory, 1, ncclFloat, 1 - r.rank, r.comm, r.stream),
              ncclInvalidUsage);
    EXPECT_EQ(ncclCommFinalize(r.comm), ncclInvalidUsage);
    ncclComm_t child = nullptr;
    EXPECT_NCCL(ncclCommSplit(r.comm, 0, r.rank, &child, nullptr));
    EXPECT_NCCL(ncclCommDestroy(child));
  });
  EXPECT_FALSE(isDeadlocked()) << report();
}

TEST_F(StandInNccl, ABrokenCommunicatorNeverEndsWhatItRuns) {
  Options options;
  options.onDeadlock = OnDeadlock::Hang;
  reset(options);
  runRanks(2, [](Rank &r) {
    breakComm(r.comm, ncclRemoteError);
    r.send(1 - r.rank); // refused, or issued before the other broke it
    ncclResult_t state = ncclSuccess;
    EXPECT_NCCL(ncclCommGetAsyncError(r.comm, &state));
    EXPECT_EQ(state, ncclRemoteError);
    EXPECT_EQ(r.worst, ncclRemoteError);
    EXPECT_NCCL(ncclCommAbort(r.comm));
    r.comm = nullptr;
  });
}

TEST_F(StandInNccl, EveryCallCanFail) {
  auto program = [](Rank &r) {
    r.group([&] {
      r.send(0, 0);
      r.recv(0, 1);
    });
    r.note(ncclCommFinalize(r.comm));
  };
  uint64_t calls = 0;
  runRanks(1, [&](Rank &r) {
    const uint64_t before = numCalls();
    program(r);
    calls = numCalls() - before;
    EXPECT_NCCL(r.worst);
  });
  EXPECT_EQ(calls, 5u);
  for (uint64_t n = 1; n <= calls; ++n) {
    reset();
    runRanks(1, [&](Rank &r) {
      failAny(n, cudaErrorUnknown, ncclSystemError);
      program(r);
      EXPECT_EQ(r.worst, ncclSystemError) << n;
    });
    EXPECT_TRUE(hasFailed());
    EXPECT_EQ(leaks(), "") << n;
  }
}

//===----------------------------------------------------------------------===//
// Who takes part in a deadlock
//===----------------------------------------------------------------------===//

/// Two threads, which the stand-in does not know beforehand.
template <typename Fn>
void inTwoThreads(Fn fn) {
  ncclComm_t comms[2];
  ASSERT_NCCL(ncclCommInitAll(comms, 2, nullptr));
  std::thread threads[2];
  for (int i = 0; i < 2; ++i)
    threads[i] = std::thread([&, i] {
      Rank r;
      r.rank = i;
      r.comm = comms[i];
      EXPECT_CUDA(cudaSetDevice(i));
      r.stream = makeStream();
      void *memory = nullptr;
      EXPECT_CUDA(cudaMalloc(&memory, 64));
      r.memory = static_cast<float *>(memory);
      fn(r);
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST_F(StandInNccl, ThreadsThatSleepElsewhereTakePart) {
  inTwoThreads([](Rank &r) {
    crossed(r);
    EXPECT_EQ(r.synchronize(), cudaErrorUnknown);
  });
  EXPECT_TRUE(isDeadlocked());
}

TEST_F(StandInNccl, AThreadThatSleepsForATimeIsNoDeadlock) {
  inTwoThreads([](Rank &r) {
    if (r.rank == 0) {
      r.recv(1, 0);
      EXPECT_CUDA(r.synchronize());
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      r.send(0, 0);
      EXPECT_CUDA(r.synchronize());
    }
  });
  EXPECT_FALSE(isDeadlocked()) << report();
}

TEST_F(StandInNccl, AKnownNumberOfThreadsNeedsNoOthers) {
  Options options;
  options.hostThreads = 2;
  reset(options);
  std::atomic<bool> over{false};
  std::thread watchdog([&] { // sleeps for a time, again and again
    while (!over)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  inTwoThreads([](Rank &r) {
    crossed(r);
    EXPECT_EQ(r.synchronize(), cudaErrorUnknown);
  });
  EXPECT_TRUE(isDeadlocked());
  over = true;
  watchdog.join();
}

TEST_F(StandInNccl, PollingIsWaiting) {
  runRanks(2, [](Rank &r) {
    crossed(r);
    cudaError_t error = cudaErrorNotReady;
    while (error == cudaErrorNotReady) {
      ncclResult_t state;
      EXPECT_NCCL(ncclCommGetAsyncError(r.comm, &state));
      error = cudaStreamQuery(r.stream);
    }
    EXPECT_EQ(error, cudaErrorUnknown);
  });
  EXPECT_TRUE(isDeadlocked());
  EXPECT_NE(report().find("polls"), std::string::npos);
}

TEST_F(StandInNccl, DelaysDoNotChangeVerdicts) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Options options;
    options.seed = seed;
    options.maxDelay = 300;
    EXPECT_FALSE(ends(options, 2, crossed));
    EXPECT_TRUE(ends(options, 3, layers));
    options.groups = Groups::Closure;
    EXPECT_FALSE(ends(options, 2, oneSided));
    EXPECT_TRUE(ends(options, 2, crossedInGroup));
  }
}

} // namespace
