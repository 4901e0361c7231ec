//===- BuildingBlock.h - Repeat, squeeze, reorder ---------------*- C++ -*-===//
//
// Controllable-memory schedules: one micro-batch is laid out in slots of unit
// time, with two stages on every rank placed in a V, and repeated every six
// slots, one for each F, I and W of a rank. Private to the Schedule library.
//
// P. Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024
// (arXiv:2405.15362).
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_LIB_SCHEDULE_FAMILIES_BUILDINGBLOCK_H
#define PENSTOCK_LIB_SCHEDULE_FAMILIES_BUILDINGBLOCK_H

#include "Family.h"

namespace penstock {

/// The slots of micro-batch 0 on rank r, for its stages r and 2p-1-r.
struct BlockSlots {
  int32_t forward0; ///< F of stage r
  int32_t forward1; ///< F of stage 2p-1-r
  int32_t input1;   ///< I of stage 2p-1-r
  int32_t input0;   ///< I of stage r
};

/// The order of a family of which `slotsOf(r, p)` is the block.
Result<Program> repeatBlock(const Problem &problem, std::string_view family,
                            BlockSlots (*slotsOf)(int32_t r, int32_t p));

} // namespace penstock

#endif // PENSTOCK_LIB_SCHEDULE_FAMILIES_BUILDINGBLOCK_H
