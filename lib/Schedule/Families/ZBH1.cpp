//===- ZBH1.cpp - Zero bubble within the memory of 1F1B -------------------===//
//
// 1F1B with backwards cut in two: I goes on to the stage before at once, and W,
// for which nobody waits, fills the cool-down. Order of stage s:
//
//   warm-up    F(0) .. F(p-1-s)
//   then       I(k) W(k-s) F(k+p-s)   for k in 0..m-1
//   then       W(m-s) .. W(m-1)
//
// without the micro-batches that do not exist.
//
// p = 4, m = 6, F = I = W = 1:
//
//   rank 0 F0F1F2F3......I0W0F4I1W1F5I2W2I3W3I4W4I5W5
//   rank 1 ..F0F1F2....I0F3I1W0F4I2W1F5I3W2I4W3I5W4W5
//   rank 2 ....F0F1..I0F2I1F3I2W0F4I3W1F5I4W2I5W3W4W5
//   rank 3 ......F0I0F1I1F2I2F3I3W0F4I4W1F5I5W2W3W4W5
//   time   |0        |5        |10       |15       |20
//
// Constraint  one stage on every rank; any m >= 1
// Bubble      (p - 1) (F + I - W) of the span, for equal stages, W <= F, free
//             transfers and m >= p; for m <= p and W <= I too the
//             makespan is (m + p - 1) (F + I) + W
// Makespan    3 m + p - 1 in unit times, the least of any schedule with one
//             stage a rank
// Peak        min(m, p) activations on every rank, counted from F to W
// Latency     adds 4 (p - 1) latency to the bubble where m >= 2 p and latency
//             is small
//
// P. Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024 (arXiv:2401.10241).
//
//===----------------------------------------------------------------------===//

#include "Family.h"

namespace penstock {

Result<Program> zbH1(const Problem &problem) {
  Result<Program> order = emptyOrderOneStagePerRank(problem, "zb_h1");
  if (!order)
    return order;
  const int32_t m = problem.numMicrobatches, p = problem.numRanks;
  for (int32_t s = 0; s < p; ++s)
    appendZeroBubble(order->ranks[problem.placement[s]], m,
                     /*warmup=*/p - s, /*delay=*/s, [s](Op op, int64_t mb) {
                       return action(op, s, static_cast<int32_t>(mb));
                     });
  return order;
}

} // namespace penstock
