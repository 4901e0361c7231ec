//===- PlanBuffers.cpp - Slots and waits ----------------------------------===//
//
// Live ranges of one size are intervals of the list, so giving each the slot
// that has been free longest, in list order, needs the fewest slots; the waits
// between queues are the transitive reduction of what shares a slot
// (docs/lowering.md).
//
//===----------------------------------------------------------------------===//

#include "penstock/Analysis/LiveRanges.h"
#include "penstock/Analysis/Simulate.h"
#include "penstock/Lowering/Lowering.h"
#include "penstock/Program/Text.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

namespace penstock {

//===----------------------------------------------------------------------===//
// Slots
//===----------------------------------------------------------------------===//

namespace {

/// Live ranges of a rank, and where its instructions use them.
struct RankRanges {
  std::vector<LiveRange> ranges;
  RangeUses uses;
};

/// Gives live ranges slots, one rank after another.
class SlotPlanner {
public:
  explicit SlotPlanner(const Problem &problem);

  /// Sets the slots of the instructions of a rank. A slot is free after the
  /// item that uses it last; with a timing only when that item has ended before
  /// the one that takes the slot starts, so that no queue waits for another.
  void plan(RankProgram &rank, RankRanges live, const Timing *timing,
            size_t rankNumber);

private:
  /// Slots of one size. Those from `head` on are free, the first of them
  /// longest.
  struct SizeClass {
    int64_t bytes = 0;
    int32_t numSlots = 0;
    std::vector<int32_t> freed;
    size_t head = 0;
  };
  /// A live range that is over when its last item ends.
  struct Ending {
    double time;
    int32_t range;
  };

  size_t sizeOf(const LiveRange &range) const {
    return sizeIndex[static_cast<size_t>(range.kind) * numStages + range.stage];
  }
  SizeClass &classOf(const LiveRange &range);

  size_t numStages;
  std::vector<uint32_t> sizeIndex;  ///< of (kind, stage), by ascending bytes
  std::vector<int32_t> classOfSize; ///< of this rank, or -1
  std::vector<SizeClass> classes;
  std::vector<std::vector<Ending>> endings; ///< per queue, by time
  std::vector<size_t> ended;                ///< of them, those already freed
};

} // namespace

SlotPlanner::SlotPlanner(const Problem &problem)
    : numStages(problem.stages.size()), endings(256), ended(256) {
  std::vector<int64_t> bytes;
  for (TensorKind kind :
       {TensorKind::Activation, TensorKind::Gradient, TensorKind::Stash})
    for (size_t s = 0; s < numStages; ++s)
      bytes.push_back(bytesOf(problem, {kind, static_cast<int32_t>(s), 0}));
  std::vector<int64_t> sizes = bytes;
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  for (int64_t size : bytes)
    sizeIndex.push_back(static_cast<uint32_t>(
        std::lower_bound(sizes.begin(), sizes.end(), size) - sizes.begin()));
  classOfSize.assign(sizes.size(), -1);
}

SlotPlanner::SizeClass &SlotPlanner::classOf(const LiveRange &range) {
  int32_t &index = classOfSize[sizeOf(range)];
  if (index < 0) {
    index = static_cast<int32_t>(classes.size());
    classes.emplace_back().bytes = range.bytes;
  }
  return classes[index];
}

void SlotPlanner::plan(RankProgram &rank, RankRanges live, const Timing *timing,
                       size_t rankNumber) {
  auto &list = rank.instructions;
  auto &[ranges, uses] = live;
  // An end and a start that are equal on paper may differ by rounding.
  const double slack = timing ? 1e-12 * timing->makespan : 0;
  std::vector<int32_t> slotOf(ranges.size(), kNoSlot); // within its class

  auto free = [&](uint8_t queue, double now) {
    auto &list = endings[queue];
    for (; ended[queue] < list.size() && list[ended[queue]].time <= now;
         ++ended[queue]) {
      const int32_t range = list[ended[queue]].range;
      classOf(ranges[range]).freed.push_back(slotOf[range]);
    }
  };
  std::vector<uint8_t> queues;
  for (const Instruction &inst : list)
    if (std::find(queues.begin(), queues.end(), inst.queue) == queues.end())
      queues.push_back(inst.queue);

  int32_t next = 0; // the live range that starts next
  for (uint32_t begin = 0, end = 0; begin < list.size(); begin = end) {
    end = itemEnd(list, begin);
    const double now = timing ? timing->start[rankNumber][begin] + slack
                              : std::numeric_limits<double>::infinity();
    for (uint8_t queue : queues)
      free(queue, now);
    for (; next < static_cast<int32_t>(ranges.size()) &&
           ranges[next].first == begin;
         ++next) {
      SizeClass &slots = classOf(ranges[next]);
      slotOf[next] = slots.head < slots.freed.size() ? slots.freed[slots.head++]
                                                     : slots.numSlots++;
    }
    for (uint32_t i = begin; i < end; ++i)
      for (int32_t range : uses[i])
        if (range != kNoSlot && ranges[range].last == end - 1) {
          ranges[range].last = kNoInstruction; // once
          endings[list[begin].queue].push_back(
              {timing ? timing->end[rankNumber][begin] : 0, range});
        }
  }

  // Number the slots by size.
  std::vector<SizeClass *> bySize;
  for (SizeClass &slots : classes)
    bySize.push_back(&slots);
  std::sort(bySize.begin(), bySize.end(),
            [](const SizeClass *a, const SizeClass *b) {
              return a->bytes < b->bytes;
            });
  rank.slotBytes.clear();
  for (SizeClass *slots : bySize) {
    slots->head = rank.slotBytes.size(); // from here on the first slot
    rank.slotBytes.insert(rank.slotBytes.end(), slots->numSlots, slots->bytes);
  }
  for (size_t i = 0; i < list.size(); ++i)
    for (unsigned role = 0; role < uses[i].size(); ++role)
      if (int32_t range = uses[i][role]; range != kNoSlot)
        list[i].slots[role] =
            static_cast<int32_t>(classOf(ranges[range]).head) + slotOf[range];

  for (const LiveRange &range : ranges)
    classOfSize[sizeOf(range)] = -1;
  classes.clear();
  for (uint8_t queue : queues) {
    endings[queue].clear();
    ended[queue] = 0;
  }
}

//===----------------------------------------------------------------------===//
// Waits
//===----------------------------------------------------------------------===//

namespace {

/// Finds the waits of one rank after another.
class WaitPlanner {
public:
  explicit WaitPlanner(const Problem &problem)
      : problem(problem), lastOnComm(1 << 16, kNoInstruction) {}

  /// Sets the waits of a rank whose instructions have slots 0 .. numSlots - 1.
  void plan(RankProgram &rank, size_t numSlots);

private:
  void touch(uint32_t inst, uint8_t queue, size_t cell, Access::Mode mode);
  void touchWeights(const RankProgram &rank, uint32_t i, size_t firstCell);
  void know(uint32_t inst);

  const Problem &problem;
  size_t numQueues = 0;
  std::array<uint8_t, 256> queueIndex{};

  /// The last writer of every cell, and behind it the last reader since then on
  /// each queue. Cells are the slots, and behind them, for ranks that touch
  /// weights from several queues, parameters and gradients of each stage.
  std::vector<uint32_t> lastUse;
  std::vector<int32_t> cellOfStage; ///< of the parameters; gradients follow
  std::vector<int32_t> stages;      ///< on this rank

  /// clock[i * numQueues + q]: instructions of queue q below this index have
  /// ended when the item of instruction i ends.
  std::vector<uint32_t> clock;
  std::vector<uint32_t> known; ///< the clock of the item at hand
  std::vector<uint32_t> candidates;
  std::vector<uint32_t> lastOnComm;
};

} // namespace

void WaitPlanner::know(uint32_t inst) {
  for (size_t q = 0; q < numQueues; ++q)
    known[q] = std::max(known[q], clock[inst * numQueues + q]);
}

void WaitPlanner::touch(uint32_t inst, uint8_t queue, size_t cell,
                        Access::Mode mode) {
  uint32_t *use = &lastUse[cell * (numQueues + 1)];
  auto after = [&](uint32_t earlier) {
    if (earlier != kNoInstruction)
      candidates.push_back(earlier);
  };
  after(use[0]);
  if (mode == Access::Read) {
    use[1 + queue] = inst;
    return;
  }
  for (size_t q = 0; q < numQueues; ++q) {
    after(use[1 + q]);
    use[1 + q] = kNoInstruction;
  }
  use[0] = inst;
}

/// Actions read the parameters of their stage and add to its gradients; other
/// instructions change either.
void WaitPlanner::touchWeights(const RankProgram &rank, uint32_t i,
                               size_t firstCell) {
  const Instruction &inst = rank.instructions[i];
  const uint8_t queue = queueIndex[inst.queue];
  auto touchStage = [&](int32_t stage) {
    const size_t parameters = firstCell + cellOfStage[stage];
    const size_t gradients = parameters + 1;
    switch (inst.op) {
    case Op::Forward:
    case Op::BackwardInput:
    case Op::Recompute:
      return touch(i, queue, parameters, Access::Read);
    case Op::Backward:
      touch(i, queue, parameters, Access::Read);
      return touch(i, queue, gradients, Access::Update);
    case Op::BackwardWeight:
    case Op::AllReduce:
    case Op::ReduceGrad:
      return touch(i, queue, gradients, Access::Update);
    case Op::Unshard:
    case Op::Reshard:
      return touch(i, queue, parameters, Access::Update);
    case Op::Step:
      touch(i, queue, parameters, Access::Update);
      return touch(i, queue, gradients, Access::Update);
    default:
      return;
    }
  };
  if (inst.stage >= 0)
    touchStage(inst.stage);
  else
    for (int32_t stage : stages)
      touchStage(stage);
}

void WaitPlanner::plan(RankProgram &rank, size_t numSlots) {
  auto &list = rank.instructions;
  std::array<uint32_t, 256> lastOnQueue;
  lastOnQueue.fill(kNoInstruction);
  std::array<bool, 256> used{};
  bool weights = false;
  for (const Instruction &inst : list) {
    used[inst.queue] = true;
    weights |= inst.queue != 0 && !isTransfer(inst.op);
  }
  numQueues = 0;
  for (size_t q = 0; q < used.size(); ++q)
    if (used[q])
      queueIndex[q] = static_cast<uint8_t>(numQueues++);

  size_t numCells = numSlots;
  stages.clear();
  if (weights) {
    cellOfStage.resize(problem.stages.size(), -1);
    for (const Instruction &inst : list)
      if (inst.stage >= 0 && !isTransfer(inst.op) &&
          cellOfStage[inst.stage] < 0) {
        cellOfStage[inst.stage] = static_cast<int32_t>(2 * stages.size());
        stages.push_back(inst.stage);
      }
    numCells += 2 * stages.size();
  }
  lastUse.assign(numCells * (numQueues + 1), kNoInstruction);
  clock.resize(list.size() * numQueues);
  rank.waits.clear();

  for (uint32_t begin = 0, end = 0; begin < list.size(); begin = end) {
    end = itemEnd(list, begin);
    const uint8_t queue = queueIndex[list[begin].queue];
    known.assign(numQueues, 0);
    if (lastOnQueue[queue] != kNoInstruction)
      know(lastOnQueue[queue]);
    lastOnQueue[queue] = begin;
    candidates.clear();
    for (uint32_t i = begin; i < end; ++i) {
      Instruction &inst = list[i];
      if (usesComm(inst.op)) {
        uint32_t &last = lastOnComm[inst.comm];
        if (last != kNoInstruction && last < begin)
          know(last);
        last = i;
      }
      forEachAccess(inst, problem.numStages(), [&](const Access &access) {
        touch(i, queue, static_cast<size_t>(inst.slots[access.role]),
              access.mode);
      });
      if (weights && !isTransfer(inst.op))
        touchWeights(rank, i, numSlots);
    }

    // Latest first: what an item has waited for needs no wait of its own, and
    // it can only have waited for earlier ones.
    std::sort(candidates.begin(), candidates.end(), std::greater<>());
    const size_t firstWait = rank.waits.size();
    for (uint32_t candidate : candidates) {
      if (candidate >= begin ||
          known[queueIndex[list[candidate].queue]] > candidate)
        continue;
      rank.waits.push_back(candidate);
      know(candidate);
    }
    std::reverse(rank.waits.begin() + firstWait, rank.waits.end());
    list[begin].numWaits = static_cast<uint16_t>(rank.waits.size() - firstWait);
    list[begin].firstWait =
        list[begin].numWaits ? static_cast<uint32_t>(firstWait) : 0;

    known[queue] = end;
    for (uint32_t i = begin; i < end; ++i)
      std::copy(known.begin(), known.end(), clock.begin() + i * numQueues);
  }

  for (const Instruction &inst : list)
    if (usesComm(inst.op))
      lastOnComm[inst.comm] = kNoInstruction;
  for (int32_t stage : stages)
    cellOfStage[stage] = -1;
}

//===----------------------------------------------------------------------===//
// Both
//===----------------------------------------------------------------------===//

/// The instructions of a rank as planning starts from them, or why it cannot.
static Status prepare(RankProgram &rank, const BufferOptions &options,
                      int32_t rankNumber) {
  rank.waits.clear();
  rank.slotBytes.clear();
  for (size_t i = 0; i < rank.instructions.size(); ++i) {
    Instruction &inst = rank.instructions[i];
    inst.slots.fill(kNoSlot);
    inst.numWaits = 0;
    inst.firstWait = 0;
    if (isTransfer(inst.op) && inst.queue == 0)
      inst.queue = options.transferQueue;
    if (inst.op == Op::Offload || inst.op == Op::Reload)
      return Failure{"buffers of stashes that are offloaded cannot be planned "
                     "yet; remove the offload and its reload",
                     {rankNumber, static_cast<uint32_t>(i)}};
  }
  return success();
}

static std::string nameOf(const Tensor &tensor) {
  std::string text = tensor.kind == TensorKind::Activation ? "activation "
                     : tensor.kind == TensorKind::Gradient ? "gradient "
                                                           : "stash ";
  text += std::to_string(tensor.stage);
  text += " mb ";
  text += std::to_string(tensor.microbatch);
  return text;
}

/// Finds the live ranges of a rank, or what it reads that is not there.
static Result<RankRanges> findRanges(const Problem &problem,
                                     LiveRangeFinder &finder,
                                     const RankProgram &rank,
                                     int32_t rankNumber) {
  RankRanges live;
  live.ranges = finder.run(rank.instructions, &live.uses);
  std::optional<Failure> failure;
  for (size_t i = 0; i < rank.instructions.size(); ++i)
    forEachAccess(
        rank.instructions[i], problem.numStages(), [&](const Access &access) {
          if (failure || live.uses[i][access.role] != kNoSlot)
            return;
          const std::string tensor = nameOf(access.tensor);
          failure =
              Failure{tensor + " is not on rank " + std::to_string(rankNumber) +
                          " when `" + describe(rank.instructions[i]) +
                          "` reads it; insert what computes or receives "
                          "it before",
                      {rankNumber, static_cast<uint32_t>(i)}};
        });
  if (failure)
    return *failure;
  return live;
}

/// When everything would happen if no slot were used twice, where transfers
/// take time.
static Result<std::optional<Timing>>
timeWithoutReuse(Program program, const std::vector<RankRanges> &live) {
  bool takesTime = false;
  for (const RankProgram &rank : program.ranks)
    for (const Instruction &inst : rank.instructions)
      takesTime |=
          isTransfer(inst.op) && program.problem.link.time(inst.bytes) > 0;
  if (!takesTime)
    return std::optional<Timing>();
  WaitPlanner waits(program.problem);
  for (size_t r = 0; r < program.ranks.size(); ++r) {
    RankProgram &rank = program.ranks[r];
    for (size_t i = 0; i < rank.instructions.size(); ++i)
      rank.instructions[i].slots = live[r].uses[i];
    waits.plan(rank, live[r].ranges.size());
  }
  std::optional<Timing> timing = simulateProgram(program);
  if (!timing)
    return Failure{"the program deadlocks, so that its buffers cannot be "
                   "planned; verify it first"};
  return timing;
}

Result<BufferStatistics> planBuffers(Program &program,
                                     const BufferOptions &options) {
  const Problem &problem = program.problem;
  std::vector<RankProgram> ranks = program.ranks;
  LiveRangeFinder finder(problem);
  std::vector<RankRanges> live;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto number = static_cast<int32_t>(r);
    if (Status status = prepare(ranks[r], options, number); !status)
      return status.failure();
    Result<RankRanges> found = findRanges(problem, finder, ranks[r], number);
    if (!found)
      return found.failure();
    live.push_back(std::move(*found));
  }

  Result<std::optional<Timing>> timing =
      timeWithoutReuse({problem, ranks, program.rankSets}, live);
  if (!timing)
    return timing.failure();
  const std::vector<int64_t> persistent = persistentBytes(problem);
  SlotPlanner slots(problem);
  WaitPlanner waits(problem);
  BufferStatistics statistics;
  for (size_t r = 0; r < ranks.size(); ++r) {
    auto arena = [&] { return slotOffsets(ranks[r]).back(); };
    bool planned = false;
    if (*timing) {
      slots.plan(ranks[r], live[r], &**timing, r);
      // Rather wait than run out of memory.
      planned =
          problem.memory == 0 || persistent[r] + arena() <= problem.memory;
    }
    if (!planned)
      slots.plan(ranks[r], std::move(live[r]), nullptr, r);
    waits.plan(ranks[r], ranks[r].slotBytes.size());
    statistics.slots += static_cast<int64_t>(ranks[r].slotBytes.size());
    statistics.arenaBytes += arena();
    statistics.waits += static_cast<int64_t>(ranks[r].waits.size());
  }
  program.ranks = std::move(ranks);
  return statistics;
}

} // namespace penstock
