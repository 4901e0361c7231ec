//===- ShortestCycle.h - The shortest cycle of a graph ----------*- C++ -*-===//
//
// Waits are a directed graph, and a deadlock is explained by a shortest cycle
// in it. Private to the Analysis library.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_LIB_ANALYSIS_SHORTESTCYCLE_H
#define PENSTOCK_LIB_ANALYSIS_SHORTESTCYCLE_H

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace penstock {

/// The edges of node n are firstEdge[n] .. firstEdge[n + 1], each to a target.
struct Digraph {
  std::vector<uint32_t> firstEdge, target;

  /// From edges with members `from` and `to`, sorted by `from`.
  template <typename Edge>
  Digraph(size_t numNodes, const std::vector<Edge> &edges)
      : firstEdge(numNodes + 1) {
    for (const Edge &edge : edges) {
      ++firstEdge[edge.from + 1];
      target.push_back(edge.to);
    }
    std::partial_sum(firstEdge.begin(), firstEdge.end(), firstEdge.begin());
  }
  uint32_t numNodes() const {
    return static_cast<uint32_t>(firstEdge.size() - 1);
  }
};

/// The edges of a shortest cycle, or none where there is no cycle. It begins at
/// a node of `starts`, which must have one on every cycle; of several shortest
/// ones it is one through the first possible start. A bounded number of edges
/// is looked at (2^25); where that does not suffice the cycle may not be
/// shortest.
std::vector<uint32_t> shortestCycle(const Digraph &graph,
                                    std::span<const uint32_t> starts);

} // namespace penstock

#endif // PENSTOCK_LIB_ANALYSIS_SHORTESTCYCLE_H
