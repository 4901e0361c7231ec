//===- Reduce.h - What collectives compute ----------------------*- C++ -*-===//
//
// Reductions add up in the order of the ranks, in the type itself, or in float
// for half and bfloat16.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_TEST_STANDIN_REDUCE_H
#define PENSTOCK_RUNTIME_TEST_STANDIN_REDUCE_H

#include "Nccl.h"

namespace penstock::standin {

size_t sizeOf(ncclDataType_t type);

/// Bytes that a rank gives and gets; `unit` is count elements, n the number of
/// ranks.
size_t sendBytes(const Collective &c, int rank, size_t unit, size_t n);
size_t receiveBytes(const Collective &c, int rank, size_t unit, size_t n);

/// The buffers of one rank.
struct Part {
  const void *send;
  void *receive;
  int rank;
};
/// Does what a collective does, for all ranks, in their order. Buffers for
/// which `isUsable` is false are left alone.
void runCollective(const Collective &c, const std::vector<Part> &parts,
                   const std::function<bool(const void *, size_t)> &isUsable);

} // namespace penstock::standin

#endif // PENSTOCK_RUNTIME_TEST_STANDIN_REDUCE_H
