//===- CudaMain.cpp - The main function of tests with the stand-in --------===//
//
// Each test has a machine of its own, and must leave nothing behind there.
//
//===----------------------------------------------------------------------===//

#include "conformance/TestBackend.h"
#include "standin/StandIn.h"

#include <gtest/gtest.h>

namespace penstock::runtime::test {

std::unique_ptr<Backend> makeTestBackend(int32_t numRanks) {
  return std::move(*makeCudaBackend(numRanks));
}

namespace {
class Machine final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo &) override {
    standin::reset();
    forgetGiven();
  }
  void OnTestEnd(const testing::TestInfo &) override {
    EXPECT_EQ(standin::findings(), "");
    EXPECT_EQ(standin::leaks(), "");
  }
};
} // namespace

} // namespace penstock::runtime::test

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(
      new penstock::runtime::test::Machine);
  return RUN_ALL_TESTS();
}
