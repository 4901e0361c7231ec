//===- GradientsTest.cpp - Compiled programs train as without a pipeline --===//

#include "ByteLmConfig.h"

#include "Support/Families.h"
#include "penstock/Analysis/Verify.h"
#include "penstock/Lowering/Lowering.h"
#include "penstock/Runtime/Models.h"
#include "penstock/Schedule/Schedule.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace penstock;
using namespace penstock::runtime;
using namespace penstock::test;

namespace {

const std::string kModel =
    "byte-lm:width=8,hidden=8,context=4,embed=4,samples=4";

/// Numbers of ranks and micro-batches, schedule, whether B is split.
using Case = std::tuple<int32_t, int32_t, PlacedFamily, bool>;

class Gradients : public testing::TestWithParam<Case> {
protected:
  void SetUp() override {
    std::ofstream out(text);
    for (int line = 0; line < 50; ++line)
      out << "the quick brown fox jumps over the lazy dog " << line << "\n";
  }
  void TearDown() override { std::filesystem::remove(text); }

  static Program compile(const Case &shape, bool sums = true,
                         std::vector<double> weights = {}) {
    const auto &[p, m, family, split] = shape;
    const ByteLmConfig config = *ByteLmConfig::parse(kModel);
    Problem problem;
    problem.name = "gradients";
    problem.numRanks = p;
    problem.numMicrobatches = m;
    problem.weights = std::move(weights);
    const int32_t numStages = p * family.chunks;
    for (int32_t s = 0; s < numStages; ++s) {
      Stage stage;
      stage.firstLayer = s == 0 ? 0 : s + 1; // stage 0 has two
      stage.numLayers = s == 0 ? 2 : 1;
      stage.bytes = bytesOf(stage, numStages + 1, config);
      problem.stages.push_back(stage);
    }
    family.place(problem);
    Result<Program> order = family.make(problem);
    EXPECT_TRUE(order) << order.message();
    Program program = std::move(*order);
    if (split)
      splitBackward(program);
    appendSteps(program);
    EXPECT_TRUE(insertTransfers(program));
    for (RankProgram &rank : program.ranks)
      if (!sums)
        std::erase_if(rank.instructions, [](const Instruction &inst) {
          return inst.op == Op::AllReduce;
        });
    EXPECT_TRUE(planBuffers(program));
    return program;
  }

  GradientCheckReport check(const Program &program, bool force = false) const {
    RunOptions run;
    run.steps = 2;
    run.force = force;
    return checkGradients(program, kModel, text, run);
  }

  // Tests may run at the same time, as processes of their own.
  const std::string text =
      testing::TempDir() + "penstock-gradients-" + std::to_string(getpid());
};

TEST_P(Gradients, AreBitwiseThoseOfTheUnpipelinedModel) {
  const GradientCheckReport report = check(compile(GetParam()));
  ASSERT_FALSE(report.error) << report.error.message;
  EXPECT_TRUE(report.check.equal()) << report.check.describe();
  EXPECT_EQ(report.check.describe(),
            "all " + std::to_string(report.check.numValues) +
                " gradients and parameters are bitwise equal to the "
                "unpipelined model's after 2 steps");
  EXPECT_GT(report.check.numValues, 1000u);
}

std::string nameOf(const testing::TestParamInfo<Case> &info) {
  const auto &[p, m, family, split] = info.param;
  return "p" + std::to_string(p) + "_m" + std::to_string(m) + "_" +
         family.name + (split ? "_split" : "_fused");
}

INSTANTIATE_TEST_SUITE_P(
    Compiled, Gradients,
    testing::Combine(testing::Values(1, 2, 3, 4), testing::Values(1, 2, 3, 8),
                     testing::Values(kNaive, kGPipe, kOneForwardOneBackward),
                     testing::Bool()),
    nameOf);

INSTANTIATE_TEST_SUITE_P(Families, Gradients,
                         testing::Combine(testing::Values(2, 4),
                                          testing::Values(1, 3, 8),
                                          testing::ValuesIn(kInOrder),
                                          testing::Values(false)),
                         nameOf);

/// Equal up to rounding.
class RoundedGradients : public Gradients {};

TEST_P(RoundedGradients, AreThoseOfTheUnpipelinedModel) {
  const Program program = compile(GetParam());
  const GradientCheckReport report = check(program);
  ASSERT_FALSE(report.error) << report.error.message;
  EXPECT_TRUE(report.check.agrees()) << report.check.describe();
  // One micro-batch has one order.
  EXPECT_EQ(report.check.exact,
            program.problem.numChains() == 1 && std::get<1>(GetParam()) == 1);
  if (program.problem.numChains() == 1)
    return;
  // Every copy is compared.
  const auto &[p, m, family, split] = GetParam();
  const GradientCheckReport one =
      check(compile({p, m, kOneForwardOneBackward, split}));
  EXPECT_EQ(report.check.numValues, 2 * one.check.numValues);

  // Without its sum each copy has a part of the gradients.
  Program parts = compile(GetParam(), false);
  numberRankSets(parts);
  ASSERT_FALSE(verify(parts).accepted());
  const GradientCheckReport wrong = check(parts, true);
  ASSERT_FALSE(wrong.error) << wrong.error.message;
  EXPECT_FALSE(wrong.check.agrees());
}

INSTANTIATE_TEST_SUITE_P(Families, RoundedGradients,
                         testing::Combine(testing::Values(2, 4),
                                          testing::Values(1, 3, 8),
                                          testing::ValuesIn(kInAnotherOrder),
                                          testing::Values(false)),
                         nameOf);

using GradientsOf = Gradients;

TEST_P(GradientsOf, WrongStepsDiffer) {
  auto expectDifference = [&](const Program &program) {
    const GradientCheckReport report = check(program, true);
    ASSERT_FALSE(report.error) << report.error.message;
    EXPECT_FALSE(report.check.equal());
  };
  const Program right = compile(GetParam());
  for (size_t r = 0; r < right.ranks.size(); ++r) {
    Program wrong = right;
    auto &insts = wrong.ranks[r].instructions;
    ASSERT_EQ(insts.back().op, Op::Step);
    insts.push_back(insts.back());
    insts.back().numWaits = 0;
    expectDifference(wrong); // twice
    insts.resize(insts.size() - 2);
    expectDifference(wrong); // not at all
  }
}

TEST_P(GradientsOf, MicrobatchesWithWeights) {
  // Of unequal numbers of tokens, pytorch/torchtitan#2972.
  Program program = compile(GetParam(), true, {0.375, 0.625});
  GradientCheckReport report = check(program);
  ASSERT_FALSE(report.error) << report.error.message;
  EXPECT_TRUE(report.check.equal()) << report.check.describe();
  // They count: a model that goes by others differs.
  auto equalWeights = makeModel(kModel, text);
  auto reference = Reference::make(kModel, text, program.problem);
  RunOptions run;
  run.onFinished = [&](std::span<const Model *const> models) {
    reference->step();
    auto compared = compareGradients(program.problem, models, *reference);
    ASSERT_TRUE(compared) << compared.message();
    EXPECT_FALSE(compared->equal());
  };
  program.problem.weights.clear();
  const RunReport ended = runProgram(program, *equalWeights, run);
  EXPECT_TRUE(ended) << ended.error.message;
}

TEST_P(GradientsOf, WhatDoesNotRunFailsAsTheRunDoes) {
  Program program = compile(GetParam());
  program.ranks[0].instructions.pop_back();
  program.problem.stages[0].bytes.parameters += 4;
  EXPECT_EQ(check(program, true).error.kind, ErrorKind::BadModel);
  program.ranks.pop_back();
  EXPECT_EQ(check(program).error.kind, ErrorKind::InvalidProgram);
  RunOptions run;
  EXPECT_EQ(checkGradients(program, "gpt", text, run).error.kind,
            ErrorKind::BadModel);
}

INSTANTIATE_TEST_SUITE_P(Compiled, GradientsOf,
                         testing::Values(Case{2, 2, kOneForwardOneBackward,
                                              false}),
                         nameOf);

} // namespace
