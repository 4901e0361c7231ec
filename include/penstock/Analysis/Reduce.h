//===- Reduce.h - The smallest program with the same fault ------*- C++ -*-===//
//
// Shrinks a refused program until nothing more can be dropped without changing
// the verdict: micro-batches, ranks, stages, transfers, groups, actions and
// waits, by delta debugging, halves first. What comes out is small enough to
// read, to file and to keep as a test (docs/reduce.md).
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_ANALYSIS_REDUCE_H
#define PENSTOCK_ANALYSIS_REDUCE_H

#include "penstock/Analysis/Verify.h"
#include "penstock/Program/Result.h"

#include <functional>

namespace penstock {

/// What can be dropped. Numbers are closed up behind what is gone.
enum class Part : uint8_t {
  Microbatches, ///< with all that names them
  Ranks,        ///< with their stages, as below
  Stages, ///< what flowed through a stage then flows past it, or ends where it
          ///< was the first or last
  EmptiedRanks, ///< with the transfers from and to them; their stages move to
                ///< another rank
  Slots,        ///< all of them: the plan
  Groups,       ///< with the other ends of their transfers
  Transfers,    ///< both ends
  Collectives,  ///< on all ranks
  Actions,      ///< and whatever else a rank does on its own
  Joins,        ///< splits a group or an overlap
  Waits
};
inline constexpr unsigned kNumParts = 11;

/// How many parts of a kind a well-formed program has that could be dropped.
size_t countParts(const Program &program, Part part);
/// The program without the parts `first` to `first + count - 1` of a kind. It
/// may be ill-formed.
Program dropParts(const Program &program, Part part, size_t first,
                  size_t count);

struct ReduceOptions {
  /// Reduce an order, as in VerifyOptions.
  bool order = false;
  /// The verdict to keep: refused by this rule, whatever other rules say. By
  /// default, the same rule must stay the first that refuses the program.
  std::optional<Rule> rule;
  /// Called whenever the program has become smaller.
  std::function<void(const Program &)> progress;
};

struct Reduction {
  Program program;
  Verdict verdict;   ///< of it
  size_t trials = 0; ///< programs that were verified on the way
};

/// A program with the same verdict from which no single part can be dropped.
/// Same verdict: the same rule, and for a deadlock also the same outcome under
/// documented semantics and the same answer whether buffering helps. Fails when
/// the program, which must be well-formed, is not refused.
Result<Reduction> reduce(const Program &program,
                         const ReduceOptions &options = {});

/// Whether two verdicts are the same in that sense.
bool sameVerdict(const Verdict &a, const Verdict &b,
                 std::optional<Rule> rule = std::nullopt);

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_REDUCE_H
