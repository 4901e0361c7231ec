//===- Kernels.h - Kernels that nvcc makes, for KernelsTest -----*- C++ -*-===//

#ifndef PENSTOCK_RUNTIME_TEST_STANDIN_KERNELS_H
#define PENSTOCK_RUNTIME_TEST_STANDIN_KERNELS_H

#include <cuda_runtime.h>

void registerBodies();
cudaError_t launchAxpy(float a, const float *x, float *y, int n,
                       cudaStream_t stream);
cudaError_t launchSquare(float *x, int n, cudaStream_t stream);
cudaError_t launchWithoutBody(cudaStream_t stream);

#endif // PENSTOCK_RUNTIME_TEST_STANDIN_KERNELS_H
