//===- Run.h - Runs all ranks of a program ----------------------*- C++ -*-===//
//
// The entry of the runtime: a program and a model go in, a trained model or one
// typed error comes out. Every thread has ended when the call returns, whatever
// happened.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_RUN_H
#define PENSTOCK_RUNTIME_RUN_H

#include "penstock/Runtime/Backend.h"
#include "penstock/Runtime/Model.h"
#include "penstock/Runtime/Recorder.h"

#include <stop_token>

namespace penstock::runtime {

/// A step that all ranks have ended.
struct StepReport {
  int64_t step = 0;
  double loss = 0;       ///< lossOfStep, over all micro-batches
  double seconds = 0;    ///< since the step before ended, or the run began
  double bubbleRate = 0; ///< measured
};

struct RunOptions {
  int64_t steps = 1;
  /// Runs a program although the verifier refuses it. What can be checked where
  /// it happens is checked there.
  bool force = false;
  /// Seconds without any progress, while nothing works, after which the run
  /// ends with Timeout; 0: never.
  double timeout = 30;
  /// Seconds after which a single call of the model, while nothing else goes
  /// on, counts as a hang too; 0: never. The run cannot return before the call
  /// does: see onError.
  double callTimeout = 0;
  /// Stretches every action to cost times so many seconds, and a transfer to
  /// its link time; 0: as fast as it goes.
  double pace = 0;
  /// Looks at what every forward and backward leaves for the next stage, as
  /// values of type float, and ends the run with NotFinite at the first that is
  /// none; changes no result. Not on devices that issue.
  bool checkFinite = false;
  /// Captures a step as one graph of the device and replays it, if device and
  /// model can; RunReport::replayFault says why not.
  bool replay = false;
  /// Called in order, from one thread at a time. Must not throw.
  std::function<void(const StepReport &)> onStep;
  /// Called once, with the error that ends the run, before its threads have
  /// ended.
  std::function<void(const Error &)> onError;
  /// Called after the last step with the models of all ranks; null for those of
  /// other processes.
  std::function<void(std::span<const Model *const>)> onFinished;
  /// Ends the run with Aborted.
  std::stop_token stop;
  /// Records here, else in a recorder of the run's own. After a run without
  /// error it has all ranks, those of other processes too; after a failed one
  /// that of process 0 has the last step of those that still answer.
  Recorder *recorder = nullptr;
  /// Runs there, else on a host back end of the run's own.
  Backend *backend = nullptr;
};

struct RunReport {
  Error error;       ///< none: everything went well
  int64_t steps = 0; ///< ended by all ranks
  /// How often a step ran in vain and again, because the validation of the one
  /// before amended it (Problem::postValidation).
  int64_t voidSteps = 0;
  std::string replayFault; ///< see RunOptions::replay; empty: steps replay
  double firstLoss = 0, lastLoss = 0;
  double seconds = 0;    ///< of all steps
  double bubbleRate = 0; ///< measured, mean over all steps but the first

  explicit operator bool() const { return !error; }
};

/// Verifies the program and trains `options.steps` steps, each rank on its own
/// threads. Where the ranks are in several processes, all of them call it
/// alike, and get the same report but for `seconds`.
RunReport runProgram(const Program &program, const ModelFactory &makeModel,
                     const RunOptions &options = {});

/// A model that computes nothing and has a loss of 0: to run the communication
/// of any program, or its timing with RunOptions::pace.
ModelFactory makeNullModel();

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_RUN_H
