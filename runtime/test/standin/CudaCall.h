//===- CudaCall.h - What every CUDA function does -------------*- C++ -*-===//
//
// Counting, injected errors, the last error of the thread, and errors that
// stick to a device.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_TEST_STANDIN_CUDACALL_H
#define PENSTOCK_RUNTIME_TEST_STANDIN_CUDACALL_H

#include "World.h"

namespace penstock::standin {

/// Marks a thread that runs a host function or a kernel: these may not call
/// CUDA.
class InsideOperation {
public:
  explicit InsideOperation(const char *what) { current = what; }
  ~InsideOperation() { current = nullptr; }
  static thread_local const char *current;
};

enum CallFlags : unsigned {
  kLooks = 1,    ///< asks for a state
  kReleases = 2, ///< does its work even if an error is injected
};

/// `fn(world, lock, thread)` as one call of CUDA.
template <typename Fn>
cudaError_t cuda(const char *function, Fn &&fn, unsigned flags = 0) {
  Call call(function, Library::Cuda, flags & kLooks ? Call::Looks : Call::Acts);
  cudaError_t error = cudaSuccess;
  if (InsideOperation::current) {
    call.world.find(std::string(InsideOperation::current) + " calls " +
                    function + ", which CUDA does not allow");
    error = cudaErrorNotPermitted;
  } else if (call.injected && !(flags & kReleases)) {
    error = static_cast<cudaError_t>(*call.injected);
  } else {
    error = fn(call.world, call.lock, call.thread);
    if (call.injected)
      error = static_cast<cudaError_t>(*call.injected);
  }
  if (error == cudaSuccess)
    error = call.world.devices[call.thread.device].broken;
  if (error != cudaSuccess)
    call.thread.lastError = error;
  return error;
}

} // namespace penstock::standin

#endif // PENSTOCK_RUNTIME_TEST_STANDIN_CUDACALL_H
