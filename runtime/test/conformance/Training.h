//===- Training.h - A small model, trained to the last bit ------*- C++ -*-===//
//
// A small model, a text to train it on, and all that must be equal afterwards
// wherever a program has run.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_TEST_CONFORMANCE_TRAINING_H
#define PENSTOCK_RUNTIME_TEST_CONFORMANCE_TRAINING_H

#include "penstock/Runtime/Models.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
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

/// How models are made and found again.
struct ModelWrapper {
  std::function<ModelFactory(ModelFactory)> wrap = [](ModelFactory factory) {
    return factory;
  };
  std::function<const Model &(const Model &)> unwrap =
      [](const Model &model) -> const Model & { return model; };
  MakeModel *make = makeModel;
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

#endif // PENSTOCK_RUNTIME_TEST_CONFORMANCE_TRAINING_H
