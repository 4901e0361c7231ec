//===- FirstUse.cpp - Hosts that wait for connections ---------------------===//
//
// Without connections a host issues its items in order and blocks in each until
// both ends of its new channels are reached. The channels of an item that are
// new are those that no item before it uses, on either side, so this is closure
// in host order of a *skeleton*: the program that has of every channel only the
// first send and the first receive.
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

#include <tuple>
#include <utility>

using namespace penstock;

namespace {

/// The first transfers of all channels, as a program.
struct Skeleton {
  Skeleton(const Program &program, const Channels &channels);

  Site original(Site site) const {
    return {site.rank, instructionOf[site.rank][site.instruction]};
  }
  void translate(std::vector<Site> &sites) const {
    for (Site &site : sites)
      site = original(site);
  }

  Program program;
  std::vector<std::vector<uint32_t>> instructionOf;
};

} // namespace

Skeleton::Skeleton(const Program &from, const Channels &channels) {
  std::vector<uint32_t> first; // as indices of Channels::users
  for (const Channel &channel : channels.channels) {
    if (channel.numSends > 0)
      first.push_back(channels.byChannel[channel.firstSend]);
    if (channel.numRecvs > 0)
      first.push_back(channels.byChannel[channel.firstRecv]);
  }
  std::sort(first.begin(), first.end());

  const size_t numRanks = from.ranks.size();
  program.problem.numRanks = from.problem.numRanks;
  program.ranks.resize(numRanks);
  instructionOf.resize(numRanks);
  for (size_t r = 0, k = 0; r < numRanks; ++r)
    for (uint32_t item = ~0u;
         k < first.size() && first[k] < channels.firstUser[r + 1]; ++k) {
      const uint32_t index = channels.users[first[k]] - channels.base[r];
      Instruction inst = from.ranks[r].instructions[index];
      inst.joined = std::exchange(item, channels.itemOf[first[k]]) ==
                    channels.itemOf[first[k]];
      inst.queue = 0;
      inst.firstWait = inst.numWaits = 0;
      program.ranks[r].instructions.push_back(inst);
      instructionOf[r].push_back(index);
    }
}

/// The mirror rule. Two ranks that wait in items with new channels between
/// them, on one communicator, must present the same ones. Returns a transfer of
/// each item where they do not.
static std::vector<Site> findConflict(const Program &skeleton,
                                      const Ended &ended) {
  struct End {
    int32_t peer;
    uint16_t comm;
    bool isRecv;
    uint32_t instruction;

    auto key() const { return std::tuple(peer, comm, isRecv); }
  };
  std::vector<std::vector<End>> waiting(skeleton.ranks.size());
  for (size_t r = 0; r < waiting.size(); ++r) {
    const auto &insts = skeleton.ranks[r].instructions;
    const auto begin = static_cast<uint32_t>(
        std::find(ended[r].begin(), ended[r].end(), 0) - ended[r].begin());
    if (begin == insts.size())
      continue;
    for (uint32_t i = begin; i < itemEnd(insts, begin); ++i)
      waiting[r].push_back(
          {insts[i].peer, insts[i].comm, insts[i].op == Op::Recv, i});
    std::sort(waiting[r].begin(), waiting[r].end(),
              [](const End &a, const End &b) { return a.key() < b.key(); });
  }
  auto find = [&](int32_t rank, std::tuple<int32_t, uint16_t, bool> key) {
    const auto &ends = waiting[rank];
    auto it = std::lower_bound(
        ends.begin(), ends.end(), key,
        [](const End &end, const auto &key) { return end.key() < key; });
    return it != ends.end() && it->key() == key ? &*it : nullptr;
  };
  for (int32_t r = 0; r < skeleton.problem.numRanks; ++r)
    for (const End &end : waiting[r])
      // An end that the peer does not answer, while it waits for another one.
      if (!find(end.peer, {r, end.comm, !end.isRecv}))
        if (const End *other = find(end.peer, {r, end.comm, end.isRecv}))
          return {{r, end.instruction}, {end.peer, other->instruction}};
  return {};
}

DeadlockResult penstock::checkFirstUse(const Program &program,
                                       const Channels &channels,
                                       const Ended *done) {
  const Skeleton skeleton(program, channels);
  Ended returned(program.ranks.size());
  if (done)
    for (size_t r = 0; r < returned.size(); ++r)
      for (uint32_t i : skeleton.instructionOf[r])
        returned[r].push_back((*done)[r][i]);
  DeadlockResult result = runAndExplain(
      skeleton.program, Channels(skeleton.program),
      {Semantics::Closure, 0, true}, done ? &returned : nullptr, &returned);
  if (!result.ok) {
    result.conflict = findConflict(skeleton.program, returned);
    if (!result.conflict.empty()) // It does not come to waiting.
      result.cycle = result.unmatched = {};
  }
  skeleton.translate(result.cycle);
  skeleton.translate(result.unmatched);
  skeleton.translate(result.conflict);
  return result;
}
