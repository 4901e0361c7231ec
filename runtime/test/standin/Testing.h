//===- Testing.h - What the tests of the stand-in share ---------*- C++ -*-===//

#ifndef PENSTOCK_RUNTIME_TEST_STANDIN_TESTING_H
#define PENSTOCK_RUNTIME_TEST_STANDIN_TESTING_H

#include "StandIn.h"

#include <gtest/gtest.h>

#include <numeric>

#define EXPECT_CUDA(call) EXPECT_EQ(call, cudaSuccess) << #call
#define ASSERT_CUDA(call) ASSERT_EQ(call, cudaSuccess) << #call
#define EXPECT_NCCL(call) EXPECT_EQ(call, ncclSuccess) << #call
#define ASSERT_NCCL(call) ASSERT_EQ(call, ncclSuccess) << #call

namespace penstock::standin::test {

/// A stream that does not wait for the legacy one.
inline cudaStream_t makeStream() {
  cudaStream_t stream = nullptr;
  EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}
inline cudaEvent_t makeEvent() {
  cudaEvent_t event = nullptr;
  EXPECT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

/// A host function that calls a std::function.
inline void call(cudaStream_t stream, std::function<void()> fn) {
  auto *copy = new std::function<void()>(std::move(fn));
  if (cudaLaunchHostFunc(
          stream,
          [](void *data) {
            auto *fn = static_cast<std::function<void()> *>(data);
            (*fn)();
            delete fn;
          },
          copy) != cudaSuccess)
    delete copy;
}

/// One rank of a communicator, on a device of its own.
struct Rank {
  int rank = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float *memory = nullptr; ///< 16 floats
  ncclResult_t worst = ncclSuccess;

  ncclResult_t note(ncclResult_t result) {
    if (result != ncclSuccess && worst == ncclSuccess)
      worst = result;
    return result;
  }
  void send(int peer, int at = 0, size_t count = 1) {
    note(ncclSend(memory + at, count, ncclFloat, peer, comm, stream));
  }
  void recv(int peer, int at = 0, size_t count = 1) {
    note(ncclRecv(memory + at, count, ncclFloat, peer, comm, stream));
  }
  void group(const std::function<void()> &fn) {
    note(ncclGroupStart());
    fn();
    note(ncclGroupEnd());
  }
  cudaError_t synchronize() { return cudaStreamSynchronize(stream); }
};

/// Runs `fn` as n ranks of one communicator, each in a thread; memory[i] of
/// rank r is 100 r + i at the start.
inline void runRanks(int n, const std::function<void(Rank &)> &fn) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  runThreads(n, [&](int r) {
    Rank rank;
    rank.rank = r;
    ASSERT_CUDA(cudaSetDevice(r));
    ASSERT_NCCL(ncclCommInitRank(&rank.comm, n, id, r));
    rank.stream = makeStream();
    void *memory = nullptr;
    ASSERT_CUDA(cudaMalloc(&memory, 16 * sizeof(float)));
    rank.memory = static_cast<float *>(memory);
    std::iota(rank.memory, rank.memory + 16, 100.0f * static_cast<float>(r));
    fn(rank);
    if (!isDeadlocked()) {
      EXPECT_CUDA(cudaStreamSynchronize(rank.stream));
    }
    if (rank.comm) {
      ncclCommDestroy(rank.comm);
    }
    cudaStreamDestroy(rank.stream);
    cudaFree(rank.memory);
  });
}

} // namespace penstock::standin::test

#endif // PENSTOCK_RUNTIME_TEST_STANDIN_TESTING_H
