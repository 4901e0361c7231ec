//===- Check.h - What penstock-check checks ---------------------*- C++ -*-===//
//
// One function for each kind of file, and what all of them print.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_TOOLS_CHECK_H
#define PENSTOCK_TOOLS_CHECK_H

#include "penstock/Analysis/Verify.h"
#include "penstock/Import/TorchCsv.h"

#include <nlohmann/json.hpp>

#include <string>

namespace penstock::check {

using Json = nlohmann::ordered_json;

enum ExitStatus { Accepted = 0, Refused = 1, NotReadable = 2 };

struct Options {
  std::string path;
  bool json = false;
  bool order = false;
  bool dump = false;
  Fifo fifo = Fifo::Rank;
  TorchPlacement placement = TorchPlacement::Rows;
};

/// A program file (.psp), a schedule of torch (.csv), cases (.json).
ExitStatus checkProgramFile(const Options &options);
ExitStatus checkTorchFile(const Options &options);
ExitStatus checkCaseFile(const Options &options);

/// Says why a file cannot be read, on standard error, and with --json as an
/// object with the key "error" too.
ExitStatus notReadable(const Options &options, const std::string &why);

/// A program with its verdict. The place of an instruction is named as in the
/// program, or as in the schedule file that it comes from.
struct Report {
  const std::string &path;
  const Program &program;
  const Verdict &verdict;
  const TorchTable *table = nullptr;

  bool deadlock() const;
  std::string place(Site site) const;
};

/// The line "FILE: accepted: WHAT" and what the verifier found.
void printFindings(const Report &report, const std::string &what);
/// How a deadlock depends on groups and buffering: "under the documented
/// semantics of groups it ends; ...".
std::string diagnosis(const Verdict &verdict);
/// "The verdict assumes:", and what.
void printAssumptions();

/// The verdict as one object.
Json toJson(const Report &report);
/// Prints it; text that is not UTF-8 is replaced.
void print(const Json &json);

} // namespace penstock::check

#endif // PENSTOCK_TOOLS_CHECK_H
