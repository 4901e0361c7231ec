//===- FitLayers.cpp - Layers into the memory of the ranks ----------------===//
//
// What a stage may need is clear where a rank has one stage: all of its memory;
// then the cut is the best that fits. Where ranks have several stages, these
// share it, and their stashes need not be most at the same time: the sum of
// what the stages of a rank need, which balancing keeps to a limit, is more
// than what the rank does. A rank that lacks memory lowers that limit by what
// is missing, and the layers are cut again. Where that finds nothing, the rank
// takes it from the limit of one of its stages instead, busy or not. Both end,
// as limits only shrink, but may miss a cut that fits.
//
//===----------------------------------------------------------------------===//

#include "penstock/Analysis/LiveRanges.h"
#include "penstock/Lowering/Estimate.h"
#include "penstock/Schedule/Schedule.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace penstock {

/// Cuts that are tried before it is given up.
static constexpr int kMaxRounds = 64;

namespace {
/// What the stages of an order need, whatever their layers are.
class Fit {
public:
  explicit Fit(const Program &order);

  /// What gives up what a rank lacks; false: nothing can.
  using Giver = bool (Fit::*)(int32_t rank, int64_t lack);
  /// The limit of what the stages of the rank need together.
  bool takeFromAll(int32_t rank, int64_t lack);
  /// The limit of one of them, which can give up a layer.
  bool takeFromOne(int32_t rank, int64_t lack);
  /// Takes what ranks lack with these stages. Gives whether none lacks
  /// anything, or nullopt where nothing can give it up.
  std::optional<bool> tighten(const std::vector<Stage> &stages, Giver take);
  bool hasSeveralStages() const {
    return std::any_of(stagesOn.begin(), stagesOn.end(),
                       [](const auto &stages) { return stages.size() > 1; });
  }
  /// Gives the stages of a rank equal shares of its memory.
  void share();

  std::vector<StageLimit> limits;
  std::vector<int64_t> rankBytes; ///< limits of the stages of each rank

private:
  int64_t needOf(int32_t stage) const {
    const StageBytes &bytes = problem.stages[stage].bytes;
    return bytes.parameters + bytes.gradients + bytes.optimizer +
           limits[stage].stashes * bytes.stash;
  }

  Problem problem;
  std::vector<std::vector<int32_t>> stagesOn;  ///< each rank
  std::vector<std::vector<LiveRange>> stashes; ///< on each rank
  std::vector<size_t> sizes;                   ///< of the lists of the ranks
};
} // namespace

Fit::Fit(const Program &order)
    : rankBytes(order.problem.numRanks, std::numeric_limits<int64_t>::max()),
      problem(order.problem), stagesOn(problem.numRanks) {
  const std::vector<int64_t> alive = stashesAlive(order);
  for (int32_t s = 0; s < problem.numStages(); ++s) {
    limits.push_back({alive[s], problem.memory});
    for (int32_t rank : problem.ranksOf(s))
      stagesOn[rank].push_back(s);
  }
  LiveRangeFinder finder(problem, LiveRangeFinder::Stashes);
  for (const RankProgram &rank : order.ranks) {
    sizes.push_back(rank.instructions.size());
    stashes.push_back(finder.run(rank.instructions,
                                 [](uint32_t, const Access &, int32_t) {}));
  }
}

bool Fit::takeFromAll(int32_t rank, int64_t lack) {
  // In the order of `placement`, which may have a stage on it twice.
  int64_t need = 0;
  for (size_t i = 0; i < problem.placement.size(); ++i)
    if (problem.placement[i] == rank)
      need += needOf(static_cast<int32_t>(i % problem.stages.size()));
  rankBytes[rank] = std::clamp<int64_t>(need - lack, 0, rankBytes[rank]);
  return true;
}

bool Fit::takeFromOne(int32_t rank, int64_t lack) {
  // Of the stages that can give up a layer, the one that needs most.
  int64_t most = -1;
  StageLimit *limit = nullptr;
  for (int32_t s : stagesOn[rank])
    if (problem.stages[s].numLayers > 1 && needOf(s) > most) {
      most = needOf(s);
      limit = &limits[s];
    }
  if (limit)
    limit->bytes = std::clamp<int64_t>(most - lack, 0, limit->bytes);
  return limit;
}

std::optional<bool> Fit::tighten(const std::vector<Stage> &stages, Giver take) {
  problem.stages = stages;
  const std::vector<int64_t> persistent = persistentBytes(problem);
  bool fits = true;
  for (int32_t rank = 0; rank < problem.numRanks; ++rank) {
    const Peak peak = peakOf(problem, sizes[rank], stashes[rank]);
    const int64_t lack = persistent[rank] + peak.bytes - problem.memory;
    if (lack <= 0)
      continue;
    fits = false;
    if (!(this->*take)(rank, lack))
      return std::nullopt;
  }
  return fits;
}

void Fit::share() {
  for (StageLimit &limit : limits)
    limit.bytes = problem.memory;
  for (const std::vector<int32_t> &stages : stagesOn)
    for (int32_t s : stages)
      limits[s].bytes =
          std::min(limits[s].bytes,
                   problem.memory / static_cast<int64_t>(stages.size()));
}

Result<std::vector<Stage>> fitLayers(std::span<const Stage> layers,
                                     const Program &order) {
  Result<std::vector<Stage>> stages = order.problem.stages;
  if (order.problem.memory == 0)
    return stages;
  Fit fit(order);
  const std::span<const int32_t> placement = order.problem.placement;
  if (fit.hasSeveralStages()) {
    for (int round = 0; stages && round < kMaxRounds; ++round) {
      if (fit.tighten(*stages, &Fit::takeFromAll) == true)
        return stages;
      stages = dealLayers(layers, fit.limits, placement, fit.rankBytes);
    }
    stages = dealLayers(layers, order.problem.numStages());
  }
  // The stages that there are cost least.
  for (int round = 0; stages && round < kMaxRounds; ++round) {
    const std::optional<bool> fits = fit.tighten(*stages, &Fit::takeFromOne);
    if (fits == true)
      return stages;
    if (!fits)
      break;
    stages = dealLayers(layers, fit.limits);
  }
  fit.share();
  return dealLayers(layers, fit.limits);
}

} // namespace penstock
