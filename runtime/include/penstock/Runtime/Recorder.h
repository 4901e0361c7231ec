//===- Recorder.h - When every instruction was issued and ran ---*- C++ -*-===//
//
// The flight recorder: for each rank and each of the last few steps, the times
// at which every instruction was enqueued, started and ended. The watchdog
// reads it while the run hangs; afterwards it gives measured costs, the
// measured bubble and a Chrome trace.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_RECORDER_H
#define PENSTOCK_RUNTIME_RECORDER_H

#include "penstock/Program/Program.h"

#include <atomic>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::runtime {

/// Times of one instruction in one step, in nanoseconds of the steady clock; 0:
/// not yet. Written by the host and the queues, read by anyone.
struct Stamps {
  std::atomic<int64_t> enqueued = 0, started = 0, ended = 0;
};

/// One rank in one step, in seconds of the steady clock.
struct RankStep {
  double start = 0, end = 0; ///< first start and last end of an action
  double busy = 0;           ///< sum of the actions
};

class Recorder {
public:
  /// Keeps the last `numSteps` steps of every rank. The program must outlive
  /// the recorder.
  explicit Recorder(const Program &program, unsigned numSteps = 2);

  /// \name Of the executor of `rank`
  /// @{

  /// Before the first step: the present step of the rank always has the same
  /// row, so that who writes to it need not be told of a new one.
  void keepInPlace(int32_t rank);
  /// Opens a row for a new step, in place of the oldest. Only the leader of a
  /// group (see leader()) needs stamps; the others share them.
  Stamps *beginStep(int32_t rank, int64_t step);
  /// Closes it; its times count in meanCosts() when `measure` is set.
  RankStep endStep(int32_t rank, int64_t step, bool measure);
  /// @}

  /// \name At any time
  /// @{

  /// The step that the rank is in, or was in last; -1 before the first.
  int64_t currentStep(int32_t rank) const {
    return ranks[rank].step.load(std::memory_order_acquire);
  }
  /// The instruction that carries the stamps: the first member for a member of
  /// a group, else itself.
  uint32_t leader(int32_t rank, uint32_t instruction) const {
    return ranks[rank].leader[instruction];
  }
  /// The times of an instruction in a step that is kept.
  const Stamps &stamps(int32_t rank, int64_t step, uint32_t instruction) const {
    return rowOf(rank, step)[leader(rank, instruction)];
  }
  /// The instruction that the rank has ended last, and its step, in words;
  /// empty: none of those that are kept.
  std::string lastEnded(int32_t rank) const;

  /// The present step of a rank as bytes, and back in a recorder of another
  /// process with the same program. False if they are not such bytes.
  std::string packStep(int32_t rank) const;
  bool unpackStep(int32_t rank, std::string_view bytes);
  /// @}

  /// \name When the run has ended
  /// @{

  /// All of a rank as bytes, and back in a recorder of another process with the
  /// same program and number of steps. False if they are not such bytes. On
  /// several machines the clocks differ, and then so do the times of ranks.
  std::string pack(int32_t rank) const;
  bool unpack(int32_t rank, std::string_view bytes);

  /// The problem with what was measured in place of its costs, in seconds: the
  /// mean of each (stage, action), and as link latency the mean time of a
  /// transfer once both ends were there. A simulation with it predicts from
  /// measured times. Actions that did not run cost 0.
  Problem measuredProblem() const;

  /// The kept steps as Chrome trace events, for Perfetto or chrome://tracing:
  /// a rank is a process, a queue a thread, arrows lead from sends to receives.
  /// Beside each rank is what the simulator predicts for it, from the measured
  /// times or, where not every action was measured, from the costs of the
  /// program in a scale that fits those that have ended; the name says which.
  /// A predicted step begins where the step began, or where the prediction for
  /// the one before ends.
  void writeTrace(std::ostream &os) const;
  /// @}

private:
  struct Cost {
    double sum = 0;
    int64_t count = 0;
  };
  struct Rank {
    std::atomic<int64_t> step = -1;
    std::vector<uint32_t> leader;
    std::vector<std::vector<Stamps>> rows;
    std::vector<Stamps> present; ///< in place of a row; see keepInPlace
    std::vector<Cost> costs;     ///< numStages x 5 actions
  };

  const std::vector<Stamps> &rowOf(int32_t rank, int64_t step) const {
    const Rank &own = ranks[rank];
    return !own.present.empty() && step == currentStep(rank)
               ? own.present
               : own.rows[step % numSteps];
  }
  /// First of the kept steps of a rank.
  int64_t firstStep(int32_t rank) const;

  const Program &program;
  const int64_t numSteps;
  std::vector<Rank> ranks;
};

/// Writes what Recorder::measuredProblem() has measured as text of the
/// compiler: a `pipe.model` whose layers have equal shares of the times and
/// bytes of their stage, and a `pipe.cluster` with the ranks, the memory and
/// the latency. Times are seconds, to four digits; an action that has not run
/// has the default of
/// `#pipe.cost`. The stages must be cut from the model as they were to be
/// measured for the sums to be right; a layer that is not the last of its stage
/// has the output of that or, in the last stage, what the stage receives.
void writeProfile(std::ostream &os, const Problem &measured);

/// The bubble rate of one step, as the simulator defines it: (span - busy of
/// the busiest rank) / span, span the longest of the ranks; 0 if that is 0.
double bubbleRate(const std::vector<RankStep> &ranks);

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_RECORDER_H
