//===- Certificate.cpp - A proof that a program ends ----------------------===//
//
// checkCertificate is kept so short and plain that it can be believed by
// reading it. It shares no code with the verifier, and the verifier has no use
// for it.
//
//===----------------------------------------------------------------------===//

#include "penstock/Program/Certificate.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <utility>

using namespace penstock;

bool penstock::hasCertificate(const Program &program) {
  return std::any_of(
      program.ranks.begin(), program.ranks.end(),
      [](const RankProgram &rank) { return !rank.times.empty(); });
}

void penstock::dropCertificate(Program &program) {
  for (RankProgram &rank : program.ranks)
    rank.times.clear();
}

namespace {

/// One end of a transfer.
struct End {
  uint64_t channel; ///< communicator, source, destination: 16 + 24 + 24 bits
  uint32_t time, instruction;

  auto key() const { return std::tie(channel, time); }
  bool operator<(const End &other) const { return key() < other.key(); }
};

/// A collective on one rank.
struct Member {
  /// Op, communicator, rank set (-1: all ranks), stage, micro-batch, time.
  std::array<int64_t, 6> meeting;
  int32_t rank;
  uint32_t instruction;

  auto key() const { return std::tie(meeting, rank); }
  bool operator<(const Member &other) const { return key() < other.key(); }
};

} // namespace

static Failure refuse(int64_t rank, uint32_t instruction,
                      const std::string &why) {
  return {"the certificate does not hold: " + why +
              "; certify the program anew, as penstock-translate "
              "--pipe-to-program does",
          {static_cast<int32_t>(rank), instruction}};
}

Status penstock::checkCertificate(const Program &program) {
  const auto numRanks = static_cast<int32_t>(program.ranks.size());
  std::vector<End> sends, recvs;
  std::vector<Member> members;
  std::vector<Site> onQueue(256), onComm; // the last item there

  for (int32_t r = 0; r < numRanks; ++r) {
    const RankProgram &rank = program.ranks[r];
    const std::vector<uint32_t> &times = rank.times;
    if (times.size() != rank.instructions.size())
      return refuse(r, kNoInstruction, "not every instruction has a time");
    uint32_t item = 0;
    for (uint32_t i = 0; i < times.size(); ++i) {
      const Instruction &inst = rank.instructions[i];
      if (!inst.joined)
        item = i;
      if (times[i] != times[item])
        return refuse(r, i, "its time is not that of the item it belongs to");

      auto isLater = [&](Site &last) {
        const Site before = std::exchange(last, {r, item});
        return before.rank != r || before.instruction == item ||
               times[before.instruction] < times[item];
      };
      if (!isLater(onQueue[inst.queue]))
        return refuse(r, i,
                      "it is not later than the item before on its queue");
      if (inst.comm >= onComm.size())
        onComm.resize(inst.comm + 1);
      if (usesComm(inst.op) && !isLater(onComm[inst.comm]))
        return refuse(r, i,
                      "it is not later than the item before on its "
                      "communicator");
      for (uint32_t w = 0; w < inst.numWaits; ++w)
        if (times[rank.waits[inst.firstWait + w]] >= times[i])
          return refuse(r, i, "it is not later than what it waits for");

      auto channel = [&](uint64_t source, uint64_t destination) {
        return uint64_t(inst.comm) << 48 | source << 24 | destination;
      };
      if (inst.op == Op::Send)
        sends.push_back({channel(r, inst.peer), times[i], i});
      if (inst.op == Op::Recv)
        recvs.push_back({channel(inst.peer, r), times[i], i});
      if (isCollective(inst.op)) {
        const bool all = inst.peer < 0 || program.rankSets[inst.peer].size() ==
                                              program.ranks.size();
        members.push_back({{int64_t(inst.op), inst.comm, all ? -1 : inst.peer,
                            inst.stage, inst.microbatch, times[i]},
                           r,
                           i});
      }
    }
  }

  std::sort(sends.begin(), sends.end());
  std::sort(recvs.begin(), recvs.end());
  const auto [send, recv] = std::mismatch(
      sends.begin(), sends.end(), recvs.begin(), recvs.end(),
      [](const End &a, const End &b) { return a.key() == b.key(); });
  if (send != sends.end() && (recv == recvs.end() || *send < *recv))
    return refuse(send->channel >> 24 & 0xffffff, send->instruction,
                  "no receive of its channel has its time");
  if (recv != recvs.end())
    return refuse(recv->channel & 0xffffff, recv->instruction,
                  "no send of its channel has its time");

  std::sort(members.begin(), members.end());
  std::vector<int32_t> all(program.ranks.size());
  std::iota(all.begin(), all.end(), 0);
  for (size_t m = 0; m < members.size();) {
    const Member &first = members[m];
    const int64_t set = first.meeting[2];
    for (int32_t rank : set < 0 ? all : program.rankSets[set]) {
      if (m == members.size() || members[m].meeting != first.meeting ||
          members[m].rank != rank)
        return refuse(first.rank, first.instruction,
                      "at its time not exactly the ranks of its set issue it");
      ++m;
    }
  }
  return success();
}
