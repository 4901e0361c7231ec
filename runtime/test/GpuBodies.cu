//===- GpuBodies.cu - What the stand-in runs for the model's kernels ------===//
//
// Compiled by nvcc, or as C++: see GpuKernels.cu.
//
//===----------------------------------------------------------------------===//

#include "GpuKernels.cu"
#include "StandIn.h"

namespace penstock::runtime::gpu {

template <typename Fn>
static void addBody() {
  standin::registerKernel<void(Fn, int64_t)>(
      reinterpret_cast<const void *>(&kernel<Fn>),
      [](const standin::Launch &, Fn fn, int64_t count) {
        for (int64_t i = 0; i < count; ++i)
          fn(i);
      });
}

#define ADD_BODY(...) addBody<__VA_ARGS__>();
static const bool isRegistered = [] {
  PENSTOCK_GPU_FUNCTORS(ADD_BODY)
  return true;
}();
#undef ADD_BODY

} // namespace penstock::runtime::gpu
