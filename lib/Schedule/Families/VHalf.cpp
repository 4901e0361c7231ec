//===- VHalf.cpp - Half the activations of 1F1B ---------------------------===//
//
// Rank r has stages r and 2p-1-r. The building block, in slots of unit time:
//
//   F of stage r        2r
//   F of stage 2p-1-r   3p-2-r
//   I of stage 2p-1-r   3p-1+2r+d    d = 3 if p is even, else 0
//   I of stage r        6p-2-r+d
//
// repeated, squeezed and reordered as told in BuildingBlock.cpp.
//
// p = 3, m = 4, F = I = W = 1:
//
//   rank 0 F0F1F2....f0i0w0f1i1w1..I0W0F3f2i2w2I1W1..f3i3I2w3W2..I3W3
//   rank 1 ..F0F1..f0..f1i0w0F2..I0i1W0f2w1F3I1i2W1f3w2I2i3W2w3I3W3..
//   rank 2 ....F0f0F1f1....i0w0I0W0F2f2i1w1I1W1F3f3i2I2w2W2i3I3w3W3..
//   time   |0        |5        |10       |15       |20       |25
//
// Constraint  two stages on every rank, placed in a V; any m >= 1
// Peak        2 floor((p + 2) / 2) stage activations on the worst rank where
//             m >= 2p, about half of the memory of 1F1B; no more below
// Bubble      of the span, for equal times and m >= 2p: 3p-7 if p is even (1 if
//             p = 2), 3p-4 if it is odd (0 if p = 1). It does not grow with m
//             as long as W + 2I >= 2F and W + 2F >= 2I
//
// P. Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024
// (arXiv:2405.15362).
//
//===----------------------------------------------------------------------===//

#include "BuildingBlock.h"

namespace penstock {

Result<Program> vHalf(const Problem &problem) {
  return repeatBlock(problem, "v_half", [](int32_t r, int32_t p) {
    const int32_t d = p % 2 == 0 ? 3 : 0;
    return BlockSlots{2 * r, 3 * p - 2 - r, 3 * p - 1 + 2 * r + d,
                      6 * p - 2 - r + d};
  });
}

} // namespace penstock
