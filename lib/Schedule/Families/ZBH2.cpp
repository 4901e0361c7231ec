//===- ZBH2.cpp - Zero bubble with twice the memory of 1F1B ---------------===//
//
// As ZB-H1 with more forwards in the warm-up: they fill the wait for the first
// backward, and the weight parts, put off twice as long, fill the cool-down.
// Order of stage s, with w = 2 (p - s) - 1:
//
//   warm-up    F(0) .. F(w-1)
//   then       I(k) W(k-2s) F(k+w)   for k in 0..m-1
//   then       W(m-2s) .. W(m-1)
//
// without the micro-batches that do not exist.
//
// p = 4, m = 8, F = I = W = 1:
//
//   rank 0 F0F1F2F3F4F5F6I0W0F7I1W1I2W2I3W3I4W4I5W5I6W6I7W7......
//   rank 1 ..F0F1F2F3F4I0F5I1F6I2W0F7I3W1I4W2I5W3I6W4I7W5W6W7....
//   rank 2 ....F0F1F2I0F3I1F4I2F5I3F6I4W0F7I5W1I6W2I7W3W4W5W6W7..
//   rank 3 ......F0I0F1I1F2I2F3I3F4I4F5I5F6I6W0F7I7W1W2W3W4W5W6W7
//   time   |0        |5        |10       |15       |20       |25
//
// Constraint  one stage on every rank; any m >= 1, but fewer than 2 p - 1
//             leave a bubble; with m = p the span is that of ZB-H1
// Bubble      max(0, (p - 1) (F + I - 2 W)) of the span, for equal stages,
//             W <= F, free transfers and m >= 2 p - 1. The makespan is no
//             better than that of ZB-H1: only where a rank may begin the next
//             step before the others have ended this one is the bubble gone
// Peak        min(m, 2 p - 1) activations on every rank, counted from F to W
// Latency     adds 2 (p - 1) latency to the bubble where it is small
//
// P. Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024 (arXiv:2401.10241).
//
//===----------------------------------------------------------------------===//

#include "Family.h"

namespace penstock {

Result<Program> zbH2(const Problem &problem) {
  Result<Program> order = emptyOrderOneStagePerRank(problem, "zb_h2");
  if (!order)
    return order;
  const int32_t m = problem.numMicrobatches, p = problem.numRanks;
  for (int32_t s = 0; s < p; ++s)
    appendZeroBubble(order->ranks[problem.placement[s]], m,
                     /*warmup=*/2 * (p - s) - 1, /*delay=*/2 * s,
                     [s](Op op, int64_t mb) {
                       return action(op, s, static_cast<int32_t>(mb));
                     });
  return order;
}

} // namespace penstock
