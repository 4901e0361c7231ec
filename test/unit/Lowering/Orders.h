//===- Orders.h - Orders to lower, for tests --------------------*- C++ -*-===//

#ifndef PENSTOCK_TEST_UNIT_LOWERING_ORDERS_H
#define PENSTOCK_TEST_UNIT_LOWERING_ORDERS_H

#include "../Support/Families.h"
#include "../Support/Offload.h"
#include "../Support/Problems.h"

#include <gtest/gtest.h>

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

} // namespace penstock::test

#endif // PENSTOCK_TEST_UNIT_LOWERING_ORDERS_H
