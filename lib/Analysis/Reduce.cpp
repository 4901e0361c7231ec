//===- Reduce.cpp - The smallest program with the same fault --------------===//

#include "penstock/Analysis/Reduce.h"

#include "Channels.h"
#include "Rewrite.h"

#include "penstock/Program/Certificate.h"
#include "penstock/Program/File.h"

#include <algorithm>

using namespace penstock;

namespace {

/// Instructions to remove, rank by rank.
using Flags = std::vector<std::vector<uint8_t>>;

Flags noFlags(const Program &program) {
  Flags flags(program.ranks.size());
  for (size_t r = 0; r < flags.size(); ++r)
    flags[r].resize(program.ranks[r].instructions.size());
  return flags;
}

template <typename Fn>
void forEachInstruction(const Program &program, Fn &&fn) {
  for (int32_t r = 0; r < static_cast<int32_t>(program.ranks.size()); ++r)
    for (uint32_t i = 0; i < program.ranks[r].instructions.size(); ++i)
      fn(Site{r, i}, program.ranks[r].instructions[i]);
}

void remove(Program &program, const Flags &gone) {
  for (size_t r = 0; r < gone.size(); ++r) {
    RankProgram &rank = program.ranks[r];
    if (std::find(gone[r].begin(), gone[r].end(), 1) == gone[r].end())
      continue;
    RankRewrite change;
    bool itemAlive = false;
    for (uint32_t i = 0; i < gone[r].size(); ++i) {
      itemAlive &= rank.instructions[i].joined;
      if (!gone[r][i]) {
        change.list.push_back({i, itemAlive});
        itemAlive = true;
      }
    }
    rewrite(rank, change);
  }
}

/// New numbers for 0 .. count - 1 without [first, first + dropped): -1 for
/// those.
std::vector<int32_t> renumber(size_t count, size_t first, size_t dropped) {
  std::vector<int32_t> numbers(count, -1);
  for (size_t i = 0, next = 0; i < count; ++i)
    if (i < first || i >= first + dropped)
      numbers[i] = static_cast<int32_t>(next++);
  return numbers;
}

template <typename T>
void eraseGone(std::vector<T> &list, const std::vector<int32_t> &numbers) {
  size_t kept = 0;
  for (size_t i = 0; i < list.size(); ++i)
    if (numbers[i % numbers.size()] >= 0) {
      if (kept != i)
        list[kept] = std::move(list[i]);
      ++kept;
    }
  list.resize(kept);
}

//===----------------------------------------------------------------------===//
// Micro-batches, stages, ranks
//===----------------------------------------------------------------------===//

/// With all their slices.
void dropMicrobatches(Program &program, size_t first, size_t count) {
  Problem &problem = program.problem;
  first *= static_cast<size_t>(problem.slices);
  count *= static_cast<size_t>(problem.slices);
  const std::vector<int32_t> numbers =
      renumber(problem.numMicrobatches, first, count);
  Flags gone = noFlags(program);
  forEachInstruction(program, [&](Site site, const Instruction &inst) {
    gone[site.rank][site.instruction] =
        inst.microbatch >= 0 && numbers[inst.microbatch] < 0;
  });
  remove(program, gone);
  for (RankProgram &rank : program.ranks)
    for (Instruction &inst : rank.instructions)
      if (inst.microbatch >= 0)
        inst.microbatch = numbers[inst.microbatch];
  if (!problem.chains.empty())
    eraseGone(problem.chains, numbers);
  if (!problem.weights.empty())
    eraseGone(problem.weights, numbers);
  problem.numMicrobatches -= static_cast<int32_t>(count);
}

/// Drops stages. Between a stage that stays and the next one that stays, the
/// first send on the rank of the one and the last receive on the rank of the
/// other become one transfer.
class StageDrop {
public:
  StageDrop(Program &program, const std::vector<int32_t> &numbers)
      : program(program), problem(program.problem), numbers(numbers),
        numStages(problem.numStages()), before(numStages, -1),
        behind(numStages + 1, -1) {
    for (int32_t s = 0, last = -1; s < numStages; ++s)
      before[s] = last = numbers[s] >= 0 ? s : last;
    for (int32_t s = numStages - 1; s >= 0; --s)
      behind[s] = numbers[s] >= 0 ? s : behind[s + 1];
    for (int32_t c = 0; c < problem.numChains(); ++c) {
      crossings.push_back({0});
      for (int32_t s = 1; s < numStages; ++s)
        crossings[c].push_back(crossings[c].back() +
                               (rankOf(c, s) != rankOf(c, s - 1)));
    }
  }

  void run() {
    Flags gone = noFlags(program);
    for (size_t r = 0; r < program.ranks.size(); ++r)
      for (size_t i = 0; i < gone[r].size(); ++i)
        gone[r][i] = !update(program.ranks[r].instructions[i]);
    remove(program, gone);
    std::erase_if(problem.tied,
                  [&](const TiedStages &set) { return !stays(set); });
    for (TiedStages &set : problem.tied)
      for (int32_t &stage : set.stages)
        stage = numbers[stage];
    eraseGone(problem.placement, numbers);
    eraseGone(problem.stages, numbers);
    int64_t layer = 0;
    for (Stage &stage : problem.stages) {
      stage.firstLayer = static_cast<int32_t>(layer);
      layer += stage.numLayers;
    }
  }

private:
  int32_t rankOf(int32_t chain, int32_t stage) const {
    return problem.placement[static_cast<size_t>(chain) * numStages + stage];
  }
  /// Tied stages stay together, or are no longer tied.
  bool stays(const TiedStages &set) const {
    return std::all_of(set.stages.begin(), set.stages.end(),
                       [&](int32_t stage) { return numbers[stage] >= 0; });
  }
  /// Gives an instruction its new stage and peer; false when it is gone.
  bool update(Instruction &inst) const {
    if (inst.op == Op::ReduceTied && !stays(*problem.tiedAt(inst.stage)))
      return false;
    if (movesState(inst))
      return true;
    if (!isTransfer(inst.op) || inst.payload == Payload::Stash) {
      if (inst.stage >= 0)
        inst.stage = numbers[inst.stage];
      return inst.stage >= 0 || !hasStage(inst.op);
    }
    // The two stages between which the tensor flows, and those that stay.
    const bool activation = inst.payload == Payload::Activation;
    const int32_t upper = activation ? inst.stage : inst.stage - 1;
    if (upper < 0 || upper + 1 >= numStages)
      return false;
    const int32_t from = before[upper], to = behind[upper + 1];
    if (from < 0 || to < 0)
      return false;
    const int32_t chain = problem.chainOf(inst.microbatch);
    const int32_t upperRank = rankOf(chain, from),
                  lowerRank = rankOf(chain, to);
    const bool atUpper = activation == (inst.op == Op::Send);
    const std::vector<int32_t> &crossed = crossings[chain];
    if (from != upper || to != upper + 1) {
      if (upperRank == lowerRank ||
          (atUpper ? crossed[upper] != crossed[from]
                   : crossed[to] != crossed[upper + 1]))
        return false;
      inst.peer = atUpper ? lowerRank : upperRank;
      inst.bytes =
          bytesOf(problem, {TensorKind::Activation, from, inst.microbatch});
    }
    inst.stage = numbers[activation ? from : to];
    return true;
  }
  static bool hasStage(Op op) {
    return op != Op::Barrier && op != Op::Step && !usesState(op);
  }

  Program &program;
  Problem &problem;
  const std::vector<int32_t> &numbers;
  const int32_t numStages;
  std::vector<int32_t> before, behind; ///< the nearest stage that stays
  /// Of each chain, up to each stage, how often the rank changes.
  std::vector<std::vector<int32_t>> crossings;
};

void dropStages(Program &program, size_t first, size_t count) {
  StageDrop(program, renumber(program.problem.stages.size(), first, count))
      .run();
}

/// Drops ranks that have no stages any more, and their transfers.
void dropBareRanks(Program &program, const std::vector<int32_t> &numbers) {
  Problem &problem = program.problem;
  for (std::vector<int32_t> &set : program.rankSets) {
    std::erase_if(set, [&](int32_t rank) { return numbers[rank] < 0; });
    for (int32_t &rank : set)
      rank = numbers[rank];
  }
  Flags gone = noFlags(program);
  forEachInstruction(program, [&](Site site, const Instruction &inst) {
    gone[site.rank][site.instruction] =
        ((isTransfer(inst.op) || movesToRank(inst)) &&
         numbers[inst.peer] < 0) ||
        (isCollective(inst.op) && inst.peer >= 0 &&
         program.rankSets[inst.peer].empty());
  });
  remove(program, gone);
  eraseGone(program.ranks, numbers);
  for (RankProgram &rank : program.ranks)
    for (Instruction &inst : rank.instructions)
      if (isTransfer(inst.op) || movesToRank(inst))
        inst.peer = numbers[inst.peer];
  for (int32_t &rank : problem.placement)
    rank = std::max(numbers[rank], 0);
  problem.numRanks = static_cast<int32_t>(program.ranks.size());
}

void dropRanks(Program &program, size_t first, size_t count, bool withStages) {
  const Problem &problem = program.problem;
  const std::vector<int32_t> numbers =
      renumber(program.ranks.size(), first, count);
  if (withStages) {
    const size_t numStages = problem.stages.size();
    std::vector<int32_t> stages(numStages);
    for (size_t i = 0; i < problem.placement.size(); ++i)
      if (numbers[problem.placement[i]] < 0)
        stages[i % numStages] = -1;
    int32_t next = 0;
    for (int32_t &stage : stages)
      stage = stage < 0 ? -1 : next++;
    if (next > 0)
      StageDrop(program, stages).run();
  }
  dropBareRanks(program, numbers);
}

//===----------------------------------------------------------------------===//
// Instructions
//===----------------------------------------------------------------------===//

/// Calls `fn(index, sites)` for the parts of a kind that consist of
/// instructions.
template <typename Fn>
size_t forEachPart(const Program &program, Part part, Fn &&fn) {
  size_t index = 0;
  std::vector<Site> sites;
  if (part == Part::Actions) {
    forEachInstruction(program, [&](Site site, const Instruction &inst) {
      if (!usesComm(inst.op))
        fn(index++, std::span<const Site>(&site, 1));
    });
  } else if (part == Part::Collectives) {
    const Channels channels(program);
    for (const Meeting &meeting : channels.meetings) {
      sites.clear();
      for (uint32_t k = 0; k < meeting.count; ++k)
        sites.push_back(channels.site(channels.member(meeting, k)));
      fn(index++, std::span<const Site>(sites));
    }
  } else {
    const Matching matching = matchTransfers(program);
    auto add = [&](Site site) {
      const Instruction &inst =
          program.ranks[site.rank].instructions[site.instruction];
      const uint32_t partner = matching.partner[site.rank][site.instruction];
      sites.push_back(site);
      if (partner != kNoInstruction)
        sites.push_back({inst.peer, partner});
    };
    forEachInstruction(program, [&](Site site, const Instruction &inst) {
      const auto &list = program.ranks[site.rank].instructions;
      if (!isTransfer(inst.op))
        return;
      sites.clear();
      if (part == Part::Transfers) {
        if (inst.op == Op::Send ||
            matching.partner[site.rank][site.instruction] == kNoInstruction)
          add(site);
      } else if (!inst.joined) {
        const uint32_t end = itemEnd(list, site.instruction);
        if (end - site.instruction > 1)
          for (uint32_t i = site.instruction; i < end; ++i)
            add({site.rank, i});
      }
      if (!sites.empty())
        fn(index++, std::span<const Site>(sites));
    });
  }
  return index;
}

void dropInstructions(Program &program, Part part, size_t first, size_t count) {
  Flags gone = noFlags(program);
  forEachPart(program, part, [&](size_t index, std::span<const Site> sites) {
    if (index >= first && index < first + count)
      for (Site site : sites)
        gone[site.rank][site.instruction] = 1;
  });
  remove(program, gone);
}

void splitItems(Program &program, size_t first, size_t count) {
  size_t index = 0;
  for (RankProgram &rank : program.ranks) {
    RankRewrite change;
    for (uint32_t i = 0; i < rank.instructions.size(); ++i) {
      bool joined = rank.instructions[i].joined;
      if (joined) {
        joined = index < first || index >= first + count;
        ++index;
      }
      change.list.push_back({i, joined});
    }
    rewrite(rank, change);
  }
}

void dropWaits(Program &program, size_t first, size_t count) {
  size_t index = 0;
  for (RankProgram &rank : program.ranks) {
    std::vector<uint32_t> waits;
    for (Instruction &inst : rank.instructions) {
      const auto before = static_cast<uint32_t>(waits.size());
      for (uint32_t w = 0; w < inst.numWaits; ++w, ++index)
        if (index < first || index >= first + count)
          waits.push_back(rank.waits[inst.firstWait + w]);
      inst.numWaits = static_cast<uint16_t>(waits.size() - before);
      inst.firstWait = inst.numWaits ? before : 0;
    }
    rank.waits = std::move(waits);
  }
}

void dropSlots(Program &program) {
  for (RankProgram &rank : program.ranks) {
    rank.slotBytes.clear();
    rank.hostSlotBytes.clear();
    for (Instruction &inst : rank.instructions)
      inst.slots.fill(kNoSlot);
  }
}

} // namespace

size_t penstock::countParts(const Program &program, Part part) {
  const Problem &problem = program.problem;
  auto allButOne = [](size_t count) { return count > 1 ? count : 0; };
  size_t count = 0;
  switch (part) {
  case Part::Microbatches:
    return allButOne(problem.numWholeMicrobatches());
  case Part::Ranks:
  case Part::EmptiedRanks:
    return allButOne(program.ranks.size());
  case Part::Stages:
    return allButOne(problem.stages.size());
  case Part::Slots:
    return program.isPlanned();
  case Part::Joins:
    forEachInstruction(
        program, [&](Site, const Instruction &inst) { count += inst.joined; });
    return count;
  case Part::Waits:
    for (const RankProgram &rank : program.ranks)
      count += rank.waits.size();
    return count;
  default:
    return forEachPart(program, part, [](size_t, std::span<const Site>) {});
  }
}

Program penstock::dropParts(const Program &program, Part part, size_t first,
                            size_t count) {
  Program result = program;
  dropCertificate(result);
  switch (part) {
  case Part::Microbatches:
    dropMicrobatches(result, first, count);
    break;
  case Part::Ranks:
    dropRanks(result, first, count, /*withStages=*/true);
    break;
  case Part::EmptiedRanks:
    dropRanks(result, first, count, /*withStages=*/false);
    break;
  case Part::Stages:
    dropStages(result, first, count);
    break;
  case Part::Slots:
    dropSlots(result);
    break;
  case Part::Joins:
    splitItems(result, first, count);
    break;
  case Part::Waits:
    dropWaits(result, first, count);
    break;
  default:
    dropInstructions(result, part, first, count);
    break;
  }
  numberRankSets(result);
  return result;
}

bool penstock::sameVerdict(const Verdict &a, const Verdict &b,
                           std::optional<Rule> rule) {
  auto refusedBy = [](const Verdict &verdict, Rule rule) {
    return std::any_of(
        verdict.findings.begin(), verdict.findings.end(),
        [&](const Finding &finding) { return finding.rule == rule; });
  };
  if (a.accepted() || b.accepted())
    return a.accepted() == b.accepted();
  if (!rule && a.findings[0].rule != b.findings[0].rule)
    return false;
  const Rule kept = rule.value_or(a.findings[0].rule);
  if (!refusedBy(a, kept) || !refusedBy(b, kept))
    return false;
  return kept != Rule::Deadlock ||
         (a.documentedOk == b.documentedOk &&
          a.minCapacity.has_value() == b.minCapacity.has_value());
}

Result<Reduction> penstock::reduce(const Program &program,
                                   const ReduceOptions &options) {
  VerifyOptions verifyOptions;
  verifyOptions.order = options.order;
  verifyOptions.maxFindings = 1;
  Reduction result = {program, verify(program, verifyOptions), 1};
  if (result.verdict.accepted())
    return Failure{"the program is accepted: there is no fault to reduce"};
  if (!sameVerdict(result.verdict, result.verdict, options.rule))
    return Failure{"the rule " + std::string(name(*options.rule)) +
                   " does not refuse the program; the first that does is " +
                   std::string(name(result.verdict.findings[0].rule))};

  auto accept = [&](Program candidate) {
    if (!wellFormed(candidate))
      return false;
    ++result.trials;
    Verdict verdict = verify(candidate, verifyOptions);
    if (!sameVerdict(result.verdict, verdict, options.rule))
      return false;
    result.program = std::move(candidate);
    result.verdict = std::move(verdict);
    if (options.progress)
      options.progress(result.program);
    return true;
  };
  /// Halves, quarters and so on down to single parts; true when some went.
  auto shrink = [&](Part part) {
    bool any = false;
    for (size_t chunk = countParts(result.program, part) / 2;; chunk /= 2) {
      chunk = std::max<size_t>(chunk, 1);
      for (size_t first = 0, total;
           total = countParts(result.program, part), first < total;) {
        const size_t count = std::min(chunk, total - first);
        const bool isAll = count == total && part <= Part::EmptiedRanks;
        if (!isAll && accept(dropParts(result.program, part, first, count)))
          any = true;
        else
          first += chunk;
      }
      if (chunk == 1)
        return any;
    }
  };
  for (bool any = true; any;) {
    any = false;
    for (unsigned part = 0; part < kNumParts; ++part)
      any |= shrink(static_cast<Part>(part));
  }
  return result;
}
