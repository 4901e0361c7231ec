//===- LiveRanges.cpp - How long tensors stay on a rank -------------------===//

#include "penstock/Analysis/LiveRanges.h"

namespace penstock {

void LiveRangeFinder::clear(size_t listSize) {
  for (size_t key : touched)
    rowOf[key] = kNoRow;
  touched.clear();
  dense.clear();
  sparse.clear();
  denseLimit = 16 * listSize;
}

int32_t &LiveRangeFinder::currentSlow(size_t key, int32_t microbatch) {
  const auto microbatches = static_cast<size_t>(problem.numMicrobatches);
  int64_t &row = rowOf[key];
  if (row == kNoRow) {
    touched.push_back(key);
    row = kSparseRow;
    if (dense.size() + microbatches <= denseLimit) {
      row = static_cast<int64_t>(dense.size());
      dense.resize(dense.size() + microbatches, kNoSlot);
    }
  }
  if (row >= 0)
    return dense[row + microbatch];
  return sparse
      .try_emplace(key * microbatches + static_cast<size_t>(microbatch),
                   kNoSlot)
      .first->second;
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
