//===- EventGraph.cpp - What must happen before what ----------------------===//

#include "penstock/Analysis/EventGraph.h"

#include "Channels.h"
#include "Items.h"

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

/// Events and arcs of the ranks. A group of several transfers is one event
/// under closure, since all its members are united; else they progress between
/// a start and an end.
void EventGraph::addRanks(const Program &program, const Channels &channels,
                          const Semantics &semantics) {
  ItemWalk items(semantics.serialised);
  std::vector<uint32_t> endOf, layers;
  if (semantics.groups == Semantics::Layered)
    layers = channels.layers();
  for (size_t r = 0; r < program.ranks.size(); ++r) {
    const RankProgram &rank = program.ranks[r];
    const uint32_t first = base[r];
    endOf.resize(rank.instructions.size());
    items.walk(rank, [&](uint32_t head, uint32_t end, auto &predecessors) {
      uint32_t start = first + head;
      endOf[head] = start;
      if (end - head > 1) {
        if (semantics.groups != Semantics::Closure &&
            isTransfer(rank.instructions[head].op)) {
          start = addGroup(first + head, first + end, layers);
          endOf[head] = static_cast<uint32_t>(root.size() - 1);
        } else {
          for (uint32_t i = head + 1; i < end; ++i)
            unite(start, first + i);
        }
      }
      for (uint32_t predecessor : predecessors)
        addArc(endOf[predecessor], start);
    });
  }
}

/// Adds the start of a group of transfers, the borders between its layers, all
/// in one layer if none are given, and its end. Returns the start.
uint32_t EventGraph::addGroup(uint32_t head, uint32_t end,
                              const std::vector<uint32_t> &layers) {
  uint32_t numLayers = 1;
  if (!layers.empty())
    numLayers += *std::max_element(layers.begin() + head, layers.begin() + end);
  const uint32_t start = addEvent();
  for (uint32_t layer = 0; layer < numLayers; ++layer)
    addEvent();
  for (uint32_t i = head; i < end; ++i) {
    const uint32_t before = start + (layers.empty() ? 0 : layers[i]);
    addArc(before, i);
    addArc(i, before + 1);
  }
  return start;
}

/// Transfers of one group at one end of a channel keep their order.
void EventGraph::keepOrder(const Channels &channels) {
  auto order = [&](uint32_t first, uint32_t size) {
    for (uint32_t k = first + 1; k < first + size; ++k) {
      const uint32_t before = channels.byChannel[k - 1],
                     after = channels.byChannel[k];
      if (channels.itemOf[before] == channels.itemOf[after])
        addArc(channels.users[before], channels.users[after]);
    }
  };
  for (const Channel &channel : channels.channels) {
    order(channel.firstSend, channel.numSends);
    order(channel.firstRecv, channel.numRecvs);
  }
}

/// Joins what meets across ranks; what misses a partner stays pending for ever.
void EventGraph::couple(const Channels &channels, const Semantics &semantics) {
  const bool rendezvous =
      semantics.groups == Semantics::Closure || semantics.capacity == 0;
  for (const Channel &channel : channels.channels) {
    const uint32_t numPairs = channel.numPairs();
    for (uint32_t k = 0; k < numPairs; ++k) {
      if (rendezvous)
        unite(channels.send(channel, k), channels.recv(channel, k));
      else
        addArc(channels.send(channel, k), channels.recv(channel, k));
    }
    for (uint32_t k = numPairs; k < channel.numRecvs; ++k)
      ++pending[channels.recv(channel, k)];
    if (rendezvous || semantics.capacity == kGranted) {
      for (uint32_t k = rendezvous ? numPairs : 0; k < channel.numSends; ++k)
        ++pending[channels.send(channel, k)];
      continue;
    }
    // A receive makes room for the send that comes `capacity` later.
    for (int64_t k = semantics.capacity; k < channel.numSends; ++k) {
      const uint32_t send = channels.send(channel, static_cast<uint32_t>(k));
      const int64_t recv = k - semantics.capacity;
      if (recv < channel.numRecvs)
        addArc(channels.recv(channel, static_cast<uint32_t>(recv)), send);
      else
        ++pending[send];
    }
  }
  for (const Meeting &meeting : channels.meetings) {
    for (uint32_t k = 1; k < meeting.count; ++k)
      unite(channels.member(meeting, 0), channels.member(meeting, k));
    pending[channels.member(meeting, 0)] += !meeting.complete;
  }
}

EventGraph::EventGraph(const Program &program, const Channels &channels,
                       const Semantics &semantics)
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
  addRanks(program, channels, semantics);
  if (semantics.groups == Semantics::Documented)
    keepOrder(channels);
  couple(channels, semantics);

  for (uint32_t event = 0; event < root.size(); ++event) {
    root[event] = find(event);
    if (root[event] == event)
      ++stepCount;
    else
      pending[root[event]] += pending[event];
  }
}

EventGraph::EventGraph(const Program &program, const Semantics &semantics)
    : EventGraph(program, Channels(program), semantics) {}

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
