//===- AllocationTest.cpp - A step does not allocate ----------------------===//
//
// Counts what operator new hands out in the whole process, so it is a program
// of its own. Sanitizers bring their own operator new: there it counts nothing.
//
//===----------------------------------------------------------------------===//

#include "TestPrograms.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

using namespace penstock;
using namespace penstock::runtime;
using namespace penstock::runtime::test;

static std::atomic<int64_t> numAllocations = 0;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void *operator new(size_t size) {
  numAllocations.fetch_add(1);
  if (void *memory = std::malloc(size))
    return memory;
  throw std::bad_alloc();
}
// Inlined, it looks to GCC like a free() of what operator new returned.
[[gnu::noinline]] void operator delete(void *memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void *memory, size_t) noexcept {
  std::free(memory);
}
#define COUNTS 1
#else
#define COUNTS 0
#endif

namespace {

TEST(Allocation, NoneInAStep) {
  if (!COUNTS)
    GTEST_SKIP() << "a sanitizer has its own operator new";
  const Program program = makeGPipe(4, 8);
  RunOptions options;
  options.steps = 100;
  int64_t early = 0, late = 0;
  options.onStep = [&](const StepReport &report) {
    if (report.step == 10)
      early = numAllocations.load();
    if (report.step == 90)
      late = numAllocations.load();
  };
  const RunReport report = runProgram(program, makeTestModel(), options);
  ASSERT_TRUE(report) << report.error.message;
  EXPECT_GT(early, 0); // it counts
  EXPECT_EQ(late, early);
}

} // namespace
