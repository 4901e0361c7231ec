//===- Rewrite.h - A new list for a rank ------------------------*- C++ -*-===//
//
// How repairs and reductions change a program: a rank gets a new list, made of
// instructions of the old one. Waits follow their instructions, and what was
// ordered by way of an instruction that is gone stays ordered.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_LIB_ANALYSIS_REWRITE_H
#define PENSTOCK_LIB_ANALYSIS_REWRITE_H

#include "penstock/Program/Program.h"

#include <utility>

namespace penstock {

/// The new list of a rank. All indices are into the old one.
struct RankRewrite {
  struct Entry {
    uint32_t instruction;
    bool joined; ///< to the entry before
  };
  std::vector<Entry> list;
  /// Further waits: the item of `first` waits for `second`. By `first`.
  std::vector<std::pair<uint32_t, uint32_t>> waits;
};

/// Replaces the list of a rank. An item gets the waits of all items of which it
/// has members. No entry may come before what it waits for.
void rewrite(RankProgram &rank, const RankRewrite &change);

} // namespace penstock

#endif // PENSTOCK_LIB_ANALYSIS_REWRITE_H
