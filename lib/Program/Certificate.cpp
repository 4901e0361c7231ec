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
#include <map>
#include <numeric>
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

/// What meets: a channel {Op::Send, communicator, source, destination, 0} or a
/// collective {op, communicator, rank set, stage, micro-batch}, where the set
/// of all ranks is -1.
using Meeting = std::array<int32_t, 5>;

/// One occurrence of a meeting on one rank.
struct Occurrence {
  uint32_t time, instruction;
};

} // namespace

static Failure refuse(int32_t rank, uint32_t instruction,
                      const std::string &why) {
  return {"the certificate does not hold: " + why +
              "; certify the program anew, as penstock-translate "
              "--pipe-to-program does",
          {rank, instruction}};
}

static Meeting meetingOf(const Program &program, int32_t rank,
                         const Instruction &inst) {
  if (inst.op == Op::Send)
    return {int32_t(Op::Send), inst.comm, rank, inst.peer, 0};
  if (inst.op == Op::Recv)
    return {int32_t(Op::Send), inst.comm, inst.peer, rank, 0};
  const bool all = inst.peer < 0 ||
                   program.rankSets[inst.peer].size() == program.ranks.size();
  return {int32_t(inst.op), inst.comm, all ? -1 : inst.peer, inst.stage,
          inst.microbatch};
}

Status penstock::checkCertificate(const Program &program) {
  std::map<Meeting, std::map<int32_t, std::vector<Occurrence>>> meetings;
  constexpr size_t kQueues = 256;
  std::vector<Site> last(kQueues); // the item before, on each; then of comms

  for (int32_t r = 0; r < static_cast<int32_t>(program.ranks.size()); ++r) {
    const auto &[insts, waits, slotBytes, hostBytes, times] = program.ranks[r];
    if (times.size() != insts.size())
      return refuse(r, kNoInstruction, "not every instruction has a time");
    for (uint32_t i = 0, item = 0; i < insts.size(); ++i) {
      const Instruction &inst = insts[i];
      item = inst.joined ? item : i;
      auto isLater = [&, &times = times](size_t line) {
        const Site before = std::exchange(last[line], {r, item});
        return before.rank != r || before.instruction == item ||
               times[before.instruction] < times[item];
      };
      if (times[i] != times[item])
        return refuse(r, i, "its time is not that of the item it belongs to");
      if (!isLater(inst.queue))
        return refuse(r, i,
                      "it is not later than the item before on its queue");
      for (uint32_t w = 0; w < inst.numWaits; ++w)
        if (times[waits[inst.firstWait + w]] >= times[i])
          return refuse(r, i, "it is not later than what it waits for");
      if (!usesComm(inst.op))
        continue;
      if (last.size() <= kQueues + inst.comm)
        last.resize(kQueues + inst.comm + 1);
      if (!isLater(kQueues + inst.comm))
        return refuse(
            r, i, "it is not later than the item before on its communicator");
      meetings[meetingOf(program, r, inst)][r].push_back({times[i], i});
    }
  }

  std::vector<int32_t> all(program.ranks.size());
  std::iota(all.begin(), all.end(), 0);
  for (const auto &[meeting, met] : meetings) {
    const auto [op, comm, set, destination, none] = meeting;
    const bool isChannel = Op(op) == Op::Send;
    const std::vector<int32_t> ends = {std::min(set, destination),
                                       std::max(set, destination)};
    const std::vector<int32_t> &ranks = isChannel ? ends
                                        : set < 0 ? all
                                                  : program.rankSets[set];
    const auto &[first, model] = *met.begin();
    auto fail = [&](int32_t rank, const Occurrence &at) {
      return refuse(rank, at.instruction,
                    isChannel ? "the other end of its channel does not have "
                                "its time"
                              : "at its time not exactly the ranks of its set "
                                "issue it");
    };
    for (const auto &[rank, own] : met) {
      const auto [a, b] = std::mismatch(
          model.begin(), model.end(), own.begin(), own.end(),
          [](Occurrence a, Occurrence b) { return a.time == b.time; });
      const bool isOwn =
          b != own.end() && (a == model.end() || b->time < a->time);
      if (isOwn || a != model.end())
        return isOwn ? fail(rank, *b) : fail(first, *a);
      if (!std::binary_search(ranks.begin(), ranks.end(), rank))
        return fail(rank, own[0]);
    }
    if (met.size() != ranks.size())
      return fail(first, model[0]);
  }
  return success();
}
