//===- CriticalPath.h - What the time goes to -------------------*- C++ -*-===//
//
// Why a simulated order or program takes as long as it does: the chain of
// actions and transfers from time 0 to the makespan, and what every rank waits
// for when it does not work. All functions take a program and the Timing that
// simulateOrder() or simulateProgram() found for it, and are linear.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_ANALYSIS_CRITICALPATH_H
#define PENSTOCK_ANALYSIS_CRITICALPATH_H

#include "penstock/Analysis/Simulate.h"

#include <array>
#include <vector>

namespace penstock {

/// One link of the critical path.
struct CriticalStep {
  /// The first instruction of an item, a copy to host memory or back among
  /// them; of a transfer the send that takes the longest of all that run in the
  /// same step. An order has no sends: there it is the action that the transfer
  /// ends at, or the move of a stash.
  Site site;
  int32_t source = -1, destination = -1; ///< ranks of a transfer; else -1
  double start = 0, end = 0;

  bool isTransfer() const { return source >= 0; }
  bool operator==(const CriticalStep &) const = default;
};

/// A longest chain: it starts at time 0, each step starts when the one before
/// it ends, because it comes behind it on a queue or a communicator, waits for
/// it, meets an item that does, or of an order needs its result; the last one
/// is an action that ends at the makespan. The time of its steps adds up to the
/// makespan: to shorten anything else helps nothing. Where several chains are
/// as long, it keeps to a rank while it can, else goes to the lowest one.
std::vector<CriticalStep> criticalPath(const Program &program,
                                       const Timing &timing);

/// What the time of a critical path goes to.
struct PathSummary {
  /// Time of F, B, I, W and R, as numbered in Op. The actions of an overlap
  /// have shares of its time in proportion to their own.
  using Actions = std::array<double, 5>;
  struct LinkTime {
    int32_t source = 0, destination = 0; ///< ranks
    double time = 0;
  };

  Actions actions = {};
  std::vector<Actions> stages; ///< the same for each stage
  double copies = 0;           ///< to host memory and back
  double transfers = 0;
  std::vector<LinkTime> links; ///< the same for each pair of ranks, ascending;
                               ///< without those that take none
};
PathSummary summarize(const Program &program,
                      const std::vector<CriticalStep> &path);

/// The time in which a rank runs no action, by what for. With its busy time it
/// adds up to the makespan, where the actions of a rank run one at a time.
struct RankWaiting {
  double first = 0;     ///< before its first action
  double transfers = 0; ///< between actions, for a transfer, or a copy to host
                        ///< memory or back, under way
  double others = 0;    ///< between actions, for what others have yet to do
  double end = 0;       ///< from its last action to the makespan

  bool operator==(const RankWaiting &) const = default;
};
std::vector<RankWaiting> waitingTimes(const Program &program,
                                      const Timing &timing);

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_CRITICALPATH_H
