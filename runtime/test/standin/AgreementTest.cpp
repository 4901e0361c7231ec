//===- AgreementTest.cpp - Verifier and stand-in, a short run -------------===//
//
// What the verifier accepts runs, and what it refuses hangs, under every model.
//
//===----------------------------------------------------------------------===//

#include "Agreement.h"
#include "Testing/RandomProgram.h"

#include "penstock/Program/Text.h"

#include <gtest/gtest.h>

using namespace penstock;

namespace {

TEST(StandInAgreement, OfVerifierAndStandInOnRandomPrograms) {
  std::mt19937 random(7);
  std::map<std::string, std::map<Outcome, size_t>> tally;
  for (uint32_t n = 0; n < 80; ++n) {
    const Program program = penstock::test::randomProgram(random);
    ASSERT_EQ(standin::test::compare(program, tally, n), "")
        << "program " << n << "\n"
        << dump(program);
  }
  // Worth something only if every model accepts and refuses some.
  for (auto &[model, count] : tally) {
    EXPECT_GT(count[Outcome::Ok], 10u) << model;
    EXPECT_GT(count[Outcome::Deadlock], 5u) << model;
    EXPECT_EQ(count[Outcome::Error] > 0, model.find("first use") != model.npos)
        << model;
  }
}

TEST(StandInAgreement, DelaysChangeNothing) {
  std::mt19937 random(8);
  std::map<std::string, std::map<Outcome, size_t>> tally;
  for (uint32_t n = 0; n < 8; ++n) {
    const Program program = penstock::test::randomProgram(random);
    ASSERT_EQ(standin::test::compare(program, tally, n, 100), "")
        << "program " << n << "\n"
        << dump(program);
  }
}

} // namespace
