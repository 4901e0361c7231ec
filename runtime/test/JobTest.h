//===- JobTest.h - The job that a test program is ---------------*- C++ -*-===//
//
// For the tests that run as several processes, over MPI or sockets.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_TEST_JOBTEST_H
#define PENSTOCK_RUNTIME_TEST_JOBTEST_H

#include "penstock/Runtime/Job.h"
#include "penstock/Runtime/Run.h"

namespace penstock::runtime::test {

Job &testJob();

} // namespace penstock::runtime::test

#endif // PENSTOCK_RUNTIME_TEST_JOBTEST_H
