//===- RandomProgram.cpp - Small random programs --------------------------===//

#include "RandomProgram.h"

#include "Build.h"

#include <algorithm>

using namespace penstock;

namespace {

class Generator {
public:
  explicit Generator(std::mt19937 &random)
      : random(random), p(2 + below(5)), queues(1 + below(3)),
        comms(1 + below(3)) {}

  Program make() {
    program = test::makeProgram(p, 32);
    makeRankSets();
    const int32_t numEvents = 2 + below(12 + p);
    for (int32_t e = 0; e < numEvents; ++e)
      addEvent(e);
    if (below(2))
      damage();
    if (below(3) == 0)
      interleave();
    const bool queuePerComm = below(2), addWaits = below(3) == 0;
    const int32_t groups = below(4);
    for (RankProgram &rank : program.ranks) {
      if (queuePerComm)
        for (Instruction &inst : rank.instructions)
          inst.queue = static_cast<uint8_t>(inst.comm % queues);
      group(rank.instructions, groups);
      if (addWaits)
        addWaitsTo(rank);
    }
    numberRankSets(program);
    return std::move(program);
  }

private:
  int32_t below(int32_t n) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(n));
  }
  uint8_t anyQueue() { return static_cast<uint8_t>(below(queues)); }
  uint16_t anyComm() { return static_cast<uint16_t>(below(comms)); }

  /// Any sets; one may be that of all ranks, or equal to another one.
  void makeRankSets() {
    for (int32_t set = 0; set < 3; ++set) {
      program.rankSets.emplace_back();
      for (int32_t r = 0; r < p; ++r)
        if (below(2))
          program.rankSets.back().push_back(r);
      if (program.rankSets.back().empty())
        program.rankSets.back().push_back(below(p));
    }
  }

  /// One event of a global order goes to all ranks that take part in it.
  void addEvent(int32_t e) {
    Instruction inst;
    inst.stage = 0;
    inst.microbatch = e;
    inst.queue = anyQueue();
    inst.bytes = 1 + below(9);
    const int32_t kind = below(12);
    if (kind == 0) {
      inst.op = Op::Forward;
      inst.bytes = 0;
      program.ranks[below(p)].instructions.push_back(inst);
      return;
    }
    inst.comm = anyComm();
    if (kind == 1) {
      inst.op = below(2) ? Op::Barrier : Op::AllReduce;
      inst.stage = inst.op == Op::Barrier ? -1 : below(2);
      inst.microbatch = -1;
      inst.peer = below(4) - 1;
      for (int32_t r = 0; r < p; ++r)
        if (inst.peer < 0 ||
            std::binary_search(program.rankSets[inst.peer].begin(),
                               program.rankSets[inst.peer].end(), r)) {
          inst.queue = anyQueue();
          program.ranks[r].instructions.push_back(inst);
        }
      return;
    }
    const int32_t from = below(p), to = (from + 1 + below(p - 1)) % p;
    inst.payload = Payload::Activation;
    inst.op = Op::Send;
    inst.peer = to;
    program.ranks[from].instructions.push_back(inst);
    inst.op = Op::Recv;
    inst.peer = from;
    inst.queue = anyQueue();
    program.ranks[to].instructions.push_back(inst);
  }

  /// Reorders between communicators: right only if these are independent.
  void interleave() {
    for (RankProgram &rank : program.ranks)
      for (int32_t n = below(6); n > 0; --n)
        for (size_t i = 1; i < rank.instructions.size(); ++i)
          if (rank.instructions[i].comm != rank.instructions[i - 1].comm &&
              below(2))
            std::swap(rank.instructions[i], rank.instructions[i - 1]);
  }

  /// Changes a few instructions in one of the ways in which programs go wrong.
  void damage() {
    const int32_t kind = below(9);
    for (int32_t n = 1 + below(4); n > 0; --n) {
      const int32_t r = below(p);
      auto &insts = program.ranks[r].instructions;
      if (insts.empty())
        continue;
      const int32_t i = below(static_cast<int32_t>(insts.size()));
      Instruction &inst = insts[i];
      switch (kind) {
      case 0:
        std::swap(inst, insts[below(static_cast<int32_t>(insts.size()))]);
        break;
      case 1:
        insts.erase(insts.begin() + i);
        break;
      case 2:
        insts.insert(insts.begin() + i, Instruction(inst));
        break;
      case 3:
        if (usesComm(inst.op))
          inst.comm = anyComm();
        break;
      case 4:
        if (isTransfer(inst.op))
          inst.peer = (r + 1 + below(p - 1)) % p;
        else if (isCollective(inst.op))
          inst.peer = below(4) - 1;
        break;
      case 5:
        if (isTransfer(inst.op))
          inst.op = inst.op == Op::Send ? Op::Recv : Op::Send;
        break;
      case 6:
        if (i > 0)
          std::swap(inst, insts[i - 1]);
        break;
      default: // issue something late
        std::rotate(insts.begin() + i, insts.begin() + i + 1, insts.end());
        break;
      }
    }
  }

  void group(std::vector<Instruction> &insts, int32_t often) {
    for (size_t i = 1; i < insts.size(); ++i)
      if (isTransfer(insts[i].op) && isTransfer(insts[i - 1].op) &&
          below(4) < often) {
        insts[i].joined = true;
        insts[i].queue = insts[i - 1].queue;
      }
  }

  void addWaitsTo(RankProgram &rank) {
    auto &insts = rank.instructions;
    for (size_t i = 1; i < insts.size(); ++i)
      if (!insts[i].joined && below(3) == 0) {
        insts[i].firstWait = static_cast<uint32_t>(rank.waits.size());
        insts[i].numWaits = 1;
        rank.waits.push_back(
            static_cast<uint32_t>(below(static_cast<int32_t>(i))));
      }
  }

  std::mt19937 &random;
  const int32_t p, queues, comms;
  Program program;
};

} // namespace

Program penstock::test::randomProgram(std::mt19937 &random) {
  return Generator(random).make();
}
