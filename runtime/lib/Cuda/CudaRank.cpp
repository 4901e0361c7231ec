//===- CudaRank.cpp - What a device and its transport share ---------------===//

#include "CudaRank.h"

namespace penstock::runtime {

static std::string_view wayOut(cudaError_t code) {
  switch (code) {
  case cudaErrorMemoryAllocation:
    return "use smaller micro-batches, or more ranks";
  case cudaErrorNoDevice:
  case cudaErrorInsufficientDriver:
  case cudaErrorStubLibrary:
  case cudaErrorInitializationError:
    return "use a machine with an NVIDIA GPU and its driver, or the back end "
           "'host'";
  case cudaErrorStreamCaptureUnsupported:
  case cudaErrorStreamCaptureInvalidated:
  case cudaErrorStreamCaptureImplicit:
    return "the model does what a capture does not allow; run without replay";
  case cudaErrorIllegalAddress:
  case cudaErrorMisalignedAddress:
  case cudaErrorLaunchFailure:
  case cudaErrorAssert:
    return "a kernel is at fault; find it with compute-sanitizer";
  default:
    return "CUDA_LAUNCH_BLOCKING=1 shows which call is at fault";
  }
}

std::string describeCuda(std::string_view call, cudaError_t code) {
  return std::string(call) + ": " + cudaGetErrorString(code) + " (" +
         cudaGetErrorName(code) + "); " + std::string(wayOut(code));
}

Error cudaError(std::string_view call, cudaError_t code) {
  cudaGetLastError();
  return {ErrorKind::DeviceError, describeCuda(call, code)};
}

/// What has broken the GPU for good, if anything has. NCCL only says that
/// something has.
static cudaError_t brokenBy() {
  const cudaError_t code = cudaFree(nullptr); // does nothing else
  cudaGetLastError();
  return code == cudaErrorStreamCaptureUnsupported ? cudaSuccess : code;
}

Error ncclError(std::string_view call, ncclResult_t code, ncclComm_t comm) {
  if (code == ncclUnhandledCudaError)
    if (const cudaError_t cause = brokenBy(); cause != cudaSuccess)
      return cudaError(call, cause);
  std::string text = std::string(call) + ": " + ncclGetErrorString(code);
  if (const char *last = ncclGetLastError(comm); last && *last)
    text += std::string(" (") + last + ")";
  if (code == ncclRemoteError)
    return {ErrorKind::LostPeer,
            text + "; the process of another rank has ended or failed"};
  text += code == ncclInvalidUsage
              ? "; perhaps two ranks are on one GPU, which NCCL refuses: ranks "
                "of one process need a GPU each, and so do processes, unless "
                "each has a host of its own in NCCL_HOSTID; NCCL_DEBUG=WARN "
                "says more"
              : "; NCCL_DEBUG=WARN says more";
  return {ErrorKind::DeviceError, text};
}

} // namespace penstock::runtime
