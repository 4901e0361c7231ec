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

#include <gtest/gtest.h>

#include <unistd.h>

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

/// An order with steps for kModel, on p ranks with m micro-batches.
inline Program makeOrder(int32_t p, int32_t m,
                         const penstock::test::PlacedFamily &family, bool split,
                         std::vector<double> weights = {}) {
  const ByteLmConfig config =
      *configOfSlice(*ByteLmConfig::parse(kModel), family.slices);
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

} // namespace penstock::runtime::test

#endif // PENSTOCK_RUNTIME_TEST_FAMILYPROGRAMS_H
