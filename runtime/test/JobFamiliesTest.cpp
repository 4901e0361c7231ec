//===- JobFamiliesTest.cpp - Every family over four processes -------------===//
//
// All processes run them alike; see JobMain.cpp.
//
//===----------------------------------------------------------------------===//

#include "FamilyPrograms.h"
#include "JobTest.h"
#include "penstock/Runtime/Models.h"
#include "penstock/Runtime/Run.h"

#include <algorithm>
#include <bit>

using namespace penstock;
using namespace penstock::runtime;
using namespace penstock::runtime::test;
using namespace penstock::test;

namespace {

constexpr int32_t kNumRanks = 4;

/// Number of micro-batches, schedule, whether B is split.
using Case = std::tuple<int32_t, PlacedFamily, bool>;

class TrainingInProcesses : public testing::Test {
protected:
  /// The bits of all losses, of what this process's rank has at the end, and
  /// the number of void steps.
  std::vector<uint64_t> train(const Program &program, Backend *backend,
                              const std::string &description = kModel) {
    std::vector<uint64_t> bits;
    RunOptions run;
    run.backend = backend;
    run.steps = 3;
    run.onStep = [&](const StepReport &report) {
      bits.push_back(std::bit_cast<uint64_t>(report.loss));
    };
    run.onFinished = [&](std::span<const Model *const> models) {
      const int32_t rank = testJob().number();
      const auto &model = dynamic_cast<const InspectableModel &>(*models[rank]);
      const Problem &problem = program.problem;
      for (int32_t s = 0; s < problem.numStages(); ++s)
        if (const auto ranks = problem.ranksOf(s);
            std::find(ranks.begin(), ranks.end(), rank) != ranks.end())
          model.forEachParameter(s, [&](const Parameter &parameter) {
            for (std::span<const float> values :
                 {std::span<const float>(parameter.value),
                  std::span<const float>(parameter.gradient)})
              for (float value : values)
                bits.push_back(std::bit_cast<uint32_t>(value));
          });
    };
    auto factory = makeModel(description, text.path);
    EXPECT_TRUE(factory) << factory.message();
    const ModelFactory capturing = [&](const Program &program, int32_t rank) {
      auto model = (*factory)(program, rank);
      if (model)
        dynamic_cast<InspectableModel &>(**model).captureGradients();
      return model;
    };
    const RunReport report = runProgram(program, capturing, run);
    EXPECT_TRUE(report) << report.error.message;
    bits.push_back(report.voidSteps);
    return bits;
  }

  const SampleText text;
};

class FamiliesInProcesses : public TrainingInProcesses,
                            public testing::WithParamInterface<Case> {};

TEST_P(FamiliesInProcesses, TrainBitwiseAsOnThreads) {
  const auto &[m, family, split] = GetParam();
  Program program = makeOrder(kNumRanks, m, family, split);
  ASSERT_TRUE(insertTransfers(program));
  ASSERT_TRUE(planBuffers(program));
  const auto expected = train(program, nullptr);
  EXPECT_GT(expected.size(), 100u);
  const auto backend = makeTestBackend(kNumRanks);
  EXPECT_TRUE(train(program, backend.get()) == expected);
}

/// The state of a batch is no part of the arena.
TEST_F(TrainingInProcesses, ValidatesStepsAsOnThreads) {
  const PlacedFamily *family =
      std::ranges::find(kInOrder, std::string("zb_h1"), &PlacedFamily::name);
  ASSERT_NE(family, std::end(kInOrder));
  Program program = makeOrder(kNumRanks, 8, *family, false);
  program.problem.postValidation = true;
  ASSERT_TRUE(insertTransfers(program));
  ASSERT_TRUE(planBuffers(program));
  const std::string clipping = kModel + ",clip=0.1"; // every step
  const auto expected = train(program, nullptr, clipping);
  EXPECT_EQ(expected.back(), 2u);
  const auto backend = makeTestBackend(kNumRanks);
  EXPECT_TRUE(train(program, backend.get(), clipping) == expected);
}

std::string nameOf(const testing::TestParamInfo<Case> &info) {
  const auto &[m, family, split] = info.param;
  return "m" + std::to_string(m) + "_" + family.name +
         (split ? "_split" : "_fused");
}

INSTANTIATE_TEST_SUITE_P(
    FusedAndSplit, FamiliesInProcesses,
    testing::Combine(testing::Values(3, 8),
                     testing::Values(kNaive, kGPipe, kOneForwardOneBackward,
                                     kPipeDream, kPipeDream2BW),
                     testing::Bool()),
    nameOf);
INSTANTIATE_TEST_SUITE_P(InOrder, FamiliesInProcesses,
                         testing::Combine(testing::Values(3, 8),
                                          testing::ValuesIn(kInOrder),
                                          testing::Values(false)),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(InAnotherOrder, FamiliesInProcesses,
                         testing::Combine(testing::Values(3, 8),
                                          testing::ValuesIn(kInAnotherOrder),
                                          testing::Values(false)),
                         nameOf);

} // namespace
