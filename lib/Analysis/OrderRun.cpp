//===- OrderRun.cpp - An order can run across ranks -----------------------===//
//
// The literature's rule: each rank runs its actions strictly in order, and an
// action starts when what it needs has ended, on whatever rank. A rank that
// cannot go on waits for such actions, so that the waits lead to a cycle.
//
//===----------------------------------------------------------------------===//

#include "Describe.h"
#include "Rules.h"
#include "ShortestCycle.h"

#include "penstock/Analysis/RunOrder.h"

#include <algorithm>
#include <utility>

using namespace penstock;

namespace {

class OrderRun {
public:
  explicit OrderRun(const Program &program)
      : program(program), problem(program.problem), index(problem),
        next(program.ranks.size(), 0), waiting(program.ranks.size(), kNone),
        waiters(index.size(), kNone), makers(findMakers(program)) {}

  /// The ranks that cannot go on wait in a circle: the cycle, or nothing.
  std::vector<Site> run() {
    std::vector<uint32_t> ready;
    for (uint32_t r = 0; r < next.size(); ++r)
      ready.push_back(r);
    while (!ready.empty()) {
      uint32_t r = ready.back();
      ready.pop_back();
      advance(r, ready);
    }
    return cycle();
  }

private:
  static constexpr uint32_t kNone = ~0u;
  /// A rank waits in an action for one of another rank, or of its own.
  struct Wait {
    uint32_t from, to; ///< ranks
    Site action, maker;
  };

  /// Runs a rank until it ends or waits.
  void advance(uint32_t r, std::vector<uint32_t> &ready) {
    const auto &insts = program.ranks[r].instructions;
    for (uint32_t first; (first = next[r]) < insts.size();) {
      const uint32_t end = itemEnd(insts, first);
      for (uint32_t i = first; i < end; ++i)
        if (waits(r, i))
          return;
      next[r] = end;
      for (uint32_t i = first; i < end; ++i)
        if (size_t made = index.of(insts[i]); made < index.size())
          for (uint32_t w = std::exchange(waiters[made], kNone); w != kNone;
               w = waiting[w])
            ready.push_back(w);
    }
  }

  /// Calls `fn(needed, maker)` for what an action needs and is not there yet.
  template <typename Fn>
  void forEachMissing(const Instruction &inst, Fn &&fn) const {
    forEachPredecessor(index, inst, [&](size_t needed, int32_t stage) {
      const Site maker = {problem.rankOf(stage, inst.microbatch),
                          makers[needed]};
      if (maker.instruction >= next[maker.rank])
        fn(needed, maker);
    });
  }

  /// If what the action needs is not there yet, queues the rank for it.
  bool waits(uint32_t r, uint32_t i) {
    bool missing = false;
    forEachMissing(program.ranks[r].instructions[i], [&](size_t needed, Site) {
      if (!std::exchange(missing, true))
        waiting[r] = std::exchange(waiters[needed], r);
    });
    return missing;
  }

  /// A shortest cycle among the ranks that cannot go on, the one that begins
  /// earliest in its rank; nothing when all ended.
  std::vector<Site> cycle() const {
    std::vector<Wait> all;
    std::vector<uint32_t> starts;
    for (uint32_t r = 0; r < next.size(); ++r) {
      const auto &insts = program.ranks[r].instructions;
      if (next[r] == insts.size())
        continue;
      starts.push_back(r);
      for (uint32_t i = next[r]; i < itemEnd(insts, next[r]); ++i)
        forEachMissing(insts[i], [&](size_t, Site maker) {
          all.push_back({r,
                         static_cast<uint32_t>(maker.rank),
                         {static_cast<int32_t>(r), i},
                         maker});
        });
    }
    std::stable_sort(starts.begin(), starts.end(),
                     [&](uint32_t a, uint32_t b) { return next[a] < next[b]; });
    std::vector<Site> sites;
    for (uint32_t e : shortestCycle(Digraph(next.size(), all), starts)) {
      sites.push_back(all[e].action);
      sites.push_back(all[e].maker);
    }
    return sites;
  }

  const Program &program;
  const Problem &problem;
  const OrderIndex index;
  std::vector<uint32_t> next;    ///< of each rank, the item to run
  std::vector<uint32_t> waiting; ///< next rank that waits for the same action
  std::vector<uint32_t> waiters; ///< of each F, B or I, the first rank
  std::vector<uint32_t> makers;  ///< of each, its instruction
};

} // namespace

std::vector<uint32_t> penstock::findMakers(const Program &order) {
  const OrderIndex index(order.problem);
  std::vector<uint32_t> makers(index.size(), kNoInstruction);
  for (const RankProgram &rank : order.ranks)
    for (uint32_t i = 0; i < rank.instructions.size(); ++i)
      if (size_t made = index.of(rank.instructions[i]); made < index.size())
        makers[made] = i;
  return makers;
}

std::vector<Site> penstock::findOrderCycle(const Program &order) {
  return OrderRun(order).run();
}

Failure penstock::explainOrderCycle(const Program &order,
                                    const std::vector<Site> &cycle) {
  const Site late = cycle[1], early = cycle[2 % cycle.size()];
  std::string text = "the order cannot run: " + describeCycle(order, cycle);
  if (late.instruction != early.instruction)
    text += ". Put " + quoted(order, late) + " before " + quoted(order, early) +
            " on rank " + std::to_string(late.rank) + ".";
  return {text, cycle[0]};
}

std::vector<Site> penstock::checkOrderRuns(const Program &program,
                                           Findings &findings) {
  std::vector<Site> cycle = findOrderCycle(program);
  if (!cycle.empty())
    findings.add(cycle[0], explainOrderCycle(program, cycle).message,
                 notesOfCycle(program, cycle));
  return cycle;
}
