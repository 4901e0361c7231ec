//===- GpuKernels.cu - A kernel for each functor --------------------------===//
//
// Only nvcc makes kernels of this file. For the host compiler `kernel` is a
// function whose address names what the stand-in of the tests is to run.
//
//===----------------------------------------------------------------------===//

#include "GpuKernels.h"

namespace penstock::runtime::gpu {

#ifdef __CUDACC__
/// Threads have neighbouring indices, so that they use neighbouring memory.
template <typename Fn>
__global__ void kernel(Fn fn, int64_t count) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride)
    fn(i);
}
#else
template <typename Fn>
void kernel(Fn fn, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    fn(i);
}
#endif

template <typename Fn>
cudaError_t launch(cudaStream_t stream, int64_t count, const Fn &fn) {
  if (count == 0)
    return cudaSuccess;
  constexpr int64_t kThreads = 128, kMaxBlocks = 1 << 20;
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  Fn copy = fn;
  void *arguments[] = {&copy, &count};
  return cudaLaunchKernel(
      reinterpret_cast<const void *>(&kernel<Fn>),
      dim3(static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks)),
      dim3(kThreads), arguments, 0, stream);
}

#define INSTANTIATE(...)                                                       \
  template cudaError_t launch<__VA_ARGS__>(cudaStream_t, int64_t,              \
                                           const __VA_ARGS__ &);
PENSTOCK_GPU_FUNCTORS(INSTANTIATE)
#undef INSTANTIATE

} // namespace penstock::runtime::gpu
