//===- Interpret.cpp - Plain execution, to check the verifier -------------===//
//
// Written from the definitions, as plainly as possible: no graph, no index, no
// code shared with the verifier. Quadratic.
//
//===----------------------------------------------------------------------===//

#include "penstock/Analysis/Interpret.h"

#include <algorithm>

using namespace penstock;

namespace {

struct Item {
  size_t rank, first, end; ///< instructions [first, end)
};

class Machine {
public:
  Machine(const Program &program, const Semantics &semantics)
      : program(program), semantics(semantics) {
    for (size_t r = 0; r < program.ranks.size(); ++r) {
      const auto &insts = program.ranks[r].instructions;
      state.done.emplace_back(insts.size(), 0);
      for (size_t i = 0; i < insts.size(); ++i)
        if (insts[i].joined && i > 0)
          ++items.back().end;
        else
          items.push_back({r, i, i + 1});
    }
  }

  Execution run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (const Item &item : items)
        if (!isDone(item) && isReady(item))
          progress |= advance(item);
    }
    state.finished =
        std::all_of(items.begin(), items.end(),
                    [&](const Item &item) { return isDone(item); });
    return std::move(state);
  }

private:
  const Instruction &inst(size_t rank, size_t i) const {
    return program.ranks[rank].instructions[i];
  }
  bool isDone(const Item &item) const {
    for (size_t i = item.first; i < item.end; ++i)
      if (!state.done[item.rank][i])
        return false;
    return true;
  }
  const Item &itemOf(size_t rank, size_t i) const {
    return *std::find_if(items.begin(), items.end(), [&](const Item &item) {
      return item.rank == rank && item.first <= i && i < item.end;
    });
  }

  bool shareComm(const Item &a, const Item &b) const {
    for (size_t i = a.first; i < a.end; ++i)
      for (size_t j = b.first; j < b.end; ++j)
        if (usesComm(inst(a.rank, i).op) && usesComm(inst(b.rank, j).op) &&
            inst(a.rank, i).comm == inst(b.rank, j).comm)
          return true;
    return false;
  }
  bool waitsFor(const Item &item, const Item &earlier) const {
    const Instruction &head = inst(item.rank, item.first);
    for (size_t w = 0; w < head.numWaits; ++w) {
      size_t target = program.ranks[item.rank].waits[head.firstWait + w];
      if (earlier.first <= target && target < earlier.end)
        return true;
    }
    return false;
  }
  /// Everything that precedes the item on its rank is done.
  bool isReady(const Item &item) const {
    for (const Item &earlier : items)
      if (earlier.rank == item.rank && earlier.first < item.first &&
          !isDone(earlier) &&
          (inst(item.rank, earlier.first).queue ==
               inst(item.rank, item.first).queue ||
           shareComm(item, earlier) || waitsFor(item, earlier)))
        return false;
    return true;
  }

  bool sameEnd(const Instruction &a, const Instruction &b) const {
    return a.op == b.op && a.comm == b.comm && a.peer == b.peer;
  }
  /// How many transfers of the same channel end stand before this one.
  size_t number(size_t rank, size_t i) const {
    size_t n = 0;
    for (size_t j = 0; j < i; ++j)
      n += sameEnd(inst(rank, i), inst(rank, j));
    return n;
  }
  /// The instruction on the peer that this transfer meets, or its size.
  size_t partner(size_t rank, size_t i) const {
    Instruction other = inst(rank, i);
    size_t n = number(rank, i), peer = other.peer, j = 0;
    other.op = other.op == Op::Send ? Op::Recv : Op::Send;
    other.peer = static_cast<int32_t>(rank);
    for (; j < state.done[peer].size(); ++j)
      if (sameEnd(other, inst(peer, j)) && n-- == 0)
        break;
    return j;
  }

  bool advance(const Item &item) {
    const Op op = inst(item.rank, item.first).op;
    if (isCollective(op))
      return advanceCollective(item);
    if (!isTransfer(op)) {
      setDone(item);
      return true;
    }
    if (semantics.groups == Semantics::Closure)
      return advanceClosure(item);
    bool progress = false;
    for (size_t i = item.first; i < item.end; ++i)
      progress |= !state.done[item.rank][i] && advanceTransfer(item, i);
    return progress;
  }
  void setDone(const Item &item) {
    for (size_t i = item.first; i < item.end; ++i)
      state.done[item.rank][i] = 1;
  }

  /// M(item) fires if every item of it is ready.
  bool advanceClosure(const Item &item) {
    std::vector<const Item *> closure = {&item};
    for (size_t next = 0; next < closure.size(); ++next)
      for (size_t i = closure[next]->first; i < closure[next]->end; ++i) {
        size_t rank = closure[next]->rank, peer = inst(rank, i).peer;
        size_t other = partner(rank, i);
        if (other == state.done[peer].size())
          return false;
        const Item *y = &itemOf(peer, other);
        if (std::find(closure.begin(), closure.end(), y) == closure.end())
          closure.push_back(y);
      }
    for (const Item *y : closure)
      if (!isReady(*y))
        return false;
    for (const Item *y : closure)
      setDone(*y);
    return true;
  }

  /// Ready, and every earlier transfer of the item on its channel is done.
  bool isPosted(const Item &item, size_t i) const {
    for (size_t j = item.first; j < i; ++j)
      if (sameEnd(inst(item.rank, i), inst(item.rank, j)) &&
          !state.done[item.rank][j])
        return false;
    return isReady(item);
  }
  bool advanceTransfer(const Item &item, size_t i) {
    if (!isPosted(item, i))
      return false;
    const Instruction &own = inst(item.rank, i);
    const size_t peer = own.peer, other = partner(item.rank, i);
    const bool matched = other < state.done[peer].size();
    if (own.op == Op::Send && semantics.capacity > 0) {
      int64_t received = 0;
      for (size_t j = 0; j < state.done[peer].size(); ++j) {
        const Instruction &there = inst(peer, j);
        received += there.op == Op::Recv && there.comm == own.comm &&
                    there.peer == static_cast<int32_t>(item.rank) &&
                    state.done[peer][j];
      }
      if (static_cast<int64_t>(number(item.rank, i)) - received <
          semantics.capacity) {
        state.done[item.rank][i] = 1;
        return true;
      }
    }
    if (!matched)
      return false;
    // A receive of a message that has been sent ahead needs nothing more.
    if (!state.done[peer][other] && !isPosted(itemOf(peer, other), other))
      return false;
    state.done[item.rank][i] = state.done[peer][other] = 1;
    return true;
  }

  std::vector<int32_t> rankSet(const Instruction &collective) const {
    if (collective.peer >= 0)
      return program.rankSets[collective.peer];
    std::vector<int32_t> all;
    for (size_t r = 0; r < program.ranks.size(); ++r)
      all.push_back(static_cast<int32_t>(r));
    return all;
  }
  bool sameCollective(const Instruction &a, const Instruction &b) const {
    return a.op == b.op && a.comm == b.comm && a.stage == b.stage &&
           a.microbatch == b.microbatch && rankSet(a) == rankSet(b);
  }
  bool advanceCollective(const Item &item) {
    const Instruction &own = inst(item.rank, item.first);
    size_t occurrence = 0;
    for (size_t j = 0; j < item.first; ++j)
      occurrence += sameCollective(own, inst(item.rank, j)) ? 1 : 0;
    const std::vector<int32_t> set = rankSet(own);
    if (std::find(set.begin(), set.end(), static_cast<int32_t>(item.rank)) ==
        set.end())
      return false;
    std::vector<const Item *> met;
    for (int32_t r : set) {
      size_t n = occurrence, j = 0;
      for (; j < state.done[r].size(); ++j)
        if (isCollective(inst(r, j).op) && sameCollective(own, inst(r, j)) &&
            n-- == 0)
          break;
      if (j == state.done[r].size() || !isReady(itemOf(r, j)))
        return false;
      met.push_back(&itemOf(r, j));
    }
    // A rank outside the set that issues it too spoils the meeting.
    for (size_t r = 0; r < program.ranks.size(); ++r)
      if (std::find(set.begin(), set.end(), static_cast<int32_t>(r)) ==
          set.end()) {
        size_t n = 0;
        for (const Instruction &other : program.ranks[r].instructions)
          n += isCollective(other.op) && sameCollective(own, other);
        if (n > occurrence)
          return false;
      }
    for (const Item *y : met)
      setDone(*y);
    return true;
  }

  const Program &program;
  const Semantics semantics;
  std::vector<Item> items;
  Execution state;
};

} // namespace

Execution penstock::interpret(const Program &program,
                              const Semantics &semantics) {
  return Machine(program, semantics).run();
}
