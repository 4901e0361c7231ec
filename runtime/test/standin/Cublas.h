//===- Cublas.h - Errors of cuBLAS on the stand-in --------------*- C++ -*-===//
//
// What StandIn.h is for CUDA and NCCL. The functions are those that Penstock
// calls; whoever calls another one is not linked.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_TEST_STANDIN_CUBLAS_H
#define PENSTOCK_RUNTIME_TEST_STANDIN_CUBLAS_H

#include "StandIn.h"

#include <cublas_v2.h>

namespace penstock::standin {

/// As the fail() of StandIn.h. What failAny() injects is an internal error of
/// cuBLAS.
void fail(std::string_view function, uint64_t n, cublasStatus_t error);

} // namespace penstock::standin

#endif // PENSTOCK_RUNTIME_TEST_STANDIN_CUBLAS_H
