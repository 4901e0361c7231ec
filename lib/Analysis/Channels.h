//===- Channels.h - Who meets whom ------------------------------*- C++ -*-===//
//
// The static matching of a program: the transfers of each channel in host order
// at both ends, and the instructions that meet in each collective. Instructions
// are numbered through the ranks ("events"). Everything that asks for partners
// starts here.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_LIB_ANALYSIS_CHANNELS_H
#define PENSTOCK_LIB_ANALYSIS_CHANNELS_H

#include "penstock/Program/Program.h"
#include "penstock/Support/Memory.h"

#include <algorithm>

namespace penstock {

/// All transfers of one (communicator, source, destination). Positions are
/// into Channels::byChannel.
struct Channel {
  uint16_t comm = 0;
  int32_t source = -1, destination = -1;
  uint32_t firstSend = 0, numSends = 0;
  uint32_t firstRecv = 0, numRecvs = 0;

  uint32_t numPairs() const { return std::min(numSends, numRecvs); }
};

/// One occurrence of a collective. Positions are into Channels::members.
struct Meeting {
  uint32_t first = 0, count = 0;
  bool complete = false; ///< every rank of the set takes part, nobody else
};

struct Channels {
  explicit Channels(const Program &program);

  /// First event of each rank, and the end.
  std::vector<uint32_t> base;
  /// Events that use a communicator, rank by rank in host order; the first of
  /// each rank, and the end.
  BigArray<uint32_t> users;
  std::vector<uint32_t> firstUser;
  /// Of each user, the first user of its item; one more that begins an item.
  BigArray<uint32_t> itemOf;
  /// Transfers, as indices of `users`, grouped by channel end.
  BigArray<uint32_t> byChannel;
  /// By (comm, source, destination).
  std::vector<Channel> channels;
  /// Collectives, as indices of `users`, grouped by meeting.
  BigArray<uint32_t> members;
  std::vector<Meeting> meetings;

  Site site(uint32_t event) const {
    auto next = std::upper_bound(base.begin(), base.end(), event);
    const auto rank = static_cast<int32_t>(next - base.begin() - 1);
    return {rank, event - base[rank]};
  }
  /// Of each event that is a transfer, its layer: how many transfers of its
  /// group come before it at the same end of the same channel.
  std::vector<uint32_t> layers() const;

  uint32_t send(const Channel &channel, uint32_t k) const {
    return users[byChannel[channel.firstSend + k]];
  }
  uint32_t recv(const Channel &channel, uint32_t k) const {
    return users[byChannel[channel.firstRecv + k]];
  }
  uint32_t member(const Meeting &meeting, uint32_t k) const {
    return users[members[meeting.first + k]];
  }
};

/// The rank set of a collective: the set named by `peer`, or all ranks.
inline size_t rankSetSize(const Program &program, const Instruction &inst) {
  return inst.peer < 0 ? program.ranks.size()
                       : program.rankSets[inst.peer].size();
}
inline bool isInRankSet(const Program &program, const Instruction &inst,
                        int32_t rank) {
  if (inst.peer < 0)
    return true;
  const auto &set = program.rankSets[inst.peer];
  return std::binary_search(set.begin(), set.end(), rank);
}

} // namespace penstock

#endif // PENSTOCK_LIB_ANALYSIS_CHANNELS_H
