//===- EventGraph.h - What must happen before what --------------*- C++ -*-===//
//
// The event graph of a program. Its nodes are *steps*: what happens at once
// across ranks. Under closure semantics a step is a connected component of
// items by matching, or a collective on all its ranks. Under documented and
// layered semantics it is a pair of transfers, or with a capacity one transfer,
// and a group of several transfers has further steps without members: its
// start, its end and the borders between its layers. The arcs are the order on
// each rank, and what a buffer gives and takes. A program terminates if and
// only if every step can run (docs/semantics.md).
//
// Flat arrays of 32-bit indices, at most 64 bytes per instruction; building and
// running are linear.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_ANALYSIS_EVENTGRAPH_H
#define PENSTOCK_ANALYSIS_EVENTGRAPH_H

#include "penstock/Analysis/Verify.h"

namespace penstock {

struct Channels;

class EventGraph {
public:
  /// The program must be well-formed. All channels are connected, also when
  /// the semantics says first use.
  EventGraph(const Program &program, const Semantics &semantics);
  EventGraph(const Program &program, const Channels &channels,
             const Semantics &semantics);

  size_t numSteps() const { return stepCount; }

  /// The step that an instruction is a member of.
  uint32_t stepOf(Site site) const {
    return root[base[site.rank] + site.instruction];
  }

  /// The steps in an order in which they can run one by one. Shorter than
  /// numSteps() when the program deadlocks: then it is the part that runs.
  /// Every instruction is a member of exactly one step. A step of which some
  /// member has already ended (`ended[rank][i] != 0`) is taken as ended and
  /// comes first.
  std::vector<uint32_t> topologicalOrder(
      const std::vector<std::vector<uint8_t>> *ended = nullptr) const;

  /// Calls `fn(Site)` for the instructions of a step, in no particular order.
  template <typename Fn>
  void forEachMember(uint32_t step, Fn &&fn) const {
    if (step >= numInstructions)
      return;
    uint32_t member = step;
    do {
      fn(site(member));
      member = nextMember[member];
    } while (member != step);
  }

private:
  struct Arc {
    uint32_t next, target;
  };
  /// Runs the graph with a capacity of its own choice: every send of a graph
  /// with this capacity waits for one arc that does not exist.
  friend class CapacityRun;
  static constexpr int64_t kGranted = -1;

  Site site(uint32_t event) const {
    int32_t rank = rankOfBlock[event / kBlock];
    while (event >= base[rank + 1])
      ++rank;
    return {rank, event - base[rank]};
  }
  uint32_t find(uint32_t event);
  void unite(uint32_t a, uint32_t b);
  void addArc(uint32_t from, uint32_t to);
  uint32_t addEvent();
  void addRanks(const Program &program, const Channels &channels,
                const Semantics &semantics);
  uint32_t addGroup(uint32_t head, uint32_t end,
                    const std::vector<uint32_t> &layers);
  void keepOrder(const Channels &channels);
  void couple(const Channels &channels, const Semantics &semantics);
  void release(uint32_t step, std::vector<uint32_t> &pending,
               std::vector<uint32_t> &ready) const;

  static constexpr uint32_t kBlock = 64;

  // Events are the instructions, numbered through the ranks, then the starts,
  // borders and ends of groups. A step is named by one of its events, its root.
  size_t numInstructions = 0, stepCount = 0;
  std::vector<uint32_t> base;       ///< first event of each rank, and the end
  std::vector<int32_t> rankOfBlock; ///< rank of every kBlock-th event
  std::vector<uint32_t> root;       ///< of every event, its step
  std::vector<uint32_t> nextMember; ///< ring of the members of a step
  std::vector<uint32_t> pending;    ///< of every root, arcs into its step, plus
                                    ///< one for each partner that is missing
  std::vector<uint32_t> firstArc;   ///< of every event, its arcs, as a list
  std::vector<Arc> arcs;
};

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_EVENTGRAPH_H
