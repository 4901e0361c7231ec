//===- Oracle.cpp - Whether a program is right, by definition -------------===//

#include "Oracle.h"

#include "penstock/Analysis/Interpret.h"
#include "penstock/Program/File.h"

#include <algorithm>
#include <bitset>
#include <map>
#include <set>
#include <tuple>

using namespace penstock;

namespace {

using Tag = std::tuple<TensorKind, int32_t, int32_t>;
Tag tagOf(const Tensor &tensor) {
  return {tensor.kind, tensor.stage, tensor.microbatch};
}

//===----------------------------------------------------------------------===//
// Transfers and actions
//===----------------------------------------------------------------------===//

/// The k-th transfer of a direction between two ranks on a communicator, with
/// k counted anew for every transfer; null when there is none.
const Instruction *partnerOf(const Program &program, size_t rank, size_t i) {
  const Instruction &own = program.ranks[rank].instructions[i];
  auto isSame = [](const Instruction &a, Op op, int32_t peer, uint16_t comm) {
    return a.op == op && a.peer == peer && a.comm == comm;
  };
  size_t before = 0;
  for (size_t k = 0; k < i; ++k)
    before +=
        isSame(program.ranks[rank].instructions[k], own.op, own.peer, own.comm);
  const Op other = own.op == Op::Send ? Op::Recv : Op::Send;
  for (const Instruction &there : program.ranks[own.peer].instructions)
    if (isSame(there, other, static_cast<int32_t>(rank), own.comm) &&
        before-- == 0)
      return &there;
  return nullptr;
}

/// From the rank that makes a tensor to the one that reads it, in full size.
bool goesRight(const Problem &problem, int32_t rank, const Instruction &inst) {
  if (inst.payload == Payload::State) // up or down the ranks
    return std::abs(inst.peer - rank) == 1 && inst.bytes == kStateBytes;
  if (inst.payload == Payload::Stash) { // away from its rank or back
    const int32_t owner = problem.rankOf(inst.stage, inst.microbatch);
    return (rank == owner) != (inst.peer == owner) &&
           inst.bytes ==
               (problem.stages[inst.stage].bytes.stash + problem.slices - 1) /
                   problem.slices;
  }
  const bool up = inst.payload == Payload::Activation;
  const int32_t reader = up ? inst.stage + 1 : inst.stage - 1;
  if (reader < 0 || reader >= problem.numStages())
    return false;
  const int32_t from = problem.rankOf(inst.stage, inst.microbatch);
  const int32_t to = problem.rankOf(reader, inst.microbatch);
  const int32_t mine = inst.op == Op::Send ? from : to;
  const int32_t other = inst.op == Op::Send ? to : from;
  return mine == rank && other == inst.peer &&
         inst.bytes ==
             (problem.stages[std::min(inst.stage, reader)].bytes.output +
              problem.slices - 1) /
                 problem.slices;
}

bool holds(const Problem &problem, int32_t rank, int32_t stage) {
  for (size_t k = 0; k < problem.placement.size(); ++k)
    if (problem.placement[k] == rank &&
        static_cast<int32_t>(k) % problem.numStages() == stage)
      return true;
  return false;
}

/// F stands before the backward of its stage and micro-batch.
bool forwardsComeFirst(const RankProgram &rank) {
  std::map<std::pair<int32_t, int32_t>, bool> hasForward;
  for (const Instruction &inst : rank.instructions) {
    bool &forward = hasForward[{inst.stage, inst.microbatch}];
    if ((inst.op == Op::Backward || inst.op == Op::BackwardInput) && !forward)
      return false;
    forward |= inst.op == Op::Forward;
  }
  return true;
}

/// What needs a sum over ranks, by op and stage: who has a part of it.
std::map<std::pair<Op, int32_t>, std::set<int32_t>>
partsOf(const Problem &problem) {
  std::map<std::pair<Op, int32_t>, std::set<int32_t>> parts;
  for (size_t k = 0; k < problem.placement.size(); ++k) {
    const int32_t stage = static_cast<int32_t>(k) % problem.numStages();
    parts[{Op::AllReduce, stage}].insert(problem.placement[k]);
    for (const TiedStages &set : problem.tied)
      for (int32_t tied : set.stages)
        if (tied == stage)
          parts[{Op::ReduceTied, set.stages[0]}].insert(problem.placement[k]);
  }
  std::erase_if(parts, [](const auto &part) { return part.second.size() < 2; });
  return parts;
}

/// As soon as gradients are used every part is added up, once.
bool addsUp(const Program &program) {
  const Problem &problem = program.problem;
  const auto parts = partsOf(problem);
  std::map<std::tuple<Op, int32_t, int32_t>, int> seen; // op, stage, rank
  bool used = false, right = true;
  for (int32_t r = 0; r < problem.numRanks; ++r)
    for (const Instruction &inst : program.ranks[r].instructions) {
      const bool isSum = inst.op == Op::AllReduce || inst.op == Op::ReduceTied;
      if (!isSum && inst.op != Op::Step)
        continue;
      used |= inst.microbatch < 0;
      if (inst.microbatch >= 0)
        for (const auto &[what, ranks] : parts) {
          bool concerns = what.second == inst.stage;
          if (inst.stage < 0)
            concerns = ranks.count(r);
          else if (what.first == Op::ReduceTied)
            for (int32_t tied : problem.tiedAt(what.second)->stages)
              concerns |= tied == inst.stage;
          right &= !concerns;
        }
      auto part = parts.find({inst.op, inst.stage});
      if (inst.microbatch >= 0 || !isSum || part == parts.end())
        continue;
      right &= inst.bytes == (inst.op == Op::AllReduce
                                  ? problem.stages[inst.stage].bytes.gradients
                                  : problem.tiedAt(inst.stage)->bytes);
      ++seen[{inst.op, inst.stage, r}];
      for (int32_t rank : part->second)
        right &= inst.peer < 0 ||
                 std::count(program.rankSets[inst.peer].begin(),
                            program.rankSets[inst.peer].end(), rank) > 0;
    }
  for (const auto &[what, ranks] : parts)
    for (int32_t rank : ranks)
      right &= !used || seen[{what.first, what.second, rank}] == 1;
  return right;
}

/// Of two slices of a micro-batch the first goes forward first, and back last.
bool slicesAreInOrder(const Problem &problem, const RankProgram &rank) {
  const auto &list = rank.instructions;
  for (size_t b = 0; b < list.size(); ++b)
    for (size_t a = 0; a < b; ++a) {
      auto isBackward = [](const Instruction &inst) {
        return inst.op == Op::Backward || inst.op == Op::BackwardInput;
      };
      if (list[a].stage != list[b].stage || !isAction(list[a].op) ||
          !isAction(list[b].op) ||
          list[a].microbatch / problem.slices !=
              list[b].microbatch / problem.slices)
        continue;
      if (list[a].op == Op::Forward && list[b].op == Op::Forward &&
          list[a].microbatch > list[b].microbatch)
        return false;
      if (isBackward(list[a]) && isBackward(list[b]) &&
          list[a].microbatch < list[b].microbatch)
        return false;
    }
  return true;
}

/// Every weight gradient is used by one step, and every step for a micro-batch
/// uses that of this one, if there are such steps.
bool stepsAreRight(const Program &program) {
  std::map<int32_t, bool> pending; // stages, by whether a gradient is unused
  bool any = false, whole = false;
  for (size_t r = 0; r < program.ranks.size(); ++r) {
    std::map<std::pair<int32_t, int32_t>, bool> fresh;
    for (const Instruction &inst : program.ranks[r].instructions) {
      if (inst.op == Op::Backward || inst.op == Op::BackwardWeight) {
        fresh[{inst.stage, inst.microbatch}] = true;
        pending[inst.stage] = true;
      }
      whole |= inst.op == Op::Step && inst.microbatch < 0;
      if (inst.op != Op::Step || inst.microbatch < 0)
        continue;
      any = true;
      if (!fresh[{inst.stage, inst.microbatch}])
        return false;
      for (auto &[tag, isFresh] : fresh)
        isFresh &= tag.first != inst.stage;
      pending[inst.stage] = false;
    }
  }
  if (!any)
    return true;
  for (auto [stage, isPending] : pending)
    if (isPending)
      return false;
  return !whole;
}

/// What a rank does with states, as a word, is what it has to be; validations
/// find the gradients of the batch before, reductions those of the batch, and
/// steps know what to do.
bool statesAreRight(const Program &program) {
  const Problem &problem = program.problem;
  if (!problem.postValidation)
    return true;
  int steps = 0;
  for (int32_t r = 0; r < problem.numRanks; ++r) {
    const auto &list = program.ranks[r].instructions;
    std::string word, needed = r == 0 ? "va" : "vsRa";
    if (r + 1 < problem.numRanks)
      needed = "r" + needed + "S";
    int32_t stage = -1;
    for (size_t i = 0; i < list.size(); ++i) {
      const Op op = list[i].op;
      const bool isTaken = word.find('a') != std::string::npos;
      if (op == Op::Validate)
        word += 'v';
      if (op == Op::ReduceState)
        word += 'a';
      if (isTransfer(op) && list[i].payload == Payload::State) {
        word += op == Op::Send ? (list[i].peer < r ? 's' : 'S')
                               : (list[i].peer < r ? 'R' : 'r');
        if (list[i].joined || (i + 1 < list.size() && list[i + 1].joined))
          return false;
      }
      if (op == Op::Step) {
        ++steps;
        if (!isTaken || list[i].microbatch >= 0)
          return false;
      }
      if (isTaken &&
          (op == Op::Backward || op == Op::BackwardWeight ||
           op == Op::AllReduce || op == Op::ReduceTied || op == Op::ReduceGrad))
        return false;
      if (!isAction(op))
        continue;
      if (stage < 0)
        stage = list[i].stage;
      if ((op != Op::Forward || list[i].stage != stage) &&
          word.find('v') == std::string::npos)
        return false;
    }
    if (word != needed)
      return false;
  }
  return steps > 0;
}

bool isComplete(const Program &program) {
  const Problem &problem = program.problem;
  std::map<std::tuple<Op, int32_t, int32_t>, int> actions;
  std::map<std::tuple<Op, int32_t, int32_t>, int> uses; // op, rank, stage
  std::map<Op, int> all;
  // Sizes of a collective, by all that names it.
  std::map<std::tuple<Op, uint16_t, int32_t, int32_t, int32_t>, int64_t> sizes;
  for (int32_t r = 0; r < problem.numRanks; ++r) {
    if (!forwardsComeFirst(program.ranks[r]) ||
        !slicesAreInOrder(problem, program.ranks[r]))
      return false;
    for (const Instruction &inst : program.ranks[r].instructions) {
      if (isAction(inst.op)) {
        ++actions[{inst.op, inst.stage, inst.microbatch}];
        if (problem.rankOf(inst.stage, inst.microbatch) != r)
          return false;
      } else if (isTransfer(inst.op)) {
        if (!goesRight(problem, r, inst))
          return false;
      } else if (inst.op == Op::ReduceTied) {
        bool any = false;
        for (int32_t stage : problem.tiedAt(inst.stage)->stages)
          any |= holds(problem, r, stage);
        if (!any)
          return false;
      } else if (inst.op != Op::Offload && inst.op != Op::Reload &&
                 inst.stage >= 0 && !holds(problem, r, inst.stage)) {
        return false;
      }
      if (isCollective(inst.op) &&
          sizes.try_emplace(
                   {inst.op, inst.comm, inst.peer, inst.stage, inst.microbatch},
                   inst.bytes)
                  .first->second != inst.bytes)
        return false;
      if ((inst.op == Op::Step || inst.op == Op::ReduceGrad) &&
          inst.microbatch < 0) {
        ++all[inst.op];
        for (int32_t s = 0; s < problem.numStages(); ++s)
          if (inst.stage == s || (inst.stage < 0 && holds(problem, r, s)))
            ++uses[{inst.op, r, s}];
      }
    }
  }
  if (!stepsAreRight(program) || !statesAreRight(program))
    return false;
  for (int32_t s = 0; s < problem.numStages(); ++s) {
    for (int32_t mb = 0; mb < problem.numMicrobatches; ++mb) {
      auto count = [&](Op op) { return actions[{op, s, mb}]; };
      const int b = count(Op::Backward), i = count(Op::BackwardInput),
                w = count(Op::BackwardWeight);
      if (count(Op::Forward) != 1 || b + i != 1 || b + w != 1)
        return false;
    }
    for (int32_t r = 0; r < problem.numRanks; ++r)
      for (Op op : {Op::Step, Op::ReduceGrad})
        if (all[op] > 0 && holds(problem, r, s) && uses[{op, r, s}] != 1)
          return false;
  }
  return addsUp(program);
}

//===----------------------------------------------------------------------===//
// One rank
//===----------------------------------------------------------------------===//

constexpr size_t kMaxItems = 1024;

/// What happens before what on a rank.
class Order {
public:
  explicit Order(const RankProgram &rank) {
    const auto &insts = rank.instructions;
    std::vector<size_t> heads;
    for (size_t i = 0; i < insts.size(); ++i) {
      if (!insts[i].joined)
        heads.push_back(i);
      itemOf.push_back(heads.size() - 1);
    }
    heads.push_back(insts.size());
    before.resize(heads.size() - 1);
    for (size_t b = 0; b + 1 < heads.size(); ++b)
      for (size_t a = 0; a < b; ++a) {
        bool direct = insts[heads[a]].queue == insts[heads[b]].queue;
        for (size_t x = heads[a]; x < heads[a + 1]; ++x) {
          for (size_t y = heads[b]; y < heads[b + 1]; ++y)
            direct |= usesComm(insts[x].op) && usesComm(insts[y].op) &&
                      insts[x].comm == insts[y].comm;
          const Instruction &head = insts[heads[b]];
          for (size_t w = 0; w < head.numWaits; ++w)
            direct |= rank.waits[head.firstWait + w] == x;
        }
        if (direct)
          (before[b] |= before[a]).set(a);
      }
  }
  /// Instruction a has ended when b starts.
  bool operator()(size_t a, size_t b) const {
    return before[itemOf[b]][itemOf[a]];
  }

private:
  std::vector<size_t> itemOf;
  std::vector<std::bitset<kMaxItems>> before;
};

/// A place on a rank that can be read and written.
enum class Place { Slot, Tensor, Host, Gradients, Parameters, Slices, State };
using Cell = std::tuple<Place, int32_t, Tag>;

class RankOracle {
public:
  RankOracle(const Program &program, int32_t r, bool planned)
      : problem(program.problem), number(r), rank(program.ranks[r]),
        planned(planned), before(rank) {
    for (size_t i = 0; i < rank.instructions.size(); ++i) {
      const Instruction &inst = rank.instructions[i];
      sharded[inst.stage] |= inst.op == Op::Unshard || inst.op == Op::Reshard;
      if (inst.stage >= 0)
        stages[inst.stage] = true;
    }
  }

  bool isRight() {
    for (size_t i = 0; i < rank.instructions.size() && right; ++i)
      run(i);
    for (const auto &[stage, state] : weights)
      require(!state.gathered || state.needed);
    for (const auto &[cell, list] : touches)
      for (size_t b = 0; b < list.size() && right; ++b)
        for (size_t a = 0; a < b; ++a)
          require((!list[a].second && !list[b].second) ||
                  before(list[a].first, list[b].first));
    return right;
  }

private:
  void require(bool condition) { right &= condition; }

  void touch(size_t i, const Cell &cell, bool writes) {
    touches[cell].emplace_back(i, writes);
  }

  Cell cellOf(const Instruction &inst, const Access &access) {
    if (!planned)
      return {Place::Tensor, 0, tagOf(access.tensor)};
    const int32_t slot = inst.slots[access.role];
    require(slot != kNoSlot &&
            (access.mode == Access::Read ||
             rank.slotBytes[slot] >= bytesOf(problem, access.tensor)));
    return {Place::Slot, slot, {}};
  }

  void run(size_t i) {
    const Instruction &inst = rank.instructions[i];
    forEachAccess(inst, problem.numStages(), [&](const Access &access) {
      const Cell cell = cellOf(inst, access);
      touch(i, cell, access.mode != Access::Read);
      Content &content = contents[cell];
      if (access.mode != Access::Write)
        require(content.tag == std::optional(tagOf(access.tensor)));
      const bool isStash = access.tensor.kind == TensorKind::Stash;
      if (inst.op == Op::BackwardWeight && isStash)
        require(content.updated);
      if (access.mode != Access::Read)
        content = {tagOf(access.tensor),
                   isStash && inst.op == Op::BackwardInput};
    });
    if (problem.slices > 1 &&
        (inst.op == Op::Forward || inst.op == Op::Backward ||
         inst.op == Op::BackwardInput))
      touch(i, {Place::Slices, inst.stage, {}}, true);
    const Cell state = {Place::State, 0, {}};
    switch (inst.op) {
    case Op::Offload:
    case Op::Reload:
      return move(i, inst);
    case Op::ReduceState:
    case Op::Validate:
      touch(i, state, inst.op == Op::ReduceState);
      for (auto [stage, any] : stages)
        if (any && holds(problem, number, stage)) {
          touch(i, {Place::Gradients, stage, {}}, true);
          if (inst.op == Op::Validate)
            touch(i, {Place::Parameters, stage, {}}, true);
        }
      return;
    case Op::Step:
      if (problem.postValidation)
        touch(i, state, false);
      for (auto [stage, any] : stages)
        if (any && (inst.stage < 0 || inst.stage == stage))
          useWeights(i, inst, stage);
      return;
    case Op::Barrier:
      return;
    case Op::Send:
    case Op::Recv:
      if (inst.payload == Payload::State)
        touch(i, state, inst.op == Op::Recv);
      return;
    case Op::ReduceTied:
      for (int32_t stage : problem.tiedAt(inst.stage)->stages)
        useWeights(i, inst, stage);
      return;
    default:
      return useWeights(i, inst, inst.stage);
    }
  }

  void move(size_t i, const Instruction &inst) {
    const Tensor tensor = {TensorKind::Stash, inst.stage, inst.microbatch};
    const Tag tag = tagOf(tensor);
    const Cell here = cellOf(inst, {Access::Read, Slot, tensor});
    const Cell there = planned ? Cell{Place::Host, inst.slots[Host], {}}
                               : Cell{Place::Host, 0, tag};
    if (planned) {
      const bool goes = inst.op == Op::Offload;
      const int32_t slot = inst.slots[goes ? Host : Slot];
      require(inst.slots[Slot] != kNoSlot && inst.slots[Host] != kNoSlot);
      if (!right)
        return;
      require((goes ? rank.hostSlotBytes : rank.slotBytes)[slot] >=
              bytesOf(problem, tensor));
    }
    const Cell &from = inst.op == Op::Offload ? here : there;
    const Cell &to = inst.op == Op::Offload ? there : here;
    touch(i, from, inst.op == Op::Offload); // which frees the place
    touch(i, to, true);
    require(contents[from].tag == std::optional(tag));
    contents[to] = contents[from];
    if (inst.op == Op::Offload)
      contents[from] = {};
  }

  void useWeights(size_t i, const Instruction &inst, int32_t stage) {
    const Cell gradients = {Place::Gradients, stage, {}};
    const Cell parameters = {Place::Parameters, stage, {}};
    Weights &state = weights[stage];
    const bool whole = inst.microbatch < 0;
    switch (inst.op) {
    case Op::BackwardWeight:
    case Op::Backward:
      touch(i, gradients, true);
      require(!state.used);
      [[fallthrough]];
    case Op::Forward:
    case Op::BackwardInput:
    case Op::Recompute:
      touch(i, parameters, false);
      require(!sharded[stage] || state.gathered);
      state.needed = true;
      return;
    case Op::AllReduce:
    case Op::ReduceTied:
    case Op::ReduceGrad:
      touch(i, gradients, true);
      require(!whole || !state.stepped);
      require(!whole || state.reduced.insert(inst.op).second);
      state.used |= whole;
      return;
    case Op::Step:
      touch(i, gradients, true);
      touch(i, parameters, true);
      require(!whole || !state.stepped);
      state.stepped |= whole;
      state.used |= whole;
      return;
    case Op::Unshard:
    case Op::Reshard:
      touch(i, parameters, true);
      require(state.gathered == (inst.op == Op::Reshard));
      require(inst.op == Op::Unshard || state.needed);
      state.gathered = inst.op == Op::Unshard;
      state.needed = false;
      return;
    default:
      return;
    }
  }

  struct Content {
    std::optional<Tag> tag;
    bool updated = false; ///< by I
  };
  struct Weights {
    bool used = false, stepped = false, gathered = false;
    bool needed = false; ///< since the last unshard or reshard
    std::set<Op> reduced;
  };

  const Problem &problem;
  const int32_t number;
  const RankProgram &rank;
  const bool planned;
  const Order before;
  bool right = true;
  std::map<Cell, std::vector<std::pair<size_t, bool>>> touches;
  std::map<Cell, Content> contents;
  std::map<int32_t, Weights> weights;
  std::map<int32_t, bool> sharded, stages;
};

/// Bytes of weights beside the newest, at most: of each stage, the versions
/// that somebody with its F done needs from an instruction on.
int64_t oldWeights(const Program &program, int32_t r) {
  const auto &list = program.ranks[r].instructions;
  std::map<int32_t, int32_t> newest;
  std::map<std::pair<int32_t, int32_t>, int32_t> taken;
  int64_t most = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].op == Op::Step && list[i].microbatch >= 0)
      ++newest[list[i].stage];
    if (list[i].op == Op::Forward)
      taken[{list[i].stage, list[i].microbatch}] = newest[list[i].stage];
    std::map<std::pair<int32_t, int32_t>, int64_t> needed;
    // Behind the backward a recomputation serves nobody.
    auto serves = [&](size_t k) {
      return list[k].op != Op::Recompute ||
             std::any_of(list.begin() + k, list.end(), [&](const auto &later) {
               return later.stage == list[k].stage &&
                      later.microbatch == list[k].microbatch &&
                      (later.op == Op::Backward ||
                       later.op == Op::BackwardWeight);
             });
    };
    for (size_t k = i; k < list.size(); ++k)
      if (auto it = taken.find({list[k].stage, list[k].microbatch});
          it != taken.end() && isAction(list[k].op) &&
          list[k].op != Op::Forward && it->second != newest[list[k].stage] &&
          serves(k))
        needed[{list[k].stage, it->second}] =
            program.problem.stages[list[k].stage].bytes.parameters;
    int64_t bytes = 0;
    for (const auto &[version, size] : needed)
      bytes += size;
    most = std::max(most, bytes);
  }
  return most;
}

bool fitsInMemory(const Program &program, int32_t r) {
  const Problem &problem = program.problem;
  int64_t bytes = 0;
  for (int32_t s = 0; s < problem.numStages(); ++s)
    if (const StageBytes &size = problem.stages[s].bytes; holds(problem, r, s))
      bytes += size.parameters + size.gradients + size.optimizer +
               (problem.postValidation ? size.parameters + size.optimizer : 0);
  for (int64_t slot : program.ranks[r].slotBytes)
    bytes += (slot + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  bytes += oldWeights(program, r);
  return problem.memory == 0 || bytes <= problem.memory;
}

} // namespace

bool penstock::test::endsMatch(const Program &program) {
  for (size_t r = 0; r < program.ranks.size(); ++r)
    for (size_t i = 0; i < program.ranks[r].instructions.size(); ++i) {
      const Instruction &own = program.ranks[r].instructions[i];
      if (!isTransfer(own.op))
        continue;
      const Instruction *other = partnerOf(program, r, i);
      if (!other || other->payload != own.payload ||
          other->stage != own.stage || other->microbatch != own.microbatch)
        return false;
    }
  return true;
}

bool penstock::test::isRight(const Program &program) {
  if (!wellFormed(program) || !isComplete(program) || !endsMatch(program))
    return false;
  for (int32_t r = 0; r < program.problem.numRanks; ++r)
    if (!RankOracle(program, r, program.isPlanned()).isRight() ||
        !fitsInMemory(program, r))
      return false;
  return interpret(program, Semantics::Closure).finished;
}
