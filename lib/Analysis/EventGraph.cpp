//===- EventGraph.cpp - What must happen before what ----------------------===//

#include "penstock/Analysis/EventGraph.h"

#include "Channels.h"
#include "Items.h"

#include <iterator>
#include <numeric>

using namespace penstock;

static constexpr uint32_t kNone = ~0u;

/// The root of an event's component; halves the path on the way.
uint32_t EventGraph::find(uint32_t event) {
  while (root[event] != event)
    event = root[event] = root[root[event]];
  return event;
}

/// Makes one step of two. The earlier event stays the root.
void EventGraph::unite(uint32_t a, uint32_t b) {
  a = find(a);
  b = find(b);
  if (a == b)
    return;
  root[std::max(a, b)] = std::min(a, b);
  std::swap(nextMember[a], nextMember[b]);
}

void EventGraph::addArc(uint32_t from, uint32_t to) {
  arcs.push_back({firstArc[from], to});
  firstArc[from] = static_cast<uint32_t>(arcs.size() - 1);
  ++pending[to];
}

uint32_t EventGraph::addEvent() {
  uint32_t event = static_cast<uint32_t>(root.size());
  root.push_back(event);
  nextMember.push_back(event);
  pending.push_back(0);
  firstArc.push_back(kNone);
  return event;
}

/// Events and arcs of one rank. A group of several transfers is one event under
/// closure, since all its members are united; else they progress independently
/// between a start and an end.
void EventGraph::addRanks(const Program &program, Coupling coupling,
                          const Channels &channels) {
  ItemWalk items;
  std::vector<uint32_t> endOf, itemOf;
  for (size_t r = 0; r < program.ranks.size(); ++r) {
    const RankProgram &rank = program.ranks[r];
    const uint32_t first = base[r];
    endOf.resize(rank.instructions.size());
    items.walk(rank, [&](uint32_t head, uint32_t end, auto &predecessors) {
      uint32_t start = first + head;
      endOf[head] = start;
      if (end - head > 1) {
        if (coupling != Coupling::Closure &&
            isTransfer(rank.instructions[head].op)) {
          start = addEvent();
          endOf[head] = addEvent();
          for (uint32_t i = head; i < end; ++i) {
            addArc(start, first + i);
            addArc(first + i, endOf[head]);
          }
        } else {
          for (uint32_t i = head + 1; i < end; ++i)
            unite(start, first + i);
        }
      }
      for (uint32_t predecessor : predecessors)
        addArc(endOf[predecessor], start);
    });
    if (coupling != Coupling::Closure)
      std::transform(items.headOf.begin(), items.headOf.end(),
                     std::back_inserter(itemOf),
                     [first](uint32_t head) { return first + head; });
  }
  if (coupling == Coupling::Closure)
    return;
  // Transfers of one group on one channel keep their order.
  for (const Channel &channel : channels.channels) {
    auto keepOrder = [&](uint32_t before, uint32_t after) {
      if (itemOf[before] == itemOf[after])
        addArc(before, after);
    };
    for (uint32_t k = 1; k < channel.numSends; ++k)
      keepOrder(channels.send(channel, k - 1), channels.send(channel, k));
    for (uint32_t k = 1; k < channel.numRecvs; ++k)
      keepOrder(channels.recv(channel, k - 1), channels.recv(channel, k));
  }
}

/// Joins what meets across ranks; what misses a partner stays pending for ever.
void EventGraph::couple(const Channels &channels, Coupling coupling) {
  for (const Channel &channel : channels.channels) {
    const uint32_t numPairs = channel.numPairs();
    for (uint32_t k = 0; k < numPairs; ++k) {
      if (coupling == Coupling::Buffered)
        addArc(channels.send(channel, k), channels.recv(channel, k));
      else
        unite(channels.send(channel, k), channels.recv(channel, k));
    }
    for (uint32_t k = numPairs; k < channel.numRecvs; ++k)
      ++pending[channels.recv(channel, k)];
    // Under Buffered this is the token of every send.
    for (uint32_t k = coupling == Coupling::Buffered ? 0 : numPairs;
         k < channel.numSends; ++k)
      ++pending[channels.send(channel, k)];
  }
  for (const Meeting &meeting : channels.meetings) {
    for (uint32_t k = 1; k < meeting.count; ++k)
      unite(channels.member(meeting, 0), channels.member(meeting, k));
    pending[channels.member(meeting, 0)] += !meeting.complete;
  }
}

EventGraph::EventGraph(const Program &program, const Channels &channels,
                       Coupling coupling)
    : base(channels.base) {
  numInstructions = base.back();
  rankOfBlock.resize(numInstructions / kBlock + 1);
  for (size_t r = 0; r + 1 < base.size(); ++r)
    for (size_t b = (base[r] + kBlock - 1) / kBlock; b * kBlock < base[r + 1];
         ++b)
      rankOfBlock[b] = static_cast<int32_t>(r);

  root.resize(numInstructions);
  std::iota(root.begin(), root.end(), 0u);
  nextMember = root;
  pending.assign(numInstructions, 0);
  firstArc.assign(numInstructions, kNone);
  arcs.reserve(2 * numInstructions);
  addRanks(program, coupling, channels);
  couple(channels, coupling);

  for (uint32_t event = 0; event < root.size(); ++event) {
    root[event] = find(event);
    if (root[event] == event)
      ++stepCount;
    else
      pending[root[event]] += pending[event];
  }
}

EventGraph::EventGraph(const Program &program, const Semantics &semantics)
    : EventGraph(program, Channels(program),
                 semantics.groups == Semantics::Closure
                     ? Coupling::Closure
                     : Coupling::Documented) {}

/// Ends a step: appends to `ready` the steps that waited for nothing else.
void EventGraph::release(uint32_t step, std::vector<uint32_t> &pending,
                         std::vector<uint32_t> &ready) const {
  uint32_t member = step;
  do {
    for (uint32_t arc = firstArc[member]; arc != kNone; arc = arcs[arc].next) {
      uint32_t target = root[arcs[arc].target];
      if (pending[target] != kNone && --pending[target] == 0)
        ready.push_back(target);
    }
    member = nextMember[member];
  } while (member != step);
}

std::vector<uint32_t> EventGraph::topologicalOrder(
    const std::vector<std::vector<uint8_t>> *ended) const {
  std::vector<uint32_t> order, open = pending;
  order.reserve(stepCount);
  if (ended)
    for (size_t r = 0; r < ended->size(); ++r)
      for (uint32_t i = 0; i < (*ended)[r].size(); ++i) {
        uint32_t step = root[base[r] + i];
        if ((*ended)[r][i] && open[step] != kNone) {
          open[step] = kNone;
          order.push_back(step);
        }
      }
  for (uint32_t event = 0; event < root.size(); ++event)
    if (root[event] == event && open[event] == 0)
      order.push_back(event);
  for (size_t next = 0; next < order.size(); ++next)
    release(order[next], open, order);
  return order;
}

/// One run under growing k: what ends under k also ends under k + 1, so the run
/// goes on where it stuck. A send needs a token; with capacity k each channel
/// has given out as many as receives have ended, plus k.
std::optional<int64_t> penstock::minCapacity(const Program &program) {
  const Channels channels(program);
  if (runsInHostOrder(channels))
    return 0;
  {
    const EventGraph documented(program, channels,
                                EventGraph::Coupling::Documented);
    if (documented.topologicalOrder().size() == documented.numSteps())
      return 0;
  }
  const EventGraph graph(program, channels, EventGraph::Coupling::Buffered);
  std::vector<uint32_t> open = graph.pending, order, channelOf, granted, live;
  order.reserve(graph.stepCount);
  channelOf.assign(graph.numInstructions, kNone);
  granted.assign(channels.channels.size(), 0);
  for (uint32_t c = 0; c < channels.channels.size(); ++c) {
    const Channel &channel = channels.channels[c];
    for (uint32_t k = 0; k < channel.numRecvs; ++k)
      channelOf[channels.recv(channel, k)] = c;
    live.push_back(c);
  }
  auto grant = [&](uint32_t c) {
    const Channel &channel = channels.channels[c];
    if (granted[c] == channel.numSends)
      return false;
    uint32_t send = channels.send(channel, granted[c]++);
    if (--open[graph.root[send]] == 0)
      order.push_back(graph.root[send]);
    return true;
  };
  for (uint32_t event = 0; event < graph.root.size(); ++event)
    if (graph.root[event] == event && open[event] == 0)
      order.push_back(event);
  int64_t capacity = 0;
  for (size_t next = 0;;) {
    for (; next < order.size(); ++next) {
      graph.release(order[next], open, order);
      if (order[next] < graph.numInstructions &&
          channelOf[order[next]] != kNone)
        grant(channelOf[order[next]]);
    }
    if (order.size() == graph.stepCount)
      return capacity;
    if (live.empty())
      return std::nullopt;
    ++capacity;
    std::erase_if(live, [&](uint32_t c) { return !grant(c); });
  }
}
