//===- Channels.cpp - Who meets whom --------------------------------------===//

#include "Channels.h"

#include "penstock/Analysis/Verify.h"

#include <numeric>
#include <tuple>

using namespace penstock;

namespace {

/// Stable counting sort by a key from a dense range. The table grows to the
/// largest key and is kept between calls, so that a call costs no more than the
/// elements.
class BucketSort {
public:
  /// Sorts `count` elements of `data` from `first` on by key, keys in order of
  /// first appearance; calls `bucket(first, count)` for each run of equal keys.
  template <typename KeyFn, typename BucketFn>
  void sort(BigArray<uint32_t> &data, uint32_t first, uint32_t count, KeyFn key,
            BucketFn bucket) {
    if (std::all_of(data.begin() + first, data.begin() + first + count,
                    [&](uint32_t d) { return key(d) == key(data[first]); })) {
      if (count > 0)
        bucket(first, count);
      return;
    }
    keys.clear();
    counts.clear();
    bucketOf.resize(count);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t k = key(data[first + i]);
      if (k >= bucketOfKey.size())
        bucketOfKey.resize(k + 1, kNone);
      uint32_t &b = bucketOfKey[k];
      if (b == kNone) {
        b = static_cast<uint32_t>(counts.size());
        keys.push_back(k);
        counts.push_back(0);
      }
      bucketOf[i] = b;
      ++counts[b];
    }
    for (uint32_t k : keys)
      bucketOfKey[k] = kNone;
    scratch.assign(data.begin() + first, data.begin() + first + count);
    positions.resize(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), positions.begin(), first);
    for (uint32_t i = 0; i < count; ++i)
      data[positions[bucketOf[i]]++] = scratch[i];
    // `bucket` may sort again with another BucketSort, not with this one.
    for (uint32_t n : counts) {
      bucket(first, n);
      first += n;
    }
  }

private:
  static constexpr uint32_t kNone = ~0u;
  std::vector<uint32_t> bucketOfKey;
  std::vector<uint32_t> keys, counts, positions, bucketOf, scratch;
};

/// One end of a channel, before the ends are joined.
struct ChannelEnd {
  uint16_t comm;
  int32_t source, destination;
  bool isRecv;
  uint32_t first, count;

  auto key() const { return std::tie(comm, source, destination); }
};

/// What identifies a collective; `set` is canonical (equal sets, equal number).
struct Collective {
  uint8_t op;
  uint16_t comm;
  int32_t set, stage, microbatch;
  uint32_t occurrence;
  int32_t rank;
  uint32_t user; ///< index of Channels::users

  auto identity() const { return std::tie(op, comm, set, stage, microbatch); }
};

} // namespace

/// Numbers rank sets by content; -1 is the set of all ranks.
static std::vector<int32_t> canonicalSets(const Program &program) {
  const auto &sets = program.rankSets;
  std::vector<int32_t> order(sets.size()), canonical(sets.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return sets[a] < sets[b]; });
  for (size_t i = 0; i < order.size(); ++i) {
    bool same = i > 0 && sets[order[i]] == sets[order[i - 1]];
    bool all = sets[order[i]].size() == program.ranks.size();
    canonical[order[i]] = all ? -1 : same ? canonical[order[i - 1]] : order[i];
  }
  return canonical;
}

static void joinCollectives(const Program &program,
                            std::vector<Collective> &all, Channels &result) {
  std::sort(all.begin(), all.end(),
            [](const Collective &a, const Collective &b) {
              return std::tuple(a.identity(), a.rank, a.user) <
                     std::tuple(b.identity(), b.rank, b.user);
            });
  for (size_t i = 1; i < all.size(); ++i)
    if (all[i].identity() == all[i - 1].identity() &&
        all[i].rank == all[i - 1].rank)
      all[i].occurrence = all[i - 1].occurrence + 1;
  std::sort(all.begin(), all.end(),
            [](const Collective &a, const Collective &b) {
              return std::tuple(a.identity(), a.occurrence, a.rank) <
                     std::tuple(b.identity(), b.occurrence, b.rank);
            });
  for (size_t first = 0, end; first < all.size(); first = end) {
    const Collective &head = all[first];
    const Instruction &inst =
        program.ranks[head.rank]
            .instructions[result.users[head.user] - result.base[head.rank]];
    bool complete = true;
    for (end = first;
         end < all.size() && all[end].identity() == head.identity() &&
         all[end].occurrence == head.occurrence;
         ++end) {
      result.members.push_back(all[end].user);
      complete &= isInRankSet(program, inst, all[end].rank);
    }
    complete &= end - first == rankSetSize(program, inst);
    result.meetings.push_back({static_cast<uint32_t>(first),
                               static_cast<uint32_t>(end - first), complete});
  }
}

Channels::Channels(const Program &program) {
  BucketSort byComm, byPeer;
  std::vector<ChannelEnd> ends;
  std::vector<Collective> collectives;
  std::vector<int32_t> canonical = canonicalSets(program);
  // Of each user of this rank, what it is sorted by.
  std::vector<uint16_t> comms;
  std::vector<uint32_t> peers;

  base.push_back(0);
  users.reserve(program.numInstructions());
  itemOf.reserve(program.numInstructions() + 1);
  byChannel.reserve(program.numInstructions());
  for (int32_t r = 0; const RankProgram &rank : program.ranks) {
    const uint32_t first = static_cast<uint32_t>(users.size());
    const uint32_t own = static_cast<uint32_t>(byChannel.size());
    firstUser.push_back(first);
    comms.clear();
    peers.clear();
    for (uint32_t event = base.back();
         const Instruction &inst : rank.instructions) {
      if (usesComm(inst.op)) {
        const uint32_t user = static_cast<uint32_t>(users.size());
        users.push_back(event);
        itemOf.push_back(inst.joined ? itemOf.back() : user);
        comms.push_back(inst.comm);
        peers.push_back(2 * static_cast<uint32_t>(inst.peer) +
                        (inst.op == Op::Recv));
        if (isTransfer(inst.op))
          byChannel.push_back(user);
        else
          collectives.push_back({static_cast<uint8_t>(inst.op), inst.comm,
                                 inst.peer < 0 ? -1 : canonical[inst.peer],
                                 inst.stage, inst.microbatch, 0, r, user});
      }
      ++event;
    }
    auto addEnd = [&](uint32_t position, uint32_t count) {
      const uint32_t user = byChannel[position] - first;
      const int32_t peer = static_cast<int32_t>(peers[user] / 2);
      const bool isRecv = peers[user] % 2;
      ends.push_back({comms[user], isRecv ? peer : r, isRecv ? r : peer, isRecv,
                      position, count});
    };
    byComm.sort(
        byChannel, own, static_cast<uint32_t>(byChannel.size()) - own,
        [&](uint32_t user) { return comms[user - first]; },
        [&](uint32_t position, uint32_t count) {
          byPeer.sort(
              byChannel, position, count,
              [&](uint32_t user) { return peers[user - first]; }, addEnd);
        });
    base.push_back(base.back() +
                   static_cast<uint32_t>(rank.instructions.size()));
    ++r;
  }
  firstUser.push_back(static_cast<uint32_t>(users.size()));
  itemOf.push_back(firstUser.back());

  std::sort(ends.begin(), ends.end(),
            [](const ChannelEnd &a, const ChannelEnd &b) {
              return a.key() < b.key();
            });
  for (size_t i = 0; i < ends.size(); ++i) {
    const ChannelEnd &end = ends[i];
    if (i == 0 || ends[i - 1].key() != end.key())
      channels.push_back({end.comm, end.source, end.destination, 0, 0, 0, 0});
    Channel &channel = channels.back();
    (end.isRecv ? channel.firstRecv : channel.firstSend) = end.first;
    (end.isRecv ? channel.numRecvs : channel.numSends) = end.count;
  }
  joinCollectives(program, collectives, *this);
}

std::vector<uint32_t> Channels::layers() const {
  std::vector<uint32_t> layers(base.back());
  auto count = [&](uint32_t first, uint32_t size) {
    for (uint32_t k = first + 1; k < first + size; ++k)
      if (itemOf[byChannel[k]] == itemOf[byChannel[k - 1]])
        layers[users[byChannel[k]]] = layers[users[byChannel[k - 1]]] + 1;
  };
  for (const Channel &channel : channels) {
    count(channel.firstSend, channel.numSends);
    count(channel.firstRecv, channel.numRecvs);
  }
  return layers;
}

Matching penstock::matchTransfers(const Program &program) {
  const Channels channels(program);
  Matching matching;
  matching.partner.resize(program.ranks.size());
  for (size_t r = 0; r < program.ranks.size(); ++r)
    matching.partner[r].assign(program.ranks[r].instructions.size(),
                               kNoInstruction);
  for (const Channel &channel : channels.channels)
    for (uint32_t k = 0; k < channel.numPairs(); ++k) {
      uint32_t send = channels.send(channel, k) - channels.base[channel.source];
      uint32_t recv =
          channels.recv(channel, k) - channels.base[channel.destination];
      matching.partner[channel.source][send] = recv;
      matching.partner[channel.destination][recv] = send;
    }
  return matching;
}
