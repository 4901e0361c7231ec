//===- AgreementTest.cpp - The verifier against the interpreter -----------===//

#include "Build.h"
#include "RandomProgram.h"

#include "penstock/Analysis/Interpret.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace penstock;
using namespace penstock::test;

namespace {

/// Every entry of a cycle must wait for the next one, by the definitions alone.
void expectRealCycle(const Program &program, const std::vector<Site> &cycle,
                     const Execution &stuck) {
  const Matching matching = matchTransfers(program);
  auto inst = [&](Site s) -> const Instruction & {
    return program.ranks[s.rank].instructions[s.instruction];
  };
  bool goesBack = false;
  for (size_t k = 0; k < cycle.size(); ++k) {
    const Site from = cycle[k], to = cycle[(k + 1) % cycle.size()];
    EXPECT_FALSE(stuck.done[from.rank][from.instruction]);
    if (from.rank == to.rank) {
      goesBack |= to.instruction < from.instruction;
      continue;
    }
    if (isTransfer(inst(from).op)) {
      EXPECT_EQ(inst(from).peer, to.rank);
      EXPECT_EQ(matching.partner[from.rank][from.instruction], to.instruction);
    } else {
      EXPECT_EQ(inst(from).op, inst(to).op);
    }
  }
  EXPECT_TRUE(goesBack);
}

TEST(Agreement, VerifierAndInterpreterOnRandomPrograms) {
  std::mt19937 random(20240229);
  size_t deadlocks = 0, onlyClosure = 0, cycles = 0, buffered = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const Program program = randomProgram(random);
    SCOPED_TRACE(trial);
    bool finished[2];
    for (Semantics semantics : {Semantics::Closure, Semantics::Documented}) {
      const Execution execution = interpret(program, semantics);
      const DeadlockResult result = checkDeadlock(program, semantics);
      finished[semantics.groups] = execution.finished;
      ASSERT_EQ(result.ok, execution.finished);
      ASSERT_EQ(result.ok, result.cycle.empty() && result.unmatched.empty());
      if (!result.cycle.empty()) {
        ++cycles;
        expectRealCycle(program, result.cycle, execution);
      }
      for (Site site : result.unmatched)
        EXPECT_FALSE(execution.done[site.rank][site.instruction]);
      // The same explanation from where the interpreter stuck.
      const DeadlockResult again =
          explainBlocked(program, semantics, execution.done);
      EXPECT_EQ(again.ok, result.ok);
      EXPECT_EQ(again.cycle, result.cycle);
      EXPECT_EQ(again.unmatched, result.unmatched);
    }
    EXPECT_TRUE(!finished[0] || finished[1]) << "closure implies documented";
    deadlocks += !finished[1];
    onlyClosure += finished[1] && !finished[0];

    const std::optional<int64_t> capacity = minCapacity(program);
    std::optional<int64_t> least;
    bool passed = false;
    for (int64_t k = 0; k < 16; ++k) {
      bool passes = interpret(program, {Semantics::Documented, k}).finished;
      EXPECT_TRUE(passes || !passed) << "more capacity never hurts";
      passed = passes;
      if (passes && !least)
        least = k;
    }
    EXPECT_EQ(capacity, least);
    buffered += least && *least > 0;
    if (HasFailure())
      FAIL() << "see above";
  }
  // The generator is worth something only if it reaches every outcome.
  EXPECT_GT(deadlocks, 300u);
  EXPECT_LT(deadlocks, 3500u);
  EXPECT_GT(onlyClosure, 50u);
  EXPECT_GT(cycles, 200u);
  EXPECT_GT(buffered, 50u);
}

} // namespace
