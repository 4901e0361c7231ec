//===- TestBackend.h - The back end under test ------------------*- C++ -*-===//
//
// The one place where the suite knows what it runs on. A program of it is built
// for ranks in one process or, with PENSTOCK_TEST_JOB, in several (JobTest.h);
// and for devices of the host or, with PENSTOCK_TEST_CUDA, for CUDA, which is
// the real one or the stand-in.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_TEST_CONFORMANCE_TESTBACKEND_H
#define PENSTOCK_RUNTIME_TEST_CONFORMANCE_TESTBACKEND_H

#include "../JobTest.h"
#ifdef PENSTOCK_TEST_CUDA
#include "../IssuingModel.h"
#endif

#include <cstring>

namespace penstock::runtime::test {

#ifdef PENSTOCK_TEST_JOB
inline constexpr const char *kBackendName = PENSTOCK_TEST_JOB;
#elif defined(PENSTOCK_TEST_CUDA)
inline constexpr const char *kBackendName = "cuda";
#else
inline constexpr const char *kBackendName = "host";
#endif

/// A new one for all ranks; in a job all processes make theirs alike.
std::unique_ptr<Backend> makeTestBackend(int32_t numRanks);

/// A real GPU. NCCL's sends may end before their receives are there, host
/// functions of all streams may run one after the other, and an abort takes its
/// time.
#ifdef PENSTOCK_TEST_GPU
inline constexpr bool kIsGpu = true;
#else
inline constexpr bool kIsGpu = false;
#endif

#ifdef PENSTOCK_TEST_CUDA

/// What the factory makes, fit for the device.
inline ModelFactory onDevice(ModelFactory factory) {
  return makeIssuing(std::move(factory));
}
/// A model of onDevice as it was made.
inline const Model &inner(const Model &model) {
  return dynamic_cast<const IssuingModel &>(model).inner();
}
/// Between host and device, when its queues are idle.
inline void copy(void *to, const void *from, size_t bytes) {
  (void)cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
}

#else

inline ModelFactory onDevice(ModelFactory factory) { return factory; }
inline const Model &inner(const Model &model) { return model; }
inline void copy(void *to, const void *from, size_t bytes) {
  std::memcpy(to, from, bytes);
}
/// Inside work: calls the function when the queue gets there.
inline void atQueue(void *, const std::function<void()> &fn) { fn(); }

#endif

} // namespace penstock::runtime::test

#endif // PENSTOCK_RUNTIME_TEST_CONFORMANCE_TESTBACKEND_H
