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
//===----------------------------------------------------------------------===//

#include "Describe.h"
#include "Items.h"
#include "Rules.h"

#include "penstock/Program/Text.h"

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
  /// What is in a slot. Without a plan every tensor has a slot of its own.
  struct SlotState {
    Tensor content = {};
    uint32_t writer = kNone;
    uint32_t readers = kNone; ///< since the write, a list in `latest`
  };
  /// A list with the latest instruction on each queue: a queue runs in order,
  /// so that what comes after the latest comes after all of them.
  struct Latest {
    uint32_t instruction, next;
  };
  /// Who adds to, and who first uses up, weight gradients.
  struct GradientState {
    uint32_t adders = kNone; ///< a list in `latest`
    uint32_t user = kNone;
  };

  void runRank(int32_t r);
  void numberStagesAndQueues();
  void tick(uint32_t first, uint32_t end,
            const std::vector<uint32_t> &predecessors);
  void access(uint32_t i, const Access &access);
  void read(uint32_t i, const Tensor &tensor, uint32_t slot);
  void write(uint32_t i, const Tensor &tensor, uint32_t slot);
  void accumulate(uint32_t i);

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
    return planned ? "slot " + std::to_string(slot) : describe(tensor);
  }
  void unordered(uint32_t i, uint32_t before, const std::string &does,
                 const char *role);

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
  std::vector<GradientState> gradients; ///< by local stage; last: of all stages
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
  const size_t numSlots =
      planned ? rank->slotBytes.size()
              : 3 * stages.size() * program.problem.numMicrobatches;
  if (slots.size() < numSlots)
    slots.resize(numSlots);

  items.walk(*rank, [&](uint32_t first, uint32_t end, auto &predecessors) {
    if (findings.full())
      return;
    tick(first, end, predecessors);
    for (uint32_t i = first; i < end; ++i) {
      forEachAccess(inst(i), program.problem.numStages(),
                    [&](const Access &a) { access(i, a); });
      accumulate(i);
    }
  });

  for (uint32_t slot : touched)
    slots[slot] = {};
  touched.clear();
  latest.clear();
  for (int32_t stage : stages)
    localStage[stage] = kNone;
  stages.clear();
}

/// Dense numbers for what occurs on this rank.
void DataFlow::numberStagesAndQueues() {
  std::array<bool, 256> used = {};
  auto number = [&](int32_t stage) {
    if (stage < 0 || stage >= program.problem.numStages() ||
        localStage[stage] != kNone)
      return;
    localStage[stage] = static_cast<uint32_t>(stages.size());
    stages.push_back(stage);
  };
  for (const Instruction &inst : rank->instructions) {
    used[inst.queue] = true;
    number(inst.stage);
    if (isAction(inst.op)) {
      number(inst.stage - 1);
      number(inst.stage + 1);
    }
  }
  gradients.assign(stages.size() + 1, {});
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

void DataFlow::access(uint32_t i, const Access &access) {
  const Tensor &tensor = access.tensor;
  uint32_t slot;
  if (planned) {
    slot = static_cast<uint32_t>(inst(i).slots[access.role]);
    if (slot == kNone) {
      findings.add(site(i),
                   "has no slot for " + describe(tensor) + ", which it " +
                       (access.mode == Access::Read ? "reads" : "writes") +
                       "; plan the buffers");
      return;
    }
  } else {
    const auto m = static_cast<uint32_t>(program.problem.numMicrobatches);
    slot = (3 * localStage[tensor.stage] + static_cast<uint32_t>(tensor.kind)) *
               m +
           static_cast<uint32_t>(tensor.microbatch);
  }
  if (slots[slot].writer == kNone && slots[slot].readers == kNone)
    touched.push_back(slot);
  if (access.mode != Access::Write)
    read(i, tensor, slot);
  if (access.mode != Access::Read)
    write(i, tensor, slot);
  else
    note(slots[slot].readers, i);
}

/// `i` is not ordered after `before`, which touches the same thing.
void DataFlow::unordered(uint32_t i, uint32_t before, const std::string &does,
                         const char *role) {
  const std::string other = quoted(program, site(before));
  if (i == before)
    findings.add(site(i),
                 does + " and " + role + " it at once; use another slot");
  else if (items.headOf[i] == items.headOf[before])
    findings.add(site(i),
                 does + " while " + other +
                     ", which is issued together with it, " + role +
                     " it; issue one after the other",
                 {{site(before), "the other one is here"}});
  else
    findings.add(site(i),
                 does + onQueue(i) + ", not ordered after " + other +
                     onQueue(before) + ", which " + role +
                     " it; let it wait for that",
                 {{site(before), "it has to wait for this one"}});
}

void DataFlow::read(uint32_t i, const Tensor &tensor, uint32_t slot) {
  SlotState &state = slots[slot];
  const std::string_view verb = inst(i).op == Op::Send ? "sends" : "reads";
  if (state.writer == kNone)
    findings.add(site(i),
                 planned ? std::string(verb) + " " + describe(tensor) +
                               " from slot " + std::to_string(slot) +
                               ", which nothing has written before; write it "
                               "there first"
                         : std::string(verb) + " " + describe(tensor) +
                               ", which nothing on this rank produces or "
                               "receives before; insert what does");
  else if (!(state.content == tensor))
    findings.add(
        site(i),
        std::string(verb) + " " + describe(tensor) + " from slot " +
            std::to_string(slot) + ", which holds " + describe(state.content) +
            "; read it where it was written to, before that is overwritten",
        {{site(state.writer), "slot " + std::to_string(slot) + " gets " +
                                  describe(state.content) + " here"}});
  else if (!isBefore(state.writer, i))
    unordered(i, state.writer, std::string(verb) + " " + describe(tensor),
              "writes");
}

void DataFlow::write(uint32_t i, const Tensor &tensor, uint32_t slot) {
  SlotState &state = slots[slot];
  const int64_t bytes = bytesOf(program.problem, tensor);
  if (planned && rank->slotBytes[slot] < bytes)
    findings.add(site(i), "puts " + describe(tensor) + " of " +
                              std::to_string(bytes) + " bytes into slot " +
                              std::to_string(slot) + ", which has " +
                              std::to_string(rank->slotBytes[slot]) +
                              "; use a larger one");
  auto does = [&] {
    return (inst(i).op == Op::Recv ? "receives into " : "writes ") +
           place(slot, tensor);
  };
  if (state.writer != kNone && !isBefore(state.writer, i))
    unordered(i, state.writer, does(), "writes");
  for (uint32_t l = state.readers; l != kNone; l = latest[l].next)
    if (uint32_t reader = latest[l].instruction; !isBefore(reader, i))
      unordered(i, reader, does(),
                inst(reader).op == Op::Send ? "sends" : "reads");
  state = {tensor, i, kNone};
}

/// Weight gradients: B and W add to those of their stage; step, all_reduce and
/// reduce_grad use them up and must come after the last one. (A step with a
/// micro-batch, of schedules without a flush, is not checked.)
void DataFlow::accumulate(uint32_t i) {
  const Instruction &own = inst(i);
  if (own.op == Op::Backward || own.op == Op::BackwardWeight) {
    GradientState &stage = gradients[localStage[own.stage]];
    GradientState &all = gradients.back();
    if (uint32_t user = std::min(stage.user, all.user); user != kNone)
      findings.add(site(i),
                   "adds a weight gradient of stage " +
                       std::to_string(own.stage) + " after " +
                       quoted(program, site(user)) +
                       " has used them; put it before that",
                   {{site(user), "used here"}});
    note(stage.adders, i);
    note(all.adders, i);
    return;
  }
  if ((own.op != Op::Step && own.op != Op::AllReduce &&
       own.op != Op::ReduceGrad) ||
      own.microbatch >= 0)
    return;
  GradientState &state =
      own.stage >= 0 ? gradients[localStage[own.stage]] : gradients.back();
  for (uint32_t l = state.adders; l != kNone; l = latest[l].next)
    if (uint32_t adder = latest[l].instruction; !isBefore(adder, i))
      unordered(i, adder,
                "uses the weight gradients of stage " +
                    std::to_string(inst(adder).stage),
                "adds to");
  if (state.user == kNone)
    state.user = i;
}

void penstock::checkDataFlow(const Program &program, Findings &findings) {
  DataFlow(program, findings).run();
}
