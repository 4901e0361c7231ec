//===- NoMpi.cpp - In place of MPI where there is none --------------------===//

#include "penstock/Runtime/Job.h"

namespace penstock::runtime {

Result<std::unique_ptr<Job>> makeMpiJob(double) {
  return Failure{"back end 'mpi' is not built in; install libopenmpi-dev and "
                 "configure with -DPENSTOCK_ENABLE_MPI=ON"};
}

} // namespace penstock::runtime
