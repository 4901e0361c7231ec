//===- Family.h - What every schedule family needs --------------*- C++ -*-===//
//
// The checks that all families share, and the shortest way to write an action
// down. Private to the Schedule library.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_LIB_SCHEDULE_FAMILIES_FAMILY_H
#define PENSTOCK_LIB_SCHEDULE_FAMILIES_FAMILY_H

#include "penstock/Schedule/Schedule.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace penstock {

/// "family: why".
Failure refuse(std::string_view family, const std::string &why);

/// An order without actions, or why `family` cannot schedule the problem: no
/// ranks, stages or micro-batches, or a placement that names no rank.
Result<Program> emptyOrder(const Problem &problem, std::string_view family);

/// As emptyOrder, for families that need one chain and exactly one stage on
/// every rank.
Result<Program> emptyOrderOneStagePerRank(const Problem &problem,
                                          std::string_view family);

/// As emptyOrder, for families with one chain and `chunks` stages on every rank
/// that are placed as by placeSnake, up to the names of the ranks: stages 0 to
/// p-1 are on ranks of their own.
/// A refusal of their number names `otherwise` as another way out.
Result<Program> emptyOrderSnake(const Problem &problem, std::string_view family,
                                int32_t chunks,
                                const std::string &otherwise = {});

/// As emptyOrder, for families with two chains that meet each other: an even
/// number of ranks, one stage of either chain on every rank, and the stages of
/// chain 1 in the opposite direction, as by placeBothWays.
Result<Program> emptyOrderBothWays(const Problem &problem,
                                   std::string_view family);

/// As emptyOrder, for families that need one chain and the same number of
/// stages on every rank: p stages on p ranks, the next p on the same ranks
/// again, and so on.
Result<Program> emptyOrderLooped(const Problem &problem,
                                 std::string_view family);

/// The micro-batches of each of two chains, ascending.
std::array<std::vector<int32_t>, 2>
microbatchesOfChains(const Problem &problem);

inline Instruction action(Op op, int32_t stage, int32_t microbatch) {
  Instruction inst;
  inst.op = op;
  inst.stage = stage;
  inst.microbatch = microbatch;
  return inst;
}

/// Appends F(0) .. F(warmup-1), then I(k) W(k-delay) F(warmup+k) for k in
/// 0..n-1, then the W that are left, without those that do not exist.
/// `make(op, k)` gives the k-th F, I or W.
template <typename Make>
inline void appendZeroBubble(RankProgram &rank, int64_t n, int64_t warmup,
                             int64_t delay, Make &&make) {
  const int64_t ahead = std::min(n, warmup);
  auto &list = rank.instructions;
  list.reserve(3 * n + 1); // and a step
  for (int64_t k = 0; k < ahead; ++k)
    list.push_back(make(Op::Forward, k));
  for (int64_t k = 0; k < n; ++k) {
    list.push_back(make(Op::BackwardInput, k));
    if (k >= delay)
      list.push_back(make(Op::BackwardWeight, k - delay));
    if (ahead + k < n)
      list.push_back(make(Op::Forward, ahead + k));
  }
  for (int64_t k = std::max<int64_t>(0, n - delay); k < n; ++k)
    list.push_back(make(Op::BackwardWeight, k));
}

} // namespace penstock

#endif // PENSTOCK_LIB_SCHEDULE_FAMILIES_FAMILY_H
