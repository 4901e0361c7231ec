//===- Watchdog.h - Turns a hang into an error ------------------*- C++ -*-===//
//
// A thread that looks at the progress of all ranks. When nothing has ended and
// nothing works for too long, it explains from the flight recorder who waits
// for whom, in the words of the verifier, and fails the run.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_WATCHDOG_H
#define PENSTOCK_RUNTIME_WATCHDOG_H

#include "penstock/Analysis/Verify.h"
#include "penstock/Runtime/Executor.h"

#include <algorithm>
#include <span>
#include <thread>

namespace penstock::runtime {

/// Time in which the process was awake: what passes between two looks counts
/// only up to a limit, so that a suspended process does not time out.
class AwakeTime {
public:
  using Clock = std::chrono::steady_clock;
  AwakeTime(Clock::time_point now, Clock::duration limit)
      : last(now), limit(limit) {}

  /// The time since the beginning.
  Clock::duration at(Clock::time_point now) {
    total += std::min(now - last, limit);
    last = now;
    return total;
  }

private:
  Clock::time_point last;
  const Clock::duration limit;
  Clock::duration total{0};
};

class Watchdog {
public:
  /// How many seconds the ranks of other processes have to say where they are.
  /// Those that are frozen or lost are not waited for.
  static constexpr double kAnswerTime = 0.4;

  /// What is asked about the ranks of other processes.
  struct Others {
    /// Those of which nothing has been heard for so many seconds.
    std::function<std::vector<int32_t>(double seconds)> silentRanks;
    /// Brings what their recorders have of the present step into that of this
    /// process; returns the ranks that have answered within so many seconds.
    std::function<std::vector<int32_t>(double seconds)> join;
  };

  /// `timeout` and `callTimeout` as in RunOptions. Watches the executors of
  /// this process until destroyed.
  Watchdog(const Program &program, std::vector<const Executor *> executors,
           const Recorder &recorder, RunControl &control, double timeout,
           double callTimeout, Others others = {});
  ~Watchdog();

  /// While above zero the host itself is at work (a callback), and nothing
  /// counts as a hang.
  std::atomic<int> hostAtWork = 0;
  /// While above zero ranks of this process connect. That may take its time, if
  /// only all other processes give signs of life.
  std::atomic<int> connecting = 0;
  /// Counts how often another process was at work: a rank may wait for it.
  std::atomic<uint64_t> workOfOthers = 0;

  /// Whether something of this process works, or has ended anything since
  /// `progress`, which becomes the present progress.
  bool isAtWork(uint64_t &progress) const;

private:
  void watch();
  /// Where all ranks are, as far as they answer.
  std::string describeRanks() const;
  Error describeTimeout() const;

  const Program &program;
  const std::vector<const Executor *> executors;
  const Recorder &recorder;
  RunControl &control;
  const double timeout, callTimeout;
  const Others others;

  std::mutex mutex;
  std::condition_variable wake;
  bool stopping = false;
  std::thread thread;
};

/// For each of `ranks`, those that are known of, the instruction that each
/// queue is in or stands before, and for whom it waits; then the cycle of
/// waits, of what hangs or, where other ranks have a part in it, of the
/// program. Lines, the last without a newline.
std::string describeHang(const Program &program, const Recorder &recorder,
                         std::span<const int32_t> ranks);

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_WATCHDOG_H
