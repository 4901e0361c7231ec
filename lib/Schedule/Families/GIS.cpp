//===- GIS.cpp - Interleaved with less memory -----------------------------===//
//
// Interleaved 1F1B (Interleaved1F1B.cpp) with the gradient handed on after I, W
// directly behind it, and therefore a warm-up that is p - 1 - r shorter.
// Smaller groups save memory and cost time. Order of rank r over the entries of
// the table, with N = m v and w = min(N, p-1-r + (v-1) g):
//
//   warm-up    F(0) .. F(w-1)
//   steady     F(w+k) I(k) W(k)   for k in 0..N-w-1
//   cool-down  I(k) W(k)          for k in N-w..N-1
//
// p = 3, v = 2, m = 3, g = 3, F = I = W = 1:
//
//   rank 0 F0F1F2f0f1f2....i0w0..i1w1..i2w2I0W0I1W1I2W2
//   rank 1 ..F0F1F2f0f1..i0w0f2i1w1..i2w2I0W0I1W1I2W2..
//   rank 2 ....F0F1F2f0i0w0f1i1w1f2i2w2I0W0I1W1I2W2....
//   time   |0        |5        |10       |15       |20
//
// Constraint  as interleaved_1f1b, and the same default of g; g >= p / 2 never
//             deadlocks where it divides m
// Bubble      (p - 1) (F + I), times of one stage, for equal stages, free
//             transfers and g = p where p divides m. For p / 2 <= g < p that
//             divides m, at most (p - g) (v - 1) (F + I - W) more; exactly that
//             for equal times, and for g = p / 2 where W <= min(F, I) and
//             |F - I| <= W: beyond that it grows with m
// Peak        g (v - 1) + p stage activations on rank 0, one less on every next
//             rank, counted from F to W
//
// X. Wan et al., PipeOffload: Improving Scalability of Pipeline Parallelism
// with Memory Optimization, 2025 (arXiv:2503.01328): generalised interleaved
// schedules; g = ceil(p / 2) is their GIS-H.
//
//===----------------------------------------------------------------------===//

#include "Interleaved.h"

namespace penstock {

Result<Program> gis(const Problem &problem, int32_t group) {
  Result<Interleaving> loop = interleave(problem, "gis", group, /*hop=*/1);
  if (!loop)
    return loop.failure();
  Program order = fillInTurns(std::move(*loop));
  splitBackward(order);
  return order;
}

} // namespace penstock
