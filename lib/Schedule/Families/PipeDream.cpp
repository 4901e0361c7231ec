//===- PipeDream.cpp - 1F1B that updates on the way -----------------------===//
//
// The order of 1F1B, without a flush: the optimizer steps while micro-batches
// are in the pipe. A forward takes the newest weights of its stage, and a
// backward those that its forward took: a stage keeps versions of its weights.
// With w = min(m, p - 1 - s), order of stage s:
//
//   warm-up    F(0) .. F(w-1)
//   then       F(w+k) B(k) step(k)   for k in 0..m-1
//
// without the micro-batches that do not exist. PipeDream steps after every B,
// PipeDream-2BW after every g-th and after the last, with the gradients of all
// since the step before.
//
// p = 4, m = 4, F = 1, B = 2, as 1F1B; a step takes no time:
//
//   rank 0 F0F1F2F3............B0--..B1--..B2--..B3--
//   rank 1 ..F0F1F2........B0--F3B1--..B2--..B3--....
//   rank 2 ....F0F1....B0--F2B1--F3B2--..B3--........
//   rank 3 ......F0B0--F1B1--F2B2--F3B3--............
//   time   |0        |5        |10       |15       |20
//
// Constraint  one stage on every rank; any m >= 1; 2BW: g >= p
// Makespan    (m + p - 1) (F + B), for equal stages and free transfers
// Bubble      none but that of filling and draining once, (p - 1) (F + B)
// Peak        min(m, p - s) activations
// Staleness   F(k) takes version max(0, k - (p - 1 - s)), that after so many
//             updates; 2BW: the one after floor(max(0, k - (p - 1 - s)) / g)
// Versions    p - s for m >= 2 (p - 1 - s), fewer for fewer micro-batches; 2BW:
//             2, and 1 on the last stage or for m <= g
//
// In the paper every micro-batch of 2BW takes the version that was newest when
// its batch began, W(t+1) = W(t) - lr grad f(W(t-1)). Here each takes the
// newest one, so that some are less stale; the number of versions is the same.
//
// D. Narayanan et al., PipeDream, SOSP 2019 (arXiv:1806.03377) and 2BW, ICML
// 2021 (arXiv:2006.09503).
//
//===----------------------------------------------------------------------===//

#include "Family.h"

#include <string>

namespace penstock {

/// 1F1B with a step after every `group` micro-batches and after the last.
static Result<Program> stepOften(Result<Program> order, int32_t group) {
  const Problem &problem = order->problem;
  const int32_t m = problem.numMicrobatches, p = problem.numRanks;
  for (int32_t s = 0; s < p; ++s) {
    auto &list = order->ranks[problem.placement[s]].instructions;
    list.reserve(2 * static_cast<size_t>(m) + m / group + 1);
    const int32_t warmup = std::min(m, p - 1 - s);
    for (int32_t mb = 0; mb < warmup; ++mb)
      list.push_back(action(Op::Forward, s, mb));
    for (int32_t k = 0, sinceStep = 0; k < m; ++k) {
      if (k < m - warmup)
        list.push_back(action(Op::Forward, s, warmup + k));
      list.push_back(action(Op::Backward, s, k));
      if (++sinceStep < group && k + 1 < m)
        continue;
      list.push_back(action(Op::Step, s, k));
      sinceStep = 0;
    }
  }
  return order;
}

Result<Program> pipeDream(const Problem &problem) {
  Result<Program> order = emptyOrderOneStagePerRank(problem, "pipedream");
  return order ? stepOften(std::move(order), 1) : order;
}

Result<Program> pipeDream2BW(const Problem &problem, int32_t group) {
  constexpr std::string_view family = "pipedream_2bw";
  Result<Program> order = emptyOrderOneStagePerRank(problem, family);
  if (!order)
    return order;
  const int32_t p = problem.numRanks;
  if (group != 0 && group < p)
    return refuse(family,
                  "updates after every " + std::to_string(group) +
                      " micro-batches need more than two versions of the "
                      "weights on " +
                      std::to_string(p) + " ranks; make the group at least " +
                      std::to_string(p));
  return stepOften(std::move(order), group == 0 ? p : group);
}

} // namespace penstock
