//===- GPipe.cpp - All forwards, then all backwards -----------------------===//
//
// Order of every rank: F(0) .. F(m-1), then B(0) .. B(m-1). The paper's figure
// runs the backwards in descending order; the makespan is the same, and
// ascending keeps the order in which gradients are summed that of 1F1B.
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
// Makespan    (m + p - 1) (F + B), for equal stages and free transfers
// Bubble      (p - 1) (F + B); as a fraction (p - 1) / (m + p - 1)
// Peak        m activations on every rank
//
// Y. Huang et al., GPipe, NeurIPS 2019 (arXiv:1811.06965).
//
//===----------------------------------------------------------------------===//

#include "Family.h"

namespace penstock {

Result<Program> gpipe(const Problem &problem) {
  Result<Program> order = emptyOrderOneStagePerRank(problem, "gpipe");
  if (!order)
    return order;
  const int32_t m = problem.numMicrobatches;
  for (int32_t s = 0; s < problem.numStages(); ++s) {
    auto &list = order->ranks[problem.placement[s]].instructions;
    list.reserve(2 * static_cast<size_t>(m) + 1); // and a step
    for (int32_t mb = 0; mb < m; ++mb)
      list.push_back(action(Op::Forward, s, mb));
    for (int32_t mb = 0; mb < m; ++mb)
      list.push_back(action(Op::Backward, s, mb));
  }
  return order;
}

} // namespace penstock
