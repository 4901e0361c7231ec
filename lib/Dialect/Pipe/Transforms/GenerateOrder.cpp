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
/// locations. Fails when a rank has no op.
static LogicalResult addSteps(const ExtractedProgram &extracted) {
  if (llvm::is_contained(extracted.rankOps, RankOp()))
    return failure();
  for (auto [op, ops, rank] : llvm::zip_equal(extracted.rankOps, extracted.ops,
                                              extracted.program.ranks))
    for (size_t i = ops.size(); i < rank.instructions.size(); ++i)
      RankOp(op).getBody().front().push_back(
          createInstruction(RankOp(op).getLoc(), rank.instructions[i], {}, {}));
  return success();
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
    program = std::move(*order);
  }
  if (splitBackward)
    penstock::splitBackward(program);
  appendSteps(program);
  for (const RankProgram &rank : program.ranks)
    for (const Instruction &inst : rank.instructions)
      numActions += isAction(inst.op);
  if (byHand && !splitBackward && succeeded(addSteps(*extracted)))
    return success();
  return writeProgram(op, program);
}

} // namespace penstock::pipe
