//===- FamilyPrograms.h - Programs of all families for byte-lm --*- C++ -*-===//
//
// A small model, a text to train it on, and the orders of every family for it.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_TEST_FAMILYPROGRAMS_H
#define PENSTOCK_RUNTIME_TEST_FAMILYPROGRAMS_H

#include "ByteLm.h"

#include "Support/Families.h"
#include "penstock/Lowering/Lowering.h"
#include "penstock/Runtime/Models.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <bit>
#include <filesystem>
#include <fstream>

namespace penstock::runtime::test {

inline const std::string kModel =
    "byte-lm:width=8,hidden=8,context=4,embed=4,samples=4";

/// A file of some lines. Tests may run at the same time, as processes of their
/// own.
struct SampleText {
  SampleText() {
    std::ofstream out(path);
    for (int line = 0; line < 50; ++line)
      out << "the quick brown fox jumps over the lazy dog " << line << "\n";
  }
  ~SampleText() { std::filesystem::remove(path); }

  const std::string path =
      testing::TempDir() + "penstock-text-" + std::to_string(getpid());
};

/// An order with steps for a model, on p ranks with m micro-batches.
inline Program makeOrder(int32_t p, int32_t m,
                         const penstock::test::PlacedFamily &family, bool split,
                         std::vector<double> weights = {},
                         const std::string &model = kModel) {
  const ByteLmConfig config =
      *configOfSlice(*ByteLmConfig::parse(model), family.slices);
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
    stage.bytes.output *= family.slices;
    stage.bytes.stash *= family.slices;
    problem.stages.push_back(stage);
  }
  family.place(problem);
  Result<Program> order = family.make(problem);
  EXPECT_TRUE(order) << order.message();
  Program program = std::move(*order);
  if (split)
    splitBackward(program);
  appendSteps(program);
  return program;
}

/// Number of micro-batches, schedule, whether B is split.
using FamilyCase = std::tuple<int32_t, penstock::test::PlacedFamily, bool>;

inline std::string
nameOfFamily(const testing::TestParamInfo<FamilyCase> &info) {
  const auto &[m, family, split] = info.param;
  return "m" + std::to_string(m) + "_" + family.name +
         (split ? "_split" : "_fused");
}

/// Every family, for few and for many micro-batches.
inline std::vector<FamilyCase> allFamilyCases() {
  using namespace penstock::test;
  std::vector<FamilyCase> cases;
  for (int32_t m : {3, 8}) {
    for (const PlacedFamily &family :
         {kNaive, kGPipe, kOneForwardOneBackward, kPipeDream, kPipeDream2BW})
      for (bool split : {false, true})
        cases.emplace_back(m, family, split);
    for (const PlacedFamily &family : kInOrder)
      cases.emplace_back(m, family, false);
    for (const PlacedFamily &family : kInAnotherOrder)
      cases.emplace_back(m, family, false);
  }
  return cases;
}

/// A program for kModel.
inline Program makeFamilyProgram(int32_t p, const FamilyCase &family) {
  const auto &[m, schedule, split] = family;
  Program program = makeOrder(p, m, schedule, split);
  EXPECT_TRUE(insertTransfers(program));
  EXPECT_TRUE(planBuffers(program));
  return program;
}

/// How models are made and found again.
struct ModelWrapper {
  MakeModel *make = makeModel;
  std::function<ModelFactory(ModelFactory)> wrap = [](ModelFactory factory) {
    return factory;
  };
  std::function<const Model &(const Model &)> unwrap =
      [](const Model &model) -> const Model & { return model; };
};

/// Trains a model for three steps. The bits of all losses, of what these ranks
/// have at the end, and the number of void steps.
inline std::vector<uint64_t> trainToBits(const Program &program, RunOptions run,
                                         std::vector<int32_t> ranks,
                                         const ModelWrapper &wrapper = {},
                                         const std::string &model = kModel) {
  const SampleText text;
  std::vector<uint64_t> bits;
  run.steps = 3;
  run.onStep = [&](const StepReport &report) {
    bits.push_back(std::bit_cast<uint64_t>(report.loss));
  };
  run.onFinished = [&](std::span<const Model *const> models) {
    const Problem &problem = program.problem;
    for (int32_t rank : ranks) {
      const auto &own =
          dynamic_cast<const InspectableModel &>(wrapper.unwrap(*models[rank]));
      for (int32_t s = 0; s < problem.numStages(); ++s)
        if (const auto owners = problem.ranksOf(s);
            std::find(owners.begin(), owners.end(), rank) != owners.end())
          own.forEachParameter(s, [&](const Parameter &parameter) {
            for (std::span<const float> values :
                 {std::span<const float>(parameter.value),
                  std::span<const float>(parameter.gradient)})
              for (float value : values)
                bits.push_back(std::bit_cast<uint32_t>(value));
          });
    }
  };
  auto factory = wrapper.make(model, text.path);
  EXPECT_TRUE(factory) << factory.message();
  const ModelFactory capturing = [&](const Program &program, int32_t rank) {
    auto made = (*factory)(program, rank);
    if (made)
      dynamic_cast<InspectableModel &>(**made).captureGradients();
    return made;
  };
  const RunReport report = runProgram(program, wrapper.wrap(capturing), run);
  EXPECT_TRUE(report) << report.error.message;
  bits.push_back(report.voidSteps);
  return bits;
}

} // namespace penstock::runtime::test

#endif // PENSTOCK_RUNTIME_TEST_FAMILYPROGRAMS_H
