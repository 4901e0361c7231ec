//===- Graph.cpp - Capture and graphs of the stand-in ---------------------===//
//
// What streams capture becomes the nodes of a graph; a launch makes an
// operation of every node.
//
//===----------------------------------------------------------------------===//

#include "CudaCall.h"

#include <algorithm>

using namespace penstock::standin;

thread_local const char *InsideOperation::current = nullptr;

void World::addNode(Capture &capture, std::span<CUstream_st *const> on,
                    Node node) {
  std::set<size_t> after;
  for (CUstream_st *s : on)
    after.insert(s->tail.begin(), s->tail.end());
  const size_t index = capture.graph->nodes.size();
  for (Resource *resource : node.spec.resources) {
    auto [it, isFirst] = capture.lastOf.try_emplace(resource, index);
    if (!isFirst)
      after.insert(it->second);
    it->second = index;
  }
  node.after.assign(after.begin(), after.end());
  capture.graph->nodes.push_back(std::move(node));
  for (CUstream_st *s : on)
    s->tail = {index};
  ++version;
}

cudaError_t World::forbidInCapture(Thread &t) {
  if (t.captureMode == cudaStreamCaptureModeRelaxed)
    return cudaSuccess;
  cudaError_t error = cudaSuccess;
  for (const auto &capture : captures) {
    const bool own =
        capture->owner == &t && capture->mode != cudaStreamCaptureModeRelaxed;
    const bool others = capture->mode == cudaStreamCaptureModeGlobal &&
                        t.captureMode == cudaStreamCaptureModeGlobal;
    if (own || others) {
      capture->invalid = true;
      error = cudaErrorStreamCaptureUnsupported;
    }
  }
  return error;
}

cudaError_t World::useOfLegacyStream(int device) {
  cudaError_t error = cudaSuccess;
  for (const auto &capture : captures)
    for (CUstream_st *member : capture->members)
      if (member->device == device &&
          !(member->flags & cudaStreamNonBlocking)) {
        capture->invalid = true;
        error = cudaErrorStreamCaptureImplicit;
      }
  return error;
}

cudaError_t World::useOfCapturedEvent(CUevent_st *event) {
  event->capture->invalid = true;
  return cudaErrorCapturedEvent;
}

cudaError_t World::waitInCapture(CUstream_st *stream, CUevent_st *event,
                                 unsigned flags) {
  Capture *capture = stream->capture.get();
  if (flags & cudaEventWaitExternal) {
    if (!capture)
      return cudaErrorIllegalState;
    if (capture->invalid)
      return cudaErrorStreamCaptureInvalidated;
    addNode(
        *capture, {&stream, 1},
        {{.what = "cudaStreamWaitEvent"}, stream->device, nullptr, event, {}});
    return cudaSuccess;
  }
  if (capture && capture->invalid)
    return cudaErrorStreamCaptureInvalidated;
  if (!event->capture) { // outside of this capture
    capture->invalid = true;
    return cudaErrorStreamCaptureIsolation;
  }
  if (!captures.count(event->capture)) { // of a capture that has ended
    if (capture)
      capture->invalid = true;
    return capture ? cudaErrorStreamCaptureIsolation : cudaErrorCapturedEvent;
  }
  if (event->capture->invalid)
    return cudaErrorStreamCaptureInvalidated;
  if (capture && event->capture.get() != capture) {
    capture->invalid = event->capture->invalid = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (!capture) {
    if (stream == devices[stream->device].nullStream) {
      event->capture->invalid = true;
      return cudaErrorStreamCaptureImplicit;
    }
    stream->capture = event->capture;
    stream->capture->members.insert(stream);
    stream->tail.clear();
  }
  for (size_t node : event->nodes)
    if (std::find(stream->tail.begin(), stream->tail.end(), node) ==
        stream->tail.end())
      stream->tail.push_back(node);
  return cudaSuccess;
}

/// Whether the origin comes after all that the other streams have captured.
static bool isJoined(const Capture &capture) {
  const std::vector<Node> &nodes = capture.graph->nodes;
  std::vector<bool> before(nodes.size());
  std::vector<size_t> open = capture.origin->tail;
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    if (before[node])
      continue;
    before[node] = true;
    open.insert(open.end(), nodes[node].after.begin(), nodes[node].after.end());
  }
  for (CUstream_st *member : capture.members)
    for (size_t node : member->tail)
      if (!before[node])
        return false;
  return true;
}

static void endCapture(World &world, const std::shared_ptr<Capture> &capture) {
  for (CUstream_st *member : capture->members) {
    member->capture = nullptr;
    member->tail.clear();
  }
  world.captures.erase(capture);
}

void World::leaveCapture(CUstream_st *stream) {
  const std::shared_ptr<Capture> capture = stream->capture;
  capture->invalid = true;
  if (stream == capture->origin)
    return endCapture(*this, capture);
  capture->members.erase(stream);
  stream->capture = nullptr;
}

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle,
                                   cudaStreamCaptureMode mode) {
  return cuda("cudaStreamBeginCapture", [&](World &world, Lock &, Thread &t) {
    CUstream_st *stream = world.stream(handle, t);
    if (!stream)
      return cudaErrorInvalidResourceHandle;
    if (stream == world.devices[stream->device].nullStream)
      return cudaErrorStreamCaptureUnsupported;
    if (stream->capture)
      return cudaErrorIllegalState;
    if (cudaError_t broken = world.devices[stream->device].broken)
      return broken;
    auto capture = std::make_shared<Capture>();
    capture->id = world.nextCapture++;
    capture->mode = mode;
    capture->owner = &t;
    capture->origin = stream;
    capture->members = {stream};
    capture->building = std::make_unique<CUgraph_st>();
    capture->graph = capture->building.get();
    world.captures.insert(capture);
    stream->capture = capture;
    stream->tail.clear();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph) {
  const cudaError_t error = cuda(
      "cudaStreamEndCapture",
      [&](World &world, Lock &, Thread &t) {
        if (!graph)
          return cudaErrorInvalidValue;
        *graph = nullptr;
        CUstream_st *stream = world.stream(handle, t);
        if (!stream)
          return cudaErrorInvalidResourceHandle;
        const std::shared_ptr<Capture> capture = stream->capture;
        if (!capture)
          return cudaErrorIllegalState;
        if (stream != capture->origin) {
          capture->invalid = true;
          return cudaErrorStreamCaptureUnmatched;
        }
        if (capture->owner != &t &&
            capture->mode != cudaStreamCaptureModeRelaxed)
          return cudaErrorStreamCaptureWrongThread;
        for (CUstream_st *member : capture->members)
          if (member->inProgress)
            world.find("a capture ends while a group of a communicator that "
                       "does not block is in progress there");
        const bool joined = isJoined(*capture);
        endCapture(world, capture);
        if (capture->invalid)
          return cudaErrorStreamCaptureInvalidated;
        if (!joined)
          return cudaErrorStreamCaptureUnjoined;
        *graph = capture->building.release();
        world.graphs.insert(*graph);
        return cudaSuccess;
      },
      kReleases);
  if (error != cudaSuccess && graph && *graph) { // injected
    World &world = World::get();
    Lock lock = enterWorld(world);
    world.graphs.erase(*graph);
    delete *graph;
    *graph = nullptr;
  }
  return error;
}

static cudaStreamCaptureStatus statusOf(const CUstream_st *stream) {
  if (!stream->capture)
    return cudaStreamCaptureStatusNone;
  return stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                  : cudaStreamCaptureStatusActive;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle,
                                  cudaStreamCaptureStatus *status) {
  return cuda("cudaStreamIsCapturing", [&](World &world, Lock &, Thread &t) {
    CUstream_st *stream = world.stream(handle, t);
    if (!stream)
      return cudaErrorInvalidResourceHandle;
    if (!status)
      return cudaErrorInvalidValue;
    if (stream == world.devices[stream->device].nullStream)
      if (cudaError_t error = world.useOfLegacyStream(stream->device);
          error != cudaSuccess)
        return error;
    *status = statusOf(stream);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle,
                                     cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **dependencies,
                                     const cudaGraphEdgeData **edges,
                                     size_t *numDependencies) {
  return cuda("cudaStreamGetCaptureInfo", [&](World &world, Lock &, Thread &t) {
    CUstream_st *stream = world.stream(handle, t);
    if (!stream)
      return cudaErrorInvalidResourceHandle;
    if (!status)
      return cudaErrorInvalidValue;
    if (dependencies || edges)
      return cudaErrorNotSupported; // nodes have no handles here
    *status = statusOf(stream);
    if (!stream->capture)
      return cudaSuccess;
    if (id)
      *id = stream->capture->id;
    if (graph)
      *graph = stream->capture->graph;
    if (numDependencies)
      *numDependencies = stream->tail.size();
    return cudaSuccess;
  });
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
  return cuda("cudaThreadExchangeStreamCaptureMode",
              [&](World &, Lock &, Thread &t) {
                if (!mode)
                  return cudaErrorInvalidValue;
                std::swap(*mode, t.captureMode);
                return cudaSuccess;
              });
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

static cudaError_t instantiate(World &world, Thread &t, cudaGraphExec_t *exec,
                               cudaGraph_t graph) {
  if (!exec || !world.graphs.count(graph))
    return cudaErrorInvalidValue;
  if (cudaError_t broken = world.devices[t.device].broken)
    return broken;
  *exec = new CUgraphExec_st{graph->nodes, nullptr};
  world.execs.insert(*exec);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long) {
  return cuda("cudaGraphInstantiate", [&](World &world, Lock &, Thread &t) {
    return instantiate(world, t, exec, graph);
  });
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec,
                                          cudaGraph_t graph,
                                          unsigned long long) {
  return cuda("cudaGraphInstantiateWithFlags",
              [&](World &world, Lock &, Thread &t) {
                return instantiate(world, t, exec, graph);
              });
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes,
                              size_t *count) {
  return cuda("cudaGraphGetNodes", [&](World &world, Lock &, Thread &) {
    if (!world.graphs.count(graph) || !count)
      return cudaErrorInvalidValue;
    if (nodes)
      return cudaErrorNotSupported; // nodes have no handles here
    *count = graph->nodes.size();
    return cudaSuccess;
  });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t handle) {
  return cuda("cudaGraphUpload", [&](World &world, Lock &, Thread &t) {
    return world.execs.count(exec) && world.stream(handle, t)
               ? cudaSuccess
               : cudaErrorInvalidValue;
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  return cuda("cudaGraphLaunch", [&](World &world, Lock &lock, Thread &t) {
    CUstream_st *stream = world.stream(handle, t);
    if (!world.execs.count(exec) || !stream)
      return cudaErrorInvalidValue;
    const int device = stream->device;
    if (stream->capture) {
      world.find("a graph is launched into a capture, which is not modelled");
      stream->capture->invalid = true;
      return cudaErrorStreamCaptureUnsupported;
    }
    if (cudaError_t broken = world.devices[device].broken)
      return broken;
    if (stream == world.devices[device].nullStream)
      if (cudaError_t error = world.useOfLegacyStream(device);
          error != cudaSuccess)
        return error;
    if (!world.waitForRoom(lock, device))
      return cudaErrorUnknown;
    const OpRef begin =
        world.submit({&stream, 1}, device,
                     {.what = "the begin of a graph", .isLaunch = false},
                     {exec->last}, nullptr);
    std::vector<OpRef> ops;
    const bool inOrder = world.options.queues == Queues::Shared &&
                         world.options.connections <= 1;
    for (const Node &node : exec->nodes) {
      std::vector<OpRef> after = {begin};
      for (size_t i : node.after)
        after.push_back(ops[i]);
      if (inOrder && !ops.empty())
        after.push_back(ops.back());
      for (Resource *resource : node.spec.resources)
        after.push_back(world.lastOf(resource));
      if (node.wait)
        after.push_back(node.wait->recorded);
      OpSpec spec = node.spec;
      spec.isLaunch = false;
      OpRef op = world.submit({}, node.device, spec, std::move(after),
                              spec.makeItem ? spec.makeItem(true) : nullptr);
      op->delay = world.delay(stream->number, stream->numOps++);
      for (Resource *resource : node.spec.resources)
        world.lastOf(resource) = op;
      if (node.record) {
        node.record->recorded = op;
        node.record->capture = nullptr;
      }
      ops.push_back(op);
    }
    exec->last = world.submit({&stream, 1}, device,
                              {.what = "the end of a graph"}, ops, nullptr);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return cuda(
      "cudaGraphExecDestroy",
      [&](World &world, Lock &, Thread &) {
        if (!world.execs.erase(exec))
          return cudaErrorInvalidValue;
        world.graveyard.push_back(std::shared_ptr<CUgraphExec_st>(exec));
        return cudaSuccess;
      },
      kReleases);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return cuda(
      "cudaGraphDestroy",
      [&](World &world, Lock &, Thread &) {
        if (!world.graphs.erase(graph))
          return cudaErrorInvalidValue;
        world.graveyard.push_back(std::shared_ptr<CUgraph_st>(graph));
        return cudaSuccess;
      },
      kReleases);
}

} // extern "C"
