//===- Report.cpp - What a schedule costs, as JSON ------------------------===//

#include "penstock/Target/Report.h"
#include "penstock/Analysis/Simulate.h"
#include "penstock/Analysis/Verify.h"

#include <optional>

namespace json = llvm::json;

namespace penstock {

static json::Value ranksOf(const Timing &timing) {
  json::Array ranks;
  for (const RankTiming &rank : timing.ranks) {
    json::Object entry{{"busy", rank.busy},
                       {"peak_activations", rank.peakActivations},
                       {"peak_bytes", rank.peakBytes}};
    if (rank.peakVersions > 1)
      entry["weight_versions"] = rank.peakVersions;
    ranks.push_back(std::move(entry));
  }
  return ranks;
}

/// One way to run it; the values are null when it cannot run.
static json::Value timesOf(const std::optional<Timing> &timing) {
  if (!timing)
    return json::Object{{"makespan", nullptr},
                        {"span", nullptr},
                        {"bubble_rate", nullptr},
                        {"rank_details", nullptr}};
  return json::Object{{"makespan", timing->makespan},
                      {"span", timing->span},
                      {"bubble_rate", timing->bubbleRate},
                      {"rank_details", ranksOf(*timing)}};
}

json::Value reportOf(const Program &program, llvm::StringRef schedule) {
  const bool complete = !program.isOrder();
  std::optional<Timing> order = simulateOrder(program), timing;
  json::Object report{
      {"schedule", schedule},
      {"ranks", program.problem.numRanks},
      {"stages", program.problem.numStages()},
      {"microbatches", program.problem.numWholeMicrobatches()},
      {"instructions", static_cast<int64_t>(program.numInstructions())},
      {"order", timesOf(order)},
      {"program", nullptr},
      {"deadlock_free", nullptr},
      {"documented_ok", nullptr},
      {"min_capacity", nullptr}};
  if (program.problem.slices > 1)
    report["slices"] = program.problem.slices;
  if (complete) {
    timing = simulateProgram(program);
    report["deadlock_free"] = checkDeadlock(program, Semantics::Closure).ok;
    report["documented_ok"] = checkDeadlock(program, Semantics::Documented).ok;
    if (std::optional<int64_t> capacity = minCapacity(program))
      report["min_capacity"] = *capacity;
    report["program"] = timesOf(timing);
  }
  const std::optional<Timing> &details = complete ? timing : order;
  report["rank_details"] = details ? ranksOf(*details) : json::Value(nullptr);
  return report;
}

} // namespace penstock
