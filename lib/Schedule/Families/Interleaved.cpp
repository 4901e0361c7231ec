//===- Interleaved.cpp - Micro-batches pass chunks in groups --------------===//
//
// Builds the table, and finds out whether the order that follows from it
// deadlocks by its compute order alone, whatever the communication.
//
// On the r-th rank forward j stands behind the backwards up to j - w(r) - 1,
// and before the backwards from j - w(r) on, where w(r) = (v-1) g + hop
// (p-1-r). So
//
//   forward j of the first rank       needs, one chunk before,
//   forward j - L of the last rank,   L being the size of its group, which has
//                                     before it
//   backward b of the last rank,      b = j - L - (v-1) g - 1 or less, which
//                                     needs, one chunk behind,
//   backward b - L' of the first rank, L' the size of the group of b.
//
// Where forward j stands before that backward there is a cycle of waits, and
// every other cycle has one like this in it. It takes L + L' < hop (p-1): a
// group, or a rest, of less than p micro-batches. The tests hold this against a
// search for cycles.
//
//===----------------------------------------------------------------------===//

#include "Interleaved.h"

#include <optional>

namespace penstock {

namespace {

/// The table without its entries.
struct Shape {
  int32_t p, m, v, hop;

  /// The group of an entry: its first entry and its size.
  struct Group {
    int64_t first, size;
  };
  Group groupOf(int64_t entry, int32_t g) const {
    const int64_t first = entry / (int64_t(g) * v) * g;
    return {first * v, std::min<int64_t>(g, m - first)};
  }

  /// Forward `forward` of the first rank stands before its backward `backward`
  /// and needs it.
  struct Cycle {
    int64_t forward, backward;
  };
  std::optional<Cycle> findCycle(int32_t g) const {
    const int64_t last = int64_t(v - 1) * g; // warm-up of the last rank
    const int64_t first = last + int64_t(hop) * (p - 1);
    for (int64_t j = last; j < int64_t(m) * v; ++j) {
      const Group ahead = groupOf(j, g);
      int64_t b = j - ahead.size - last - 1;
      if (j < ahead.first + ahead.size || b < 0) // the first chunk
        continue;
      Group behind = groupOf(b, g);
      if (b < behind.first + behind.size) { // the last one: nothing behind it,
        b = behind.first - 1;               // but before it there is
        if (b < 0)
          continue;
        behind = groupOf(b, g);
      }
      if (const int64_t needed = b - behind.size;
          needed >= std::max<int64_t>(0, j - first))
        return Cycle{j, needed};
    }
    return std::nullopt;
  }
};

} // namespace

int32_t interleavedGroup(int32_t numRanks, int32_t numMicrobatches) {
  int32_t g = std::min(numRanks, numMicrobatches);
  while (numMicrobatches % g != 0 && numMicrobatches % g < numRanks)
    ++g;
  return g;
}

/// The groups next to one that deadlocks that do not.
static std::string nearestGroups(const Shape &shape, int32_t group) {
  int32_t below = group - 1, above = group + 1;
  while (below > 0 && shape.findCycle(below))
    --below;
  while (shape.findCycle(above)) // A single group never deadlocks.
    ++above;
  if (below == 0)
    return "the nearest group that works is " + std::to_string(above);
  return "the nearest groups that work are " + std::to_string(below) + " and " +
         std::to_string(above);
}

Result<Interleaving> interleave(const Problem &problem, std::string_view family,
                                int32_t group, int32_t hop) {
  Result<Program> order = emptyOrderLooped(problem, family);
  if (!order)
    return order.failure();
  const int32_t p = problem.numRanks, m = problem.numMicrobatches,
                v = problem.numStages() / p;
  if (group < 0 || group > m)
    return refuse(family, "groups of " + std::to_string(group) +
                              " micro-batches cannot be formed of " +
                              std::to_string(m) + "; give a group of 1 to " +
                              std::to_string(m));
  const int32_t g = group > 0 ? group : interleavedGroup(p, m);
  Interleaving result{std::move(*order), p, v, g, hop, {}};
  result.table.reserve(static_cast<size_t>(m) * v);
  for (int32_t first = 0; first < m; first += std::min(g, m - first))
    for (int32_t chunk = 0; chunk < v; ++chunk)
      for (int32_t i = 0; i < std::min(g, m - first); ++i)
        result.table.push_back({first + i, chunk});

  const Shape shape{p, m, v, hop};
  if (const std::optional<Shape::Cycle> cycle = shape.findCycle(g)) {
    const Instruction forward = result.forward(0, cycle->forward),
                      backward =
                          result.backward(Op::Backward, 0, cycle->backward);
    auto name = [](const char *what, const Instruction &inst) {
      return what + std::to_string(inst.stage) + " mb " +
             std::to_string(inst.microbatch);
    };
    return refuse(family, "groups of " + std::to_string(g) + " of the " +
                              std::to_string(m) +
                              " micro-batches deadlock on " +
                              std::to_string(p) + " ranks: rank " +
                              std::to_string(problem.placement[0]) + " has " +
                              name("forward ", forward) + " before " +
                              name("backward ", backward) +
                              ", which it needs; " + nearestGroups(shape, g));
  }
  return result;
}

Program fillInTurns(Interleaving loop) {
  const int64_t n = loop.size();
  for (int32_t r = 0; r < loop.p; ++r) {
    auto &list = loop.order.ranks[loop.order.problem.placement[r]].instructions;
    list.reserve(2 * n + 1); // and a step
    const int64_t w = loop.warmup(r);
    for (int64_t k = 0; k < w; ++k)
      list.push_back(loop.forward(r, k));
    for (int64_t k = 0; k < n; ++k) {
      if (w + k < n)
        list.push_back(loop.forward(r, w + k));
      list.push_back(loop.backward(Op::Backward, r, k));
    }
  }
  return std::move(loop.order);
}

} // namespace penstock
