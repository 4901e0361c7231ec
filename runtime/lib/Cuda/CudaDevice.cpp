//===- CudaDevice.cpp - A queue is a stream -------------------------------===//

#include "CudaDevice.h"

#include "../Core/BackOff.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define PENSTOCK_WITH_NVTX
#endif

#include <algorithm>
#include <thread>

namespace penstock::runtime {

CudaDevice::~CudaDevice() {
  // Stamps may be on their way.
  abort();
  (void)synchronize();
  {
    std::lock_guard lock(rank->inside);
    rank->dropGraph();
  }
  for (cudaEvent_t event : events)
    cudaEventDestroy(event);
  for (cudaEvent_t event : joinEvents)
    cudaEventDestroy(event);
  if (forkEvent)
    cudaEventDestroy(forkEvent);
  for (cudaStream_t queue : queues)
    cudaStreamDestroy(queue);
  if (arena && ncclMemory)
    ncclMemFree(arena);
  else if (arena)
    cudaFree(arena);
  if (hostArena)
    cudaFreeHost(hostArena);
}

//===----------------------------------------------------------------------===//
// Preparation
//===----------------------------------------------------------------------===//

Result<unsigned> CudaDevice::addQueue(unsigned) {
  if (!failure.empty()) // of addEvent
    return Failure{failure};
  cudaStream_t queue = nullptr;
  if (!check("cudaSetDevice", rank->bind()) ||
      !check("cudaStreamCreateWithFlags",
             cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking)))
    return Failure{failure};
  queues.push_back(queue);
  return static_cast<unsigned>(queues.size() - 1);
}

Result<cudaEvent_t> CudaDevice::makeEvent() {
  cudaEvent_t event = nullptr;
  if (!check("cudaSetDevice", rank->bind()) ||
      !check("cudaEventCreateWithFlags",
             cudaEventCreateWithFlags(&event, cudaEventDisableTiming)))
    return Failure{fault()};
  return event;
}

Event CudaDevice::addEvent() {
  auto event = makeEvent();
  events.push_back(event ? *event : nullptr);
  return static_cast<Event>(events.size() - 1);
}

Result<std::byte *> CudaDevice::allocateArena(int64_t bytes) {
  const size_t size = std::max<size_t>(bytes, kSlotAlignment);
  void *memory = nullptr;
  if (!check("cudaSetDevice", rank->bind()))
    return Failure{failure};
  if (ncclMemory) {
    if (const ncclResult_t code = ncclMemAlloc(&memory, size);
        code != ncclSuccess)
      return Failure{ncclError("ncclMemAlloc", code, nullptr).message};
    rank->registered = static_cast<std::byte *>(memory);
    rank->registeredBytes = size;
  } else if (const cudaError_t code = cudaMalloc(&memory, size);
             code != cudaSuccess) {
    cudaGetLastError();
    return Failure{"an arena of " + std::to_string(bytes) +
                   " bytes: " + describeCuda("cudaMalloc", code)};
  }
  arena = static_cast<std::byte *>(memory);
  // The queues do not wait for the stream that this is on.
  if (!check("cudaMemset", cudaMemset(memory, 0, size)) ||
      !check("cudaDeviceSynchronize", cudaDeviceSynchronize()))
    return Failure{failure};
  return arena;
}

Result<std::byte *> CudaDevice::allocateHostArena(int64_t bytes) {
  if (!check("cudaSetDevice", rank->bind()))
    return Failure{failure};
  if (const cudaError_t code =
          cudaMallocHost(&hostArena, std::max<size_t>(bytes, kSlotAlignment));
      code != cudaSuccess) {
    cudaGetLastError();
    hostArena = nullptr;
    return Failure{"an arena of " + std::to_string(bytes) +
                   " bytes in host memory, for offloaded stashes: " +
                   describeCuda("cudaMallocHost", code)};
  }
  return static_cast<std::byte *>(hostArena);
}

//===----------------------------------------------------------------------===//
// The step
//===----------------------------------------------------------------------===//

void CudaDevice::fail(std::string why) {
  if (fault().empty())
    fault() = std::move(why);
}

/// Keeps what a call has returned if it is an error.
bool CudaDevice::check(std::string_view call, cudaError_t code) {
  if (code == cudaSuccess)
    return true;
  cudaGetLastError(); // so that nobody else takes it for his
  fail(describeCuda(call, code));
  return false;
}

/// Whether anything is to be issued yet.
bool CudaDevice::accepts() {
  return !aborted && fault().empty() && check("cudaSetDevice", rank->bind());
}

void CudaDevice::enqueue(unsigned queue, Work work) {
  if (!accepts())
    return;
  try {
    work(queues[queue]);
  } catch (...) {
    return fail("work on a queue threw: " + describeCurrentException());
  }
  check("a launch", cudaGetLastError());
}

void CudaDevice::record(unsigned queue, Event event) {
  if (accepts())
    check("cudaEventRecord", cudaEventRecord(events[event], queues[queue]));
}

void CudaDevice::wait(unsigned queue, Event event) {
  if (accepts())
    check("cudaStreamWaitEvent",
          cudaStreamWaitEvent(queues[queue], events[event], 0));
}

void CudaDevice::call(cudaHostFn_t function, void *nativeQueue,
                      const Mark &mark) {
  if (aborted || !fault().empty())
    return;
  Mark *kept = nullptr;
  if (capturing) {
    kept = &captured.emplace_back(mark);
  } else {
    if (numMarks == marks.size())
      marks.emplace_back();
    kept = &marks[numMarks++];
    *kept = mark;
  }
  check("cudaLaunchHostFunc",
        cudaLaunchHostFunc(static_cast<cudaStream_t>(nativeQueue), function,
                           kept));
}

void CudaDevice::stamp(void *nativeQueue, std::atomic<int64_t> &time,
                       std::atomic<uint64_t> &count) {
  call(writeStamp, nativeQueue, {this, &time, &count});
}

void CudaDevice::copy(void *nativeQueue, std::byte *to, const std::byte *from,
                      size_t bytes) {
  if (bytes > 0 && !aborted && fault().empty())
    check("cudaMemcpyAsync",
          cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault,
                          static_cast<cudaStream_t>(nativeQueue)));
}

void CudaDevice::pause(void *nativeQueue, const std::atomic<int64_t> &since,
                       std::chrono::nanoseconds time) {
  call(sleep, nativeQueue, {this, nullptr, nullptr, &since, time});
}

static std::chrono::nanoseconds now() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

void CudaDevice::writeStamp(void *data) {
  const Mark &mark = *static_cast<const Mark *>(data);
  // After an abort transfers end without having happened.
  if (mark.device->aborted)
    return;
  mark.time->store(now().count(), std::memory_order_release);
  mark.count->fetch_add(1);
}

void CudaDevice::sleep(void *data) {
  const Mark &mark = *static_cast<const Mark *>(data);
  const auto end = std::chrono::nanoseconds(mark.since->load()) + mark.pause;
  // In pieces, so that an abort is noticed.
  constexpr std::chrono::nanoseconds piece = std::chrono::milliseconds(2);
  for (auto left = end - now(); left.count() > 0 && !mark.device->aborted;
       left = end - now())
    std::this_thread::sleep_for(std::min(left, piece));
}

/// Whether all queues are; true when CUDA is broken and they will never be.
bool CudaDevice::isIdle() {
  for (cudaStream_t queue : queues) {
    if (isBroken)
      break;
    const cudaError_t code = cudaStreamQuery(queue);
    if (code == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    if (code != cudaSuccess) {
      // Errors of kernels stay, and end the streams of the process.
      cudaGetLastError();
      fail(describeCuda("cudaStreamQuery", code));
      isBroken = true;
    }
  }
  return true;
}

Status CudaDevice::synchronize() {
  if (!check("cudaSetDevice", rank->bind()))
    return Failure{failure};
  for (unsigned round = 0; !isIdle(); ++round) {
    if (aborted || !failure.empty())
      rank->abortTransport(); // its kernels wait for others
    else if (Error error = rank->checkTransport();
             error && error.kind != ErrorKind::Aborted)
      fail(error.message);
    backOff(round);
  }
  if (failure.empty() && !aborted)
    if (Error error = rank->checkTransport();
        error && error.kind != ErrorKind::Aborted)
      fail(error.message);
  numMarks = 0;
  if (!failure.empty())
    return Failure{failure};
  if (aborted)
    return Failure{"the device was aborted"};
  return success();
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

/// What comes on the second stream comes after all that is on the first.
void CudaDevice::order(cudaStream_t first, cudaStream_t second,
                       cudaEvent_t event) {
  check("cudaEventRecord", cudaEventRecord(event, first)) &&
      check("cudaStreamWaitEvent", cudaStreamWaitEvent(second, event, 0));
}

Status CudaDevice::capture(const std::function<void()> &issue) {
  if (!accepts() || queues.empty())
    return Failure{failure.empty() ? "the device was aborted" : failure};
  capturing = true;
  captureFault.clear();
  captured.clear();
  while (joinEvents.size() + 1 < queues.size() || !forkEvent) {
    auto event = makeEvent();
    if (!event)
      break;
    if (forkEvent)
      joinEvents.push_back(*event);
    else
      forkEvent = *event;
  }
  // Other threads of this process may make calls meanwhile that a capture does
  // not allow: NCCL's, other ranks, the user's.
  if (captureFault.empty() &&
      check("cudaStreamBeginCapture",
            cudaStreamBeginCapture(queues[0],
                                   cudaStreamCaptureModeThreadLocal))) {
    for (size_t q = 1; q < queues.size(); ++q)
      order(queues[0], queues[q], forkEvent);
    issue();
    for (size_t q = 1; q < queues.size(); ++q)
      order(queues[q], queues[0], joinEvents[q - 1]);
    cudaGraph_t made = nullptr;
    cudaGraphExec_t ready = nullptr;
    if (check("cudaStreamEndCapture", cudaStreamEndCapture(queues[0], &made)) &&
        captureFault.empty() &&
        check("cudaGraphInstantiate", cudaGraphInstantiate(&ready, made, 0))) {
      std::lock_guard lock(rank->inside);
      rank->dropGraph();
      rank->graph = ready;
    }
    if (made)
      cudaGraphDestroy(made);
  }
  capturing = false;
  if (!captureFault.empty())
    return Failure{captureFault};
  if (aborted)
    return Failure{"the device was aborted"};
  return success();
}

void CudaDevice::replay() {
  {
    std::lock_guard lock(rank->inside);
    if (accepts() && rank->graph)
      check("cudaGraphLaunch", cudaGraphLaunch(rank->graph, queues[0]));
  }
  if (aborted)
    rank->abortTransport(); // which could not get in meanwhile
}

//===----------------------------------------------------------------------===//
// Ranges
//===----------------------------------------------------------------------===//

#ifdef PENSTOCK_WITH_NVTX
// Without a profiler these calls do nothing.
bool CudaDevice::showsRanges() const {
  nvtxInitialize(nullptr); // or the first ranks to begin a range race to do so
  return true;
}
void CudaDevice::beginRange(const char *name) { nvtxRangePushA(name); }
void CudaDevice::endRange() { nvtxRangePop(); }
#else
bool CudaDevice::showsRanges() const { return false; }
void CudaDevice::beginRange(const char *) {}
void CudaDevice::endRange() {}
#endif

} // namespace penstock::runtime
