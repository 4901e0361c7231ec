//===- LiveRanges.h - How long tensors stay on a rank -----------*- C++ -*-===//
//
// Before buffers are planned, data flows by tensor name. A live range is one
// stay of a tensor on a rank: from the item that writes it to the last item
// that touches it. The simulator adds up their bytes, buffer planning gives
// each a slot.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_ANALYSIS_LIVERANGES_H
#define PENSTOCK_ANALYSIS_LIVERANGES_H

#include "penstock/Program/Program.h"

#include <span>
#include <unordered_map>
#include <vector>

namespace penstock {

/// Index behind the last instruction of the item that starts at `begin`.
inline uint32_t itemEnd(std::span<const Instruction> list, uint32_t begin) {
  uint32_t end = begin + 1;
  while (end < list.size() && list[end].joined)
    ++end;
  return end;
}

struct LiveRange {
  TensorKind kind = TensorKind::Activation;
  int32_t stage = 0;
  uint32_t first = 0; ///< first instruction of the item that writes the tensor
  uint32_t last = 0;  ///< last instruction of the last item that touches it
  int64_t bytes = 0;
};

/// For each instruction and role, the live range that it touches, or kNoSlot.
using RangeUses = std::vector<std::array<int32_t, 4>>;

/// Finds the live ranges of one rank after another.
class LiveRangeFinder {
public:
  explicit LiveRangeFinder(const Problem &problem);

  /// Live ranges of a well-formed list, by `first`. A read of a tensor that is
  /// not on the rank belongs to none.
  std::vector<LiveRange> run(std::span<const Instruction> list,
                             RangeUses *uses = nullptr);

private:
  int32_t &current(const Tensor &tensor);

  const Problem &problem;
  std::vector<int64_t> rowOf;  ///< of (kind, stage), start in `dense`
  std::vector<size_t> touched; ///< entries of rowOf in use
  std::vector<int32_t> dense;  ///< live range of (kind, stage, mb)
  size_t denseLimit = 0;       ///< beyond it rows go to `sparse`: a
  std::unordered_map<uint64_t, int32_t> sparse; ///< list far from complete
};

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_LIVERANGES_H
