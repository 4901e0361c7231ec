//===- NoCuda.cpp - In place of CUDA where there is none ------------------===//

#include "penstock/Runtime/Backend.h"

namespace penstock::runtime {

Result<std::unique_ptr<Backend>> makeCudaBackend(int32_t, const CudaOptions &) {
  return Failure{"back end 'cuda' is not built in; install CUDA and NCCL and "
                 "configure with -DPENSTOCK_ENABLE_CUDA=ON"};
}

} // namespace penstock::runtime
