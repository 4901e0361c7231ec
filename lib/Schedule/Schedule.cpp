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

void splitBackward(Program &order) {
  for (RankProgram &rank : order.ranks) {
    std::vector<Instruction> list, weights;
    list.reserve(rank.instructions.size() * 3 / 2);
    auto endItem = [&] {
      list.insert(list.end(), weights.begin(), weights.end());
      weights.clear();
    };
    for (Instruction inst : rank.instructions) {
      if (!inst.joined)
        endItem();
      if (inst.op == Op::Backward) {
        Instruction weight = inst;
        weight.op = Op::BackwardWeight;
        weight.joined = false;
        weights.push_back(weight);
        inst.op = Op::BackwardInput;
      }
      list.push_back(inst);
    }
    endItem();
    rank.instructions = std::move(list);
  }
}

void appendSteps(Program &order) {
  for (RankProgram &rank : order.ranks) {
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
