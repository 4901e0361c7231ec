//===- InsertTransfers.cpp - Sends and receives ---------------------------===//
//
// Plays the order with free transfers and writes the program down as it
// happens: an action goes to its rank's list when it ends, a transfer to the
// lists of both ranks as soon as its payload is there. All lists are
// projections of one linear order of events, which therefore runs the program
// (docs/lowering.md). A stash that the order moves to another rank travels when
// the action before that ends. Behind all that, gradients that several ranks
// have parts of are added up, and states of batches go to the ranks.
//
//===----------------------------------------------------------------------===//

#include "penstock/Analysis/RunOrder.h"
#include "penstock/Analysis/Simulate.h"
#include "penstock/Lowering/Lowering.h"
#include "penstock/Program/Text.h"
#include "penstock/Support/Memory.h"

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>
#include <span>
#include <utility>

namespace penstock {

namespace {

/// Costs as integers, so that instants that are equal on paper are equal here
/// whatever was added up to reach them. The unit is a power of two, so that
/// small integers and binary fractions stay exact.
class Ticks {
public:
  explicit Ticks(const Program &order) {
    const Problem &problem = order.problem;
    std::vector<double> costs;
    for (Instruction action; const Stage &stage : problem.stages) {
      action.stage = static_cast<int32_t>(&stage - problem.stages.data());
      for (unsigned op = 0; op < kNumActions; ++op) {
        action.op = static_cast<Op>(op);
        costs.push_back(durationOf(problem, action));
      }
      action.op = Op::Offload; // takes as long as a reload
      costs.push_back(durationOf(problem, action));
    }
    // All actions and copies in a row stay below 2^60.
    const double largest =
        costs.empty() ? 0 : *std::max_element(costs.begin(), costs.end());
    const auto count = static_cast<double>(order.numInstructions() + 1);
    const int bits =
        largest > 0 ? 58 - std::ilogb(largest) - std::ilogb(count) : 0;
    for (double cost : costs)
      ticks.push_back(std::llround(std::ldexp(cost, bits)));
  }
  int64_t operator()(const Instruction &action) const {
    const unsigned kind =
        isAction(action.op) ? static_cast<unsigned>(action.op) : kNumActions;
    return ticks[action.stage * (kNumActions + 1) + kind];
  }

private:
  static constexpr unsigned kNumActions =
      static_cast<unsigned>(Op::Recompute) + 1;
  std::vector<int64_t> ticks; ///< for each stage, of actions and of copies
};

/// A transfer whose payload is there.
struct Pending {
  uint64_t pair;  ///< smaller rank, larger rank
  uint64_t order; ///< from the larger to the smaller rank, then by age
  Tensor tensor;

  bool up() const { return order >> 63 == 0; }
  int32_t smaller() const { return static_cast<int32_t>(pair >> 32); }
  int32_t larger() const { return static_cast<int32_t>(pair & 0xffffffff); }
  bool operator<(const Pending &other) const {
    return pair != other.pair ? pair < other.pair : order < other.order;
  }
};

/// Plays the program while it is written down, event by event: on a device with
/// one transfer queue a rank, where things wait for data only.
class EventClock {
public:
  explicit EventClock(const Program &order)
      : problem(order.problem), index(problem), there(index.size(), 0),
        clocks(order.ranks.size()) {}

  void play(int32_t rank, std::span<const Instruction> actions);
  /// The transfer of what `producer` makes, an F, B or I by index; in a group
  /// with the one before it if it is joined.
  void play(const Tensor &tensor, size_t producer, int32_t from, int32_t to,
            bool joined);

  /// When the last action ends.
  double makespan() const { return lastEnd; }

private:
  struct Clock {
    double actions = 0, transfers = 0; ///< when the queue has ended
  };

  const Problem &problem;
  const OrderIndex index;
  /// When what an F, B or I makes is there: where it is made, and from its
  /// transfer on where it is read.
  BigArray<double> there;
  std::vector<Clock> clocks; ///< of each rank
  double start = 0, length = 0;
  size_t firstOfGroup = 0; ///< what it brings
  double lastEnd = 0;
};

class Inserter {
public:
  Inserter(const Program &order, const TransferOptions &options,
           TransferPlacement placement, bool timed)
      : order(order), problem(order.problem), options(options),
        placement(placement), ticks(order), index(problem),
        isPending(index.size(), 0), isMoving(order.ranks.size(), 0),
        lists(order.ranks.size()), copied(order.ranks.size(), 0),
        events(order.ranks.size()) {
    if (timed)
      clock.emplace(order);
  }

  Status run() {
    reserve();
    if (placement == TransferPlacement::Torch)
      return runRounds();
    Status played = playOrder<int64_t>(
        order, ticks, [](int32_t, const Instruction &) { return 0; },
        [&](const PlayedItem<int64_t> &item) { addItem(item); });
    if (!played)
      return played;
    flush();
    for (size_t rank = 0; rank < lists.size(); ++rank)
      copyTo(static_cast<int32_t>(rank),
             static_cast<uint32_t>(order.ranks[rank].instructions.size()));
    return success();
  }

  std::vector<std::vector<Instruction>> takeLists() { return std::move(lists); }
  /// Of each instruction of the lists, the place in the one linear order; only
  /// with post-validation.
  std::vector<std::vector<uint32_t>> takeEvents() { return std::move(events); }
  /// When the last action ends, if it is timed.
  double makespan() const { return clock->makespan(); }
  TransferStatistics statistics;

private:
  template <typename Fn>
  void forEachTransfer(const Instruction &action, Fn &&fn) const;
  /// The F, B or I that makes an activation or gradient, by index.
  size_t producerOf(const Tensor &tensor) const {
    return tensor.kind == TensorKind::Activation
               ? index.forward(tensor.stage, tensor.microbatch)
               : index.backward(tensor.stage, tensor.microbatch);
  }
  void reserve();
  void addItem(const PlayedItem<int64_t> &item);
  Status runRounds();
  void copyTo(int32_t rank, uint32_t end);
  void addTransfer(const Tensor &tensor, int32_t from, int32_t to, bool joined);
  void addMove(Site site);
  void append(int32_t rank, const Instruction &inst) {
    lists[rank].push_back(inst);
    if (problem.postValidation)
      events[rank].push_back(numEvents);
  }
  void flush();

  const Program &order;
  const Problem &problem;
  const TransferOptions &options;
  const TransferPlacement placement;
  const Ticks ticks;
  const OrderIndex index;
  std::vector<uint8_t> isPending; ///< of the producer, by `index`
  std::vector<Pending> pending;
  std::vector<Site> moves;       ///< of stashes, that stand behind all pending
  std::vector<uint8_t> isMoving; ///< of each rank, whether it has such
  int64_t now = 0;
  std::vector<std::vector<Instruction>> lists;
  std::vector<uint32_t> copied; ///< instructions of the order already in lists
  std::vector<std::vector<uint32_t>> events; ///< see takeEvents()
  uint32_t numEvents = 0;
  std::optional<EventClock> clock;
};

} // namespace

void EventClock::play(int32_t rank, std::span<const Instruction> actions) {
  double &now = clocks[rank].actions;
  for (const Instruction &inst : actions)
    forEachPredecessor(index, inst, [&](size_t needed, int32_t stage) {
      if (stage != inst.stage) // else it stands before it in the list
        now = std::max(now, there[needed]);
    });
  now += durationOfItem(problem, actions);
  for (const Instruction &inst : actions)
    if (const size_t made = index.of(inst); made < index.size())
      there[made] = now;
  lastEnd = std::max(lastEnd, now);
}

void EventClock::play(const Tensor &tensor, size_t producer, int32_t from,
                      int32_t to, bool joined) {
  if (!joined) {
    start = std::max(clocks[from].transfers, clocks[to].transfers);
    length = 0;
    firstOfGroup = producer;
  }
  start = std::max(start, there[producer]);
  length = std::max(length, problem.link.time(bytesOf(problem, tensor)));
  const double end = start + length;
  clocks[from].transfers = clocks[to].transfers = end;
  there[firstOfGroup] = there[producer] = end;
}

/// Calls `fn(tensor, from, to, producer)` for what an action hands to another
/// rank.
template <typename Fn>
void Inserter::forEachTransfer(const Instruction &action, Fn &&fn) const {
  const int32_t s = action.stage, mb = action.microbatch;
  const bool forward = action.op == Op::Forward;
  if (!forward && action.op != Op::Backward && action.op != Op::BackwardInput)
    return;
  const int32_t reader = forward ? s + 1 : s - 1;
  if (reader < 0 || reader >= problem.numStages())
    return;
  const int32_t from = problem.rankOf(s, mb), to = problem.rankOf(reader, mb);
  if (from != to)
    fn(Tensor{forward ? TensorKind::Activation : TensorKind::Gradient, s, mb},
       from, to, forward ? index.forward(s, mb) : index.backward(s, mb));
}

/// The lists get their final size at once: they are most of the memory.
void Inserter::reserve() {
  std::vector<size_t> sizes(lists.size());
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    sizes[rank] += order.ranks[rank].instructions.size();
    for (const Instruction &inst : order.ranks[rank].instructions) {
      forEachTransfer(inst,
                      [&](const Tensor &, int32_t from, int32_t to, size_t) {
                        ++sizes[from];
                        ++sizes[to];
                      });
      if (movesToRank(inst))
        ++sizes[inst.peer];
    }
  }
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    lists[rank].reserve(sizes[rank]);
    prefault(lists[rank].data(), sizes[rank] * sizeof(Instruction));
  }
}

/// Transfers of one instant wait for each other as long as nothing needs them,
/// so that opposite ones of a pair become neighbours.
void Inserter::addItem(const PlayedItem<int64_t> &item) {
  const auto &list = order.ranks[item.rank].instructions;
  bool needed = item.endTime > now || isMoving[item.rank];
  for (uint32_t i = item.begin; i < item.end && !needed; ++i)
    forEachPredecessor(index, list[i], [&](size_t producer, int32_t) {
      needed |= isPending[producer] != 0;
    });
  if (needed)
    flush();
  now = item.endTime;
  copyTo(item.rank, item.end);
  for (uint32_t i = item.begin; i < item.end; ++i)
    forEachTransfer(list[i], [&](const Tensor &tensor, int32_t from, int32_t to,
                                 size_t producer) {
      const auto [smaller, larger] = std::minmax(from, to);
      pending.push_back(
          {static_cast<uint64_t>(smaller) << 32 | static_cast<uint32_t>(larger),
           static_cast<uint64_t>(from > to) << 63 | pending.size(), tensor});
      isPending[producer] = 1;
    });
  for (uint32_t &i = copied[item.rank]; i < list.size() && movesToRank(list[i]);
       ++i) {
    moves.push_back({item.rank, i});
    isMoving[item.rank] = 1;
  }
}

/// Copies to host memory stand directly behind what they wait for.
void Inserter::copyTo(int32_t rank, uint32_t end) {
  const auto &list = order.ranks[rank].instructions;
  for (uint32_t &i = copied[rank];
       i < end || (i < list.size() && movesToHost(list[i])); ++i) {
    Instruction inst = list[i];
    if (movesToRank(inst)) {
      addMove({rank, i});
      continue;
    }
    if (clock && isAction(inst.op) && !inst.joined)
      clock->play(rank, std::span(list).subspan(i, itemEnd(list, i) - i));
    inst.numWaits = 0;
    inst.firstWait = 0;
    append(rank, inst);
    ++numEvents;
  }
}

void Inserter::addTransfer(const Tensor &tensor, int32_t from, int32_t to,
                           bool joined) {
  Instruction inst;
  inst.payload = payloadOf(tensor.kind);
  inst.stage = tensor.stage;
  inst.microbatch = tensor.microbatch;
  inst.bytes = bytesOf(problem, tensor);
  inst.joined = joined;
  inst.op = Op::Send;
  inst.peer = to;
  append(from, inst);
  inst.op = Op::Recv;
  inst.peer = from;
  append(to, inst);
  ++numEvents;
  if (clock)
    clock->play(tensor, producerOf(tensor), from, to, joined);
  ++statistics.transfers;
  statistics.groups += joined;
}

/// Stashes move one after the other: in a group, one that goes and one that
/// comes would both be there.
void Inserter::addMove(Site site) {
  const Instruction &move =
      order.ranks[site.rank].instructions[site.instruction];
  const bool goes = move.op == Op::Offload;
  addTransfer({TensorKind::Stash, move.stage, move.microbatch},
              goes ? site.rank : move.peer, goes ? move.peer : site.rank,
              /*joined=*/false);
}

void Inserter::flush() {
  std::sort(pending.begin(), pending.end());
  bool joined = false;
  for (size_t i = 0; i < pending.size(); ++i) {
    const Pending &transfer = pending[i];
    isPending[producerOf(transfer.tensor)] = 0;
    joined = options.group && i > 0 && !joined &&
             pending[i - 1].pair == transfer.pair &&
             pending[i - 1].up() != transfer.up();
    const int32_t from = transfer.up() ? transfer.smaller() : transfer.larger();
    const int32_t to = transfer.up() ? transfer.larger() : transfer.smaller();
    addTransfer(transfer.tensor, from, to, joined);
  }
  pending.clear();
  for (Site move : moves) {
    addMove(move);
    isMoving[move.rank] = 0;
  }
  moves.clear();
}

/// The rounds that torch spends on a rank before each item because of sharded
/// parameters, by the first instruction of the item. When it places transfers,
/// the rows have UNSHARD, RESHARD and REDUCE_GRAD already, each a cell of its
/// own: before an item the next three stages of the rank are gathered, and what
/// was gathered else is dropped; gradients are reduced behind the last backward
/// of a stage. `isReduced` is of every stage, and false before and after.
static std::vector<uint32_t>
shardingRounds(const std::vector<Instruction> &list,
               std::vector<uint8_t> &isReduced) {
  static constexpr size_t kActiveStages = 3; // torch's max_active_stages
  struct Use {
    uint32_t item;
    int32_t stage;
  };
  std::vector<uint32_t> rounds(list.size(), 0);
  // Backwards, so that what is gathered at an item is made of its own stages
  // and the first ones at the next.
  std::vector<Use> next, here;
  auto isIn = [](const std::vector<Use> &uses, int32_t stage) {
    return std::any_of(uses.begin(), uses.end(),
                       [&](const Use &use) { return use.stage == stage; });
  };
  auto numMissing = [&](const std::vector<Use> &uses,
                        const std::vector<Use> &from) {
    return static_cast<uint32_t>(
        std::count_if(uses.begin(), uses.end(),
                      [&](const Use &use) { return !isIn(from, use.stage); }));
  };
  for (auto end = static_cast<uint32_t>(list.size()); end > 0;) {
    uint32_t begin = end - 1;
    while (begin > 0 && list[begin].joined)
      --begin;
    const std::span item =
        std::span(list).subspan(begin, std::exchange(end, begin) - begin);
    if (!isAction(item.front().op))
      continue;
    here.clear();
    for (const Instruction &inst : item)
      if (!isIn(here, inst.stage))
        here.push_back({begin, inst.stage});
    // All stages of the item with which they are enough.
    for (const Use &use : next)
      if ((here.size() < kActiveStages || here.back().item == use.item) &&
          !isIn(here, use.stage))
        here.push_back(use);
    if (!next.empty())
      rounds[next.front().item] +=
          numMissing(here, next) + numMissing(next, here);
    for (const Instruction &inst : item)
      if ((inst.op == Op::Backward || inst.op == Op::BackwardWeight) &&
          !std::exchange(isReduced[inst.stage], 1) && !next.empty())
        ++rounds[next.front().item];
    std::swap(here, next);
  }
  if (!next.empty())
    rounds[next.front().item] += static_cast<uint32_t>(next.size());
  for (const Instruction &inst : list)
    if (isAction(inst.op))
      isReduced[inst.stage] = 0;
  return rounds;
}

/// The ranks take turns, smallest first. One that cannot go on has no turn
/// before something arrives: in this round if it is still to come, else in the
/// next.
Status Inserter::runRounds() {
  const auto numRanks = static_cast<int32_t>(lists.size());
  std::vector<std::vector<uint32_t>> idleRounds;
  std::vector<uint8_t> isReduced(problem.stages.size(), 0);
  for (const RankProgram &rank : order.ranks)
    idleRounds.push_back(shardingRounds(rank.instructions, isReduced));
  std::vector<uint8_t> hasEnded(index.size(), 0);
  auto isReady = [&](std::span<const Instruction> item) {
    bool ready = true;
    for (const Instruction &inst : item)
      forEachPredecessor(index, inst, [&](size_t producer, int32_t) {
        ready &= hasEnded[producer] != 0;
      });
    return ready;
  };
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> round;
  std::vector<int32_t> next(numRanks);
  std::iota(next.begin(), next.end(), 0);
  std::vector<uint8_t> hasTurn(numRanks, 1);
  while (!next.empty()) {
    for (int32_t rank : next)
      round.push(rank);
    next.clear();
    while (!round.empty()) {
      const int32_t rank = round.top();
      round.pop();
      hasTurn[rank] = 0;
      const std::span list = order.ranks[rank].instructions;
      if (copied[rank] == list.size())
        continue;
      const uint32_t begin = copied[rank], end = itemEnd(list, begin);
      if (uint32_t &idle = idleRounds[rank][begin]; idle > 0) {
        --idle;
        hasTurn[rank] = 1;
        next.push_back(rank);
        continue;
      }
      const auto item = list.subspan(begin, end - begin);
      if (!isReady(item))
        continue;
      copyTo(rank, end);
      for (const Instruction &inst : item) {
        if (inst.op == Op::Forward)
          hasEnded[index.forward(inst.stage, inst.microbatch)] = 1;
        else if (inst.op == Op::Backward || inst.op == Op::BackwardInput)
          hasEnded[index.backward(inst.stage, inst.microbatch)] = 1;
        forEachTransfer(
            inst, [&](const Tensor &tensor, int32_t from, int32_t to, size_t) {
              addTransfer(tensor, from, to, false);
              if (!std::exchange(hasTurn[to], 1)) {
                if (to > rank)
                  round.push(to);
                else
                  next.push_back(to);
              }
            });
      }
      if (!std::exchange(hasTurn[rank], 1))
        next.push_back(rank);
    }
  }
  for (int32_t rank = 0; rank < numRanks; ++rank)
    if (copied[rank] < order.ranks[rank].instructions.size())
      // It cannot run: let the other way to run it say why.
      return playOrder<int64_t>(
          order, ticks, [](int32_t, const Instruction &) { return 0; },
          [](const PlayedItem<int64_t> &) {});
  return success();
}

/// Communicator of the sums of gradients; that of the transfers is 0.
static constexpr uint16_t kSumComm = 1;

/// Index behind the last instruction that is an action or transfer.
static uint32_t endOfActions(const std::vector<Instruction> &list) {
  auto end = static_cast<uint32_t>(list.size());
  while (end > 0 && !isAction(list[end - 1].op) &&
         !isTransfer(list[end - 1].op))
    --end;
  return end;
}

/// What follows the last action of a rank goes behind all transfers: a rank may
/// be done and still hold stashes for others.
static void putLast(Program &program) {
  for (RankProgram &rank : program.ranks) {
    auto &list = rank.instructions;
    auto end = list.end();
    while (end != list.begin() && !isAction(std::prev(end)->op))
      --end;
    std::stable_partition(end, list.end(), [](const Instruction &inst) {
      return isTransfer(inst.op);
    });
  }
}

/// Gradients that several ranks have parts of can be added up only when all of
/// them are there.
static Status checkSteps(const Program &order,
                         const std::vector<GradientSum> &sums) {
  std::vector<bool> adds(order.ranks.size());
  for (const GradientSum &sum : sums)
    for (int32_t rank : sum.ranks)
      adds[rank] = true;
  for (size_t r = 0; r < order.ranks.size(); ++r) {
    const auto &list = order.ranks[r].instructions;
    const uint32_t end = adds[r] ? endOfActions(list) : 0;
    for (uint32_t i = 0; i < end; ++i)
      if (list[i].op == Op::Step)
        return Failure{quoted(list[i]) +
                           " stands before the last action of rank " +
                           std::to_string(r) +
                           ", but gradients that several ranks have parts of "
                           "are added up behind it; put the step there",
                       {static_cast<int32_t>(r), i}};
  }
  return success();
}

/// Behind the last action of each rank: one more event of the linear order for
/// each sum.
static void addSums(Program &program, const std::vector<GradientSum> &sums) {
  std::vector<std::vector<Instruction>> added(program.ranks.size());
  for (const GradientSum &sum : sums) {
    Instruction inst;
    inst.op = sum.op;
    inst.comm = kSumComm;
    inst.stage = sum.stage;
    inst.peer = static_cast<int32_t>(program.rankSets.size());
    inst.bytes = sum.bytes;
    for (int32_t rank : sum.ranks)
      added[rank].push_back(inst);
    program.rankSets.push_back(sum.ranks);
  }
  for (size_t r = 0; r < added.size(); ++r) {
    auto &list = program.ranks[r].instructions;
    list.insert(list.begin() + endOfActions(list), added[r].begin(),
                added[r].end());
  }
  numberRankSets(program);
}

//===----------------------------------------------------------------------===//
// States of batches
//===----------------------------------------------------------------------===//

/// A state is of one step for the whole batch.
static Status checkHasStep(const Program &order) {
  bool steps = false;
  for (size_t r = 0; r < order.ranks.size(); ++r) {
    const auto &list = order.ranks[r].instructions;
    const uint32_t end = endOfActions(list);
    for (uint32_t i = 0; i < list.size(); ++i) {
      if (list[i].op != Op::Step)
        continue;
      steps = true;
      const Site site = {static_cast<int32_t>(r), i};
      if (list[i].microbatch >= 0)
        return Failure{quoted(list[i]) +
                           " is for one micro-batch, but post-validation is of "
                           "one step for the whole batch; choose a schedule "
                           "with a flush, or drop post_validation",
                       site};
      if (i < end)
        return Failure{quoted(list[i]) +
                           " stands before the last action of rank " +
                           std::to_string(r) +
                           ", but it needs to know all gradients of the rank; "
                           "put the step there",
                       site};
    }
  }
  if (steps)
    return success();
  return Failure{"there is no `step` that post-validation could be of; add "
                 "steps, or drop post_validation",
                 {}};
}

static Instruction stateOp(Op op, int32_t peer = -1) {
  Instruction inst;
  inst.op = op;
  inst.peer = peer;
  if (isTransfer(op)) {
    inst.payload = Payload::State;
    inst.bytes = kStateBytes;
  }
  return inst;
}

/// Index of the item before which a rank validates at the latest: its first
/// action that is not a forward of the stage with which it begins.
static uint32_t endOfFirstForwards(const std::vector<Instruction> &list) {
  int32_t stage = -1;
  uint32_t head = 0, end = 0;
  for (uint32_t i = 0; i < list.size(); ++i) {
    if (!list[i].joined)
      head = i;
    if (!isAction(list[i].op))
      continue;
    if (stage < 0)
      stage = list[i].stage;
    if (list[i].op != Op::Forward || list[i].stage != stage)
      return head;
    end = i + 1;
  }
  return end;
}

/// Where a validation has to stand at the latest that stands before the item
/// `at` and holds up no action if transfers are free: behind what the next
/// action waits for, its inputs and the action before it.
static uint32_t beforeNextAction(const Problem &problem,
                                 const std::vector<Instruction> &list,
                                 uint32_t at) {
  uint32_t action = at;
  while (action < list.size() && !isAction(list[action].op))
    ++action;
  if (action == list.size())
    return at;
  auto isInput = [&](const Instruction &recv) {
    bool found = false;
    for (uint32_t i = action, end = itemEnd(list, action); i < end; ++i)
      forEachAccess(list[i], problem.numStages(), [&](const Access &read) {
        forEachAccess(recv, problem.numStages(), [&](const Access &write) {
          found |= recv.op == Op::Recv && read.tensor == write.tensor;
        });
      });
    return found;
  };
  uint32_t behind = action;
  while (behind > 0 && isTransfer(list[behind - 1].op) &&
         !isInput(list[behind - 1]))
    --behind;
  while (list[behind].joined)
    ++behind;
  return std::min(at, behind);
}

/// Validations are events of the linear order too, from the last rank to the
/// first, each as late as those behind it allow and followed by the transfer to
/// the rank before. The state of the batch goes from the first rank to the last
/// behind all other events, before the steps.
static void addStates(Program &program,
                      const std::vector<std::vector<uint32_t>> &events,
                      TransferStatistics &statistics) {
  const auto numRanks = static_cast<int32_t>(program.ranks.size());
  /// The item of a rank before which an event stands that comes before all
  /// events of the linear order from `cut` on.
  auto placeOf = [&](int32_t r, uint32_t cut) {
    auto at = static_cast<uint32_t>(
        std::lower_bound(events[r].begin(), events[r].end(), cut) -
        events[r].begin());
    const auto &list = program.ranks[r].instructions;
    while (at > 0 && at < events[r].size() && list[at].joined)
      --at;
    return at;
  };
  std::vector<uint32_t> cuts(numRanks); // of the validations
  for (int32_t r = 0; r < numRanks; ++r) {
    const uint32_t last = r == 0 ? ~0u : cuts[r - 1];
    const auto &list = program.ranks[r].instructions;
    const uint32_t at =
        beforeNextAction(program.problem, list,
                         std::min(placeOf(r, last), endOfFirstForwards(list)));
    // As early as the instant at which what stands before it ends.
    cuts[r] = std::min(last, at == 0 ? 0 : events[r][at - 1] + 1);
  }
  for (int32_t r = 0; r < numRanks; ++r) {
    auto &list = program.ranks[r].instructions;
    std::vector<Instruction> validation = {stateOp(Op::Validate)}, reduction;
    if (r > 0) {
      validation.push_back(stateOp(Op::Send, r - 1));
      reduction.push_back(stateOp(Op::Recv, r - 1));
    }
    reduction.push_back(stateOp(Op::ReduceState));
    const uint32_t at = placeOf(r, cuts[r]);
    uint32_t arrival = 0;
    if (r + 1 < numRanks) {
      reduction.push_back(stateOp(Op::Send, r + 1));
      arrival = placeOf(r, cuts[r + 1]);
    }
    // From behind, so that places stay.
    list.insert(std::find_if(list.begin(), list.end(),
                             [](const Instruction &inst) {
                               return inst.op == Op::Step;
                             }),
                reduction.begin(), reduction.end());
    list.insert(list.begin() + at, validation.begin(), validation.end());
    if (r + 1 < numRanks)
      list.insert(list.begin() + arrival, stateOp(Op::Recv, r + 1));
  }
  statistics.transfers += 2 * (numRanks - 1);
}

/// Replaces the order by the program that an inserter has made of it.
static TransferStatistics finish(Inserter &inserter, Program &order,
                                 const std::vector<GradientSum> &sums) {
  auto lists = inserter.takeLists();
  for (size_t rank = 0; rank < lists.size(); ++rank)
    order.ranks[rank] = {std::move(lists[rank]), {}, {}, {}, {}};
  if (!sums.empty() || order.problem.postValidation)
    putLast(order);
  addSums(order, sums);
  if (order.problem.postValidation)
    addStates(order, inserter.takeEvents(), inserter.statistics);
  return inserter.statistics;
}

/// Whether, once transfers have a queue of their own, things wait for data
/// only: not for memory, for a state, or for another queue.
static bool waitsForDataOnly(const Program &order) {
  if (order.problem.memory > 0 || order.problem.postValidation)
    return false;
  for (const RankProgram &rank : order.ranks)
    for (const Instruction &inst : rank.instructions)
      if (inst.op == Op::Offload || inst.op == Op::Reload || inst.queue != 0)
        return false;
  return true;
}

/// When the last action ends on a device with a transfer queue.
static double makespanOf(Program program) {
  double makespan = std::numeric_limits<double>::infinity();
  if (!planBuffers(program))
    return makespan;
  const std::optional<Timing> timing = playProgram(program);
  if (!timing)
    return makespan;
  makespan = 0;
  for (size_t r = 0; r < program.ranks.size(); ++r)
    for (uint32_t i = 0;
         const Instruction &inst : program.ranks[r].instructions)
      if (const double end = timing->end[r][i++]; isAction(inst.op))
        makespan = std::max(makespan, end);
  return makespan;
}

static Result<TransferStatistics>
insertFastest(Program &order, const TransferOptions &options,
              const std::vector<GradientSum> &sums) {
  const bool timed = waitsForDataOnly(order);
  Inserter byTime(order, options, TransferPlacement::Time, timed),
      asTorch(order, options, TransferPlacement::Torch, timed);
  for (Inserter *inserter : {&byTime, &asTorch})
    if (Status status = inserter->run(); !status)
      return status.failure();
  if (timed)
    return finish(asTorch.makespan() < byTime.makespan() ? asTorch : byTime,
                  order, sums);
  Program other = order;
  TransferStatistics statistics = finish(byTime, order, sums);
  const TransferStatistics ofOther = finish(asTorch, other, sums);
  if (makespanOf(other) < makespanOf(order)) {
    order = std::move(other);
    statistics = ofOther;
  }
  return statistics;
}

Result<TransferStatistics> insertTransfers(Program &order,
                                           const TransferOptions &options) {
  if (!order.isOrder())
    return Failure{"transfers are inserted into an order, but this program has "
                   "transfers, collectives or slots already; give the actions "
                   "only"};
  if (Status status = checkActions(order); !status)
    return status.failure();
  if (Status status = checkMoves(order); !status) {
    const Failure &failure = status.failure();
    const Site site = failure.site;
    return Failure{
        quoted(order.ranks[site.rank].instructions[site.instruction]) + ' ' +
            failure.message,
        site};
  }
  const std::vector<GradientSum> sums = gradientSums(order.problem);
  if (Status status = checkSteps(order, sums); !status)
    return status.failure();
  if (order.problem.postValidation)
    if (Status status = checkHasStep(order); !status)
      return status.failure();
  if (options.placement == TransferPlacement::Fastest &&
      order.problem.link != Link())
    return insertFastest(order, options, sums);
  Inserter inserter(order, options, options.placement, /*timed=*/false);
  if (Status status = inserter.run(); !status)
    return status.failure();
  return finish(inserter, order, sums);
}

} // namespace penstock
