//===- Verifier.cpp - Fuzz target: all that works on programs -------------===//
//
// The bytes are a small problem and instructions as they lie in memory. What is
// well-formed goes through the verifier, the simulator and the file; what it
// says must fit what the interpreter sees.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include "penstock/Analysis/Interpret.h"
#include "penstock/Analysis/Simulate.h"
#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"

#include <algorithm>
#include <cstring>

using namespace penstock;

/// The remainder, so that nearly every byte is a valid index; 255 is none.
static int32_t index(uint8_t byte, int32_t count) {
  return byte == 255 ? 255 : byte % count;
}

/// Two bytes of sizes, then 16 bytes an instruction. What wellFormed() would
/// refuse in most inputs is made to fit.
static Program programOf(const uint8_t *data, size_t size) {
  constexpr size_t kRecord = 16;
  Program program;
  Problem &problem = program.problem;
  if (size < 2)
    return program;
  problem.numRanks = 1 + data[0] % 4;
  problem.numMicrobatches = 1 + data[0] / 4 % 4;
  problem.stages.resize(1 + data[0] / 16 % 8);
  problem.postValidation = data[1] / 32 % 2 != 0;
  for (size_t s = 0; s < problem.stages.size(); ++s)
    problem.placement.push_back(static_cast<int32_t>(s) % problem.numRanks);
  program.ranks.resize(problem.numRanks);
  const int32_t numSlots = data[1] % 2 ? 1 + data[1] / 2 % 8 : 0;
  for (RankProgram &rank : program.ranks)
    rank.slotBytes.assign(numSlots, 0);
  for (size_t at = 2; at + kRecord <= size; at += kRecord) {
    const uint8_t *record = data + at;
    const int32_t r = record[0] % problem.numRanks;
    RankProgram &rank = program.ranks[r];
    const auto count = static_cast<uint32_t>(rank.instructions.size());
    Instruction inst;
    inst.op = static_cast<Op>(record[1] % kNumOps);
    inst.queue = record[2] % 3;
    if (inst.op != Op::Barrier && !usesState(inst.op)) {
      inst.stage = index(record[3], problem.numStages());
      inst.microbatch = index(record[4], problem.numMicrobatches);
    }
    if (usesComm(inst.op))
      inst.comm = record[5] % 3;
    if (isTransfer(inst.op)) {
      if (problem.numRanks == 1)
        continue;
      inst.payload = static_cast<Payload>(1 + record[6] % (kNumPayloads - 1));
      inst.peer = index(record[7], problem.numRanks - 1);
      inst.peer += inst.peer >= r;
    } else if ((inst.op == Op::Offload || inst.op == Op::Reload) &&
               problem.numRanks > 1 && record[6] % 2) {
      inst.peer = index(record[7], problem.numRanks - 1);
      inst.peer += inst.peer >= r;
    } else if (isCollective(inst.op) && problem.numRanks > 1 && record[6] % 2) {
      program.rankSets = {{0, 1}};
      inst.peer = 0;
    }
    if (movesState(inst))
      inst.stage = inst.microbatch = -1;
    const unsigned numRoles = isAction(inst.op)  ? 4
                              : movesState(inst) ? 0
                                                 : isTransfer(inst.op);
    for (unsigned role = 0; numSlots && role < numRoles; ++role)
      inst.slots[role] = index(record[8 + role], numSlots);
    const Instruction *before = count ? &rank.instructions.back() : nullptr;
    inst.joined = before && record[12] % 4 == 1 &&
                  ((isAction(before->op) && isAction(inst.op)) ||
                   (isTransfer(before->op) && isTransfer(inst.op)));
    if (inst.joined) {
      inst.queue = before->queue;
    } else if (record[13] % 4 == 1 && count > 0) {
      inst.numWaits = 1;
      inst.firstWait = static_cast<uint32_t>(rank.waits.size());
      rank.waits.push_back(record[14] % count);
    }
    rank.instructions.push_back(inst);
  }
  return program;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const Program program = programOf(data, std::min<size_t>(size, 2000));
  if (!wellFormed(program))
    return 0;
  const Result<Program> again = deserialize(serialize(program));
  REQUIRE(again && *again == program);

  const Verdict verdict = verify(program);
  for (const Finding &finding : verdict.findings)
    REQUIRE(!finding.message.empty());
  const bool closure = interpret(program, Semantics::Closure).finished;
  const bool documented = interpret(program, Semantics::Documented).finished;
  REQUIRE(checkDeadlock(program, Semantics::Closure).ok == closure);
  REQUIRE(checkDeadlock(program, Semantics::Documented).ok == documented);
  REQUIRE(documented || !closure);
  REQUIRE(simulateProgram(program).has_value() == closure);
  if (verdict.accepted())
    REQUIRE(closure);
  VerifyOptions options;
  options.order = true;
  verify(program, options);
  return 0;
}
