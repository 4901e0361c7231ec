//===- AgreementTest.cpp - Verifier and interpreter, a short run ----------===//

#include "Testing/Agreement.h"
#include "Testing/RandomProgram.h"

#include <gtest/gtest.h>

using namespace penstock;
using namespace penstock::test;

namespace {

/// A quarter of the programs, so that the quarters run in parallel.
class Agreement : public testing::TestWithParam<uint32_t> {};

TEST_P(Agreement, OfVerifierAndInterpreterOnRandomPrograms) {
  std::mt19937 random(GetParam());
  Tally tally;
  for (int trial = 0; trial < 500; ++trial) {
    const Program program = randomProgram(random);
    const std::string problem = compare(program, tally);
    ASSERT_EQ(problem, "") << "program " << trial;
  }
  // The generator is worth something only if it reaches every outcome.
  for (const auto &[model, count] : tally.models) {
    EXPECT_GT(count.accepted, 50u) << model;
    EXPECT_GT(count.refused, 50u) << model;
    if (model.find("first use") != model.npos)
      EXPECT_GT(count.errors, 20u) << model;
    else
      EXPECT_EQ(count.errors, 0u) << model;
  }
  EXPECT_GT(tally.cycles, 500u);
  EXPECT_GT(tally.shortest, 100u);
  EXPECT_GT(tally.onlyClosure, 20u);
  for (int64_t k : {-1, 0, 1, 2})
    EXPECT_GT(tally.capacities[k], 3u) << k;
  EXPECT_GT(tally.needs, 50u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Agreement, testing::Range(1u, 5u));

} // namespace
