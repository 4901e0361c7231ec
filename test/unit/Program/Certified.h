//===- Certified.h - A certified program, and a slow check ------*- C++ -*-===//
//
// For the tests of certificates: a small program with times, and the conditions
// on times written down pair by pair, as the definitions are, without sorting.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_TEST_UNIT_PROGRAM_CERTIFIED_H
#define PENSTOCK_TEST_UNIT_PROGRAM_CERTIFIED_H

#include "Analysis/Testing/Build.h"

#include <algorithm>

namespace penstock::test {

/// Three ranks, a group at both ends of a pair, a wait, a barrier of two ranks
/// on a communicator of its own, and an all_reduce of all.
inline Program certifiedProgram() {
  Program program = makeProgram(3, 1);
  program.rankSets = {{0, 2}};
  RankBuilder(program, 0)
      .f(0, 0)
      .onQueue(1)
      .after({0})
      .sendAct(0, 0, 1)
      .with()
      .recvGrad(1, 0, 1)
      .onQueue(0)
      .onComm(1)
      .collective(Op::Barrier, -1, 0)
      .onComm(0)
      .collective(Op::AllReduce, 0);
  RankBuilder(program, 1)
      .f(1, 0)
      .onQueue(1)
      .recvAct(0, 0, 0)
      .with()
      .sendGrad(1, 0, 0)
      .onQueue(0)
      .collective(Op::AllReduce, 0);
  RankBuilder(program, 2)
      .onComm(1)
      .collective(Op::Barrier, -1, 0)
      .onComm(0)
      .collective(Op::AllReduce, 0);
  program.ranks[0].times = {0, 2, 2, 1, 4};
  program.ranks[1].times = {0, 2, 2, 4};
  program.ranks[2].times = {1, 4};
  return program;
}

/// The definitions of docs/certificate.md, pair by pair.
class SlowCertificate {
public:
  explicit SlowCertificate(const Program &program) : program(program) {}

  bool holds() const {
    for (int32_t r = 0; r < numRanks(); ++r)
      if (program.ranks[r].times.size() != size(r))
        return false;
    for (int32_t r = 0; r < numRanks(); ++r)
      for (uint32_t i = 0; i < size(r); ++i)
        if (!isInOrder(r, i) || !meetsAll(r, i))
          return false;
    return true;
  }

private:
  int32_t numRanks() const {
    return static_cast<int32_t>(program.ranks.size());
  }
  size_t size(int32_t r) const { return program.ranks[r].instructions.size(); }
  const Instruction &at(int32_t r, uint32_t i) const {
    return program.ranks[r].instructions[i];
  }
  uint32_t timeOf(int32_t r, uint32_t i) const {
    return program.ranks[r].times[i];
  }
  uint32_t itemOf(int32_t r, uint32_t i) const {
    while (at(r, i).joined)
      --i;
    return i;
  }
  bool waitsFor(int32_t r, uint32_t item, uint32_t earlier) const {
    const Instruction &inst = at(r, item);
    for (uint32_t w = 0; w < inst.numWaits; ++w)
      if (itemOf(r, program.ranks[r].waits[inst.firstWait + w]) == earlier)
        return true;
    return false;
  }
  bool isInOrder(int32_t r, uint32_t i) const {
    for (uint32_t j = 0; j < i; ++j) {
      const uint32_t before = itemOf(r, j), item = itemOf(r, i);
      const Instruction &a = at(r, j), &b = at(r, i);
      if (before == item) {
        if (timeOf(r, j) != timeOf(r, i))
          return false;
      } else if ((a.queue == b.queue || waitsFor(r, item, before) ||
                  (usesComm(a.op) && usesComm(b.op) && a.comm == b.comm)) &&
                 timeOf(r, j) >= timeOf(r, i))
        return false;
    }
    return true;
  }

  std::vector<int32_t> setOf(const Instruction &inst) const {
    if (inst.peer >= 0)
      return program.rankSets[inst.peer];
    std::vector<int32_t> all;
    for (int32_t r = 0; r < numRanks(); ++r)
      all.push_back(r);
    return all;
  }
  bool isLike(const Instruction &a, const Instruction &b) const {
    if (a.op != b.op || a.comm != b.comm)
      return false;
    return isTransfer(a.op)
               ? a.peer == b.peer
               : a.stage == b.stage && a.microbatch == b.microbatch &&
                     setOf(a) == setOf(b);
  }
  /// Whether the rank has as many instructions like this one as that it is the
  /// last of, and the time of that last one is `time`.
  bool hasAt(int32_t r, const Instruction &like, size_t count,
             uint32_t time) const {
    for (uint32_t i = 0; i < size(r); ++i)
      if (isLike(at(r, i), like) && --count == 0)
        return timeOf(r, i) == time;
    return false;
  }
  size_t countUpTo(int32_t r, uint32_t i, const Instruction &like) const {
    size_t count = 0;
    for (uint32_t j = 0; j <= i && j < size(r); ++j)
      count += isLike(at(r, j), like);
    return count;
  }
  bool meetsAll(int32_t r, uint32_t i) const {
    const Instruction &inst = at(r, i);
    const size_t count = countUpTo(r, i, inst);
    if (isTransfer(inst.op)) {
      Instruction other = inst;
      other.op = inst.op == Op::Send ? Op::Recv : Op::Send;
      other.peer = r;
      return hasAt(inst.peer, other, count, timeOf(r, i));
    }
    if (!isCollective(inst.op))
      return true;
    const std::vector<int32_t> set = setOf(inst);
    for (int32_t member = 0; member < numRanks(); ++member)
      if (std::find(set.begin(), set.end(), member) == set.end()
              ? countUpTo(member, ~0u - 1, inst) >= count
              : !hasAt(member, inst, count, timeOf(r, i)))
        return false;
    return true;
  }

  const Program &program;
};

} // namespace penstock::test

#endif // PENSTOCK_TEST_UNIT_PROGRAM_CERTIFIED_H
