//===- Balance.cpp - Layers over stages -----------------------------------===//
//
// Chain partition with the least maximum. Costs become integers first, so that
// sums are exact and equal layers tie exactly. Binary search finds the least
// bound; under that bound a dynamic program from the back finds the least sum
// of squares, and walking it forward with the earliest cut breaks the last
// ties. The square of a sum is convex, so the best cut never moves back when
// the part begins later: each row of the program takes n log n steps.
//
// A limit of memory says, as the bound does, how far a part may reach that
// begins at a layer; a part that begins later may reach no less far, which is
// all that the program needs. But the limits differ from stage to stage, and a
// layer may fit on some stages only: then the ends that so many parts can
// reach, which the search needs, are no longer all up to the furthest one.
//
// Where ranks have several stages, a step lasts as long as the sum of the
// busiest one's, and the least sum is as hard to find as a packing of bins. So
// that cut is where a local search begins: it moves layers from one stage to
// any other, every stage between handing on as many, as long as that is better.
//
//===----------------------------------------------------------------------===//

#include "penstock/Schedule/Schedule.h"

#include "penstock/Program/Text.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>

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

namespace {
constexpr Wide kImpossible = ~static_cast<Wide>(0);

/// Cuts layers into parts that keep to their limits, if there are any.
class Cutter {
public:
  Cutter(std::vector<int64_t> sums, std::span<const Stage> layers,
         std::span<const StageLimit> limits, int32_t numStages);

  Result<std::vector<int32_t>> run();

  int32_t numLayers() const { return n; }
  int64_t costOf(int32_t begin, int32_t end) const {
    return sums[end] - sums[begin];
  }
  /// Bytes that layers need on a stage.
  Wide bytesOn(int32_t stage, int32_t begin, int32_t end) const {
    return held[end] - held[begin] +
           static_cast<Wide>(limits[stage].stashes) *
               (stash[end] - stash[begin]);
  }
  bool fits(int32_t stage, int32_t begin, int32_t end) const {
    return limits.empty() ||
           bytesOn(stage, begin, end) <= static_cast<Wide>(limits[stage].bytes);
  }

private:
  void findEnds(int32_t stage, int64_t bound);
  bool reaches(int64_t bound);
  void addPart(int32_t stage);
  void fill(size_t from, size_t to, int32_t first, int32_t last);
  Failure explain() const;

  const int32_t n, numStages;
  const std::vector<int64_t> sums;     ///< prefix sums of the costs
  const std::vector<Wide> held, stash; ///< and of the bytes
  const std::span<const StageLimit> limits;
  /// Of a part of one stage that begins at a layer, the last end; the layer
  /// itself where not even that fits.
  std::vector<int32_t> ends;

  // The dynamic program. Its rows are all ways to put one more part in front.
  std::vector<Wide> best;    ///< sum of squares of what is behind a cut
  std::vector<Wide> next;    ///< and with the part in front of it
  std::vector<int32_t> rows; ///< the layers where that part can begin
  int32_t *cut = nullptr;    ///< its earliest end
};
} // namespace

/// Prefix sums of what `bytesOf(layer)` says.
template <typename BytesOf>
static std::vector<Wide> prefixBytes(std::span<const Stage> layers,
                                     BytesOf &&bytesOf) {
  std::vector<Wide> sums(layers.size() + 1, 0);
  for (size_t i = 0; i < layers.size(); ++i)
    sums[i + 1] = sums[i] + static_cast<Wide>(bytesOf(layers[i].bytes));
  return sums;
}

Cutter::Cutter(std::vector<int64_t> sums, std::span<const Stage> layers,
               std::span<const StageLimit> limits, int32_t numStages)
    : n(static_cast<int32_t>(sums.size()) - 1), numStages(numStages),
      sums(std::move(sums)),
      held(prefixBytes(layers,
                       [](const StageBytes &bytes) {
                         return bytes.parameters + bytes.gradients +
                                bytes.optimizer;
                       })),
      stash(prefixBytes(layers,
                        [](const StageBytes &bytes) { return bytes.stash; })),
      limits(limits), ends(n) {}

/// Fills in how far parts of a stage reach that cost at most `bound`.
void Cutter::findEnds(int32_t stage, int64_t bound) {
  for (int32_t i = 0, end = 0; i < n; ++i) {
    end = std::max(end, i);
    while (end < n && costOf(i, end + 1) <= bound && fits(stage, i, end + 1))
      ++end;
    ends[i] = end;
  }
}

/// Whether as many parts as there are stages, of at most `bound` each, suffice.
bool Cutter::reaches(int64_t bound) {
  if (limits.empty()) {
    // Filled greedily; where fewer parts suffice, they can be cut further.
    findEnds(0, bound);
    int32_t begin = 0;
    for (int32_t part = 0; part < numStages && begin < n; ++part)
      begin = ends[begin];
    return begin == n;
  }
  std::vector<uint8_t> reached(n + 1, 0), after(n + 1);
  reached[0] = 1;
  for (int32_t stage = 0; stage < numStages; ++stage) {
    findEnds(stage, bound);
    after.assign(n + 1, 0);
    for (int32_t i = 0, done = 0; i < n; ++i) {
      if (!reached[i])
        continue;
      for (done = std::max(done, i); done < ends[i];)
        after[++done] = 1;
    }
    reached.swap(after);
  }
  return reached[n];
}

/// Fills the rows [from, to), the cuts of which are in [first, last]. Halves
/// the range, so that it is never deep.
void Cutter::fill(size_t from, size_t to, int32_t first, int32_t last) {
  if (from >= to)
    return;
  const size_t middle = from + (to - from) / 2;
  const int32_t i = rows[middle];
  const int32_t end = std::min(last, ends[i]);
  for (int32_t j = std::max(first, i + 1); j <= end; ++j) {
    if (best[j] == kImpossible)
      continue;
    const auto sum = static_cast<Wide>(costOf(i, j));
    if (const Wide total = sum * sum + best[j]; total < next[i]) {
      next[i] = total;
      cut[i] = j;
    }
  }
  fill(from, middle, first, cut[i]);
  fill(middle + 1, to, cut[i], last);
}

/// One row: puts the part of `stage`, for which the ends are known, in front.
void Cutter::addPart(int32_t stage) {
  const int32_t last = n - (numStages - 1 - stage);
  rows.clear();
  for (int32_t i = last - 1, possible = n + 1; i >= 0; --i) {
    if (best[i + 1] != kImpossible)
      possible = i + 1;
    if (possible <= ends[i])
      rows.push_back(i);
  }
  std::reverse(rows.begin(), rows.end());
  next.assign(best.size(), kImpossible);
  fill(0, rows.size(), 1, last);
  best.swap(next);
}

/// Why the layers do not fit, however they are cut.
Failure Cutter::explain() const {
  auto needs = [&](int32_t stage, int32_t begin, int32_t end) {
    const Wide bytes = bytesOn(stage, begin, end);
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    const bool huge = bytes > static_cast<Wide>(kMost);
    return (huge ? "more than " : "") +
           std::to_string(huge ? kMost : static_cast<int64_t>(bytes)) +
           " bytes with " + counted(limits[stage].stashes, "stash") + " alive";
  };
  const std::string remedy = "; use more stages or ranks, smaller "
                             "micro-batches, a schedule with fewer stashes "
                             "alive, or recompute";
  for (int32_t i = 0; i < n; ++i) {
    int32_t easiest = 0;
    bool anywhere = false;
    for (int32_t stage = 0; stage < numStages && !anywhere; ++stage) {
      anywhere = fits(stage, i, i + 1);
      if (limits[stage].stashes < limits[easiest].stashes)
        easiest = stage;
    }
    if (!anywhere)
      return Failure{
          "layer " + std::to_string(i) + " fits on no stage: even on stage " +
          std::to_string(easiest) + " it needs " + needs(easiest, i, i + 1) +
          ", more than the " + std::to_string(limits[easiest].bytes) +
          " there are" + remedy};
  }
  int32_t begin = 0, end = 0, stage = 0;
  for (; stage < numStages; ++stage) {
    for (end = begin; end < n && fits(stage, begin, end + 1);)
      ++end;
    if (end == n || stage == numStages - 1)
      break;
    begin = end;
  }
  if (end < n)
    return Failure{"the layers do not fit: filled as far as memory allows, " +
                   counted(numStages, "stage") + " hold " +
                   std::to_string(end) + " of " + std::to_string(n) +
                   " layers; with layer " + std::to_string(end) +
                   ", the last stage needs " + needs(stage, begin, end + 1) +
                   ", more than the " + std::to_string(limits[stage].bytes) +
                   " there are" + remedy};
  return Failure{"the layers do not fit: some fit on a few stages only, and no "
                 "cut into " +
                 counted(numStages, "stage") +
                 " with a layer each puts all of them there" + remedy};
}

Result<std::vector<int32_t>> Cutter::run() {
  if (!limits.empty() && !reaches(sums[n]))
    return explain();
  int64_t low = 0, high = sums[n];
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (reaches(middle))
      high = middle;
    else
      low = middle + 1;
  }
  const int64_t bound = low;

  // cuts[k][i]: of the layers from i on in k + 1 parts, the earliest end of the
  // first part with which the sum of squares is the least.
  const size_t width = static_cast<size_t>(n) + 1;
  std::vector<int32_t> cuts(static_cast<size_t>(numStages) * width, n);
  if (limits.empty())
    findEnds(0, bound); // the same for all
  best.assign(width, kImpossible);
  best[n] = 0;
  for (int32_t k = 0; k < numStages; ++k) {
    const int32_t stage = numStages - 1 - k;
    if (!limits.empty())
      findEnds(stage, bound);
    cut = &cuts[k * width];
    addPart(stage);
  }

  std::vector<int32_t> first(numStages, 0);
  for (int32_t k = numStages - 1, s = 1; s < numStages; ++s, --k)
    first[s] = cuts[k * width + first[s - 1]];
  return first;
}

//===----------------------------------------------------------------------===//
// Several stages a rank
//===----------------------------------------------------------------------===//

namespace {
/// How good a cut is; less is better. The first part is in the way of all
/// others, and which of these comes first depends on the phase of the search.
struct Quality {
  Wide lack = 0;       ///< bytes that ranks lack
  int64_t busiest = 0; ///< the largest sum of a rank
  Wide ranks = 0;      ///< sum of the squares of the ranks
  int64_t largest = 0; ///< the largest stage
  Wide stages = 0;     ///< sum of the squares of the stages
  int64_t earlier = 0; ///< how far borders moved to the back

  bool isBetterThan(const Quality &other, bool spread) const {
    auto key = [&](const Quality &q) {
      return std::tuple(q.lack, q.busiest, spread ? q.ranks : 0, q.largest,
                        q.ranks, q.stages, q.earlier);
    };
    return key(*this) < key(other);
  }
};

/// Moves the borders of a cut until no rank can be relieved.
class Spreader {
public:
  Spreader(const Cutter &cutter, std::span<const int32_t> placement,
           std::span<const int64_t> rankBytes, std::vector<int32_t> cuts);

  /// Fails where ranks lack memory in the end.
  Result<std::vector<int32_t>> run();

private:
  int32_t sizeOf(int32_t stage) const { return cuts[stage + 1] - cuts[stage]; }
  void change(Quality &quality, int32_t stage, int32_t begin, int32_t end);
  void changeRank(Quality &quality, int32_t rank, int64_t cost, Wide bytes);
  void measure();
  bool improveFrom(int32_t stage, int32_t step, bool spread);
  void improve(int32_t step, bool spread);

  const Cutter &cutter;
  const int32_t numStages;
  const std::span<const int32_t> placement;
  const std::span<const int64_t> rankBytes;
  std::vector<int32_t> cuts; ///< and the number of layers behind them
  /// Of every rank.
  std::vector<int64_t> costs;
  std::vector<Wide> bytes;
  /// The largest stage before each one and from each one on.
  std::vector<int64_t> before, from;
  Quality now;
  int64_t budget = kMaxSteps;
  /// Ranks that are looked at, over all moves that are tried: some hundredths
  /// of a second.
  static constexpr int64_t kMaxSteps = int64_t(1) << 24;
};
} // namespace

Spreader::Spreader(const Cutter &cutter, std::span<const int32_t> placement,
                   std::span<const int64_t> rankBytes,
                   std::vector<int32_t> cuts)
    : cutter(cutter), numStages(static_cast<int32_t>(cuts.size())),
      placement(placement), rankBytes(rankBytes), cuts(std::move(cuts)) {
  this->cuts.push_back(cutter.numLayers());
  const int32_t numRanks =
      *std::max_element(placement.begin(), placement.end()) + 1;
  costs.assign(numRanks, 0);
  bytes.assign(numRanks, 0);
  measure();
}

/// Adds to a rank, or takes away where `cost` is negative and `more` a
/// complement.
void Spreader::changeRank(Quality &quality, int32_t rank, int64_t cost,
                          Wide more) {
  auto lack = [&] {
    const auto limit = static_cast<Wide>(rankBytes[rank]);
    return bytes[rank] > limit ? bytes[rank] - limit : 0;
  };
  auto square = [&] {
    return static_cast<Wide>(costs[rank]) * static_cast<Wide>(costs[rank]);
  };
  quality.ranks -= square();
  costs[rank] += cost;
  quality.ranks += square();
  if (rankBytes.empty())
    return;
  quality.lack -= lack();
  bytes[rank] += more;
  quality.lack += lack();
}

/// Gives a stage other layers than `cuts` has.
void Spreader::change(Quality &quality, int32_t stage, int32_t begin,
                      int32_t end) {
  const int64_t old = cutter.costOf(cuts[stage], cuts[stage + 1]);
  const int64_t cost = cutter.costOf(begin, end);
  quality.stages += static_cast<Wide>(cost) * static_cast<Wide>(cost) -
                    static_cast<Wide>(old) * static_cast<Wide>(old);
  const Wide more = rankBytes.empty() ? 0
                                      : cutter.bytesOn(stage, begin, end) -
                                            cutter.bytesOn(stage, cuts[stage],
                                                           cuts[stage + 1]);
  for (size_t i = stage; i < placement.size(); i += numStages)
    changeRank(quality, placement[i], cost - old, more);
}

/// What the cuts are like.
void Spreader::measure() {
  const int64_t earlier = now.earlier;
  now = {};
  now.earlier = earlier;
  std::fill(costs.begin(), costs.end(), 0);
  std::fill(bytes.begin(), bytes.end(), 0);
  before.assign(numStages + 1, 0);
  from.assign(numStages + 1, 0);
  for (int32_t s = 0; s < numStages; ++s) {
    const int64_t cost = cutter.costOf(cuts[s], cuts[s + 1]);
    before[s + 1] = std::max(before[s], cost);
    now.stages += static_cast<Wide>(cost) * static_cast<Wide>(cost);
    for (size_t i = s; i < placement.size(); i += numStages)
      changeRank(now, placement[i], cost,
                 rankBytes.empty() ? 0
                                   : cutter.bytesOn(s, cuts[s], cuts[s + 1]));
  }
  for (int32_t s = numStages - 1; s >= 0; --s)
    from[s] = std::max(from[s + 1], cutter.costOf(cuts[s], cuts[s + 1]));
  now.largest = from[0];
  now.busiest = *std::max_element(costs.begin(), costs.end());
}

/// Moves `step` layers, to the front where it is negative, between `first` and
/// the best stage behind it. Gives whether that is better.
bool Spreader::improveFrom(int32_t first, int32_t step, bool spread) {
  const std::vector<int64_t> costsBefore = costs;
  const std::vector<Wide> bytesBefore = bytes;
  // A positive step moves borders to the back: `first` takes.
  if (step < 0 && sizeOf(first) <= -step)
    return false;
  Quality best = now, passed = now;
  int32_t last = -1;
  int64_t largest = before[first];
  for (int32_t s = first; s + 1 < numStages && budget > 0; ++s) {
    // This one hands on all it gets, and the one behind it is the last.
    const int32_t begin = cuts[s] + (s > first ? step : 0);
    const int32_t end = cuts[s + 1] + step;
    if (end > cutter.numLayers() || begin >= end || !cutter.fits(s, begin, end))
      break;
    change(passed, s, begin, end);
    largest = std::max(largest, cutter.costOf(begin, end));
    passed.earlier += step;
    const int32_t other = s + 1, stop = cuts[other + 1];
    budget -= static_cast<int64_t>(costs.size());
    if (end >= stop || !cutter.fits(other, end, stop))
      continue;
    Quality quality = passed;
    change(quality, other, end, stop);
    quality.largest = std::max({largest, cutter.costOf(end, stop),
                                from[std::min(other + 1, numStages)]});
    quality.busiest = *std::max_element(costs.begin(), costs.end());
    if (quality.isBetterThan(best, spread)) {
      best = quality;
      last = other;
    }
    // And takes its layers back.
    const int64_t gained =
        cutter.costOf(cuts[other], stop) - cutter.costOf(end, stop);
    const Wide more = rankBytes.empty()
                          ? 0
                          : cutter.bytesOn(other, cuts[other], stop) -
                                cutter.bytesOn(other, end, stop);
    for (size_t i = other; i < placement.size(); i += numStages)
      changeRank(quality, placement[i], gained, more);
  }
  if (last == -1) {
    costs = costsBefore;
    bytes = bytesBefore;
    return false;
  }
  for (int32_t s = first + 1; s <= last; ++s)
    cuts[s] += step;
  now.earlier = best.earlier;
  measure();
  return true;
}

void Spreader::improve(int32_t step, bool spread) {
  for (bool moved = true; moved && budget > 0;) {
    moved = false;
    for (int32_t s = 0; s + 1 < numStages; ++s)
      for (int32_t signedStep : {step, -step})
        while (improveFrom(s, signedStep, spread) && budget > 0)
          moved = true;
  }
}

Result<std::vector<int32_t>> Spreader::run() {
  const int32_t most =
      std::max(1, cutter.numLayers() / std::max(1, 2 * numStages));
  // First all ranks alike, which leads past cuts where several are busiest;
  // then, no rank busier than now, all stages.
  for (bool spread : {true, false})
    for (int32_t step = std::bit_floor(static_cast<uint32_t>(most)); step > 0;
         step /= 2)
      improve(step, spread);
  if (now.lack > 0)
    return Failure{"no cut was found that leaves every rank enough memory"};
  cuts.pop_back();
  return std::move(cuts);
}

/// Whether a rank has more than one stage, and how many chains there are is
/// within what sums of costs bear.
static bool hasSeveralStages(std::span<const int32_t> placement,
                             size_t numStages) {
  if (placement.size() % numStages != 0 || placement.size() > 2 * numStages)
    return false;
  std::vector<uint8_t> seen;
  for (int32_t rank : placement) {
    if (static_cast<size_t>(rank) >= seen.size())
      seen.resize(rank + 1, 0);
    if (seen[rank])
      return true;
    seen[rank] = 1;
  }
  return false;
}

static Result<std::vector<int32_t>>
cutLayers(std::span<const double> costs, std::span<const Stage> layers,
          std::span<const StageLimit> limits, int32_t numStages,
          std::span<const int32_t> placement,
          std::span<const int64_t> rankBytes) {
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
  for (size_t i = 0; i < layers.size() && !limits.empty(); ++i) {
    const StageBytes &bytes = layers[i].bytes;
    for (int64_t part :
         {bytes.parameters, bytes.gradients, bytes.optimizer, bytes.stash})
      if (part < 0 || part > kMaxBytes)
        return Failure{"layer " + std::to_string(i) + " has " +
                       std::to_string(part) +
                       " bytes; a size must be at least 0 and at most " +
                       std::to_string(kMaxBytes)};
  }
  Cutter cutter(prefixSums(costs), layers, limits, numStages);
  Result<std::vector<int32_t>> cuts = cutter.run();
  if (!cuts || !hasSeveralStages(placement, static_cast<size_t>(numStages)))
    return cuts;
  return Spreader(cutter, placement, rankBytes, std::move(*cuts)).run();
}

/// The costs by which layers are balanced.
static std::vector<double> costsOf(std::span<const Stage> layers) {
  std::vector<double> costs(layers.size());
  for (size_t i = 0; i < layers.size(); ++i)
    costs[i] = layers[i].cost.forward + layers[i].cost.backward;
  return costs;
}

Result<std::vector<int32_t>> balanceLayers(std::span<const double> costs,
                                           int32_t numStages,
                                           std::span<const int32_t> placement) {
  return cutLayers(costs, {}, {}, numStages, placement, {});
}

Result<std::vector<int32_t>> balanceLayers(std::span<const Stage> layers,
                                           std::span<const StageLimit> limits,
                                           std::span<const int32_t> placement,
                                           std::span<const int64_t> rankBytes) {
  return cutLayers(costsOf(layers), layers, limits,
                   static_cast<int32_t>(limits.size()), placement, rankBytes);
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

/// Makes a stage of each part.
static Result<std::vector<Stage>> sumParts(std::span<const Stage> layers,
                                           Result<std::vector<int32_t>> cuts) {
  if (!cuts)
    return cuts.failure();
  const auto numStages = static_cast<int32_t>(cuts->size());
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

Result<std::vector<Stage>> dealLayers(std::span<const Stage> layers,
                                      int32_t numStages,
                                      std::span<const int32_t> placement) {
  return sumParts(layers, balanceLayers(costsOf(layers), numStages, placement));
}

Result<std::vector<Stage>> dealLayers(std::span<const Stage> layers,
                                      std::span<const StageLimit> limits,
                                      std::span<const int32_t> placement,
                                      std::span<const int64_t> rankBytes) {
  return sumParts(layers, balanceLayers(layers, limits, placement, rankBytes));
}

} // namespace penstock
