//===- Problem.h - What a schedule has to schedule --------------*- C++ -*-===//
//
// The problem is the plain-data form of a spec: stages with their costs and
// sizes, where each stage lives, how many micro-batches flow, and what the link
// and the memory of a rank are. Every later form (order, program, report)
// refers to it, and a program file carries it, so that a program can be
// verified and simulated where no compiler is installed.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_PROGRAM_PROBLEM_H
#define PENSTOCK_PROGRAM_PROBLEM_H

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

/// Time of one action on one stage and one whole micro-batch, in the user's
/// unit (the same unit as `Link`); durationOf() knows slices. All costs are
/// finite and >= 0.
struct StageCost {
  double forward = 1;   ///< F
  double backward = 2;  ///< B, by default input + weight
  double input = 1;     ///< I, the input-gradient part of B
  double weight = 1;    ///< W, the weight-gradient part of B
  double recompute = 1; ///< R, by default forward

  bool operator==(const StageCost &) const = default;
};

/// Sizes of one stage in bytes; `output` and `stash` are per whole micro-batch,
/// bytesOf() knows slices.
struct StageBytes {
  int64_t output = 0;     ///< activation handed to the next stage; the gradient
                          ///< that comes back for it has the same size
  int64_t stash = 0;      ///< kept from F to B, or to W where backward is split
  int64_t parameters = 0; ///< weights
  int64_t gradients = 0;  ///< accumulated weight gradients
  int64_t optimizer = 0;  ///< optimizer state

  bool operator==(const StageBytes &) const = default;
};

/// A stage: a contiguous part of the model, `numLayers` layers from
/// `firstLayer` on.
struct Stage {
  int32_t firstLayer = 0;
  int32_t numLayers = 1;
  StageCost cost;
  StageBytes bytes;

  bool operator==(const Stage &) const = default;
};

/// A link: between two ranks, or between a rank and the memory of its host. A
/// transfer of n bytes takes latency + n / bytesPerTime.
struct Link {
  double latency = 0;
  double bytesPerTime = 0; ///< 0: unlimited

  double time(int64_t bytes) const {
    return latency +
           (bytesPerTime > 0 ? static_cast<double>(bytes) / bytesPerTime : 0);
  }
  bool operator==(const Link &) const = default;
};

/// Upper limits of what a program can number. They keep every index in 32 bits
/// and let a loader refuse nonsense before it allocates.
inline constexpr int32_t kMaxRanks = 1 << 20;
inline constexpr int32_t kMaxStages = 1 << 20;
inline constexpr int32_t kMaxMicrobatches = 1 << 30;
inline constexpr int32_t kMaxChains = 256;
/// Largest size of one tensor, slot or part of a stage: 1 TiB. Sums stay in 64
/// bits.
inline constexpr int64_t kMaxBytes = int64_t(1) << 40;

/// Stages that use one parameter together, as the embedding of the first layer
/// and the head of a language model do. Each of their ranks has a copy of it
/// with a part of its gradient. `stages` is ascending.
struct TiedStages {
  std::vector<int32_t> stages;
  int64_t bytes = 0; ///< of the gradient of that parameter

  bool operator==(const TiedStages &) const = default;
};

/// The plain-data form of a spec.
struct Problem {
  std::string name;
  int32_t numRanks = 0;
  /// What flows and what instructions number: the micro-batches, or where they
  /// are cut into slices, these. See setSlices().
  int32_t numMicrobatches = 0;
  /// Slices that every micro-batch is cut into along its sequence. Micro-batch
  /// i is the slices i * slices .. (i + 1) * slices - 1; with causal attention
  /// each needs those before it forwards, and those after it backwards.
  int32_t slices = 1;
  std::vector<Stage> stages; ///< along the data flow
  /// Rank of each stage, one row of numStages() entries per chain: chain c
  /// places stage s on placement[c * numStages() + s]. One chain unless the
  /// schedule is bidirectional.
  std::vector<int32_t> placement;
  /// Chain of each micro-batch; empty: all on chain 0.
  std::vector<uint8_t> chains;
  /// Weight of each micro-batch in the loss of the step, for micro-batches of
  /// unequal numbers of tokens; empty: 1 / numMicrobatches each.
  std::vector<double> weights;
  /// Ascending by their first stages; no stage is in two of them.
  std::vector<TiedStages> tied;
  /// Actions that run together take this part less of what the shorter ones
  /// add to the longest: 0 as long as one after the other, 1 as long as the
  /// longest. See together().
  double overlap = 0;
  /// The optimizer steps before it knows the gradients of all ranks: each rank
  /// on what those before it know, and the next batch validates the steps,
  /// amends them where they were wrong, and is then void (docs/semantics.md).
  bool postValidation = false;
  Link link;
  /// The link between a rank and the memory of its host, one copy at a time:
  /// what it takes to offload or to reload a stash. By default no time.
  Link hostLink;
  int64_t memory = 0; ///< bytes a rank may use; 0: no limit

  int32_t numWholeMicrobatches() const { return numMicrobatches / slices; }
  int32_t numStages() const { return static_cast<int32_t>(stages.size()); }
  int32_t numChains() const {
    return stages.empty()
               ? 0
               : static_cast<int32_t>(placement.size() / stages.size());
  }
  int32_t chainOf(int32_t microbatch) const {
    return chains.empty() ? 0 : chains[microbatch];
  }
  /// The rank on which `stage` works on `microbatch`. Both must be in range.
  int32_t rankOf(int32_t stage, int32_t microbatch) const {
    return placement[static_cast<size_t>(chainOf(microbatch)) * stages.size() +
                     stage];
  }
  /// The ranks that hold the stage, for any micro-batch: ascending, none twice.
  std::vector<int32_t> ranksOf(int32_t stage) const;
  /// The ranks that hold one of the stages, likewise.
  std::vector<int32_t> ranksOf(const TiedStages &tied) const;
  /// The set whose first stage this is; null if there is none.
  const TiedStages *tiedAt(int32_t firstStage) const;
  double weightOf(int32_t microbatch) const {
    return weights.empty() ? 1.0 / numMicrobatches : weights[microbatch];
  }
  /// Time of actions that run together and take `sum` one after the other,
  /// `longest` of it the longest one.
  template <typename Time>
  Time together(Time sum, Time longest) const {
    return sum -
           static_cast<Time>(overlap * static_cast<double>(sum - longest));
  }
  bool operator==(const Problem &) const = default;
};

/// Cuts the micro-batches anew, each into `slices` >= 1 parts of equal length.
/// If there are then more than kMaxMicrobatches, the problem is not
/// well-formed.
inline void setSlices(Problem &problem, int32_t slices) {
  const int64_t units =
      static_cast<int64_t>(problem.numWholeMicrobatches()) * slices;
  problem.numMicrobatches =
      static_cast<int32_t>(units < INT32_MAX ? units : INT32_MAX);
  problem.slices = slices;
}

} // namespace penstock

#endif // PENSTOCK_PROGRAM_PROBLEM_H
