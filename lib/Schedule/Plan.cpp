//===- Plan.cpp - How many micro-batches, and what they cost --------------===//

#include "penstock/Schedule/Plan.h"

#include "penstock/Program/Text.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace penstock {

//===----------------------------------------------------------------------===//
// Closed forms
//===----------------------------------------------------------------------===//

double BubbleForm::bubble(int32_t numMicrobatches) const {
  return fixed + perMicrobatch * numMicrobatches +
         perMissing * std::max(0, numRanks - numMicrobatches);
}

double BubbleForm::fraction(int32_t numMicrobatches) const {
  const double idle = bubble(numMicrobatches);
  const double span = idle + work * numMicrobatches + fixedWork;
  return span > 0 ? idle / span : 0;
}

int32_t BubbleForm::least(double target) const {
  // The bubble rate never grows with m.
  const int64_t step = multiple;
  int64_t low = (first + step - 1) / step, high = last / step;
  auto meets = [&](int64_t k) {
    return fraction(static_cast<int32_t>(k * step)) <= target;
  };
  if (low > high || !meets(high))
    return 0;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (meets(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return static_cast<int32_t>(low * step);
}

namespace {
/// A family and its closed form.
struct Entry {
  std::string_view family;
  int32_t chunks; ///< that it has; 0: any number
  bool (*fill)(const EqualStages &, BubbleForm &);
  const char *needs; ///< what does not hold where fill() gives false
};
} // namespace

/// GPipe and 1F1B; with chunks, interleaved 1F1B and breadth-first.
static bool flush(const EqualStages &s, BubbleForm &form) {
  const double pass = s.cost.forward + s.cost.backward;
  form.fixed = (s.numRanks - 1) * pass;
  form.perMissing = (s.chunks - 1) * pass;
  return true;
}

/// 1F1B over slices, in whose times the bubble is that of 1F1B.
static bool seqForm(const EqualStages &s, BubbleForm &form) {
  form.fixed = (s.numRanks - 1) * (s.cost.forward + s.cost.backward) / s.slices;
  return s.slices >= 1;
}

static bool naiveForm(const EqualStages &s, BubbleForm &form) {
  form.perMicrobatch = (s.numRanks - 1) * (s.cost.forward + s.cost.backward);
  return true;
}

static bool weightFits(const EqualStages &s) {
  return s.cost.weight <= s.cost.forward;
}

static bool zbH1Form(const EqualStages &s, BubbleForm &form) {
  form.fixed =
      (s.numRanks - 1) * (s.cost.forward + s.cost.input - s.cost.weight);
  form.first = s.numRanks;
  // With several chunks, for groups of p micro-batches.
  form.multiple = s.chunks > 1 ? s.numRanks : 1;
  return weightFits(s);
}

static bool zbH2Form(const EqualStages &s, BubbleForm &form) {
  form.fixed = std::max(0.0, (s.numRanks - 1) * (s.cost.forward + s.cost.input -
                                                 2 * s.cost.weight));
  form.first = 2 * s.numRanks - 1;
  return weightFits(s);
}

static bool gisForm(const EqualStages &s, BubbleForm &form) {
  form.fixed = (s.numRanks - 1) * (s.cost.forward + s.cost.input);
  form.first = form.multiple = s.numRanks;
  return true;
}

static bool areEqual(const EqualStages &s) {
  return s.cost.forward == s.cost.input && s.cost.input == s.cost.weight;
}

static bool zbVForm(const EqualStages &s, BubbleForm &form) {
  form.first = 2 * s.numRanks - 1;
  return areEqual(s);
}

static bool vHalfForm(const EqualStages &s, BubbleForm &form) {
  const int32_t p = s.numRanks;
  const int32_t slots = p == 1 ? 0 : p == 2 ? 1 : 3 * p - (p % 2 == 0 ? 7 : 4);
  form.fixed = slots * s.cost.forward;
  form.first = 2 * p;
  return areEqual(s);
}

static bool vMinForm(const EqualStages &s, BubbleForm &form) {
  const int32_t p = s.numRanks;
  form.fixed = p == 1 ? 0 : (4 * p - (p % 3 == 0 ? 7 : 5)) * s.cost.forward;
  form.first = 2 * p;
  return areEqual(s);
}

/// DualPipe and DualPipeV; `half` ranks are between an end and the turn. What
/// the papers give is the idle time of the ranks that have most pairs of an F
/// and a B, next to the turn. The busiest rank, at the end, has half - 2 fewer:
/// of 2 half micro-batches in the pipe that each stage runs, all but 3 half - 1
/// are paired there.
static bool dualForm(const EqualStages &s, int32_t half, BubbleForm &form) {
  const StageCost &c = s.cost;
  const double saved = s.overlap * std::min(c.forward, c.backward);
  form.fixed =
      (half - 1) * (c.forward + 2 * c.backward - 3 * c.weight - saved) -
      std::max(0, half - 2) * saved;
  form.work -= s.chunks * saved;
  form.fixedWork = (3 * half - (half > 1)) * saved;
  form.first = 2 * s.numRanks;
  return c.forward == c.input && c.weight <= c.forward &&
         c.backward == c.input + c.weight;
}

static bool dualPipeVForm(const EqualStages &s, BubbleForm &form) {
  return dualForm(s, s.numRanks, form);
}

static bool dualPipeForm(const EqualStages &s, BubbleForm &form) {
  form.multiple = 2; // as many micro-batches on either chain
  return s.numRanks % 2 == 0 && dualForm(s, s.numRanks / 2, form);
}

static bool chimeraForm(const EqualStages &s, BubbleForm &form) {
  const int32_t p = s.numRanks;
  form.fixed = (p - 2) * s.cost.backward;
  form.first = form.multiple = p;
  // Longer backwards leave a bubble between units of p micro-batches, too.
  if (s.cost.backward != s.cost.forward)
    form.last = p;
  return p % 2 == 0 && (s.cost.backward == s.cost.forward ||
                        s.cost.backward == 2 * s.cost.forward);
}

static constexpr Entry kForms[] = {
    {"naive", 1, naiveForm, ""},
    {"gpipe", 1, flush, ""},
    {"one_f_one_b", 1, flush, ""},
    {"bpipe", 1, flush, ""},
    {"seq_1f1b", 1, seqForm, "at least one slice"},
    {"interleaved_1f1b", 0, flush, ""},
    {"breadth_first", 0, flush, ""},
    {"zb_h1", 1, zbH1Form, "W <= F"},
    {"zb_h2", 1, zbH2Form, "W <= F"},
    {"interleaved_zb", 0, zbH1Form, "W <= F"},
    {"gis", 0, gisForm, ""},
    {"zb_v", 2, zbVForm, "F = I = W"},
    {"v_half", 2, vHalfForm, "F = I = W"},
    {"v_min", 2, vMinForm, "F = I = W"},
    {"dualpipe_v", 2, dualPipeVForm, "F = I, W <= F and B = I + W"},
    {"dualpipe", 1, dualPipeForm,
     "F = I, W <= F and B = I + W, and an even number of ranks"},
    {"chimera", 1, chimeraForm, "B = F or B = 2F, and an even number of ranks"},
};

Result<BubbleForm> bubbleForm(std::string_view family,
                              const EqualStages &stages) {
  const std::string name(family);
  if (stages.numRanks < 1 || stages.numRanks > kMaxRanks || stages.chunks < 1 ||
      stages.chunks > kMaxStages / stages.numRanks)
    return Failure{name + ": " + std::to_string(stages.chunks) +
                   " stages on each of " + std::to_string(stages.numRanks) +
                   " ranks are no pipeline; give at least 1 of both and at "
                   "most " +
                   std::to_string(kMaxStages) + " stages"};
  const Entry *entry =
      std::find_if(std::begin(kForms), std::end(kForms),
                   [&](const Entry &e) { return e.family == family; });
  if (entry == std::end(kForms)) {
    std::string known;
    for (const Entry &e : kForms)
      known += (known.empty() ? "" : ", ") + std::string(e.family);
    return Failure{name +
                   " has no closed form; simulate it instead. Those "
                   "that have one are " +
                   known};
  }
  EqualStages shape = stages;
  if (entry->chunks > 0)
    shape.chunks = entry->chunks;
  BubbleForm form;
  form.numRanks = shape.numRanks;
  form.work = shape.chunks * (shape.cost.forward + shape.cost.backward);
  if (!entry->fill(shape, form))
    return Failure{name + ": the closed form is for " + entry->needs +
                   ", but F = " + formatNumber(shape.cost.forward) +
                   ", B = " + formatNumber(shape.cost.backward) +
                   ", I = " + formatNumber(shape.cost.input) +
                   ", W = " + formatNumber(shape.cost.weight) + " on " +
                   counted(shape.numRanks, "rank") + "; simulate it instead"};
  return form;
}

/// "from 8 on, multiples of 4": where a form holds.
static std::string domainOf(const BubbleForm &form) {
  std::string text;
  if (form.first == form.last)
    return std::to_string(form.first) + " micro-batches";
  if (form.multiple > 1)
    text = "multiples of " + std::to_string(form.multiple) + ", ";
  return text + "at least " + counted(form.first, "micro-batch");
}

Result<double> bubbleFraction(std::string_view family,
                              const EqualStages &stages,
                              int32_t numMicrobatches) {
  Result<BubbleForm> form = bubbleForm(family, stages);
  if (!form)
    return form.failure();
  if (!form->holds(numMicrobatches))
    return Failure{std::string(family) + ": the closed form is for " +
                   domainOf(*form) + ", not " +
                   std::to_string(numMicrobatches) + "; simulate it instead"};
  return form->fraction(numMicrobatches);
}

Result<int32_t> leastMicrobatches(std::string_view family,
                                  const EqualStages &stages, double target) {
  if (!(target >= 0 && target < 1))
    return Failure{"a bubble rate of " + formatNumber(target) +
                   " is no target; give a number from 0 to below 1"};
  Result<BubbleForm> form = bubbleForm(family, stages);
  if (!form)
    return form.failure();
  if (const int32_t least = form->least(target))
    return least;
  const int32_t most = form->last / form->multiple * form->multiple;
  return Failure{std::string(family) + ": the bubble rate stays above " +
                 formatNumber(target) + "; with " + std::to_string(most) +
                 " micro-batches it is " + formatNumber(form->fraction(most)) +
                 "; aim higher, or use another family"};
}

//===----------------------------------------------------------------------===//
// Batches
//===----------------------------------------------------------------------===//

/// "a" or "a or b": the divisors of n that are nearest to x, from below and
/// from above.
static std::string nearestDivisors(int64_t n, int64_t x) {
  int64_t below = 1, above = n;
  auto consider = [&](int64_t d) {
    if (d <= x)
      below = std::max(below, d);
    if (d >= x)
      above = std::min(above, d);
  };
  for (int64_t d = 1; d <= n / d; ++d)
    if (n % d == 0) {
      consider(d);
      consider(n / d);
    }
  if (below == above || x > n)
    return std::to_string(x > n ? n : below);
  return std::to_string(below) + " or " + std::to_string(above);
}

Result<int32_t> microbatchesOf(int64_t globalBatch, int64_t replicas,
                               int64_t size) {
  // Keeps products in 64 bits and the search for divisors short.
  constexpr int64_t kLimit = int64_t(1) << 40;
  struct {
    const char *what;
    int64_t value;
  } const inputs[] = {{"a global batch", globalBatch},
                      {"a data-parallel size", replicas},
                      {"a micro-batch size", size}};
  for (const auto &input : inputs)
    if (input.value < 1 || input.value > kLimit)
      return Failure{std::string(input.what) + " of " +
                     std::to_string(input.value) +
                     " is out of range; give 1 to " + std::to_string(kLimit)};
  const std::string batch = "a global batch of " + std::to_string(globalBatch);
  if (replicas > kLimit / size)
    return Failure{std::to_string(replicas) +
                   " replicas with micro-batches of " + std::to_string(size) +
                   " need a global batch above " + std::to_string(kLimit) +
                   "; use fewer replicas or smaller micro-batches"};
  const int64_t together = replicas * size;
  if (globalBatch % together != 0) {
    const int64_t below = globalBatch / together * together;
    std::string text =
        batch + " does not divide over " + std::to_string(replicas) +
        " replicas with micro-batches of " + std::to_string(size) +
        "; nearest are a global batch of ";
    text += below > 0 ? std::to_string(below) + " or " : "";
    text += std::to_string(below + together);
    if (globalBatch % size == 0)
      text += ", a data-parallel size of " +
              nearestDivisors(globalBatch / size, replicas);
    if (globalBatch % replicas == 0)
      text +=
          ", micro-batches of " + nearestDivisors(globalBatch / replicas, size);
    return Failure{text};
  }
  const int64_t m = globalBatch / together;
  if (m > kMaxMicrobatches)
    return Failure{batch + " gives " + std::to_string(m) +
                   " micro-batches, more than " +
                   std::to_string(kMaxMicrobatches) +
                   "; use more replicas or larger micro-batches"};
  return static_cast<int32_t>(m);
}

Result<double> offloadRatio(double hiddenSize, double sequenceLength,
                            double flopsPerTime, double bytesPerTime) {
  struct {
    const char *what;
    double value;
  } const inputs[] = {{"the hidden size", hiddenSize},
                      {"the sequence length", sequenceLength},
                      {"the compute rate", flopsPerTime},
                      {"the bandwidth to host memory", bytesPerTime}};
  for (const auto &input : inputs)
    if (!(input.value > 0) || !std::isfinite(input.value))
      return Failure{std::string(input.what) + " is " +
                     formatNumber(input.value) +
                     "; give a positive, finite number"};
  return 10 * flopsPerTime /
         (3 * (6 * hiddenSize + sequenceLength) * bytesPerTime);
}

} // namespace penstock
