//===- Rewrite.cpp - A new list for a rank --------------------------------===//

#include "Rewrite.h"

#include <algorithm>

using namespace penstock;

namespace {

/// Instructions of which a queue has at most one: a queue runs in order, so
/// that the latest stands for all of them.
using Latest = std::vector<uint32_t>;

class Rewriter {
public:
  Rewriter(RankProgram &rank, const RankRewrite &change)
      : rank(rank), change(change), old(std::move(rank.instructions)),
        oldWaits(std::move(rank.waits)), newIndex(old.size(), kNoInstruction),
        headOf(old.size()) {}

  void run() {
    const auto size = static_cast<uint32_t>(change.list.size());
    for (uint32_t p = 0; p < size; ++p)
      newIndex[change.list[p].instruction] = p;
    for (uint32_t i = 0; i < old.size(); ++i)
      headOf[i] = old[i].joined ? headOf[i - 1] : i;
    if (!oldWaits.empty() && size < old.size())
      replaceTheMissing();

    rank.instructions.clear();
    rank.waits.clear();
    rank.instructions.reserve(size);
    for (const RankRewrite::Entry &entry : change.list) {
      Instruction inst = old[entry.instruction];
      inst.joined = entry.joined;
      inst.firstWait = 0;
      inst.numWaits = 0;
      rank.instructions.push_back(inst);
    }
    if (oldWaits.empty() && change.waits.empty())
      return;
    lastWaiter.assign(size, kNoInstruction);
    for (uint32_t begin = 0, end; begin < size; begin = end) {
      end = itemEnd(rank.instructions, begin);
      addWaits(begin, end);
    }
  }

private:
  std::span<const uint32_t> waitsOf(uint32_t head) const {
    return {oldWaits.data() + old[head].firstWait, old[head].numWaits};
  }

  /// Calls `fn` for the old instructions that stand for one: itself, another
  /// member of its item, or what came before an item that is gone.
  template <typename Fn>
  void forEachStandIn(uint32_t instruction, Fn &&fn) const {
    if (newIndex[instruction] != kNoInstruction)
      return fn(instruction);
    const uint32_t head = headOf[instruction];
    for (uint32_t i = head; i < itemEnd(old, head); ++i)
      if (newIndex[i] != kNoInstruction)
        return fn(i);
    for (uint32_t i : standIns[head])
      fn(i);
  }
  void keepLatest(Latest &latest, uint32_t instruction) const {
    for (uint32_t &other : latest)
      if (old[other].queue == old[instruction].queue) {
        other = std::max(other, instruction);
        return;
      }
    latest.push_back(instruction);
  }

  /// What came after an item that is gone comes after its queue's last
  /// survivor, and after what has been waited for on the queue since then.
  void replaceTheMissing() {
    standIns.resize(old.size());
    std::vector<Latest> carried(256);
    std::vector<uint32_t> survivor(256, kNoInstruction);
    for (uint32_t head = 0, end; head < old.size(); head = end) {
      end = itemEnd(old, head);
      const uint8_t queue = old[head].queue;
      uint32_t kept = kNoInstruction;
      for (uint32_t i = head; i < end; ++i)
        if (newIndex[i] != kNoInstruction)
          kept = i;
      if (kept != kNoInstruction) {
        survivor[queue] = kept;
        if (!carried[queue].empty())
          std::swap(standIns[head], carried[queue]);
        continue;
      }
      for (uint32_t wait : waitsOf(head))
        forEachStandIn(wait,
                       [&](uint32_t i) { keepLatest(carried[queue], i); });
      standIns[head] = carried[queue];
      if (survivor[queue] != kNoInstruction)
        keepLatest(standIns[head], survivor[queue]);
    }
  }

  void addWaits(uint32_t begin, uint32_t end) {
    Instruction &first = rank.instructions[begin];
    const size_t before = rank.waits.size();
    auto add = [&](uint32_t instruction) {
      const uint32_t target = newIndex[instruction];
      if (target < begin && lastWaiter[target] != begin) {
        lastWaiter[target] = begin;
        rank.waits.push_back(target);
      }
    };
    uint32_t previous = kNoInstruction;
    for (uint32_t p = begin; p < end; ++p) {
      const uint32_t instruction = change.list[p].instruction;
      const uint32_t head = headOf[instruction];
      if (head != previous) {
        for (uint32_t wait : waitsOf(head))
          forEachStandIn(wait, add);
        if (!standIns.empty()) // what the queue has lost before
          for (uint32_t wait : standIns[head])
            add(wait);
      }
      previous = head;
      auto more = std::lower_bound(change.waits.begin(), change.waits.end(),
                                   std::pair(instruction, 0u));
      for (; more != change.waits.end() && more->first == instruction; ++more)
        forEachStandIn(more->second, add);
    }
    first.numWaits = static_cast<uint16_t>(rank.waits.size() - before);
    first.firstWait = first.numWaits ? static_cast<uint32_t>(before) : 0;
  }

  RankProgram &rank;
  const RankRewrite &change;
  const std::vector<Instruction> old;
  const std::vector<uint32_t> oldWaits;
  std::vector<uint32_t> newIndex, headOf;
  std::vector<Latest> standIns;     ///< of the head of each item
  std::vector<uint32_t> lastWaiter; ///< of each target, the last item to wait
};

} // namespace

void penstock::rewrite(RankProgram &rank, const RankRewrite &change) {
  Rewriter(rank, change).run();
}
