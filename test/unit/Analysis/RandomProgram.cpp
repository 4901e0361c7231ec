//===- RandomProgram.cpp - Small random programs --------------------------===//

#include "RandomProgram.h"

#include "Build.h"

#include <algorithm>

using namespace penstock;

Program penstock::test::randomProgram(std::mt19937 &random) {
  auto below = [&](int32_t n) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(n));
  };
  const int32_t p = 2 + below(3), numEvents = 2 + below(14);
  const int32_t queues = 1 + below(3), comms = 1 + below(2);
  const bool queuePerComm = below(2);
  Program program = makeProgram(p, numEvents);
  program.rankSets = {{0, 1}, {0, p - 1}};

  for (int32_t e = 0; e < numEvents; ++e) {
    Instruction inst;
    inst.microbatch = e;
    inst.stage = 0;
    inst.queue = static_cast<uint8_t>(below(queues));
    int32_t kind = below(10);
    if (kind == 0) {
      inst.op = Op::Forward;
      program.ranks[below(p)].instructions.push_back(inst);
      continue;
    }
    inst.comm = static_cast<uint16_t>(below(comms));
    if (kind == 1) {
      inst.op = below(2) ? Op::Barrier : Op::AllReduce;
      inst.microbatch = -1;
      inst.peer = below(3) - 1;
      for (int32_t r = 0; r < p; ++r) {
        const auto *set =
            inst.peer < 0 ? nullptr : &program.rankSets[inst.peer];
        if (!set || std::binary_search(set->begin(), set->end(), r))
          program.ranks[r].instructions.push_back(inst);
      }
      continue;
    }
    int32_t from = below(p), to = (from + 1 + below(p - 1)) % p;
    inst.payload = Payload::Activation;
    inst.op = Op::Send;
    inst.peer = to;
    program.ranks[from].instructions.push_back(inst);
    inst.op = Op::Recv;
    inst.peer = from;
    inst.queue = static_cast<uint8_t>(below(queues));
    program.ranks[to].instructions.push_back(inst);
  }

  const int32_t damage = below(6), groups = below(4), waits = below(3);
  for (RankProgram &rank : program.ranks) {
    auto &insts = rank.instructions;
    if (queuePerComm)
      for (Instruction &inst : insts)
        inst.queue = static_cast<uint8_t>(inst.comm % queues);
    for (size_t i = 1; i < insts.size(); ++i)
      if (damage == 0 && below(4) == 0)
        std::swap(insts[i], insts[i - 1]);
    if (damage == 1 && !insts.empty() && below(2) == 0)
      insts.erase(insts.begin() + below(static_cast<int32_t>(insts.size())));
    for (size_t i = 1; i < insts.size(); ++i)
      if (groups > 0 && below(4) < groups && isTransfer(insts[i].op) &&
          isTransfer(insts[i - 1].op)) {
        insts[i].joined = true;
        insts[i].queue = insts[i - 1].queue;
      }
    for (size_t i = 1; i < insts.size(); ++i)
      if (waits == 0 && !insts[i].joined && below(3) == 0) {
        insts[i].firstWait = static_cast<uint32_t>(rank.waits.size());
        insts[i].numWaits = 1;
        rank.waits.push_back(
            static_cast<uint32_t>(below(static_cast<int32_t>(i))));
      }
  }
  return program;
}
