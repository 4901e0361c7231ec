//===- InsertTransfers.cpp - Insert the sends and receives ----------------===//

#include "penstock/Dialect/Pipe/Transforms/Passes.h"
#include "penstock/Lowering/Lowering.h"

#include "PassDetail.h"

using namespace mlir;

namespace penstock::pipe {

#define GEN_PASS_DEF_INSERTTRANSFERS
#include "penstock/Dialect/Pipe/Transforms/Passes.h.inc"

namespace {
struct InsertTransfers : impl::InsertTransfersBase<InsertTransfers> {
  using InsertTransfersBase::InsertTransfersBase;

  void runOnOperation() override {
    if (failed(insert(getOperation())))
      signalPassFailure();
  }

  LogicalResult insert(ScheduleOp op) {
    auto extracted = extractInstructions(op);
    if (failed(extracted))
      return failure();
    if (!extracted->program.isOrder()) {
      ++numComplete;
      markAllAnalysesPreserved();
      return success();
    }
    TransferOptions options;
    options.group = group;
    options.placement = placement;
    Result<TransferStatistics> done =
        insertTransfers(extracted->program, options);
    if (!done)
      return emitFailure(*extracted, done.failure());
    numTransfers += done->transfers;
    numGroups += done->groups;
    return writeProgram(op, extracted->program);
  }
};
} // namespace

} // namespace penstock::pipe
