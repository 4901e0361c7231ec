//===- Lowering.h - From an order to a program ------------------*- C++ -*-===//
//
// Two steps, both linear: transfers are placed so that they cannot deadlock and
// cost no time when they are free, then every tensor gets a slot and every
// queue the waits it needs.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_LOWERING_LOWERING_H
#define PENSTOCK_LOWERING_LOWERING_H

#include "penstock/Program/Result.h"

namespace penstock {

/// Where in the lists transfers stand.
enum class TransferPlacement : uint8_t {
  Fastest, ///< as Time; where transfers take time, as Torch if the program,
           ///< planned and with one transfer queue a rank, ends earlier so
  Time,    ///< in the order in which their payloads are there
  Torch ///< as torch's pipelining puts them, for comparison with it: in rounds
        ///< over the ranks, each of which adds its next action if the inputs
        ///< are there, behind it its sends, and at once, behind all that the
        ///< other rank has by then, the receives; nothing is grouped. Each
        ///< `unshard`, `reshard` and `reduce_grad` that torch has put into the
        ///< order before takes a round, but is not inserted
};

struct TransferOptions {
  /// Group opposite transfers of a pair that are neighbours on both sides.
  bool group = true;
  TransferPlacement placement = TransferPlacement::Fastest;
};

struct TransferStatistics {
  int64_t transfers = 0, groups = 0;
};

/// Inserts the sends and receives that an order needs (docs/lowering.md), and
/// behind the actions an all-reduce of the gradients of every stage that has
/// copies on several ranks, and with post-validation the states of batches with
/// what uses them. All stays on queue 0, so the result is a complete
/// program that runs strictly in host order. Fails on an order that cannot run,
/// and leaves it as it was. The order must be well-formed.
Result<TransferStatistics> insertTransfers(Program &order,
                                           const TransferOptions &options = {});

struct BufferOptions {
  /// Queue for transfers that stand on queue 0; 0 leaves them there. Copies to
  /// host memory get the next queue that nothing else is on, or stay as well.
  uint8_t transferQueue = 1;
};

struct BufferStatistics {
  int64_t slots = 0, arenaBytes = 0; ///< summed over ranks
  int64_t hostBytes = 0;             ///< of the arenas in host memory
  int64_t waits = 0;
};

/// Gives every tensor a slot and every instruction its waits
/// (docs/lowering.md). Needs a complete, well-formed program; existing slots
/// and waits are planned anew. A failure leaves the program half planned.
Result<BufferStatistics> planBuffers(Program &program,
                                     const BufferOptions &options = {});

} // namespace penstock

#endif // PENSTOCK_LOWERING_LOWERING_H
