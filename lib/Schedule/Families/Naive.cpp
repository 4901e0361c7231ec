//===- Naive.cpp - One micro-batch in the pipe at a time ------------------===//
//
// Order of every rank: for i in 0..m-1, F(i) of its stages along the data flow,
// then B(i) of its stages against it. Micro-batch i + 1 enters stage 0 after
// micro-batch i has left it, so that a chain never holds more than one.
//
// p = 4, m = 2, F = 1, B = 2:
//
//   rank 0 F0..................B0--F1..................B1--
//   rank 1 ..F0............B0--......F1............B1--....
//   rank 2 ....F0......B0--............F1......B1--........
//   rank 3 ......F0B0--..................F1B1--............
//   time   |0        |5        |10       |15       |20
//
// Constraint  none: any m >= 1, any placement
// Makespan    m (sum of F + B over stages + 2 (p - 1) latency)
// Bubble      all but 1/p of the time of every rank, for equal stages
// Peak        the stages of the rank, one micro-batch of each
//
// The baseline of every comparison; with m = 1 all families are this one.
// Y. Huang et al., GPipe, NeurIPS 2019 (arXiv:1811.06965), figure 2b.
//
//===----------------------------------------------------------------------===//

#include "Family.h"

namespace penstock {

Result<Program> naive(const Problem &problem) {
  Result<Program> order = emptyOrder(problem, "naive");
  if (!order)
    return order;
  const int32_t numStages = problem.numStages();
  auto append = [&](Op op, int32_t stage, int32_t mb) {
    order->ranks[problem.rankOf(stage, mb)].instructions.push_back(
        action(op, stage, mb));
  };
  for (int32_t mb = 0; mb < problem.numMicrobatches; ++mb) {
    for (int32_t s = 0; s < numStages; ++s)
      append(Op::Forward, s, mb);
    for (int32_t s = numStages - 1; s >= 0; --s)
      append(Op::Backward, s, mb);
  }
  return order;
}

} // namespace penstock
