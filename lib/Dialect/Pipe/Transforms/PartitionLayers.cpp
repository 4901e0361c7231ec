//===- PartitionLayers.cpp - Cut the model into stages --------------------===//

#include "penstock/Dialect/Pipe/Transforms/Passes.h"
#include "penstock/Dialect/Pipe/Transforms/Spec.h"
#include "penstock/Lowering/Estimate.h"

#include "PassDetail.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace penstock::pipe {

#define GEN_PASS_DEF_PARTITIONLAYERS
#include "penstock/Dialect/Pipe/Transforms/Passes.h.inc"

FailureOr<ScheduleFamilyAttrInterface> parseFamily(StringRef text, Location loc,
                                                   StringRef option) {
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
  emitError(loc) << "option " << option << "='" << text
                 << "': " << (attr ? "this is not a schedule family" : message);
  return failure();
}

namespace {
struct PartitionLayers : impl::PartitionLayersBase<PartitionLayers> {
  using PartitionLayersBase::PartitionLayersBase;

  void runOnOperation() override {
    SpecOverrides overrides{
        {}, microbatches.value_or(kNotGiven), ranks.value_or(kNotGiven)};
    if (!schedule.empty()) {
      auto parsed = parseFamily(schedule, getOperation().getLoc());
      if (failed(parsed))
        return signalPassFailure();
      overrides.family = *parsed;
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
      else if (succeeded(overrideSpec(op, overrides)) &&
               succeeded(partition(op, bool(overrides.family))))
        continue;
      signalPassFailure();
    }
  }

  LogicalResult partition(ScheduleOp op, bool placeAnew);
};
} // namespace

LogicalResult overrideSpec(ScheduleOp op, const SpecOverrides &overrides) {
  const auto [family, microbatches, ranks] = overrides;
  auto fail = [&] {
    return emitError(op.getLoc()) << "schedule @" << op.getSymName() << ": ";
  };
  if (ranks != kNotGiven && (ranks < 1 || ranks > kMaxRanks))
    return fail() << "option ranks=" << ranks << " must be between 1 and "
                  << kMaxRanks;
  if (microbatches != kNotGiven &&
      (microbatches < 1 || microbatches > kMaxMicrobatches))
    return fail() << "option microbatches=" << microbatches
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
  if (ranks != kNotGiven && ranks != op.getRanks()) {
    if (!body.empty())
      return fail() << "option ranks=" << ranks << " does not fit the "
                    << (isa<RankOp>(body.front()) ? "rank" : "stage")
                    << " ops, which are written for other ranks; remove them";
    op.setRanks(static_cast<int32_t>(ranks));
  }
  if (microbatches != kNotGiven && microbatches != op.getMicrobatches()) {
    if (!body.getOps<RankOp>().empty())
      return fail() << "option microbatches=" << microbatches
                    << " does not fit the rank ops, which are written for "
                    << op.getMicrobatches()
                    << "; remove them or give a schedule= too";
    op.setMicrobatches(static_cast<int32_t>(microbatches));
  }
  if (ranks != kNotGiven)
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

FailureOr<Problem> partitionLayers(ScheduleOp op, bool placeAnew) {
  auto extracted = extractProgram(op);
  if (failed(extracted))
    return failure();
  Problem &problem = extracted->program.problem;
  ScheduleFamilyAttrInterface family = op.getFamilyAttr();
  if (placeAnew)
    family.place(problem);
  if (!family || !op.getModelAttr() || problem.memory == 0 ||
      !op.getBody().front().empty())
    return std::move(problem);
  Result<Program> order = family.generate(problem);
  if (!order) // whoever generates it next says why
    return std::move(problem);
  FailureOr<std::vector<Stage>> layers = extractLayers(op);
  if (failed(layers))
    return failure();
  if (Result<std::vector<Stage>> stages = fitLayers(*layers, *order))
    problem.stages = std::move(*stages);
  return std::move(problem);
}

LogicalResult PartitionLayers::partition(ScheduleOp op, bool placeAnew) {
  FailureOr<Problem> problem = partitionLayers(op, placeAnew);
  if (failed(problem))
    return failure();
  Program stages;
  stages.problem = std::move(*problem);
  stages.ranks.resize(stages.problem.numRanks);
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
