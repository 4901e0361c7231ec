//===- Items.h - The order on one rank --------------------------*- C++ -*-===//
//
// Walks the items of a rank in host order and gives for each the items that it
// comes directly after: the last one on its queue, the last one on each of its
// communicators, and the ones that it waits for. All other order follows from
// these by transitivity.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_LIB_ANALYSIS_ITEMS_H
#define PENSTOCK_LIB_ANALYSIS_ITEMS_H

#include "penstock/Program/Program.h"

#include <algorithm>

namespace penstock {

class ItemWalk {
public:
  /// Serialised: every item comes directly after the one before it.
  explicit ItemWalk(bool serialised = false) : serialised(serialised) {}

  /// Calls `fn(first, end, predecessors)` for every item [first, end) of the
  /// rank. Predecessors are first instructions of earlier items; one may occur
  /// twice.
  template <typename Fn>
  void walk(const RankProgram &rank, Fn &&fn) {
    const auto &insts = rank.instructions;
    const uint32_t size = static_cast<uint32_t>(insts.size());
    headOf.resize(size);
    std::fill(std::begin(lastOnQueue), std::end(lastOnQueue), kNoInstruction);
    for (uint32_t first = 0, end; first < size; first = end) {
      const Instruction &head = insts[first];
      predecessors.clear();
      if (serialised) {
        if (first > 0)
          predecessors.push_back(headOf[first - 1]);
        end = itemEnd(insts, first);
        std::fill(headOf.begin() + first, headOf.begin() + end, first);
        fn(first, end, predecessors);
        continue;
      }
      uint32_t previous = lastOnQueue[head.queue];
      if (previous != kNoInstruction)
        predecessors.push_back(previous);
      lastOnQueue[head.queue] = first;
      for (uint32_t w = 0; w < head.numWaits; ++w)
        predecessors.push_back(headOf[rank.waits[head.firstWait + w]]);
      end = first;
      do {
        headOf[end] = first;
        if (usesComm(insts[end].op)) {
          if (insts[end].comm >= lastOnComm.size())
            lastOnComm.resize(insts[end].comm + 1, kNoInstruction);
          uint32_t &last = lastOnComm[insts[end].comm];
          if (last == kNoInstruction)
            usedComms.push_back(insts[end].comm);
          else if (last != first && last != previous)
            predecessors.push_back(last);
          last = first;
        }
        ++end;
      } while (end < size && insts[end].joined);
      fn(first, end, predecessors);
    }
    for (uint16_t comm : usedComms)
      lastOnComm[comm] = kNoInstruction;
    usedComms.clear();
  }

  /// After walk(): the first instruction of the item of each instruction.
  std::vector<uint32_t> headOf;

private:
  const bool serialised;
  uint32_t lastOnQueue[256];
  std::vector<uint32_t> lastOnComm; ///< as long as needed so far
  std::vector<uint16_t> usedComms;
  std::vector<uint32_t> predecessors;
};

} // namespace penstock

#endif // PENSTOCK_LIB_ANALYSIS_ITEMS_H
