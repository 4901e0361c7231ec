//===- HostOrder.h - Programs that end even in host order -------*- C++ -*-===//
//
// The quick way to accept: run every rank strictly in host order, with a cursor
// per rank and group closure at the cursors. Programs that were lowered from
// one global order of transfers pass, and touch 20 bytes per transfer.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_LIB_ANALYSIS_HOSTORDER_H
#define PENSTOCK_LIB_ANALYSIS_HOSTORDER_H

#include "Channels.h"

#include <span>
#include <utility>

namespace penstock {

/// A rank at a step, and the user of a communicator that it has arrived at: the
/// first one of an item.
struct HostStepMember {
  int32_t rank;
  uint32_t user;
};

/// See runsInHostOrder().
template <typename Visit>
class HostOrder {
public:
  HostOrder(const Channels &channels, Visit &&visit)
      : channels(channels), visit(std::forward<Visit>(visit)) {}

  bool run() {
    if (!connect())
      return false;
    cursor.assign(channels.firstUser.begin(), channels.firstUser.end() - 1);
    mark.assign(cursor.size(), 0);
    arrived.assign(channels.meetings.size(), 0);
    counted.assign(cursor.size(), ~0u);
    for (uint32_t r = 0; r < cursor.size(); ++r)
      ready.push_back(r);
    while (!ready.empty()) {
      const uint32_t r = ready.back();
      ready.pop_back();
      while (!isAtEnd(r) && step(r))
        ;
    }
    for (uint32_t r = 0; r < cursor.size(); ++r)
      if (!isAtEnd(r))
        return false;
    return true;
  }

private:
  /// The other end of a transfer; or the number of a meeting, and no rank.
  struct Other {
    uint32_t user;
    int32_t rank;
  };
  static constexpr int32_t kMeeting = -1;
  /// Larger closures are left to the event graph: a rank that arrives at its
  /// group looks at the whole closure, which would be quadratic.
  static constexpr size_t kMaxClosure = 64;

  bool isAtEnd(uint32_t r) const {
    return cursor[r] == channels.firstUser[r + 1];
  }

  bool isJoined(uint32_t user) const { return channels.itemOf[user] != user; }
  bool isSingle(uint32_t user) const {
    return !isJoined(user) && !isJoined(user + 1);
  }

  bool connect() {
    others.resize(channels.users.size());
    for (const Channel &channel : channels.channels) {
      if (channel.numSends != channel.numRecvs)
        return false;
      for (uint32_t k = 0; k < channel.numSends; ++k) {
        const uint32_t send = channels.byChannel[channel.firstSend + k];
        const uint32_t recv = channels.byChannel[channel.firstRecv + k];
        others[send] = {recv, channel.destination};
        others[recv] = {send, channel.source};
      }
    }
    for (uint32_t m = 0; m < channels.meetings.size(); ++m) {
      const Meeting &meeting = channels.meetings[m];
      if (!meeting.complete)
        return false;
      for (uint32_t k = 0; k < meeting.count; ++k)
        others[channels.members[meeting.first + k]] = {m, kMeeting};
    }
    return true;
  }

  void note(uint32_t rank, uint32_t user) {
    members.push_back({static_cast<int32_t>(rank), user});
  }
  void endStep() {
    visit(std::span<const HostStepMember>(members));
    members.clear();
  }

  /// Runs what rank r has arrived at, if everybody else is there too.
  bool step(uint32_t r) {
    const uint32_t user = cursor[r];
    const Other other = others[user];
    prefetch(&others[user], 16 * sizeof(Other));
    if (other.rank == kMeeting)
      return meet(r, other.user);
    if (isSingle(user) && isSingle(other.user)) {
      if (cursor[other.rank] != other.user)
        return false;
      const HostStepMember ends[] = {{static_cast<int32_t>(r), user},
                                     {other.rank, other.user}};
      visit(std::span<const HostStepMember>(ends));
      ++cursor[r];
      ++cursor[other.rank];
      ready.push_back(static_cast<uint32_t>(other.rank));
      return true;
    }
    return stepClosure(r);
  }

  bool stepClosure(uint32_t r) {
    ++round;
    closure = {r};
    mark[r] = round;
    for (size_t next = 0; next < closure.size(); ++next) {
      uint32_t user = cursor[closure[next]];
      do {
        const Other other = others[user];
        if (channels.itemOf[other.user] != cursor[other.rank])
          return false;
        if (std::exchange(mark[other.rank], round) != round)
          closure.push_back(static_cast<uint32_t>(other.rank));
        if (closure.size() > kMaxClosure)
          return false;
      } while (isJoined(++user));
    }
    for (uint32_t member : closure) {
      note(member, cursor[member]);
      while (isJoined(++cursor[member]))
        ;
      if (member != r)
        ready.push_back(member);
    }
    endStep();
    return true;
  }
  bool meet(uint32_t r, uint32_t m) {
    const Meeting &meeting = channels.meetings[m];
    if (std::exchange(counted[r], m) != m)
      ++arrived[m];
    if (arrived[m] < meeting.count)
      return false;
    for (uint32_t k = 0; k < meeting.count; ++k) {
      const uint32_t user = channels.members[meeting.first + k];
      auto next = std::upper_bound(channels.firstUser.begin(),
                                   channels.firstUser.end(), user);
      const auto member =
          static_cast<uint32_t>(next - channels.firstUser.begin() - 1);
      note(member, user);
      ++cursor[member];
      ready.push_back(member);
    }
    endStep();
    return false; // this rank is in `ready` again
  }

  const Channels &channels;
  Visit visit;
  std::vector<HostStepMember> members;    ///< of the step that is made
  BigArray<Other> others;                 ///< of each user of a communicator
  std::vector<uint32_t> cursor, ready;    ///< per rank; ranks to look at
  std::vector<uint32_t> closure, mark;    ///< ranks of a closure, and when seen
  std::vector<uint32_t> arrived, counted; ///< ranks at each meeting; of each
                                          ///< rank, the last meeting it was at
  uint32_t round = 0;
};

/// True when the program ends under closure semantics even if every rank runs
/// strictly in host order, as if it had one queue. That has more order than the
/// program, so it implies closure, and it needs no graph: a cursor per rank.
/// False says nothing.
bool runsInHostOrder(const Channels &channels);

/// The same; calls `visit(std::span<const HostStepMember>)` for each step
/// across ranks, in an order in which they can run, until it gets stuck.
template <typename Visit>
bool runsInHostOrder(const Channels &channels, Visit &&visit) {
  return HostOrder<Visit>(channels, std::forward<Visit>(visit)).run();
}

} // namespace penstock

#endif // PENSTOCK_LIB_ANALYSIS_HOSTORDER_H
