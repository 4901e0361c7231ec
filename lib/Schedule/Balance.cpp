//===- Balance.cpp - Layers over stages -----------------------------------===//
//
// Chain partition with the least maximum. Costs become integers first, so that
// sums are exact and equal layers tie exactly. Binary search finds the least
// bound; under that bound a dynamic program from the back finds the least sum
// of squares, and walking it forward with the earliest cut breaks the last
// ties. The square of a sum is convex, so the best cut never moves back when
// the part begins later: each row of the program takes n log n steps.
//
//===----------------------------------------------------------------------===//

#include "penstock/Schedule/Schedule.h"

#include "penstock/Program/Text.h"

#include <cmath>
#include <limits>
#include <string>

namespace penstock {

namespace {
/// A sum of squares of numbers below 2^60 needs 128 bits.
__extension__ typedef unsigned __int128 Wide;
} // namespace

/// Prefix sums of the costs in units so small that rounding is below 1e-12 of
/// the total, where there are up to a million layers.
static std::vector<int64_t> prefixSums(std::span<const double> costs) {
  double largest = 0;
  for (double cost : costs)
    largest = std::max(largest, cost);
  const int bits = largest > 0
                       ? 57 - std::ilogb(largest) -
                             std::ilogb(static_cast<double>(costs.size()) + 1)
                       : 0;
  std::vector<int64_t> sums(costs.size() + 1, 0);
  for (size_t i = 0; i < costs.size(); ++i)
    sums[i + 1] = sums[i] + std::llround(std::ldexp(costs[i], bits));
  return sums;
}

/// Whether `parts` parts of at most `bound` each suffice, filled greedily.
static bool fits(const std::vector<int64_t> &sums, int32_t parts,
                 int64_t bound) {
  size_t begin = 0;
  const size_t n = sums.size() - 1;
  for (int32_t part = 0; part < parts && begin < n; ++part) {
    size_t end = begin;
    while (end < n && sums[end + 1] - sums[begin] <= bound)
      ++end;
    if (end == begin)
      return false;
    begin = end;
  }
  return begin == n;
}

namespace {
constexpr Wide kImpossible = ~static_cast<Wide>(0);

/// One row of the dynamic program: all ways to put one more part in front.
struct Row {
  const std::vector<int64_t> &sums;
  int64_t bound;
  const std::vector<Wide> &best; ///< sum of squares of what is behind a cut
  std::vector<Wide> &next;       ///< and with the part in front of it
  int32_t *cut;                  ///< its earliest end

  /// Fills [from, to), the cuts of which are in [first, last]. Halves the
  /// range, so that it is never deep.
  void fill(int32_t from, int32_t to, int32_t first, int32_t last) {
    if (from >= to)
      return;
    const int32_t i = from + (to - from) / 2;
    for (int32_t j = std::max(first, i + 1);
         j <= last && sums[j] - sums[i] <= bound; ++j) {
      if (best[j] == kImpossible)
        continue;
      const auto sum = static_cast<Wide>(sums[j] - sums[i]);
      if (const Wide total = sum * sum + best[j]; total < next[i]) {
        next[i] = total;
        cut[i] = j;
      }
    }
    // Where nothing fits, nothing fits further in front either.
    const bool fits = next[i] != kImpossible;
    if (fits)
      fill(from, i, first, cut[i]);
    fill(i + 1, to, fits ? cut[i] : first, last);
  }
};
} // namespace

Result<std::vector<int32_t>> balanceLayers(std::span<const double> costs,
                                           int32_t numStages) {
  const auto n = static_cast<int32_t>(costs.size());
  if (numStages < 1)
    return Failure{"there are no stages to put layers on; give at least one"};
  if (numStages > n)
    return Failure{std::to_string(numStages) +
                   " stages need at least as many "
                   "layers, but there are " +
                   std::to_string(n) +
                   "; use fewer stages or cut the model into more layers"};
  if (int64_t(numStages) * n > kMaxBalance)
    return Failure{std::to_string(n) + " layers on " +
                   std::to_string(numStages) +
                   " stages are too many to balance, their product is above " +
                   std::to_string(kMaxBalance) +
                   "; make one layer of several, or use fewer stages"};
  for (int32_t i = 0; i < n; ++i)
    if (!(costs[i] >= 0) || !std::isfinite(costs[i]))
      return Failure{"layer " + std::to_string(i) + " costs " +
                     formatNumber(costs[i]) +
                     "; a cost must be finite and at least 0"};

  const std::vector<int64_t> sums = prefixSums(costs);
  int64_t low = 0, high = sums[n];
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (fits(sums, numStages, middle))
      high = middle;
    else
      low = middle + 1;
  }
  const int64_t bound = low;

  // best[k][i]: least sum of squares of the layers from i on in k + 1 parts,
  // and cut[k][i]: the earliest end of the first of them that reaches it.
  const size_t width = static_cast<size_t>(n) + 1;
  std::vector<Wide> best(width, kImpossible), next(width);
  std::vector<int32_t> cut(static_cast<size_t>(numStages) * width, n);
  for (int32_t i = 0; i < n; ++i)
    if (sums[n] - sums[i] <= bound) {
      const auto sum = static_cast<Wide>(sums[n] - sums[i]);
      best[i] = sum * sum;
    }
  for (int32_t k = 1; k < numStages; ++k) {
    next.assign(width, kImpossible);
    Row{sums, bound, best, next, &cut[k * width]}.fill(0, n - k, 1, n - k);
    best.swap(next);
  }

  std::vector<int32_t> first(numStages, 0);
  for (int32_t k = numStages - 1, s = 1; s < numStages; ++s, --k)
    first[s] = cut[k * width + first[s - 1]];
  return first;
}

/// The sum over layers of one field of `cost` or `bytes`; what it counts is
/// named when the sum is out of range.
template <typename Part, typename T>
static T sum(std::span<const Stage> layers, Part Stage::*part, T Part::*field,
             T limit, const char *what, std::string &fault) {
  T total = 0;
  for (const Stage &layer : layers) {
    const T value = layer.*part.*field;
    if (!(value >= 0 && value <= limit - total)) {
      if (fault.empty())
        fault = what;
      return limit;
    }
    total += value;
  }
  return total;
}

Result<std::vector<Stage>> dealLayers(std::span<const Stage> layers,
                                      int32_t numStages) {
  std::vector<double> costs(layers.size());
  for (size_t i = 0; i < layers.size(); ++i)
    costs[i] = layers[i].cost.forward + layers[i].cost.backward;
  Result<std::vector<int32_t>> cuts = balanceLayers(costs, numStages);
  if (!cuts)
    return cuts.failure();
  cuts->push_back(static_cast<int32_t>(layers.size()));

  std::vector<Stage> stages(numStages);
  for (int32_t s = 0; s < numStages; ++s) {
    const int32_t first = (*cuts)[s], end = (*cuts)[s + 1];
    const std::span<const Stage> part = layers.subspan(first, end - first);
    std::string time, size;
    auto addTimes = [&](double StageCost::*field, const char *what) {
      constexpr double kLimit = std::numeric_limits<double>::max();
      return sum(part, &Stage::cost, field, kLimit, what, time);
    };
    auto addBytes = [&](int64_t StageBytes::*field, const char *what) {
      return sum(part, &Stage::bytes, field, kMaxBytes, what, size);
    };
    Stage &stage = stages[s];
    stage.firstLayer = first;
    stage.numLayers = end - first;
    stage.cost.forward = addTimes(&StageCost::forward, "forward");
    stage.cost.backward = addTimes(&StageCost::backward, "backward");
    stage.cost.input = addTimes(&StageCost::input, "input");
    stage.cost.weight = addTimes(&StageCost::weight, "weight");
    stage.cost.recompute = addTimes(&StageCost::recompute, "recompute");
    stage.bytes.output = part.back().bytes.output;
    stage.bytes.stash = addBytes(&StageBytes::stash, "stash");
    stage.bytes.parameters = addBytes(&StageBytes::parameters, "parameters");
    stage.bytes.gradients = addBytes(&StageBytes::gradients, "gradients");
    stage.bytes.optimizer = addBytes(&StageBytes::optimizer, "optimizer");
    if (time.empty() && size.empty())
      continue;
    const std::string where = "stage " + std::to_string(s) + ", layers " +
                              std::to_string(first) + " to " +
                              std::to_string(end - 1) + ": ";
    if (!time.empty())
      return Failure{where + "the costs `" + time +
                     "` must add up to a finite number; give costs in a "
                     "larger unit"};
    return Failure{where + "the bytes `" + size + "` must add up to at most " +
                   std::to_string(kMaxBytes) +
                   "; use more stages or smaller layers"};
  }
  return stages;
}

} // namespace penstock
