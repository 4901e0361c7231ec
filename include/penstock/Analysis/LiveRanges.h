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

#include "penstock/Analysis/WeightVersions.h"
#include "penstock/Support/MicrobatchTable.h"

#include <span>
#include <vector>

namespace penstock {

struct LiveRange {
  TensorKind kind = TensorKind::Activation;
  int32_t stage = 0;
  uint32_t first = 0; ///< first instruction of the item that writes the tensor
  uint32_t last = 0;  ///< the instruction that touches it last
  uint32_t end = 0;   ///< behind the item of that
};

/// Whether the activation of a stage, which counts from its F, or its R, to the
/// end of its B or W, comes to a rank with an instruction, or leaves it. See
/// droppedStashes().
inline bool bringsStash(const Instruction &inst) {
  return inst.op == Op::Forward || inst.op == Op::Recompute ||
         inst.op == Op::Reload ||
         (inst.op == Op::Recv && inst.payload == Payload::Stash);
}
inline bool takesStash(const Instruction &inst) {
  return inst.op == Op::Backward || inst.op == Op::BackwardWeight ||
         inst.op == Op::Offload ||
         (inst.op == Op::Send && inst.payload == Payload::Stash);
}

/// Of each instruction of a list, whether it is an F or R whose stash is gone
/// with its end, because an R behind it makes that again; empty where there is
/// no R.
std::vector<uint8_t> droppedStashes(const Problem &problem,
                                    std::span<const Instruction> list);

/// Where the tensors of a rank need most bytes.
struct Peak {
  int64_t bytes = 0;
  uint32_t instruction = 0; ///< the first of the item
};
/// The earliest peak over the live ranges of a list of `size` instructions, and
/// of the versions of weights that a stage keeps beside one.
Peak peakOf(const Problem &problem, size_t size,
            std::span<const LiveRange> ranges,
            std::span<const VersionRange> versions = {});

/// Finds the live ranges of one rank after another, of all tensors or of the
/// stashes only, which are what an order holds: and of the inputs of stages
/// that are kept from an F to its R, which are activations of the stages
/// before. An offload ends the stay of a stash, a reload begins another.
class LiveRangeFinder {
public:
  enum Tensors { All, Stashes };

  explicit LiveRangeFinder(const Problem &problem, Tensors which = All)
      : problem(problem), which(which),
        rowOf(3 * problem.stages.size(), MicrobatchTable::kNoRow),
        current(problem.numMicrobatches) {}

  /// Live ranges of a well-formed list, by `first`; they are there until the
  /// next run. Calls `fn(instruction, access, range)` for every access, where
  /// `range` is kNoSlot when the tensor is not on the rank. An offload reads
  /// the stash, a reload writes it.
  template <typename Fn>
  std::vector<LiveRange> &run(std::span<const Instruction> list, Fn &&fn) {
    clear(list.size());
    ranges.reserve(list.size());
    bool recomputes = false;
    for (const Instruction &inst : list)
      if (which == Stashes && inst.op == Op::Recompute && inst.stage > 0) {
        recomputes = true;
        inputOf(inst) = kExpected;
      }
    uint32_t begin = 0, end = 0;
    for (uint32_t i = 0; i < list.size(); ++i) {
      if (i == end) {
        begin = i;
        end = itemEnd(list, begin);
      }
      const Instruction &inst = list[i];
      auto touch = [&](const Access &access) {
        int32_t &range = currentOf(access.tensor);
        if (access.mode == Access::Write) {
          range = static_cast<int32_t>(ranges.size());
          ranges.push_back(
              {access.tensor.kind, access.tensor.stage, begin, i, end});
        } else if (range != kNoSlot) {
          ranges[range].last = i;
          ranges[range].end = end;
        }
        fn(i, access, range);
      };
      if (which == Stashes)
        forEachStashAccess(inst, touch);
      else
        forEachAccess(inst, problem.numStages(), touch);
      if (recomputes && inst.stage > 0 &&
          (inst.op == Op::Forward || inst.op == Op::Recompute)) {
        int32_t &input = inputOf(inst);
        if (inst.op == Op::Forward && input == kExpected) {
          input = static_cast<int32_t>(ranges.size());
          ranges.push_back(
              {TensorKind::Activation, inst.stage - 1, begin, i, end});
        } else if (inst.op == Op::Recompute && input >= 0) {
          ranges[input].last = i;
          ranges[input].end = end;
        }
      }
      if (inst.op != Op::Offload && inst.op != Op::Reload)
        continue;
      const bool goes = inst.op == Op::Offload;
      const Tensor stash = {TensorKind::Stash, inst.stage, inst.microbatch};
      touch({goes ? Access::Read : Access::Write, Slot, stash});
      if (goes)
        currentOf(stash) = kNoSlot;
    }
    return ranges;
  }

private:
  static_assert(MicrobatchTable::kNone == kNoSlot);
  /// An input that some R needs, before its F.
  static constexpr int32_t kExpected = kNoSlot - 1;
  int32_t &inputOf(const Instruction &inst) {
    return currentOf({TensorKind::Activation, inst.stage - 1, inst.microbatch});
  }

  /// The live range of a tensor at this point of the list.
  int32_t &currentOf(const Tensor &tensor) {
    const size_t key =
        static_cast<size_t>(tensor.kind) * problem.stages.size() +
        static_cast<size_t>(tensor.stage);
    int64_t &row = rowOf[key];
    if (row == MicrobatchTable::kNoRow) {
      touched.push_back(key);
      row = current.addRow();
    }
    return current.at(row, tensor.microbatch);
  }
  void clear(size_t listSize);

  const Problem &problem;
  const Tensors which;
  std::vector<int64_t> rowOf;  ///< of (kind, stage), in `current`
  std::vector<size_t> touched; ///< entries of rowOf in use
  MicrobatchTable current;     ///< live range of (kind, stage, mb)
  std::vector<LiveRange> ranges;
};

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_LIVERANGES_H
