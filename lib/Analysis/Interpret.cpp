//===- Interpret.cpp - Plain execution, to check the verifier -------------===//
//
// Written from the step rules of docs/semantics.md, as plainly as possible: no
// graph and no code of the verifier, not even its matching. Who precedes and
// who meets whom is looked up beforehand by comparing all pairs; then every
// item that can move is moved, until none can. Quadratic.
//
//===----------------------------------------------------------------------===//

#include "penstock/Analysis/Interpret.h"

#include <algorithm>

using namespace penstock;

namespace {

constexpr size_t kNobody = ~size_t(0);

/// A transfer, a collective or a local instruction.
struct Part {
  const Instruction *inst = nullptr;
  size_t item = 0;          ///< that it belongs to
  size_t number = 0;        ///< transfers: of its channel end
  size_t layer = 0;         ///< transfers: within the item
  size_t partner = kNobody; ///< transfers: the part that it meets
  bool done = false;
};

struct Item {
  size_t rank = 0, first = 0, end = 0; ///< parts [first, end)
  std::vector<size_t> before;          ///< items that precede it
  std::vector<size_t> met; ///< collectives: all that meet; empty: never
};

class Machine {
public:
  Machine(const Program &program, const Semantics &semantics,
          std::span<const ChannelNeed> buffers)
      : program(program), semantics(semantics), buffers(buffers) {
    split();
    for (Item &item : items)
      order(item);
    for (size_t p = 0; p < parts.size(); ++p)
      if (isTransfer(parts[p].inst->op))
        match(p);
    for (size_t x = 0; x < items.size(); ++x)
      if (isCollective(head(items[x]).op))
        meet(x);
  }

  Execution run() {
    Execution result;
    for (bool progress = true; progress;) {
      progress = false;
      if (semantics.firstUse) {
        for (size_t rank = 0; rank < hosts.size(); ++rank)
          progress |= advanceHost(rank);
        if (isCrossed()) {
          result.outcome = Outcome::Error;
          break;
        }
      }
      for (size_t x = 0; x < items.size(); ++x)
        if (!isDone(items[x]) && isReady(x))
          progress |= advance(x);
    }
    result.finished = std::all_of(items.begin(), items.end(),
                                  [&](const Item &i) { return isDone(i); });
    if (result.finished)
      result.outcome = Outcome::Ok;
    for (const RankProgram &rank : program.ranks)
      result.done.emplace_back(rank.instructions.size());
    for (const Item &item : items)
      for (size_t p = item.first; p < item.end; ++p)
        result.done[item.rank][p - firstPart[item.rank]] = parts[p].done;
    return result;
  }

private:
  // --- What never changes -------------------------------------------------

  void split() {
    for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
      firstPart.push_back(parts.size());
      hosts.push_back(items.size());
      for (const Instruction &inst : program.ranks[rank].instructions) {
        if (!inst.joined)
          items.push_back({rank, parts.size(), parts.size(), {}, {}});
        ++items.back().end;
        Part part;
        part.inst = &inst;
        part.item = items.size() - 1;
        parts.push_back(part);
      }
      hostEnd.push_back(items.size());
    }
  }
  const Instruction &head(const Item &item) const {
    return *parts[item.first].inst;
  }

  bool shareComm(const Item &a, const Item &b) const {
    for (size_t p = a.first; p < a.end; ++p)
      for (size_t q = b.first; q < b.end; ++q)
        if (usesComm(parts[p].inst->op) && usesComm(parts[q].inst->op) &&
            parts[p].inst->comm == parts[q].inst->comm)
          return true;
    return false;
  }
  bool waitsFor(const Item &item, const Item &earlier) const {
    for (size_t w = 0; w < head(item).numWaits; ++w) {
      const size_t target =
          firstPart[item.rank] +
          program.ranks[item.rank].waits[head(item).firstWait + w];
      if (earlier.first <= target && target < earlier.end)
        return true;
    }
    return false;
  }
  void order(Item &item) {
    for (size_t y = 0; y < items.size(); ++y) {
      const Item &earlier = items[y];
      if (earlier.rank == item.rank && earlier.first < item.first &&
          (semantics.serialised || head(earlier).queue == head(item).queue ||
           shareComm(item, earlier) || waitsFor(item, earlier)))
        item.before.push_back(y);
    }
  }

  size_t rankOf(size_t part) const { return items[parts[part].item].rank; }
  bool sameEnd(size_t p, size_t q) const {
    return rankOf(p) == rankOf(q) && parts[p].inst->op == parts[q].inst->op &&
           parts[p].inst->comm == parts[q].inst->comm &&
           parts[p].inst->peer == parts[q].inst->peer;
  }
  bool oppositeEnds(size_t p, size_t q) const {
    const Instruction &a = *parts[p].inst, &b = *parts[q].inst;
    return isTransfer(b.op) && a.op != b.op && a.comm == b.comm &&
           a.peer == static_cast<int32_t>(rankOf(q)) &&
           b.peer == static_cast<int32_t>(rankOf(p));
  }
  void match(size_t p) {
    for (size_t q = 0; q < p; ++q)
      if (sameEnd(p, q)) {
        ++parts[p].number;
        parts[p].layer += parts[p].item == parts[q].item;
      }
    size_t number = 0;
    for (size_t q = 0; q < parts.size(); ++q)
      if (oppositeEnds(p, q) && number++ == parts[p].number)
        parts[p].partner = q;
  }

  std::vector<int32_t> rankSet(const Instruction &collective) const {
    if (collective.peer >= 0)
      return program.rankSets[collective.peer];
    std::vector<int32_t> all;
    for (size_t r = 0; r < program.ranks.size(); ++r)
      all.push_back(static_cast<int32_t>(r));
    return all;
  }
  bool sameCollective(const Item &x, const Item &y) const {
    const Instruction &a = head(x), &b = head(y);
    return a.op == b.op && a.comm == b.comm && a.stage == b.stage &&
           a.microbatch == b.microbatch && rankSet(a) == rankSet(b);
  }
  size_t occurrence(size_t x) const {
    size_t n = 0;
    for (size_t y = 0; y < x; ++y)
      n += items[y].rank == items[x].rank && sameCollective(items[x], items[y]);
    return n;
  }
  /// The same occurrence on exactly the ranks of the set.
  void meet(size_t x) {
    std::vector<int32_t> ranks;
    std::vector<size_t> met;
    for (size_t y = 0; y < items.size(); ++y)
      if (sameCollective(items[x], items[y]) &&
          occurrence(x) == occurrence(y)) {
        ranks.push_back(static_cast<int32_t>(items[y].rank));
        met.push_back(y);
      }
    if (ranks == rankSet(head(items[x])))
      items[x].met = met;
  }

  // --- What happens on the devices ----------------------------------------

  bool isDone(const Item &item) const {
    for (size_t p = item.first; p < item.end; ++p)
      if (!parts[p].done)
        return false;
    return true;
  }
  void setDone(const Item &item) {
    for (size_t p = item.first; p < item.end; ++p)
      parts[p].done = true;
  }
  /// Issued, and everything that precedes it is done.
  bool isReady(size_t x) const {
    if (semantics.firstUse && x >= hosts[items[x].rank])
      return false;
    for (size_t y : items[x].before)
      if (!isDone(items[y]))
        return false;
    return true;
  }

  bool advance(size_t x) {
    const Item &item = items[x];
    if (isCollective(head(item).op))
      return advanceAll(item.met);
    if (!isTransfer(head(item).op)) {
      setDone(item);
      return true;
    }
    if (semantics.groups == Semantics::Closure)
      return advanceAll(closure(x));
    bool progress = false;
    for (size_t p = item.first; p < item.end; ++p)
      progress |= advanceTransfer(p);
    return progress;
  }
  bool advanceAll(const std::vector<size_t> &step) {
    for (size_t y : step)
      if (!isReady(y))
        return false;
    for (size_t y : step)
      setDone(items[y]);
    return !step.empty();
  }

  /// M(x); empty if it is undefined.
  std::vector<size_t> closure(size_t x) const {
    std::vector<size_t> result = {x};
    for (size_t next = 0; next < result.size(); ++next)
      for (size_t p = items[result[next]].first; p < items[result[next]].end;
           ++p) {
        if (parts[p].partner == kNobody)
          return {};
        const size_t y = parts[parts[p].partner].item;
        if (std::find(result.begin(), result.end(), y) == result.end())
          result.push_back(y);
      }
    return result;
  }

  bool isPosted(size_t p) const {
    const Part &part = parts[p];
    const Item &item = items[part.item];
    if (part.done || !isReady(part.item))
      return false;
    for (size_t q = item.first; q < item.end; ++q) {
      const bool holdsBack = semantics.groups == Semantics::Layered
                                 ? parts[q].layer < part.layer
                                 : q < p && sameEnd(p, q);
      if (holdsBack && !parts[q].done)
        return false;
    }
    return true;
  }
  bool advanceTransfer(size_t p) {
    Part &part = parts[p];
    if (!isPosted(p))
      return false;
    const size_t partner = part.partner;
    if (partner != kNobody && isPosted(partner)) {
      part.done = parts[partner].done = true;
      return true;
    }
    if (part.inst->op == Op::Send)
      part.done = runsAhead(p);
    else // The message may have been sent ahead.
      part.done = partner != kNobody && parts[partner].done;
    return part.done;
  }
  /// i - R < k
  bool runsAhead(size_t p) const {
    int64_t received = 0;
    for (size_t q = 0; q < parts.size(); ++q)
      received += parts[q].done && oppositeEnds(p, q);
    int64_t capacity = semantics.capacity;
    for (const ChannelNeed &buffer : buffers)
      if (buffer.comm == parts[p].inst->comm &&
          buffer.source == static_cast<int32_t>(rankOf(p)) &&
          buffer.destination == parts[p].inst->peer)
        capacity = buffer.messages;
    return static_cast<int64_t>(parts[p].number) - received < capacity;
  }

  // --- What happens on the hosts ------------------------------------------
  // hosts[rank] is the item that the host of the rank is in.

  bool isConnected(size_t p) const {
    for (size_t q : connected)
      if (sameEnd(p, q))
        return true;
    return false;
  }
  bool isNew(size_t p) const {
    return isTransfer(parts[p].inst->op) && !isConnected(p);
  }
  bool isWaiting(size_t rank) const {
    if (hosts[rank] == hostEnd[rank])
      return false;
    const Item &item = items[hosts[rank]];
    for (size_t p = item.first; p < item.end; ++p)
      if (isNew(p))
        return true;
    return false;
  }
  /// The transfer of the waiting item of the peer that answers p.
  size_t answer(size_t p) const {
    const size_t peer = parts[p].inst->peer;
    if (isWaiting(peer))
      for (size_t q = items[hosts[peer]].first; q < items[hosts[peer]].end; ++q)
        if (oppositeEnds(p, q))
          return q;
    return kNobody;
  }
  bool advanceHost(size_t rank) {
    if (hosts[rank] == hostEnd[rank])
      return false;
    if (!isWaiting(rank)) {
      ++hosts[rank];
      return true;
    }
    std::vector<size_t> ranks = {rank}, channels;
    for (size_t next = 0; next < ranks.size(); ++next) {
      const Item &item = items[hosts[ranks[next]]];
      for (size_t p = item.first; p < item.end; ++p) {
        if (!isNew(p))
          continue;
        const size_t q = answer(p);
        if (q == kNobody)
          return false;
        channels.push_back(p);
        if (std::find(ranks.begin(), ranks.end(), rankOf(q)) == ranks.end())
          ranks.push_back(rankOf(q));
      }
    }
    connected.insert(connected.end(), channels.begin(), channels.end());
    for (size_t r : ranks)
      ++hosts[r];
    return true;
  }
  /// Two ranks wait for connections with each other on one communicator, but
  /// not for the same ones.
  bool isCrossed() const {
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      if (!isWaiting(rank))
        continue;
      const Item &item = items[hosts[rank]];
      for (size_t p = item.first; p < item.end; ++p) {
        if (!isNew(p) || answer(p) != kNobody ||
            !isWaiting(parts[p].inst->peer))
          continue;
        const Item &other = items[hosts[parts[p].inst->peer]];
        for (size_t q = other.first; q < other.end; ++q)
          if (isNew(q) && parts[q].inst->comm == parts[p].inst->comm &&
              parts[q].inst->peer == static_cast<int32_t>(rank))
            return true;
      }
    }
    return false;
  }

  const Program &program;
  const Semantics semantics;
  const std::span<const ChannelNeed> buffers;
  std::vector<Part> parts;
  std::vector<Item> items;
  std::vector<size_t> firstPart;      ///< of each rank
  std::vector<size_t> hosts, hostEnd; ///< of each rank, items
  std::vector<size_t> connected;      ///< a transfer of each channel end
};

} // namespace

Execution penstock::interpret(const Program &program,
                              const Semantics &semantics,
                              std::span<const ChannelNeed> buffers) {
  return Machine(program, semantics, buffers).run();
}
