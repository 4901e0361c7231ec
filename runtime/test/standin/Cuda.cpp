//===- Cuda.cpp - The CUDA runtime of the stand-in ------------------------===//
//
// The functions of cuda_runtime.h, but for graphs (Graph.cpp).
//
//===----------------------------------------------------------------------===//

#include "CudaCall.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <unordered_map>

using namespace penstock::standin;

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

static CUstream_st *makeStream(World &world, int device, unsigned flags,
                               int priority) {
  auto *stream = new CUstream_st;
  Device &dev = world.devices[device];
  stream->number = static_cast<uint64_t>(device) * 1000 + dev.numStreams;
  stream->device = device;
  stream->flags = flags;
  stream->priority = priority;
  stream->queue = dev.numStreams++ % std::max(world.options.connections, 1u);
  world.streams.insert(stream);
  return stream;
}

CUstream_st *World::stream(cudaStream_t handle, Thread &t) {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    CUstream_st *&null = devices[t.device].nullStream;
    if (!null)
      null = makeStream(*this, t.device, 0, 0);
    return null;
  }
  if (handle == cudaStreamPerThread) {
    if (!t.perThread || t.perThread->device != t.device)
      t.perThread = makeStream(*this, t.device, 0, 0);
    return t.perThread;
  }
  return streams.count(handle) ? handle : nullptr;
}

bool World::waitForRoom(Lock &lock, int device) {
  if (options.launchQueue == 0)
    return true;
  auto hasRoom = [this, device] {
    return devices[device].pendingLaunches < options.launchQueue;
  };
  if (hasRoom())
    return true;
  std::vector<OpRef> launches;
  for (const auto &[number, op] : pending)
    if (op->isLaunch && op->device == device)
      launches.push_back(op);
  return wait(lock, "a launch, because the launch queue is full", hasRoom,
              std::move(launches));
}

cudaError_t World::enqueue(Lock &lock, std::span<CUstream_st *const> on,
                           const OpSpec &spec, OpRef *made) {
  const int device = on[0]->device;
  if (devices[device].broken != cudaSuccess)
    return devices[device].broken;
  Capture *capture = nullptr;
  for (CUstream_st *s : on) {
    if (s->inProgress)
      find(spec.what + " uses a stream while a group of a communicator that "
                       "does not block is in progress there: first poll "
                       "ncclCommGetAsyncError");
    if (s == devices[device].nullStream)
      if (cudaError_t error = useOfLegacyStream(device); error != cudaSuccess)
        return error;
    if (s->capture)
      capture = s->capture.get();
  }
  if (capture) {
    bool isolated = false;
    for (CUstream_st *s : on)
      isolated |= s->capture.get() != capture;
    if (isolated)
      capture->invalid = true;
    if (capture->invalid)
      return isolated ? cudaErrorStreamCaptureIsolation
                      : cudaErrorStreamCaptureInvalidated;
    addNode(*capture, on, {spec, device, nullptr, nullptr, {}});
    return cudaSuccess;
  }
  if (spec.isLaunch && !waitForRoom(lock, device))
    return cudaErrorUnknown;
  if (devices[device].broken != cudaSuccess)
    return devices[device].broken;
  std::vector<OpRef> more;
  for (Resource *resource : spec.resources)
    more.push_back(lastOf(resource));
  OpRef op = submit(on, device, spec, std::move(more),
                    spec.makeItem ? spec.makeItem(false) : nullptr);
  for (Resource *resource : spec.resources)
    lastOf(resource) = op;
  if (made)
    *made = op;
  return cudaSuccess;
}

std::vector<OpRef> World::lastOps(int device, bool onlyBlocking) {
  std::vector<OpRef> ops;
  for (CUstream_st *s : streams)
    if (s->device == device && s->last && !s->last->done &&
        !(onlyBlocking && (s->flags & cudaStreamNonBlocking)))
      ops.push_back(s->last);
  return ops;
}

/// Waits for operations. False after a deadlock.
static bool waitFor(World &world, Lock &lock, std::string what,
                    std::vector<OpRef> ops) {
  auto done = [ops] {
    return std::all_of(ops.begin(), ops.end(),
                       [](const OpRef &op) { return !op || op->done; });
  };
  return world.wait(lock, std::move(what), done, ops);
}

static std::vector<OpRef> opsOf(World &world, CUstream_st *stream) {
  if (stream == world.devices[stream->device].nullStream)
    return world.lastOps(stream->device, true);
  return stream->last ? std::vector<OpRef>{stream->last} : std::vector<OpRef>{};
}

/// The functions that make a stream.
static cudaError_t createStream(const char *function, cudaStream_t *stream,
                                unsigned flags = 0, int priority = 0) {
  return cuda(function, [&](World &world, Lock &, Thread &t) {
    if (!stream || (flags & ~cudaStreamNonBlocking))
      return cudaErrorInvalidValue;
    if (cudaError_t broken = world.devices[t.device].broken)
      return broken;
    *stream = makeStream(world, t.device, flags, priority);
    return cudaSuccess;
  });
}

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags,
                                         int priority) {
  return createStream("cudaStreamCreateWithPriority", stream, flags, priority);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return createStream("cudaStreamCreateWithFlags", stream, flags);
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  return createStream("cudaStreamCreate", stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return cuda(
      "cudaStreamDestroy",
      [&](World &world, Lock &, Thread &) {
        if (!world.streams.count(stream) ||
            stream == world.devices[stream->device].nullStream)
          return cudaErrorInvalidResourceHandle;
        if (stream->capture)
          world.leaveCapture(stream);
        world.streams.erase(stream);
        world.graveyard.push_back(std::shared_ptr<CUstream_st>(stream));
        return cudaSuccess;
      },
      kReleases);
}
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority) {
  return cuda("cudaStreamGetPriority", [&](World &world, Lock &, Thread &t) {
    CUstream_st *stream = world.stream(handle, t);
    if (!stream)
      return cudaErrorInvalidResourceHandle;
    *priority = stream->priority;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned *flags) {
  return cuda("cudaStreamGetFlags", [&](World &world, Lock &, Thread &t) {
    CUstream_st *stream = world.stream(handle, t);
    if (!stream)
      return cudaErrorInvalidResourceHandle;
    *flags = stream->flags;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long *id) {
  return cuda("cudaStreamGetId", [&](World &world, Lock &, Thread &t) {
    CUstream_st *stream = world.stream(handle, t);
    if (!stream)
      return cudaErrorInvalidResourceHandle;
    *id = stream->number;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *device) {
  return cuda("cudaStreamGetDevice", [&](World &world, Lock &, Thread &t) {
    CUstream_st *stream = world.stream(handle, t);
    if (!stream)
      return cudaErrorInvalidResourceHandle;
    *device = stream->device;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return cuda("cudaStreamSynchronize", [&](World &world, Lock &lock,
                                           Thread &t) {
    CUstream_st *stream = world.stream(handle, t);
    if (!stream)
      return cudaErrorInvalidResourceHandle;
    if (stream->capture) {
      stream->capture->invalid = true;
      return cudaErrorStreamCaptureUnsupported;
    }
    const int device = stream->device;
    if (!waitFor(world, lock, "cudaStreamSynchronize", opsOf(world, stream)))
      return cudaErrorUnknown;
    return world.devices[device].broken;
  });
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return cuda(
      "cudaStreamQuery",
      [&](World &world, Lock &, Thread &t) {
        CUstream_st *stream = world.stream(handle, t);
        if (!stream)
          return cudaErrorInvalidResourceHandle;
        if (stream->capture) {
          stream->capture->invalid = true;
          return cudaErrorStreamCaptureUnsupported;
        }
        if (world.devices[stream->device].broken != cudaSuccess)
          return world.devices[stream->device].broken;
        world.settle();
        for (const OpRef &op : opsOf(world, stream))
          if (!op->done) {
            world.poll(t);
            return cudaErrorNotReady;
          }
        return cudaSuccess;
      },
      kLooks);
}
cudaError_t cudaDeviceSynchronize() {
  return cuda("cudaDeviceSynchronize", [&](World &world, Lock &lock,
                                           Thread &t) {
    cudaError_t error = cudaSuccess;
    for (const auto &capture : world.captures)
      if (capture->origin->device == t.device) {
        capture->invalid = true;
        error = cudaErrorStreamCaptureUnsupported;
      }
    if (error == cudaSuccess && !waitFor(world, lock, "cudaDeviceSynchronize",
                                         world.lastOps(t.device, false)))
      error = cudaErrorUnknown;
    return error;
  });
}

//===----------------------------------------------------------------------===//
// Events
//===----------------------------------------------------------------------===//

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  return cuda("cudaEventCreateWithFlags", [&](World &world, Lock &, Thread &t) {
    if (!event || (flags & ~(cudaEventBlockingSync | cudaEventDisableTiming |
                             cudaEventInterprocess)))
      return cudaErrorInvalidValue;
    if (cudaError_t broken = world.devices[t.device].broken)
      return broken;
    *event = new CUevent_st;
    (*event)->flags = flags;
    (*event)->device = t.device;
    world.events.insert(*event);
    return cudaSuccess;
  });
}
cudaError_t cudaEventCreate(cudaEvent_t *event) {
  return cuda("cudaEventCreate", [&](World &world, Lock &, Thread &t) {
    if (!event)
      return cudaErrorInvalidValue;
    if (cudaError_t broken = world.devices[t.device].broken)
      return broken;
    *event = new CUevent_st;
    (*event)->device = t.device;
    world.events.insert(*event);
    return cudaSuccess;
  });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return cuda(
      "cudaEventDestroy",
      [&](World &world, Lock &, Thread &) {
        if (!world.events.erase(event))
          return cudaErrorInvalidResourceHandle;
        world.graveyard.push_back(std::shared_ptr<CUevent_st>(event));
        return cudaSuccess;
      },
      kReleases);
}

static cudaError_t record(World &world, Lock &lock, Thread &t,
                          cudaEvent_t event, cudaStream_t handle,
                          unsigned flags) {
  CUstream_st *stream = world.stream(handle, t);
  if (!stream || !world.events.count(event))
    return cudaErrorInvalidResourceHandle;
  if (stream->device != event->device)
    return cudaErrorInvalidResourceHandle;
  if (flags & ~cudaEventRecordExternal)
    return cudaErrorInvalidValue;
  if (stream->capture) {
    if (stream->capture->invalid)
      return cudaErrorStreamCaptureInvalidated;
    if (flags & cudaEventRecordExternal) {
      world.addNode(
          *stream->capture, {&stream, 1},
          {{.what = "cudaEventRecord"}, stream->device, event, nullptr, {}});
      return cudaSuccess;
    }
    event->capture = stream->capture;
    event->nodes = stream->tail;
    return cudaSuccess;
  }
  if (flags & cudaEventRecordExternal)
    return cudaErrorIllegalState;
  OpRef op;
  const cudaError_t error = world.enqueue(
      lock, {&stream, 1}, {.what = "cudaEventRecord", .isLaunch = false}, &op);
  if (error != cudaSuccess)
    return error;
  event->recorded = op;
  event->capture = nullptr;
  event->nodes.clear();
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cuda("cudaEventRecord", [&](World &world, Lock &lock, Thread &t) {
    return record(world, lock, t, event, stream, 0);
  });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                     unsigned flags) {
  return cuda("cudaEventRecordWithFlags",
              [&](World &world, Lock &lock, Thread &t) {
                return record(world, lock, t, event, stream, flags);
              });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event,
                                unsigned flags) {
  return cuda("cudaStreamWaitEvent", [&](World &world, Lock &lock, Thread &t) {
    CUstream_st *stream = world.stream(handle, t);
    if (!stream || !world.events.count(event))
      return cudaErrorInvalidResourceHandle;
    if (flags & ~cudaEventWaitExternal)
      return cudaErrorInvalidValue;
    if (stream->capture || event->capture)
      return world.waitInCapture(stream, event, flags);
    if (flags & cudaEventWaitExternal)
      return cudaErrorIllegalState;
    if (!event->recorded)
      return cudaSuccess;
    OpRef after = event->recorded; // a new record changes nothing
    if (cudaError_t broken = world.devices[stream->device].broken)
      return broken;
    if (stream == world.devices[stream->device].nullStream)
      if (cudaError_t error = world.useOfLegacyStream(stream->device);
          error != cudaSuccess)
        return error;
    (void)lock;
    world.submit({&stream, 1}, stream->device,
                 {.what = "cudaStreamWaitEvent", .isLaunch = false}, {after},
                 nullptr);
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return cuda(
      "cudaEventQuery",
      [&](World &world, Lock &, Thread &t) {
        if (!world.events.count(event))
          return cudaErrorInvalidResourceHandle;
        if (event->capture)
          return world.useOfCapturedEvent(event);
        if (world.devices[event->device].broken != cudaSuccess)
          return world.devices[event->device].broken;
        world.settle();
        if (event->recorded && !event->recorded->done) {
          world.poll(t);
          return cudaErrorNotReady;
        }
        return cudaSuccess;
      },
      kLooks);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return cuda("cudaEventSynchronize", [&](World &world, Lock &lock, Thread &) {
    if (!world.events.count(event))
      return cudaErrorInvalidResourceHandle;
    if (event->capture)
      return world.useOfCapturedEvent(event);
    const int device = event->device;
    if (event->recorded &&
        !waitFor(world, lock, "cudaEventSynchronize", {event->recorded}))
      return cudaErrorUnknown;
    return world.devices[device].broken;
  });
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start,
                                 cudaEvent_t end) {
  return cuda("cudaEventElapsedTime", [&](World &world, Lock &, Thread &) {
    if (!world.events.count(start) || !world.events.count(end) ||
        !start->recorded || !end->recorded ||
        ((start->flags | end->flags) & cudaEventDisableTiming))
      return cudaErrorInvalidResourceHandle;
    if (!ms)
      return cudaErrorInvalidValue;
    if (!start->recorded->done || !end->recorded->done)
      return cudaErrorNotReady;
    *ms = static_cast<float>(end->recorded->endTime - start->recorded->endTime);
    return cudaSuccess;
  });
}

//===----------------------------------------------------------------------===//
// Host functions
//===----------------------------------------------------------------------===//

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t fn,
                               void *data) {
  return cuda("cudaLaunchHostFunc", [&](World &world, Lock &lock, Thread &t) {
    CUstream_st *stream = world.stream(handle, t);
    if (!stream)
      return cudaErrorInvalidResourceHandle;
    if (!fn)
      return cudaErrorInvalidValue;
    OpSpec spec;
    spec.what = "a host function";
    spec.isHostFunction = true;
    spec.work = [fn, data] {
      InsideOperation inside("a host function");
      fn(data);
      return cudaSuccess;
    };
    return world.enqueue(lock, {&stream, 1}, spec);
  });
}
cudaError_t cudaStreamAddCallback(cudaStream_t handle,
                                  cudaStreamCallback_t callback, void *data,
                                  unsigned flags) {
  return cuda("cudaStreamAddCallback",
              [&](World &world, Lock &lock, Thread &t) {
                CUstream_st *stream = world.stream(handle, t);
                if (!stream)
                  return cudaErrorInvalidResourceHandle;
                if (!callback || flags)
                  return cudaErrorInvalidValue;
                if (stream->capture) {
                  stream->capture->invalid = true;
                  return cudaErrorStreamCaptureUnsupported;
                }
                OpSpec spec;
                spec.what = "a callback";
                spec.isHostFunction = true;
                spec.work = [callback, data, handle] {
                  InsideOperation inside("a callback");
                  callback(handle, cudaSuccess, data);
                  return cudaSuccess;
                };
                return world.enqueue(lock, {&stream, 1}, spec);
              });
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static cudaError_t allocateOn(World &world, Lock &lock, Thread &t, void **p,
                              size_t size, Allocation::Kind kind) {
  if (!p)
    return cudaErrorInvalidValue;
  if (cudaError_t error = world.forbidInCapture(t); error != cudaSuccess)
    return error;
  Device &device = world.devices[t.device];
  if (device.broken != cudaSuccess)
    return device.broken;
  if (world.options.mallocSynchronizes &&
      !waitFor(world, lock, "an allocation, which waits for the device",
               world.lastOps(t.device, false)))
    return cudaErrorUnknown;
  *p = nullptr;
  if (size == 0)
    return cudaSuccess;
  if (kind == Allocation::DeviceMemory) {
    if (size > world.options.deviceBytes - device.usedBytes)
      return cudaErrorMemoryAllocation;
    device.usedBytes += size;
  }
  *p = world.allocate(size, kind, t.device, false);
  return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
static cudaError_t freeOn(World &world, Lock &lock, Thread &t, void *p,
                          Allocation::Kind kind) {
  if (!p)
    return cudaSuccess;
  const cudaError_t forbidden = world.forbidInCapture(t);
  if (forbidden != cudaSuccess)
    return forbidden;
  auto it = world.memory.find(reinterpret_cast<uintptr_t>(p));
  if (it == world.memory.end() || it->second.kind != kind ||
      it->second.isNccl || it->second.freed) {
    if (it != world.memory.end() && it->second.freed)
      world.find("memory is released twice");
    return cudaErrorInvalidValue;
  }
  const int device = it->second.device;
  if (!waitFor(world, lock, "cudaFree, which waits for the device",
               world.lastOps(device, false)))
    return cudaErrorUnknown;
  it = world.memory.find(reinterpret_cast<uintptr_t>(p));
  world.release(it);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t size) {
  return cuda("cudaMalloc", [&](World &world, Lock &lock, Thread &t) {
    return allocateOn(world, lock, t, p, size, Allocation::DeviceMemory);
  });
}
cudaError_t cudaFree(void *p) {
  return cuda(
      "cudaFree",
      [&](World &world, Lock &lock, Thread &t) {
        return freeOn(world, lock, t, p, Allocation::DeviceMemory);
      },
      kReleases);
}
cudaError_t cudaMallocAsync(void **p, size_t size, cudaStream_t handle) {
  return cuda("cudaMallocAsync", [&](World &world, Lock &, Thread &t) {
    CUstream_st *stream = world.stream(handle, t);
    if (!stream)
      return cudaErrorInvalidResourceHandle;
    Device &device = world.devices[stream->device];
    if (device.broken != cudaSuccess)
      return device.broken;
    if (!p)
      return cudaErrorInvalidValue;
    if (stream->capture) {
      stream->capture->invalid = true;
      return cudaErrorStreamCaptureUnsupported; // not modelled
    }
    if (size > world.options.deviceBytes - device.usedBytes)
      return cudaErrorMemoryAllocation;
    device.usedBytes += size;
    *p = world.allocate(size, Allocation::DeviceMemory, stream->device, false);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}
cudaError_t cudaFreeAsync(void *p, cudaStream_t handle) {
  return cuda(
      "cudaFreeAsync",
      [&](World &world, Lock &lock, Thread &t) {
        CUstream_st *stream = world.stream(handle, t);
        if (!stream)
          return cudaErrorInvalidResourceHandle;
        const auto address = reinterpret_cast<uintptr_t>(p);
        auto it = world.memory.find(address);
        if (it == world.memory.end() || it->second.freed ||
            it->second.kind != Allocation::DeviceMemory)
          return cudaErrorInvalidValue;
        OpSpec spec;
        spec.what = "cudaFreeAsync";
        spec.work = [address] {
          World &world = World::get();
          Lock lock(world.mutex);
          auto it = world.memory.find(address);
          if (it != world.memory.end() && !it->second.freed)
            world.release(it);
          return cudaSuccess;
        };
        return world.enqueue(lock, {&stream, 1}, spec);
      },
      kReleases);
}
cudaError_t cudaHostAlloc(void **p, size_t size, unsigned) {
  return cuda("cudaHostAlloc", [&](World &world, Lock &lock, Thread &t) {
    return allocateOn(world, lock, t, p, size, Allocation::Host);
  });
}
cudaError_t cudaMallocHost(void **p, size_t size) {
  return cuda("cudaMallocHost", [&](World &world, Lock &lock, Thread &t) {
    return allocateOn(world, lock, t, p, size, Allocation::Host);
  });
}
cudaError_t cudaFreeHost(void *p) {
  return cuda(
      "cudaFreeHost",
      [&](World &world, Lock &lock, Thread &t) {
        return freeOn(world, lock, t, p, Allocation::Host);
      },
      kReleases);
}
cudaError_t cudaHostRegister(void *p, size_t size, unsigned) {
  return cuda("cudaHostRegister", [&](World &world, Lock &, Thread &t) {
    if (!p || size == 0)
      return cudaErrorInvalidValue;
    if (cudaError_t error = world.forbidInCapture(t); error != cudaSuccess)
      return error;
    if (world.devices[t.device].broken != cudaSuccess)
      return world.devices[t.device].broken;
    if (world.lookUp(p, 1) != world.memory.end())
      return cudaErrorHostMemoryAlreadyRegistered;
    Allocation a;
    a.kind = Allocation::Registered;
    a.size = size;
    a.device = t.device;
    world.memory[reinterpret_cast<uintptr_t>(p)] = a;
    return cudaSuccess;
  });
}
cudaError_t cudaHostUnregister(void *p) {
  return cuda(
      "cudaHostUnregister",
      [&](World &world, Lock &, Thread &t) {
        if (cudaError_t error = world.forbidInCapture(t); error != cudaSuccess)
          return error;
        auto it = world.memory.find(reinterpret_cast<uintptr_t>(p));
        if (it == world.memory.end() ||
            it->second.kind != Allocation::Registered)
          return cudaErrorHostMemoryNotRegistered;
        world.memory.erase(it);
        return cudaSuccess;
      },
      kReleases);
}
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned) {
  return cuda("cudaHostGetDevicePointer", [&](World &world, Lock &, Thread &) {
    auto it = world.lookUp(host, 1);
    if (!device || it == world.memory.end() ||
        it->second.kind == Allocation::DeviceMemory)
      return cudaErrorInvalidValue;
    *device = host;
    return cudaSuccess;
  });
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes,
                                     const void *p) {
  return cuda("cudaPointerGetAttributes", [&](World &world, Lock &, Thread &t) {
    if (!attributes)
      return cudaErrorInvalidValue;
    *attributes = {};
    auto it = world.lookUp(p, 1);
    attributes->device = t.device;
    if (it == world.memory.end()) {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->hostPointer = const_cast<void *>(p);
      return cudaSuccess;
    }
    attributes->device = it->second.device;
    attributes->devicePointer = const_cast<void *>(p);
    const bool isDevice = it->second.kind == Allocation::DeviceMemory;
    attributes->type = isDevice ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->hostPointer = isDevice ? nullptr : const_cast<void *>(p);
    return cudaSuccess;
  });
}
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  return cuda("cudaMemGetInfo", [&](World &world, Lock &, Thread &t) {
    *total = world.options.deviceBytes;
    *free = *total - world.devices[t.device].usedBytes;
    return cudaSuccess;
  });
}

/// Copies outside the lock, if both ranges can be used.
static cudaError_t copyNow(void *to, const void *from, size_t size) {
  World &world = World::get();
  {
    Lock lock(world.mutex);
    if (!world.checkRange(to, size, "a copy") ||
        !world.checkRange(from, size, "a copy"))
      return cudaErrorIllegalAddress;
  }
  std::memmove(to, from, size);
  return cudaSuccess;
}

static cudaError_t copy(World &world, Lock &lock, Thread &t, void *to,
                        const void *from, size_t size, cudaMemcpyKind kind,
                        cudaStream_t handle, bool waits) {
  CUstream_st *stream = world.stream(handle, t);
  if (!stream)
    return cudaErrorInvalidResourceHandle;
  if (size == 0)
    return cudaSuccess;
  enum { Pageable, Pinned, OnDevice };
  auto classify = [&](const void *p, bool &inBounds) {
    auto it = world.lookUp(p, 1);
    inBounds = true;
    if (it == world.memory.end())
      return Pageable;
    inBounds = world.lookUp(p, size) != world.memory.end() ||
               it->second.kind == Allocation::Registered;
    return it->second.kind == Allocation::DeviceMemory ? OnDevice : Pinned;
  };
  bool toFits, fromFits;
  const auto toKind = classify(to, toFits), fromKind = classify(from, fromFits);
  if (!to || !from || !toFits || !fromFits)
    return cudaErrorInvalidValue;
  if (kind != cudaMemcpyDefault) {
    const bool toDevice =
        kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool fromDevice =
        kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (toDevice != (toKind == OnDevice) ||
        fromDevice != (fromKind == OnDevice))
      return cudaErrorInvalidValue;
  }
  OpSpec spec;
  spec.what = "a copy of " + std::to_string(size) + " bytes";
  if (fromKind == Pageable && toKind == OnDevice && !stream->capture) {
    // From pageable memory: staged before the call returns.
    auto staged = std::make_shared<std::vector<std::byte>>(
        static_cast<const std::byte *>(from),
        static_cast<const std::byte *>(from) + size);
    spec.work = [=] { return copyNow(to, staged->data(), size); };
  } else {
    spec.work = [=] { return copyNow(to, from, size); };
  }
  // To pageable memory: done before the call returns.
  waits |= toKind == Pageable && !stream->capture;
  OpRef op;
  const cudaError_t error = world.enqueue(lock, {&stream, 1}, spec, &op);
  if (error != cudaSuccess)
    return error;
  if (waits && op &&
      !waitFor(world, lock, "a copy that the host waits for", {op}))
    return cudaErrorUnknown;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  return cuda("cudaMemcpyAsync", [&](World &world, Lock &lock, Thread &t) {
    return copy(world, lock, t, to, from, size, kind, stream, false);
  });
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t size,
                       cudaMemcpyKind kind) {
  return cuda("cudaMemcpy", [&](World &world, Lock &lock, Thread &t) {
    if (cudaError_t error = world.forbidInCapture(t); error != cudaSuccess)
      return error;
    return copy(world, lock, t, to, from, size, kind, nullptr, true);
  });
}
cudaError_t cudaMemcpyPeerAsync(void *to, int, const void *from, int,
                                size_t size, cudaStream_t stream) {
  return cuda("cudaMemcpyPeerAsync", [&](World &world, Lock &lock, Thread &t) {
    return copy(world, lock, t, to, from, size, cudaMemcpyDeviceToDevice,
                stream, false);
  });
}

static cudaError_t fill(World &world, Lock &lock, Thread &t, void *p, int value,
                        size_t size, cudaStream_t handle) {
  CUstream_st *stream = world.stream(handle, t);
  if (!stream)
    return cudaErrorInvalidResourceHandle;
  if (size == 0)
    return cudaSuccess;
  if (world.lookUp(p, size) == world.memory.end())
    return cudaErrorInvalidValue;
  OpSpec spec;
  spec.what = "a fill of " + std::to_string(size) + " bytes";
  spec.work = [=] {
    World &world = World::get();
    {
      Lock lock(world.mutex);
      if (!world.checkRange(p, size, "a fill"))
        return cudaErrorIllegalAddress;
    }
    std::memset(p, value, size);
    return cudaSuccess;
  };
  return world.enqueue(lock, {&stream, 1}, spec);
}
cudaError_t cudaMemsetAsync(void *p, int value, size_t size,
                            cudaStream_t stream) {
  return cuda("cudaMemsetAsync", [&](World &world, Lock &lock, Thread &t) {
    return fill(world, lock, t, p, value, size, stream);
  });
}
cudaError_t cudaMemset(void *p, int value, size_t size) {
  return cuda("cudaMemset", [&](World &world, Lock &lock, Thread &t) {
    if (cudaError_t error = world.forbidInCapture(t); error != cudaSuccess)
      return error;
    return fill(world, lock, t, p, value, size, nullptr);
  });
}

//===----------------------------------------------------------------------===//
// Devices and errors
//===----------------------------------------------------------------------===//

cudaError_t cudaGetDeviceCount(int *count) {
  return cuda("cudaGetDeviceCount", [&](World &world, Lock &, Thread &) {
    if (!count)
      return cudaErrorInvalidValue;
    *count = world.options.devices;
    return *count ? cudaSuccess : cudaErrorNoDevice;
  });
}
static bool isDevice(const World &world, int device) {
  return device >= 0 && device < world.options.devices;
}
cudaError_t cudaSetDevice(int device) {
  return cuda("cudaSetDevice", [&](World &world, Lock &, Thread &t) {
    if (!isDevice(world, device))
      return cudaErrorInvalidDevice;
    t.device = device;
    return cudaSuccess;
  });
}
cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return cuda("cudaInitDevice", [&](World &world, Lock &, Thread &) {
    return isDevice(world, device) ? cudaSuccess : cudaErrorInvalidDevice;
  });
}
cudaError_t cudaGetDevice(int *device) {
  return cuda("cudaGetDevice", [&](World &, Lock &, Thread &t) {
    if (!device)
      return cudaErrorInvalidValue;
    *device = t.device;
    return cudaSuccess;
  });
}
cudaError_t cudaSetDeviceFlags(unsigned) {
  return cuda("cudaSetDeviceFlags",
              [](World &, Lock &, Thread &) { return cudaSuccess; });
}
cudaError_t cudaDeviceReset() {
  return cuda("cudaDeviceReset", [](World &, Lock &, Thread &) {
    return cudaErrorNotSupported; // ends what other threads use, too
  });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) {
  return cuda("cudaGetDeviceProperties", [&](World &world, Lock &, Thread &) {
    if (!isDevice(world, device))
      return cudaErrorInvalidDevice;
    *properties = {};
    std::snprintf(properties->name, sizeof(properties->name),
                  "Penstock stand-in %d", device);
    properties->totalGlobalMem = world.options.deviceBytes;
    properties->major = 9;
    properties->multiProcessorCount = 132;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
    properties->maxThreadsDim[2] = 64;
    properties->maxGridSize[0] = 2147483647;
    properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
    properties->sharedMemPerBlock = 48 << 10;
    properties->regsPerBlock = 65536;
    properties->l2CacheSize = 50 << 20;
    properties->pciBusID = device + 1;
    properties->unifiedAddressing = properties->concurrentKernels = 1;
    properties->asyncEngineCount = 3;
    properties->canMapHostMemory = 1;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute,
                                   int device) {
  return cuda("cudaDeviceGetAttribute", [&](World &world, Lock &, Thread &) {
    if (!value)
      return cudaErrorInvalidValue;
    if (!isDevice(world, device))
      return cudaErrorInvalidDevice;
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = 132;
      break;
    case cudaDevAttrWarpSize:
      *value = 32;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
      *value = 1024;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = 2048;
      break;
    case cudaDevAttrPciBusId:
      *value = device + 1;
      break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      break;
    default:
      *value = 0;
    }
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int device) {
  return cuda("cudaDeviceGetPCIBusId", [&](World &world, Lock &, Thread &) {
    if (!isDevice(world, device))
      return cudaErrorInvalidDevice;
    std::snprintf(id, static_cast<size_t>(length), "0000:%02X:00.0",
                  device + 1);
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  return cuda("cudaDeviceGetStreamPriorityRange",
              [&](World &, Lock &, Thread &) {
                if (least)
                  *least = 0;
                if (greatest)
                  *greatest = -5;
                return cudaSuccess;
              });
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  return cuda("cudaDeviceCanAccessPeer", [&](World &world, Lock &, Thread &) {
    if (!isDevice(world, device) || !isDevice(world, peer))
      return cudaErrorInvalidDevice;
    *can = device != peer;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return cuda("cudaDeviceEnablePeerAccess",
              [&](World &world, Lock &, Thread &t) {
                if (!isDevice(world, peer) || peer == t.device)
                  return cudaErrorInvalidDevice;
                return flags ? cudaErrorInvalidValue : cudaSuccess;
              });
}
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) {
  return cuda("cudaDeviceSetLimit",
              [](World &, Lock &, Thread &) { return cudaSuccess; });
}
cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

static cudaError_t lastError(bool clear) {
  World &world = World::get();
  Lock lock = enterWorld(world);
  Thread &t = world.thread(false);
  const cudaError_t broken = world.devices[t.device].broken;
  const cudaError_t error = broken != cudaSuccess ? broken : t.lastError;
  if (clear)
    t.lastError = cudaSuccess;
  return error;
}
cudaError_t cudaGetLastError() { return lastError(true); }
cudaError_t cudaPeekAtLastError() { return lastError(false); }

#define ERRORS(X)                                                              \
  X(cudaSuccess, "no error")                                                   \
  X(cudaErrorInvalidValue, "invalid argument")                                 \
  X(cudaErrorMemoryAllocation, "out of memory")                                \
  X(cudaErrorInitializationError, "initialization error")                      \
  X(cudaErrorInvalidConfiguration, "invalid configuration argument")           \
  X(cudaErrorInvalidDeviceFunction, "invalid device function")                 \
  X(cudaErrorNoDevice, "no CUDA-capable device is detected")                   \
  X(cudaErrorInvalidDevice, "invalid device ordinal")                          \
  X(cudaErrorInvalidResourceHandle, "invalid resource handle")                 \
  X(cudaErrorIllegalState,                                                     \
    "the operation cannot be performed in the present state")                  \
  X(cudaErrorNotReady, "device not ready")                                     \
  X(cudaErrorIllegalAddress, "an illegal memory access was encountered")       \
  X(cudaErrorLaunchFailure, "unspecified launch failure")                      \
  X(cudaErrorHostMemoryAlreadyRegistered,                                      \
    "part or all of the requested memory range is already mapped")             \
  X(cudaErrorHostMemoryNotRegistered,                                          \
    "pointer does not correspond to a registered memory region")               \
  X(cudaErrorNotPermitted, "operation not permitted")                          \
  X(cudaErrorNotSupported, "operation not supported")                          \
  X(cudaErrorStreamCaptureUnsupported,                                         \
    "operation not permitted when stream is capturing")                        \
  X(cudaErrorStreamCaptureInvalidated,                                         \
    "operation failed due to a previous error during capture")                 \
  X(cudaErrorStreamCaptureMerge,                                               \
    "operation would result in a merge of separate capture sequences")         \
  X(cudaErrorStreamCaptureUnmatched,                                           \
    "capture was not ended in the same stream as it began")                    \
  X(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work")      \
  X(cudaErrorStreamCaptureIsolation,                                           \
    "dependency created on uncaptured work in another stream")                 \
  X(cudaErrorStreamCaptureImplicit,                                            \
    "operation would make the legacy stream depend on a capturing stream")     \
  X(cudaErrorCapturedEvent,                                                    \
    "operation not permitted on an event last recorded in a capturing stream") \
  X(cudaErrorStreamCaptureWrongThread,                                         \
    "attempt to terminate a thread-local capture sequence from another "       \
    "thread")                                                                  \
  X(cudaErrorUnknown, "unknown error")

const char *cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define NAME(name, text)                                                       \
  case name:                                                                   \
    return #name;
    ERRORS(NAME)
  default:
    return "unrecognized error code";
  }
}
const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
#define TEXT(name, text)                                                       \
  case name:                                                                   \
    return text;
    ERRORS(TEXT)
  default:
    return "unrecognized error code";
  }
}

} // extern "C"

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// A kernel is known by the pointer with which the host launches it.
struct CUkern_st {
  const void *function = nullptr;
  std::string name; ///< mangled; empty if it did not come from nvcc
  detail::Binder binder;
};

namespace {
struct Kernels {
  std::unordered_map<const void *, CUkern_st> byFunction;
  std::map<std::string, detail::Binder> byName;
};
Kernels &kernels() {
  static Kernels *all = new Kernels;
  return *all;
}
struct Configuration {
  dim3 grid, block;
  size_t sharedBytes;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;
} // namespace

void penstock::standin::detail::addKernel(std::string name,
                                          const void *function, Binder binder) {
  Lock lock = enterWorld(World::get());
  if (!function) {
    kernels().byName[name] = std::move(binder);
    return;
  }
  CUkern_st &kernel = kernels().byFunction[function];
  kernel.function = function;
  kernel.binder = std::move(binder);
}

/// The body of a kernel; null, and a finding, if it has none.
static const detail::Binder *findBody(World &world, const void *function) {
  auto it = kernels().byFunction.find(function);
  if (it == kernels().byFunction.end()) {
    char address[32];
    std::snprintf(address, sizeof(address), "%p", function);
    world.find(std::string("no kernel is known by the pointer ") + address +
               ": register a body with standin::registerKernel");
    return nullptr;
  }
  const CUkern_st &kernel = it->second;
  if (kernel.binder)
    return &kernel.binder;
  auto byName = kernels().byName.find(kernel.name);
  if (byName != kernels().byName.end())
    return &byName->second;
  world.find("the kernel " + kernel.name +
             " has no body: register one with standin::registerKernel");
  return nullptr;
}

/// What lazy loading does before the first launch.
static bool loadKernel(World &world, Lock &lock, int device,
                       const void *function) {
  if (!world.devices[device].loaded.insert(function).second ||
      !world.options.lazyLoading)
    return true;
  return waitFor(world, lock, "the first launch of a kernel, which loads it",
                 world.lastOps(device, false));
}

static cudaError_t launch(World &world, Lock &lock, Thread &t,
                          const void *function, dim3 grid, dim3 block,
                          void **args, size_t sharedBytes,
                          cudaStream_t handle) {
  CUstream_st *stream = world.stream(handle, t);
  if (!stream)
    return cudaErrorInvalidResourceHandle;
  if (stream->device != t.device)
    return cudaErrorInvalidResourceHandle;
  const uint64_t threads = uint64_t(block.x) * block.y * block.z;
  if (threads == 0 || threads > 1024 || grid.x == 0 || grid.y == 0 ||
      grid.z == 0 || grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535)
    return cudaErrorInvalidConfiguration;
  const detail::Binder *binder = findBody(world, function);
  if (!binder)
    return cudaErrorInvalidDeviceFunction;
  const std::string &name = kernels().byFunction[function].name;
  if (!loadKernel(world, lock, t.device, function))
    return cudaErrorUnknown;
  OpSpec spec;
  spec.what = "kernel" + (name.empty() ? std::string() : " " + name);
  spec.work = [body = (*binder)(args), grid, block, sharedBytes, handle,
               what = spec.what] {
    InsideOperation inside("a kernel");
    try {
      body({grid, block, sharedBytes, handle});
    } catch (const std::exception &e) {
      World &world = World::get();
      Lock lock(world.mutex);
      world.find(what + " has thrown: " + e.what());
      return cudaErrorLaunchFailure;
    }
    return cudaSuccess;
  };
  return world.enqueue(lock, {&stream, 1}, spec);
}

extern "C" {

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block,
                             void **args, size_t sharedBytes,
                             cudaStream_t stream) {
  return cuda("cudaLaunchKernel", [&](World &world, Lock &lock, Thread &t) {
    return launch(world, lock, t, function, grid, block, args, sharedBytes,
                  stream);
  });
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config,
                                const void *function, void **args) {
  return cuda("cudaLaunchKernelExC", [&](World &world, Lock &lock, Thread &t) {
    if (!config)
      return cudaErrorInvalidValue;
    return launch(world, lock, t, function, config->gridDim, config->blockDim,
                  args, config->dynamicSmemBytes, config->stream);
  });
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes,
                                  const void *function) {
  return cuda("cudaFuncGetAttributes",
              [&](World &world, Lock &lock, Thread &t) {
                if (!attributes)
                  return cudaErrorInvalidValue;
                if (!findBody(world, function))
                  return cudaErrorInvalidDeviceFunction;
                if (!loadKernel(world, lock, t.device, function))
                  return cudaErrorUnknown;
                *attributes = {};
                attributes->maxThreadsPerBlock = 1024;
                attributes->binaryVersion = attributes->ptxVersion = 90;
                return cudaSuccess;
              });
}
cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute, int) {
  return cuda("cudaFuncSetAttribute", [&](World &world, Lock &, Thread &) {
    return findBody(world, function) ? cudaSuccess
                                     : cudaErrorInvalidDeviceFunction;
  });
}
cudaError_t cudaFuncGetName(const char **name, const void *function) {
  return cuda("cudaFuncGetName", [&](World &, Lock &, Thread &) {
    auto it = kernels().byFunction.find(function);
    if (it == kernels().byFunction.end())
      return cudaErrorInvalidDeviceFunction;
    *name = it->second.name.c_str();
    return cudaSuccess;
  });
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *function, int blockSize, size_t, unsigned) {
  return cuda("cudaOccupancyMaxActiveBlocksPerMultiprocessor",
              [&](World &world, Lock &, Thread &) {
                if (!blocks || blockSize <= 0)
                  return cudaErrorInvalidValue;
                if (!findBody(world, function))
                  return cudaErrorInvalidDeviceFunction;
                *blocks = std::max(1, 2048 / blockSize);
                return cudaSuccess;
              });
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks,
                                                          const void *function,
                                                          int blockSize,
                                                          size_t bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      blocks, function, blockSize, bytes, 0);
}
cudaError_t cudaGetKernel(cudaKernel_t *kernel, const void *function) {
  Lock lock = enterWorld(World::get());
  auto it = kernels().byFunction.find(function);
  if (it == kernels().byFunction.end())
    return cudaErrorInvalidDeviceFunction;
  *kernel = &it->second;
  return cudaSuccess;
}

// What nvcc calls.

void **__cudaRegisterFatBinary(void *) {
  static void *handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}
char __cudaInitModule(void **) { return 0; }
/// Bodies of kernels know their variables; there is no device memory for them.
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int,
                       int) {}
void __cudaRegisterFunction(void **, const char *function, char *,
                            const char *name, int, uint3 *, uint3 *, dim3 *,
                            dim3 *, int *) {
  Lock lock = enterWorld(World::get());
  CUkern_st &kernel = kernels().byFunction[function];
  kernel.function = function;
  kernel.name = name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t sharedBytes,
                                     CUstream_st *stream) {
  configurations.push_back({grid, block, sharedBytes, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block,
                                       size_t *sharedBytes, void *stream) {
  if (configurations.empty())
    return cudaErrorMissingConfiguration;
  const Configuration c = configurations.back();
  configurations.pop_back();
  *grid = c.grid;
  *block = c.block;
  *sharedBytes = c.sharedBytes;
  *static_cast<cudaStream_t *>(stream) = c.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
  return cudaGetKernel(kernel, function);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                               void **args, size_t sharedBytes,
                               cudaStream_t stream) {
  return cuda("cudaLaunchKernel", [&](World &world, Lock &lock, Thread &t) {
    if (!kernel)
      return cudaErrorInvalidDeviceFunction;
    return launch(world, lock, t, kernel->function, grid, block, args,
                  sharedBytes, stream);
  });
}

} // extern "C"

void World::dropCuda() {
  captures.clear();
  for (CUstream_st *stream : streams)
    delete stream;
  for (CUevent_st *event : events)
    delete event;
  for (CUgraph_st *graph : graphs)
    delete graph;
  for (CUgraphExec_st *exec : execs)
    delete exec;
  streams.clear();
  events.clear();
  graphs.clear();
  execs.clear();
  blasHandles.clear();
  graveyard.clear();
}

std::string penstock::standin::leaks() {
  World &world = World::get();
  Lock lock = enterWorld(world);
  std::string text;
  size_t numStreams = 0;
  for (CUstream_st *stream : world.streams)
    numStreams += stream != world.devices[stream->device].nullStream;
  for (const ThreadRef &t : world.threads)
    numStreams -= t->perThread != nullptr;
  auto line = [&](size_t n, const char *what) {
    if (n)
      text += std::to_string(n) + " " + what + "\n";
  };
  for (const auto &[start, a] : world.memory)
    if (!a.freed)
      text += (a.kind == Allocation::DeviceMemory ? "device memory of "
               : a.kind == Allocation::Host       ? "host memory of "
                                                  : "registered memory of ") +
              std::to_string(a.size) + " bytes\n";
  line(numStreams, "streams");
  line(world.events.size(), "events");
  line(world.graphs.size(), "graphs");
  line(world.execs.size(), "executable graphs");
  line(world.comms.size(), "communicators");
  line(world.blasHandles.size(), "handles of cuBLAS");
  line(world.numRegistrations(), "registered buffers");
  return text;
}
