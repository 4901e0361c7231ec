//===- OrderRun.cpp - An order can run across ranks -----------------------===//
//
// The literature's rule: each rank runs its actions strictly in order, and an
// action starts when what it needs has ended, on whatever rank. A rank that
// cannot go on waits for one such action, so that the waits lead to a cycle.
//
//===----------------------------------------------------------------------===//

#include "Describe.h"
#include "Rules.h"

#include "penstock/Analysis/RunOrder.h"

#include <utility>

using namespace penstock;

namespace {

class OrderRun {
public:
  explicit OrderRun(const Program &program)
      : program(program), problem(program.problem), index(problem),
        next(program.ranks.size(), 0), waiting(program.ranks.size(), kNone),
        blocked(program.ranks.size()), waiters(index.size(), kNone),
        makers(index.size(), kNoInstruction) {
    for (const RankProgram &rank : program.ranks)
      for (uint32_t i = 0; i < rank.instructions.size(); ++i)
        if (size_t made = madeBy(rank.instructions[i]); made < index.size())
          makers[made] = i;
  }

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
    for (uint32_t r = 0; r < next.size(); ++r)
      if (next[r] < program.ranks[r].instructions.size())
        return cycleFrom(r);
    return {};
  }

private:
  static constexpr uint32_t kNone = ~0u;
  /// The action that a rank waits in, and the one that it waits for.
  struct Blocked {
    Site action, maker;
  };

  /// The F, B or I that an instruction is, by index; else an index too large.
  size_t madeBy(const Instruction &inst) const {
    if (inst.op == Op::Forward)
      return index.forward(inst.stage, inst.microbatch);
    if (inst.op == Op::Backward || inst.op == Op::BackwardInput)
      return index.backward(inst.stage, inst.microbatch);
    return index.size();
  }

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
        if (size_t made = madeBy(insts[i]); made < index.size())
          for (uint32_t w = std::exchange(waiters[made], kNone); w != kNone;
               w = waiting[w])
            ready.push_back(w);
    }
  }

  /// If what the action needs is not there yet, queues the rank for it.
  bool waits(uint32_t r, uint32_t i) {
    const Instruction &inst = program.ranks[r].instructions[i];
    bool missing = false;
    forEachPredecessor(index, inst, [&](size_t needed, int32_t stage) {
      const Site maker = {problem.rankOf(stage, inst.microbatch),
                          makers[needed]};
      if (missing || maker.instruction < next[maker.rank])
        return;
      missing = true;
      waiting[r] = std::exchange(waiters[needed], r);
      blocked[r] = {{static_cast<int32_t>(r), i}, maker};
    });
    return missing;
  }

  std::vector<Site> cycleFrom(uint32_t r) const {
    std::vector<uint8_t> seen(next.size());
    while (!std::exchange(seen[r], 1))
      r = static_cast<uint32_t>(blocked[r].maker.rank);
    std::vector<Site> cycle;
    for (uint32_t start = r, at = r; cycle.empty() || at != start;
         at = static_cast<uint32_t>(blocked[at].maker.rank)) {
      cycle.push_back(blocked[at].action);
      cycle.push_back(blocked[at].maker);
    }
    return cycle;
  }

  const Program &program;
  const Problem &problem;
  const OrderIndex index;
  std::vector<uint32_t> next;    ///< of each rank, the item to run
  std::vector<uint32_t> waiting; ///< next rank that waits for the same action
  std::vector<Blocked> blocked;
  std::vector<uint32_t> waiters; ///< of each F, B or I, the first rank
  std::vector<uint32_t> makers;  ///< of each, its instruction
};

} // namespace

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
