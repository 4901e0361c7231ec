//===- MemoryOverTime.h - What is held when ---------------------*- C++ -*-===//
//
// The activations and bytes of every rank as functions of simulated time.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_ANALYSIS_MEMORYOVERTIME_H
#define PENSTOCK_ANALYSIS_MEMORYOVERTIME_H

#include "penstock/Analysis/Simulate.h"

#include <vector>

namespace penstock {

/// From `time` on to the next step.
struct MemoryStep {
  double time = 0;
  int64_t activations = 0; ///< stage activations alive, as RankTiming counts
  int64_t bytes = 0; ///< persistent bytes, further versions of the weights
                     ///< and all tensors alive, of an order the stashes

  bool operator==(const MemoryStep &) const = default;
};

/// What each rank of a well-formed order or program holds over time, given the
/// Timing that was simulated for it: steps by ascending time, the first at 0,
/// each different from the one before. A tensor is there from the start of what
/// writes it to the end of what touches it last; one that is there for no time
/// does not count. So the largest values are those of RankTiming where every
/// action takes time and a rank has one queue; with slots, which are there all
/// the time, they are less. n log n in the instructions of a rank.
std::vector<std::vector<MemoryStep>> memoryOverTime(const Program &program,
                                                    const Timing &timing);

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_MEMORYOVERTIME_H
