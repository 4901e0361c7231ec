//===- Estimate.h - What a schedule would cost ------------------*- C++ -*-===//
//
// Time, memory and traffic of an order, in a form that schedules are compared
// by, and the fit of a model's layers into the memory that an order needs.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_LOWERING_ESTIMATE_H
#define PENSTOCK_LOWERING_ESTIMATE_H

#include "penstock/Analysis/Footprint.h"
#include "penstock/Program/Result.h"
#include "penstock/Schedule/Plan.h"

#include <functional>
#include <optional>
#include <span>
#include <string>

namespace penstock {

/// The stages of an order, cut anew from the layers of the model if the stashes
/// and what a rank holds whatever runs are more than its memory. The order says
/// how many stages there are, where, and how long stashes live; its own stages
/// must be those of dealLayers. It must be well-formed and complete. Where
/// every rank has one stage the cut is the best that fits, and a failure says
/// why none does; where ranks have several, some other cut may fit. What
/// transfers need comes on top.
Result<std::vector<Stage>> fitLayers(std::span<const Stage> layers,
                                     const Program &order);

/// What a schedule costs.
struct Estimate {
  /// Why it cannot be used: a constraint of its family, an order that cannot
  /// run, or more memory than a rank has. Empty: it can.
  std::string reason;
  /// Where it cannot run at all, nothing below is known.
  bool runs = false;
  int32_t numStages = 0;
  /// Weights are updated while micro-batches are in the pipe: another training
  /// than that of the whole batch.
  bool asynchronous = false;
  double makespan = 0, span = 0, bubbleRate = 0; ///< as Timing has them
  /// Of the rank that has most, a count of slices where micro-batches are cut.
  int64_t peakActivations = 0;
  int32_t slices = 1; ///< of a micro-batch
  std::vector<RankMemory> memory;
  int32_t fullest = 0; ///< the first of the ranks that need most bytes
  /// Of all ranks, in one step.
  RankTraffic traffic;
  /// Over ranks, the largest share that the transfers that a rank sends are of
  /// its time in actions: how much of it they have to hide behind.
  double linkShare = 0;

  bool feasible() const { return reason.empty(); }
  int64_t peakBytes() const { return runs ? memory[fullest].total() : 0; }
};

/// Estimates a well-formed order in the model of the literature, or with
/// `lower` the program that it becomes, buffers planned; the figures are those
/// that simulateOrder and simulateProgram find. A failure gives its reason.
Estimate estimate(Result<Program> order, bool lower = false);

inline constexpr int64_t kMaxTriedActions = int64_t(1) << 21;

/// A number of micro-batches with which the bubble rate is at most `target`,
/// the least of those that are tried. `make` gives the order of the problem it
/// gets, in which only numMicrobatches and what it makes of them is another
/// one, `form`, if there is one, the bubble rate where it holds; elsewhere the
/// order is simulated. A number for which there is no order, or one that cannot
/// run, is not enough. Tried are all numbers from 1 on, as long as simulating
/// them takes `maxActions` in all: the least one up to there is found even if
/// the rate rises again behind it. From there on they are doubled, and the last
/// interval is halved, as if the rate never rose, up to what `form` gives, or
/// orders of a quarter as many actions. Nullopt if none of them is enough.
std::optional<int32_t>
leastMicrobatches(Problem problem,
                  const std::function<Result<Program>(Problem &)> &make,
                  const std::optional<BubbleForm> &form, double target,
                  int64_t maxActions = kMaxTriedActions);

/// What schedules are compared by; less is better.
enum class EstimateKey : uint8_t { Makespan, Span, Memory };

/// Whether `a` is better than `b`: feasible ones first, then others that run,
/// each by `key` and then by the others.
bool isBetter(const Estimate &a, const Estimate &b, EstimateKey key);

} // namespace penstock

#endif // PENSTOCK_LOWERING_ESTIMATE_H
