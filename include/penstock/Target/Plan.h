//===- Plan.h - All families on one model and cluster -----------*- C++ -*-===//
//
// Cuts a model into the stages of every schedule family, estimates what each
// would cost, and writes the comparison down, as text or as JSON. Scripts and
// tests rely on the keys; docs/planning.md explains them.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_TARGET_PLAN_H
#define PENSTOCK_TARGET_PLAN_H

#include "penstock/Dialect/Pipe/Transforms/Spec.h"
#include "penstock/Lowering/Estimate.h"

#include "llvm/Support/JSON.h"

#include <optional>

namespace penstock::pipe {

struct PlanOptions {
  int64_t microbatches = kNotGiven; ///< instead of the spec's
  int64_t ranks = kNotGiven;        ///< instead of the spec's
  /// Families to compare, as the option schedule of pipe-compile has them; none
  /// stands for all that the dialect has, each with `chunks` stages a rank and
  /// each of its flags.
  std::vector<std::string> families;
  std::vector<int32_t> chunks = {2, 4};
  bool lower = false; ///< figures of the programs instead of the orders
  EstimateKey key = EstimateKey::Makespan;
  std::optional<double> targetBubble; ///< to give the least m for
};

/// A schedule of the comparison.
struct PlanRow {
  std::string schedule; ///< its family, as pipe-compile takes it
  Estimate estimate;
  /// Micro-batches that keep the bubble rate of equal stages and free transfers
  /// at the target, as leastMicrobatches of Lowering/Estimate.h finds them.
  std::optional<int32_t> leastMicrobatches;
};

struct Plan {
  std::string schedule, model;
  int32_t numLayers = 0, numRanks = 0, numMicrobatches = 0;
  int64_t memory = 0; ///< of a rank; 0: no limit
  PlanOptions options;
  std::vector<PlanRow> rows; ///< best first, by isBetter
};

/// Compares schedules for the model and the cluster of a schedule op, whose
/// family, chains and rank ops it removes. Errors that concern all families are
/// reported at the op; those of one are its reason.
llvm::FailureOr<Plan> makePlan(ScheduleOp op, const PlanOptions &options);

void printPlan(llvm::raw_ostream &os, const Plan &plan);
llvm::json::Value planToJson(const Plan &plan);

} // namespace penstock::pipe

#endif // PENSTOCK_TARGET_PLAN_H
