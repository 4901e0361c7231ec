//===- penstock-reduce.cpp - The smallest program with the same fault -----===//
//
// Shrinks a program that the verifier refuses and prints what is left, with the
// finding. Exit status: 0 reduced, 1 nothing to reduce, 2 not readable.
//
//===----------------------------------------------------------------------===//

#include "penstock/Analysis/Reduce.h"
#include "penstock/Analysis/Report.h"
#include "penstock/Import/TextFile.h"
#include "penstock/Import/TorchCsv.h"
#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"

#include <CLI/CLI.hpp>

#include <iostream>
#include <map>
#include <sstream>

#include <unistd.h>

using namespace penstock;

namespace {

enum ExitStatus { Reduced = 0, NothingToReduce = 1, NotReadable = 2 };

std::string sizeOf(const Program &program) {
  const Problem &problem = program.problem;
  return counted(program.numInstructions(), "instruction") + ", " +
         counted(problem.numRanks, "rank") + ", " +
         counted(problem.stages.size(), "stage") + ", " +
         countedMicrobatches(problem);
}

/// A schedule of torch, as an order or a program. Messages begin with the path.
Result<Program> readTorchFile(const std::string &path, bool &order) {
  const Result<std::string> text = readTextFile(path);
  if (!text)
    return Failure{path + ": " + text.message()};
  Result<TorchTable> table = readTorchCsv(*text);
  if (!table)
    return Failure{path + ": " + table.message()};
  order = table->format == TorchFormat::ComputeOnly;
  Status status = wellFormed(table->program);
  if (status && !order)
    status = setFifos(table->program, Fifo::Rank);
  if (!status)
    return Failure{path + ": " + describeCell(*table, status.failure().site) +
                   ": " + status.message()};
  return std::move(table->program);
}

/// The program as text, and above it, as comments, how it came about and what
/// is wrong with it.
void print(const Program &before, const Reduction &reduction) {
  const Program &program = reduction.program;
  std::cout << "// Reduced from " << sizeOf(before) << "\n//           to "
            << sizeOf(program) << ".\n";
  for (const Finding &finding : reduction.verdict.findings) {
    std::istringstream lines(render(program, finding));
    for (std::string line; std::getline(lines, line);)
      std::cout << "// " << line << '\n';
  }
  dump(program, std::cout);
}

} // namespace

/// Reads the command line, reduces, and prints.
static int run(int argc, char **argv) {
  CLI::App app(
      "Shrinks a program that the verifier refuses to a minimal one with the "
      "same verdict.\nExit status: 0 reduced, 1 nothing to reduce, 2 not "
      "readable.",
      "penstock-reduce");
  std::string path, output, rule;
  ReduceOptions options;
  app.add_option("FILE", path,
                 "Program file (.psp) or schedule of torch (.csv)")
      ->required();
  app.add_option("-o,--output", output, "Write the reduced program there");
  std::map<std::string, Rule> rules;
  for (Rule rule : {Rule::Structure, Rule::Completeness, Rule::DataFlow,
                    Rule::Deadlock, Rule::Memory})
    rules[std::string(name(rule))] = rule;
  app.add_option("--rule", rule,
                 "Keep it refused by this rule, whatever other rules say; "
                 "otherwise the first rule that refuses it stays the first")
      ->check(CLI::IsMember(rules));
  app.add_flag("--order", options.order,
               "Reduce an order: transfers are implied, slots do not exist");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? Reduced : NotReadable;
  }
  if (!rule.empty())
    options.rule = rules.at(rule);

  if (path.ends_with(".json")) {
    std::cerr << path
              << ": cases are not reduced; name a FILE.psp or a FILE.csv, and "
                 "see what penstock-check says about the cases\n";
    return NotReadable;
  }
  const Result<Program> program = path.ends_with(".csv")
                                      ? readTorchFile(path, options.order)
                                      : readProgramFile(path);
  if (!program) {
    std::cerr << program.message() << '\n';
    return NotReadable;
  }
  const bool showProgress = isatty(STDERR_FILENO);
  if (showProgress)
    options.progress = [](const Program &program) {
      std::cerr << "\r\033[K" << sizeOf(program) << std::flush;
    };
  const Result<Reduction> reduction = reduce(*program, options);
  if (showProgress)
    std::cerr << "\r\033[K";
  if (!reduction) {
    std::cerr << path << ": " << reduction.message() << '\n';
    if (!options.order && program->isOrder())
      std::cerr << path
                << ": note: the file holds an order without transfers; reduce "
                   "it with --order\n";
    return NothingToReduce;
  }
  print(*program, *reduction);
  if (output.empty())
    return Reduced;
  if (Status status = writeProgramFile(reduction->program, output); !status) {
    std::cerr << status.message() << '\n';
    return NotReadable;
  }
  return Reduced;
}

int main(int argc, char **argv) {
  const int code = run(argc, argv);
  if (std::cout.flush())
    return code;
  std::cerr << "penstock-reduce: cannot write the output; is the disk full?\n";
  return NotReadable;
}
