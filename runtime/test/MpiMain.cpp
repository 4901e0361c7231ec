//===- MpiMain.cpp - The main function of tests under mpirun --------------===//
//
// All processes run each test alike, each with its rank.
//
//===----------------------------------------------------------------------===//

#include "MpiTest.h"

#include <gtest/gtest.h>

using namespace penstock::runtime;

static std::unique_ptr<MpiJob> job;

MpiJob &test::testJob() { return *job; }

std::unique_ptr<Backend> test::makeTestBackend(int32_t numRanks) {
  return std::move(*makeMpiBackend(*job, numRanks));
}

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  auto started = startMpi();
  if (!started || (*started)->size() != PENSTOCK_TEST_MPI) {
    std::cerr << "run these tests with mpirun -n " << PENSTOCK_TEST_MPI << "\n";
    return 1;
  }
  job = std::move(*started);
  const int code = RUN_ALL_TESTS();
  job.reset();
  return code;
}
