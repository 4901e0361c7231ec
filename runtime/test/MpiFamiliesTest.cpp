//===- MpiFamiliesTest.cpp - Every family over four processes -------------===//
//
// Run by `mpirun -n 4`.
//
//===----------------------------------------------------------------------===//

#include "FamilyPrograms.h"
#include "MpiTest.h"

using namespace penstock;
using namespace penstock::runtime;
using namespace penstock::runtime::test;
using namespace penstock::test;

namespace {

constexpr int32_t kNumRanks = 4;

class MpiFamilies : public testing::TestWithParam<FamilyCase> {};

TEST_P(MpiFamilies, TrainBitwiseAsOnThreads) {
  const Program program = makeFamilyProgram(kNumRanks, GetParam());
  const std::vector<int32_t> own = {testJob().number()};
  const auto expected = trainToBits(program, {}, own);
  EXPECT_GT(expected.size(), 100u);
  const auto backend = makeTestBackend(kNumRanks);
  RunOptions run;
  run.backend = backend.get();
  EXPECT_TRUE(trainToBits(program, run, own) == expected);
}

INSTANTIATE_TEST_SUITE_P(
    FusedAndSplit, MpiFamilies,
    testing::Combine(testing::Values(3, 8),
                     testing::Values(kNaive, kGPipe, kOneForwardOneBackward,
                                     kPipeDream, kPipeDream2BW),
                     testing::Bool()),
    nameOfFamily);
INSTANTIATE_TEST_SUITE_P(InOrder, MpiFamilies,
                         testing::Combine(testing::Values(3, 8),
                                          testing::ValuesIn(kInOrder),
                                          testing::Values(false)),
                         nameOfFamily);
INSTANTIATE_TEST_SUITE_P(InAnotherOrder, MpiFamilies,
                         testing::Combine(testing::Values(3, 8),
                                          testing::ValuesIn(kInAnotherOrder),
                                          testing::Values(false)),
                         nameOfFamily);

} // namespace
