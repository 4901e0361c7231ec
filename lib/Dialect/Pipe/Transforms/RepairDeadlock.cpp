//===- RepairDeadlock.cpp - Mend deadlocks --------------------------------===//

#include "penstock/Analysis/Repair.h"
#include "penstock/Dialect/Pipe/Transforms/Passes.h"
#include "penstock/Program/Text.h"

#include "PassDetail.h"

using namespace mlir;

namespace penstock::pipe {

#define GEN_PASS_DEF_REPAIRDEADLOCK
#include "penstock/Dialect/Pipe/Transforms/Passes.h.inc"

namespace {
struct RepairDeadlock : impl::RepairDeadlockBase<RepairDeadlock> {
  void runOnOperation() override {
    if (failed(repair(getOperation())))
      signalPassFailure();
  }

  LogicalResult repair(ScheduleOp op) {
    auto extracted = extractInstructions(op);
    if (failed(extracted))
      return failure();
    Program repaired = extracted->program;
    const RepairOutcome outcome = repairDeadlocks(repaired);
    if (outcome.left) {
      // The places of a program that has changed have no ops yet.
      if (outcome.applied.empty())
        explain(emitNamed(*extracted, outcome.left->site), *extracted,
                *outcome.left);
      else
        emitError(op.getLoc())
            << "after " << counted(outcome.applied.size(), "repair") << ": "
            << outcome.left->message;
      return failure();
    }
    if (outcome.applied.empty()) {
      markAllAnalysesPreserved();
      return success();
    }
    numRepairs += outcome.applied.size();
    for (const std::string &text : outcome.applied)
      emitRemark(op.getLoc()) << "repaired: " << text;
    return writeProgram(op, repaired);
  }
};
} // namespace

} // namespace penstock::pipe
