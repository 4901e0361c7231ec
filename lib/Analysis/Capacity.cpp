//===- Capacity.cpp - How much buffering a program relies on --------------===//
//
// A lazy run: a send runs ahead of its receive only where nothing else can
// move, and then the one that asks for the least. Since no run is stuck before
// the end under a capacity that suffices (docs/semantics.md), no channel is
// ever asked for more than the least one, and some channel is asked for it.
//
//===----------------------------------------------------------------------===//

#include "HostOrder.h"
#include "Rules.h"

#include "penstock/Analysis/EventGraph.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

using namespace penstock;

static constexpr uint32_t kNone = ~0u;

namespace penstock {

class CapacityRun {
public:
  CapacityRun(const Program &program, const Channels &channels,
              const Semantics &semantics)
      : channels(channels),
        graph(program, channels,
              {semantics.groups == Semantics::Layered ? Semantics::Layered
                                                      : Semantics::Documented,
               EventGraph::kGranted, semantics.serialised}),
        partner(graph.numInstructions, kNone),
        channelOf(graph.numInstructions, kNone) {
    for (uint32_t c = 0; c < channels.channels.size(); ++c) {
      const Channel &channel = channels.channels[c];
      for (uint32_t k = 0; k < channel.numSends; ++k)
        channelOf[channels.send(channel, k)] = c;
      for (uint32_t k = 0; k < channel.numRecvs; ++k)
        channelOf[channels.recv(channel, k)] = c;
      for (uint32_t k = 0; k < channel.numPairs(); ++k) {
        partner[channels.send(channel, k)] = channels.recv(channel, k);
        partner[channels.recv(channel, k)] = channels.send(channel, k);
      }
    }
  }

  struct State {
    uint32_t granted = 0;  ///< sends that may end
    uint32_t received = 0; ///< receives that have ended
    uint32_t limit = 0;    ///< messages that may be buffered
    uint32_t peak = 0;     ///< messages that have been
    uint32_t peakSend = 0; ///< number of the first send that made them so many
  };

  /// Whether the program ends when channel c buffers at most limits[c]
  /// messages; then `state` tells what each has used.
  bool run(const std::vector<uint32_t> &limits);
  bool runUnlimited() {
    return run(std::vector<uint32_t>(channels.channels.size(), kNone));
  }

  size_t size() const { return graph.numInstructions; }
  std::vector<State> state; ///< of each channel

private:
  /// A send that waits for nothing but room.
  struct Candidate {
    uint32_t price; ///< 0: buffers that were used before; else how many
    uint32_t channel;
    uint32_t granted, received; ///< of the channel then

    bool operator>(const Candidate &other) const {
      return std::pair(price, channel) > std::pair(other.price, other.channel);
    }
  };

  void end(uint32_t step);
  void release(uint32_t event);
  void offer(uint32_t c);
  void grant(uint32_t c);
  bool grantCheapest();

  const Channels &channels;
  const EventGraph graph;
  std::vector<uint32_t> partner;   ///< of each transfer, the event it meets
  std::vector<uint32_t> channelOf; ///< of each transfer
  std::vector<uint32_t> open;      ///< arcs into each step from others
  std::vector<uint32_t> order;     ///< steps that can run
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>>
      candidates;
};

} // namespace penstock

/// An event waits for one thing less.
void CapacityRun::release(uint32_t event) {
  const uint32_t step = graph.root[event];
  if (--open[step] == 0) {
    order.push_back(step);
    return;
  }
  // Transfers are steps of their own. The last thing that a send waits for is
  // room, the last thing a receive waits for is its send: both are posted.
  if (open[step] == 1 && step < graph.numInstructions &&
      channelOf[step] != kNone)
    offer(channelOf[step]);
}

/// Looks whether the next send of a channel is posted. It needs no room when
/// its receive is posted too.
void CapacityRun::offer(uint32_t c) {
  const Channel &channel = channels.channels[c];
  State &s = state[c];
  if (s.granted == channel.numSends)
    return;
  const uint32_t send = channels.send(channel, s.granted);
  if (open[send] != 1)
    return;
  if (partner[send] != kNone && open[partner[send]] == 1) {
    grant(c);
    return;
  }
  const uint32_t ahead = s.granted - s.received;
  if (ahead < s.limit)
    candidates.push({ahead < s.peak ? 0 : ahead + 1, c, s.granted, s.received});
}

void CapacityRun::grant(uint32_t c) {
  const uint32_t send = channels.send(channels.channels[c], state[c].granted++);
  --open[send];
  order.push_back(send);
}

bool CapacityRun::grantCheapest() {
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    State &s = state[best.channel];
    if (s.granted != best.granted || s.received != best.received)
      continue; // It has been granted, or costs less and is in here again.
    const uint32_t ahead = s.granted - s.received;
    if (ahead + 1 > s.peak) {
      s.peak = ahead + 1;
      s.peakSend = s.granted;
    }
    grant(best.channel);
    return true;
  }
  return false;
}

void CapacityRun::end(uint32_t step) {
  uint32_t member = step;
  do {
    for (uint32_t arc = graph.firstArc[member]; arc != kNone;
         arc = graph.arcs[arc].next)
      release(graph.arcs[arc].target);
    member = graph.nextMember[member];
  } while (member != step);
  if (step >= graph.numInstructions || channelOf[step] == kNone)
    return;
  const uint32_t c = channelOf[step];
  State &s = state[c];
  // A receive ends after its send; the send that waits for room has more.
  if (s.received < channels.channels[c].numPairs() &&
      channels.recv(channels.channels[c], s.received) == step) {
    ++s.received;
    offer(c);
  }
}

bool CapacityRun::run(const std::vector<uint32_t> &limits) {
  open = graph.pending;
  order.clear();
  candidates = {};
  state.assign(channels.channels.size(), {});
  for (size_t c = 0; c < state.size(); ++c)
    state[c].limit = limits[c];
  for (uint32_t event = 0; event < graph.root.size(); ++event)
    if (graph.root[event] == event && open[event] == 0)
      order.push_back(event);
  for (uint32_t c = 0; c < state.size(); ++c)
    offer(c);
  size_t next = 0;
  do {
    for (; next < order.size(); ++next)
      end(order[next]);
  } while (grantCheapest());
  return order.size() == graph.stepCount;
}

static int64_t most(const std::vector<CapacityRun::State> &state) {
  uint32_t peak = 0;
  for (const CapacityRun::State &s : state)
    peak = std::max(peak, s.peak);
  return peak;
}

/// Lowers the need of channel after channel while the program still ends.
/// False when the work was too much for that.
static bool lower(CapacityRun &run, std::vector<CapacityRun::State> &need) {
  constexpr size_t kBudget = 1 << 20; // instructions to run
  std::vector<uint32_t> limits;
  for (const CapacityRun::State &s : need)
    limits.push_back(s.peak);
  size_t work = 0;
  for (size_t c = 0; c < need.size(); ++c)
    while (need[c].peak > 0) {
      if ((work += run.size()) > kBudget)
        return false;
      limits[c] = need[c].peak - 1;
      if (!run.run(limits)) {
        limits[c] = need[c].peak;
        break;
      }
      need = run.state;
      for (size_t d = 0; d < need.size(); ++d)
        limits[d] = need[d].peak;
    }
  return true;
}

CapacityNeed penstock::capacityNeed(const Program &program,
                                    const Channels &channels,
                                    const Semantics &semantics) {
  CapacityNeed result;
  if (runsInHostOrder(channels)) {
    result.least = 0;
    return result;
  }
  CapacityRun run(program, channels, semantics);
  if (!run.runUnlimited())
    return result;
  std::vector<CapacityRun::State> need = run.state;
  result.least = most(need);
  result.minimal = lower(run, need);
  for (size_t c = 0; c < need.size(); ++c) {
    if (need[c].peak == 0)
      continue;
    const Channel &channel = channels.channels[c];
    ChannelNeed entry;
    entry.comm = channel.comm;
    entry.source = channel.source;
    entry.destination = channel.destination;
    entry.messages = need[c].peak;
    for (uint32_t k = need[c].peakSend + 1 - need[c].peak;
         k <= need[c].peakSend; ++k) {
      entry.message = {channel.source, channels.send(channel, k) -
                                           channels.base[channel.source]};
      entry.bytes += program.ranks[channel.source]
                         .instructions[entry.message.instruction]
                         .bytes;
    }
    result.channels.push_back(entry);
  }
  return result;
}

CapacityNeed penstock::capacityNeed(const Program &program,
                                    const Semantics &semantics) {
  return capacityNeed(program, Channels(program), semantics);
}

std::optional<int64_t> penstock::minCapacity(const Program &program,
                                             const Semantics &semantics) {
  const Channels channels(program);
  if (runsInHostOrder(channels))
    return 0;
  CapacityRun run(program, channels, semantics);
  if (!run.runUnlimited())
    return std::nullopt;
  return most(run.state);
}
