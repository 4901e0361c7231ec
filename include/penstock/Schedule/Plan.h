//===- Plan.h - How many micro-batches, and what they cost ------*- C++ -*-===//
//
// Answers before anything is scheduled: how many micro-batches a batch gives,
// what bubble a family has by its closed form, and how many micro-batches it
// takes to keep that below a target. For what has no closed form, or stages
// that are not equal, there is the simulator (Lowering/Estimate.h).
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_SCHEDULE_PLAN_H
#define PENSTOCK_SCHEDULE_PLAN_H

#include "penstock/Program/Result.h"

#include <string_view>

namespace penstock {

/// What a closed form is about: equal stages and free transfers.
struct EqualStages {
  int32_t numRanks = 1;
  int32_t chunks = 1;  ///< stages on every rank, of the families that take any
  StageCost cost = {}; ///< of one stage and one micro-batch
  double overlap = 0;  ///< as Problem has it
  int32_t slices = 1;  ///< of a micro-batch, of seq_1f1b
};

/// The closed form of a family's bubble: the part of the span in which the
/// busiest rank does not work, in units of the costs.
struct BubbleForm {
  double fixed = 0;         ///< whatever m is
  double perMicrobatch = 0; ///< for every micro-batch
  double perMissing = 0;    ///< for every micro-batch fewer than ranks
  int32_t numRanks = 1;
  /// Of the busiest rank: for every micro-batch, and whatever m is.
  double work = 0, fixedWork = 0;
  /// The m for which it holds: multiples of `multiple` from `first` to `last`.
  int32_t first = 1, multiple = 1, last = kMaxMicrobatches;

  bool holds(int32_t numMicrobatches) const {
    return numMicrobatches >= first && numMicrobatches <= last &&
           numMicrobatches % multiple == 0;
  }
  double bubble(int32_t numMicrobatches) const;
  /// bubble / (bubble + work of all micro-batches): the bubble rate.
  double fraction(int32_t numMicrobatches) const;
  /// The least m for which it holds and fraction(m) <= target; 0 if there is
  /// none.
  int32_t least(double target) const;
};

/// The closed form of a family, named as in the dialect, with its default
/// parameters; docs/schedules.md has the formulas and their papers. For a
/// recomputing gpipe add R to `work`. Fails for a family that has none, and for
/// costs for which it does not hold.
Result<BubbleForm> bubbleForm(std::string_view family,
                              const EqualStages &stages);

/// The bubble rate by the closed form. Fails as bubbleForm, and for a number of
/// micro-batches for which the form does not hold.
Result<double> bubbleFraction(std::string_view family,
                              const EqualStages &stages,
                              int32_t numMicrobatches);

/// The least number of micro-batches with a bubble rate of at most `target`, by
/// the closed form; Lowering/Estimate.h has one that looks beyond it. Fails as
/// bubbleForm, for a target that is not in [0, 1),
/// and where no number that the form holds for is enough.
Result<int32_t> leastMicrobatches(std::string_view family,
                                  const EqualStages &stages, double target);

/// Micro-batches of one pipeline for each step: `globalBatch` sequences over
/// `replicas` copies of the pipeline (the data-parallel size), `size` sequences
/// in each micro-batch. Fails where they do not divide, and names the nearest
/// values that do, and where there are more than kMaxMicrobatches.
Result<int32_t> microbatchesOf(int64_t globalBatch, int64_t replicas,
                               int64_t size);

/// Time to offload all that a transformer keeps from its forwards, as a
/// multiple of the time to compute: 10 Bc / (3 (6h + s) Bo), with h the hidden
/// size, s the sequence length, Bc `flopsPerTime`, floating-point operations,
/// and Bo `bytesPerTime`, bytes over the link to host memory. Up to 1
/// everything can be offloaded behind the compute. From PipeOffload (X. Wan et
/// al., 2025), whose measurements lie below it for s > h. Fails unless all are
/// positive.
Result<double> offloadRatio(double hiddenSize, double sequenceLength,
                            double flopsPerTime, double bytesPerTime);

} // namespace penstock

#endif // PENSTOCK_SCHEDULE_PLAN_H
