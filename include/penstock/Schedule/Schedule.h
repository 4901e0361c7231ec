//===- Schedule.h - From a problem to an order ------------------*- C++ -*-===//
//
// A schedule family is a rule that gives every rank the order of its actions.
// Each family is one page in lib/Schedule/Families: the order as arithmetic,
// its constraint, its closed forms, and the paper that it is from.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_SCHEDULE_SCHEDULE_H
#define PENSTOCK_SCHEDULE_SCHEDULE_H

#include "penstock/Program/Result.h"

#include <span>
#include <vector>

namespace penstock {

//===----------------------------------------------------------------------===//
// Placement
//===----------------------------------------------------------------------===//

/// Stage s on rank s mod p: one stage a rank, or a loop of several.
std::vector<int32_t> placeLoop(int32_t numStages, int32_t numRanks);
/// Along the ranks and back: 0 1 .. p-1 p-1 .. 1 0 0 1 .. and so on. Two stages
/// a rank are a V, 2 w stages a rank are w waves.
std::vector<int32_t> placeSnake(int32_t numStages, int32_t numRanks);
/// Two chains: stage s on rank s on the first, on rank S-1-s on the second.
/// Micro-batches without a chain: the first half, rounded up, on the first.
void placeBothWays(Problem &problem);

//===----------------------------------------------------------------------===//
// Families. Each takes a problem whose placement suits it (numStages, ranks and
// microbatches set) and returns an order: a Program of actions. A constraint
// that does not hold is a Failure that names it.
//===----------------------------------------------------------------------===//

/// F of all micro-batches one at a time, each followed by its B.
Result<Program> naive(const Problem &problem);
struct GPipeOptions {
  bool descending = false; ///< backwards from the last micro-batch to the first
  bool recompute = false;  ///< R before every B
};
/// All F, then all B, both ascending unless told otherwise.
Result<Program> gpipe(const Problem &problem, const GPipeOptions &options);
Result<Program> gpipe(const Problem &problem);
/// 1F1B (DAPPLE, PipeDream-Flush).
Result<Program> oneForwardOneBackward(const Problem &problem);
/// Eager 1F1B: twice the warm-up, which hides the latency of transfers.
Result<Program> eagerOneForwardOneBackward(const Problem &problem);
/// PipeDream: 1F1B with an update after every micro-batch.
Result<Program> pipeDream(const Problem &problem);
/// PipeDream-2BW: an update after every `group` micro-batches, at least as many
/// as ranks; 0 stands for the number of ranks.
Result<Program> pipeDream2BW(const Problem &problem, int32_t group = 0);
/// BPipe: 1F1B whose first ranks give activations to the last ones to hold.
Result<Program> bPipe(const Problem &problem);
/// Seq1F1B: 1F1B over the slices of the micro-batches, see setSlices().
Result<Program> seq1F1B(const Problem &problem);
/// ZB-V, the order written down by hand. Placed in a V.
Result<Program> zbV(const Problem &problem);
/// V-Half and V-Min: half and a third of the memory of 1F1B. Placed in a V.
Result<Program> vHalf(const Problem &problem);
Result<Program> vMin(const Problem &problem);
/// Hanayo. Placed in `waves` waves, 2 stages a rank in each.
Result<Program> hanayo(const Problem &problem, int32_t waves = 1);
/// DualPipeV, DualPipe cut in half. Placed in a V.
Result<Program> dualPipeV(const Problem &problem);
/// DualPipe. Placed both ways.
Result<Program> dualPipe(const Problem &problem);
/// Chimera. Placed both ways.
Result<Program> chimera(const Problem &problem);

// Zero-bubble families of one stage a rank; their backwards are split.
Result<Program> zbH1(const Problem &problem);
Result<Program> zbH2(const Problem &problem);

// Families whose stages run round the ranks in a loop, the same number on every
// rank. Micro-batches pass the chunks of a rank in groups of `group`; 0 stands
// for interleavedGroup().
Result<Program> interleaved1F1B(const Problem &problem, int32_t group = 0);
/// Chunk by chunk, all micro-batches of each (looped BFS).
Result<Program> breadthFirst(const Problem &problem);
/// Interleaved 1F1B with the weight parts of the backwards put off.
Result<Program> interleavedZB(const Problem &problem, int32_t group = 0);
/// Interleaved 1F1B with split backwards and a short warm-up.
Result<Program> gis(const Problem &problem, int32_t group = 0);

/// The smallest group that makes no bubble of its own: at least the number of
/// ranks, and dividing the micro-batches or leaving a last group that is no
/// smaller than the number of ranks either; all of them where they are fewer.
int32_t interleavedGroup(int32_t numRanks, int32_t numMicrobatches);

/// Replaces every B by I directly followed by W. What waited for B waits for W.
void splitBackward(Program &order);
/// Whether on every stage the F of a micro-batch's slices ascend and their B,
/// or I, descend, as causal attention needs. The order must be complete.
bool keepsSliceOrder(const Program &order);
/// Appends the optimizer step to every rank that has none.
void appendSteps(Program &order);

/// torch's schedule classes whose orders are those of our families: gpipe,
/// one_f_one_b, breadth_first, interleaved_1f1b, interleaved_zb, zb_v and
/// dualpipe_v.
enum class TorchSchedule : uint8_t {
  GPipe,
  OneForwardOneBackward,
  LoopedBFS,
  Interleaved1F1B,
  InterleavedZeroBubble,
  ZBVZeroBubble,
  DualPipeV
};
/// torch's name.
std::string_view name(TorchSchedule schedule);
/// The idle cells of torch's table: of each rank, how many stand in front of
/// each instruction, and behind the last. Fails when the order, but for its
/// steps, is another one than torch's.
Result<std::vector<std::vector<uint32_t>>>
torchIdleCells(const Program &order, TorchSchedule schedule);

//===----------------------------------------------------------------------===//
// Balance
//===----------------------------------------------------------------------===//

/// Largest product of layers and stages that balanceLayers takes: it needs four
/// bytes and some steps for each.
inline constexpr int64_t kMaxBalance = int64_t(1) << 26;

/// Cuts `costs.size()` layers into `numStages` contiguous non-empty parts with
/// the least possible maximum; among those the one with the least sum of
/// squares, then the one whose first cuts are earliest. Returns the first layer
/// of each part. Fails when there are more stages than layers, more of both
/// than kMaxBalance, or a cost is negative or not finite.
///
/// `placement` is that of Problem. Where it puts several stages on a rank, a
/// local search makes the largest sum of the parts of a rank as small as it
/// can, then the largest part: no layers that move from a part to another, one
/// or a power of two at a time, make it better. On one or two chains only.
Result<std::vector<int32_t>>
balanceLayers(std::span<const double> costs, int32_t numStages,
              std::span<const int32_t> placement = {});

/// What a stage may need: the parameters, gradients and optimizer state of its
/// layers, and `stashes` times their stashes, are at most `bytes`. Neither is
/// negative.
struct StageLimit {
  int64_t stashes = 0, bytes = 0;
};

/// As above, by the costs of layers, into parts that all keep to the limit of
/// their stage. Fails also where no cut does, and says which layer is too much.
/// Where ranks have several stages, what these need together is at most what
/// `rankBytes`, if there are any, has for the rank; fails also where the search
/// finds no such cut.
Result<std::vector<int32_t>>
balanceLayers(std::span<const Stage> layers, std::span<const StageLimit> limits,
              std::span<const int32_t> placement = {},
              std::span<const int64_t> rankBytes = {});

/// Makes `numStages` stages of layers, which are stages of one layer each: cut
/// by balanceLayers, the cost of a layer being that of its forward and
/// backward. A stage costs and keeps what its layers do together, and puts out
/// what its last layer puts out. Fails also when a sum is not finite or above
/// kMaxBytes.
Result<std::vector<Stage>> dealLayers(std::span<const Stage> layers,
                                      int32_t numStages,
                                      std::span<const int32_t> placement = {});

/// As above, into a stage for each limit that keeps to it.
Result<std::vector<Stage>> dealLayers(std::span<const Stage> layers,
                                      std::span<const StageLimit> limits,
                                      std::span<const int32_t> placement = {},
                                      std::span<const int64_t> rankBytes = {});

} // namespace penstock

#endif // PENSTOCK_SCHEDULE_SCHEDULE_H
