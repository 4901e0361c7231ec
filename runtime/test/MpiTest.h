//===- MpiTest.h - The MPI job that a test program is -----------*- C++ -*-===//
//
// For the tests that run under mpirun.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_TEST_MPITEST_H
#define PENSTOCK_RUNTIME_TEST_MPITEST_H

#include "penstock/Runtime/Backend.h"

namespace penstock::runtime::test {

MpiJob &testJob();

/// A back end for all processes of this job.
std::unique_ptr<Backend> makeTestBackend(int32_t numRanks);

} // namespace penstock::runtime::test

#endif // PENSTOCK_RUNTIME_TEST_MPITEST_H
