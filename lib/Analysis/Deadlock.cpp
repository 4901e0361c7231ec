//===- Deadlock.cpp - Does the program terminate, and if not, why ---------===//
//
// A stuck execution is explained at its front: the items that their rank has
// reached and that have not ended. Such an item waits for its step; the step
// waits for a member that its rank has not reached, because that member stands
// behind another item of the front. Every front item therefore waits for
// another one, unless a partner does not exist at all.
//
//===----------------------------------------------------------------------===//

#include "HostOrder.h"
#include "Items.h"
#include "Rules.h"
#include "ShortestCycle.h"

#include "penstock/Analysis/EventGraph.h"

#include <bitset>
#include <numeric>
#include <utility>

using namespace penstock;

namespace {

constexpr uint32_t kNone = ~0u;

/// The wait-for graph of a stuck execution. Nodes are the front items and,
/// numbered after them, the steps that they wait for. An item's edges go to its
/// steps; a step's edges go to the front items behind which a member stands.
class Blockage {
public:
  Blockage(const Program &program, const Channels &channels,
           const Semantics &semantics, const EventGraph &graph,
           const Ended &ended)
      : program(program), channels(channels), semantics(semantics),
        graph(graph), ended(ended), visited(program.ranks.size()) {
    findPartners();
    if (semantics.groups == Semantics::Layered)
      layers = channels.layers();
    findFront();
    findEdges();
  }

  /// Front transfers and collectives whose partner does not exist.
  std::vector<Site> unmatched() const;
  /// A shortest cycle; empty if there is none.
  std::vector<Site> shortestCycle();

private:
  struct Edge {
    uint32_t from, to;
    uint32_t instruction; ///< item's edge: the member; step's edge: the member
                          ///< that is not reached, on the rank of `to`
  };

  bool itemEnded(size_t r, uint32_t first, uint32_t end) const {
    return std::all_of(ended[r].begin() + first, ended[r].begin() + end,
                       [](uint8_t e) { return e != 0; });
  }
  uint32_t nodeOfStep(uint32_t step) const {
    auto it = std::lower_bound(steps.begin(), steps.end(), step);
    return it != steps.end() && *it == step
               ? static_cast<uint32_t>(front.size() + (it - steps.begin()))
               : kNone;
  }
  /// Calls `fn(instruction, step)` for the members of a front item that have
  /// not ended and are posted, and for the step that each waits for.
  template <typename Fn>
  void forEachWait(uint32_t f, Fn &&fn) const;
  void findPartners();
  void findFront();
  void findEdges();
  void appendPath(Site from, Site to, std::vector<Site> &path);

  const Program &program;
  const Channels &channels;
  const Semantics semantics;
  const EventGraph &graph;
  const Ended &ended;

  /// Of each event that is a transfer, the one it waits for: its other end, or
  /// for a send that may run ahead, the receive that makes room. Of a
  /// collective, itself. kNone: what it needs does not exist.
  std::vector<uint32_t> partner;
  std::vector<uint32_t> layers;     ///< of each event, if groups have them
  std::vector<Site> front;          ///< first instructions of the front items
  std::vector<uint32_t> frontEnd;   ///< one past their last instructions
  std::vector<uint32_t> frontLayer; ///< the layer that they have posted
  std::vector<uint32_t> steps;      ///< that the front waits for, sorted
  std::vector<Edge> edges;          ///< sorted by `from`
  std::vector<std::vector<uint8_t>> visited; ///< items, of appendPath
};

} // namespace

void Blockage::findPartners() {
  partner.assign(channels.base.back(), kNone);
  const bool buffered =
      semantics.groups != Semantics::Closure && semantics.capacity > 0;
  for (const Channel &channel : channels.channels) {
    for (uint32_t k = 0; k < channel.numPairs(); ++k)
      partner[channels.recv(channel, k)] = channels.send(channel, k);
    for (uint32_t k = 0; k < channel.numSends; ++k) {
      const int64_t recv = buffered ? k - semantics.capacity : k;
      const uint32_t send = channels.send(channel, k);
      if (recv < 0)
        partner[send] = send;
      else if (recv < channel.numRecvs)
        partner[send] = channels.recv(channel, static_cast<uint32_t>(recv));
    }
  }
  for (const Meeting &meeting : channels.meetings)
    for (uint32_t k = 0; k < meeting.count; ++k)
      partner[channels.member(meeting, k)] = channels.member(meeting, k);
}

void Blockage::findFront() {
  ItemWalk items(semantics.serialised);
  for (size_t r = 0; r < program.ranks.size(); ++r) {
    std::vector<uint8_t> done(program.ranks[r].instructions.size());
    items.walk(program.ranks[r], [&](uint32_t first, uint32_t end,
                                     auto &predecessors) {
      done[first] = itemEnded(r, first, end);
      if (done[first] || !std::all_of(predecessors.begin(), predecessors.end(),
                                      [&](uint32_t p) { return done[p]; }))
        return;
      front.push_back({static_cast<int32_t>(r), first});
      frontEnd.push_back(end);
      uint32_t layer = kNone;
      if (!layers.empty())
        for (uint32_t i = first; i < end; ++i)
          if (!ended[r][i])
            layer = std::min(layer, layers[channels.base[r] + i]);
      frontLayer.push_back(layer);
    });
  }
  for (uint32_t f = 0; f < front.size(); ++f)
    forEachWait(f, [&](uint32_t, uint32_t step) { steps.push_back(step); });
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
}

template <typename Fn>
void Blockage::forEachWait(uint32_t f, Fn &&fn) const {
  const int32_t r = front[f].rank;
  for (uint32_t i = front[f].instruction; i < frontEnd[f]; ++i) {
    const uint32_t event = channels.base[r] + i;
    if (ended[r][i] || (!layers.empty() && layers[event] > frontLayer[f]))
      continue;
    if (semantics.groups == Semantics::Closure) {
      fn(i, graph.stepOf({r, i})); // All members are in one step.
      return;
    }
    if (partner[event] != kNone)
      fn(i, graph.stepOf(channels.site(partner[event])));
  }
}

void Blockage::findEdges() {
  for (uint32_t f = 0; f < front.size(); ++f)
    forEachWait(f, [&](uint32_t i, uint32_t step) {
      edges.push_back({f, nodeOfStep(step), i});
    });

  // Behind which front items of its rank an item stands. A rank has at most one
  // front item per queue.
  using FrontSet = std::bitset<256>;
  ItemWalk items(semantics.serialised);
  std::vector<FrontSet> behind;
  for (uint32_t r = 0, f = 0; r < program.ranks.size(); ++r) {
    const uint32_t firstFront = f;
    auto addMember = [&](uint32_t i, uint32_t g) {
      const uint32_t step =
          nodeOfStep(graph.stepOf({static_cast<int32_t>(r), i}));
      if (step != kNone)
        edges.push_back({step, g, i});
    };
    behind.assign(program.ranks[r].instructions.size(), {});
    items.walk(program.ranks[r],
               [&](uint32_t first, uint32_t end, auto &predecessors) {
                 if (f < front.size() &&
                     front[f] == Site{static_cast<int32_t>(r), first}) {
                   // A later layer stands behind the one that is posted.
                   if (!layers.empty())
                     for (uint32_t i = first; i < end; ++i)
                       if (layers[channels.base[r] + i] > frontLayer[f])
                         addMember(i, f);
                   behind[first].set(f++ - firstFront);
                   return;
                 }
                 for (uint32_t p : predecessors)
                   behind[first] |= behind[p];
                 if (behind[first].none())
                   return;
                 for (uint32_t i = first; i < end; ++i)
                   for (uint32_t g = firstFront; g < f; ++g)
                     if (behind[first][g - firstFront])
                       addMember(i, g);
               });
  }
  std::stable_sort(
      edges.begin(), edges.end(),
      [](const Edge &a, const Edge &b) { return a.from < b.from; });
}

std::vector<Site> Blockage::shortestCycle() {
  std::vector<uint32_t> starts(front.size());
  std::iota(starts.begin(), starts.end(), 0u);
  std::sort(starts.begin(), starts.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(front[a].instruction, front[a].rank) <
           std::pair(front[b].instruction, front[b].rank);
  });
  const std::vector<uint32_t> best = penstock::shortestCycle(
      Digraph(front.size() + steps.size(), edges), starts);
  std::vector<Site> cycle;
  for (size_t k = 0; k < best.size(); k += 2) {
    const Edge &own = edges[best[k]], &other = edges[best[k + 1]];
    appendPath({front[own.from].rank, own.instruction},
               {front[other.to].rank, other.instruction}, cycle);
  }
  return cycle;
}

/// Appends the way through one step from an instruction to one that is not
/// reached: both themselves, and between them, under closure, the pairs of
/// transfers by way of which they are in one step.
void Blockage::appendPath(Site from, Site to, std::vector<Site> &path) {
  if (semantics.groups != Semantics::Closure ||
      isCollective(program.ranks[to.rank].instructions[to.instruction].op)) {
    path.push_back(from);
    path.push_back(to);
    return;
  }
  auto isJoined = [&](Site s) {
    const auto &insts = program.ranks[s.rank].instructions;
    return s.instruction < insts.size() && insts[s.instruction].joined;
  };
  auto headOf = [&](Site s) {
    while (isJoined(s))
      --s.instruction;
    return s;
  };
  // Breadth-first over the items of the step. Steps of a cycle share no item.
  auto visit = [&](Site item) {
    auto &flags = visited[item.rank];
    flags.resize(program.ranks[item.rank].instructions.size());
    return !std::exchange(flags[item.instruction], 1);
  };
  struct Visit {
    Site item, by, partner; ///< reached by the transfer `by` of an earlier item
    size_t previous;
  };
  std::vector<Visit> queue = {{headOf(from), {}, {}, 0}};
  visit(queue.front().item);
  const Site target = headOf(to);
  for (size_t next = 0; next < queue.size(); ++next) {
    if (queue[next].item == target) {
      const auto begin = static_cast<ptrdiff_t>(path.size());
      for (size_t at = next; at != 0; at = queue[at].previous) {
        path.push_back(queue[at].partner);
        path.push_back(queue[at].by);
      }
      std::reverse(path.begin() + begin, path.end());
      return;
    }
    Site t = queue[next].item;
    do {
      const Instruction &inst =
          program.ranks[t.rank].instructions[t.instruction];
      const uint32_t met = partner[channels.base[t.rank] + t.instruction];
      if (isTransfer(inst.op) && met != kNone) {
        const Site other = {inst.peer, met - channels.base[inst.peer]};
        if (visit(headOf(other)))
          queue.push_back({headOf(other), t, other, next});
      }
      ++t.instruction;
    } while (isJoined(t));
  }
}

std::vector<Site> Blockage::unmatched() const {
  std::vector<uint8_t> missing(partner.size());
  for (const Meeting &meeting : channels.meetings)
    for (uint32_t k = 0; k < meeting.count; ++k)
      missing[channels.member(meeting, k)] = !meeting.complete;
  for (const Channel &channel : channels.channels) {
    for (uint32_t k = 0; k < channel.numSends; ++k)
      missing[channels.send(channel, k)] =
          partner[channels.send(channel, k)] == kNone;
    for (uint32_t k = 0; k < channel.numRecvs; ++k)
      missing[channels.recv(channel, k)] =
          partner[channels.recv(channel, k)] == kNone;
  }
  std::vector<Site> result;
  for (size_t f = 0; f < front.size(); ++f) {
    const int32_t r = front[f].rank;
    for (uint32_t i = front[f].instruction; i < frontEnd[f]; ++i)
      if (!ended[r][i] && missing[channels.base[r] + i])
        result.push_back({r, i});
  }
  return result;
}

DeadlockResult penstock::runAndExplain(const Program &program,
                                       const Channels &channels,
                                       const Semantics &semantics,
                                       const Ended *done, Ended *ended) {
  const EventGraph graph(program, channels, semantics);
  const std::vector<uint32_t> order = graph.topologicalOrder(done);
  DeadlockResult result;
  result.ok = order.size() == graph.numSteps();
  if (result.ok)
    return result;
  Ended stuck(program.ranks.size());
  for (size_t r = 0; r < stuck.size(); ++r)
    stuck[r].resize(program.ranks[r].instructions.size());
  for (uint32_t step : order)
    graph.forEachMember(
        step, [&](Site site) { stuck[site.rank][site.instruction] = 1; });
  for (const std::vector<uint8_t> &flags : stuck) {
    auto stop = std::find(flags.begin(), flags.end(), 0);
    result.progress.push_back(
        {static_cast<uint32_t>(std::count(flags.begin(), flags.end(), 1)),
         stop == flags.end() ? kNoInstruction
                             : static_cast<uint32_t>(stop - flags.begin())});
  }
  Blockage blockage(program, channels, semantics, graph, stuck);
  result.cycle = blockage.shortestCycle();
  result.unmatched = blockage.unmatched();
  if (ended)
    *ended = std::move(stuck);
  return result;
}

static DeadlockResult check(const Program &program, const Channels &channels,
                            const Semantics &semantics, const Ended *done) {
  if (semantics.firstUse) {
    // What the hosts wait for does not depend on what the devices do.
    DeadlockResult result = checkFirstUse(program, channels, done);
    if (!result.ok)
      return result;
  }
  return runAndExplain(program, channels, semantics, done);
}

DeadlockResult penstock::checkDeadlock(const Program &program,
                                       const Channels &channels,
                                       const Semantics &semantics) {
  // Closure in host order implies every other semantics.
  if (runsInHostOrder(channels)) {
    DeadlockResult result;
    result.ok = true;
    return result;
  }
  return check(program, channels, semantics, nullptr);
}

DeadlockResult penstock::checkDeadlock(const Program &program,
                                       const Semantics &semantics) {
  return checkDeadlock(program, Channels(program), semantics);
}

DeadlockResult
penstock::explainBlocked(const Program &program, const Semantics &semantics,
                         const std::vector<std::vector<uint8_t>> &done) {
  return check(program, Channels(program), semantics, &done);
}
