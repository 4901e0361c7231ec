//===- Footprint.h - What a schedule holds and moves ------------*- C++ -*-===//
//
// The bytes of every rank: what stays, what its tensors need, and what it
// sends. For plans, and for messages that say where memory went.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_ANALYSIS_FOOTPRINT_H
#define PENSTOCK_ANALYSIS_FOOTPRINT_H

#include "penstock/Analysis/Simulate.h"

namespace penstock {

/// Bytes of a rank, by what they are for.
struct RankMemory {
  int64_t parameters = 0, gradients = 0, optimizer = 0;
  int64_t versions = 0;    ///< of weights beyond one of each, at their peak
  int64_t activations = 0; ///< of all micro-batches, at the peak of all

  int64_t persistent() const { return parameters + gradients + optimizer; }
  int64_t total() const { return persistent() + versions + activations; }
  bool operator==(const RankMemory &) const = default;
};

/// What a rank holds whatever runs: parameters, gradients and optimizer state
/// of the stages placed on it; with post-validation the optimizer state has a
/// copy of the parameters and of itself more. A stage that two chains have on
/// different ranks counts on both. No activations; the totals are
/// persistentBytes().
std::vector<RankMemory> persistentMemory(const Problem &problem);

/// That, and what a simulation of an order or a program of the problem found:
/// the total is its peakBytes.
std::vector<RankMemory> memoryOf(const Problem &problem, const Timing &timing);

/// Of each stage, the largest number of its stashes that are alive at once on a
/// rank, in a well-formed order or program.
std::vector<int64_t> stashesAlive(const Program &program);

/// What a rank sends in one step.
struct RankTraffic {
  int64_t transfers = 0; ///< activations, gradients and stashes
  int64_t bytes = 0;
  double time = 0; ///< sum of their times on the link

  bool operator==(const RankTraffic &) const = default;
};

/// The activations and gradients that each rank has to send in one step: those
/// between neighbouring stages on different ranks. Neither the sums of
/// gradients over the copies of a stage nor stashes are among them.
std::vector<RankTraffic> trafficOf(const Problem &problem);
/// As above, and the stashes that an order or a program moves.
std::vector<RankTraffic> trafficOf(const Program &program);

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_FOOTPRINT_H
