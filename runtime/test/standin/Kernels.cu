//===- Kernels.cu - What nvcc makes runs on the stand-in ------------------===//
//
// Kernels in the three ways in which their bodies get to the stand-in: by
// mangled name, by pointer, and not at all.
//
//===----------------------------------------------------------------------===//

#include "StandIn.h"

#include "Kernels.h"

using namespace penstock;

__global__ void axpy(float a, const float *x, float *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] += a * x[i];
}

/// One source for the GPU and the CPU.
struct Square {
  __host__ __device__ float operator()(float x) const { return x * x; }
};
template <typename Fn>
__global__ void apply(Fn fn, float *x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    x[i] = fn(x[i]);
}

__global__ void withoutBody(int *) {}

void registerBodies() {
  standin::registerKernel<void(Square, float *, int)>(
      reinterpret_cast<const void *>(&apply<Square>),
      [](const standin::Launch &, Square fn, float *x, int n) {
        for (int i = 0; i < n; ++i)
          x[i] = fn(x[i]);
      });
}

cudaError_t launchAxpy(float a, const float *x, float *y, int n,
                       cudaStream_t stream) {
  axpy<<<(n + 31) / 32, 32, 0, stream>>>(a, x, y, n);
  return cudaGetLastError();
}
cudaError_t launchSquare(float *x, int n, cudaStream_t stream) {
  apply<<<(n + 31) / 32, 32, 0, stream>>>(Square(), x, n);
  return cudaGetLastError();
}
cudaError_t launchWithoutBody(cudaStream_t stream) {
  withoutBody<<<1, 1, 0, stream>>>(nullptr);
  return cudaGetLastError();
}
