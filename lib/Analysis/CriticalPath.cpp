//===- CriticalPath.cpp - What the time goes to ---------------------------===//
//
// Walks backwards from where the makespan ends. The start of an item is the
// largest end of what it comes after, so one of these ends is equal to it: that
// is where the path came from. Of a program these are, on each rank that takes
// part in the step, the items that ItemWalk gives; of an order the action
// before it, and what its operands come from. A move of a stash comes after the
// action before it, and after what it finds under way.
//
//===----------------------------------------------------------------------===//

#include "penstock/Analysis/CriticalPath.h"

#include "Items.h"
#include "penstock/Analysis/EventGraph.h"
#include "penstock/Analysis/RunOrder.h"
#include "penstock/Support/Memory.h"

#include <algorithm>
#include <tuple>
#include <utility>

using namespace penstock;

static CriticalStep stepAt(Site site, const Timing &timing) {
  return {site, -1, -1, timing.start[site.rank][site.instruction],
          timing.end[site.rank][site.instruction]};
}

namespace {

/// Where the start of an item on a rank comes from.
struct Cause {
  uint32_t item = kNoInstruction; ///< by its first instruction
  int32_t rank = -1;
  double end = -1;
  double transfer = 0; ///< from its end to where its result is there
  double arrival() const { return end + transfer; }
};

/// The causes in an order.
class OrderCauses {
public:
  OrderCauses(const Program &order, const Timing &timing)
      : order(order), timing(timing), index(order.problem),
        makers(findMakers(order)) {
    for (Site move : timing.moves) {
      const Instruction &inst = at(move);
      moves.emplace_back(index.forward(inst.stage, inst.microbatch),
                         move.instruction);
    }
    std::sort(moves.begin(), moves.end());
  }

  /// The latest one of an item of actions: the one before it on its rank if
  /// that is none too early, else the one on the lowest rank.
  Cause of(int32_t rank, uint32_t begin) const {
    const auto &list = order.ranks[rank].instructions;
    Cause cause;
    for (uint32_t i = begin; i > 0;)
      if (isAction(list[--i].op)) {
        cause = {headOf(rank, i), rank, timing.end[rank][i]};
        break;
      }
    auto moved = [&](uint32_t move) {
      if (move != kNoInstruction && timing.end[rank][move] > cause.end)
        cause = {move, rank, timing.end[rank][move]};
    };
    if (isMove({rank, begin})) {
      // One that goes to another rank finds nothing under way.
      if (stashMoveOf(order.problem, rank, list[begin]) == StashMove::Back)
        moved(moveBefore(list[begin], begin));
      for (uint32_t i = begin; i > 0 && movesToHost(list[begin]);)
        if (movesToHost(list[--i])) {
          moved(i);
          break;
        }
      return cause;
    }
    for (uint32_t i = begin; i < itemEnd(list, begin); ++i)
      if (readsStash(list[i].op))
        moved(moveBefore(list[i], begin));
    for (uint32_t i = begin; i < itemEnd(list, begin); ++i)
      forEachPredecessor(index, list[i], [&](size_t needed, int32_t stage) {
        const int32_t maker = order.problem.rankOf(stage, list[i].microbatch);
        Cause other = {makers[needed], maker,
                       timing.end[maker][makers[needed]]};
        if (maker != rank)
          other.transfer = handOverTime(order.problem, stage, list[i]);
        const auto later = [](const Cause &a, const Cause &b) {
          return a.arrival() != b.arrival() ? a.arrival() > b.arrival()
                                            : a.rank < b.rank;
        };
        if (cause.rank == rank ? other.arrival() > cause.arrival()
                               : later(other, cause))
          cause = other;
      });
    cause.item = cause.rank < 0 ? cause.item : headOf(cause.rank, cause.item);
    return cause;
  }
  /// How long what an item waits for takes before it, from `from` on: what its
  /// operands take from another rank, or the moves of stashes that ended just
  /// when the next one started.
  double transfersBefore(int32_t rank, uint32_t item, double from) const {
    Cause cause = of(rank, item);
    double until = timing.start[rank][item], transfers = 0;
    if (cause.transfer > 0)
      return std::min(cause.transfer, until - from);
    for (; until > from && cause.rank == rank && cause.end == until &&
           isMove({rank, cause.item});
         cause = of(rank, cause.item)) {
      const double start = std::max(timing.start[rank][cause.item], from);
      transfers += until - start;
      until = start;
    }
    return transfers;
  }

  bool isMove(Site site) const {
    return stashMoveOf(order.problem, site.rank, at(site)) != StashMove::None;
  }
  /// What stands on the path for an item: of a move to another rank or back, a
  /// transfer.
  CriticalStep stepAt(Site site) const {
    CriticalStep step = ::stepAt(site, timing);
    if (!isMove(site) || movesToHost(at(site)))
      return step;
    const bool goes =
        stashMoveOf(order.problem, site.rank, at(site)) == StashMove::Away;
    step.source = goes ? site.rank : at(site).peer;
    step.destination = goes ? at(site).peer : site.rank;
    return step;
  }

private:
  const Instruction &at(Site site) const {
    return order.ranks[site.rank].instructions[site.instruction];
  }
  /// The last move, before an item, of the stash of an instruction.
  uint32_t moveBefore(const Instruction &inst, uint32_t item) const {
    const size_t stash = index.forward(inst.stage, inst.microbatch);
    const auto behind =
        std::lower_bound(moves.begin(), moves.end(), std::pair(stash, item));
    return behind != moves.begin() && std::prev(behind)->first == stash
               ? std::prev(behind)->second
               : kNoInstruction;
  }
  uint32_t headOf(int32_t rank, uint32_t i) const {
    while (order.ranks[rank].instructions[i].joined)
      --i;
    return i;
  }

  const Program &order;
  const Timing &timing;
  const OrderIndex index;
  std::vector<uint32_t> makers; ///< of each F, B or I, its instruction
  /// By the F of the stash, and of each all on its rank.
  std::vector<std::pair<size_t, uint32_t>> moves;
};

/// The causes in a program, on the rank of each item.
class ProgramCauses {
public:
  ProgramCauses(const Program &program, const Timing &timing)
      : timing(timing), before(program.ranks.size()) {
    ItemWalk items;
    for (size_t r = 0; r < program.ranks.size(); ++r) {
      const std::span ends = timing.end[r];
      before[r].resize(ends.size(), kNoInstruction);
      items.walk(program.ranks[r],
                 [&](uint32_t first, uint32_t, const auto &predecessors) {
                   uint32_t &latest = before[r][first];
                   for (uint32_t item : predecessors)
                     if (latest == kNoInstruction || ends[item] > ends[latest])
                       latest = item;
                 });
    }
  }

  /// Of an item, by its first instruction, the latest one that it comes after;
  /// of several the one on its queue.
  Cause of(Site item) const {
    const uint32_t latest = before[item.rank][item.instruction];
    if (latest == kNoInstruction)
      return {};
    return {latest, item.rank, timing.end[item.rank][latest]};
  }

private:
  const Timing &timing;
  std::vector<BigArray<uint32_t>> before;
};

} // namespace

/// Where the makespan ends: an item of actions, on the lowest rank.
static Site lastAction(const Program &program, const Timing &timing) {
  for (size_t r = 0; r < program.ranks.size(); ++r) {
    const auto &list = program.ranks[r].instructions;
    for (uint32_t i = 0; i < list.size(); ++i)
      if (isAction(list[i].op) && !list[i].joined &&
          timing.end[r][i] == timing.makespan)
        return {static_cast<int32_t>(r), i};
  }
  return {};
}

static std::vector<CriticalStep> walkOrder(const Program &order,
                                           const Timing &timing, Site at) {
  const OrderCauses causes(order, timing);
  std::vector<CriticalStep> path;
  for (;;) {
    path.push_back(causes.stepAt(at));
    if (!(path.back().start > 0))
      return path;
    const Cause cause = causes.of(at.rank, at.instruction);
    if (cause.rank != at.rank)
      path.push_back({at, cause.rank, at.rank, cause.end, path.back().start});
    at = {cause.rank, cause.item};
    if (!(path.back().start > 0)) // Nothing but latency before it.
      return path;
  }
}

static std::vector<CriticalStep> walkProgram(const Program &program,
                                             const Timing &timing, Site at) {
  const ProgramCauses causes(program, timing);
  const EventGraph graph(program, Semantics::Closure);
  std::vector<CriticalStep> path;
  for (;;) {
    CriticalStep step = stepAt(at, timing);
    Cause latest;
    Site longest;
    auto key = [&](Site site) {
      return std::tuple(site.rank != at.rank, site.rank, site.instruction);
    };
    Site head; // of the cause, among the members of the step
    graph.forEachMember(graph.stepOf(at), [&](Site site) {
      if (program.ranks[site.rank].instructions[site.instruction].joined)
        return;
      const Cause cause = causes.of(site);
      if (cause.end > latest.end ||
          (cause.end == latest.end && latest.rank >= 0 &&
           key(site) < key(head))) {
        latest = cause;
        head = site;
      }
    });
    // Of equal transfers, the one along the path.
    auto rankOf = [&](Site site) {
      const Instruction &inst =
          program.ranks[site.rank].instructions[site.instruction];
      const bool along = site.rank == latest.rank && inst.peer == at.rank;
      return std::tuple(-durationOf(program.problem, inst), !along, site.rank,
                        site.instruction);
    };
    graph.forEachMember(graph.stepOf(at), [&](Site site) {
      const Instruction &inst =
          program.ranks[site.rank].instructions[site.instruction];
      if (inst.op == Op::Send &&
          (longest.rank < 0 || rankOf(site) < rankOf(longest)))
        longest = site;
    });
    if (longest.rank >= 0) {
      step.site = longest;
      step.source = longest.rank;
      step.destination =
          program.ranks[longest.rank].instructions[longest.instruction].peer;
    }
    path.push_back(step);
    if (!(step.start > 0))
      return path;
    at = {latest.rank, latest.item};
  }
}

std::vector<CriticalStep> penstock::criticalPath(const Program &program,
                                                 const Timing &timing) {
  const Site last = lastAction(program, timing);
  if (last.rank < 0)
    return {};
  std::vector<CriticalStep> path = timing.ofOrder
                                       ? walkOrder(program, timing, last)
                                       : walkProgram(program, timing, last);
  std::reverse(path.begin(), path.end());
  return path;
}

PathSummary penstock::summarize(const Program &program,
                                const std::vector<CriticalStep> &path) {
  PathSummary summary;
  summary.stages.resize(program.problem.stages.size());
  for (const CriticalStep &step : path) {
    const double time = step.end - step.start;
    if (!(time > 0))
      continue;
    if (step.isTransfer()) {
      summary.transfers += time;
      summary.links.push_back({step.source, step.destination, time});
      continue;
    }
    const auto &list = program.ranks[step.site.rank].instructions;
    if (movesToHost(list[step.site.instruction])) {
      summary.copies += time;
      continue;
    }
    const uint32_t end = itemEnd(list, step.site.instruction);
    double sum = 0;
    for (uint32_t i = step.site.instruction; i < end; ++i)
      sum += durationOf(program.problem, list[i]);
    for (uint32_t i = step.site.instruction; i < end; ++i) {
      const double share = time * (durationOf(program.problem, list[i]) / sum);
      const auto op = static_cast<size_t>(list[i].op);
      summary.actions[op] += share;
      summary.stages[list[i].stage][op] += share;
    }
  }
  auto &links = summary.links;
  using LinkTime = PathSummary::LinkTime;
  auto ends = [](const LinkTime &link) {
    return std::pair(link.source, link.destination);
  };
  std::stable_sort(
      links.begin(), links.end(),
      [&](const LinkTime &a, const LinkTime &b) { return ends(a) < ends(b); });
  size_t numLinks = 0;
  for (const LinkTime &link : links)
    if (numLinks > 0 && ends(links[numLinks - 1]) == ends(link))
      links[numLinks - 1].time += link.time;
    else
      links[numLinks++] = link;
  links.resize(numLinks);
  return summary;
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

/// Splits the gaps between the actions of a rank: `transferIn(item, from)` is
/// the time before an item, from `from` on, in which a transfer is under way
/// that it waits for.
template <typename TransferIn>
static RankWaiting waitingOf(const RankProgram &rank, const Timing &timing,
                             size_t r, TransferIn &&transferIn) {
  const std::span start = timing.start[r];
  std::vector<uint32_t> items;
  for (uint32_t i = 0; i < rank.instructions.size(); ++i)
    if (isAction(rank.instructions[i].op) && !rank.instructions[i].joined)
      items.push_back(i);
  // Only actions on several queues are out of order.
  auto earlier = [&](uint32_t a, uint32_t b) { return start[a] < start[b]; };
  if (!std::is_sorted(items.begin(), items.end(), earlier))
    std::stable_sort(items.begin(), items.end(), earlier);
  RankWaiting waiting;
  double now = 0;
  for (uint32_t item : items) {
    if (start[item] > now) {
      const double gap = start[item] - now;
      if (item == items.front()) {
        waiting.first = gap;
      } else {
        const double transfer = transferIn(item, now);
        waiting.transfers += transfer;
        waiting.others += gap - transfer;
      }
    }
    now = std::max(now, timing.end[r][item]);
  }
  waiting.end = timing.makespan - now;
  return waiting;
}

std::vector<RankWaiting> penstock::waitingTimes(const Program &program,
                                                const Timing &timing) {
  std::vector<RankWaiting> waiting;
  const auto numRanks = static_cast<int32_t>(program.ranks.size());
  if (timing.ofOrder) {
    const OrderCauses causes(program, timing);
    for (int32_t r = 0; r < numRanks; ++r)
      waiting.push_back(waitingOf(
          program.ranks[r], timing, r, [&](uint32_t item, double from) {
            return causes.transfersBefore(r, item, from);
          }));
    return waiting;
  }
  const ProgramCauses causes(program, timing);
  for (int32_t r = 0; r < numRanks; ++r) {
    const auto &list = program.ranks[r].instructions;
    waiting.push_back(
        waitingOf(program.ranks[r], timing, r, [&](uint32_t item, double from) {
          // Back along what ended just when the next one started.
          double transfers = 0, until = timing.start[r][item];
          for (Cause cause = causes.of({r, item});
               until > from && cause.end == until;
               cause = causes.of({r, cause.item})) {
            const double start = std::max(timing.start[r][cause.item], from);
            if (isTransfer(list[cause.item].op) ||
                movesToHost(list[cause.item]))
              transfers += until - start;
            until = start;
          }
          return transfers;
        }));
  }
  return waiting;
}
