//===- ZBV.cpp - Zero bubble in a V ---------------------------------------===//
//
// The stages go along the ranks and back: rank r has stages r and 2p-1-r. F0,
// I0, W0 are actions of the first, F1, I1, W1 of the second. Order of rank r,
// with n = max(m, 2p-1), micro-batches from m on left out:
//
//   F0(k)                                               for k < 2(p-r)-1
//   F1(k) F0(2(p-r)-1+k)                                for k < r
//   F1(r+k) I1(k) W1(k)                                 for k < p-r
//   F0(2p-1-r+k) I0(k) W0(k) F1(p+k) I1(p-r+k) W1(p-r+k)  for k < n-p
//   I0(n-p+k) I1(n-r+k)                                 for k < r
//   I0(n-p+r+k) W0(n-p+k)                               for k < p-r
//   W1(n-r+k)                                           for k < r
//   W0(n-r+k)                                           for k < r
//
// p = 3, m = 5, F = I = W = 1:
//
//   rank 0 F0F1F2F3F4f0i0w0f1i1w1f2i2w2I0W0f3i3w3I1W1f4i4w4I2W2I3W3I4W4....
//   rank 1 ..F0F1F2f0F3f1i0w0f2i1w1F4I0W0f3i2w2I1W1f4i3w3I2i4I3W2I4W3w4W4..
//   rank 2 ....F0f0F1f1F2f2i0w0F3I0W0f3i1w1F4I1W1f4i2w2I2i3I3i4I4W2w3w4W3W4
//   time   |0        |5        |10       |15       |20       |25       |30
//
// Constraint  two stages on every rank, placed in a V; any m >= 1
// Span        6m, no bubble, for equal times and m >= 2p-1
// Makespan    6m + p - 1
// Peak        2p stage activations on every rank where m >= 2p-1: as much
//             memory as 1F1B, whose p stages are twice as large
//
// P. Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024 (arXiv:2401.10241),
// section 6; the order is that of torch's ZBVZeroBubble.
//
//===----------------------------------------------------------------------===//

#include "Family.h"

#include <algorithm>

namespace penstock {

Result<Program> zbV(const Problem &problem) {
  Result<Program> order = emptyOrderSnake(problem, "zb_v", 2);
  if (!order)
    return order;
  const int32_t m = problem.numMicrobatches, p = problem.numRanks;
  const int32_t n = std::max(m, 2 * p - 1);
  for (int32_t r = 0; r < p; ++r) {
    auto &list = order->ranks[problem.placement[r]].instructions;
    list.reserve(6 * static_cast<size_t>(m) + 1); // and a step
    const int32_t stages[] = {r, 2 * p - 1 - r};
    auto add = [&](Op op, int chunk, int32_t mb) {
      if (mb < m)
        list.push_back(action(op, stages[chunk], mb));
    };
    auto forward = [&](int chunk, int32_t mb) { add(Op::Forward, chunk, mb); };
    auto input = [&](int c, int32_t mb) { add(Op::BackwardInput, c, mb); };
    auto weight = [&](int c, int32_t mb) { add(Op::BackwardWeight, c, mb); };
    // Every body names a micro-batch of at least k: none is left from m on.
    auto repeat = [&](int32_t times, auto &&body) {
      for (int32_t k = 0; k < std::min(times, m); ++k)
        body(k);
    };
    repeat(2 * (p - r) - 1, [&](int32_t k) { forward(0, k); });
    repeat(r, [&](int32_t k) {
      forward(1, k);
      forward(0, 2 * (p - r) - 1 + k);
    });
    repeat(p - r, [&](int32_t k) {
      forward(1, r + k);
      input(1, k);
      weight(1, k);
    });
    repeat(n - p, [&](int32_t k) {
      forward(0, 2 * p - 1 - r + k);
      input(0, k);
      weight(0, k);
      forward(1, p + k);
      input(1, p - r + k);
      weight(1, p - r + k);
    });
    repeat(r, [&](int32_t k) {
      input(0, n - p + k);
      input(1, n - r + k);
    });
    repeat(p - r, [&](int32_t k) {
      input(0, n - p + r + k);
      weight(0, n - p + k);
    });
    repeat(r, [&](int32_t k) { weight(1, n - r + k); });
    repeat(r, [&](int32_t k) { weight(0, n - r + k); });
  }
  return order;
}

} // namespace penstock
