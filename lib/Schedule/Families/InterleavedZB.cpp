//===- InterleavedZB.cpp - ZB-H1 on several stages a rank -----------------===//
//
// Interleaved 1F1B (Interleaved1F1B.cpp) with backwards cut in two and half the
// extra warm-up, as the gradient comes back sooner. Order of rank r over the
// entries of the table, with N = m v and w = min(N, p-1-r + (v-1) g):
//
//   warm-up    F(0) .. F(w)
//   then       I(k) W(k-r) F(w+1+k)   for k in 0..N-1
//   then       W(N-r) .. W(N-1)
//
// without the entries that do not exist. With v = 1 it is ZB-H1.
//
// p = 3, v = 2, m = 3, g = 3, F = I = W = 1:
//
//   rank 0 F0F1F2f0f1f2....i0w0i1w1i2w2I0W0I1W1I2W2
//   rank 1 ..F0F1F2f0f1..i0f2i1w0i2w1I0w2I1W0I2W1W2
//   rank 2 ....F0F1F2f0i0f1i1f2i2w0I0w1I1w2I2W0W1W2
//   time   |0        |5        |10       |15
//
// Constraint  as interleaved_1f1b, and the same default of g. Deadlock needs
//             even smaller groups
// Bubble      (p - 1) (F + I - W), times of one stage, for equal stages,
//             W <= F, free transfers and g = p where p divides m
// Peak        p v stage activations on every rank, counted from F to W, there
//
// torch.distributed.pipelining, ScheduleInterleavedZeroBubble: the rule of
// P. Qi et al., Zero Bubble Pipeline Parallelism (arXiv:2401.10241).
//
//===----------------------------------------------------------------------===//

#include "Interleaved.h"

namespace penstock {

Result<Program> interleavedZB(const Problem &problem, int32_t group) {
  Result<Interleaving> loop =
      interleave(problem, "interleaved_zb", group, /*hop=*/1);
  if (!loop)
    return loop.failure();
  for (int32_t r = 0; r < loop->p; ++r)
    appendZeroBubble(loop->order.ranks[problem.placement[r]], loop->size(),
                     loop->warmup(r) + 1, /*delay=*/r, [&](Op op, int64_t k) {
                       return op == Op::Forward ? loop->forward(r, k)
                                                : loop->backward(op, r, k);
                     });
  return std::move(loop->order);
}

} // namespace penstock
