//===- Options.h - The command line of penstock-run -------------*- C++ -*-===//

#ifndef PENSTOCK_RUN_OPTIONS_H
#define PENSTOCK_RUN_OPTIONS_H

#include "penstock/Runtime/Job.h"

#include <optional>
#include <string>

namespace penstock::run {

struct Options {
  std::string file, backend = "host", model = "byte-lm", text, trace, profile;
  int64_t steps = 100;
  int64_t traceSteps = 2;
  double timeout = 30, callTimeout = 600, pace = 0;
  std::optional<uint64_t> seed;
  std::optional<int32_t> printModel;
  bool checkGradients = false, checkFinite = false, force = false, json = false;
  /// Of ranks in several processes; without `where`: all in this one, or MPI.
  runtime::Rendezvous rendezvous;
  bool replay = false, ncclMemory = false;

  Options() { rendezvous.where.clear(); }
};

/// Reads the command line. An exit code, when all is said already: help was
/// asked for, or something is wrong.
std::optional<int> parseOptions(int argc, char **argv, Options &options);

} // namespace penstock::run

#endif // PENSTOCK_RUN_OPTIONS_H
