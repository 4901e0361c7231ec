//===- StandInFamiliesTest.cpp - Every family on streams and NCCL ---------===//
//
// In one process, under all rules that the stand-in knows.
//
//===----------------------------------------------------------------------===//

#include "../standin/StandIn.h"
#include "FamilyPrograms.h"
#include "TestBackend.h"

using namespace penstock;
using namespace penstock::runtime;
using namespace penstock::runtime::test;
using namespace penstock::test;

namespace {

constexpr int32_t kNumRanks = 4;

class CudaFamilies : public testing::TestWithParam<FamilyCase> {
protected:
  static std::vector<uint64_t> train(const Program &program, bool replay,
                                     const standin::Options &options) {
    standin::reset(options);
    std::vector<uint64_t> bits;
    {
      const auto backend = makeTestBackend(kNumRanks);
      RunOptions run;
      run.backend = backend.get();
      run.replay = replay;
      bits = trainToBits(program, run, {0, 1, 2, 3}, {onDevice, inner});
    }
    EXPECT_EQ(standin::findings(), "");
    EXPECT_EQ(standin::leaks(), "");
    return bits;
  }
};

// Under all that the stand-in can do to a program which is right.
TEST_P(CudaFamilies, TrainBitwiseAsOnThreads) {
  const Program program = makeFamilyProgram(kNumRanks, GetParam());
  const auto expected = trainToBits(program, {}, {0, 1, 2, 3});
  EXPECT_GT(expected.size(), 100u);
  using standin::Groups, standin::Queues;
  standin::Options options;
  for (bool replay : {false, true})
    EXPECT_TRUE(train(program, replay, options) == expected) << replay;
  if (std::get<0>(GetParam()) > 3)
    return;
  // The first meetings have all been before, or hosts would wait here.
  options.firstUse = true;
  options.groups = Groups::Closure;
  options.serialHostFunctions = true;
  EXPECT_TRUE(train(program, true, options) == expected);
  options.groups = Groups::Plan;
  options.queues = Queues::Shared;
  options.connections = 2;
  options.maxDelay = 20;
  EXPECT_TRUE(train(program, false, options) == expected);
  options.groups = Groups::Layered;
  options.connections = 1;
  options.maxDelay = 0;
  EXPECT_TRUE(train(program, false, options) == expected);
}

INSTANTIATE_TEST_SUITE_P(All, CudaFamilies, testing::ValuesIn(allFamilyCases()),
                         nameOfFamily);

} // namespace
