//===- LiveRanges.cpp - How long tensors stay on a rank -------------------===//

#include "penstock/Analysis/LiveRanges.h"

#include <algorithm>
#include <unordered_map>

namespace penstock {

void LiveRangeFinder::clear(size_t listSize) {
  for (size_t key : touched)
    rowOf[key] = MicrobatchTable::kNoRow;
  touched.clear();
  current.clear(listSize);
  ranges.clear();
}

std::vector<uint8_t> droppedStashes(const Problem &problem,
                                    std::span<const Instruction> list) {
  std::vector<uint8_t> dropped;
  if (std::none_of(list.begin(), list.end(), [](const Instruction &inst) {
        return inst.op == Op::Recompute;
      }))
    return dropped;
  dropped.assign(list.size(), 0);
  MicrobatchTable writer(problem.numMicrobatches);
  writer.clear(list.size());
  std::unordered_map<int32_t, int64_t> rowOf; // of the few stages of a rank
  for (uint32_t i = 0; i < list.size(); ++i) {
    const Instruction &inst = list[i];
    if (inst.op != Op::Forward && inst.op != Op::Recompute)
      continue;
    const auto [row, isNew] = rowOf.try_emplace(inst.stage, 0);
    if (isNew)
      row->second = writer.addRow();
    int32_t &before = writer.at(row->second, inst.microbatch);
    if (inst.op == Op::Recompute && before != MicrobatchTable::kNone)
      dropped[before] = 1;
    before = static_cast<int32_t>(i);
  }
  return dropped;
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
