//===- OrderRun.cpp - An order can run across ranks -----------------------===//
//
// The literature's rule: each rank runs its actions strictly in order, and an
// action starts when its operands are there, wherever they come from. A rank
// that cannot go on waits for the one action that makes its next operand.
//
//===----------------------------------------------------------------------===//

#include "Describe.h"
#include "Rules.h"

#include <array>
#include <utility>

using namespace penstock;

namespace {

class OrderRun {
public:
  explicit OrderRun(const Program &program)
      : program(program), problem(program.problem),
        next(program.ranks.size(), 0), waiting(program.ranks.size(), kNone),
        blocked(program.ranks.size()) {
    const size_t numPairs = static_cast<size_t>(problem.numStages()) *
                            static_cast<size_t>(problem.numMicrobatches);
    makers.assign(numPairs, {kNoInstruction, kNoInstruction});
    waiters.assign(2 * numPairs, kNone);
    for (const RankProgram &rank : program.ranks)
      for (uint32_t i = 0; i < rank.instructions.size(); ++i) {
        const Instruction &inst = rank.instructions[i];
        if (makes(inst, TensorKind::Activation))
          makers[pair(inst.stage, inst.microbatch)][0] = i;
        if (makes(inst, TensorKind::Gradient))
          makers[pair(inst.stage, inst.microbatch)][1] = i;
      }
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

  static bool makes(const Instruction &inst, TensorKind kind) {
    return kind == TensorKind::Activation
               ? inst.op == Op::Forward
               : inst.op == Op::Backward || inst.op == Op::BackwardInput;
  }
  size_t pair(int32_t stage, int32_t mb) const {
    return static_cast<size_t>(stage) * problem.numMicrobatches + mb;
  }
  Site maker(const Tensor &t) const {
    return {
        problem.rankOf(t.stage, t.microbatch),
        makers[pair(t.stage, t.microbatch)][t.kind == TensorKind::Gradient]};
  }

  /// Runs a rank until it ends or waits.
  void advance(uint32_t r, std::vector<uint32_t> &ready) {
    const auto &insts = program.ranks[r].instructions;
    for (uint32_t first; (first = next[r]) < insts.size();) {
      uint32_t end = first + 1;
      while (end < insts.size() && insts[end].joined)
        ++end;
      for (uint32_t i = first; i < end; ++i)
        if (waits(r, i))
          return;
      next[r] = end;
      for (uint32_t i = first; i < end; ++i)
        for (unsigned kind = 0; kind < 2; ++kind)
          if (makes(insts[i], static_cast<TensorKind>(kind))) {
            uint32_t &list =
                waiters[2 * pair(insts[i].stage, insts[i].microbatch) + kind];
            for (uint32_t w = std::exchange(list, kNone); w != kNone;
                 w = waiting[w])
              ready.push_back(w);
          }
    }
  }

  /// If an operand of the action is not there yet, queues the rank for it.
  bool waits(uint32_t r, uint32_t i) {
    bool missing = false;
    forEachAccess(program.ranks[r].instructions[i], problem.numStages(),
                  [&](const Access &access) {
                    const Tensor &t = access.tensor;
                    if (missing || access.mode != Access::Read ||
                        t.kind == TensorKind::Stash)
                      return;
                    const Site m = maker(t);
                    if (m.instruction < next[m.rank])
                      return;
                    missing = true;
                    uint32_t &list = waiters[2 * pair(t.stage, t.microbatch) +
                                             (t.kind == TensorKind::Gradient)];
                    waiting[r] = std::exchange(list, r);
                    blocked[r] = {{static_cast<int32_t>(r), i}, m};
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
  std::vector<uint32_t> next;    ///< of each rank, the item to run
  std::vector<uint32_t> waiting; ///< next rank that waits for the same tensor
  std::vector<Blocked> blocked;
  std::vector<uint32_t> waiters; ///< of each tensor, the first rank
  std::vector<std::array<uint32_t, 2>> makers; ///< of activation and gradient
};

} // namespace

std::vector<Site> penstock::checkOrderRuns(const Program &program,
                                           Findings &findings) {
  std::vector<Site> cycle = OrderRun(program).run();
  if (!cycle.empty()) {
    const Site late = cycle[1], early = cycle[2 % cycle.size()];
    std::string text =
        "the order cannot run: " + describeCycle(program, cycle) + ". ";
    if (late.instruction != early.instruction)
      text += "Put " + quoted(program, late) + " before " +
              quoted(program, early) + " on rank " + std::to_string(late.rank) +
              ".";
    findings.add(cycle[0], text, notesOfCycle(program, cycle));
  }
  return cycle;
}
