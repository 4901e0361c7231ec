//===- penstock-check.cpp - Is this program right? ------------------------===//
//
// Verifies program files, schedules of torch and cases where no compiler is
// installed: in a launcher, in CI, on a node of the cluster. Exit status: 0
// accepted, 1 refused, 2 not readable.
//
//===----------------------------------------------------------------------===//

#include "Check.h"

#include "penstock/Program/Certificate.h"
#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"

#include <CLI/CLI.hpp>

#include <iostream>
#include <map>

using namespace penstock;
using namespace penstock::check;

ExitStatus check::checkProgramFile(const Options &options) {
  const std::string &path = options.path;
  const Result<Program> program = readProgramFile(path);
  if (!program)
    return notReadable(options, program.message());
  if (options.dump) {
    dump(*program, std::cout);
    return Accepted;
  }
  VerifyOptions verifyOptions;
  verifyOptions.order = options.order;
  const Verdict verdict = verify(*program, verifyOptions);
  const Report report{path, *program, verdict};
  const Problem &problem = program->problem;
  const std::string hash = hashProgram(*program).str();
  if (options.json) {
    Json json = toJson(report);
    json["hash"] = hash;
    // One that does not hold makes the file unreadable.
    json["certificate"] =
        hasCertificate(*program) ? Json("valid") : Json(nullptr);
    print(json);
  } else {
    printFindings(report,
                  formatSymbol(problem.name) + ", " +
                      counted(problem.numRanks, "rank") + ", " +
                      counted(problem.stages.size(), "stage") + ", " +
                      countedMicrobatches(problem) + ", " +
                      counted(program->numInstructions(), "instruction") +
                      ", hash " + hash);
    if (report.deadlock()) {
      std::string text = diagnosis(verdict);
      text[0] = 'U';
      std::cout << text << ".\n";
    }
    std::cout << "Certificate: "
              << (hasCertificate(*program) ? "valid" : "none") << '\n';
    printAssumptions();
  }
  if (!verdict.accepted() && !options.order && program->isOrder())
    std::cerr << path
              << ": note: the file holds an order without transfers; "
                 "check it with --order, or lower it first "
                 "(penstock-opt --pipe-compile)\n";
  return verdict.accepted() ? Accepted : Refused;
}

/// Reads the command line, checks, and prints.
static int run(int argc, char **argv) {
  CLI::App app("Verifies a Penstock program: structure, completeness, data "
               "flow, deadlock, memory.\nExit status: 0 accepted, 1 refused, 2 "
               "not readable.",
               "penstock-check");
  Options options;
  app.add_option("FILE", options.path,
                 "Program file (.psp), schedule of torch (.csv), or cases "
                 "(.json)")
      ->required();
  CLI::Option *json = app.add_flag("--json", options.json,
                                   "Print the verdict as one JSON object");
  app.add_flag("--order", options.order,
               "Check an order: transfers are implied, slots do not exist");
  app.add_flag("--dump", options.dump,
               "Print the program as text instead of verifying it")
      ->excludes(json);
  const std::map<std::string, Fifo> fifos = {
      {"rank", Fifo::Rank}, {"pair", Fifo::Pair}, {"edge", Fifo::Edge}};
  const std::map<std::string, TorchPlacement> placements = {
      {"rows", TorchPlacement::Rows},
      {"loop", TorchPlacement::Loop},
      {"v", TorchPlacement::V}};
  std::string fifo, placement;
  app.add_option("--fifo", fifo,
                 "What a .csv with communication is judged by: one FIFO of "
                 "transfers per rank, per pair of ranks or per directed edge")
      ->check(CLI::IsMember(fifos))
      ->option_text("rank|pair|edge");
  app.add_option("--placement", placement,
                 "Where the stages of a .csv must be: where its rows have them "
                 "first, stage s on rank s mod p, or to and fro")
      ->check(CLI::IsMember(placements))
      ->option_text("rows|loop|v");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? Accepted : NotReadable;
  }
  if (!fifo.empty())
    options.fifo = fifos.at(fifo);
  if (!placement.empty())
    options.placement = placements.at(placement);
  if (options.path.ends_with(".csv"))
    return checkTorchFile(options);
  for (const auto &[name, value] :
       {std::pair("--fifo", &fifo), std::pair("--placement", &placement)})
    if (!value->empty())
      return notReadable(options, options.path + ": " + name +
                                      " is for schedules of torch (.csv) only; "
                                      "leave it out");
  if (options.path.ends_with(".json"))
    return checkCaseFile(options);
  return checkProgramFile(options);
}

int main(int argc, char **argv) {
  const int code = run(argc, argv);
  if (std::cout.flush())
    return code;
  std::cerr << "penstock-check: cannot write the output; is the disk full?\n";
  return NotReadable;
}
