//===- KernelsTest.cpp - Objects of nvcc on the stand-in ------------------===//

#include "Kernels.h"
#include "Testing.h"

using namespace penstock::standin;
using namespace penstock::standin::test;

namespace {

TEST(StandInKernels, ObjectsOfNvccRun) {
  reset();
  registerBodies();
  registerKernel<void(float, const float *, float *, int)>(
      "_Z4axpyfPKfPfi",
      [](const Launch &launch, float a, const float *x, float *y, int n) {
        forEachThread(launch, [&](dim3 block, dim3 thread) {
          const int i = static_cast<int>(block.x * launch.block.x + thread.x);
          if (i < n)
            y[i] += a * x[i];
        });
      });
  cudaStream_t stream = makeStream();
  void *x = nullptr, *y = nullptr;
  EXPECT_CUDA(cudaMalloc(&x, 100 * sizeof(float)));
  EXPECT_CUDA(cudaMalloc(&y, 100 * sizeof(float)));
  auto *xs = static_cast<float *>(x), *ys = static_cast<float *>(y);
  std::fill_n(xs, 100, 3.0f);
  std::fill_n(ys, 100, 1.0f);
  EXPECT_CUDA(launchAxpy(2, xs, ys, 99, stream));
  EXPECT_CUDA(launchSquare(ys, 100, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(ys[98], 49);
  EXPECT_EQ(ys[99], 1);
  EXPECT_EQ(findings(), "");

  EXPECT_EQ(launchWithoutBody(stream), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(findings(), "the kernel _Z11withoutBodyPi has no body: register "
                        "one with standin::registerKernel\n");
  reset();
}

} // namespace
