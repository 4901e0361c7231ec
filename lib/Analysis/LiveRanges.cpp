//===- LiveRanges.cpp - How long tensors stay on a rank -------------------===//

#include "penstock/Analysis/LiveRanges.h"

namespace penstock {

static constexpr int64_t kNoRow = -1, kSparseRow = -2;

LiveRangeFinder::LiveRangeFinder(const Problem &problem)
    : problem(problem), rowOf(3 * problem.stages.size(), kNoRow) {}

int32_t &LiveRangeFinder::current(const Tensor &tensor) {
  const size_t key = static_cast<size_t>(tensor.kind) * problem.stages.size() +
                     static_cast<size_t>(tensor.stage);
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
  if (row == kSparseRow)
    return sparse
        .try_emplace(key * microbatches +
                         static_cast<size_t>(tensor.microbatch),
                     kNoSlot)
        .first->second;
  return dense[row + tensor.microbatch];
}

std::vector<LiveRange> LiveRangeFinder::run(std::span<const Instruction> list,
                                            RangeUses *uses) {
  for (size_t key : touched)
    rowOf[key] = kNoRow;
  touched.clear();
  dense.clear();
  sparse.clear();
  denseLimit = 16 * list.size();

  std::vector<LiveRange> ranges;
  ranges.reserve(list.size());
  if (uses)
    uses->assign(list.size(), {kNoSlot, kNoSlot, kNoSlot, kNoSlot});
  uint32_t begin = 0, end = 0;
  for (uint32_t i = 0; i < list.size(); ++i) {
    if (i == end) {
      begin = i;
      end = itemEnd(list, begin);
    }
    forEachAccess(list[i], problem.numStages(), [&](const Access &access) {
      int32_t &range = current(access.tensor);
      if (access.mode == Access::Write) {
        range = static_cast<int32_t>(ranges.size());
        ranges.push_back({access.tensor.kind, access.tensor.stage, begin,
                          end - 1, bytesOf(problem, access.tensor)});
      }
      if (range == kNoSlot)
        return;
      ranges[range].last = end - 1;
      if (uses)
        (*uses)[i][access.role] = range;
    });
  }
  return ranges;
}

} // namespace penstock
