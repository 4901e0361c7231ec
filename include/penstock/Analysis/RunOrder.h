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
#include <queue>
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

/// In the literature's model, the time that what `from`, a stage, hands to an
/// action of a neighbouring stage takes from one rank to another: that of the
/// activation, or of the gradient, which is as large.
inline double handOverTime(const Problem &problem, int32_t from,
                           const Instruction &action) {
  return problem.link.time(
      bytesOf(problem, {TensorKind::Activation, std::min(from, action.stage),
                        action.microbatch}));
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

/// Whether the order has every F, and every B or I, exactly once and on the
/// rank of its stage. The failure names the action.
Status checkActions(const Program &order);

/// Whether every stash that an order moves to another rank is there when it
/// goes, and back from that rank before something uses it. The failure says of
/// the instruction that it names what is wrong; the order is one that
/// checkActions accepts.
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

/// Which of the ranks that run an item comes next: the one whose item ends
/// first, of several the one that started first. O(log ranks).
template <typename Time>
class ByEndTime {
public:
  bool empty() const { return running.empty(); }
  void push(int32_t rank, Time end) { running.push({end, sequence++, rank}); }
  int32_t pop() {
    const int32_t rank = running.top().rank;
    running.pop();
    return rank;
  }

private:
  struct Event {
    Time time;
    uint64_t sequence;
    int32_t rank;
    bool operator<(const Event &other) const { // The heap's top is the largest.
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };
  std::priority_queue<Event> running;
  uint64_t sequence = 0;
};

/// The one that started last: ranks run ahead until they need another. For
/// those to whom only the times matter.
template <typename Time>
class ByRank {
public:
  bool empty() const { return running.empty(); }
  void push(int32_t rank, Time) { running.push_back(rank); }
  int32_t pop() {
    const int32_t rank = running.back();
    running.pop_back();
    return rank;
  }

private:
  std::vector<int32_t> running;
};

/// Plays an order that checkActions accepts: `duration(inst)` is the time of an
/// action, `latency(from, inst)` the time that what `from`, a stage, hands to
/// the action `inst` takes to reach it from another rank. Calls
/// `visit(PlayedItem<Time>)` causes before effects, by end time unless told
/// otherwise. Instructions other than actions are skipped. Linear but for what
/// `Running` takes.
template <typename Time, typename Running = ByEndTime<Time>, typename Duration,
          typename Latency, typename Visit>
Status playOrder(const Program &order, Duration &&duration, Latency &&latency,
                 Visit &&visit) {
  const Problem &problem = order.problem;
  const OrderIndex index(problem);
  constexpr Time kNotYet = -1;
  constexpr size_t kNothing = ~size_t(0);
  std::vector<Time> ended(index.size(), kNotYet);
  const size_t numRanks = order.ranks.size();
  std::vector<PlayedItem<Time>> current(numRanks);
  std::vector<size_t> blockedOn(numRanks, kNothing);

  Running running;

  // Starts the next item of a rank, or notes what it lacks.
  auto advance = [&](int32_t rank) {
    const auto &list = order.ranks[rank].instructions;
    PlayedItem<Time> &item = current[rank];
    uint32_t begin = item.end;
    while (begin < list.size() && !isAction(list[begin].op))
      ++begin;
    item.end = begin;
    blockedOn[rank] = kNothing;
    if (begin == list.size())
      return;
    // The lists of all ranks are walked at once.
    prefetch(&list[begin], 8 * sizeof(Instruction));
    Time start = item.endTime, length = 0, longest = 0;
    const uint32_t end = itemEnd(list, begin);
    for (uint32_t i = begin; i < end; ++i) {
      const Instruction &inst = list[i];
      forEachPredecessor(index, inst, [&](size_t needed, int32_t stage) {
        if (ended[needed] == kNotYet) {
          blockedOn[rank] = needed;
          return;
        }
        const bool local = problem.rankOf(stage, inst.microbatch) == rank;
        start = std::max(start, local ? ended[needed]
                                      : ended[needed] + latency(stage, inst));
      });
      const Time own = duration(inst);
      length += own;
      longest = std::max(longest, own);
    }
    if (blockedOn[rank] != kNothing)
      return;
    if (end - begin > 1)
      length = problem.together(length, longest);
    item = {rank, begin, end, start, start + length};
    running.push(rank, item.endTime);
  };

  for (size_t rank = 0; rank < numRanks; ++rank)
    advance(static_cast<int32_t>(rank));
  while (!running.empty()) {
    const int32_t rank = running.pop();
    visit(current[rank]);
    const uint32_t begin = current[rank].begin, end = current[rank].end;
    const Time endTime = current[rank].endTime;
    const auto &list = order.ranks[rank].instructions;
    auto finish = [&](size_t done) {
      prefetch(&ended[done], 16 * sizeof(Time));
      ended[done] = endTime;
    };
    auto wake = [&](size_t done, int32_t stage, int32_t mb) {
      if (stage < 0 || stage >= problem.numStages())
        return;
      const int32_t reader = problem.rankOf(stage, mb);
      if (blockedOn[reader] == done)
        advance(reader);
    };
    for (uint32_t i = begin; i < end; ++i) {
      if (list[i].op == Op::Forward)
        finish(index.forward(list[i].stage, list[i].microbatch));
      else if (list[i].op == Op::Backward || list[i].op == Op::BackwardInput)
        finish(index.backward(list[i].stage, list[i].microbatch));
    }
    advance(rank);
    for (uint32_t i = begin; i < end; ++i) {
      const int32_t s = list[i].stage, mb = list[i].microbatch;
      if (list[i].op == Op::Forward)
        wake(index.forward(s, mb), s + 1, mb);
      else if (list[i].op == Op::Backward || list[i].op == Op::BackwardInput)
        wake(index.backward(s, mb), s - 1, mb);
    }
  }

  for (size_t rank = 0; rank < numRanks; ++rank)
    if (current[rank].end < order.ranks[rank].instructions.size())
      return explainOrderCycle(order, findOrderCycle(order));
  return success();
}

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_RUNORDER_H
