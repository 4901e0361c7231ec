//===- Repair.h - How to mend a deadlock ------------------------*- C++ -*-===//
//
// From a refused program and its cycle of waits to a change that removes the
// cycle and is checked: it is applied to a copy, the copy is verified, and only
// what passes is proposed. A repair never touches what is computed or moved: it
// groups transfers, splits groups, and moves transfers and collectives past
// instructions that they do not depend on (docs/repair.md).
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_ANALYSIS_REPAIR_H
#define PENSTOCK_ANALYSIS_REPAIR_H

#include "penstock/Analysis/Verify.h"

namespace penstock {

/// A change of one rank's list. `early` and `late` are instructions of it that
/// stand in this order.
struct Edit {
  enum Kind : uint8_t {
    GroupEarly, ///< the item of `late` moves up into that of `early`
    GroupLate,  ///< the item of `early` moves down into that of `late`
    MoveEarly,  ///< the item of `late` moves before that of `early`
    MoveLate,   ///< the item of `early` moves behind that of `late`
    Split       ///< `late` leaves its group and stands alone behind it
  };
  Kind kind = GroupEarly;
  int32_t rank = -1;
  uint32_t early = 0, late = 0;
};

struct Repair {
  /// At most one a rank. Empty: nothing that could be changed helps, but a
  /// capacity would.
  std::vector<Edit> edits;
  /// With it the program ends; otherwise the cycle is gone and another one is
  /// left.
  bool ends = false;
  /// Without edits: the smallest number of messages that a send may run ahead,
  /// with which the program ends.
  int64_t capacity = 0;
  /// In words, without a capital letter or full stop: "group `send ...` and
  /// `recv ...` on rank 0, and `send ...` and `recv ...` on rank 1".
  std::string text;
};

/// A checked repair of the deadlock that checkDeadlock() has found, if one is
/// known; one that makes no groups if those who issue the program cannot.
/// Linear in the program; tries a bounded number of changes.
std::optional<Repair>
proposeRepair(const Program &program, const DeadlockResult &result,
              const Semantics &semantics = Semantics::Closure,
              bool canGroup = true);

/// Changes the program as proposed for it.
void apply(Program &program, const Repair &repair);

struct RepairOutcome {
  /// The repairs in words, in the order in which they were applied.
  std::vector<std::string> applied;
  /// Why the program still deadlocks; nothing when it ends.
  std::optional<Finding> left;
};
/// Repairs a well-formed program until it ends or no repair is known. Each
/// round is linear; rounds that bring the execution no further are bounded.
RepairOutcome repairDeadlocks(Program &program,
                              const Semantics &semantics = Semantics::Closure);

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_REPAIR_H
