//===- Interleaved.h - Micro-batches pass chunks in groups ------*- C++ -*-===//
//
// What the interleaved families have in common. Every rank runs its forwards in
// the order of one table: for each group of g micro-batches (the last may be
// shorter), for each chunk, for each micro-batch of the group. The backwards
// take the same table with the chunks from last to first. Entry k of the table
// is what Megatron calls virtual micro-batch k. Private to the Schedule
// library.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_LIB_SCHEDULE_FAMILIES_INTERLEAVED_H
#define PENSTOCK_LIB_SCHEDULE_FAMILIES_INTERLEAVED_H

#include "Family.h"

#include <algorithm>

namespace penstock {

/// An order to fill in, and the table to fill it from.
struct Interleaving {
  struct Entry {
    int32_t microbatch, chunk;
  };

  /// Forwards, and backwards, of a rank.
  int64_t size() const { return static_cast<int64_t>(table.size()); }
  /// Forwards that the r-th rank runs before its first forward and backward in
  /// turn: `hop` more than the next rank, which is one stage nearer to the
  /// loss.
  int64_t warmup(int32_t r) const {
    return std::min(size(), int64_t(v - 1) * g + int64_t(hop) * (p - 1 - r));
  }
  Instruction forward(int32_t r, int64_t k) const {
    return action(Op::Forward, table[k].chunk * p + r, table[k].microbatch);
  }
  Instruction backward(Op op, int32_t r, int64_t k) const {
    return action(op, (v - 1 - table[k].chunk) * p + r, table[k].microbatch);
  }

  Program order;
  int32_t p, v; ///< ranks, chunks
  int32_t g;    ///< micro-batches of a group
  int32_t hop;
  std::vector<Entry> table;
};

/// Refuses a group that is out of range, or with which the order deadlocks;
/// group 0 stands for interleavedGroup().
Result<Interleaving> interleave(const Problem &problem, std::string_view family,
                                int32_t group, int32_t hop);

/// Fills in the order: F(0) .. F(w-1), then F(w+k) B(k) as long as there are
/// some, with w the warm-up of the rank.
Program fillInTurns(Interleaving loop);

} // namespace penstock

#endif // PENSTOCK_LIB_SCHEDULE_FAMILIES_INTERLEAVED_H
