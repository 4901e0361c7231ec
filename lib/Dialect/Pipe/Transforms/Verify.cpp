//===- Verify.cpp - Prove a schedule right, or say why it is not ----------===//

#include "penstock/Analysis/Verify.h"
#include "penstock/Dialect/Pipe/Transforms/Passes.h"

#include "PassDetail.h"

using namespace mlir;

namespace penstock::pipe {

#define GEN_PASS_DEF_VERIFYSCHEDULE
#include "penstock/Dialect/Pipe/Transforms/Passes.h.inc"

namespace {
struct VerifySchedule : impl::VerifyScheduleBase<VerifySchedule> {
  void runOnOperation() override {
    // Schedules may stand at any depth; none may go unseen.
    getOperation()->walk<WalkOrder::PreOrder>([&](ScheduleOp op) {
      if (failed(check(op)))
        signalPassFailure();
      return WalkResult::skip();
    });
    markAllAnalysesPreserved();
  }

  LogicalResult check(ScheduleOp op) {
    auto extracted = extractInstructions(op);
    if (failed(extracted))
      return failure();
    const Program &program = extracted->program;
    numInstructions += program.numInstructions();
    VerifyOptions options;
    options.order = program.isOrder();
    Verdict verdict = verify(program, options);
    numFindings += verdict.findings.size();
    for (const Finding &finding : verdict.findings)
      explain(emitNamed(*extracted, finding.site), *extracted, finding);
    for (const Finding &warning : verdict.warnings)
      explain(emitWarning(extracted->at(warning.site)->getLoc())
                  << describe(program, warning.site) << ": ",
              *extracted, warning);
    return success(verdict.accepted());
  }
};
} // namespace

} // namespace penstock::pipe
