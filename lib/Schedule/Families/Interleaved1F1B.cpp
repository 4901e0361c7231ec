//===- Interleaved1F1B.cpp - 1F1B on several stages a rank ----------------===//
//
// Stage c p + r is chunk c of rank r, so that a micro-batch runs round the
// ranks v times. All ranks take their forwards from one table (Interleaved.h):
// groups of g micro-batches, and in a group chunk after chunk; their backwards
// too, with the last chunk first. Order of rank r over the N = m v entries of
// the table, with w = min(N, 2 (p-1-r) + (v-1) g):
//
//   warm-up    F(0) .. F(w-1)
//   steady     F(w+k) B(k)   for k in 0..N-w-1
//   cool-down  B(N-w) .. B(N-1)
//
// p = 3, v = 2, m = 3, g = 3, F = 1, B = 2:
//
//   rank 0 F0F1F2f0f1f2........b0--..b1--..b2--B0--B1--B2--
//   rank 1 ..F0F1F2f0f1f2..b0--..b1--..b2--B0--B1--B2--....
//   rank 2 ....F0F1F2f0b0--f1b1--f2b2--B0--B1--B2--........
//   time   |0        |5        |10       |15       |20
//
// Constraint  the same number v of stages on every rank, in a loop; a group of
//             1 to m micro-batches with which the order does not deadlock.
//             It may where a group or the rest m mod g has less than p
//             (Interleaved.cpp). The default is the smallest group >= p that
//             leaves no rest or one >= p: that is p where p divides m, and
//             otherwise m / floor(m / p) where that is whole, the rule of torch
// Bubble      (p - 1) (F + B), F and B of one stage, for equal stages, free
//             transfers and g >= p with a rest of 0 or >= p: 1/v of that of
//             1F1B. Where m < p, g = m, add (v - 1) (p - m) (F + B)
// Peak        min(N, w + 1) stage activations on rank r
// Latency     adds 2 (p v - 1) latency to the makespan for g = p where p
//             divides m and latency is small
//
// D. Narayanan et al., Efficient Large-Scale Language Model Training on GPU
// Clusters Using Megatron-LM, SC 2021 (arXiv:2104.04473). Groups other than p:
// Llama Team, The Llama 3 Herd of Models, 2024 (arXiv:2407.21783), section 3.3.
//
//===----------------------------------------------------------------------===//

#include "Interleaved.h"

namespace penstock {

Result<Program> interleaved1F1B(const Problem &problem, int32_t group) {
  Result<Interleaving> loop =
      interleave(problem, "interleaved_1f1b", group, /*hop=*/2);
  if (!loop)
    return loop.failure();
  return fillInTurns(std::move(*loop));
}

} // namespace penstock
