//===- penstock-check.cpp - Is this program right? ------------------------===//
//
// Verifies a program file where no compiler is installed: in a launcher, in CI,
// on a node of the cluster. Exit status: 0 accepted, 1 refused, 2 not readable.
//
//===----------------------------------------------------------------------===//

#include "penstock/Analysis/Report.h"
#include "penstock/Analysis/Verify.h"
#include "penstock/Program/Certificate.h"
#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iostream>

using namespace penstock;
using Json = nlohmann::ordered_json;

namespace {

enum ExitStatus { Accepted = 0, Refused = 1, NotReadable = 2 };

/// What both outputs say about a program.
struct Report {
  const std::string &path;
  const Program &program;
  const Verdict &verdict;
  std::string hash = hashProgram(program).str();

  bool deadlock() const {
    return std::any_of(
        verdict.findings.begin(), verdict.findings.end(),
        [](const Finding &finding) { return finding.rule == Rule::Deadlock; });
  }
};

std::string plural(size_t count, const std::string &noun) {
  return std::to_string(count) + ' ' + noun + (count == 1 ? "" : "s");
}

void printText(const Report &report) {
  const Program &program = report.program;
  const Problem &problem = program.problem;
  const Verdict &verdict = report.verdict;
  std::cout << report.path << ": "
            << (verdict.accepted() ? "accepted" : "refused") << ": "
            << formatSymbol(problem.name) << ", "
            << plural(problem.numRanks, "rank") << ", "
            << plural(problem.stages.size(), "stage") << ", "
            << problem.numMicrobatches << " micro-batch"
            << (problem.numMicrobatches == 1 ? "" : "es") << ", "
            << plural(program.numInstructions(), "instruction") << ", hash "
            << report.hash << '\n';
  for (const Finding &finding : verdict.findings)
    std::cout << report.path << ": " << render(program, finding);
  for (const Finding &warning : verdict.warnings)
    std::cout << report.path << ": warning: " << render(program, warning);
  if (report.deadlock()) {
    std::cout << "Under the documented semantics of groups it "
              << (verdict.documentedOk ? "ends" : "deadlocks too") << "; ";
    if (!verdict.minCapacity)
      std::cout << "no buffering of sends would help.\n";
    else if (*verdict.minCapacity == 0)
      std::cout << "it needs no buffering of sends.\n";
    else
      std::cout << "it ends only where every channel buffers "
                << plural(*verdict.minCapacity, "message")
                << ", as small tests do.\n";
  }
  std::cout << "Certificate: " << (hasCertificate(program) ? "valid" : "none")
            << '\n';
  std::cout << "The verdict assumes:\n";
  for (size_t i = 0; i < assumptions().size(); ++i)
    std::cout << "  A" << i + 1 << "  " << assumptions()[i] << '\n';
}

Json toJson(const Program &program, Site site) {
  Json json = {{"rank", nullptr}, {"instruction", nullptr}, {"what", nullptr}};
  if (site.rank < 0)
    return json;
  json["rank"] = site.rank;
  if (site.instruction == kNoInstruction)
    return json;
  json["instruction"] = site.instruction;
  json["what"] =
      describe(program.ranks[site.rank].instructions[site.instruction]);
  return json;
}

Json toJson(const Program &program, const std::vector<Finding> &findings) {
  Json list = Json::array();
  for (const Finding &finding : findings) {
    Json item = {{"rule", name(finding.rule)}};
    item.update(toJson(program, finding.site));
    item["message"] = finding.message;
    item["notes"] = Json::array();
    for (const Note &note : finding.notes) {
      Json place = toJson(program, note.site);
      place["message"] = note.text;
      item["notes"].push_back(std::move(place));
    }
    list.push_back(std::move(item));
  }
  return list;
}

void printJson(const Report &report) {
  const Program &program = report.program;
  const Problem &problem = program.problem;
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
    json["cycle"].push_back(toJson(program, site));
  json["min_capacity"] =
      verdict.minCapacity ? Json(*verdict.minCapacity) : Json(nullptr);
  json["closure"] = outcome(verdict.deadlockFree);
  json["documented"] = outcome(verdict.documentedOk);
  // One that does not hold makes the file unreadable.
  json["certificate"] = hasCertificate(program) ? Json("valid") : Json(nullptr);
  json["findings"] = toJson(program, verdict.findings);
  json["warnings"] = toJson(program, verdict.warnings);
  json["assumptions"] = assumptions();
  json["name"] = problem.name;
  json["ranks"] = problem.numRanks;
  json["stages"] = problem.stages.size();
  json["microbatches"] = problem.numMicrobatches;
  json["instructions"] = program.numInstructions();
  json["hash"] = report.hash;
  std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

bool endsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() &&
         text.substr(text.size() - end.size()) == end;
}

} // namespace

/// Reads the command line, checks, and prints.
static int check(int argc, char **argv) {
  CLI::App app("Verifies a Penstock program: structure, completeness, data "
               "flow, deadlock, memory.\nExit status: 0 accepted, 1 refused, 2 "
               "not readable.",
               "penstock-check");
  std::string path;
  bool json = false, text = false, order = false;
  app.add_option("FILE", path, "Program file (.psp)")->required();
  CLI::Option *jsonOption =
      app.add_flag("--json", json, "Print the verdict as one JSON object");
  app.add_flag("--order", order,
               "Check an order: transfers are implied, slots do not exist");
  app.add_flag("--dump", text,
               "Print the program as text instead of verifying it")
      ->excludes(jsonOption);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? Accepted : NotReadable;
  }

  if (endsWith(path, ".csv") || endsWith(path, ".json")) {
    std::cerr << path
              << ": penstock-check reads program files (.psp) only so "
                 "far; write one with penstock-translate "
                 "--pipe-to-program\n";
    return NotReadable;
  }
  const Result<Program> program = readProgramFile(path);
  if (!program) {
    std::cerr << program.message() << '\n';
    return NotReadable;
  }
  if (text) {
    dump(*program, std::cout);
    return Accepted;
  }
  VerifyOptions options;
  options.order = order;
  const Verdict verdict = verify(*program, options);
  const Report report{path, *program, verdict};
  if (json)
    printJson(report);
  else
    printText(report);
  if (!verdict.accepted() && !order && program->isOrder())
    std::cerr << path
              << ": note: the file holds an order without transfers; "
                 "check it with --order, or lower it first "
                 "(penstock-opt --pipe-compile)\n";
  return verdict.accepted() ? Accepted : Refused;
}

int main(int argc, char **argv) {
  const int code = check(argc, argv);
  if (std::cout.flush())
    return code;
  std::cerr << "penstock-check: cannot write the output; is the disk full?\n";
  return NotReadable;
}
