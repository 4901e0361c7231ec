//===- RunOrder.h - Plays an order, action by action ------------*- C++ -*-===//
//
// The literature's model of a schedule: every rank runs its actions strictly in
// order, an action starts when its operands are there, a transfer is pure
// latency. The simulator plays it with the costs of the problem, transfer
// insertion with free transfers and integer time.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_ANALYSIS_RUNORDER_H
#define PENSTOCK_ANALYSIS_RUNORDER_H

#include "penstock/Program/Result.h"
#include "penstock/Support/Memory.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <span>
#include <utility>
#include <vector>

namespace penstock {

/// Where everything of an order ends: F of (stage, mb) has index
/// stage * numMicrobatches + mb, its B or I that plus stages * microbatches.
struct OrderIndex {
  size_t stages, microbatches;

  explicit OrderIndex(const Problem &problem)
      : stages(problem.stages.size()), microbatches(problem.numMicrobatches) {}
  size_t size() const { return 2 * stages * microbatches; }
  size_t forward(int32_t stage, int32_t mb) const {
    return stage * microbatches + mb;
  }
  size_t backward(int32_t stage, int32_t mb) const {
    return (stages + stage) * microbatches + mb;
  }
  /// The F, B or I that an instruction is; size() if it is none.
  size_t of(const Instruction &inst) const {
    if (inst.op == Op::Forward)
      return forward(inst.stage, inst.microbatch);
    if (inst.op == Op::Backward || inst.op == Op::BackwardInput)
      return backward(inst.stage, inst.microbatch);
    return size();
  }
};

/// Of every F, B and I of an order, by index, the instruction on its rank;
/// kNoInstruction where there is none.
std::vector<uint32_t> findMakers(const Program &order);

/// Calls `fn(size_t index, int32_t stage)` for the F, B and I, by index and
/// stage, that an action must come after.
template <typename Fn>
inline void forEachPredecessor(const OrderIndex &index,
                               const Instruction &action, Fn &&fn) {
  const int32_t s = action.stage, mb = action.microbatch;
  switch (action.op) {
  case Op::Forward:
  case Op::Recompute:
    if (s > 0)
      fn(index.forward(s - 1, mb), s - 1);
    return;
  case Op::Backward:
  case Op::BackwardInput:
    fn(index.forward(s, mb), s);
    if (static_cast<size_t>(s) + 1 < index.stages)
      fn(index.backward(s + 1, mb), s + 1);
    return;
  case Op::BackwardWeight:
    fn(index.backward(s, mb), s);
    return;
  default:
    return;
  }
}

/// Where the stash of an own stage goes.
enum class StashMove : uint8_t { None, Away, Back };

/// What an instruction of a rank does with such a stash: in an order an offload
/// or a reload, in a program, which has an order too, also a transfer.
inline StashMove stashMoveOf(const Problem &problem, int32_t rank,
                             const Instruction &inst) {
  if (inst.op == Op::Offload || inst.op == Op::Reload)
    return inst.op == Op::Offload ? StashMove::Away : StashMove::Back;
  if (!isTransfer(inst.op) || inst.payload != Payload::Stash ||
      problem.rankOf(inst.stage, inst.microbatch) != rank)
    return StashMove::None;
  return inst.op == Op::Send ? StashMove::Away : StashMove::Back;
}

/// In the literature's model, the time that what `from`, a stage, hands to an
/// action of a neighbouring stage takes from one rank to another: that of the
/// activation, or of the gradient, which is as large; or the time that the
/// stash of `from` takes, if the instruction is a move of that.
inline double handOverTime(const Problem &problem, int32_t from,
                           const Instruction &inst) {
  return problem.link.time(
      isAction(inst.op)
          ? bytesOf(problem, {TensorKind::Activation,
                              std::min(from, inst.stage), inst.microbatch})
          : bytesOf(problem, {TensorKind::Stash, from, inst.microbatch}));
}

/// Calls `fn(Site from, Site to, int32_t stage)` for all that a stage hands to
/// an action on another rank, in an order that checkActions accepts.
template <typename Fn>
inline void forEachHandOver(const Program &order, Fn &&fn) {
  const Problem &problem = order.problem;
  const OrderIndex index(problem);
  const std::vector<uint32_t> makers = findMakers(order);
  for (int32_t r = 0; r < problem.numRanks; ++r) {
    const auto &list = order.ranks[r].instructions;
    for (uint32_t i = 0; i < list.size(); ++i)
      if (list[i].op != Op::Recompute) // has what its forward received
        forEachPredecessor(index, list[i], [&](size_t needed, int32_t stage) {
          const int32_t from = problem.rankOf(stage, list[i].microbatch);
          if (from != r)
            fn(Site{from, makers[needed]}, Site{r, i}, stage);
        });
  }
}

/// Whether stage and micro-batch of an action are among those of the problem.
inline bool isInRange(const Problem &problem, const Instruction &action) {
  return action.stage >= 0 && action.stage < problem.numStages() &&
         action.microbatch >= 0 && action.microbatch < problem.numMicrobatches;
}

/// Whether the order has every F, and every B or I, exactly once and on the
/// rank of its stage. The failure names the action.
Status checkActions(const Program &order);

/// Whether every stash that an order moves to another rank or to host memory is
/// there when it goes, and back from there before something uses it. The
/// failure says of the instruction that it names what is wrong; the order is
/// one that checkActions accepts.
Status checkMoves(const Program &order);

/// The cycle of waits in which an order that checkActions accepts gets stuck:
/// action and what it needs in turn; empty when the order can run.
std::vector<Site> findOrderCycle(const Program &order);
/// That cycle in words.
Failure explainOrderCycle(const Program &order, const std::vector<Site> &cycle);

/// An item of actions that has run. Its members end together: an overlap hands
/// over nothing before its end.
template <typename Time>
struct PlayedItem {
  int32_t rank = 0;
  uint32_t begin = 0, end = 0; ///< its instructions
  Time startTime = 0, endTime = 0;
};

/// For those to whom moves of stashes do not matter.
struct IgnoreMoves {
  template <typename Time>
  void operator()(Site, Time, Time) const {}
};

/// What playing an order comes down to: start the next item of a rank, finish
/// it, start those that waited for it. An item must be finished before the next
/// one of its rank is started, and all before it that it needs. Stashes start
/// to move, to another rank or host memory or back, when the item before has
/// ended, and hold up only what reads a stash that is on its way back;
/// `onMove(site, start, end)` hears of each on the rank of its stage. To host
/// memory and back a rank copies one at a time; to another rank a move is a
/// transfer like others, pure latency.
template <typename Time, typename Duration, typename Latency, typename OnMove>
class OrderPlayer {
public:
  OrderPlayer(const Program &order, Duration &&duration, Latency &&latency,
              OnMove &&onMove)
      : order(order), problem(order.problem), index(problem),
        duration(std::forward<Duration>(duration)),
        latency(std::forward<Latency>(latency)),
        onMove(std::forward<OnMove>(onMove)), lanes(order.ranks.size()) {
    // However many a problem claims.
    if (index.size() <= order.numInstructions())
      ended.resize(index.size(), kNotYet);
    else
      isRefused = true;
    for (size_t rank = 0; rank < lanes.size(); ++rank)
      lanes[rank].list = order.ranks[rank].instructions;
  }

  /// Starts the next item of a rank, or notes what it lacks.
  bool start(int32_t rank) {
    Lane &lane = lanes[rank];
    const std::span list = lane.list;
    uint32_t begin = lane.item.end;
    for (; begin < list.size() && !isAction(list[begin].op); ++begin)
      move(lane, {rank, begin});
    lane.item.end = begin;
    if (begin == list.size() || isRefused)
      return false;
    // The lists of all ranks are walked at once.
    prefetch(&list[begin], 8 * sizeof(Instruction));
    Time start = lane.item.endTime, length = 0, longest = 0;
    size_t missing = kNothing;
    const uint32_t end = itemEnd(list, begin);
    for (uint32_t i = begin; i < end; ++i) {
      const Instruction &inst = list[i];
      if (!isInRange(problem, inst) ||
          problem.rankOf(inst.stage, inst.microbatch) != rank) {
        isRefused = true;
        return false;
      }
      forEachPredecessor(index, inst, [&](size_t needed, int32_t stage) {
        const Time there = ended[needed];
        if (there == kNotYet) {
          missing = needed;
          return;
        }
        const bool local = stage == inst.stage ||
                           problem.rankOf(stage, inst.microbatch) == rank;
        start = std::max(start, local ? there : there + latency(stage, inst));
      });
      const Time own = duration(inst);
      length += own;
      longest = std::max(longest, own);
    }
    if (!moved.empty()) [[unlikely]]
      start = std::max(start, stashesBack(list.subspan(begin, end - begin)));
    lane.blockedOn = missing;
    if (missing != kNothing)
      return false;
    if (end - begin > 1)
      length = problem.together(length, longest);
    lane.item = {rank, begin, end, start, start + length};
    return true;
  }

  /// The item that a rank has started last.
  const PlayedItem<Time> &itemOf(int32_t rank) const {
    return lanes[rank].item;
  }

  void finish(const PlayedItem<Time> &item) {
    for (const Instruction &inst : instructionsOf(item))
      if (const size_t done = index.of(inst); done < index.size()) {
        prefetch(&ended[done], 16 * sizeof(Time));
        isRefused |= ended[done] != kNotYet;
        ended[done] = item.endTime;
        ++numEnded;
      }
  }

  /// Calls `fn(rank)` for the ranks whose next item lacked that item, which is
  /// finished: maybe they can start it.
  template <typename Fn>
  void forEachWoken(const PlayedItem<Time> &item, Fn &&fn) {
    for (const Instruction &inst : instructionsOf(item)) {
      const size_t done = index.of(inst);
      const int32_t reader =
          inst.op == Op::Forward ? inst.stage + 1 : inst.stage - 1;
      if (done == index.size() || reader < 0 || reader >= problem.numStages())
        continue;
      const int32_t rank = problem.rankOf(reader, inst.microbatch);
      if (lanes[rank].blockedOn == done) {
        lanes[rank].blockedOn = kNothing;
        fn(rank);
      }
    }
  }

  /// When no item can be started: whether the order has ended.
  Status result() const {
    bool ends = !isRefused && numEnded == index.size();
    for (const Lane &lane : lanes)
      ends &= lane.item.end == lane.list.size();
    if (ends)
      return success();
    if (Status status = checkActions(order); !status)
      return status;
    return explainOrderCycle(order, findOrderCycle(order));
  }

private:
  static constexpr Time kNotYet = -1;
  static constexpr size_t kNothing = ~size_t(0);
  /// How far a rank has come.
  struct Lane {
    std::span<const Instruction> list;
    PlayedItem<Time> item;       ///< that runs or ran last
    size_t blockedOn = kNothing; ///< what the next one lacks
    Time copyEnd = 0;            ///< of the last copy
  };

  /// When the stashes that actions read are there.
  [[gnu::cold, gnu::noinline]] Time
  stashesBack(std::span<const Instruction> actions) const {
    Time time = 0;
    for (const Instruction &inst : actions)
      if (readsStash(inst.op))
        time =
            std::max(time, moved[index.forward(inst.stage, inst.microbatch)]);
    return time;
  }

  /// If the instruction moves a stash.
  void move(Lane &lane, Site site) {
    const Instruction &inst = lane.list[site.instruction];
    if (isInRange(problem, inst))
      if (const StashMove way = stashMoveOf(problem, site.rank, inst);
          way != StashMove::None)
        startMove(lane, site, way);
  }
  [[gnu::cold, gnu::noinline]] void startMove(Lane &lane, Site site,
                                              StashMove way) {
    const Instruction &inst = lane.list[site.instruction];
    if (moved.empty())
      moved.resize(index.stages * index.microbatches, 0);
    Time &there = moved[index.forward(inst.stage, inst.microbatch)];
    Time start = lane.item.endTime;
    if (way == StashMove::Back)
      start = std::max(start, there);
    if (movesToHost(inst)) {
      start = std::max(start, lane.copyEnd);
      there = lane.copyEnd = start + duration(inst);
    } else {
      there = start + latency(inst.stage, inst);
    }
    onMove(site, start, there);
  }

  std::span<const Instruction>
  instructionsOf(const PlayedItem<Time> &item) const {
    return lanes[item.rank].list.subspan(item.begin, item.end - item.begin);
  }

  const Program &order;
  const Problem &problem;
  const OrderIndex index;
  Duration duration;
  Latency latency;
  OnMove onMove;
  std::vector<Lane> lanes;
  BigArray<Time> ended; ///< by index
  /// When the stash of (stage, mb) has arrived where it was moved last; empty
  /// before the first move.
  std::vector<Time> moved;
  size_t numEnded = 0;    ///< of them
  bool isRefused = false; ///< checkActions knows why
};

/// Plays an order: `duration(inst)` is the time of an action or of a copy to
/// host memory or back, `latency(from, inst)` the time that what `from`, a
/// stage, hands to the action `inst` takes to reach it from another rank. Calls
/// `visit(PlayedItem<Time>)` by end time, of several items the one that started
/// first; causes come before effects. Instructions other than actions are
/// skipped. Fails where checkActions does, or where the order gets stuck. O(n
/// log ranks).
template <typename Time, typename Duration, typename Latency, typename Visit>
Status playOrder(const Program &order, Duration &&duration, Latency &&latency,
                 Visit &&visit) {
  struct Event {
    Time time;
    uint64_t sequence;
    int32_t rank;
    bool operator<(const Event &other) const { // The heap's top is the largest.
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };
  OrderPlayer<Time, Duration, Latency, IgnoreMoves> player(
      order, std::forward<Duration>(duration), std::forward<Latency>(latency),
      IgnoreMoves());
  std::priority_queue<Event> running;
  uint64_t sequence = 0;
  auto start = [&](int32_t rank) {
    if (player.start(rank))
      running.push({player.itemOf(rank).endTime, sequence++, rank});
  };
  for (size_t rank = 0; rank < order.ranks.size(); ++rank)
    start(static_cast<int32_t>(rank));
  while (!running.empty()) {
    const int32_t rank = running.top().rank;
    running.pop();
    const PlayedItem<Time> item = player.itemOf(rank);
    visit(item);
    player.finish(item);
    start(rank);
    player.forEachWoken(item, start);
  }
  return player.result();
}

/// As above for those to whom only the times matter: every rank runs ahead
/// until it needs another, so items come in the order of their rank, and causes
/// before effects, and `onMove(site, start, end)` hears of the copies to host
/// memory and back. Linear.
template <typename Time, typename Duration, typename Latency, typename Visit,
          typename OnMove>
Status playOrderByRank(const Program &order, Duration &&duration,
                       Latency &&latency, Visit &&visit, OnMove &&onMove) {
  OrderPlayer<Time, Duration, Latency, OnMove> player(
      order, std::forward<Duration>(duration), std::forward<Latency>(latency),
      std::forward<OnMove>(onMove));
  std::vector<int32_t> ready(order.ranks.size());
  std::iota(ready.rbegin(), ready.rend(), 0);
  while (!ready.empty()) {
    const int32_t rank = ready.back();
    ready.pop_back();
    while (player.start(rank)) {
      const PlayedItem<Time> &item = player.itemOf(rank);
      visit(item);
      player.finish(item);
      player.forEachWoken(item, [&](int32_t woken) { ready.push_back(woken); });
    }
  }
  return player.result();
}

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_RUNORDER_H
