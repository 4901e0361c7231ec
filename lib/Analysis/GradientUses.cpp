//===- GradientUses.cpp - Who uses the gradients of a batch ---------------===//

#include "GradientUses.h"

#include "Describe.h"

#include <algorithm>

using namespace penstock;

GradientUses::GradientUses(const Program &program, Findings &findings)
    : program(program), problem(program.problem), findings(findings),
      sums(gradientSums(problem)) {
  findSums();
  findPlaces();
}

void GradientUses::check(bool isOrder, const GradientFn &gradientOf) {
  if (stepsOnTheWay)
    checkStepsOnTheWay(gradientOf);
  checkUses(Op::ReduceGrad, reductions);
  checkUses(Op::Step, steps);
  if (!isOrder) // which has no sums yet
    checkSums();
}

void GradientUses::findSums() {
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
void GradientUses::findPlaces() {
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

static bool usesParameters(Op op) {
  return op == Op::Step || op == Op::AllReduce || op == Op::ReduceTied ||
         op == Op::ReduceGrad || op == Op::Unshard || op == Op::Reshard;
}

void GradientUses::enter(Site site, const Instruction &inst) {
  if (!usesParameters(inst.op))
    return;
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
  for (size_t at = firstPlace[site.rank]; at < firstPlace[site.rank + 1]; ++at)
    if (const uint32_t k = places[at];
        inst.stage < 0 ||
        static_cast<int32_t>(k) % problem.numStages() == inst.stage)
      uses.seen[k] = 1;
}

/// All ranks that hold a stage use its gradients, or none does.
void GradientUses::checkUses(Op op, const Uses &uses) {
  for (size_t k = 0; k < uses.seen.size() && !findings.full(); ++k) {
    if (uses.seen[k])
      continue;
    Instruction inst;
    inst.op = op;
    inst.stage = static_cast<int32_t>(k) % problem.numStages();
    const int32_t rank = problem.placement[k];
    findings.add({rank, kNoInstruction},
                 quoted(inst) + " is missing on rank " + std::to_string(rank) +
                     ", while " + quoted(program, uses.first) + " on rank " +
                     std::to_string(uses.first.rank) +
                     " uses the gradients of another stage or copy; add it",
                 {{uses.first, "used here"}});
  }
}

/// Gradients that several ranks have parts of are added up only once.
void GradientUses::checkHasNoSum(Site site, const Instruction &inst) {
  int32_t sum = sumOnRank[site.rank];
  if (inst.stage >= 0)
    sum = std::max(sumOfCopies[inst.stage], sumOfTied[inst.stage]);
  if (sum < 0)
    return;
  findings.add(site, "is for one micro-batch, but " + describeParts(sums[sum]) +
                         ", which are added up once, for all micro-batches; "
                         "leave the micro-batch out");
}

/// "stage 0 has copies on ranks 0, 1, each with a part of its gradients"
std::string GradientUses::describeParts(const GradientSum &sum) const {
  auto list = [](const std::vector<int32_t> &numbers) {
    std::string text;
    for (int32_t number : numbers)
      text += (text.empty() ? "" : ", ") + std::to_string(number);
    return text;
  };
  return sum.op == Op::AllReduce
             ? "stage " + std::to_string(sum.stage) + " has copies on ranks " +
                   list(sum.ranks) + ", each with a part of its gradients"
             : "stages " + list(problem.tiedAt(sum.stage)->stages) +
                   " use one parameter on ranks " + list(sum.ranks) +
                   ", each with a part of its gradients";
}

void GradientUses::enterSum(Site site, const Instruction &inst) {
  if (firstSum.rank < 0)
    firstSum = site;
  const int32_t number = inst.op == Op::AllReduce ? sumOfCopies[inst.stage]
                                                  : sumOfTied[inst.stage];
  if (number < 0)
    return;
  const GradientSum &sum = sums[number];
  auto member = std::lower_bound(sum.ranks.begin(), sum.ranks.end(), site.rank);
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
      findings.add(site, "leaves out rank " + std::to_string(rank) + ", but " +
                             describeParts(sum) + "; add it to the rank set");
      return;
    }
}

/// Whoever has a part of some gradients adds them up before a step, or nobody
/// does.
void GradientUses::checkSums() {
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

void GradientUses::checkTiedPlace(Site site, int32_t firstStage) {
  const std::vector<int32_t> ranks =
      problem.ranksOf(*problem.tiedAt(firstStage));
  if (!std::binary_search(ranks.begin(), ranks.end(), site.rank))
    findings.add(site, "is on the wrong rank: none of the stages that are "
                       "tied with stage " +
                           std::to_string(firstStage) + " is on rank " +
                           std::to_string(site.rank) + "; remove it here");
}

/// The rank must hold the parameters of the stage, for any micro-batch.
void GradientUses::checkPlace(Site site, int32_t stage) {
  for (int32_t c = 0; c < problem.numChains(); ++c)
    if (problem.placement[static_cast<size_t>(c) * problem.numStages() +
                          stage] == site.rank)
      return;
  findings.add(site, "is on the wrong rank: stage " + std::to_string(stage) +
                         " is on rank " +
                         std::to_string(problem.placement[stage]) +
                         "; move it there");
}

/// Steps for single micro-batches: each uses the gradients that came since
/// the step before, that of its micro-batch among them, and none is left
/// over.
void GradientUses::checkStepsOnTheWay(const GradientFn &gradientOf) {
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
        checkStep({r, i}, inst, stage.last,
                  gradientOf(inst.stage, inst.microbatch));
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
                     "is for the whole batch, while " + quoted(program, some) +
                         " on rank " + std::to_string(some.rank) +
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

void GradientUses::checkStep(Site site, const Instruction &step, Site before,
                             uint32_t gradient) {
  if (gradient == kNoInstruction)
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
