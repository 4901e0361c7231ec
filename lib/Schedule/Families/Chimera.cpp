//===- Chimera.cpp - Two pipelines that fill each other's bubbles ---------===//
//
// A down pipeline has stage s on rank s, an up pipeline stage s on rank p-1-s.
// Micro-batch k of either one, k = u p/2 + j with j < p/2, is the j-th of unit
// u and has one slot of unit time for each action:
//
//   F of stage s   s + 2j + 2pu
//   B of stage s   2p-1-s + 2j + 2pu
//
// On a rank no two actions have the same slot, and those of both pipelines run
// in the order of their slots.
//
// p = 4, m = 8, F = 1, B = 2, micro-batches 0 to 3 down:
//
//   rank 0 F0F1..f4b4--f5b5--..B0--F2..B1--F3f6b6--f7b7--..B2--....B3--
//   rank 1 ..F0f4F1f5..b4--B0--b5--B1--F2f6..F3f7..b6--B2--b7--B3--....
//   rank 2 ..f4F0f5F1..B0--b4--B1--b5--f6F2..f7F3..B2--b6--B3--b7--....
//   rank 3 f4f5..F0B0--F1B1--..b4--f6..b5--f7F2B2--F3B3--..b6--....b7--
//   time   |0        |5        |10       |15       |20       |25
//
// Constraint  one stage of either pipeline on every rank, an even number of
//             ranks; any m >= 1
// Bubble      (p-2) of 2m + p-2, as a fraction, for F = B and m a multiple of
//             p; for B = 2F and m = p, (p-2) of 3m/2 + p-2, and more than that
//             where units follow each other
// Peak        min(p, p/2 + 1 + min(r, p-1-r)) stage activations on rank r for m
//             a multiple of p
// Parameters  twice: the two copies of a stage sum their gradients before the
//             optimizer step
//
// S. Li, T. Hoefler, Chimera, SC 2021 (arXiv:2107.06925), without the variants
// that double forwards or halve backwards.
//
//===----------------------------------------------------------------------===//

#include "Family.h"

#include <algorithm>
#include <array>

namespace penstock {

namespace {
/// The actions of one kind on one rank, by ascending slot.
struct Actions {
  Op op;
  int32_t stage;
  const std::vector<int32_t> &microbatches; ///< of the pipeline
  int64_t slot;                             ///< of the next one
  uint32_t next = 0;
};
} // namespace

Result<Program> chimera(const Problem &problem) {
  Result<Program> order = emptyOrderBothWays(problem, "chimera");
  if (!order)
    return order;
  const auto microbatches = microbatchesOfChains(problem);
  const auto &[down, up] = microbatches;
  const int32_t p = problem.numRanks;
  for (int32_t r = 0; r < p; ++r) {
    auto &list = order->ranks[problem.placement[r]].instructions;
    list.reserve(2 * static_cast<size_t>(problem.numMicrobatches) + 1);
    Actions all[] = {{Op::Forward, r, down, r},
                     {Op::Backward, r, down, 2 * p - 1 - r},
                     {Op::Forward, p - 1 - r, up, p - 1 - r},
                     {Op::Backward, p - 1 - r, up, p + r}};
    for (int64_t i = 0; i < 2 * int64_t(problem.numMicrobatches); ++i) {
      Actions *first = nullptr;
      for (Actions &actions : all)
        if (actions.next < actions.microbatches.size() &&
            (!first || actions.slot < first->slot))
          first = &actions;
      list.push_back(
          action(first->op, first->stage, first->microbatches[first->next++]));
      const bool lastOfUnit = first->next % uint32_t(p / 2) == 0;
      first->slot += lastOfUnit ? p + 2 : 2;
    }
  }
  return order;
}

} // namespace penstock
