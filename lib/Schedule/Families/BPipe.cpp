//===- BPipe.cpp - 1F1B with activations evened out over pairs of ranks ---===//
//
// The order of 1F1B. Stage s, with w = min(m, p - 1 - s), holds most in the
// first half of the pipeline, where p - s activations are in flight; the ranks
// of stages s and p - 1 - s are a pair, and with c = ceil((p + 2) / 2) the
// first of them evicts what is more than c to the second:
//
//   micro-batch k is evicted if k mod (p - 1 - s) >= c - 1, unless it is the
//   last one and nothing goes forward behind it before its own B (m <= p-1-s)
//   after F(k) of such a k its stash goes to the rank of stage p - 1 - s
//   before B(k) it comes back
//
// What is evicted is the newest activation, which is needed latest. In the
// steady state F(w+k) evicts where B(k) loads, in this order: the other way
// round the rank would hold one more.
//
// p = 4, m = 4, F = 1, B = 2, as 1F1B; rank 0 has given F2 to rank 3 when it
// runs F3, and has it back when it runs B2:
//
//   rank 0 F0F1F2F3............B0--..B1--..B2--..B3--
//   rank 1 ..F0F1F2........B0--F3B1--..B2--..B3--....
//   rank 2 ....F0F1....B0--F2B1--F3B2--..B3--........
//   rank 3 ......F0B0--F1B1--F2B2--F3B3--............
//   time   |0        |5        |10       |15       |20
//
// Constraint  one stage on every rank; any m >= 1
// Makespan    (m + p - 1) (F + B), for equal stages and free transfers
// Bubble      (p - 1) (F + B), as 1F1B
// Peak        min(m, p - s, c) activations where p - s >= c, else at most c:
//             own ones, and those held for another rank
// Latency     a load stands before its B and hides behind nothing: B waits for
//             it, where it takes time
//
// T. Kim et al., BPipe: Memory-Balanced Pipeline Parallelism for Training Large
// Language Models, ICML 2023. M. Huang et al., Re-evaluating the
// Memory-balanced Pipeline Parallelism: BPipe (arXiv:2401.02088), see a gain
// for GPT-3 96B without flash attention, and none with it.
//
//===----------------------------------------------------------------------===//

#include "Family.h"

namespace penstock {

Result<Program> bPipe(const Problem &problem) {
  Result<Program> order = oneForwardOneBackward(problem);
  if (!order)
    return emptyOrderOneStagePerRank(problem, "bpipe");
  const int32_t m = problem.numMicrobatches, p = problem.numRanks;
  const int32_t most = (p + 3) / 2;
  for (int32_t s = 0; s < p; ++s) {
    const int32_t ahead = p - 1 - s;
    if (ahead < most)
      continue;
    auto isEvicted = [&](int32_t mb) {
      return mb % ahead >= most - 1 && (mb + 1 < m || m > ahead);
    };
    auto &list = order->ranks[problem.placement[s]].instructions;
    std::vector<Instruction> moved;
    moved.reserve(2 * list.size() + 1); // and a step
    for (const Instruction &inst : list) {
      Instruction move = action(Op::Offload, s, inst.microbatch);
      move.peer = problem.placement[ahead];
      const bool moves = isEvicted(inst.microbatch);
      if (moves && inst.op == Op::Backward) {
        move.op = Op::Reload;
        moved.push_back(move);
      }
      moved.push_back(inst);
      if (moves && inst.op == Op::Forward)
        moved.push_back(move);
    }
    list = std::move(moved);
  }
  return order;
}

} // namespace penstock
