//===- Schedule.cpp - Placement, and changes to any order -----------------===//

#include "penstock/Schedule/Schedule.h"

#include <algorithm>

namespace penstock {

std::vector<int32_t> placeLoop(int32_t numStages, int32_t numRanks) {
  std::vector<int32_t> placement(numStages);
  for (int32_t s = 0; s < numStages; ++s)
    placement[s] = s % numRanks;
  return placement;
}

std::vector<int32_t> placeSnake(int32_t numStages, int32_t numRanks) {
  std::vector<int32_t> placement(numStages);
  for (int32_t s = 0; s < numStages; ++s) {
    const int32_t at = s % numRanks;
    placement[s] = s / numRanks % 2 == 0 ? at : numRanks - 1 - at;
  }
  return placement;
}

void placeBothWays(Problem &problem) {
  const int32_t numStages = problem.numStages(), m = problem.numMicrobatches;
  problem.placement = placeLoop(numStages, problem.numRanks);
  for (int32_t s = 0; s < numStages; ++s)
    problem.placement.push_back(problem.placement[numStages - 1 - s]);
  if (problem.chains.empty())
    for (int32_t mb = 0; mb < m; ++mb)
      problem.chains.push_back(mb >= m - m / 2);
}

void splitBackward(Program &order) {
  for (RankProgram &rank : order.ranks) {
    rank.times.clear();
    std::vector<Instruction> list;
    list.reserve(rank.instructions.size() * 3 / 2 + 1); // and a step
    // Where each instruction went; a backward ends with its weight part.
    std::vector<uint32_t> moved(rank.instructions.size());
    std::vector<uint32_t> split; // of the item, as old indices
    auto endItem = [&] {
      for (uint32_t old : split) {
        Instruction weight = rank.instructions[old];
        weight.op = Op::BackwardWeight;
        weight.joined = false;
        weight.numWaits = 0; // it stands behind its input part
        weight.firstWait = 0;
        moved[old] = static_cast<uint32_t>(list.size());
        list.push_back(weight);
      }
      split.clear();
    };
    for (uint32_t i = 0; i < rank.instructions.size(); ++i) {
      Instruction inst = rank.instructions[i];
      if (!inst.joined)
        endItem();
      if (inst.op == Op::Backward) {
        inst.op = Op::BackwardInput;
        split.push_back(i);
      }
      moved[i] = static_cast<uint32_t>(list.size());
      list.push_back(inst);
    }
    endItem();
    rank.instructions = std::move(list);
    for (uint32_t &wait : rank.waits)
      wait = moved[wait];
  }
}

bool keepsSliceOrder(const Program &order) {
  const int32_t n = order.problem.slices;
  const auto numUnits = static_cast<size_t>(order.problem.numMicrobatches);
  if (n == 1)
    return true;
  std::vector<bool> seen[2]; // forwards and backwards of each stage and slice
  for (std::vector<bool> &ran : seen)
    ran.resize(order.problem.stages.size() * numUnits);
  for (const RankProgram &rank : order.ranks)
    for (const Instruction &inst : rank.instructions) {
      const bool backward =
          inst.op == Op::Backward || inst.op == Op::BackwardInput;
      if (!backward && inst.op != Op::Forward)
        continue;
      const size_t at = inst.stage * numUnits + inst.microbatch;
      const int32_t slice = inst.microbatch % n;
      if (backward ? slice < n - 1 && !seen[1][at + 1]
                   : slice > 0 && !seen[0][at - 1])
        return false;
      seen[backward][at] = true;
    }
  return true;
}

void appendSteps(Program &order) {
  for (RankProgram &rank : order.ranks) {
    rank.times.clear();
    auto &list = rank.instructions;
    if (std::any_of(list.begin(), list.end(), [](const Instruction &inst) {
          return inst.op == Op::Step;
        }))
      continue;
    Instruction step;
    step.op = Op::Step;
    list.push_back(step);
  }
}

} // namespace penstock
