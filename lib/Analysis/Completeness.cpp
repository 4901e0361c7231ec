//===- Completeness.cpp - Every action exactly once, in order -------------===//

#include "Describe.h"
#include "Rules.h"

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
        findings(findings), warnings(warnings), sums(gradientSums(problem)) {}

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
    findSums();
    findPlaces();
    for (int32_t r = 0; r < problem.numRanks; ++r) {
      const auto &insts = program.ranks[r].instructions;
      lastLoss = kAbsent;
      for (uint32_t i = 0; i < insts.size(); ++i)
        if (isAction(insts[i].op))
          enter({r, i}, insts[i]);
        else if (usesParameters(insts[i].op))
          enterUse({r, i}, insts[i]);
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
    if (stepsOnTheWay)
      checkStepsOnTheWay();
    checkUses(Op::ReduceGrad, reductions);
    checkUses(Op::Step, steps);
    if (!isOrder) // which has no sums yet
      checkSums();
    if (problem.postValidation)
      checkPostValidation(program, isOrder, findings);
  }

private:
  static constexpr uint32_t kAbsent = ~0u;
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

  void findSums() {
    sumOfCopies.assign(problem.stages.size(), -1);
    sumOfTied = sumOfCopies;
    sumOnRank.assign(problem.numRanks, -1);
    for (size_t k = 0; k < sums.size(); ++k) {
      const auto number = static_cast<int32_t>(k);
      sumSeen.emplace_back(sums[k].ranks.size(), 0);
      for (int32_t rank : sums[k].ranks)
        sumOnRank[rank] = number;
      if (sums[k].op == Op::AllReduce)
        sumOfCopies[sums[k].stage] = number;
      else
        for (int32_t stage : problem.tiedAt(sums[k].stage)->stages)
          sumOfTied[stage] = number;
    }
  }

  /// Sorts the entries of the placement by their ranks.
  void findPlaces() {
    firstPlace.assign(static_cast<size_t>(problem.numRanks) + 1, 0);
    for (int32_t rank : problem.placement)
      ++firstPlace[rank + 1];
    for (size_t r = 1; r < firstPlace.size(); ++r)
      firstPlace[r] += firstPlace[r - 1];
    std::vector<uint32_t> next = firstPlace;
    places.resize(problem.placement.size());
    for (uint32_t k = 0; k < places.size(); ++k)
      places[next[problem.placement[k]]++] = k;
  }
  std::pair<uint32_t, uint32_t> placesOn(int32_t rank) const {
    return {firstPlace[rank], firstPlace[rank + 1]};
  }

  static bool usesParameters(Op op) {
    return op == Op::Step || op == Op::AllReduce || op == Op::ReduceTied ||
           op == Op::ReduceGrad || op == Op::Unshard || op == Op::Reshard;
  }

  /// Who uses the weight gradients of the whole batch, by chain and stage.
  struct Uses {
    Site first;
    std::vector<uint8_t> seen;
  };

  void enterUse(Site site, const Instruction &inst) {
    const bool isStep = inst.op == Op::Step;
    const bool isSum = inst.op == Op::AllReduce || inst.op == Op::ReduceTied;
    if (inst.op == Op::ReduceTied)
      checkTiedPlace(site, inst.stage);
    else if (inst.stage >= 0)
      checkPlace(site, inst.stage);
    if (!isStep && !isSum && inst.op != Op::ReduceGrad)
      return;
    if (inst.microbatch >= 0) {
      stepsOnTheWay |= isStep;
      if (isStep || isSum)
        checkHasNoSum(site, inst);
      return;
    }
    if (isSum)
      return enterSum(site, inst);
    Uses &uses = isStep ? steps : reductions;
    if (uses.seen.empty()) {
      uses.first = site;
      uses.seen.assign(problem.placement.size(), 0);
    }
    const auto [begin, end] = placesOn(site.rank);
    for (size_t at = begin; at < end; ++at)
      if (const uint32_t k = places[at];
          inst.stage < 0 ||
          static_cast<int32_t>(k) % problem.numStages() == inst.stage)
        uses.seen[k] = 1;
  }

  /// All ranks that hold a stage use its gradients, or none does.
  void checkUses(Op op, const Uses &uses) {
    for (size_t k = 0; k < uses.seen.size() && !findings.full(); ++k) {
      if (uses.seen[k])
        continue;
      Instruction inst;
      inst.op = op;
      inst.stage = static_cast<int32_t>(k) % problem.numStages();
      const int32_t rank = problem.placement[k];
      findings.add({rank, kNoInstruction},
                   quoted(inst) + " is missing on rank " +
                       std::to_string(rank) + ", while " +
                       quoted(program, uses.first) + " on rank " +
                       std::to_string(uses.first.rank) +
                       " uses the gradients of another stage or copy; add it",
                   {{uses.first, "used here"}});
    }
  }

  /// Gradients that several ranks have parts of are added up only once.
  void checkHasNoSum(Site site, const Instruction &inst) {
    int32_t sum = sumOnRank[site.rank];
    if (inst.stage >= 0)
      sum = std::max(sumOfCopies[inst.stage], sumOfTied[inst.stage]);
    if (sum < 0)
      return;
    findings.add(site, "is for one micro-batch, but " +
                           describeParts(sums[sum]) +
                           ", which are added up once, for all micro-batches; "
                           "leave the micro-batch out");
  }

  /// "stage 0 has copies on ranks 0, 1, each with a part of its gradients"
  std::string describeParts(const GradientSum &sum) const {
    auto list = [](const std::vector<int32_t> &numbers) {
      std::string text;
      for (int32_t number : numbers)
        text += (text.empty() ? "" : ", ") + std::to_string(number);
      return text;
    };
    return sum.op == Op::AllReduce
               ? "stage " + std::to_string(sum.stage) +
                     " has copies on ranks " + list(sum.ranks) +
                     ", each with a part of its gradients"
               : "stages " + list(problem.tiedAt(sum.stage)->stages) +
                     " use one parameter on ranks " + list(sum.ranks) +
                     ", each with a part of its gradients";
  }

  void enterSum(Site site, const Instruction &inst) {
    if (firstSum.rank < 0)
      firstSum = site;
    const int32_t number = inst.op == Op::AllReduce ? sumOfCopies[inst.stage]
                                                    : sumOfTied[inst.stage];
    if (number < 0)
      return;
    const GradientSum &sum = sums[number];
    auto member =
        std::lower_bound(sum.ranks.begin(), sum.ranks.end(), site.rank);
    if (member == sum.ranks.end() || *member != site.rank)
      return;
    sumSeen[number][member - sum.ranks.begin()] = 1;
    if (inst.bytes != sum.bytes)
      findings.add(site, "moves " + std::to_string(inst.bytes) +
                             " bytes, but what it adds up has " +
                             std::to_string(sum.bytes) + "; write bytes(" +
                             std::to_string(sum.bytes) + ")");
    if (inst.peer < 0)
      return;
    const std::vector<int32_t> &set = program.rankSets[inst.peer];
    for (int32_t rank : sum.ranks)
      if (!std::binary_search(set.begin(), set.end(), rank)) {
        findings.add(site, "leaves out rank " + std::to_string(rank) +
                               ", but " + describeParts(sum) +
                               "; add it to the rank set");
        return;
      }
  }

  /// Whoever has a part of some gradients adds them up before a step, or nobody
  /// does.
  void checkSums() {
    const Site use = steps.seen.empty() ? firstSum : steps.first;
    if (use.rank < 0)
      return;
    for (size_t k = 0; k < sums.size(); ++k)
      for (size_t n = 0; n < sumSeen[k].size() && !findings.full(); ++n) {
        if (sumSeen[k][n])
          continue;
        const std::string rank = std::to_string(sums[k].ranks[n]);
        Instruction missing;
        missing.op = sums[k].op;
        missing.stage = sums[k].stage;
        findings.add({sums[k].ranks[n], kNoInstruction},
                     quoted(missing) + " is missing on rank " + rank + ": " +
                         describeParts(sums[k]) + ", while " +
                         quoted(program, use) + " on rank " +
                         std::to_string(use.rank) +
                         " uses gradients; add them up on all these ranks",
                     {{use, "used here"}});
      }
  }

  void checkTiedPlace(Site site, int32_t firstStage) {
    const std::vector<int32_t> ranks =
        problem.ranksOf(*problem.tiedAt(firstStage));
    if (!std::binary_search(ranks.begin(), ranks.end(), site.rank))
      findings.add(site, "is on the wrong rank: none of the stages that are "
                         "tied with stage " +
                             std::to_string(firstStage) + " is on rank " +
                             std::to_string(site.rank) + "; remove it here");
  }

  /// The rank must hold the parameters of the stage, for any micro-batch.
  void checkPlace(Site site, int32_t stage) {
    for (int32_t c = 0; c < problem.numChains(); ++c)
      if (problem.placement[static_cast<size_t>(c) * problem.numStages() +
                            stage] == site.rank)
        return;
    findings.add(site, "is on the wrong rank: stage " + std::to_string(stage) +
                           " is on rank " +
                           std::to_string(problem.placement[stage]) +
                           "; move it there");
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

  /// Steps for single micro-batches: each uses the gradients that came since
  /// the step before, that of its micro-batch among them, and none is left
  /// over.
  void checkStepsOnTheWay() {
    struct StageSteps {
      Site first, last; ///< for single micro-batches
      Site gradient;    ///< the latest B or W
    };
    std::vector<StageSteps> stages(problem.stages.size());
    for (int32_t r = 0; r < problem.numRanks && !findings.full(); ++r) {
      const auto &insts = program.ranks[r].instructions;
      for (uint32_t i = 0; i < insts.size(); ++i) {
        const Instruction &inst = insts[i];
        if (inst.op != Op::Step || inst.microbatch < 0)
          continue;
        StageSteps &stage = stages[inst.stage];
        if (problem.rankOf(inst.stage, inst.microbatch) == r)
          checkStep({r, i}, inst, stage.last);
        if (stage.last.rank < 0)
          stage.first = {r, i};
        stage.last = {r, i};
      }
    }
    Site some;
    for (const StageSteps &stage : stages)
      if (some.rank < 0)
        some = stage.first;
    for (int32_t r = 0; r < problem.numRanks; ++r) {
      const auto &insts = program.ranks[r].instructions;
      for (uint32_t i = 0; i < insts.size(); ++i)
        if (insts[i].op == Op::Backward || insts[i].op == Op::BackwardWeight)
          stages[insts[i].stage].gradient = {r, i};
        else if (insts[i].op == Op::Step && insts[i].microbatch < 0)
          findings.add({r, i},
                       "is for the whole batch, while " +
                           quoted(program, some) + " on rank " +
                           std::to_string(some.rank) +
                           " is for one micro-batch; step the same way "
                           "everywhere",
                       {{some, "the other one is here"}});
    }
    for (size_t s = 0; s < stages.size() && !findings.full(); ++s) {
      const StageSteps &stage = stages[s];
      if (stage.gradient.rank < 0 ||
          (stage.last.rank == stage.gradient.rank &&
           stage.last.instruction > stage.gradient.instruction))
        continue;
      Instruction step = program.ranks[stage.gradient.rank]
                             .instructions[stage.gradient.instruction];
      step.op = Op::Step;
      findings.add(stage.gradient,
                   "adds a weight gradient that no step uses; add " +
                       quoted(step) + " after it",
                   {{some, "others step here"}});
    }
  }

  void checkStep(Site site, const Instruction &step, Site before) {
    const Entry &e = entry(step.stage, step.microbatch);
    const uint32_t gradient = std::min(e[1], e[3]);
    if (gradient == kAbsent)
      return; // said elsewhere
    const Site source = {site.rank, gradient};
    if (gradient > site.instruction)
      findings.add(site,
                   "stands before " + quoted(program, source) +
                       ", whose weight gradient it uses; put it after that",
                   {{source, "what it needs is here"}});
    else if (before.rank == site.rank && before.instruction > gradient)
      findings.add(site,
                   "comes after " + quoted(program, before) +
                       ", which has used the weight gradient of micro-batch " +
                       std::to_string(step.microbatch) + " already; remove one",
                   {{before, "used here"}});
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
  Uses steps, reductions;
  std::vector<uint32_t> firstPlace, places; ///< the placement, by ranks
  const std::vector<GradientSum> sums;
  std::vector<std::vector<uint8_t>> sumSeen;   ///< of each rank of each sum
  std::vector<int32_t> sumOfCopies, sumOfTied; ///< of each stage, or -1
  std::vector<int32_t> sumOnRank;              ///< some sum of each rank, or -1
  Site firstSum;
  uint32_t lastLoss = kAbsent; ///< last forward of the last stage on this rank
  bool isOutOfOrder = false;   ///< some loss is; one is enough to say so
  bool stepsOnTheWay = false;  ///< some step is for one micro-batch
  bool hasForward = false, hasBackward = false;
};

} // namespace

void penstock::checkCompleteness(const Program &program, bool order,
                                 Findings &findings, Findings &warnings) {
  Completeness(program, order, findings, warnings).run();
}
