//===- Estimate.cpp - What a schedule would cost --------------------------===//

#include "penstock/Lowering/Estimate.h"

#include "penstock/Analysis/RunOrder.h"
#include "penstock/Lowering/Lowering.h"
#include "penstock/Program/Text.h"
#include "penstock/Schedule/Schedule.h"

#include <algorithm>
#include <optional>
#include <tuple>

namespace penstock {

/// The part that a simulation has found.
static void fill(Estimate &result, const Program &program,
                 const Timing &timing) {
  result.runs = true;
  result.makespan = timing.makespan;
  result.span = timing.span;
  result.bubbleRate = timing.bubbleRate;
  result.memory = memoryOf(program.problem, timing);
  const std::vector<RankTraffic> traffic = trafficOf(program);
  for (size_t r = 0; r < traffic.size(); ++r) {
    const RankTiming &rank = timing.ranks[r];
    result.peakActivations =
        std::max(result.peakActivations, rank.peakActivations);
    if (result.memory[r].total() > result.memory[result.fullest].total())
      result.fullest = static_cast<int32_t>(r);
    result.traffic.transfers += traffic[r].transfers;
    result.traffic.bytes += traffic[r].bytes;
    result.traffic.time += traffic[r].time;
    if (rank.busy > 0)
      result.linkShare =
          std::max(result.linkShare, traffic[r].time / rank.busy);
  }
}

/// Why the fullest rank has too little memory, if it has.
static std::string overLimit(const Estimate &result, int64_t limit) {
  const RankMemory &memory = result.memory[result.fullest];
  if (limit == 0 || memory.total() <= limit)
    return {};
  return "rank " + std::to_string(result.fullest) + " needs " +
         std::to_string(memory.total()) + " bytes, " +
         std::to_string(memory.total() - limit) + " more than the limit of " +
         std::to_string(limit) + ": parameters " +
         std::to_string(memory.parameters) + ", gradients " +
         std::to_string(memory.gradients) + ", optimizer " +
         std::to_string(memory.optimizer) +
         (memory.versions > 0 ? ", further versions of weights " +
                                    std::to_string(memory.versions)
                              : "") +
         ", activations " + std::to_string(memory.activations);
}

Estimate estimate(Result<Program> order, bool lower) {
  Estimate result;
  if (!order) {
    result.reason = order.message();
    return result;
  }
  Program &program = *order;
  result.numStages = program.problem.numStages();
  result.slices = program.problem.slices;
  for (const Instruction &inst : program.ranks[0].instructions)
    result.asynchronous |= inst.op == Op::Step && inst.microbatch >= 0;
  std::optional<Timing> timing;
  if (lower) {
    appendSteps(program);
    if (Result<TransferStatistics> inserted = insertTransfers(program);
        !inserted)
      result.reason = inserted.message();
    else if (Result<BufferStatistics> planned = planBuffers(program); !planned)
      result.reason = planned.message();
    else
      timing = simulateProgram(program);
  } else if (result.asynchronous && program.problem.postValidation) {
    result.reason = "steps for one micro-batch each, but post-validation is of "
                    "one step for the whole batch; drop post_validation";
  } else {
    timing = simulateOrder(program);
  }
  if (timing) {
    fill(result, program, *timing);
    result.reason = overLimit(result, program.problem.memory);
  } else if (result.reason.empty()) {
    const Status complete = checkActions(program);
    result.reason =
        !complete ? complete.message()
                  : explainOrderCycle(program, findOrderCycle(program)).message;
  }
  return result;
}

std::optional<int32_t> leastMicrobatches(
    Problem problem, const std::function<Result<Program>(Problem &)> &make,
    const std::optional<BubbleForm> &form, double target, int64_t maxActions) {
  constexpr double kSlack = 1e-12; // what rounding may add to a rate
  const int64_t actionsEach =
      3 * std::max<int64_t>(1, int64_t(problem.numStages()) * problem.slices);
  const int64_t largest = maxActions / 4 / actionsEach;
  int64_t simulated = 0;
  auto isKnown = [&](int64_t m) {
    return form && form->holds(static_cast<int32_t>(m));
  };
  auto isEnough = [&](int64_t m) {
    if (isKnown(m))
      return form->fraction(static_cast<int32_t>(m)) <= target;
    if (m > largest)
      return false;
    simulated += m * actionsEach;
    problem.numMicrobatches = static_cast<int32_t>(m * problem.slices);
    Result<Program> order = make(problem);
    const std::optional<Timing> timing =
        order ? simulateOrder(*order) : std::nullopt;
    return timing && timing->bubbleRate <= target + kSlack;
  };

  const int64_t known = form ? form->least(target) : 0;
  int64_t last = known > 0 ? known - 1 : largest;
  if (form && form->multiple == 1 && form->last == kMaxMicrobatches)
    last = std::min<int64_t>(last, form->first - 1); // all behind is known
  int64_t low = 0;
  while (low < last && simulated + (low + 1) * actionsEach <= maxActions)
    if (isEnough(++low))
      return static_cast<int32_t>(low);

  int64_t high = known;
  while (high == 0 && low < last) {
    const int64_t m = std::min(2 * std::max<int64_t>(low, 1), last);
    (isEnough(m) ? high : low) = m;
  }
  if (high == 0)
    return std::nullopt;
  for (last = std::min(last, high - 1); low < last;) {
    const int64_t middle = low + (last - low + 1) / 2;
    if (isEnough(middle)) {
      high = middle;
      last = middle - 1;
    } else {
      low = middle;
    }
  }
  return static_cast<int32_t>(high);
}

bool isBetter(const Estimate &a, const Estimate &b, EstimateKey key) {
  auto rank = [&](const Estimate &e) {
    const auto bytes = static_cast<double>(e.peakBytes());
    const int group = e.feasible() ? 0 : e.runs ? 1 : 2;
    if (key == EstimateKey::Memory)
      return std::tuple(group, bytes, e.makespan, e.span);
    if (key == EstimateKey::Span)
      return std::tuple(group, e.span, e.makespan, bytes);
    return std::tuple(group, e.makespan, e.span, bytes);
  };
  return rank(a) < rank(b);
}

} // namespace penstock
