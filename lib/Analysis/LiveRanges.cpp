//===- LiveRanges.cpp - How long tensors stay on a rank -------------------===//

#include "penstock/Analysis/LiveRanges.h"

namespace penstock {

void LiveRangeFinder::clear(size_t listSize) {
  for (size_t key : touched)
    rowOf[key] = MicrobatchTable::kNoRow;
  touched.clear();
  current.clear(listSize);
  ranges.clear();
}

Peak peakOf(const Problem &problem, size_t size,
            std::span<const LiveRange> ranges,
            std::span<const VersionRange> versions) {
  std::vector<int64_t> change(size + 1, 0);
  for (const LiveRange &range : ranges) {
    const int64_t bytes = bytesOf(problem, {range.kind, range.stage, 0});
    change[range.first] += bytes;
    change[range.end] -= bytes;
  }
  for (const VersionRange &range : versions) {
    const int64_t bytes = problem.stages[range.stage].bytes.parameters;
    // One is there in any case.
    if (range.version == 0)
      change[0] -= bytes;
    change[range.first] += bytes;
    change[range.end] -= bytes;
  }
  Peak peak;
  int64_t bytes = 0;
  for (uint32_t i = 0; i < size; ++i)
    if ((bytes += change[i]) > peak.bytes)
      peak = {bytes, i};
  return peak;
}

} // namespace penstock
