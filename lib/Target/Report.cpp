//===- Report.cpp - What a schedule costs, as JSON ------------------------===//

#include "penstock/Target/Report.h"
#include "penstock/Analysis/CriticalPath.h"
#include "penstock/Analysis/MemoryOverTime.h"
#include "penstock/Analysis/Verify.h"
#include "penstock/Program/Text.h"

#include <optional>

namespace json = llvm::json;

namespace penstock {

/// Steps of memory as [time, activations, bytes].
static json::Value stepsOf(const std::vector<MemoryStep> &steps) {
  json::Array list;
  for (const MemoryStep &step : steps)
    list.push_back(json::Array{step.time, step.activations, step.bytes});
  return list;
}

static json::Value ranksOf(const Program &program, const Timing &timing,
                           const ReportOptions &options) {
  const std::vector<RankWaiting> waiting = waitingTimes(program, timing);
  std::vector<std::vector<MemoryStep>> memory;
  if (options.memory)
    memory = memoryOverTime(program, timing);
  json::Array ranks;
  for (size_t r = 0; r < timing.ranks.size(); ++r) {
    const RankTiming &rank = timing.ranks[r];
    json::Object entry{
        {"busy", rank.busy},
        {"waiting", json::Object{{"first", waiting[r].first},
                                 {"transfers", waiting[r].transfers},
                                 {"others", waiting[r].others},
                                 {"end", waiting[r].end}}},
        {"peak_activations", rank.peakActivations},
        {"peak_bytes", rank.peakBytes}};
    if (rank.peakVersions > 1)
      entry["weight_versions"] = rank.peakVersions;
    if (rank.peakHostBytes > 0)
      entry["host_bytes"] = rank.peakHostBytes;
    if (options.memory)
      entry["memory"] = stepsOf(memory[r]);
    ranks.push_back(std::move(entry));
  }
  return ranks;
}

/// The times of actions that are not 0, by letter.
static json::Object timesOf(const PathSummary::Actions &actions) {
  json::Object object;
  for (size_t op = 0; op < actions.size(); ++op)
    if (actions[op] > 0)
      object[std::string(1, letter(static_cast<Op>(op)))] = actions[op];
  return object;
}

static json::Value pathOf(const Program &program, const Timing &timing) {
  const std::vector<CriticalStep> path = criticalPath(program, timing);
  const PathSummary summary = summarize(program, path);
  json::Array stages, links;
  for (size_t s = 0; s < summary.stages.size(); ++s) {
    json::Object stage = timesOf(summary.stages[s]);
    if (stage.empty())
      continue;
    stage["stage"] = static_cast<int64_t>(s);
    stages.push_back(std::move(stage));
  }
  for (const PathSummary::LinkTime &link : summary.links)
    links.push_back(json::Object{
        {"from", link.source}, {"to", link.destination}, {"time", link.time}});
  json::Object object{{"steps", static_cast<int64_t>(path.size())},
                      {"actions", timesOf(summary.actions)},
                      {"transfers", summary.transfers},
                      {"stages", std::move(stages)},
                      {"links", std::move(links)}};
  if (summary.copies > 0)
    object["copies"] = summary.copies;
  return object;
}

/// One way to run it; the values are null when it cannot run.
static json::Value timesOf(const Program &program,
                           const std::optional<Timing> &timing,
                           const ReportOptions &options) {
  if (!timing)
    return json::Object{{"makespan", nullptr},
                        {"span", nullptr},
                        {"bubble_rate", nullptr},
                        {"critical_path", nullptr},
                        {"rank_details", nullptr}};
  return json::Object{{"makespan", timing->makespan},
                      {"span", timing->span},
                      {"bubble_rate", timing->bubbleRate},
                      {"critical_path", pathOf(program, *timing)},
                      {"rank_details", ranksOf(program, *timing, options)}};
}

json::Value reportOf(const Program &program, llvm::StringRef schedule,
                     const ReportOptions &options) {
  const bool complete = !program.isOrder();
  json::Object report{
      {"schedule", schedule},
      {"ranks", program.problem.numRanks},
      {"stages", program.problem.numStages()},
      {"microbatches", program.problem.numWholeMicrobatches()},
      {"instructions", static_cast<int64_t>(program.numInstructions())},
      {"order", timesOf(program, simulateOrder(program), options)},
      {"program", nullptr},
      {"deadlock_free", nullptr},
      {"documented_ok", nullptr},
      {"min_capacity", nullptr}};
  if (program.problem.slices > 1)
    report["slices"] = program.problem.slices;
  if (complete) {
    report["deadlock_free"] = checkDeadlock(program, Semantics::Closure).ok;
    report["documented_ok"] = checkDeadlock(program, Semantics::Documented).ok;
    if (std::optional<int64_t> capacity = minCapacity(program))
      report["min_capacity"] = *capacity;
    report["program"] = timesOf(program, simulateProgram(program), options);
  }
  const json::Object &run = *report.getObject(complete ? "program" : "order");
  report["rank_details"] = json::Value(*run.get("rank_details"));
  return report;
}

} // namespace penstock
