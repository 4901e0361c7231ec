//===- VMin.cpp - A third of the activations of 1F1B ----------------------===//
//
// Rank r has stages r and 2p-1-r. The building block, in slots of unit time:
//
//   F of stage r        r
//   F of stage 2p-1-r   2p-1-r
//   I of stage 2p-1-r   2p+r+d    d = 2 if 3 divides p, else 0
//   I of stage r        4p-1-r+d
//
// repeated, squeezed and reordered as told in BuildingBlock.cpp.
//
// p = 3, m = 4, F = I = W = 1:
//
//   rank 0 F0F1F2....f0i0w0f1....I0i1W0w1f2F3I1i2W1w2f3i3I2w3W2..I3W3
//   rank 1 ..F0F1..f0..f1i0w0..I0F2W0i1f2w1I1F3W1i2f3w2I2i3W2w3I3W3..
//   rank 2 ....F0f0F1f1....i0I0w0W0F2f2i1I1w1W1F3f3i2I2w2W2i3I3w3W3..
//   time   |0        |5        |10       |15       |20       |25
//
// Constraint  two stages on every rank, placed in a V; any m >= 1
// Peak        2 floor((p + 4) / 3) stage activations on the worst rank where
//             m >= 2p, about a third of the memory of 1F1B; no more below
// Bubble      of the span, for equal times and m >= 2p: 4p-7 if 3 divides p,
//             else 4p-5 (0 if p = 1). It grows with m where times are unequal
//
// P. Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024
// (arXiv:2405.15362).
//
//===----------------------------------------------------------------------===//

#include "BuildingBlock.h"

namespace penstock {

Result<Program> vMin(const Problem &problem) {
  return repeatBlock(problem, "v_min", [](int32_t r, int32_t p) {
    const int32_t d = p % 3 == 0 ? 2 : 0;
    return BlockSlots{r, 2 * p - 1 - r, 2 * p + r + d, 4 * p - 1 - r + d};
  });
}

} // namespace penstock
