//===- Channels.cpp - Who meets whom --------------------------------------===//

#include "Channels.h"

#include "penstock/Analysis/Verify.h"

#include <numeric>
#include <tuple>

using namespace penstock;

namespace {

/// Stable counting sort by a key from a dense range. The table is kept between
/// calls, so that a call costs no more than the elements.
class BucketSort {
public:
  explicit BucketSort(size_t numKeys) : bucketOfKey(numKeys, kNone) {}

  /// Sorts the n elements at `data` by key, in order of first appearance, and
  /// calls `bucket(first, count)` for each run of equal keys.
  template <typename KeyFn, typename BucketFn>
  void sort(uint32_t *data, size_t n, KeyFn key, BucketFn bucket) {
    keys.clear();
    counts.clear();
    bucketOf.resize(n);
    for (size_t i = 0; i < n; ++i) {
      uint32_t &b = bucketOfKey[key(data[i])];
      if (b == kNone) {
        b = static_cast<uint32_t>(counts.size());
        keys.push_back(key(data[i]));
        counts.push_back(0);
      }
      bucketOf[i] = b;
      ++counts[b];
    }
    for (size_t k : keys)
      bucketOfKey[k] = kNone;
    if (counts.size() > 1) {
      scratch.assign(data, data + n);
      positions.resize(counts.size());
      std::exclusive_scan(counts.begin(), counts.end(), positions.begin(), 0u);
      for (size_t i = 0; i < n; ++i)
        data[positions[bucketOf[i]]++] = scratch[i];
    }
    // `bucket` may sort again with another BucketSort, not with this one.
    for (uint32_t first = 0; uint32_t count : counts) {
      bucket(first, count);
      first += count;
    }
  }

private:
  static constexpr uint32_t kNone = ~0u;
  std::vector<uint32_t> bucketOfKey;
  std::vector<size_t> keys;
  std::vector<uint32_t> counts, positions, bucketOf, scratch;
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
  uint32_t event;

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
              return std::tuple(a.identity(), a.rank, a.event) <
                     std::tuple(b.identity(), b.rank, b.event);
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
            .instructions[head.event - result.base[head.rank]];
    bool complete = true;
    for (end = first;
         end < all.size() && all[end].identity() == head.identity() &&
         all[end].occurrence == head.occurrence;
         ++end) {
      result.members.push_back(all[end].event);
      complete &= isInRankSet(program, inst, all[end].rank);
    }
    complete &= end - first == rankSetSize(program, inst);
    result.meetings.push_back({static_cast<uint32_t>(first),
                               static_cast<uint32_t>(end - first), complete});
  }
}

Channels::Channels(const Program &program) {
  const size_t numRanks = program.ranks.size();
  BucketSort byComm(1 << 16), byPeer(2 * numRanks);
  std::vector<ChannelEnd> ends;
  std::vector<Collective> collectives;
  std::vector<int32_t> canonical = canonicalSets(program);

  base.reserve(numRanks + 1);
  base.push_back(0);
  transfers.reserve(program.numInstructions());
  for (int32_t r = 0; const RankProgram &rank : program.ranks) {
    const auto &insts = rank.instructions;
    const size_t ownFirst = transfers.size();
    firstTransfer.push_back(static_cast<uint32_t>(ownFirst));
    for (uint32_t i = 0; const Instruction &inst : insts) {
      if (isTransfer(inst.op))
        transfers.push_back(i);
      else if (isCollective(inst.op))
        collectives.push_back({static_cast<uint8_t>(inst.op), inst.comm,
                               inst.peer < 0 ? -1 : canonical[inst.peer],
                               inst.stage, inst.microbatch, 0, r,
                               base.back() + i});
      ++i;
    }
    uint32_t *own = transfers.data() + ownFirst;
    const size_t count = transfers.size() - ownFirst;
    auto addEnd = [&](uint32_t first, uint32_t n) {
      const Instruction &inst = insts[transfers[first]];
      bool isRecv = inst.op == Op::Recv;
      ends.push_back({inst.comm, isRecv ? inst.peer : r, isRecv ? r : inst.peer,
                      isRecv, first, n});
    };
    byComm.sort(
        own, count, [&](uint32_t i) { return insts[i].comm; },
        [&](uint32_t first, uint32_t n) {
          byPeer.sort(
              own + first, n,
              [&](uint32_t i) {
                return 2 * static_cast<size_t>(insts[i].peer) +
                       (insts[i].op == Op::Recv);
              },
              [&](uint32_t inner, uint32_t m) {
                addEnd(static_cast<uint32_t>(ownFirst) + first + inner, m);
              });
        });
    for (size_t t = ownFirst; t < transfers.size(); ++t)
      transfers[t] += base.back();
    base.push_back(base.back() + static_cast<uint32_t>(insts.size()));
    ++r;
  }
  firstTransfer.push_back(static_cast<uint32_t>(transfers.size()));

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

Matching penstock::matchTransfers(const Program &program) {
  const Channels channels(program);
  Matching matching;
  matching.partner.resize(program.ranks.size());
  for (size_t r = 0; r < program.ranks.size(); ++r)
    matching.partner[r].assign(program.ranks[r].instructions.size(),
                               kNoInstruction);
  for (const Channel &channel : channels.channels)
    for (uint32_t k = 0; k < channel.numPairs(); ++k) {
      uint32_t send = channels.transfers[channel.firstSend + k] -
                      channels.base[channel.source];
      uint32_t recv = channels.transfers[channel.firstRecv + k] -
                      channels.base[channel.destination];
      matching.partner[channel.source][send] = recv;
      matching.partner[channel.destination][recv] = send;
    }
  return matching;
}
