//===- Hanayo.cpp - Waves -------------------------------------------------===//
//
// The stages go along the ranks and back, once for each of w waves: 2w stages a
// rank. The order is that of a list scheduler with F = 1 and B = 2: whenever a
// rank is free it takes, of the actions that can start,
//
//   the B of its lowest stage, or if there is none the F of its deepest one,
//
// of either the oldest micro-batch. At most p micro-batches are between their
// first F and their last B, so that memory does not grow with m.
//
// p = 3, w = 1, m = 3, F = 1, B = 2:
//
//   rank 0 F0F1F2....f0b0--f1b1--f2b2--....B0--....B1--....B2--
//   rank 1 ..F0F1F2f0..f1..b0--f2b1--..B0--b2--B1--....B2--....
//   rank 2 ....F0f0F1f1F2f2....b0--B0--b1--B1--b2--B2--........
//   time   |0        |5        |10       |15       |20       |25
//
// Constraint  2w stages on every rank, placed along the ranks and back, w from
//             1 to 32; any m >= 1
// Bubble      about (2p-2) of 3pw + p-1, as a fraction, for B = 2F and m = p;
//             micro-batches beyond p wait for others to leave, which costs more
// Peak        at most 2w min(m, p) stage activations, the memory of 1F1B
//
// Z. Liu et al., Hanayo, SC 2023 (arXiv:2308.15762).
//
//===----------------------------------------------------------------------===//

#include "Family.h"

#include <algorithm>
#include <bit>
#include <string>

namespace penstock {

namespace {

class ListScheduler {
public:
  explicit ListScheduler(Program &order)
      : order(order), problem(order.problem), p(problem.numRanks),
        forward(problem.stages.size()), backward(problem.stages.size()),
        ranks(p), position(p) {
    for (int32_t s = 0; s < p; ++s)
      position[problem.placement[s]] = s;
  }

  void run();

private:
  /// The micro-batches of a stage go through it in ascending order.
  struct Counts {
    int32_t next = 0, ready = 0;
  };
  struct Rank {
    uint64_t forwards = 0, backwards = 0; ///< its stages, by round, with an
                                          ///< action that can start
    bool busy = false;
  };

  void makeReady(Op op, int32_t stage);
  void start(int32_t rank);
  void finish(int32_t rank);

  Program &order;
  const Problem &problem;
  const int32_t p;
  std::vector<Counts> forward, backward; ///< of each stage
  std::vector<Rank> ranks;
  std::vector<int32_t> position; ///< of each rank, along the ranks
  int32_t waiting = 0;           ///< micro-batches that have not started
  int32_t now = 0;
  std::vector<int32_t> ends[3]; ///< ranks by the time, mod 3, at which they
                                ///< become free
  std::vector<int32_t> mayStart;
};

} // namespace

void ListScheduler::run() {
  const int32_t ahead = std::min(problem.numMicrobatches, p);
  waiting = problem.numMicrobatches - ahead;
  for (int32_t mb = 0; mb < ahead; ++mb)
    makeReady(Op::Forward, 0);
  for (;; now = (now + 1) % 3) {
    for (int32_t rank : ends[now])
      finish(rank);
    ends[now].clear();
    for (int32_t rank : mayStart)
      start(rank);
    mayStart.clear();
    if (ends[0].empty() && ends[1].empty() && ends[2].empty())
      return;
  }
}

void ListScheduler::makeReady(Op op, int32_t stage) {
  const bool isForward = op == Op::Forward;
  const int32_t rank = problem.placement[stage];
  (isForward ? forward : backward)[stage].ready++;
  (isForward ? ranks[rank].forwards : ranks[rank].backwards) |= uint64_t(1)
                                                                << stage / p;
  mayStart.push_back(rank);
}

void ListScheduler::start(int32_t r) {
  Rank &rank = ranks[r];
  if (rank.busy || (rank.forwards | rank.backwards) == 0)
    return;
  const bool isForward = rank.backwards == 0;
  uint64_t &rounds = isForward ? rank.forwards : rank.backwards;
  const int32_t round =
      isForward ? std::bit_width(rounds) - 1 : std::countr_zero(rounds);
  const int32_t at = position[r];
  const int32_t stage = round * p + (round % 2 == 0 ? at : p - 1 - at);
  Counts &counts = (isForward ? forward : backward)[stage];
  if (--counts.ready == 0)
    rounds &= ~(uint64_t(1) << round);
  order.ranks[r].instructions.push_back(
      action(isForward ? Op::Forward : Op::Backward, stage, counts.next++));
  rank.busy = true;
  ends[(now + (isForward ? 1 : 2)) % 3].push_back(r);
}

void ListScheduler::finish(int32_t r) {
  ranks[r].busy = false;
  mayStart.push_back(r);
  const Instruction &done = order.ranks[r].instructions.back();
  if (done.op == Op::Forward) {
    if (done.stage + 1 < problem.numStages())
      makeReady(Op::Forward, done.stage + 1);
    else
      makeReady(Op::Backward, done.stage);
  } else if (done.stage > 0) {
    makeReady(Op::Backward, done.stage - 1);
  } else if (waiting > 0) {
    --waiting;
    makeReady(Op::Forward, 0);
  }
}

Result<Program> hanayo(const Problem &problem, int32_t waves) {
  constexpr int32_t kMaxWaves = 32;
  if (waves < 1 || waves > kMaxWaves)
    return refuse("hanayo", std::to_string(waves) +
                                " waves; give a number from 1 to " +
                                std::to_string(kMaxWaves));
  const int64_t perWave = 2 * static_cast<int64_t>(problem.numRanks);
  const int64_t fitting = perWave > 0 && problem.numStages() % perWave == 0
                              ? problem.numStages() / perWave
                              : 0;
  Result<Program> order =
      emptyOrderSnake(problem, "hanayo", 2 * waves,
                      fitting > 0 && fitting <= kMaxWaves
                          ? " or waves = " + std::to_string(fitting)
                          : "");
  if (!order)
    return order;
  for (RankProgram &rank : order->ranks)
    rank.instructions.reserve(
        4 * static_cast<size_t>(waves) * problem.numMicrobatches + 1);
  ListScheduler(*order).run();
  return order;
}

} // namespace penstock
