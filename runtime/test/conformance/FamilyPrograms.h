//===- FamilyPrograms.h - Programs of all families for byte-lm --*- C++ -*-===//
//
// The orders of every family for the model of Training.h.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_TEST_CONFORMANCE_FAMILYPROGRAMS_H
#define PENSTOCK_RUNTIME_TEST_CONFORMANCE_FAMILYPROGRAMS_H

#include "ByteLm.h"
#include "Training.h"

#include "Support/Families.h"
#include "penstock/Lowering/Lowering.h"

namespace penstock::runtime::test {

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

inline std::string nameOf(const FamilyCase &familyCase) {
  const auto &[m, family, split] = familyCase;
  return "m" + std::to_string(m) + "_" + family.name +
         (split ? "_split" : "_fused");
}

inline std::string
nameOfFamily(const testing::TestParamInfo<FamilyCase> &info) {
  return nameOf(info.param);
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
    for (const PlacedFamily &family : kInHostMemory)
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

} // namespace penstock::runtime::test

#endif // PENSTOCK_RUNTIME_TEST_CONFORMANCE_FAMILYPROGRAMS_H
