//===- GraphTest.cpp - Capture and graphs of the stand-in -----------------===//

#include "Testing.h"

#include <atomic>
#include <thread>

using namespace penstock::standin;
using namespace penstock::standin::test;

namespace {

class StandInGraph : public testing::Test {
protected:
  void SetUp() override {
    reset();
    a = makeStream();
    b = makeStream();
    event = makeEvent();
  }
  void TearDown() override { reset(); }

  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    ASSERT_CUDA(cudaStreamBeginCapture(a, mode));
  }
  cudaError_t end() { return cudaStreamEndCapture(a, &graph); }
  /// That the call has made the capture invalid.
  void expectInvalid() {
    cudaStreamCaptureStatus status;
    EXPECT_CUDA(cudaStreamIsCapturing(a, &status));
    EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
    EXPECT_EQ(cudaMemsetAsync(nullptr, 0, 0, a), cudaSuccess);
    EXPECT_EQ(cudaLaunchHostFunc(
                  a, [](void *) {}, nullptr),
              cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
    EXPECT_CUDA(cudaStreamQuery(a)); // an ordinary stream again
  }

  cudaStream_t a = nullptr, b = nullptr;
  cudaEvent_t event = nullptr;
  cudaGraph_t graph = nullptr;
};

void increment(void *data) { ++*static_cast<int *>(data); }
void twice(void *data) { *static_cast<int *>(data) *= 2; }

TEST_F(StandInGraph, ForksJoinsAndReplays) {
  int left = 0, right = 5;
  cudaEvent_t joined = makeEvent();
  begin();
  EXPECT_CUDA(cudaLaunchHostFunc(a, increment, &left));
  EXPECT_CUDA(cudaEventRecord(event, a));
  EXPECT_CUDA(cudaStreamWaitEvent(b, event, 0));
  EXPECT_CUDA(cudaLaunchHostFunc(b, increment, &right));
  EXPECT_CUDA(cudaEventRecord(joined, b));
  EXPECT_CUDA(cudaLaunchHostFunc(a, twice, &left));
  EXPECT_CUDA(cudaStreamWaitEvent(a, joined, 0));
  EXPECT_CUDA(cudaLaunchHostFunc(a, twice, &right));
  cudaStreamCaptureStatus status;
  EXPECT_CUDA(cudaStreamIsCapturing(b, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  size_t numDependencies = 0;
  EXPECT_CUDA(cudaStreamGetCaptureInfo(a, &status, nullptr, nullptr, nullptr,
                                       nullptr, &numDependencies));
  EXPECT_EQ(numDependencies, 1u);
  ASSERT_CUDA(end());
  EXPECT_CUDA(cudaStreamIsCapturing(b, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  EXPECT_EQ(left, 0); // nothing has run
  size_t nodes = 0;
  EXPECT_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 4u);

  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  for (int i = 0; i < 3; ++i)
    EXPECT_CUDA(cudaGraphLaunch(exec, i == 1 ? b : a)); // one after the other
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(left, 14);  // ((0+1)2+1)2+1)2
  EXPECT_EQ(right, 54); // ((5+1)2+1)2+1)2
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
  EXPECT_EQ(cudaGraphLaunch(exec, a), cudaErrorInvalidValue);
  EXPECT_EQ(leaks(), "2 streams\n2 events\n");
}

TEST_F(StandInGraph, WhatFollowsALaunchWaitsForIt) {
  std::atomic<bool> open{false};
  begin();
  call(a, [&] {
    while (!open)
      std::this_thread::yield();
  });
  ASSERT_CUDA(end());
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  EXPECT_CUDA(cudaGraphLaunch(exec, a));
  EXPECT_CUDA(cudaEventRecord(event, a));
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  open = true;
  EXPECT_CUDA(cudaEventSynchronize(event));
}

TEST_F(StandInGraph, ExternalEventsAreRecordedByTheLaunch) {
  int n = 0;
  begin();
  EXPECT_CUDA(cudaLaunchHostFunc(a, increment, &n));
  EXPECT_CUDA(cudaEventRecordWithFlags(event, a, cudaEventRecordExternal));
  ASSERT_CUDA(end());
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  EXPECT_CUDA(cudaEventQuery(event)); // not recorded yet
  EXPECT_CUDA(cudaGraphLaunch(exec, a));
  EXPECT_CUDA(cudaEventSynchronize(event));
  EXPECT_EQ(n, 1);
  EXPECT_EQ(cudaEventRecordWithFlags(event, a, cudaEventRecordExternal),
            cudaErrorIllegalState); // outside of a capture
}

TEST_F(StandInGraph, CopiesAndKernelsUseTheBuffersAtTheLaunch) {
  void *device = nullptr, *pinned = nullptr;
  ASSERT_CUDA(cudaMalloc(&device, 16));
  ASSERT_CUDA(cudaMallocHost(&pinned, 16));
  auto *values = static_cast<int *>(pinned);
  begin();
  EXPECT_CUDA(cudaMemcpyAsync(device, pinned, 4, cudaMemcpyHostToDevice, a));
  EXPECT_CUDA(
      cudaMemcpyAsync(values + 1, device, 4, cudaMemcpyDeviceToHost, a));
  ASSERT_CUDA(end());
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 1; i < 4; ++i) {
    values[0] = i;
    EXPECT_CUDA(cudaGraphLaunch(exec, a));
    EXPECT_CUDA(cudaStreamSynchronize(a));
    EXPECT_EQ(values[1], i);
  }
}

TEST_F(StandInGraph, WorkThatIsNotJoinedIsAnError) {
  begin();
  EXPECT_CUDA(cudaEventRecord(event, a));
  EXPECT_CUDA(cudaStreamWaitEvent(b, event, 0));
  EXPECT_CUDA(cudaLaunchHostFunc(
      b, [](void *) {}, nullptr));
  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
}

TEST_F(StandInGraph, CapturesEndWhereTheyBegan) {
  begin();
  EXPECT_EQ(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed),
            cudaErrorIllegalState);
  EXPECT_CUDA(cudaEventRecord(event, a));
  EXPECT_CUDA(cudaStreamWaitEvent(b, event, 0));
  EXPECT_EQ(cudaStreamEndCapture(b, &graph), cudaErrorStreamCaptureUnmatched);
  expectInvalid();
  EXPECT_EQ(end(), cudaErrorIllegalState); // no capture

  begin();
  std::thread([&] {
    EXPECT_EQ(end(), cudaErrorStreamCaptureWrongThread);
  }).join();
  EXPECT_CUDA(end());
  begin(cudaStreamCaptureModeRelaxed);
  std::thread([&] { EXPECT_CUDA(end()); }).join();
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed),
            cudaErrorStreamCaptureUnsupported);
}

TEST_F(StandInGraph, SynchronisingACaptureMakesItInvalid) {
  begin();
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorStreamCaptureUnsupported);
  expectInvalid();
  begin();
  EXPECT_EQ(cudaStreamQuery(a), cudaErrorStreamCaptureUnsupported);
  expectInvalid();
  begin();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
  expectInvalid();
  begin();
  EXPECT_CUDA(cudaEventRecord(event, a));
  EXPECT_EQ(cudaEventQuery(event), cudaErrorCapturedEvent);
  expectInvalid();
}

TEST_F(StandInGraph, UnsafeCallsDependOnTheMode) {
  void *p = nullptr;
  begin();
  EXPECT_EQ(cudaMalloc(&p, 10), cudaErrorStreamCaptureUnsupported);
  expectInvalid();
  // Another thread may, unless the capture is global.
  begin();
  std::thread([&] { EXPECT_CUDA(cudaMalloc(&p, 10)); }).join();
  EXPECT_CUDA(end());
  begin(cudaStreamCaptureModeGlobal);
  std::thread([&] {
    EXPECT_EQ(cudaMalloc(&p, 10), cudaErrorStreamCaptureUnsupported);
  }).join();
  expectInvalid();
  begin(cudaStreamCaptureModeRelaxed);
  EXPECT_CUDA(cudaMalloc(&p, 10));
  EXPECT_CUDA(end());
  begin();
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  EXPECT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
  EXPECT_CUDA(cudaMalloc(&p, 10));
  EXPECT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_CUDA(end());
}

TEST_F(StandInGraph, CapturesAreIsolated) {
  EXPECT_CUDA(cudaEventRecord(event, b));
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(a, event, 0), cudaErrorStreamCaptureIsolation);
  expectInvalid();
  // Two captures do not mix.
  begin();
  EXPECT_CUDA(cudaStreamBeginCapture(b, cudaStreamCaptureModeThreadLocal));
  EXPECT_CUDA(cudaEventRecord(event, b));
  EXPECT_EQ(cudaStreamWaitEvent(a, event, 0), cudaErrorStreamCaptureMerge);
  expectInvalid();
  EXPECT_EQ(cudaStreamEndCapture(b, &graph), cudaErrorStreamCaptureInvalidated);
  // An event of a capture means nothing outside.
  begin();
  EXPECT_CUDA(cudaEventRecord(event, a));
  EXPECT_CUDA(end());
  EXPECT_EQ(cudaStreamWaitEvent(b, event, 0), cudaErrorCapturedEvent);
  EXPECT_CUDA(cudaEventRecord(event, a)); // until it is recorded again
  EXPECT_CUDA(cudaStreamWaitEvent(b, event, 0));
}

TEST_F(StandInGraph, TheLegacyStreamDisturbsCapturesOfBlockingStreams) {
  cudaStream_t blocking;
  EXPECT_CUDA(cudaStreamCreate(&blocking));
  begin(); // not blocking
  EXPECT_CUDA(cudaLaunchHostFunc(
      nullptr, [](void *) {}, nullptr));
  EXPECT_CUDA(end());
  EXPECT_CUDA(
      cudaStreamBeginCapture(blocking, cudaStreamCaptureModeThreadLocal));
  EXPECT_EQ(cudaLaunchHostFunc(
                nullptr, [](void *) {}, nullptr),
            cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph),
            cudaErrorStreamCaptureInvalidated);
}

TEST_F(StandInGraph, EveryCallOfACaptureCanFail) {
  static int n;
  auto program = [&] {
    cudaGraph_t captured = nullptr;
    cudaGraphExec_t exec = nullptr;
    cudaError_t worst =
        cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
    auto note = [&](cudaError_t error) {
      worst = worst == cudaSuccess ? error : worst;
      return error;
    };
    if (worst == cudaSuccess) {
      note(cudaLaunchHostFunc(a, increment, &n));
      note(cudaStreamEndCapture(a, &captured));
    }
    if (worst == cudaSuccess)
      note(cudaGraphInstantiate(&exec, captured, 0));
    if (worst == cudaSuccess)
      note(cudaGraphLaunch(exec, a));
    if (exec)
      note(cudaGraphExecDestroy(exec));
    if (captured)
      note(cudaGraphDestroy(captured));
    return worst;
  };
  const uint64_t before = numCalls();
  EXPECT_CUDA(program());
  const uint64_t calls = numCalls() - before;
  EXPECT_EQ(calls, 7u);
  for (uint64_t i = 1; i <= calls; ++i) {
    failAny(i, cudaErrorUnknown);
    EXPECT_EQ(program(), cudaErrorUnknown) << i;
    EXPECT_EQ(leaks(), "2 streams\n1 events\n") << i;
    cudaStreamCaptureStatus status;
    EXPECT_CUDA(cudaStreamIsCapturing(a, &status));
    EXPECT_EQ(status, cudaStreamCaptureStatusNone) << i;
  }
}

TEST_F(StandInGraph, DestroyingAStreamEndsItsCapture) {
  begin();
  EXPECT_CUDA(cudaStreamDestroy(a));
  void *p = nullptr;
  EXPECT_CUDA(cudaMalloc(&p, 10)); // nothing captures any more
  EXPECT_CUDA(cudaFree(p));
}

/// A step of two ranks: one group with a send and a receive.
void exchange(Rank &r) {
  r.group([&] {
    r.send(1 - r.rank, 0);
    r.recv(1 - r.rank, 1);
  });
}

TEST_F(StandInGraph, WhatNcclRunsIsCapturedAndReplayed) {
  runRanks(2, [](Rank &r) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    ASSERT_CUDA(
        cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal));
    exchange(r);
    ASSERT_CUDA(cudaStreamEndCapture(r.stream, &graph));
    ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int step = 0; step < 4; ++step) {
      r.memory[0] = static_cast<float>(10 * step + r.rank);
      EXPECT_CUDA(cudaGraphLaunch(exec, r.stream));
      EXPECT_CUDA(r.synchronize());
      EXPECT_EQ(r.memory[1], static_cast<float>(10 * step + 1 - r.rank));
      exchange(r); // captured and not captured in turn
    }
    EXPECT_NCCL(r.worst);
    EXPECT_CUDA(r.synchronize());
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
  });
  EXPECT_FALSE(isDeadlocked()) << report();
  EXPECT_EQ(findings(), "");
}

TEST_F(StandInGraph, AGraphNeedsItsCommunicators) {
  for (bool abort : {false, true}) {
    reset();
    runRanks(2, [&](Rank &r) {
      cudaGraph_t graph;
      cudaGraphExec_t exec;
      ASSERT_CUDA(
          cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal));
      exchange(r);
      ASSERT_CUDA(cudaStreamEndCapture(r.stream, &graph));
      ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
      EXPECT_NCCL(abort ? ncclCommAbort(r.comm) : ncclCommDestroy(r.comm));
      r.comm = nullptr;
      EXPECT_CUDA(cudaGraphLaunch(exec, r.stream));
      EXPECT_CUDA(r.synchronize()); // nothing runs
    });
    EXPECT_EQ(findings().find("is launched after its communicator was "
                              "destroyed") != std::string::npos,
              !abort);
  }
}

TEST_F(StandInGraph, CapturedSendsAreARendezvous) {
  for (bool rendezvous : {true, false}) {
    Options options;
    options.capacity = 1;
    options.registeredIsRendezvous = rendezvous;
    reset(options);
    runRanks(2, [&](Rank &r) {
      cudaGraph_t graph;
      cudaGraphExec_t exec;
      ASSERT_CUDA(
          cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal));
      r.send(1 - r.rank, 0);
      r.recv(1 - r.rank, 1);
      ASSERT_CUDA(cudaStreamEndCapture(r.stream, &graph));
      ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
      EXPECT_CUDA(cudaGraphLaunch(exec, r.stream));
      EXPECT_EQ(r.synchronize(), rendezvous ? cudaErrorUnknown : cudaSuccess);
    });
    EXPECT_EQ(isDeadlocked(), rendezvous);
  }
}

TEST_F(StandInGraph, AGroupIsCapturedAsAWhole) {
  runRanks(2, [](Rank &r) {
    cudaStream_t other = makeStream();
    ASSERT_CUDA(
        cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_NCCL(ncclGroupStart());
    r.send(1 - r.rank, 0);
    ncclRecv(r.memory + 1, 1, ncclFloat, 1 - r.rank, r.comm, other);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    cudaGraph_t graph;
    ASSERT_CUDA(cudaStreamEndCapture(r.stream, &graph));
  });
}

} // namespace
