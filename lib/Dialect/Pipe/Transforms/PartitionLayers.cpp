//===- PartitionLayers.cpp - Cut the model into stages --------------------===//

#include "penstock/Dialect/Pipe/Transforms/Passes.h"

#include "PassDetail.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace penstock::pipe {

#define GEN_PASS_DEF_PARTITIONLAYERS
#include "penstock/Dialect/Pipe/Transforms/Passes.h.inc"

/// The family that an option names: the text of an attribute, of this dialect
/// unless it begins with '#'. Errors stand at `loc`.
static FailureOr<ScheduleFamilyAttrInterface> parseFamily(StringRef text,
                                                          Location loc) {
  MLIRContext *context = loc.getContext();
  std::string source = (text.starts_with("#") ? "" : "#pipe.") + text.str();
  std::string message;
  Attribute attr;
  {
    ScopedDiagnosticHandler collect(context, [&](Diagnostic &diag) {
      message += (message.empty() ? "" : "; ") + diag.str();
    });
    attr = mlir::parseAttribute(source, context);
  }
  if (auto family = dyn_cast_if_present<ScheduleFamilyAttrInterface>(attr))
    return family;
  emitError(loc) << "option schedule='" << text
                 << "': " << (attr ? "this is not a schedule family" : message);
  return failure();
}

namespace {
struct PartitionLayers : impl::PartitionLayersBase<PartitionLayers> {
  using PartitionLayersBase::PartitionLayersBase;

  void runOnOperation() override {
    ScheduleFamilyAttrInterface family;
    if (!schedule.empty()) {
      auto parsed = parseFamily(schedule, getOperation().getLoc());
      if (failed(parsed))
        return signalPassFailure();
      family = *parsed;
    }
    SmallVector<ScheduleOp> schedules;
    getOperation()->walk<WalkOrder::PreOrder>([&](ScheduleOp op) {
      schedules.push_back(op);
      return WalkResult::skip();
    });
    for (ScheduleOp op : schedules) {
      // The passes that come after run on the schedules of this module.
      if (op->getParentOp() != getOperation())
        emitError(op.getLoc()) << "schedule @" << op.getSymName()
                               << " stands in a nested op and would not be "
                                  "compiled: move it to the outermost module";
      else if (succeeded(overrideSpec(op, family)) &&
               succeeded(partition(op, family)))
        continue;
      signalPassFailure();
    }
  }

  LogicalResult overrideSpec(ScheduleOp op, ScheduleFamilyAttrInterface family);
  LogicalResult partition(ScheduleOp op, ScheduleFamilyAttrInterface family);
};
} // namespace

LogicalResult
PartitionLayers::overrideSpec(ScheduleOp op,
                              ScheduleFamilyAttrInterface family) {
  auto fail = [&] {
    return emitError(op.getLoc()) << "schedule @" << op.getSymName() << ": ";
  };
  if (ranks != -1 && (ranks < 1 || ranks > kMaxRanks))
    return fail() << "option ranks=" << int64_t(ranks)
                  << " must be between 1 and " << kMaxRanks;
  if (microbatches != -1 &&
      (microbatches < 1 || microbatches > kMaxMicrobatches))
    return fail() << "option microbatches=" << int64_t(microbatches)
                  << " must be between 1 and " << kMaxMicrobatches;

  if (family) {
    op.setFamilyAttr(family);
    op.setChains({});
    op.setSlices(-1);
    for (RankOp rank :
         llvm::make_early_inc_range(op.getBody().getOps<RankOp>()))
      rank.erase();
  }
  // What is written by hand has its own ranks and micro-batches.
  Block &body = op.getBody().front();
  if (ranks != -1 && ranks != op.getRanks()) {
    if (!body.empty())
      return fail() << "option ranks=" << int64_t(ranks) << " does not fit the "
                    << (isa<RankOp>(body.front()) ? "rank" : "stage")
                    << " ops, which are written for other ranks; remove them";
    op.setRanks(static_cast<int32_t>(ranks));
  }
  if (microbatches != -1 && microbatches != op.getMicrobatches()) {
    if (!body.getOps<RankOp>().empty())
      return fail() << "option microbatches=" << int64_t(microbatches)
                    << " does not fit the rank ops, which are written for "
                    << op.getMicrobatches()
                    << "; remove them or give a schedule= too";
    op.setMicrobatches(static_cast<int32_t>(microbatches));
  }
  if (ranks != -1)
    return success();

  auto cluster = op.getClusterAttr()
                     ? SymbolTable::lookupNearestSymbolFrom<ClusterOp>(
                           op, op.getClusterAttr())
                     : ClusterOp();
  if (cluster && op.getRanks() != -1 && op.getRanks() != cluster.getRanks()) {
    InFlightDiagnostic diag =
        fail() << "ranks(" << op.getRanks() << ") disagrees with the "
               << cluster.getRanks() << " ranks of cluster @"
               << cluster.getSymName() << "; drop one of them";
    diag.attachNote(cluster.getLoc()) << "the cluster";
    return diag;
  }
  return success();
}

LogicalResult PartitionLayers::partition(ScheduleOp op,
                                         ScheduleFamilyAttrInterface family) {
  auto extracted = extractProgram(op);
  if (failed(extracted))
    return failure();
  Program stages;
  stages.problem = std::move(extracted->program.problem);
  stages.ranks.resize(stages.problem.numRanks);
  // Stages that were there are placed anew for another family.
  if (family)
    family.place(stages.problem);
  numStages += stages.problem.numStages();

  // The rank ops stay the ones that people wrote, locations included.
  Block rankOps;
  for (RankOp rank : llvm::make_early_inc_range(op.getBody().getOps<RankOp>()))
    rank->moveBefore(&rankOps, rankOps.end());
  LogicalResult written = writeProgram(op, stages);
  op.getBody().front().getOperations().splice(op.getBody().front().end(),
                                              rankOps.getOperations());
  return written;
}

} // namespace penstock::pipe
