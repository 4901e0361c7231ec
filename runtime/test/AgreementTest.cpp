//===- AgreementTest.cpp - Verified runs, refused hangs -------------------===//
//
// Random programs of transfers and barriers, on threads: those that the
// verifier accepts under the semantics of the host transports end, the others
// hang until the watchdog ends them.
//
//===----------------------------------------------------------------------===//

#include "Testing/RandomProgram.h"

#include "penstock/Analysis/Verify.h"
#include "penstock/Program/Text.h"
#include "penstock/Runtime/Run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

using namespace penstock;
using namespace penstock::runtime;

namespace {

/// Makes all transfers and collectives alike, so that only their order can be
/// wrong, and gives each a slot. Nothing where that does not do.
std::optional<Program> onlyOrder(Program program) {
  for (size_t r = 0; r < program.ranks.size(); ++r) {
    RankProgram &rank = program.ranks[r];
    rank.slotBytes.clear(); // one for each: queues may run at the same time
    for (Instruction &inst : rank.instructions) {
      inst.microbatch = isTransfer(inst.op) ? 0 : -1;
      if (isTransfer(inst.op)) {
        inst.bytes = 8;
        inst.slots[Slot] = static_cast<int32_t>(rank.slotBytes.size());
        rank.slotBytes.push_back(8);
      } else if (isCollective(inst.op)) {
        inst.op = Op::Barrier;
        inst.stage = -1;
        inst.bytes = 0;
        // Only a rank of the set can wait for the others.
        if (inst.peer >= 0 && !std::ranges::binary_search(
                                  program.rankSets[inst.peer], int32_t(r)))
          return std::nullopt;
      } else {
        return std::nullopt; // it belongs to the rank of its stage
      }
    }
  }
  if (!wellFormed(program) || !program.isPlanned())
    return std::nullopt;
  return program;
}

TEST(HostAgreement, OfVerifierAndThreadsOnRandomPrograms) {
  // As many as one likes: 10,000 take some minutes.
  const char *wish = std::getenv("PENSTOCK_PROGRAMS");
  const size_t numPrograms = wish ? std::strtoul(wish, nullptr, 10) : 300;
  std::mt19937 random(11);
  size_t numAccepted = 0, numRefused = 0;
  while (numAccepted + numRefused < numPrograms) {
    const auto program = onlyOrder(penstock::test::randomProgram(random));
    if (!program)
      continue;
    const bool accepted =
        bool(checkDeadlock(*program, Semantics::Documented).ok);
    ++(accepted ? numAccepted : numRefused);
    RunOptions options;
    options.force = true;
    options.steps = 2;
    // What hangs does so from the first moment on; what seems to, on a busy
    // machine, gets more time.
    options.timeout = 0.02;
    RunReport report = runProgram(*program, makeNullModel(), options);
    if (accepted && report.error.kind == ErrorKind::Timeout) {
      options.timeout = 60;
      report = runProgram(*program, makeNullModel(), options);
    }
    ASSERT_EQ(name(report.error.kind),
              name(accepted ? ErrorKind::None : ErrorKind::Timeout))
        << report.error.message << "\n"
        << dump(*program);
  }
  // Worth something only if there are enough of both.
  EXPECT_GT(numAccepted, numPrograms / 5);
  EXPECT_GT(numRefused, numPrograms / 5);
}

} // namespace
