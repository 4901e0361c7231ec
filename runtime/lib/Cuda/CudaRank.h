//===- CudaRank.h - What a device and its transport share -------*- C++ -*-===//
//
// One rank on one GPU. The device waits for its streams while NCCL may have
// failed in them, so that it asks the transport; the transport registers the
// memory of the device, and must not part from the others while a graph with
// its transfers is launched.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_CUDA_CUDARANK_H
#define PENSTOCK_RUNTIME_CUDA_CUDARANK_H

#include "penstock/Runtime/Transport.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <mutex>
#include <string>
#include <string_view>

namespace penstock::runtime {

/// What CUDA says about the code that a call has returned, and a way out.
std::string describeCuda(std::string_view call, cudaError_t code);
/// The same as an error of the run.
Error cudaError(std::string_view call, cudaError_t code);
/// Likewise of NCCL; `comm` may be null.
Error ncclError(std::string_view call, ncclResult_t code, ncclComm_t comm);

class CudaRank {
public:
  explicit CudaRank(int gpu) : gpu(gpu) {}

  /// Makes the GPU the one of the calling thread.
  cudaError_t bind() const { return cudaSetDevice(gpu); }

  const int gpu;
  /// Held by whoever calls NCCL, or launches a graph with transfers, so that
  /// communicators are aborted when nobody does.
  std::mutex inside;
  /// That has captured transfers; under the lock. NCCL does not let go of a
  /// communicator that a graph needs.
  cudaGraphExec_t graph = nullptr;
  void dropGraph() {
    if (graph)
      cudaGraphExecDestroy(graph);
    graph = nullptr;
  }
  /// The arena, if it is memory of NCCL, to be registered with communicators.
  std::byte *registered = nullptr;
  size_t registeredBytes = 0;

  /// \name The transport, while there is one
  /// @{
  void join(Transport *transport) {
    std::lock_guard lock(mutex);
    peer = transport;
  }
  void leave(const Transport *transport) {
    std::lock_guard lock(mutex);
    if (peer == transport)
      peer = nullptr;
  }
  Error checkTransport() {
    std::lock_guard lock(mutex);
    return peer ? peer->check() : Error();
  }
  void abortTransport() {
    std::lock_guard lock(mutex);
    if (peer)
      peer->abort();
  }
  /// @}

private:
  std::mutex mutex;
  Transport *peer = nullptr;
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_CUDA_CUDARANK_H
