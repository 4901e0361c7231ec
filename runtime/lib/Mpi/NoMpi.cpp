//===- NoMpi.cpp - In place of MPI where there is none --------------------===//

#include "penstock/Runtime/Backend.h"

namespace penstock::runtime {

static Failure notBuiltIn() {
  return Failure{"back end 'mpi' is not built in; install libopenmpi-dev and "
                 "configure with -DPENSTOCK_ENABLE_MPI=ON"};
}

Result<std::unique_ptr<MpiJob>> startMpi() { return notBuiltIn(); }

Result<std::unique_ptr<Backend>> makeMpiBackend(MpiJob &, int32_t) {
  return notBuiltIn();
}

} // namespace penstock::runtime
