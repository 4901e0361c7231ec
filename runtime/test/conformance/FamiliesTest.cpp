//===- FamiliesTest.cpp - Every family over four processes ----------------===//
//
// All processes run them alike; see JobMain.cpp. Where the schedules are not
// built, as in the runtime alone, the programs come from the folder that
// PENSTOCK_FAMILIES names, into which WriteFamilies has written them.
//
//===----------------------------------------------------------------------===//

#include "TestBackend.h"
#include "Training.h"

#ifdef PENSTOCK_TEST_FAMILIES
#include "FamilyPrograms.h"
#else
#include "penstock/Program/File.h"
#endif

#include <algorithm>
#include <cstdlib>

using namespace penstock;
using namespace penstock::runtime;
using namespace penstock::runtime::test;
#ifdef PENSTOCK_TEST_FAMILIES
using namespace penstock::test;
#endif

namespace {

constexpr int32_t kNumRanks = 4;

struct Case {
  std::string name;
  std::function<Program()> make;
};

#ifdef PENSTOCK_TEST_FAMILIES
std::vector<Case> allCases() {
  std::vector<Case> cases;
  for (const FamilyCase &family : allFamilyCases())
    cases.push_back({nameOf(family), [family] {
                       return makeFamilyProgram(kNumRanks, family);
                     }});
  return cases;
}
#else
std::vector<Case> allCases() {
  const char *folder = std::getenv("PENSTOCK_FAMILIES");
  std::vector<Case> cases;
  std::error_code error;
  for (const auto &entry :
       std::filesystem::directory_iterator(folder ? folder : "families", error))
    if (entry.path().extension() == ".psp")
      cases.push_back({entry.path().stem(), [path = entry.path()] {
                         auto program = readProgramFile(path);
                         EXPECT_TRUE(program) << program.message();
                         return program ? std::move(*program) : Program();
                       }});
  std::ranges::sort(cases, {}, &Case::name);
  return cases;
}
#endif

class Families : public testing::TestWithParam<Case> {};

TEST_P(Families, TrainBitwiseAsOnThreads) {
  const Program program = GetParam().make();
  const std::vector<int32_t> own = {testJob().number()};
  const auto expected = trainToBits(program, {}, own);
  EXPECT_GT(expected.size(), 100u);
#ifdef PENSTOCK_TEST_CUDA
  constexpr bool replays[] = {false, true};
#else
  constexpr bool replays[] = {false};
#endif
  for (bool replay : replays) {
    const auto backend = makeTestBackend(kNumRanks);
    RunOptions run;
    run.backend = backend.get();
    run.replay = replay;
    EXPECT_TRUE(trainToBits(program, run, own, {onDevice, inner}) == expected)
        << replay;
  }
}

#if defined(PENSTOCK_TEST_FAMILIES) && !defined(PENSTOCK_TEST_CUDA)
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

#endif

INSTANTIATE_TEST_SUITE_P(All, Families, testing::ValuesIn(allCases()),
                         [](const auto &info) { return info.param.name; });

} // namespace
