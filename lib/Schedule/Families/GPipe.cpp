//===- GPipe.cpp - All forwards, then all backwards -----------------------===//
//
// Order of every rank: F(0) .. F(m-1), then B(0) .. B(m-1). The paper's figure
// runs the backwards in descending order (an option); the makespan is the same,
// and ascending keeps the order in which gradients are summed that of 1F1B.
// With recomputation, another option, every B(i) has R(i) before it, and of the
// activations only the inputs of the stages are kept.
//
// p = 4, m = 4, F = 1, B = 2:
//
//   rank 0 F0F1F2F3..................B0--B1--B2--B3--
//   rank 1 ..F0F1F2F3............B0--B1--B2--B3--....
//   rank 2 ....F0F1F2F3......B0--B1--B2--B3--........
//   rank 3 ......F0F1F2F3B0--B1--B2--B3--............
//   time   |0        |5        |10       |15       |20
//
// Constraint  one stage on every rank; any m >= 1
// Makespan    (m + p - 1) (F + B), for equal stages and free transfers. With
//             recomputation m R more, as the first R of a rank runs while it
//             waits; where R is part of B it is (m + p - 1) (F + R + B)
// Bubble      (p - 1) (F + B); as a fraction (p - 1) / (m + p - 1)
// Peak        m activations on every rank; with recomputation m inputs and one
//             activation
//
// Y. Huang et al., GPipe, NeurIPS 2019 (arXiv:1811.06965).
//
//===----------------------------------------------------------------------===//

#include "Family.h"

namespace penstock {

Result<Program> gpipe(const Problem &problem, const GPipeOptions &options) {
  Result<Program> order = emptyOrderOneStagePerRank(problem, "gpipe");
  if (!order)
    return order;
  const int32_t m = problem.numMicrobatches;
  for (int32_t s = 0; s < problem.numStages(); ++s) {
    auto &list = order->ranks[problem.placement[s]].instructions;
    list.reserve((options.recompute ? 3 : 2) * static_cast<size_t>(m) +
                 1); // and a step
    for (int32_t mb = 0; mb < m; ++mb)
      list.push_back(action(Op::Forward, s, mb));
    for (int32_t k = 0; k < m; ++k) {
      const int32_t mb = options.descending ? m - 1 - k : k;
      if (options.recompute)
        list.push_back(action(Op::Recompute, s, mb));
      list.push_back(action(Op::Backward, s, mb));
    }
  }
  return order;
}

Result<Program> gpipe(const Problem &problem) { return gpipe(problem, {}); }

} // namespace penstock
