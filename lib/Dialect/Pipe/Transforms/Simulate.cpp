//===- Simulate.cpp - Predict time and memory -----------------------------===//

#include "penstock/Analysis/Timeline.h"
#include "penstock/Dialect/Pipe/Transforms/Passes.h"
#include "penstock/Program/Text.h"

#include "PassDetail.h"

using namespace mlir;

namespace penstock::pipe {

#define GEN_PASS_DEF_SIMULATESCHEDULE
#include "penstock/Dialect/Pipe/Transforms/Passes.h.inc"

namespace {
struct SimulateSchedule : impl::SimulateScheduleBase<SimulateSchedule> {
  void runOnOperation() override {
    if (failed(simulate(getOperation())))
      signalPassFailure();
    markAllAnalysesPreserved();
  }

  LogicalResult simulate(ScheduleOp op) {
    auto extracted = extractInstructions(op);
    if (failed(extracted))
      return failure();
    const Program &program = extracted->program;
    const bool order = program.isOrder();
    std::optional<Timing> timing =
        order ? simulateOrder(program) : simulateProgram(program);
    if (!timing)
      return emitError(op.getLoc())
             << "schedule @" << op.getSymName()
             << " cannot run to its end: pipe-verify says why";
    RankTiming peak;
    for (const RankTiming &rank : timing->ranks) {
      peak.peakActivations =
          std::max(peak.peakActivations, rank.peakActivations);
      peak.peakBytes = std::max(peak.peakBytes, rank.peakBytes);
    }
    emitRemark(op.getLoc())
        << (order ? "order" : "program") << " @" << op.getSymName()
        << ": makespan " << formatRounded(timing->makespan) << ", span "
        << formatRounded(timing->span) << ", bubble rate "
        << formatRounded(timing->bubbleRate) << "; at most "
        << peak.peakActivations << " activations and " << peak.peakBytes
        << " bytes on a rank; critical path: "
        << describePath(program, criticalPath(program, *timing));
    return success();
  }
};
} // namespace

} // namespace penstock::pipe
