//===- Simulate.h - When everything happens ---------------------*- C++ -*-===//
//
// Longest path over the events of an order or a program, with the costs of the
// problem. Linear.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_ANALYSIS_SIMULATE_H
#define PENSTOCK_ANALYSIS_SIMULATE_H

#include "penstock/Program/Program.h"
#include "penstock/Support/Memory.h"

#include <optional>
#include <span>
#include <vector>

namespace penstock {

struct RankTiming {
  double busy = 0;             ///< sum of the durations of the actions
  double start = 0, end = 0;   ///< first start and last end of an action
  int64_t peakActivations = 0; ///< stage activations alive at once, and those
                               ///< held for other ranks
  int32_t peakVersions = 1;    ///< of the weights of a stage, alive at once
  int64_t versionBytes = 0;    ///< of those beyond one, at most
  int64_t peakBytes = 0;       ///< persistent bytes and further versions of the
                               ///< weights plus the planned arena, or, for an
                               ///< order, plus the stashes alive at once
  int64_t peakHostBytes = 0;   ///< of stashes in host memory: the planned arena
                               ///< there, or before that those there at once
};

/// A time of every instruction, by rank.
class InstructionTimes {
public:
  InstructionTimes() = default;
  /// They have no value yet.
  explicit InstructionTimes(const Program &program)
      : times(program.numInstructions()) {
    for (const RankProgram &rank : program.ranks)
      ends.push_back(ends.back() + rank.instructions.size());
  }
  std::span<double> operator[](size_t rank) {
    return std::span(times).subspan(ends[rank], ends[rank + 1] - ends[rank]);
  }
  std::span<const double> operator[](size_t rank) const {
    return std::span(times).subspan(ends[rank], ends[rank + 1] - ends[rank]);
  }

private:
  std::vector<size_t> ends = {0}; ///< of the ranks before each
  BigArray<double> times;
};

struct Timing {
  bool ofOrder = false;  ///< by simulateOrder()
  double makespan = 0;   ///< end of the last action over all ranks
  double span = 0;       ///< max over ranks of end - start
  double bubbleRate = 0; ///< (span - busy of the busiest rank) / span; 0 if 0
  std::vector<RankTiming> ranks;
  InstructionTimes start, end;
  /// The copies to host memory and back; of an order all moves of stashes from
  /// the rank of their stage and back. Ascending.
  std::vector<Site> moves;
};

/// The literature's model: the actions of each rank strictly in order; an
/// action starts when its operands are there; a transfer is pure latency
/// (Link::time) that occupies nothing. The actions of an overlap take the sum
/// of their times and hand over nothing before the end. A stash moves beside
/// the actions: it starts to when the action before has ended, and only what
/// reads it waits until it is back. To another rank a move is a transfer, and
/// the activation counts as gone from its place in the list on: as where memory
/// is short, so that in the program what comes next waits for that room; where
/// it is not, one more is there while it moves, which memoryOverTime() shows of
/// a program. To host memory and back a rank makes one copy of
/// Problem::hostLink's time after the other, and the activation counts until it
/// is gone. Other instructions are ignored; they get
/// the end of the action before them. nullopt when the order cannot run (a
/// cycle or a missing action).
std::optional<Timing> simulateOrder(const Program &program);

/// The program as it stands, with its queues, waits and groups under closure
/// semantics: an item starts when its queue, its communicators and its waits
/// allow, a transfer occupies both queues for Link::time. nullopt when it
/// deadlocks.
std::optional<Timing> simulateProgram(const Program &program);
/// Only the start and the end of every instruction in it.
std::optional<Timing> playProgram(const Program &program);

/// Bytes that a rank holds whatever runs: parameters, gradients and optimizer
/// state of the stages placed on it (each copy counts).
std::vector<int64_t> persistentBytes(const Problem &problem);

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_SIMULATE_H
