//===- Build.h - Small programs, written by hand ----------------*- C++ -*-===//
//
// Builds programs for the tests of the analyses, one instruction a call, and a
// correct 1F1B program that does not come from the compiler.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_TEST_UNIT_ANALYSIS_BUILD_H
#define PENSTOCK_TEST_UNIT_ANALYSIS_BUILD_H

#include "penstock/Program/Program.h"

#include <initializer_list>

namespace penstock::test {

/// A program with one stage per rank unless told otherwise.
inline Program makeProgram(int32_t numRanks, int32_t numMicrobatches,
                           int32_t numStages = 0) {
  if (numStages == 0)
    numStages = numRanks;
  Program program;
  program.problem.name = "test";
  program.problem.numRanks = numRanks;
  program.problem.numMicrobatches = numMicrobatches;
  program.problem.stages.resize(numStages);
  for (int32_t s = 0; s < numStages; ++s) {
    program.problem.stages[s].firstLayer = s;
    program.problem.placement.push_back(s % numRanks);
  }
  program.ranks.resize(numRanks);
  return program;
}

/// Appends instructions to one rank. `queue` and `comm` hold for what follows.
class RankBuilder {
public:
  RankBuilder(Program &program, int32_t rank)
      : program(program), rank(program.ranks[rank]) {}

  RankBuilder &onQueue(uint8_t q) {
    queue = q;
    return *this;
  }
  RankBuilder &onComm(uint16_t c) {
    comm = c;
    return *this;
  }
  /// The next instruction waits for these.
  RankBuilder &after(std::initializer_list<uint32_t> waits) {
    nextWaits = waits;
    return *this;
  }
  /// The next instruction is joined to the one before.
  RankBuilder &with() {
    nextJoined = true;
    return *this;
  }

  RankBuilder &action(Op op, int32_t stage, int32_t mb) {
    Instruction inst;
    inst.op = op;
    inst.stage = stage;
    inst.microbatch = mb;
    return add(inst);
  }
  RankBuilder &f(int32_t s, int32_t mb) { return action(Op::Forward, s, mb); }
  RankBuilder &b(int32_t s, int32_t mb) { return action(Op::Backward, s, mb); }
  RankBuilder &i(int32_t s, int32_t mb) {
    return action(Op::BackwardInput, s, mb);
  }
  RankBuilder &w(int32_t s, int32_t mb) {
    return action(Op::BackwardWeight, s, mb);
  }
  RankBuilder &r(int32_t s, int32_t mb) { return action(Op::Recompute, s, mb); }
  RankBuilder &step() { return action(Op::Step, -1, -1); }

  RankBuilder &transfer(Op op, Payload payload, int32_t stage, int32_t mb,
                        int32_t peer) {
    Instruction inst;
    inst.op = op;
    inst.payload = payload;
    inst.stage = stage;
    inst.microbatch = mb;
    inst.peer = peer;
    inst.bytes = bytesOf(program.problem, {kindOf(payload), stage, mb});
    return add(inst);
  }
  RankBuilder &sendAct(int32_t s, int32_t mb, int32_t to) {
    return transfer(Op::Send, Payload::Activation, s, mb, to);
  }
  RankBuilder &recvAct(int32_t s, int32_t mb, int32_t from) {
    return transfer(Op::Recv, Payload::Activation, s, mb, from);
  }
  RankBuilder &sendGrad(int32_t s, int32_t mb, int32_t to) {
    return transfer(Op::Send, Payload::Gradient, s, mb, to);
  }
  RankBuilder &recvGrad(int32_t s, int32_t mb, int32_t from) {
    return transfer(Op::Recv, Payload::Gradient, s, mb, from);
  }
  /// A collective; `set` is an index into the rank sets, -1 for all ranks.
  RankBuilder &collective(Op op, int32_t stage = -1, int32_t set = -1,
                          int32_t mb = -1) {
    Instruction inst;
    inst.op = op;
    inst.stage = stage;
    inst.microbatch = mb;
    inst.peer = set;
    return add(inst);
  }

  /// Sets a slot of the instruction added last.
  RankBuilder &slot(unsigned role, int32_t slot) {
    rank.instructions.back().slots[role] = slot;
    return *this;
  }
  /// Index of the instruction added last.
  uint32_t last() const {
    return static_cast<uint32_t>(rank.instructions.size() - 1);
  }

  RankBuilder &add(Instruction inst) {
    inst.queue = queue;
    if (usesComm(inst.op))
      inst.comm = comm;
    inst.joined = nextJoined;
    if (!nextWaits.empty()) {
      inst.firstWait = static_cast<uint32_t>(rank.waits.size());
      inst.numWaits = static_cast<uint16_t>(nextWaits.size());
      rank.waits.insert(rank.waits.end(), nextWaits.begin(), nextWaits.end());
    }
    nextJoined = false;
    nextWaits.clear();
    rank.instructions.push_back(inst);
    return *this;
  }

private:
  Program &program;
  RankProgram &rank;
  uint8_t queue = 0;
  uint16_t comm = 0;
  bool nextJoined = false;
  std::vector<uint32_t> nextWaits;
};

/// Two micro-batches of stage 0 on rank 0; the stash of the first is away while
/// the second one goes forward and back.
inline void addWithStashAway(Program &program) {
  RankBuilder(program, 0)
      .f(0, 0)
      .action(Op::Offload, 0, 0)
      .f(0, 1)
      .b(0, 1)
      .action(Op::Reload, 0, 0)
      .b(0, 0);
}

/// 1F1B with one stage per rank and opposite transfers grouped on both sides.
/// Planned: transfers on queue 1, a slot for every tensor in flight, and the
/// waits that are needed. Not planned: everything on queue 0.
Program oneForwardOneBackward(int32_t numRanks, int32_t numMicrobatches,
                              bool planned, bool grouped = true);

/// Breadth-first looped forward, where rank r has the stages r, r + p, ...: for
/// every chunk and micro-batch receive, forward, send. Known from
/// NVIDIA/nccl#1541 and meta-pytorch/torchrec PR#4472.
Program breadthFirstForward(int32_t numRanks, int32_t numChunks,
                            int32_t numMicrobatches, int64_t bytes = 0);

} // namespace penstock::test

#endif // PENSTOCK_TEST_UNIT_ANALYSIS_BUILD_H
