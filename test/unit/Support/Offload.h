//===- Offload.h - Orders that offload stashes ------------------*- C++ -*-===//

#ifndef PENSTOCK_TEST_UNIT_SUPPORT_OFFLOAD_H
#define PENSTOCK_TEST_UNIT_SUPPORT_OFFLOAD_H

#include "penstock/Program/Program.h"

#include <map>
#include <utility>
#include <vector>

namespace penstock::test {

/// Moves the stash of every second micro-batch to host memory behind its F, and
/// back `ahead` items before the item that reads it, at the earliest behind the
/// offload.
inline void offloadStashes(Program &order, size_t ahead = 0) {
  for (RankProgram &rank : order.ranks) {
    const auto list = std::exchange(rank.instructions, {});
    std::vector<uint32_t> heads;
    for (uint32_t i = 0; i < list.size(); ++i)
      if (!list[i].joined)
        heads.push_back(i);
    // Of each item the copies before and behind it.
    std::vector<std::vector<Instruction>> before(heads.size()),
        behind(heads.size());
    std::map<std::pair<int32_t, int32_t>, size_t> forward;
    for (size_t k = 0; k < heads.size(); ++k)
      for (uint32_t i = heads[k]; i < itemEnd(list, heads[k]); ++i) {
        Instruction copy;
        copy.stage = list[i].stage;
        copy.microbatch = list[i].microbatch;
        const std::pair stash(copy.stage, copy.microbatch);
        if (!isAction(list[i].op) || copy.microbatch % 2 != 0)
          continue;
        if (list[i].op == Op::Forward) {
          copy.op = Op::Offload;
          forward[stash] = k;
          behind[k].push_back(copy);
        } else if (list[i].op == Op::Backward ||
                   list[i].op == Op::BackwardInput) {
          copy.op = Op::Reload;
          const size_t first = forward[stash] + 1;
          before[k < first + ahead ? first : k - ahead].push_back(copy);
        }
      }
    for (size_t k = 0; k < heads.size(); ++k) {
      auto &to = rank.instructions;
      to.insert(to.end(), before[k].begin(), before[k].end());
      to.insert(to.end(), list.begin() + heads[k],
                list.begin() + itemEnd(list, heads[k]));
      to.insert(to.end(), behind[k].begin(), behind[k].end());
    }
  }
}

} // namespace penstock::test

#endif // PENSTOCK_TEST_UNIT_SUPPORT_OFFLOAD_H
