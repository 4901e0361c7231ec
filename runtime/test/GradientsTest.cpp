//===- GradientsTest.cpp - Compiled programs train as without a pipeline --===//

#include "ByteLmConfig.h"

#include "penstock/Lowering/Lowering.h"
#include "penstock/Runtime/Models.h"
#include "penstock/Schedule/Schedule.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace penstock;
using namespace penstock::runtime;

namespace {

const std::string kModel =
    "byte-lm:width=8,hidden=8,context=4,embed=4,samples=4";

struct Family {
  const char *name;
  Result<Program> (*make)(const Problem &);
};
void PrintTo(const Family &family, std::ostream *os) { *os << family.name; }

/// Numbers of ranks and micro-batches, schedule, whether B is split.
using Case = std::tuple<int32_t, int32_t, Family, bool>;

class Gradients : public testing::TestWithParam<Case> {
protected:
  void SetUp() override {
    std::ofstream out(text);
    for (int line = 0; line < 50; ++line)
      out << "the quick brown fox jumps over the lazy dog " << line << "\n";
  }
  void TearDown() override { std::filesystem::remove(text); }

  static Program compile(const Case &shape) {
    const auto &[p, m, family, split] = shape;
    const ByteLmConfig config = *ByteLmConfig::parse(kModel);
    Problem problem;
    problem.name = "gradients";
    problem.numRanks = p;
    problem.numMicrobatches = m;
    for (int32_t s = 0; s < p; ++s) {
      Stage stage;
      stage.firstLayer = s == 0 ? 0 : s + 1; // stage 0 has two
      stage.numLayers = s == 0 ? 2 : 1;
      stage.bytes = bytesOf(stage, p + 1, config);
      problem.stages.push_back(stage);
      problem.placement.push_back(s);
    }
    Program program = *family.make(problem);
    if (split)
      splitBackward(program);
    appendSteps(program);
    EXPECT_TRUE(insertTransfers(program));
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

const Family kNaive{"naive", naive}, kGPipe{"gpipe", gpipe},
    kOneForwardOneBackward{"one_f_one_b", oneForwardOneBackward};

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
