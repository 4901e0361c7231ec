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
#include <unordered_map>
#include <utility>

namespace penstock {

//===----------------------------------------------------------------------===//
// Slots
//===----------------------------------------------------------------------===//

/// What a rank makes use of.
struct Usage {
  std::vector<uint8_t> queues; ///< ascending
  bool weights = false;        ///< weights are touched on another queue than 0
};

static Usage usageOf(const RankProgram &rank) {
  std::array<bool, 256> used{};
  Usage usage;
  for (const Instruction &inst : rank.instructions) {
    used[inst.queue] = true;
    usage.weights |=
        inst.queue != 0 && !isTransfer(inst.op) && !movesToHost(inst);
  }
  for (unsigned queue = 0; queue < used.size(); ++queue)
    if (used[queue])
      usage.queues.push_back(static_cast<uint8_t>(queue));
  return usage;
}

namespace {

/// Gives live ranges slots, one rank after another.
class SlotPlanner {
public:
  explicit SlotPlanner(const Problem &problem);

  /// Sets `slotBytes`, and gives the slot of every live range. A slot is free
  /// after the item that uses it last; with `start` and `end`, the times of the
  /// instructions, only when that item has ended before the one that takes the
  /// slot starts, so that no queue waits for another. The instructions name
  /// live ranges in `slots`.
  std::vector<int32_t> plan(RankProgram &rank, const Usage &usage,
                            const std::vector<LiveRange> &ranges,
                            std::span<const double> start,
                            std::span<const double> end);

private:
  /// Slots of one size. Those from `head` on are free, the first of them
  /// longest.
  struct FreeSlot {
    double time; ///< when it is free
    int32_t slot;
  };
  struct SizeClass {
    int64_t bytes = 0;
    int32_t numSlots = 0;
    std::vector<FreeSlot> freed;
    size_t head = 0;
  };
  /// A slot that is free at a time.
  struct Ending {
    double time;
    int32_t sizeClass, slot;
  };

  uint32_t sizeIndexOf(const LiveRange &range) const {
    return sizeIndex[static_cast<size_t>(range.kind) * numStages + range.stage];
  }
  int32_t &classOf(const LiveRange &range) {
    return classOfSize[sizeIndexOf(range)];
  }

  size_t numStages;
  std::vector<int64_t> sizes;       ///< of all tensors, ascending
  std::vector<uint32_t> sizeIndex;  ///< of (kind, stage), into `sizes`
  std::vector<int32_t> classOfSize; ///< of this rank, or -1
};

} // namespace

SlotPlanner::SlotPlanner(const Problem &problem)
    : numStages(problem.stages.size()) {
  std::vector<int64_t> bytes;
  for (TensorKind kind :
       {TensorKind::Activation, TensorKind::Gradient, TensorKind::Stash})
    for (size_t s = 0; s < numStages; ++s)
      bytes.push_back(bytesOf(problem, {kind, static_cast<int32_t>(s), 0}));
  sizes = bytes;
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  for (int64_t size : bytes)
    sizeIndex.push_back(static_cast<uint32_t>(
        std::lower_bound(sizes.begin(), sizes.end(), size) - sizes.begin()));
  classOfSize.assign(sizes.size(), -1);
}

std::vector<int32_t> SlotPlanner::plan(RankProgram &rank, const Usage &usage,
                                       const std::vector<LiveRange> &ranges,
                                       std::span<const double> start,
                                       std::span<const double> end) {
  // An end and a start that are equal on paper may differ by rounding.
  constexpr double kSlack = 1 + 1e-12;
  const auto &list = rank.instructions;
  const bool timed = !start.empty();
  std::vector<SizeClass> classes;
  std::vector<int32_t> slotOf(ranges.size(), kNoSlot);
  std::vector<std::vector<Ending>> endings(256); // per queue, by time
  std::vector<size_t> ended(256, 0);             // of them, those already freed

  size_t next = 0; // the live range that starts next
  for (uint32_t begin = 0, stop = 0; begin < list.size(); begin = stop) {
    stop = itemEnd(list, begin);
    for (uint8_t queue : usage.queues) {
      size_t &k = ended[queue];
      for (const auto &ending = endings[queue];
           k < ending.size() &&
           (!timed || ending[k].time <= start[begin] * kSlack);
           ++k)
        classes[ending[k].sizeClass].freed.push_back(
            {ending[k].time, ending[k].slot});
    }
    for (; next < ranges.size() && ranges[next].first == begin; ++next) {
      int32_t &sizeClass = classOf(ranges[next]);
      if (sizeClass < 0) {
        sizeClass = static_cast<int32_t>(classes.size());
        classes.emplace_back().bytes = sizes[sizeIndexOf(ranges[next])];
      }
      SizeClass &slots = classes[sizeClass];
      // Something before it in the list may have started later.
      const bool isFree =
          slots.head < slots.freed.size() &&
          (!timed || slots.freed[slots.head].time <= start[begin] * kSlack);
      slotOf[next] = isFree ? slots.freed[slots.head++].slot : slots.numSlots++;
    }
    for (uint32_t i = begin; i < stop; ++i)
      for (int32_t range : list[i].slots)
        if (range != kNoSlot && ranges[range].last == i)
          endings[list[begin].queue].push_back(
              {timed ? end[begin] : 0, classOf(ranges[range]), slotOf[range]});
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
  std::vector<int32_t> firstSlot(classes.size());
  for (const SizeClass *slots : bySize) {
    firstSlot[slots - classes.data()] =
        static_cast<int32_t>(rank.slotBytes.size());
    rank.slotBytes.insert(rank.slotBytes.end(), slots->numSlots, slots->bytes);
  }
  for (size_t i = 0; i < ranges.size(); ++i)
    slotOf[i] += firstSlot[classOf(ranges[i])];
  for (const LiveRange &range : ranges)
    classOf(range) = -1;
  return slotOf;
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

  /// Sets the waits of a rank whose instructions have slots.
  void plan(RankProgram &rank, const Usage &usage);

private:
  void touch(uint32_t inst, uint8_t queue, size_t cell, Access::Mode mode);
  void touchWeights(const RankProgram &rank, uint32_t i, size_t firstCell);
  void touchState(const Instruction &inst, uint32_t i, size_t cell);
  void touchHost(const Instruction &inst, uint32_t i, size_t firstCell);
  void know(uint32_t inst);
  bool isKnown(uint32_t inst) const { return known[queueOf[inst]] > inst; }

  const Problem &problem;
  size_t numQueues = 0;
  std::vector<uint8_t> queueOf; ///< of every instruction, by queueIndex
  std::array<uint8_t, 256> queueIndex{};

  /// The last writer of every cell, and behind it the last reader since then on
  /// each queue. Cells are the slots, and behind them, for ranks that touch
  /// weights from several queues, parameters and gradients of each stage, with
  /// post-validation the state of the batch, and the slots in host memory.
  std::vector<uint32_t> lastUse;
  std::vector<int32_t> cellOfStage; ///< of the parameters; gradients follow
  std::vector<int32_t> stages;      ///< on this rank

  /// clock[i * numQueues + q]: instructions of queue q below this index have
  /// ended when the item of instruction i ends.
  std::vector<uint32_t> clock;
  std::vector<uint32_t> known; ///< the clock of the item at hand
  std::vector<uint32_t> candidates;
  uint32_t lastAction = kNoInstruction; ///< before the item at hand
  std::vector<uint32_t> lastOnComm;
  std::vector<uint16_t> comms; ///< on this rank
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
    if (earlier != kNoInstruction && !isKnown(earlier))
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
    case Op::BackwardWeight:
      touch(i, queue, parameters, Access::Read);
      return touch(i, queue, gradients, Access::Update);
    case Op::AllReduce:
    case Op::ReduceGrad:
    case Op::ReduceTied:
    case Op::ReduceState:
      return touch(i, queue, gradients, Access::Update);
    case Op::Unshard:
    case Op::Reshard:
      return touch(i, queue, parameters, Access::Update);
    case Op::Step:
    case Op::Validate:
      touch(i, queue, parameters, Access::Update);
      return touch(i, queue, gradients, Access::Update);
    default:
      return;
    }
  };
  if (inst.op == Op::ReduceTied) {
    for (int32_t stage : problem.tiedAt(inst.stage)->stages)
      if (cellOfStage[stage] >= 0)
        touchStage(stage);
  } else if (inst.stage >= 0)
    touchStage(inst.stage);
  else
    for (int32_t stage : stages)
      touchStage(stage);
}

void WaitPlanner::touchState(const Instruction &inst, uint32_t i, size_t cell) {
  const uint8_t queue = queueIndex[inst.queue];
  if (inst.op == Op::ReduceState || (movesState(inst) && inst.op == Op::Recv))
    touch(i, queue, cell, Access::Update);
  else if (inst.op == Op::Validate || inst.op == Op::Step || movesState(inst))
    touch(i, queue, cell, Access::Read);
}

void WaitPlanner::touchHost(const Instruction &inst, uint32_t i,
                            size_t firstCell) {
  const uint8_t queue = queueIndex[inst.queue];
  const bool goes = inst.op == Op::Offload;
  touch(i, queue, static_cast<size_t>(inst.slots[Slot]),
        goes ? Access::Update : Access::Write);
  touch(i, queue, firstCell + static_cast<size_t>(inst.slots[Host]),
        goes ? Access::Write : Access::Read);
  // As in the order: the stash is away because there is no room before.
  if (lastAction != kNoInstruction && !isKnown(lastAction))
    candidates.push_back(lastAction);
}

void WaitPlanner::plan(RankProgram &rank, const Usage &usage) {
  const size_t numSlots = rank.slotBytes.size();
  auto &list = rank.instructions;
  std::array<uint32_t, 256> lastOnQueue;
  lastOnQueue.fill(kNoInstruction);
  numQueues = usage.queues.size();
  for (size_t q = 0; q < numQueues; ++q)
    queueIndex[usage.queues[q]] = static_cast<uint8_t>(q);

  size_t numCells = numSlots;
  stages.clear();
  if (usage.weights) {
    cellOfStage.resize(problem.stages.size(), -1);
    for (const Instruction &inst : list)
      if (inst.stage >= 0 && !isTransfer(inst.op) && !movesToHost(inst) &&
          cellOfStage[inst.stage] < 0) {
        cellOfStage[inst.stage] = static_cast<int32_t>(2 * stages.size());
        stages.push_back(inst.stage);
      }
    numCells += 2 * stages.size();
  }
  const size_t stateCell = numCells;
  numCells += problem.postValidation;
  const size_t hostCell = numCells;
  numCells += rank.hostSlotBytes.size();
  lastUse.assign(numCells * (numQueues + 1), kNoInstruction);
  clock.resize(list.size() * numQueues);
  queueOf.resize(list.size());
  rank.waits.clear();
  lastAction = kNoInstruction;

  for (uint32_t begin = 0, end = 0; begin < list.size(); begin = end) {
    end = itemEnd(list, begin);
    const uint8_t queue = queueIndex[list[begin].queue];
    std::fill(queueOf.begin() + begin, queueOf.begin() + end, queue);
    known.assign(numQueues, 0);
    if (lastOnQueue[queue] != kNoInstruction)
      know(lastOnQueue[queue]);
    lastOnQueue[queue] = begin;
    candidates.clear();
    for (uint32_t i = begin; i < end; ++i) {
      Instruction &inst = list[i];
      if (usesComm(inst.op)) {
        uint32_t &last = lastOnComm[inst.comm];
        if (last == kNoInstruction)
          comms.push_back(inst.comm);
        else if (last < begin)
          know(last);
        last = i;
      }
      forEachAccess(inst, problem.numStages(), [&](const Access &access) {
        touch(i, queue, static_cast<size_t>(inst.slots[access.role]),
              access.mode);
      });
      if (movesToHost(inst))
        touchHost(inst, i, hostCell);
      else if (usage.weights && !isTransfer(inst.op))
        touchWeights(rank, i, numSlots);
      if (problem.postValidation)
        touchState(inst, i, stateCell);
    }

    // Latest first: what an item has waited for needs no wait of its own, and
    // it can only have waited for earlier ones.
    if (candidates.size() > 1)
      std::sort(candidates.begin(), candidates.end(), std::greater<>());
    const size_t firstWait = rank.waits.size();
    for (uint32_t candidate : candidates) {
      if (candidate >= begin || isKnown(candidate))
        continue;
      rank.waits.push_back(candidate);
      know(candidate);
    }
    std::reverse(rank.waits.begin() + firstWait, rank.waits.end());
    list[begin].numWaits = static_cast<uint16_t>(rank.waits.size() - firstWait);
    list[begin].firstWait =
        list[begin].numWaits ? static_cast<uint32_t>(firstWait) : 0;

    if (isAction(list[begin].op))
      lastAction = begin;
    known[queue] = end;
    for (uint32_t i = begin; i < end; ++i)
      std::copy(known.begin(), known.end(), clock.begin() + i * numQueues);
  }

  for (uint16_t comm : comms)
    lastOnComm[comm] = kNoInstruction;
  comms.clear();
  for (int32_t stage : stages)
    cellOfStage[stage] = -1;
}

//===----------------------------------------------------------------------===//
// Both
//===----------------------------------------------------------------------===//

/// One more wait for an item behind all that have waits. Counts as many as an
/// item can have: these serve the simulation only.
static void addWait(RankProgram &rank, uint32_t head, uint32_t before) {
  Instruction &inst = rank.instructions[head];
  if (inst.numWaits == UINT16_MAX)
    return;
  if (inst.numWaits++ == 0)
    inst.firstWait = static_cast<uint32_t>(rank.waits.size());
  rank.waits.push_back(before);
}

/// The queue of the copies to host memory.
static uint8_t copyQueueOf(const Program &program,
                           const BufferOptions &options) {
  std::array<bool, 256> used{};
  for (const RankProgram &rank : program.ranks)
    for (const Instruction &inst : rank.instructions)
      used[inst.queue] = true;
  unsigned queue = options.transferQueue;
  if (queue > 0)
    while (++queue < 255 && used[queue])
      ;
  return static_cast<uint8_t>(std::min(queue, 255u));
}

/// Moves transfers and copies to their queues, gives every live range a slot of
/// its own, and makes whoever reads it on another queue wait for the one who
/// wrote it. Copies to host memory and a stash that comes back wait for the
/// action before them: it is away because there is no room for it earlier.
static Status spread(const Problem &problem, LiveRangeFinder &finder,
                     RankProgram &rank, int32_t number, uint8_t transferQueue,
                     uint8_t copyQueue, std::vector<LiveRange> &ranges) {
  auto &list = rank.instructions;
  for (uint32_t i = 0; i < list.size(); ++i) {
    if (movesToRank(list[i]))
      return Failure{quoted(list[i]) +
                         " belongs into an order; insert the transfers first",
                     {number, i}};
    if (isTransfer(list[i].op) && list[i].queue == 0)
      list[i].queue = transferQueue;
    if (movesToHost(list[i]) && list[i].queue == 0)
      list[i].queue = copyQueue;
    list[i].slots.fill(kNoSlot);
    list[i].numWaits = 0;
    list[i].firstWait = 0;
  }
  std::optional<Failure> failure;
  std::vector<uint32_t> writers; // of each live range
  rank.waits.clear();
  rank.times.clear();
  uint32_t head = 0, lastAction = kNoInstruction;
  auto touch = [&](uint32_t i, const Access &access, int32_t range) {
    if (!list[i].joined)
      head = i;
    if (isAction(list[i].op))
      lastAction = i;
    list[i].slots[access.role] = range;
    const Tensor &tensor = access.tensor;
    const bool comesBack =
        list[i].op == Op::Recv && tensor.kind == TensorKind::Stash &&
        problem.rankOf(tensor.stage, tensor.microbatch) == number;
    if ((comesBack || movesToHost(list[i])) && lastAction != kNoInstruction)
      addWait(rank, head, lastAction);
    if (access.mode == Access::Write)
      writers.push_back(i);
    else if (range != kNoSlot && list[writers[range]].queue != list[i].queue)
      addWait(rank, head, writers[range]);
    if (range != kNoSlot || failure)
      return;
    failure = Failure{describe(tensor) + " is not on rank " +
                          std::to_string(number) + " when " + quoted(list[i]) +
                          " reads it; insert what computes or receives it "
                          "before",
                      {number, i}};
  };
  ranges = std::move(finder.run(list, touch));
  if (failure)
    return *failure;
  rank.slotBytes.clear();
  for (const LiveRange &range : ranges)
    rank.slotBytes.push_back(bytesOf(problem, {range.kind, range.stage, 0}));
  return success();
}

/// Gives the stashes of a rank slots in host memory, in list order: of one size
/// the one that has been free longest, or a new one. Copies run one after the
/// other, so that whoever used it has ended.
static Status planHost(const Problem &problem, RankProgram &rank,
                       int32_t number) {
  struct SizeClass {
    int64_t bytes;
    int32_t numSlots;
    std::vector<int32_t> freed;
    size_t head;
  };
  std::vector<SizeClass> classes; // ascending
  auto bytesAt = [&](const Instruction &inst) {
    return bytesOf(problem, {TensorKind::Stash, inst.stage, inst.microbatch});
  };
  auto &list = rank.instructions;
  std::vector<uint32_t> copies;
  for (uint32_t i = 0; i < list.size(); ++i)
    if (movesToHost(list[i])) {
      copies.push_back(i);
      classes.push_back({bytesAt(list[i]), 0, {}, 0});
    }
  rank.hostSlotBytes.clear();
  if (copies.empty())
    return success();
  auto less = [](const SizeClass &a, const SizeClass &b) {
    return a.bytes < b.bytes;
  };
  auto equal = [](const SizeClass &a, const SizeClass &b) {
    return a.bytes == b.bytes;
  };
  std::sort(classes.begin(), classes.end(), less);
  classes.erase(std::unique(classes.begin(), classes.end(), equal),
                classes.end());
  auto classOf = [&](const Instruction &inst) -> SizeClass & {
    return *std::lower_bound(classes.begin(), classes.end(),
                             SizeClass{bytesAt(inst), 0, {}, 0}, less);
  };
  std::unordered_map<int32_t, int64_t> rowOf; // of the few stages of a rank
  MicrobatchTable slotOf(problem.numMicrobatches);
  slotOf.clear(list.size());
  for (uint32_t i : copies) {
    Instruction &inst = list[i];
    SizeClass &slots = classOf(inst);
    const auto [row, isNew] = rowOf.try_emplace(inst.stage, 0);
    if (isNew)
      row->second = slotOf.addRow();
    int32_t &slot = slotOf.at(row->second, inst.microbatch);
    if (inst.op == Op::Offload) {
      if (slot != kNoSlot) // what was there is needed no more
        slots.freed.push_back(slot);
      slot = slots.head < slots.freed.size() ? slots.freed[slots.head++]
                                             : slots.numSlots++;
      inst.slots[Host] = slot;
      continue;
    }
    if (slot == kNoSlot)
      return Failure{quoted(inst) + " gets back what nothing has offloaded "
                                    "before; offload it first, or remove this",
                     {number, i}};
    inst.slots[Host] = slot;
    slots.freed.push_back(std::exchange(slot, kNoSlot));
  }
  int32_t first = 0;
  for (SizeClass &slots : classes) {
    rank.hostSlotBytes.insert(rank.hostSlotBytes.end(), slots.numSlots,
                              slots.bytes);
    slots.numSlots = std::exchange(first, first + slots.numSlots);
  }
  for (uint32_t i : copies)
    list[i].slots[Host] += classOf(list[i]).numSlots; // the first of them
  return success();
}

/// Whether a slot can be free in the list before it is in time: where a
/// transfer or copy takes time, and where a rank gives a stash back while it
/// works on something else.
static bool needsTimes(const Program &program) {
  for (const RankProgram &rank : program.ranks)
    for (const Instruction &inst : rank.instructions)
      if ((isTransfer(inst.op) && inst.payload == Payload::Stash) ||
          (!isAction(inst.op) && durationOf(program.problem, inst) > 0))
        return true;
  return false;
}

Result<BufferStatistics> planBuffers(Program &program,
                                     const BufferOptions &options) {
  const Problem &problem = program.problem;
  const size_t numRanks = program.ranks.size();
  std::vector<std::vector<LiveRange>> ranges(numRanks);
  LiveRangeFinder finder(problem);
  const uint8_t copyQueue = copyQueueOf(program, options);
  for (size_t r = 0; r < numRanks; ++r)
    if (Status status =
            spread(problem, finder, program.ranks[r], static_cast<int32_t>(r),
                   options.transferQueue, copyQueue, ranges[r]);
        !status)
      return status.failure();

  // When everything would happen if no slot were used twice.
  std::optional<Timing> timing;
  if (needsTimes(program)) {
    timing = playProgram(program);
    if (!timing)
      return Failure{"the program deadlocks, so that its buffers cannot be "
                     "planned; verify it first"};
  }

  const std::vector<int64_t> persistent = persistentBytes(problem);
  SlotPlanner slots(problem);
  WaitPlanner waits(problem);
  BufferStatistics statistics;
  for (size_t r = 0; r < numRanks; ++r) {
    RankProgram &rank = program.ranks[r];
    const Usage usage = usageOf(rank);
    int64_t arena = 0;
    auto plan = [&](const Timing *times) {
      std::span<const double> start, end;
      if (times) {
        start = times->start[r];
        end = times->end[r];
      }
      std::vector<int32_t> slotOf =
          slots.plan(rank, usage, ranges[r], start, end);
      arena = slotOffsets(rank).back();
      return slotOf;
    };
    std::vector<int32_t> slotOf = plan(timing ? &*timing : nullptr);
    // Rather wait than run out of memory.
    if (timing && problem.memory > 0 && persistent[r] + arena > problem.memory)
      slotOf = plan(nullptr);
    for (Instruction &inst : rank.instructions)
      for (int32_t &slot : inst.slots)
        if (slot != kNoSlot)
          slot = slotOf[slot];
    if (Status status = planHost(problem, rank, static_cast<int32_t>(r));
        !status)
      return status.failure();
    waits.plan(rank, usage);
    statistics.slots += static_cast<int64_t>(rank.slotBytes.size());
    statistics.arenaBytes += arena;
    statistics.hostBytes += slotOffsets(rank.hostSlotBytes).back();
    statistics.waits += static_cast<int64_t>(rank.waits.size());
  }
  return statistics;
}

} // namespace penstock
