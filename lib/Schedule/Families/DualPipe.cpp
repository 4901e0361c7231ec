//===- DualPipe.cpp - DualPipe, and DualPipeV, its half -------------------===//
//
// Both merge two streams of micro-batches on every rank, one that goes away
// from it and one that comes back, in the same order. F0, B0 are actions of the
// one, F1, B1 of the other; (F & B) is an overlapped pair.
//
//   DualPipeV  rank r of p has stages r (stream 0) and 2p-1-r (stream 1) of
//              one chain; d = p-1-r ranks are between it and the turn
//   DualPipe   rank r of p, p even, has stage r on chain 0 and stage p-1-r on
//              chain 1; stream 0 is the chain that starts nearer to it, and
//              d = p/2-1-min(r, p-1-r) ranks are between it and the middle
//
// Order, for n micro-batches of either stream and e ranks before this one in
// its half, h = d + e + 1, at least 2h of them; those from n on are left out:
//
//   1  F0(k)                                              k < 2d
//   2  F0(2d+k) F1(k)                                     k < e+1
//   3  I1(k) W F1(e+1+k)                                  k < d
//   4  (F0(2d+e+1+k) & B1(d+k)) (F1(h+k) & B0(k))         k < n-2h+e+1
//   5  B1(n-h+k) (F1(n-d+k) & B0(n-2h+e+1+k))             k < d
//   6  B1(n-e-1+k) B0(n-h+k)                              k < e+1
//   7  W I0(n-d+k)                                        k < d
//   8  W                                                  k < e+1
//
// W is that of the oldest I that has none. In step 6, B1 is I1 if 2k > e, and
// B0 is I0 if 2k >= e. In step 4 the rank at the turn or in the middle, d = 0,
// runs the first F0 and B1 unpaired: the B is of the micro-batch whose F it has
// just run.
//
// DualPipeV, p = 2, m = 4, F = I = W = 1, B = 2, F & B = 3:
//
//   rank 0 F0-F1F2-f0i0-w0f1-F3b1---...f2B0---b2---...f3B1---b3---I2-W2I3-W3
//   rank 1 ...F0f0-F1f1-F2b0---f2B0----F3b1---f3B1----b2---B2---..i3-I3w3-W3
//   time   |0           |5          |10          |15         |20
//
// DualPipe, p = 4, m = 8, micro-batches 0 to 3 on chain 0:
//
//   rank 0 F0-F1F2-f4i4-w4f5-F3b5---...f6B0---b6---...f7B1---b7---I2-W2I3-W3
//   rank 1 ...F0f4-F1f5-F2b4---f6B0----F3b5---f7B1----b6---B2---..i7-I3w7-W3
//   rank 2 ...f4F0-f5F1-f6B0---F2b4----f7B1---F3b5----B2---b6---..I3-i7W3-w7
//   rank 3 f4-f5f6-F0I0-W0F1-f7B1---...F2b4---B2---...F3b5---B3---i6-w6i7-w7
//   time   |0           |5          |10          |15         |20
//
// Constraint  DualPipeV: two stages on every rank, placed in a V. DualPipe: one
//             stage of either chain on every rank, chain 1 against chain 0, an
//             even number of ranks. Any m >= 1; fewer than 2p micro-batches run
//             as 2p of which some are left out
// Idle        (h - 1) (FB + B - 3W) with FB the time of a pair, exact if F = I,
//             W <= F and m >= 2p; h = p/2 of DualPipe, p of DualPipeV
// Peak        p + 1 stage activations of DualPipe, 2p + 1 of DualPipeV
// Parameters  twice with DualPipe, whose two copies of a stage sum their
//             gradients before the optimizer step
//
// DeepSeek-AI, DeepSeek-V3 Technical Report (arXiv:2412.19437), and
// github.com/deepseek-ai/DualPipe; cut in half: Sea AI Lab, 2025.
//
//===----------------------------------------------------------------------===//

#include "Family.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace penstock {

namespace {
/// One of the two streams of a rank.
struct Stream {
  int32_t stage;
  std::span<const int32_t> microbatches;
};

/// The order of one rank.
class Merger {
public:
  Merger(std::vector<Instruction> &list, std::array<Stream, 2> streams)
      : list(list), streams(streams),
        m(static_cast<int32_t>(std::max(streams[0].microbatches.size(),
                                        streams[1].microbatches.size()))) {}

  /// `before` and `behind` ranks stand between it and the ends of its half.
  void run(int32_t before, int32_t behind);

private:
  bool add(Op op, int stream, int32_t k) {
    const auto &microbatches = streams[stream].microbatches;
    if (k >= static_cast<int32_t>(microbatches.size()))
      return false;
    list.push_back(action(op, streams[stream].stage, microbatches[k]));
    return true;
  }
  void forward(int stream, int32_t k) { add(Op::Forward, stream, k); }
  void backward(int stream, int32_t k) { add(Op::Backward, stream, k); }
  void input(int stream, int32_t k) {
    if (add(Op::BackwardInput, stream, k))
      pending.push_back(list.back());
  }
  void pair(int forwardStream, int32_t f, int32_t b) {
    const bool joined = add(Op::Forward, forwardStream, f);
    if (add(Op::Backward, 1 - forwardStream, b))
      list.back().joined = joined;
  }
  void weight() {
    if (done == pending.size())
      return;
    list.push_back(pending[done++]);
    list.back().op = Op::BackwardWeight;
  }
  /// Every body names a micro-batch of at least k: none is left from m on.
  template <typename Body>
  void repeat(int32_t times, Body &&body) {
    for (int32_t k = 0; k < std::min(times, m); ++k)
      body(k);
  }

  std::vector<Instruction> &list;
  const std::array<Stream, 2> streams;
  const int32_t m; ///< of the longer stream
  std::vector<Instruction> pending;
  size_t done = 0; ///< of `pending`
};
} // namespace

void Merger::run(int32_t e, int32_t d) {
  const int32_t h = d + e + 1, n = std::max(m, 2 * h);
  const size_t numMicrobatches =
      streams[0].microbatches.size() + streams[1].microbatches.size();
  list.reserve(2 * numMicrobatches + // and the W, and a step
               std::min(numMicrobatches, size_t(2 * d + e + 1)) + 1);
  repeat(2 * d, [&](int32_t k) { forward(0, k); });
  repeat(e + 1, [&](int32_t k) {
    forward(0, 2 * d + k);
    forward(1, k);
  });
  repeat(d, [&](int32_t k) {
    input(1, k);
    weight();
    forward(1, e + 1 + k);
  });
  repeat(n - 2 * h + e + 1, [&](int32_t k) {
    if (d == 0 && k == 0) {
      forward(0, e + 1);
      backward(1, 0);
    } else {
      pair(0, 2 * d + e + 1 + k, d + k);
    }
    pair(1, h + k, k);
  });
  repeat(d, [&](int32_t k) {
    backward(1, n - h + k);
    pair(1, n - d + k, n - 2 * h + e + 1 + k);
  });
  repeat(e + 1, [&](int32_t k) {
    2 * k > e ? input(1, n - e - 1 + k) : backward(1, n - e - 1 + k);
    2 * k >= e ? input(0, n - h + k) : backward(0, n - h + k);
  });
  repeat(d, [&](int32_t k) {
    weight();
    input(0, n - d + k);
  });
  while (done < pending.size())
    weight();
}

Result<Program> dualPipeV(const Problem &problem) {
  Result<Program> order = emptyOrderSnake(problem, "dualpipe_v", 2);
  if (!order)
    return order;
  std::vector<int32_t> all(problem.numMicrobatches);
  std::iota(all.begin(), all.end(), 0);
  const int32_t p = problem.numRanks;
  for (int32_t r = 0; r < p; ++r)
    Merger(order->ranks[problem.placement[r]].instructions,
           {Stream{r, all}, Stream{2 * p - 1 - r, all}})
        .run(r, p - 1 - r);
  return order;
}

Result<Program> dualPipe(const Problem &problem) {
  Result<Program> order = emptyOrderBothWays(problem, "dualpipe");
  if (!order)
    return order;
  const auto microbatches = microbatchesOfChains(problem);
  const int32_t p = problem.numRanks;
  for (int32_t r = 0; r < p; ++r) {
    const int32_t before = std::min(r, p - 1 - r);
    const int near = r < p / 2 ? 0 : 1; // the chain that starts nearer
    Merger(order->ranks[problem.placement[r]].instructions,
           {Stream{before, microbatches[near]},
            Stream{p - 1 - before, microbatches[1 - near]}})
        .run(before, p / 2 - 1 - before);
  }
  return order;
}

} // namespace penstock
