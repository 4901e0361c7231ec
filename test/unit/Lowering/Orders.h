//===- Orders.h - Orders to lower, for tests --------------------*- C++ -*-===//

#ifndef PENSTOCK_TEST_UNIT_LOWERING_ORDERS_H
#define PENSTOCK_TEST_UNIT_LOWERING_ORDERS_H

#include "../Support/Families.h"
#include "../Support/Problems.h"

#include <gtest/gtest.h>
#include <map>
#include <utility>
#include <vector>

namespace penstock::test {

/// Calls `fn(Program)` for orders of families with one stage a rank, slices and
/// updates on the way among them, with up to `maxRanks` ranks and
/// `maxMicrobatches` micro-batches, backward fused and split: unit costs, no
/// costs at all, and irregular costs with many zeros.
template <typename Fn>
void forEachOrder(int32_t maxRanks, int32_t maxMicrobatches, Fn &&fn) {
  for (int32_t p = 1; p <= maxRanks; ++p)
    for (int32_t m : {1, 2, 3, 4, 7, 16})
      for (const PlacedFamily &family : {kNaive, kGPipe, kOneForwardOneBackward,
                                         kPipeDream, kPipeDream2BW, kSeq1F1B})
        for (bool split : {false, true})
          for (uint32_t seed = 0; seed < 3 && m <= maxMicrobatches; ++seed) {
            Problem problem = irregularPipeline(p, m, seed);
            for (Stage &stage : problem.stages)
              if (seed < 2)
                stage.cost = seed ? cost(0, 0, 0) : cost(1, 1, 1);
            setSlices(problem, family.slices);
            Result<Program> order = family.make(problem);
            ASSERT_TRUE(order);
            if (split)
              splitBackward(*order);
            appendSteps(*order);
            SCOPED_TRACE(std::string(family.name) + " p=" + std::to_string(p) +
                         " m=" + std::to_string(m) + (split ? " split" : "") +
                         " seed=" + std::to_string(seed));
            fn(*order);
          }
}

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

#endif // PENSTOCK_TEST_UNIT_LOWERING_ORDERS_H
