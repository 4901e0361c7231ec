//===- Outcome.h - How a run ends -------------------------------*- C++ -*-===//
//
// Faults and exit codes, what processes tell each other about them, and the
// ways out: results, a failed job, a call that does not return, a signal.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUN_OUTCOME_H
#define PENSTOCK_RUN_OUTCOME_H

#include "Options.h"

#include "penstock/Runtime/Error.h"
#include "penstock/Support/Json.h"

#include <functional>
#include <stop_token>
#include <thread>

namespace penstock::run {

enum ExitCode { Fine = 0, Failed = 1, BadInput = 2 };

/// Why there is no result; none with code Fine.
struct Fault {
  ExitCode code = Fine;
  std::string kind, message;
  int32_t rank = -1;

  Fault() = default;
  Fault(ExitCode code, std::string kind, std::string message)
      : code(code), kind(std::move(kind)), message(std::move(message)) {}
  Fault(const runtime::Error &error);

  /// What processes that have not heard of it are told.
  runtime::Error forOthers(int32_t process) const;
};

inline Fault badInput(const std::string &message) {
  return {BadInput, "bad-input", message};
}

/// The first fault of all processes, which all of them get.
Fault agree(runtime::Job *job, const Fault &own);

/// Of several processes the first one speaks for all.
inline bool speaks(const runtime::Job *job) {
  return !job || job->number() == 0;
}

/// What is known before the run.
JsonObject emptyReport();

/// The one way out: the results, the fault, and the exit code.
int finish(const Options &options, JsonObject json, const Fault &fault,
           bool speaks = true);

/// The way out of a job that has failed: tells the fault and ends. Where one
/// process can end all, those that know of the fault take turns, from process 0
/// on, for some may be stuck; one that others took for lost leaves it to them.
/// After a stop they end themselves. Elsewhere each says what it knows, for
/// nobody else may see its output.
[[noreturn]] void endJob(runtime::Job &job, const Options &options,
                         const JsonObject &json, const Fault &fault,
                         std::stop_token stop);

/// Ends the process if a call of the model keeps a run from ending.
class LastResort {
public:
  /// Calls `finish`, which does not return, after a while.
  explicit LastResort(std::function<void(const runtime::Error &)> finish)
      : finish(std::move(finish)) {}

  void operator()(const runtime::Error &error);

private:
  const std::function<void(const runtime::Error &)> finish;
  std::jthread thread; ///< ends with this object
};

/// From now on the first SIGINT or SIGTERM asks for a stop, and the second one
/// ends the process. What comes within a moment after the first is the same
/// request: timeout(1), mpirun and batch systems signal the process and its
/// group. Call it before any thread starts. A signal that is ignored stays so.
std::stop_token stopBySignals();

} // namespace penstock::run

#endif // PENSTOCK_RUN_OUTCOME_H
