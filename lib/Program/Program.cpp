//===- Program.cpp - Instructions of all ranks, in flat arrays ------------===//

#include "penstock/Program/Program.h"

#include <algorithm>
#include <map>

namespace penstock {

bool Program::isPlanned() const {
  return std::any_of(ranks.begin(), ranks.end(), [](const RankProgram &rank) {
    return !rank.slotBytes.empty() || !rank.hostSlotBytes.empty();
  });
}

std::vector<int32_t> Problem::ranksOf(int32_t stage) const {
  return ranksOf(TiedStages{{stage}});
}

std::vector<int32_t> Problem::ranksOf(const TiedStages &of) const {
  std::vector<int32_t> ranks;
  for (int32_t stage : of.stages)
    for (size_t at = stage; at < placement.size(); at += stages.size())
      ranks.push_back(placement[at]);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

const TiedStages *Problem::tiedAt(int32_t firstStage) const {
  auto at = std::lower_bound(tied.begin(), tied.end(), firstStage,
                             [](const TiedStages &set, int32_t stage) {
                               return set.stages.front() < stage;
                             });
  return at != tied.end() && at->stages.front() == firstStage ? &*at : nullptr;
}

bool Program::isOrder() const {
  if (isPlanned())
    return false;
  for (const RankProgram &rank : ranks)
    for (const Instruction &inst : rank.instructions)
      if (usesComm(inst.op) || usesState(inst.op))
        return false;
  return true;
}

void numberRankSets(Program &program) {
  if (program.rankSets.empty())
    return;
  std::map<std::vector<int32_t>, int32_t> numbers;
  std::vector<int32_t> renumbered(program.rankSets.size(), -1);
  std::vector<std::vector<int32_t>> used;
  for (RankProgram &rank : program.ranks)
    for (Instruction &inst : rank.instructions) {
      if (!isCollective(inst.op) || inst.peer < 0)
        continue;
      int32_t &number = renumbered[inst.peer];
      if (number < 0) {
        const auto &set = program.rankSets[inst.peer];
        auto [it, isNew] = numbers.try_emplace(set, used.size());
        if (isNew)
          used.push_back(set);
        number = it->second;
      }
      inst.peer = number;
    }
  program.rankSets = std::move(used);
}

std::vector<GradientSum> gradientSums(const Problem &problem) {
  std::vector<GradientSum> sums;
  auto add = [&](Op op, int32_t stage, std::vector<int32_t> ranks,
                 int64_t bytes) {
    if (ranks.size() > 1)
      sums.push_back({op, stage, std::move(ranks), bytes});
  };
  for (int32_t s = 0; s < problem.numStages() && problem.numChains() > 1; ++s)
    add(Op::AllReduce, s, problem.ranksOf(s),
        problem.stages[s].bytes.gradients);
  for (const TiedStages &set : problem.tied)
    add(Op::ReduceTied, set.stages.front(), problem.ranksOf(set), set.bytes);
  return sums;
}

std::vector<int64_t> slotOffsets(const std::vector<int64_t> &slotBytes) {
  std::vector<int64_t> offsets;
  offsets.reserve(slotBytes.size() + 1);
  int64_t offset = 0;
  for (int64_t bytes : slotBytes) {
    offsets.push_back(offset);
    offset += (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  }
  offsets.push_back(offset);
  return offsets;
}

} // namespace penstock
