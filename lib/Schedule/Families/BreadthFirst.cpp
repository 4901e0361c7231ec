//===- BreadthFirst.cpp - All micro-batches, chunk by chunk ---------------===//
//
// Stage c p + r is chunk c of rank r. Order of every rank:
//
//   for c in 0..v-1      F(c, 0) .. F(c, m-1)
//   for c in v-1..0      B(c, m-1) .. B(c, 0)
//
// The backwards of a chunk stand together, so that its gradients are reduced
// and its weights are gathered once a step, while the next chunk computes. They
// descend as in torch's LoopedBFS; the paper leaves that open.
//
// p = 3, v = 2, m = 3, F = 1, B = 2:
//
//   rank 0 F0F1F2f0f1f2............b2--b1--b0--B2--B1--B0--
//   rank 1 ..F0F1F2f0f1f2......b2--b1--b0--B2--B1--B0--....
//   rank 2 ....F0F1F2f0f1f2b2--b1--b0--B2--B1--B0--........
//   time   |0        |5        |10       |15       |20
//
// Constraint  the same number v of stages on every rank, in a loop; any m >= 1
// Bubble      (p - 1) (F + B), F and B of one stage, for equal stages, free
//             transfers and m >= p; where m < p add (v - 1) (p - m) (F + B)
// Peak        m v stage activations on every rank
//
// J. Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023
// (arXiv:2211.05953).
//
//===----------------------------------------------------------------------===//

#include "Family.h"

namespace penstock {

Result<Program> breadthFirst(const Problem &problem) {
  Result<Program> order = emptyOrderLooped(problem, "breadth_first");
  if (!order)
    return order;
  const int32_t m = problem.numMicrobatches, p = problem.numRanks,
                numStages = problem.numStages();
  for (int32_t r = 0; r < p; ++r) {
    auto &list = order->ranks[problem.placement[r]].instructions;
    list.reserve(2 * static_cast<size_t>(m) * (numStages / p) + 1); // and step
    for (int32_t s = r; s < numStages; s += p)
      for (int32_t mb = 0; mb < m; ++mb)
        list.push_back(action(Op::Forward, s, mb));
    for (int32_t s = numStages - p + r; s >= 0; s -= p)
      for (int32_t mb = m - 1; mb >= 0; --mb)
        list.push_back(action(Op::Backward, s, mb));
  }
  return order;
}

} // namespace penstock
