//===- Pipelines.cpp - From a spec to a program ---------------------------===//

#include "penstock/Dialect/Pipe/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"

using namespace mlir;

namespace penstock::pipe {

void buildCompilePipeline(OpPassManager &pm, const CompileOptions &options) {
  PartitionLayersOptions partition;
  partition.schedule = options.schedule;
  partition.microbatches = options.microbatches;
  partition.ranks = options.ranks;
  GenerateOrderOptions order;
  order.splitBackward = options.splitBackward;
  PlanBuffersOptions buffers;
  buffers.transferQueue = options.transferQueue;

  pm.addPass(createPartitionLayers(partition));
  OpPassManager &schedules = pm.nest<ScheduleOp>();
  schedules.addPass(createGenerateOrder(order));
  // What was written by hand is judged where it still stands.
  if (options.verify)
    schedules.addPass(createVerifySchedule());
  schedules.addPass(createInsertTransfers());
  schedules.addPass(createPlanBuffers(buffers));
  if (options.verify)
    schedules.addPass(createVerifySchedule());
}

void registerPipePipelines() {
  PassPipelineRegistration<CompileOptions>(
      "pipe-compile",
      "Compile every schedule, from its spec to a verified "
      "program",
      buildCompilePipeline);
}

} // namespace penstock::pipe
