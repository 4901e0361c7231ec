//===- ShortestCycle.cpp - The shortest cycle of a graph ------------------===//
//
// Nodes from which no cycle can be reached are removed; then a breadth-first
// search from every start looks for a way back, no longer than the shortest one
// so far.
//
//===----------------------------------------------------------------------===//

#include "ShortestCycle.h"

#include <algorithm>
#include <numeric>

using namespace penstock;

namespace {

constexpr uint32_t kNone = ~0u;

class Search {
public:
  explicit Search(const Digraph &graph)
      : graph(graph), source(graph.target.size()), alive(graph.numNodes(), 1),
        cameBy(graph.numNodes(), kNone), seen(graph.numNodes(), kNone) {
    for (uint32_t n = 0; n < graph.numNodes(); ++n)
      std::fill(source.begin() + graph.firstEdge[n],
                source.begin() + graph.firstEdge[n + 1], n);
    dropDeadEnds();
  }

  bool isAlive(uint32_t node) const { return alive[node]; }
  bool isOutOfBudget() const { return budget < 0; }
  std::vector<uint32_t> anyCycle(std::span<const uint32_t> starts) const;
  bool search(uint32_t start, size_t limit, std::vector<uint32_t> &cycle);

private:
  void dropDeadEnds();

  const Digraph &graph;
  std::vector<uint32_t> source; ///< of each edge
  std::vector<uint8_t> alive;   ///< node lies on a path to a cycle
  std::vector<uint32_t> cameBy, seen;
  int64_t budget = 1 << 25; ///< edges to look at, so that a huge refused
                            ///< program is explained quickly too
};

} // namespace

/// Keeps the nodes that have a successor, and then still have one.
void Search::dropDeadEnds() {
  const uint32_t numNodes = graph.numNodes();
  std::vector<uint32_t> outDegree(numNodes), into(source.size()), dead;
  std::iota(into.begin(), into.end(), 0u);
  std::stable_sort(into.begin(), into.end(), [&](uint32_t a, uint32_t b) {
    return graph.target[a] < graph.target[b];
  });
  std::vector<uint32_t> firstInto(numNodes + 1, 0);
  for (uint32_t to : graph.target)
    ++firstInto[to + 1];
  std::partial_sum(firstInto.begin(), firstInto.end(), firstInto.begin());
  for (uint32_t n = 0; n < numNodes; ++n) {
    outDegree[n] = graph.firstEdge[n + 1] - graph.firstEdge[n];
    if (outDegree[n] == 0)
      dead.push_back(n);
  }
  for (size_t next = 0; next < dead.size(); ++next) {
    alive[dead[next]] = 0;
    for (uint32_t e = firstInto[dead[next]]; e < firstInto[dead[next] + 1]; ++e)
      if (--outDegree[source[into[e]]] == 0)
        dead.push_back(source[into[e]]);
  }
}

/// Follows first successors until a node repeats; returns the edges.
std::vector<uint32_t> Search::anyCycle(std::span<const uint32_t> starts) const {
  auto first = std::find_if(starts.begin(), starts.end(),
                            [&](uint32_t start) { return alive[start]; });
  if (first == starts.end())
    return {};
  std::vector<uint32_t> position(alive.size(), kNone), walk;
  uint32_t node = *first;
  while (position[node] == kNone) {
    position[node] = static_cast<uint32_t>(walk.size());
    uint32_t e = graph.firstEdge[node];
    while (!alive[graph.target[e]])
      ++e;
    walk.push_back(e);
    node = graph.target[e];
  }
  walk.erase(walk.begin(), walk.begin() + position[node]);
  std::vector<uint8_t> isStart(alive.size());
  for (uint32_t start : starts)
    isStart[start] = 1;
  std::rotate(walk.begin(),
              std::find_if(walk.begin(), walk.end(),
                           [&](uint32_t e) { return isStart[source[e]]; }),
              walk.end());
  return walk;
}

/// Breadth-first from a node back to it, in fewer than `limit` edges.
bool Search::search(uint32_t start, size_t limit,
                    std::vector<uint32_t> &cycle) {
  std::vector<uint32_t> level = {start}, next;
  for (size_t depth = 1; depth < limit && !level.empty(); ++depth) {
    next.clear();
    for (uint32_t node : level)
      for (uint32_t e = graph.firstEdge[node]; e < graph.firstEdge[node + 1];
           ++e) {
        if (--budget < 0)
          return false;
        const uint32_t to = graph.target[e];
        if (to == start) {
          cycle = {e};
          while (source[cycle.back()] != start)
            cycle.push_back(cameBy[source[cycle.back()]]);
          std::reverse(cycle.begin(), cycle.end());
          return true;
        }
        if (!alive[to] || seen[to] == start)
          continue;
        seen[to] = start;
        cameBy[to] = e;
        next.push_back(to);
      }
    level.swap(next);
  }
  return false;
}

std::vector<uint32_t>
penstock::shortestCycle(const Digraph &graph,
                        std::span<const uint32_t> starts) {
  Search search(graph);
  std::vector<uint32_t> best = search.anyCycle(starts);
  // The first search may find an equally long one that begins earlier.
  for (size_t limit = best.size() + 1; uint32_t start : starts) {
    if (best.empty() || search.isOutOfBudget())
      break;
    if (search.isAlive(start) && search.search(start, limit, best))
      limit = best.size();
  }
  return best;
}
