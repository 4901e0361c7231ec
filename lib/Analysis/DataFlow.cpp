//===- DataFlow.cpp - Every action reads what it needs --------------------===//
//
// Runs each rank symbolically in host order: a slot holds a tensor, written by
// an instruction and read by others since. Two instructions that touch one
// slot, one of them writing, must be ordered by the rank (queues,
// communicators, waits); then host order is the order in which they happen,
// whatever the queues do, and what is found in a slot is what will be there.
//
// The order is known by vector clocks: for each item and each queue, up to
// which item that queue has ended before the item starts.
//
// Weights are slots of another kind. All that adds to the gradients of a stage
// or uses them is in one order, the host's, so that sums do not depend on
// timing; the parameters of a stage are read where they are gathered.
//
//===----------------------------------------------------------------------===//

#include "Describe.h"
#include "Items.h"
#include "Rules.h"

#include "penstock/Program/Text.h"

#include <tuple>

using namespace penstock;

namespace {

constexpr uint32_t kNone = ~0u;

class DataFlow {
public:
  DataFlow(const Program &program, Findings &findings)
      : program(program), planned(program.isPlanned()), findings(findings),
        localStage(program.problem.stages.size(), kNone) {}

  void run() {
    for (int32_t r = 0; r < program.problem.numRanks && !findings.full(); ++r)
      runRank(r);
  }

private:
  /// What is in a slot. Those in host memory are behind the others. Without a
  /// plan every tensor has a slot of its own, and an offloaded stash one in
  /// host memory.
  struct SlotState {
    Tensor content = {};
    bool updated = false; ///< the stash as I leaves it to W
    uint32_t writer = kNone;
    uint32_t readers = kNone; ///< since the write, a list in `latest`
  };
  /// A list with the latest instruction on each queue: a queue runs in order,
  /// so that what comes after the latest comes after all of them.
  struct Latest {
    uint32_t instruction, next;
  };
  /// The weights of a stage. Instructions for one micro-batch (of schedules
  /// without a flush) are ordered only.
  struct StageState {
    uint32_t slice = kNone;     ///< last F, B or I, where there are slices
    uint32_t gradients = kNone; ///< last to add to them or to use them
    uint32_t user = kNone;      ///< first to use them
    /// all_reduce, reduce_grad and reduce_tied
    std::array<uint32_t, 3> reducers = {kNone, kNone, kNone};
    uint32_t step = kNone;
    uint32_t sharding = kNone; ///< last unshard or reshard
    bool isSharded = false;    ///< there is some on this rank
    bool isRead = false;       ///< the parameters, since `sharding`
    bool isHeld = false;       ///< this rank works with the stage
    SlotState parameters;
  };

  void runRank(int32_t r);
  void numberStagesAndQueues();
  void tick(uint32_t first, uint32_t end,
            const std::vector<uint32_t> &predecessors);
  void access(uint32_t i, const Access &access);
  uint32_t slotOf(uint32_t i, const Access &access) const;
  void read(uint32_t i, const Tensor &tensor, uint32_t slot);
  void checkFits(uint32_t i, const Tensor &tensor, uint32_t slot);
  void write(uint32_t i, const Tensor &tensor, uint32_t slot);
  void moveStash(uint32_t i);
  void touchWeights(uint32_t i);
  void touchState(uint32_t i);
  void passSlice(uint32_t i, StageState &stage);
  void readParameters(uint32_t i, StageState &stage);
  void changeParameters(uint32_t i, StageState &stage, int32_t number);
  void addGradient(uint32_t i, StageState &stage);
  void useGradients(uint32_t i, StageState &stage, int32_t number);
  void shard(uint32_t i, StageState &stage);
  void checkUnused();

  const Instruction &inst(uint32_t i) const { return rank->instructions[i]; }
  /// Instruction a has ended when b starts.
  bool isBefore(uint32_t a, uint32_t b) const {
    return clocks[size_t(items.headOf[b]) * numQueues +
                  queueIndex[inst(a).queue]] > items.headOf[a];
  }
  void note(uint32_t &list, uint32_t i) {
    for (uint32_t l = list; l != kNone; l = latest[l].next)
      if (inst(latest[l].instruction).queue == inst(i).queue) {
        latest[l].instruction = i;
        return;
      }
    latest.push_back({i, list});
    list = static_cast<uint32_t>(latest.size() - 1);
  }

  Site site(uint32_t i) const { return {rankIndex, i}; }
  std::string onQueue(uint32_t i) const {
    return " on queue " + std::to_string(inst(i).queue);
  }
  /// "slot 3", or without a plan the tensor.
  std::string place(uint32_t slot, const Tensor &tensor) const {
    return planned ? slotName(slot) : describe(tensor);
  }
  /// "slot 3" or "host slot 0" of a plan.
  std::string slotName(uint32_t slot) const {
    const size_t own = rank->slotBytes.size();
    return slot < own ? "slot " + std::to_string(slot)
                      : "host slot " + std::to_string(slot - own);
  }
  int64_t sizeOf(uint32_t slot) const {
    const size_t own = rank->slotBytes.size();
    return slot < own ? rank->slotBytes[slot] : rank->hostSlotBytes[slot - own];
  }
  static std::string_view verbOf(Op op) {
    return op == Op::Send      ? "sends "
           : op == Op::Offload ? "offloads "
           : op == Op::Reload  ? "reloads "
                               : "reads ";
  }
  uint32_t writerOf(const Tensor &tensor, uint32_t i, bool before,
                    uint32_t &slot) const;
  void missing(uint32_t i, const Tensor &tensor, uint32_t slot);
  void lostUpdate(uint32_t i, const Tensor &tensor, uint32_t writer);
  void unordered(uint32_t i, uint32_t before, const std::string &does,
                 const std::string &role);
  /// `i` comes after `before`, which for example "writes" "it", or else does
  /// what `does()` says too early.
  template <typename Does>
  void order(uint32_t i, uint32_t before, const char *verb,
             std::string_view object, Does &&does) {
    if (before != kNone && !isBefore(before, i))
      unordered(i, before, does(), verb + (' ' + std::string(object)));
  }
  /// What writes comes after the writer and all readers before it.
  template <typename Does>
  void orderWrite(uint32_t i, const SlotState &state, Does &&does,
                  std::string_view object = "it") {
    order(i, state.writer,
          state.writer != kNone && inst(state.writer).op == Op::Offload
              ? "copies"
              : "writes",
          object, does);
    for (uint32_t l = state.readers; l != kNone; l = latest[l].next)
      order(i, latest[l].instruction,
            inst(latest[l].instruction).op == Op::Send ? "sends" : "reads",
            object, does);
  }

  const Program &program;
  const bool planned;
  Findings &findings;

  const RankProgram *rank = nullptr;
  int32_t rankIndex = -1;
  ItemWalk items;
  uint32_t numQueues = 0;
  std::array<uint8_t, 256> queueIndex;
  std::vector<uint32_t> clocks; ///< one past the item known to have ended, for
                                ///< each instruction (of a head) and queue
  std::vector<uint32_t> localStage; ///< dense number of a stage on this rank
  std::vector<int32_t> stages;      ///< by local stage
  std::vector<StageState> weights;  ///< by local stage
  SlotState batchState;             ///< that the rank has; see movesState
  bool weightsOnQueues = false;     ///< on more than one
  bool offloads = false;            ///< some stash
  std::vector<SlotState> slots;
  std::vector<uint32_t> touched; ///< slots that are not in their first state
  std::vector<Latest> latest;
};

} // namespace

void DataFlow::runRank(int32_t r) {
  rankIndex = r;
  rank = &program.ranks[r];
  numberStagesAndQueues();
  clocks.assign(rank->instructions.size() * numQueues, 0);
  const size_t numTensors =
      stages.size() * static_cast<size_t>(program.problem.numMicrobatches);
  const size_t numSlots =
      planned ? rank->slotBytes.size() + rank->hostSlotBytes.size()
              : (offloads ? 4 : 3) * numTensors;
  if (slots.size() < numSlots)
    slots.resize(numSlots);

  items.walk(*rank, [&](uint32_t first, uint32_t end, auto &predecessors) {
    if (findings.full())
      return;
    tick(first, end, predecessors);
    for (uint32_t i = first; i < end; ++i) {
      forEachAccess(inst(i), program.problem.numStages(),
                    [&](const Access &a) { access(i, a); });
      if (!isTransfer(inst(i).op))
        touchWeights(i);
      if (program.problem.postValidation)
        touchState(i);
    }
  });
  if (!findings.full())
    checkUnused();

  for (uint32_t slot : touched)
    slots[slot] = {};
  touched.clear();
  latest.clear();
  batchState = {};
  for (int32_t stage : stages)
    localStage[stage] = kNone;
  stages.clear();
}

/// Dense numbers for what occurs on this rank, and what there is to look after.
void DataFlow::numberStagesAndQueues() {
  std::array<bool, 256> used = {};
  auto number = [&](int32_t stage) {
    if (stage < 0 || stage >= program.problem.numStages() ||
        localStage[stage] != kNone)
      return;
    localStage[stage] = static_cast<uint32_t>(stages.size());
    stages.push_back(stage);
    weights.emplace_back();
  };
  weights.clear();
  offloads = weightsOnQueues = false;
  int weightQueue = -1;
  for (const Instruction &inst : rank->instructions) {
    used[inst.queue] = true;
    number(inst.stage);
    if (isTransfer(inst.op))
      continue;
    offloads |= movesToHost(inst);
    if (movesToHost(inst))
      continue;
    weightsOnQueues |= weightQueue >= 0 && weightQueue != inst.queue;
    weightQueue = inst.queue;
    if (inst.stage >= 0 && inst.op != Op::ReduceTied)
      weights[localStage[inst.stage]].isHeld = true;
    if (isAction(inst.op)) {
      number(inst.stage - 1);
      number(inst.stage + 1);
    }
    if (inst.op == Op::Unshard || inst.op == Op::Reshard)
      weights[localStage[inst.stage]].isSharded = true;
  }
  numQueues = 0;
  for (unsigned q = 0; q < used.size(); ++q)
    if (used[q])
      queueIndex[q] = static_cast<uint8_t>(numQueues++);
}

void DataFlow::tick(uint32_t first, uint32_t,
                    const std::vector<uint32_t> &predecessors) {
  uint32_t *own = &clocks[size_t(first) * numQueues];
  for (uint32_t p : predecessors) {
    const uint32_t *other = &clocks[size_t(p) * numQueues];
    for (uint32_t q = 0; q < numQueues; ++q)
      own[q] = std::max(own[q], other[q]);
    uint32_t &queue = own[queueIndex[inst(p).queue]];
    queue = std::max(queue, p + 1);
  }
}

uint32_t DataFlow::slotOf(uint32_t i, const Access &access) const {
  if (planned)
    return static_cast<uint32_t>(inst(i).slots[access.role]);
  const auto m = static_cast<uint32_t>(program.problem.numMicrobatches);
  return (3 * localStage[access.tensor.stage] +
          static_cast<uint32_t>(access.tensor.kind)) *
             m +
         static_cast<uint32_t>(access.tensor.microbatch);
}

void DataFlow::access(uint32_t i, const Access &access) {
  const uint32_t slot = slotOf(i, access);
  if (slot == kNone) {
    findings.add(site(i),
                 "has no slot for " + describe(access.tensor) + ", which it " +
                     (access.mode == Access::Read ? "reads" : "writes") +
                     "; plan the buffers");
    return;
  }
  if (slots[slot].writer == kNone && slots[slot].readers == kNone)
    touched.push_back(slot);
  if (access.mode != Access::Write)
    read(i, access.tensor, slot);
  if (access.mode != Access::Read)
    write(i, access.tensor, slot);
  else
    note(slots[slot].readers, i);
}

/// `i` is not ordered after `before`, which touches the same thing.
void DataFlow::unordered(uint32_t i, uint32_t before, const std::string &does,
                         const std::string &role) {
  const std::string other = quoted(program, site(before));
  if (i == before)
    findings.add(site(i), does + " and " + role + " at once; use another slot");
  else if (items.headOf[i] == items.headOf[before])
    findings.add(site(i),
                 does + " while " + other +
                     ", which is issued together with it, " + role +
                     "; issue one after the other",
                 {{site(before), "the other one is here"}});
  else
    findings.add(site(i),
                 does + onQueue(i) + ", not ordered after " + other +
                     onQueue(before) + ", which " + role +
                     "; let it wait for that",
                 {{site(before), "it has to wait for this one"}});
}

void DataFlow::read(uint32_t i, const Tensor &tensor, uint32_t slot) {
  const SlotState &state = slots[slot];
  if (state.writer == kNone || !(state.content == tensor))
    return missing(i, tensor, slot);
  order(i, state.writer, "writes", "it", [&] {
    return (inst(i).op == Op::Send ? "sends " : "reads ") + describe(tensor);
  });
  if (inst(i).op == Op::BackwardWeight && tensor.kind == TensorKind::Stash &&
      !state.updated)
    lostUpdate(i, tensor, state.writer);
}

/// The instruction next to `i`, before or behind it, that writes the tensor,
/// and where to.
uint32_t DataFlow::writerOf(const Tensor &tensor, uint32_t i, bool before,
                            uint32_t &slot) const {
  const auto size = static_cast<uint32_t>(rank->instructions.size());
  uint32_t writer = kNone;
  for (uint32_t k = i + (before ? -1 : 1); k < size && writer == kNone;
       k += before ? -1 : 1) {
    const Tensor stash = {TensorKind::Stash, inst(k).stage, inst(k).microbatch};
    const Access back = {Access::Write, Slot, stash};
    if (movesToHost(inst(k)) && inst(k).op == Op::Reload && stash == tensor &&
        slotOf(k, back) != kNone)
      std::tie(writer, slot) = std::pair(k, slotOf(k, back));
    forEachAccess(inst(k), program.problem.numStages(), [&](const Access &a) {
      if (a.mode != Access::Read && a.tensor == tensor && slotOf(k, a) != kNone)
        std::tie(writer, slot) = std::pair(k, slotOf(k, a));
    });
  }
  return writer;
}

/// How what a slot holds differs from what it should hold.
static std::string_view difference(const Tensor &held, const Tensor &needed) {
  return held.kind != needed.kind     ? "another kind of tensor"
         : held.stage != needed.stage ? "another stage"
                                      : "another micro-batch";
}

/// `i` needs a tensor that is not there. Looks for where it is, so that the
/// message can say what to do: linear, but a rule has few findings.
void DataFlow::missing(uint32_t i, const Tensor &tensor, uint32_t slot) {
  const SlotState &state = slots[slot];
  std::string text = std::string(verbOf(inst(i).op)) + describe(tensor);
  std::vector<Note> notes;
  if (state.writer == i) {
    findings.add(site(i), "writes " + place(slot, tensor) +
                              " and reads it at once; use another slot");
    return;
  }
  const bool isEmptied =
      state.writer != kNone && inst(state.writer).op == Op::Offload;
  if (isEmptied && tensor.kind == TensorKind::Stash &&
      inst(state.writer).stage == tensor.stage &&
      inst(state.writer).microbatch == tensor.microbatch) {
    findings.add(site(i),
                 text + ", which " + quoted(program, site(state.writer)) +
                     " has moved to host memory; reload it before",
                 {{site(state.writer), "offloaded here"}});
    return;
  }
  uint32_t from = kNone;
  const uint32_t early = writerOf(tensor, i, true, from);
  const uint32_t late =
      early == kNone ? writerOf(tensor, i, false, from) : kNone;
  if (planned)
    text += " from slot " + std::to_string(slot);
  if (isEmptied) {
    text += ", which " + quoted(program, site(state.writer)) + " has emptied";
  } else if (state.writer != kNone) {
    const std::string held = describe(state.content);
    notes.push_back({site(state.writer), "slot " + std::to_string(slot) +
                                             " gets " + held + " here"});
    if (early != kNone && from == slot) {
      notes.push_back({site(early), describe(tensor) + " was put there here"});
      findings.add(site(i),
                   text + ", where " + quoted(program, site(state.writer)) +
                       " has put " + held +
                       " over it: the slot is reused too early; give that "
                       "another slot, or put it after this",
                   std::move(notes));
      return;
    }
    text += ", which holds " + held + ", " +
            std::string(difference(state.content, tensor));
  } else if (planned) {
    text += ", which nothing has written before";
  }
  if (early != kNone) {
    text += "; " + quoted(program, site(early)) + " puts it into slot " +
            std::to_string(from) + ", so name that one";
    notes.push_back({site(early), "put there here"});
  } else if (late != kNone) {
    text += (planned ? "; " : " before ") + quoted(program, site(late)) +
            (planned ? " writes the tensor only later; put this after that"
                     : " writes it; put it after that");
    notes.push_back({site(late), "written here"});
  } else {
    text += planned ? "; write it there first"
                    : ", which nothing on this rank produces or receives "
                      "before; insert what does";
  }
  findings.add(site(i), text, std::move(notes));
}

/// W finds the stash as F or R left it. Where I does not stand before it at
/// all, completeness says so.
void DataFlow::lostUpdate(uint32_t i, const Tensor &tensor, uint32_t writer) {
  for (uint32_t k = i; k-- > 0;)
    if (inst(k).op == Op::BackwardInput && inst(k).stage == tensor.stage &&
        inst(k).microbatch == tensor.microbatch) {
      findings.add(site(i),
                   "reads " + describe(tensor) + " as " +
                       quoted(program, site(writer)) +
                       " has left it, without what " +
                       quoted(program, site(k)) + " has added; put " +
                       quoted(program, site(writer)) + " before that",
                   {{site(writer), "written here"}, {site(k), "added here"}});
      return;
    }
}

void DataFlow::checkFits(uint32_t i, const Tensor &tensor, uint32_t slot) {
  const int64_t bytes = planned ? bytesOf(program.problem, tensor) : 0;
  if (planned && sizeOf(slot) < bytes)
    findings.add(site(i),
                 "puts " + describe(tensor) + " of " + std::to_string(bytes) +
                     " bytes into " + slotName(slot) + ", which has " +
                     std::to_string(sizeOf(slot)) + "; use a larger one");
}

void DataFlow::write(uint32_t i, const Tensor &tensor, uint32_t slot) {
  SlotState &state = slots[slot];
  checkFits(i, tensor, slot);
  orderWrite(i, state, [&] {
    return (inst(i).op == Op::Recv ? "receives into " : "writes ") +
           place(slot, tensor);
  });
  const bool updated =
      inst(i).op == Op::BackwardInput && tensor.kind == TensorKind::Stash;
  state = {tensor, updated, i, kNone};
}

/// Offload and reload. An offload leaves its place empty, a reload leaves the
/// copy in host memory as it is.
void DataFlow::moveStash(uint32_t i) {
  if (!movesToHost(inst(i)))
    return; // structure says that it belongs into an order
  const Tensor stash = {TensorKind::Stash, inst(i).stage, inst(i).microbatch};
  const bool goes = inst(i).op == Op::Offload;
  uint32_t slot = slotOf(i, {Access::Update, Slot, stash}), host = kNone;
  if (!planned)
    host =
        (3 * static_cast<uint32_t>(stages.size()) + localStage[stash.stage]) *
            static_cast<uint32_t>(program.problem.numMicrobatches) +
        static_cast<uint32_t>(stash.microbatch);
  else if (inst(i).slots[Host] != kNoSlot)
    host = static_cast<uint32_t>(rank->slotBytes.size()) +
           static_cast<uint32_t>(inst(i).slots[Host]);
  if (slot == kNone || host == kNone) {
    findings.add(site(i), std::string("has no ") +
                              (slot == kNone ? "slot" : "host slot") + " for " +
                              describe(stash) + ", which it " +
                              (goes ? "offloads" : "reloads") +
                              "; plan the buffers");
    return;
  }
  touched.push_back(slot);
  touched.push_back(host);
  SlotState &here = slots[slot], &there = slots[host];
  auto does = [&] { return std::string(verbOf(inst(i).op)) + describe(stash); };
  checkFits(i, stash, goes ? host : slot);
  if (goes) {
    if (here.writer == kNone || !(here.content == stash))
      missing(i, stash, slot);
    orderWrite(i, here, does);
    orderWrite(i, there, does);
    there = {stash, here.updated, i, kNone};
    here = {{}, false, i, kNone};
    return;
  }
  if (there.writer == kNone || !(there.content == stash)) {
    std::string text = does();
    std::vector<Note> notes;
    if (planned)
      text += " from " + slotName(host);
    if (there.writer == kNone) {
      text += planned ? ", into which nothing has been offloaded before; "
                        "offload it there first, or remove this"
                      : ", which nothing has offloaded before; offload it "
                        "first, or remove this";
    } else {
      text += ", which holds " + describe(there.content) +
              "; name the one that it was offloaded to";
      notes.push_back(
          {site(there.writer),
           slotName(host) + " gets " + describe(there.content) + " here"});
    }
    findings.add(site(i), text, std::move(notes));
  }
  order(i, there.writer, "offloads", "it", does);
  note(there.readers, i);
  orderWrite(i, here, does);
  here = {stash, there.updated, i, kNone};
}

/// What is not a transfer touches the weights of its stage.
void DataFlow::touchWeights(uint32_t i) {
  const Instruction &own = inst(i);
  if (own.op == Op::Step && own.stage < 0) {
    for (size_t k = 0; k < stages.size(); ++k)
      if (weights[k].isHeld) {
        useGradients(i, weights[k], stages[k]);
        changeParameters(i, weights[k], stages[k]);
      }
    return;
  }
  if (own.stage < 0)
    return; // a barrier
  if (own.op == Op::ReduceTied) {
    for (int32_t stage : program.problem.tiedAt(own.stage)->stages)
      if (localStage[stage] != kNone && weights[localStage[stage]].isHeld)
        useGradients(i, weights[localStage[stage]], stage);
    return;
  }
  StageState &stage = weights[localStage[own.stage]];
  if (program.problem.slices > 1)
    passSlice(i, stage);
  switch (own.op) {
  case Op::Forward:
  case Op::BackwardInput:
  case Op::Recompute:
    return readParameters(i, stage);
  case Op::Backward:
  case Op::BackwardWeight:
    readParameters(i, stage);
    return addGradient(i, stage);
  case Op::AllReduce:
  case Op::ReduceGrad:
    return useGradients(i, stage, own.stage);
  case Op::Step:
    useGradients(i, stage, own.stage);
    return changeParameters(i, stage, own.stage);
  case Op::Unshard:
  case Op::Reshard:
    return shard(i, stage);
  case Op::Offload:
  case Op::Reload:
    return moveStash(i);
  default:
    return;
  }
}

/// A rank has one state at a time: that of the batch before, which it gets and
/// validates, and then that of the batch. `reduce_state` and `validate` look at
/// the gradients of all stages, `validate` may change their parameters.
void DataFlow::touchState(uint32_t i) {
  const Instruction &own = inst(i);
  const bool moves = movesState(own);
  if (!moves && !usesState(own.op) && own.op != Op::Step)
    return;
  auto does = [&] {
    return own.op == Op::ReduceState     ? "adds to the state of the batch"
           : moves && own.op == Op::Recv ? "receives the state of a batch"
                                         : "uses the state of a batch";
  };
  static constexpr std::string_view it = "the state";
  if (own.op == Op::ReduceState || own.op == Op::Recv) {
    orderWrite(i, batchState, does, it);
    batchState.writer = i;
    batchState.readers = kNone;
  } else {
    order(i, batchState.writer, "writes", it, does);
    note(batchState.readers, i);
  }
  for (size_t k = 0; k < stages.size() && usesState(own.op); ++k) {
    StageState &stage = weights[k];
    if (!stage.isHeld)
      continue;
    order(i, stage.gradients, "changes", "them", [&] {
      return "looks at the weight gradients of stage " +
             std::to_string(stages[k]);
    });
    stage.gradients = i;
    if (own.op == Op::Validate)
      changeParameters(i, stage, stages[k]);
  }
}

/// Slices leave each other keys, values and their gradients, whose order is
/// that of the list (completeness): whatever the queues do, so it must happen.
void DataFlow::passSlice(uint32_t i, StageState &stage) {
  const Op op = inst(i).op;
  if (op != Op::Forward && op != Op::Backward && op != Op::BackwardInput)
    return;
  order(i, stage.slice, "runs before", "it", [&] {
    return "runs a slice of stage " + std::to_string(inst(i).stage);
  });
  stage.slice = i;
}

void DataFlow::readParameters(uint32_t i, StageState &stage) {
  if (stage.isSharded &&
      (stage.sharding == kNone || inst(stage.sharding).op == Op::Reshard)) {
    const std::string text =
        "needs the parameters of stage " + std::to_string(inst(i).stage);
    if (stage.sharding == kNone)
      findings.add(site(i),
                   text + " before anything has gathered them; unshard them "
                          "first");
    else
      findings.add(site(i),
                   text + ", which " + quoted(program, site(stage.sharding)) +
                       " has dropped; unshard them again before",
                   {{site(stage.sharding), "dropped here"}});
  }
  stage.isRead = true;
  if (!weightsOnQueues)
    return;
  order(i, stage.parameters.writer, "writes", "them", [&] {
    return "reads the parameters of stage " + std::to_string(inst(i).stage);
  });
  note(stage.parameters.readers, i);
}

void DataFlow::changeParameters(uint32_t i, StageState &stage, int32_t number) {
  if (!weightsOnQueues)
    return;
  orderWrite(
      i, stage.parameters,
      [&] {
        return "changes the parameters of stage " + std::to_string(number);
      },
      "them");
  stage.parameters.writer = i;
  stage.parameters.readers = kNone;
}

/// Parameters that are gathered at times are sharded at first.
void DataFlow::shard(uint32_t i, StageState &stage) {
  const bool gathers = inst(i).op == Op::Unshard;
  const bool isGathered =
      stage.sharding != kNone && inst(stage.sharding).op == Op::Unshard;
  const std::string number = std::to_string(inst(i).stage);
  std::vector<Note> notes;
  if (stage.sharding != kNone)
    notes.push_back(
        {site(stage.sharding), isGathered ? "gathered here" : "dropped here"});
  if (gathers && isGathered)
    findings.add(site(i),
                 "gathers the parameters of stage " + number +
                     ", which are gathered already; reshard them between, or "
                     "remove this",
                 std::move(notes));
  else if (!gathers && !isGathered)
    findings.add(site(i),
                 "drops the parameters of stage " + number +
                     ", which are not gathered; unshard them before, or remove "
                     "this",
                 std::move(notes));
  else if (!gathers && !stage.isRead)
    findings.add(site(i),
                 "drops the parameters of stage " + number +
                     ", which no action has needed since " +
                     quoted(program, site(stage.sharding)) +
                     " has gathered them; remove both, or put the actions of "
                     "the stage between",
                 std::move(notes));
  changeParameters(i, stage, inst(i).stage);
  stage.sharding = i;
  stage.isRead = false;
}

/// What is gathered last must have been needed.
void DataFlow::checkUnused() {
  for (const StageState &stage : weights)
    if (stage.sharding != kNone && !stage.isRead &&
        inst(stage.sharding).op == Op::Unshard)
      findings.add(site(stage.sharding),
                   "gathers the parameters of stage " +
                       std::to_string(inst(stage.sharding).stage) +
                       ", which no action behind it needs; remove it");
}

/// B and W.
void DataFlow::addGradient(uint32_t i, StageState &stage) {
  if (stage.user != kNone)
    findings.add(site(i),
                 "adds a weight gradient of stage " +
                     std::to_string(inst(i).stage) + " after " +
                     quoted(program, site(stage.user)) +
                     " has used them; put it before that",
                 {{site(stage.user), "used here"}});
  order(i, stage.gradients, "adds to", "them", [&] {
    return "adds to the weight gradients of stage " +
           std::to_string(inst(i).stage);
  });
  stage.gradients = i;
}

/// Step, all_reduce and reduce_grad come after the last B or W, the step last.
void DataFlow::useGradients(uint32_t i, StageState &stage, int32_t number) {
  const Instruction &own = inst(i);
  const std::string gradients =
      "the weight gradients of stage " + std::to_string(number);
  if (stage.gradients != kNone)
    order(i, stage.gradients,
          isAction(inst(stage.gradients).op) ? "adds to" : "uses", "them",
          [&] { return "uses " + gradients; });
  stage.gradients = i;
  if (own.microbatch >= 0)
    return;
  auto before = [&](uint32_t other, const std::string &text) {
    findings.add(site(i), text, {{site(other), "used here"}});
  };
  uint32_t *const reducer = &stage.reducers[own.op == Op::AllReduce    ? 0
                                            : own.op == Op::ReduceGrad ? 1
                                                                       : 2];
  if (stage.step != kNone)
    before(stage.step, own.op == Op::Step
                           ? "uses " + gradients + " a second time, after " +
                                 quoted(program, site(stage.step)) +
                                 "; remove one"
                           : "uses " + gradients + " after " +
                                 quoted(program, site(stage.step)) +
                                 " has; put it before that");
  else if (own.op != Op::Step && *reducer != kNone)
    before(*reducer, "reduces " + gradients +
                         " a second time, they would count twice; remove "
                         "one");
  if (own.op == Op::Step)
    stage.step = i;
  else
    *reducer = i;
  if (stage.user == kNone)
    stage.user = i;
}

void penstock::checkDataFlow(const Program &program, Findings &findings) {
  DataFlow(program, findings).run();
}
