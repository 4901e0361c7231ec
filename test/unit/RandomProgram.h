//===- RandomProgram.h - Random well-formed programs ------------*- C++ -*-===//
//
// For property tests: programs that use every feature (groups, overlaps,
// queues, communicators, collectives, slots, waits, chains) and are
// well-formed, but hardly ever right. The same seed gives the same program on
// every machine.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_TEST_UNIT_RANDOMPROGRAM_H
#define PENSTOCK_TEST_UNIT_RANDOMPROGRAM_H

#include "penstock/Program/Text.h"

#include <algorithm>
#include <random>

namespace penstock::test {

class RandomProgram {
public:
  explicit RandomProgram(uint64_t seed, int32_t maxRanks = 6,
                         int32_t maxItems = 12)
      : rng(seed), maxRanks(maxRanks), maxItems(maxItems) {}

  Program make() {
    program = Program();
    makeProblem();
    program.ranks.resize(program.problem.numRanks);
    planned = chance(2);
    for (int32_t rank = 0; rank < program.problem.numRanks; ++rank)
      makeRank(rank);
    return program;
  }

  /// 0 .. n-1
  int64_t below(int64_t n) { return static_cast<int64_t>(rng() % n); }
  /// True once in n.
  bool chance(int64_t n) { return below(n) == 0; }

private:
  void makeProblem() {
    Problem &problem = program.problem;
    static const char *names[] = {
        "train", "a.b-c$1", "", "two words \"\\\n", "_", "1st", "\xc3\xa9"};
    problem.name = names[below(std::size(names))];
    problem.numRanks = 1 + below(maxRanks);
    problem.numMicrobatches = 1 + below(5);
    problem.stages.resize(1 + below(2 * problem.numRanks));
    for (int32_t s = 0; s < problem.numStages(); ++s) {
      Stage &stage = problem.stages[s];
      stage.firstLayer = s;
      if (chance(3)) {
        stage.firstLayer = below(100);
        stage.numLayers = 1 + below(9);
      }
      if (chance(2))
        stage.cost = {number(), number(), number(), number(), number()};
      if (chance(2))
        stage.bytes = {bytes(), bytes(), bytes(), bytes(), bytes()};
    }
    const int32_t numChains = chance(3) ? 2 : 1;
    for (int32_t i = 0; i < numChains * problem.numStages(); ++i)
      problem.placement.push_back(below(problem.numRanks));
    if (numChains > 1)
      for (int32_t mb = 0; mb < problem.numMicrobatches; ++mb)
        problem.chains.push_back(below(numChains));
    if (chance(3))
      for (int32_t mb = 0; mb < problem.numMicrobatches; ++mb)
        problem.weights.push_back(1 + number());
    if (chance(3))
      problem.overlap = static_cast<double>(below(5)) / 4;
    for (int32_t s = 0; chance(2); ++s) { // neighbours, and one further on
      TiedStages set;
      set.bytes = chance(2) ? 0 : bytes();
      for (int64_t n = 2 + below(2); n > 0; --n)
        set.stages.push_back(s += 1 + static_cast<int32_t>(below(2)));
      if (s >= problem.numStages())
        break;
      problem.tied.push_back(set);
    }
    if (chance(2))
      problem.link = {number(), number()};
    if (chance(3))
      problem.hostLink = {number(), number()};
    if (chance(2))
      problem.memory = bytes();
    problem.postValidation = chance(3);
  }

  void makeRank(int32_t rank) {
    RankProgram &r = program.ranks[rank];
    if (planned)
      for (int64_t n = below(6); n > 0; --n)
        r.slotBytes.push_back(chance(2) ? 256 : bytes());
    if (planned)
      for (int64_t n = below(3); n > 0; --n)
        r.hostSlotBytes.push_back(chance(2) ? 256 : bytes());
    for (int64_t n = below(maxItems + 1); n > 0; --n) {
      // A group needs a peer.
      const bool alone = program.problem.numRanks == 1;
      switch (below(alone ? 4 : 7)) {
      case 0:
      case 1:
        makeItem(rank, chance(4) ? 2 : 1, &RandomProgram::action);
        break;
      case 2:
        makeItem(rank, 1, &RandomProgram::collective);
        break;
      case 3:
        makeItem(rank, 1, &RandomProgram::other);
        break;
      default:
        makeItem(rank, chance(3) ? 1 + below(4) : 1, &RandomProgram::transfer);
        break;
      }
    }
  }

  void makeItem(int32_t rank, int64_t size,
                Instruction (RandomProgram::*member)(int32_t)) {
    RankProgram &r = program.ranks[rank];
    const uint8_t queue = chance(2) ? 0 : below(4);
    const size_t head = r.instructions.size();
    for (int64_t k = 0; k < size; ++k) {
      Instruction inst = (this->*member)(rank);
      inst.queue = queue;
      inst.joined = k > 0;
      if (k == 0 && chance(3))
        makeWaits(r, inst, head);
      r.instructions.push_back(inst);
    }
  }

  /// Waits for earlier instructions, each the latest one with its text.
  void makeWaits(RankProgram &r, Instruction &inst, size_t end) {
    for (int64_t n = end == 0 ? 0 : below(3); n > 0; --n) {
      uint32_t target = below(end);
      const std::string head = describe(r.instructions[target]);
      for (uint32_t i = target + 1; i < end; ++i)
        if (describe(r.instructions[i]) == head)
          target = i;
      if (inst.numWaits == 0)
        inst.firstWait = r.waits.size();
      r.waits.push_back(target);
      ++inst.numWaits;
    }
  }

  Instruction named(Op op) {
    Instruction inst;
    inst.op = op;
    inst.stage = below(program.problem.numStages());
    inst.microbatch = below(program.problem.numMicrobatches);
    return inst;
  }

  Instruction action(int32_t rank) {
    Instruction inst = named(static_cast<Op>(below(5)));
    for (int32_t &slot : inst.slots)
      slot = chance(2) ? kNoSlot : anySlot(rank);
    return inst;
  }

  Instruction transfer(int32_t rank) {
    Instruction inst = named(chance(2) ? Op::Send : Op::Recv);
    inst.payload = static_cast<Payload>(1 + below(kNumPayloads - 2));
    inst.peer = below(program.problem.numRanks - 1);
    inst.peer += inst.peer >= rank;
    inst.comm = chance(2) ? 0 : below(4);
    inst.bytes = chance(2) ? 0 : bytes();
    inst.slots[Slot] = chance(2) ? kNoSlot : anySlot(rank);
    if (program.problem.postValidation && chance(3)) {
      inst.payload = Payload::State;
      inst.stage = inst.microbatch = inst.slots[Slot] = -1;
    }
    return inst;
  }

  Instruction collective(int32_t rank) {
    Instruction inst = named(chance(2) ? Op::AllReduce : Op::Barrier);
    const auto &tied = program.problem.tied;
    if (inst.op == Op::AllReduce && !tied.empty() && chance(2)) {
      inst.op = Op::ReduceTied;
      inst.stage = tied[below(tied.size())].stages.front();
      inst.microbatch = -1;
    } else if (inst.op == Op::Barrier)
      inst.stage = inst.microbatch = -1;
    else if (chance(2))
      inst.microbatch = -1;
    inst.comm = chance(2) ? 0 : below(4);
    inst.bytes = chance(2) ? 0 : bytes();
    if (chance(3))
      return inst;
    std::vector<int32_t> set;
    for (int32_t r = 0; r < program.problem.numRanks; ++r)
      if (r == rank || chance(2))
        set.push_back(r);
    auto &sets = program.rankSets;
    inst.peer = std::find(sets.begin(), sets.end(), set) - sets.begin();
    if (inst.peer == static_cast<int32_t>(sets.size()))
      sets.push_back(set);
    return inst;
  }

  Instruction other(int32_t rank) {
    if (program.problem.postValidation && chance(3)) {
      Instruction state;
      state.op = chance(2) ? Op::ReduceState : Op::Validate;
      return state;
    }
    Instruction inst =
        named(static_cast<Op>(static_cast<int>(Op::ReduceGrad) +
                              below(int(Op::Step) + 1 - int(Op::ReduceGrad))));
    const bool perMicrobatch = inst.op == Op::Offload || inst.op == Op::Reload;
    if (perMicrobatch && program.problem.numRanks > 1 && chance(2)) {
      inst.peer = below(program.problem.numRanks - 1);
      inst.peer += inst.peer >= rank;
    } else if (perMicrobatch && chance(2)) {
      const int64_t n = program.ranks[rank].hostSlotBytes.size();
      inst.slots[Slot] = anySlot(rank);
      inst.slots[Host] = n ? below(n) : kNoSlot;
    }
    if (!perMicrobatch && chance(2))
      inst.microbatch = -1;
    if (inst.op == Op::Step && inst.microbatch < 0 && chance(2))
      inst.stage = -1;
    return inst;
  }

  int32_t anySlot(int32_t rank) {
    const int64_t n = program.ranks[rank].slotBytes.size();
    return n ? below(n) : kNoSlot;
  }
  double number() {
    return chance(3) ? below(10) : static_cast<double>(below(1 << 30)) / 977;
  }
  int64_t bytes() { return chance(4) ? below(int64_t(1) << 40) : below(1000); }

  std::mt19937_64 rng;
  int32_t maxRanks, maxItems;
  Program program;
  bool planned = false;
};

} // namespace penstock::test

#endif // PENSTOCK_TEST_UNIT_RANDOMPROGRAM_H
