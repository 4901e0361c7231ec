//===- Report.cpp - What penstock-check prints ----------------------------===//
//
// The verdict on a program, for people and as JSON, wherever it was read from.
//
//===----------------------------------------------------------------------===//

#include "Check.h"

#include "penstock/Analysis/Report.h"
#include "penstock/Program/Text.h"

#include <algorithm>
#include <iostream>

using namespace penstock;
using namespace penstock::check;

ExitStatus check::notReadable(const Options &options, const std::string &why) {
  std::cerr << why << '\n';
  if (options.json)
    print({{"error", why}});
  return NotReadable;
}

bool Report::deadlock() const {
  return std::any_of(
      verdict.findings.begin(), verdict.findings.end(),
      [](const Finding &finding) { return finding.rule == Rule::Deadlock; });
}

std::string Report::place(Site site) const {
  return table ? describeCell(*table, site) : describe(program, site);
}

void check::printFindings(const Report &report, const std::string &what) {
  std::cout << report.path << ": "
            << (report.verdict.accepted() ? "accepted" : "refused") << ": "
            << what << '\n';
  auto place = [&](Site site) { return report.place(site); };
  for (const Finding &finding : report.verdict.findings)
    std::cout << report.path << ": " << render(finding, place);
  for (const Finding &warning : report.verdict.warnings)
    std::cout << report.path << ": warning: " << render(warning, place);
}

std::string check::diagnosis(const Verdict &verdict) {
  std::string text = "under the documented semantics of groups it ";
  text += verdict.documentedOk ? "ends; " : "deadlocks too; ";
  if (!verdict.minCapacity)
    return text + "no buffering of sends would help";
  if (*verdict.minCapacity == 0)
    return text + "it needs no buffering of sends";
  return text + "it ends where every channel buffers " +
         counted(*verdict.minCapacity, "message") + ", as small tests do";
}

void check::printAssumptions() {
  std::cout << "The verdict assumes:\n";
  for (size_t i = 0; i < assumptions().size(); ++i)
    std::cout << "  A" << i + 1 << "  " << assumptions()[i] << '\n';
}

/// A place; in a schedule file its cell too.
static Json placeToJson(const Report &report, Site site) {
  Json json = {{"rank", nullptr}, {"instruction", nullptr}, {"what", nullptr}};
  if (site.rank < 0)
    return json;
  json["rank"] = site.rank;
  if (site.instruction == kNoInstruction)
    return json;
  json["instruction"] = site.instruction;
  json["what"] =
      describe(report.program.ranks[site.rank].instructions[site.instruction]);
  if (report.table) {
    json["cell"] = report.table->cells[site.rank][site.instruction];
    json["action"] = torchCell(report.program, site);
  }
  return json;
}

static Json findingsToJson(const Report &report,
                           const std::vector<Finding> &findings) {
  Json list = Json::array();
  for (const Finding &finding : findings) {
    Json item = {{"rule", name(finding.rule)}};
    item.update(placeToJson(report, finding.site));
    item["message"] = finding.message;
    item["notes"] = Json::array();
    for (const Note &note : finding.notes) {
      Json place = placeToJson(report, note.site);
      place["message"] = note.text;
      item["notes"].push_back(std::move(place));
    }
    list.push_back(std::move(item));
  }
  return list;
}

Json check::toJson(const Report &report) {
  const Problem &problem = report.program.problem;
  const Verdict &verdict = report.verdict;
  // Where another fault keeps the verifier from running the program, nobody
  // knows.
  auto outcome = [&](bool ok) -> Json {
    if (ok)
      return "ok";
    return report.deadlock() ? Json("deadlock") : Json(nullptr);
  };

  Json json;
  json["accepted"] = verdict.accepted();
  json["deadlock"] = report.deadlock();
  json["rule"] = verdict.accepted() ? Json(nullptr)
                                    : Json(name(verdict.findings.front().rule));
  json["cycle"] = Json::array();
  for (Site site : verdict.cycle)
    json["cycle"].push_back(placeToJson(report, site));
  json["min_capacity"] =
      verdict.minCapacity ? Json(*verdict.minCapacity) : Json(nullptr);
  json["closure"] = outcome(verdict.deadlockFree);
  json["documented"] = outcome(verdict.documentedOk);
  json["serialised"] = verdict.serialisedOk
                           ? Json(*verdict.serialisedOk ? "ok" : "deadlock")
                           : Json(nullptr);
  json["buffers"] = Json::array();
  for (const ChannelNeed &need : verdict.buffers)
    json["buffers"].push_back({{"comm", need.comm},
                               {"source", need.source},
                               {"destination", need.destination},
                               {"messages", need.messages},
                               {"bytes", need.bytes},
                               {"message", placeToJson(report, need.message)}});
  json["findings"] = findingsToJson(report, verdict.findings);
  json["warnings"] = findingsToJson(report, verdict.warnings);
  json["assumptions"] = assumptions();
  json["name"] = problem.name;
  json["ranks"] = problem.numRanks;
  json["stages"] = problem.stages.size();
  json["microbatches"] = problem.numWholeMicrobatches();
  if (problem.slices > 1)
    json["slices"] = problem.slices;
  json["instructions"] = report.program.numInstructions();
  return json;
}

void check::print(const Json &json) {
  std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}
