//===- GenerateOrder.cpp - Write every rank's actions ---------------------===//

#include "penstock/Dialect/Pipe/Transforms/Passes.h"

#include "PassDetail.h"

using namespace mlir;

namespace penstock::pipe {

#define GEN_PASS_DEF_GENERATEORDER
#include "penstock/Dialect/Pipe/Transforms/Passes.h.inc"

namespace {
struct GenerateOrder : impl::GenerateOrderBase<GenerateOrder> {
  using GenerateOrderBase::GenerateOrderBase;

  void runOnOperation() override {
    if (failed(generate(getOperation())))
      signalPassFailure();
  }

  LogicalResult generate(ScheduleOp op);
};
} // namespace

/// Adds the steps of an order to the ops that people wrote, which keep their
/// locations.
static void addSteps(ScheduleOp schedule, const ExtractedProgram &extracted) {
  OpBuilder builder = OpBuilder::atBlockEnd(&schedule.getBody().front());
  for (auto [i, rank] : llvm::enumerate(extracted.program.ranks)) {
    RankOp op = extracted.rankOps[i];
    if (!op) {
      OperationState state(schedule.getLoc(), RankOp::getOperationName());
      state.addRegion()->emplaceBlock();
      op = cast<RankOp>(builder.create(state));
      op.setRank(static_cast<int32_t>(i));
    }
    for (size_t k = extracted.ops[i].size(); k < rank.instructions.size(); ++k)
      op.getBody().front().push_back(
          createInstruction(op.getLoc(), rank.instructions[k], {}, {}));
  }
}

LogicalResult GenerateOrder::generate(ScheduleOp op) {
  auto extracted = extractProgram(op);
  if (failed(extracted))
    return failure();
  Program &program = extracted->program;
  if (!program.isOrder()) {
    markAllAnalysesPreserved();
    return success();
  }
  const bool byHand = hasInstructions(program);
  if (!byHand) {
    ScheduleFamilyAttrInterface family = op.getFamilyAttr();
    if (!family)
      return emitError(op.getLoc())
             << "schedule @" << op.getSymName()
             << " has neither a family nor an order: add using(#pipe.<family>) "
                "or rank ops";
    Result<Program> order = family.generate(program.problem);
    if (!order)
      return emitFailure(*extracted, order.failure());
    if (!keepsSliceOrder(*order))
      return emitError(op.getLoc())
             << "schedule @" << op.getSymName() << ": slices("
             << order->problem.slices << ") does not go with " << family
             << ", which does not run the forwards of a micro-batch's slices "
                "ascending and their backwards descending, as causal attention "
                "needs: use #pipe.seq_1f1b, #pipe.gpipe<descending = true>, "
                "#pipe.breadth_first, or an order of rank ops";
    program = std::move(*order);
  }
  if (splitBackward)
    penstock::splitBackward(program);
  appendSteps(program);
  for (const RankProgram &rank : program.ranks)
    for (const Instruction &inst : rank.instructions)
      numActions += isAction(inst.op);
  if (!byHand || splitBackward)
    return writeProgram(op, program);
  addSteps(op, *extracted);
  return success();
}

} // namespace penstock::pipe
