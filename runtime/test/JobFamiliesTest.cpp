//===- JobFamiliesTest.cpp - Every family over four processes -------------===//
//
// All processes run them alike; see JobMain.cpp.
//
//===----------------------------------------------------------------------===//

#include "FamilyPrograms.h"
#include "JobTest.h"

#include <algorithm>

using namespace penstock;
using namespace penstock::runtime;
using namespace penstock::runtime::test;
using namespace penstock::test;

namespace {

constexpr int32_t kNumRanks = 4;

class FamiliesInProcesses : public testing::TestWithParam<FamilyCase> {};

TEST_P(FamiliesInProcesses, TrainBitwiseAsOnThreads) {
  const Program program = makeFamilyProgram(kNumRanks, GetParam());
  const std::vector<int32_t> own = {testJob().number()};
  const auto expected = trainToBits(program, {}, own);
  EXPECT_GT(expected.size(), 100u);
  const auto backend = makeTestBackend(kNumRanks);
  RunOptions run;
  run.backend = backend.get();
  EXPECT_TRUE(trainToBits(program, run, own) == expected);
}

/// The state of a batch is no part of the arena.
TEST(TrainingInProcesses, ValidatesStepsAsOnThreads) {
  const PlacedFamily *family =
      std::ranges::find(kInOrder, std::string("zb_h1"), &PlacedFamily::name);
  ASSERT_NE(family, std::end(kInOrder));
  Program program = makeOrder(kNumRanks, 8, *family, false);
  program.problem.postValidation = true;
  ASSERT_TRUE(insertTransfers(program));
  ASSERT_TRUE(planBuffers(program));
  const std::string clipping = kModel + ",clip=0.1"; // every step
  const std::vector<int32_t> own = {testJob().number()};
  const auto expected = trainToBits(program, {}, own, {}, clipping);
  EXPECT_EQ(expected.back(), 2u); // void steps
  const auto backend = makeTestBackend(kNumRanks);
  RunOptions run;
  run.backend = backend.get();
  EXPECT_TRUE(trainToBits(program, run, own, {}, clipping) == expected);
}

INSTANTIATE_TEST_SUITE_P(All, FamiliesInProcesses,
                         testing::ValuesIn(allFamilyCases()), nameOfFamily);

} // namespace
