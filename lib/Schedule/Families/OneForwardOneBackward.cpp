//===- OneForwardOneBackward.cpp - 1F1B -----------------------------------===//
//
// Order of stage s, with w = min(m, p - 1 - s):
//
//   warm-up    F(0) .. F(w-1)
//   steady     F(w+k) B(k)   for k in 0..m-w-1
//   cool-down  B(m-w) .. B(m-1)
//
// The eager variant has w = min(m, 2 (p - 1 - s)): a forward more for every
// stage that follows, so that a transfer has the time of an F and a B to
// arrive.
//
// p = 4, m = 4, F = 1, B = 2:
//
//   rank 0 F0F1F2F3............B0--..B1--..B2--..B3--
//   rank 1 ..F0F1F2........B0--F3B1--..B2--..B3--....
//   rank 2 ....F0F1....B0--F2B1--F3B2--..B3--........
//   rank 3 ......F0B0--F1B1--F2B2--F3B3--............
//   time   |0        |5        |10       |15       |20
//
// Constraint  one stage on every rank; any m >= 1
// Makespan    (m + p - 1) (F + B), for equal stages and free transfers
// Bubble      (p - 1) (F + B), as GPipe
// Peak        min(m, p - s) activations
// Latency     adds latency * (2 (p-1) floor(m/p) + 2 (p-2)
//             + 2 max(rem-1, min(rem, 1))) with rem = m mod p, where m >= p and
//             latency is small against F and B: every round of p micro-batches
//             shows 2 (p - 1) transfers
// Eager       the same makespan and bubble; min(m, 2 (p - s) - 1) activations;
//             latency, where small, adds 2 (p - 1) latency in all
//
// S. Fan et al., DAPPLE, PPoPP 2021 (arXiv:2007.01045); D. Narayanan et al.,
// PipeDream-Flush, ICML 2021 (arXiv:2006.09503). Eager: Y. Zhuang et al., On
// Optimizing the Communication of Model Parallelism, MLSys 2023
// (arXiv:2211.05322).
//
//===----------------------------------------------------------------------===//

#include "Family.h"

#include <algorithm>

namespace penstock {

/// 1F1B with a warm-up of `hop` forwards for every stage that follows.
static Result<Program> alternate(const Problem &problem, int32_t hop) {
  Result<Program> order = emptyOrderOneStagePerRank(problem, "one_f_one_b");
  if (!order)
    return order;
  const int32_t m = problem.numMicrobatches, p = problem.numRanks;
  for (int32_t s = 0; s < p; ++s) {
    auto &list = order->ranks[problem.placement[s]].instructions;
    list.reserve(2 * static_cast<size_t>(m) + 1); // and a step
    const int32_t warmup = std::min(m, hop * (p - 1 - s));
    for (int32_t mb = 0; mb < warmup; ++mb)
      list.push_back(action(Op::Forward, s, mb));
    for (int32_t k = 0; k < m - warmup; ++k) {
      list.push_back(action(Op::Forward, s, warmup + k));
      list.push_back(action(Op::Backward, s, k));
    }
    for (int32_t mb = m - warmup; mb < m; ++mb)
      list.push_back(action(Op::Backward, s, mb));
  }
  return order;
}

Result<Program> oneForwardOneBackward(const Problem &problem) {
  return alternate(problem, /*hop=*/1);
}

Result<Program> eagerOneForwardOneBackward(const Problem &problem) {
  return alternate(problem, /*hop=*/2);
}

} // namespace penstock
