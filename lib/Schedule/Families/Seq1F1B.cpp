//===- Seq1F1B.cpp - 1F1B over slices of the sequence ---------------------===//
//
// Every micro-batch is cut into n slices along its sequence, and these are what
// flows: slice j of micro-batch i is number u = i n + j. Attention is causal,
// so on every stage the F of a micro-batch ascend over its slices and the B
// descend. Order of stage s, with N = m n, w = min(N, p - 1 - s + n - 1), and
// b(k) the k-th backward: i n + (n - 1 - j) for k = i n + j,
//
//   warm-up    F(0) .. F(w-1)
//   steady     F(w+k) B(b(k))   for k in 0..N-w-1
//   cool-down  B(b(N-w)) .. B(b(N-1))
//
// The warm-up has n - 1 forwards more than that of 1F1B: the last slice of a
// micro-batch goes back first.
//
// p = 4, m = 2, n = 2, F = 1 and B = 2 for a slice:
//
//   rank 0 F0F1F2F3..............B1--..B0--..B3--B2--
//   rank 1 ..F0F1F2F3........B1--..B0--..B3--B2--....
//   rank 2 ....F0F1F2....B1--F3B0--..B3--B2--........
//   rank 3 ......F0F1B1--F2B0--F3B3--B2--............
//   time   |0        |5        |10       |15       |20
//
// Constraint  one stage on every rank; any m >= 1 and n >= 1, one chain
// Makespan    (m n + p - 1) (F + B) in times of a slice, for equal stages and
//             free transfers: with F + B of a micro-batch m + (p - 1) / n of
//             them
// Bubble      (p - 1) (F + B) in times of a slice, an n-th of that of 1F1B
// Peak        min(m n, p - 1 - s + n) slices
//
// Slices are taken to be of equal work. Later slices of equal length attend to
// more; lengths that make the work equal are the model's.
//
// A. Sun et al., Seq1F1B, 2024 (arXiv:2406.03488).
//
//===----------------------------------------------------------------------===//

#include "Family.h"

#include <string>

namespace penstock {

Result<Program> seq1F1B(const Problem &problem) {
  constexpr std::string_view family = "seq_1f1b";
  const int32_t n = problem.slices;
  if (n < 1)
    return refuse(family, "micro-batches are cut into " + std::to_string(n) +
                              " slices; give at least one");
  Result<Program> order = emptyOrderOneStagePerRank(problem, family);
  if (!order)
    return order;
  const int32_t numUnits = problem.numMicrobatches, p = problem.numRanks;
  if (numUnits % n != 0)
    return refuse(family, std::to_string(numUnits) +
                              " slices are no whole micro-batches of " +
                              std::to_string(n) + " each; give a multiple");
  auto backward = [n](int32_t k) { return k / n * n + (n - 1 - k % n); };
  for (int32_t s = 0; s < p; ++s) {
    auto &list = order->ranks[problem.placement[s]].instructions;
    list.reserve(2 * static_cast<size_t>(numUnits) + 1); // and a step
    const int32_t warmup = static_cast<int32_t>(
        std::min<int64_t>(numUnits, int64_t(p) - 1 - s + n - 1));
    for (int32_t u = 0; u < warmup; ++u)
      list.push_back(action(Op::Forward, s, u));
    for (int32_t k = 0; k < numUnits; ++k) {
      if (warmup + k < numUnits)
        list.push_back(action(Op::Forward, s, warmup + k));
      list.push_back(action(Op::Backward, s, backward(k)));
    }
  }
  return order;
}

} // namespace penstock
