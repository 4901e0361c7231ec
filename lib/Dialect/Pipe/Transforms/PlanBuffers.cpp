//===- PlanBuffers.cpp - Give every tensor a slot -------------------------===//

#include "penstock/Dialect/Pipe/Transforms/Passes.h"
#include "penstock/Lowering/Lowering.h"

#include "PassDetail.h"

using namespace mlir;

namespace penstock::pipe {

#define GEN_PASS_DEF_PLANBUFFERS
#include "penstock/Dialect/Pipe/Transforms/Passes.h.inc"

namespace {
struct PlanBuffers : impl::PlanBuffersBase<PlanBuffers> {
  using PlanBuffersBase::PlanBuffersBase;

  void runOnOperation() override {
    if (failed(plan(getOperation())))
      signalPassFailure();
  }

  LogicalResult plan(ScheduleOp op) {
    if (transferQueue > 255)
      return emitError(op.getLoc())
             << "option transfer-queue=" << unsigned(transferQueue)
             << " must be between 0 and 255";
    auto extracted = extractInstructions(op);
    if (failed(extracted))
      return failure();
    BufferOptions options;
    options.transferQueue = static_cast<uint8_t>(transferQueue);
    Result<BufferStatistics> done = planBuffers(extracted->program, options);
    if (!done)
      return emitFailure(*extracted, done.failure());
    numSlots += done->slots;
    arenaBytes += done->arenaBytes;
    hostBytes += done->hostBytes;
    numWaits += done->waits;
    return writeProgram(op, extracted->program);
  }
};
} // namespace

} // namespace penstock::pipe
