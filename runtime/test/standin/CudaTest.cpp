//===- CudaTest.cpp - The CUDA runtime of the stand-in --------------------===//

#include "Testing.h"

#include <atomic>
#include <thread>

using namespace penstock::standin;
using namespace penstock::standin::test;

namespace {

class StandInCuda : public testing::Test {
protected:
  void SetUp() override { reset(); }
  void TearDown() override { reset(); }

  /// A gate that holds a stream up until it is opened.
  struct Gate {
    std::atomic<bool> open{false};
    void close(cudaStream_t stream) {
      call(stream, [this] {
        while (!open)
          std::this_thread::yield();
      });
    }
  };
};

TEST_F(StandInCuda, StreamsRunInOrderAndEventsOrderThem) {
  cudaStream_t a = makeStream(), b = makeStream();
  cudaEvent_t event = makeEvent();
  Gate gate;
  std::vector<int> order; // b waits for a, so nobody writes at the same time
  gate.close(a);
  call(a, [&] { order.push_back(1); });
  EXPECT_CUDA(cudaEventRecord(event, a));
  EXPECT_CUDA(cudaStreamWaitEvent(b, event, 0));
  call(b, [&] { order.push_back(2); });
  EXPECT_EQ(cudaStreamQuery(b), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_CUDA(cudaGetLastError());
  gate.open = true;
  EXPECT_CUDA(cudaStreamSynchronize(b));
  EXPECT_CUDA(cudaEventQuery(event));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(StandInCuda, WaitingForAnEventThatWasNotRecordedDoesNothing) {
  cudaStream_t a = makeStream();
  cudaEvent_t event = makeEvent();
  EXPECT_CUDA(cudaStreamWaitEvent(a, event, 0));
  EXPECT_CUDA(cudaEventQuery(event));
  EXPECT_CUDA(cudaEventSynchronize(event));
  EXPECT_CUDA(cudaStreamSynchronize(a));
}

TEST_F(StandInCuda, AWaitMeansTheLastRecordBeforeIt) {
  cudaStream_t a = makeStream(), b = makeStream(), c = makeStream();
  cudaEvent_t event = makeEvent();
  Gate first, second;
  first.close(a);
  EXPECT_CUDA(cudaEventRecord(event, a));
  EXPECT_CUDA(cudaStreamWaitEvent(b, event, 0));
  second.close(a);
  EXPECT_CUDA(cudaEventRecord(event, a)); // replaces the first
  EXPECT_CUDA(cudaStreamWaitEvent(c, event, 0));
  first.open = true;
  EXPECT_CUDA(cudaStreamSynchronize(b));
  EXPECT_EQ(cudaStreamQuery(c), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  second.open = true;
  EXPECT_CUDA(cudaStreamSynchronize(c));
}

TEST_F(StandInCuda, ElapsedTimeNeedsTiming) {
  cudaStream_t stream = makeStream();
  cudaEvent_t start, end, without = makeEvent();
  EXPECT_CUDA(cudaEventCreate(&start));
  EXPECT_CUDA(cudaEventCreate(&end));
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end),
            cudaErrorInvalidResourceHandle);
  EXPECT_CUDA(cudaEventRecord(start, stream));
  Gate gate;
  gate.close(stream);
  EXPECT_CUDA(cudaEventRecord(end, stream));
  EXPECT_CUDA(cudaEventRecord(without, stream));
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
  gate.open = true;
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_CUDA(cudaEventElapsedTime(&ms, start, end));
  EXPECT_GE(ms, 0);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, without),
            cudaErrorInvalidResourceHandle);
}

TEST_F(StandInCuda, TheLegacyStreamWaitsForBlockingStreamsAndTheyForIt) {
  cudaStream_t blocking, free = makeStream();
  EXPECT_CUDA(cudaStreamCreate(&blocking));
  Gate gate;
  gate.close(blocking);
  std::atomic<int> done{0};
  call(nullptr, [&] { done = 1; });
  cudaStream_t other;
  EXPECT_CUDA(cudaStreamCreate(&other));
  call(other, [&] { EXPECT_EQ(done, 1); });
  call(free, [&] { EXPECT_EQ(done, 0); });
  EXPECT_CUDA(cudaStreamSynchronize(free));
  gate.open = true;
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(done, 1);
}

TEST_F(StandInCuda, OneHardwareQueueRunsInHostOrder) {
  for (bool shared : {false, true}) {
    Options options;
    options.queues = shared ? Queues::Shared : Queues::Independent;
    reset(options);
    cudaStream_t a = makeStream(), b = makeStream();
    Gate gate;
    gate.close(a);
    call(b, [] {});
    if (shared)
      EXPECT_EQ(cudaStreamQuery(b), cudaErrorNotReady);
    else
      EXPECT_CUDA(cudaStreamSynchronize(b));
    gate.open = true;
    EXPECT_CUDA(cudaDeviceSynchronize());
  }
}

TEST_F(StandInCuda, StreamsShareHardwareQueuesByTheirNumber) {
  Options options;
  options.queues = Queues::Shared;
  options.connections = 2;
  reset(options);
  cudaStream_t a = makeStream(), b = makeStream(), c = makeStream();
  Gate gate;
  gate.close(a);
  call(b, [] {});
  call(c, [] {});
  EXPECT_CUDA(cudaStreamSynchronize(b));
  EXPECT_EQ(cudaStreamQuery(c), cudaErrorNotReady);
  gate.open = true;
  EXPECT_CUDA(cudaStreamSynchronize(c));
}

TEST_F(StandInCuda, TheHostBlocksOnAFullLaunchQueue) {
  Options options;
  options.launchQueue = 2;
  reset(options);
  cudaStream_t a = makeStream();
  Gate gate;
  gate.close(a);
  call(a, [] {});
  std::atomic<bool> launched{false};
  std::thread other([&] {
    call(a, [] {});
    launched = true;
  });
  // It waits in the launch: report() says so as soon as it does.
  while (report().find("the launch queue is full") == std::string::npos)
    std::this_thread::yield();
  EXPECT_FALSE(launched);
  gate.open = true;
  other.join();
  EXPECT_CUDA(cudaStreamSynchronize(a));
}

TEST_F(StandInCuda, HostFunctionsMayNotCallCuda) {
  cudaStream_t a = makeStream();
  cudaError_t error = cudaSuccess;
  call(a, [&] { error = cudaStreamQuery(a); });
  EXPECT_CUDA(cudaStreamSynchronize(a));
  EXPECT_EQ(error, cudaErrorNotPermitted);
  EXPECT_NE(findings().find("a host function calls cudaStreamQuery"),
            std::string::npos);
}

TEST_F(StandInCuda, HostFunctionsMayRunOneAtATime) {
  for (bool serial : {true, false}) {
    Options options;
    options.serialHostFunctions = serial;
    reset(options);
    std::atomic<int> running{0}, most{0};
    for (int i = 0; i < 4; ++i)
      call(makeStream(), [&] {
        const int now = ++running;
        for (int seen = most; seen < now;)
          if (most.compare_exchange_weak(seen, now))
            break;
        // Alone, or until another one is there.
        while (!serial && most < 2)
          std::this_thread::yield();
        --running;
      });
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(most > 1, !serial);
  }
}

TEST_F(StandInCuda, EveryThreadHasAStreamOfItsOwn) {
  Gate gate;
  gate.close(cudaStreamPerThread);
  std::thread([] {
    call(cudaStreamPerThread, [] {});
    EXPECT_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
  }).join();
  EXPECT_EQ(cudaStreamQuery(cudaStreamPerThread), cudaErrorNotReady);
  gate.open = true;
  EXPECT_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
}

TEST_F(StandInCuda, AllocationsInStreamOrder) {
  cudaStream_t a = makeStream();
  void *p = nullptr;
  EXPECT_CUDA(cudaMallocAsync(&p, 100, a));
  Gate gate;
  gate.close(a);
  EXPECT_CUDA(cudaMemsetAsync(p, 0, 100, a));
  EXPECT_CUDA(cudaFreeAsync(p, a));
  EXPECT_EQ(leaks(), "device memory of 100 bytes\n1 streams\n");
  gate.open = true;
  EXPECT_CUDA(cudaStreamSynchronize(a));
  EXPECT_EQ(leaks(), "1 streams\n");
  // What comes too late is an error that sticks.
  EXPECT_CUDA(cudaMallocAsync(&p, 100, a));
  gate.open = false;
  gate.close(a);
  EXPECT_CUDA(cudaFreeAsync(p, a));
  EXPECT_CUDA(cudaMemsetAsync(p, 0, 100, a));
  gate.open = true;
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorIllegalAddress);
  EXPECT_EQ(findings(), "a fill uses device memory of 100 bytes after its "
                        "release\n");
}

TEST_F(StandInCuda, CopiesAndFills) {
  cudaStream_t a = makeStream();
  void *device = nullptr, *pinned = nullptr;
  EXPECT_CUDA(cudaMalloc(&device, 64));
  EXPECT_CUDA(cudaHostAlloc(&pinned, 64, cudaHostAllocDefault));
  int from[4] = {1, 2, 3, 4}, to[4] = {};
  Gate gate;
  gate.close(a);
  // From pageable memory: staged at once.
  EXPECT_CUDA(
      cudaMemcpyAsync(device, from, sizeof(from), cudaMemcpyHostToDevice, a));
  from[0] = 9;
  gate.open = true;
  // To pageable memory: the host waits.
  EXPECT_CUDA(
      cudaMemcpyAsync(to, device, sizeof(to), cudaMemcpyDeviceToHost, a));
  EXPECT_EQ(to[0], 1);
  EXPECT_EQ(to[3], 4);
  EXPECT_CUDA(cudaMemsetAsync(device, 0, 8, a));
  EXPECT_CUDA(cudaMemcpyAsync(pinned, device, 16, cudaMemcpyDeviceToHost, a));
  EXPECT_CUDA(cudaStreamSynchronize(a));
  EXPECT_EQ(static_cast<int *>(pinned)[1], 0);
  EXPECT_EQ(static_cast<int *>(pinned)[2], 3);
  // Wrong directions and sizes.
  EXPECT_EQ(cudaMemcpy(device, pinned, 16, cudaMemcpyDeviceToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device, pinned, 65, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(device, 0, 65), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaFree(device));
  EXPECT_CUDA(cudaFreeHost(pinned));
  EXPECT_EQ(findings(), "");
  EXPECT_EQ(leaks(), "1 streams\n");
}

TEST_F(StandInCuda, PointerAttributes) {
  void *device = nullptr, *pinned = nullptr;
  int plain = 0;
  EXPECT_CUDA(cudaSetDevice(2));
  EXPECT_CUDA(cudaMalloc(&device, 64));
  EXPECT_CUDA(cudaMallocHost(&pinned, 64));
  cudaPointerAttributes attributes;
  EXPECT_CUDA(cudaPointerGetAttributes(&attributes,
                                       static_cast<std::byte *>(device) + 63));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 2);
  EXPECT_CUDA(cudaPointerGetAttributes(&attributes, pinned));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_CUDA(cudaPointerGetAttributes(&attributes, &plain));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_CUDA(cudaHostRegister(&plain, sizeof(plain), 0));
  EXPECT_CUDA(cudaPointerGetAttributes(&attributes, &plain));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_CUDA(cudaHostUnregister(&plain));
  EXPECT_EQ(cudaHostUnregister(&plain), cudaErrorHostMemoryNotRegistered);
}

TEST_F(StandInCuda, MemoryIsLimitedAndCounted) {
  Options options;
  options.deviceBytes = 1000;
  reset(options);
  void *p = nullptr, *q = nullptr;
  EXPECT_CUDA(cudaMalloc(&p, 600));
  EXPECT_EQ(cudaMalloc(&q, 600), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  size_t free = 0, total = 0;
  EXPECT_CUDA(cudaMemGetInfo(&free, &total));
  EXPECT_EQ(free, 400u);
  EXPECT_EQ(leaks(), "device memory of 600 bytes\n");
  EXPECT_CUDA(cudaFree(p));
  EXPECT_EQ(cudaFree(p), cudaErrorInvalidValue);
  EXPECT_NE(findings().find("released twice"), std::string::npos);
}

#ifndef __SANITIZE_ADDRESS__ // which ends the program at once
TEST_F(StandInCuda, GuardZonesTellWhenBytesOutsideAreWritten) {
  for (int at : {-1, 10}) {
    void *p = nullptr;
    EXPECT_CUDA(cudaMalloc(&p, 10));
    static_cast<char *>(p)[at] = 1;
    EXPECT_NE(findings().find(at < 0 ? "bytes before the begin of device "
                                       "memory of 10 bytes"
                                     : "bytes behind the end of device memory "
                                       "of 10 bytes"),
              std::string::npos);
    EXPECT_CUDA(cudaFree(p));
    reset();
  }
}
TEST_F(StandInCuda, MemoryIsWatchedAfterItsRelease) {
  void *p = nullptr;
  EXPECT_CUDA(cudaMalloc(&p, 10));
  EXPECT_CUDA(cudaFree(p));
  EXPECT_EQ(findings(), "");
  static_cast<char *>(p)[3] = 1;
  EXPECT_EQ(findings(),
            "device memory of 10 bytes was written after its release\n");
}
#endif

TEST_F(StandInCuda, AFailedDeviceFailsEveryCall) {
  cudaStream_t a = makeStream();
  Gate gate;
  gate.close(a);
  bool ran = false;
  EXPECT_CUDA(cudaLaunchHostFunc(
      a, [](void *data) { *static_cast<bool *>(data) = true; }, &ran));
  breakDevice(0, cudaErrorIllegalAddress);
  gate.open = true;
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress); // it sticks
  void *p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, 10), cudaErrorIllegalAddress);
  EXPECT_FALSE(ran);
  EXPECT_CUDA(cudaSetDevice(1)); // the others work
  EXPECT_CUDA(cudaMalloc(&p, 10));
}

TEST_F(StandInCuda, HandlesAreChecked) {
  cudaStream_t a = makeStream();
  cudaEvent_t event = makeEvent();
  EXPECT_CUDA(cudaStreamDestroy(a));
  EXPECT_EQ(cudaStreamDestroy(a), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA(cudaEventDestroy(event));
  EXPECT_EQ(cudaEventRecord(event, nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaSetDevice(8), cudaErrorInvalidDevice);
  EXPECT_EQ(leaks(), "");
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Stands for what nvcc makes of a kernel.
void scale(float *, int, float) {}
void unknown() {}

cudaError_t launchScale(float *p, int n, float factor, cudaStream_t stream) {
  void *args[] = {&p, &n, &factor};
  return cudaLaunchKernel(reinterpret_cast<const void *>(&scale), dim3(2),
                          dim3(4), args, 0, stream);
}

TEST_F(StandInCuda, KernelsRunTheirBodiesWithTheArgumentsOfTheLaunch) {
  registerKernel<void(float *, int, float)>(
      reinterpret_cast<const void *>(&scale),
      [](const Launch &launch, float *p, int n, float factor) {
        forEachThread(launch, [&](dim3 block, dim3 thread) {
          const int i = static_cast<int>(block.x * launch.block.x + thread.x);
          if (i < n)
            p[i] *= factor;
        });
      });
  cudaStream_t a = makeStream();
  void *memory = nullptr;
  EXPECT_CUDA(cudaMalloc(&memory, 8 * sizeof(float)));
  auto *p = static_cast<float *>(memory);
  std::fill_n(p, 8, 1.0f);
  Gate gate;
  gate.close(a);
  EXPECT_CUDA(launchScale(p, 7, 2, a));
  EXPECT_CUDA(launchScale(p, 1, 5, a));
  gate.open = true;
  EXPECT_CUDA(cudaStreamSynchronize(a));
  EXPECT_EQ(p[0], 10);
  EXPECT_EQ(p[6], 2);
  EXPECT_EQ(p[7], 1);
}

TEST_F(StandInCuda, AMissingKernelIsAnError) {
  EXPECT_EQ(cudaLaunchKernel(reinterpret_cast<const void *>(&unknown), dim3(1),
                             dim3(1), nullptr, 0, nullptr),
            cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDeviceFunction);
  EXPECT_NE(findings().find("no kernel is known by the pointer"),
            std::string::npos);
  cudaFuncAttributes attributes;
  EXPECT_EQ(cudaFuncGetAttributes(&attributes,
                                  reinterpret_cast<const void *>(&unknown)),
            cudaErrorInvalidDeviceFunction);
}

TEST_F(StandInCuda, TheFirstLaunchOfAKernelMayWaitForTheDevice) {
  registerKernel<void()>(reinterpret_cast<const void *>(&unknown),
                         [](const Launch &) {});
  for (bool preloaded : {false, true}) {
    Options options;
    options.lazyLoading = true;
    reset(options);
    cudaStream_t a = makeStream(), b = makeStream();
    if (preloaded) {
      cudaFuncAttributes attributes;
      EXPECT_CUDA(cudaFuncGetAttributes(
          &attributes, reinterpret_cast<const void *>(&unknown)));
    }
    Gate gate;
    gate.close(a);
    std::atomic<bool> launched{false};
    std::thread other([&] {
      cudaLaunchConfig_t config = {};
      config.gridDim = config.blockDim = dim3(1);
      config.stream = b;
      EXPECT_CUDA(cudaLaunchKernelExC(
          &config, reinterpret_cast<const void *>(&unknown), nullptr));
      launched = true;
    });
    if (!preloaded) {
      while (report().find("the first launch of a kernel") == std::string::npos)
        std::this_thread::yield();
      EXPECT_FALSE(launched);
      gate.open = true;
    }
    other.join();
    EXPECT_TRUE(launched);
    gate.open = true;
    EXPECT_CUDA(cudaDeviceSynchronize());
  }
}

TEST_F(StandInCuda, WrongConfigurationsAreErrors) {
  registerKernel<void()>(reinterpret_cast<const void *>(&unknown),
                         [](const Launch &) {});
  auto launch = [](dim3 grid, dim3 block) {
    return cudaLaunchKernel(reinterpret_cast<const void *>(&unknown), grid,
                            block, nullptr, 0, nullptr);
  };
  EXPECT_EQ(launch(dim3(0), dim3(1)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1), dim3(1025)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 65536), dim3(1)), cudaErrorInvalidConfiguration);
  EXPECT_CUDA(launch(dim3(1), dim3(1024)));
  EXPECT_CUDA(cudaDeviceSynchronize());
}

//===----------------------------------------------------------------------===//
// Injected errors
//===----------------------------------------------------------------------===//

TEST_F(StandInCuda, TheNthCallOfAFunctionFails) {
  fail("cudaMalloc", 2, cudaErrorMemoryAllocation);
  void *p = nullptr, *q = nullptr;
  EXPECT_CUDA(cudaMalloc(&p, 10));
  EXPECT_FALSE(hasFailed());
  EXPECT_EQ(cudaMalloc(&q, 10), cudaErrorMemoryAllocation);
  EXPECT_TRUE(hasFailed());
  EXPECT_EQ(q, nullptr);
  EXPECT_CUDA(cudaMalloc(&q, 10));
  EXPECT_EQ(numCalls("cudaMalloc"), 3u);
  fail("cudaFree", 1, cudaErrorUnknown);
  EXPECT_EQ(cudaFree(p), cudaErrorUnknown); // and still releases
  EXPECT_CUDA(cudaFree(q));
  EXPECT_EQ(leaks(), "");
}

/// Code that handles every error.
cudaError_t careful(cudaStream_t stream) {
  void *p = nullptr;
  cudaEvent_t event = nullptr;
  cudaError_t error = cudaMalloc(&p, 64);
  if (error == cudaSuccess)
    error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  if (error == cudaSuccess)
    error = cudaMemsetAsync(p, 0, 64, stream);
  if (error == cudaSuccess)
    error = cudaEventRecord(event, stream);
  if (error == cudaSuccess)
    error = cudaEventSynchronize(event);
  if (event) {
    const cudaError_t destroyed = cudaEventDestroy(event);
    error = error == cudaSuccess ? destroyed : error;
  }
  const cudaError_t freed = cudaFree(p);
  return error == cudaSuccess ? freed : error;
}

TEST_F(StandInCuda, ATestCanLoopOverAllCalls) {
  cudaStream_t stream = makeStream();
  uint64_t before = numCalls();
  EXPECT_CUDA(careful(stream));
  const uint64_t calls = numCalls() - before;
  EXPECT_EQ(calls, 7u);
  for (uint64_t n = 1; n <= calls; ++n) {
    failAny(n, cudaErrorNotPermitted);
    EXPECT_EQ(careful(stream), cudaErrorNotPermitted) << n;
    EXPECT_EQ(leaks(), "1 streams\n") << n;
  }
  EXPECT_CUDA(careful(stream));
}

TEST_F(StandInCuda, WithoutADevice) {
  Options options;
  options.devices = 0;
  reset(options);
  int count = -1;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorInvalidDevice);
}

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

TEST_F(StandInCuda, DelaysDoNotChangeResults) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Options options;
    options.seed = seed;
    options.maxDelay = 200;
    reset(options);
    cudaStream_t streams[3] = {makeStream(), makeStream(), makeStream()};
    cudaEvent_t event = makeEvent();
    std::vector<int> order;
    for (int i = 0; i < 12; ++i) {
      cudaStream_t stream = streams[i % 3];
      EXPECT_CUDA(cudaStreamWaitEvent(stream, event, 0));
      call(stream, [&order, i] { order.push_back(i); });
      EXPECT_CUDA(cudaEventRecord(event, stream));
    }
    EXPECT_CUDA(cudaDeviceSynchronize());
    std::vector<int> expected(12);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(order, expected);
  }
}

} // namespace
