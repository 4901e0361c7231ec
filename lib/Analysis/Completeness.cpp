//===- Completeness.cpp - Every action exactly once, in order -------------===//

#include "Describe.h"
#include "GradientUses.h"

#include <algorithm>
#include <array>
#include <utility>

using namespace penstock;

namespace {

class Completeness {
public:
  Completeness(const Program &program, bool order, Findings &findings,
               Findings &warnings)
      : program(program), problem(program.problem), isOrder(order),
        findings(findings), warnings(warnings), uses(program, findings) {}

  void run() {
    const size_t numPairs = static_cast<size_t>(problem.numStages()) *
                            static_cast<size_t>(problem.numMicrobatches);
    // Far fewer instructions than pairs: do not make a table of what is absent.
    if (!hasModestTables(program)) {
      findings.add({}, std::to_string(problem.numStages()) + " stages and " +
                           std::to_string(problem.numMicrobatches) +
                           " micro-batches need " + std::to_string(numPairs) +
                           " forwards; the program has only " +
                           std::to_string(program.numInstructions()) +
                           " instructions");
      return;
    }
    seen.assign(numPairs, {kAbsent, kAbsent, kAbsent, kAbsent});
    for (int32_t r = 0; r < problem.numRanks; ++r) {
      const auto &insts = program.ranks[r].instructions;
      lastLoss = kAbsent;
      for (uint32_t i = 0; i < insts.size(); ++i)
        if (isAction(insts[i].op))
          enter({r, i}, insts[i]);
        else
          uses.enter({r, i}, insts[i]);
    }
    if (hasForward && !hasBackward) {
      findings.add({}, "there are forwards and no backward at all; only "
                       "schedules for training are verified, so add the "
                       "backwards");
      return;
    }
    for (int32_t s = 0; s < problem.numStages(); ++s)
      for (int32_t mb = 0; mb < problem.numMicrobatches; ++mb) {
        if (findings.full())
          return;
        checkPair(s, mb);
        if (mb % problem.slices != 0)
          checkSlices(s, mb);
      }
    uses.check(isOrder, [this](int32_t s, int32_t mb) {
      const Entry &e = entry(s, mb);
      return std::min(e[1], e[3]);
    });
    if (problem.postValidation)
      checkPostValidation(program, isOrder, findings);
  }

private:
  static constexpr uint32_t kAbsent = kNoInstruction;
  /// Instruction index of F, B, I and W on the owner's rank.
  using Entry = std::array<uint32_t, 4>;

  Entry &entry(int32_t stage, int32_t mb) {
    return seen[static_cast<size_t>(stage) * problem.numMicrobatches + mb];
  }
  static std::string nameOf(unsigned op, int32_t s, int32_t mb) {
    Instruction inst;
    inst.op = static_cast<Op>(op);
    inst.stage = s;
    inst.microbatch = mb;
    return quoted(inst);
  }

  void enter(Site site, const Instruction &inst) {
    const int32_t owner = problem.rankOf(inst.stage, inst.microbatch);
    if (site.rank != owner) {
      findings.add(site, "is on the wrong rank: stage " +
                             std::to_string(inst.stage) + " of micro-batch " +
                             std::to_string(inst.microbatch) + " is on rank " +
                             std::to_string(owner) + "; move it there");
      return;
    }
    if (inst.op == Op::Recompute)
      return;
    (inst.op == Op::Forward ? hasForward : hasBackward) = true;
    if (inst.op == Op::Forward && inst.stage == problem.numStages() - 1)
      enterLoss(site, inst.microbatch);
    uint32_t &first =
        entry(inst.stage, inst.microbatch)[static_cast<unsigned>(inst.op)];
    if (first == kAbsent)
      first = site.instruction;
    else
      findings.add(site,
                   "is here a second time" +
                       std::string(inst.op == Op::Backward ||
                                           inst.op == Op::BackwardWeight
                                       ? ", its weight gradient would count "
                                         "twice; remove one"
                                       : "; remove one"),
                   {{{site.rank, first}, "the first time is here"}});
  }

  /// The last stage computes the losses.
  void enterLoss(Site site, int32_t mb) {
    const uint32_t before = std::exchange(lastLoss, site.instruction);
    if (before == kAbsent || isOutOfOrder)
      return;
    const auto &insts = program.ranks[site.rank].instructions;
    isOutOfOrder = mb < insts[before].microbatch;
    if (isOutOfOrder)
      warnings.add(
          site,
          "computes a loss after " + quoted(program, {site.rank, before}) +
              "; Penstock knows losses by micro-batch, but torch pairs them "
              "with targets in the order in which they come: run the forwards "
              "of the last stage in ascending order before exporting there",
          {{{site.rank, before}, "a later micro-batch comes first here"}});
  }

  void checkPair(int32_t s, int32_t mb) {
    const Entry &e = entry(s, mb);
    const uint32_t f = e[0], b = e[1], i = e[2], w = e[3];
    const int32_t owner = problem.rankOf(s, mb);
    auto missing = [&](unsigned op, uint32_t where) {
      findings.add({owner, where}, nameOf(op, s, mb) + " is missing on rank " +
                                       std::to_string(owner) + "; add it");
    };
    auto order = [&](uint32_t early, uint32_t late, unsigned lateOp) {
      if (early != kAbsent && late != kAbsent && early < late)
        findings.add({owner, early},
                     "stands before " + nameOf(lateOp, s, mb) +
                         ", which it needs; put it after that",
                     {{{owner, late}, "what it needs is here"}});
    };
    if (f == kAbsent)
      missing(0, kNoInstruction);
    if (b == kAbsent && i == kAbsent && w == kAbsent) {
      findings.add({owner, f == kAbsent ? kNoInstruction : f},
                   "stage " + std::to_string(s) + " of micro-batch " +
                       std::to_string(mb) + " has no backward on rank " +
                       std::to_string(owner) + ": neither " + nameOf(1, s, mb) +
                       " nor " + nameOf(2, s, mb) + " and " + nameOf(3, s, mb) +
                       "; add one of them");
    } else if (b != kAbsent && (i != kAbsent || w != kAbsent)) {
      const bool hasWeight = w != kAbsent;
      const uint32_t other = hasWeight ? w : i;
      findings.add(
          {owner, other},
          "repeats a part of " + nameOf(1, s, mb) +
              (hasWeight ? ", the weight gradient would count twice" : "") +
              "; keep the whole backward or its two parts",
          {{{owner, b}, "the whole backward is here"}});
    } else if (b == kAbsent) {
      if (i == kAbsent)
        missing(2, w);
      if (w == kAbsent)
        missing(3, i);
    }
    order(b, f, 0);
    order(i, f, 0);
    order(w, i == kAbsent ? f : i, i == kAbsent ? 0 : 2);
  }

  /// A slice attends to those before it in its micro-batch: it needs what their
  /// F leave, and their B need what its B leaves.
  void checkSlices(int32_t s, int32_t mb) {
    const Entry &before = entry(s, mb - 1), &own = entry(s, mb);
    auto order = [&](uint32_t early, uint32_t late, const char *why) {
      if (early == kAbsent || late == kAbsent || early < late)
        return;
      const int32_t owner = problem.rankOf(s, mb);
      const Site site = {owner, late};
      findings.add(site,
                   "stands before " + quoted(program, {owner, early}) + why +
                       std::to_string(mb / problem.slices) +
                       "; put it after that",
                   {{{owner, early}, "what it needs is here"}});
    };
    order(before[0], own[0],
          ", the slice before it, to which it attends: forwards ascend over "
          "the slices of micro-batch ");
    auto backward = [](const Entry &e) { return std::min(e[1], e[2]); };
    order(backward(own), backward(before),
          ", the slice after it, which attends to it: backwards descend over "
          "the slices of micro-batch ");
  }

  const Program &program;
  const Problem &problem;
  const bool isOrder;
  Findings &findings;
  Findings &warnings;
  std::vector<Entry> seen;
  GradientUses uses;
  uint32_t lastLoss = kAbsent; ///< last forward of the last stage on this rank
  bool isOutOfOrder = false;   ///< some loss is; one is enough to say so
  bool hasForward = false, hasBackward = false;
};

} // namespace

void penstock::checkCompleteness(const Program &program, bool order,
                                 Findings &findings, Findings &warnings) {
  Completeness(program, order, findings, warnings).run();
}
