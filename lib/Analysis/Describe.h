//===- Describe.h - Cycles of waits in words --------------------*- C++ -*-===//
//
// The words of deadlock messages, shared by programs and orders.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_LIB_ANALYSIS_DESCRIBE_H
#define PENSTOCK_LIB_ANALYSIS_DESCRIBE_H

#include "penstock/Analysis/Verify.h"
#include "penstock/Program/Text.h"

namespace penstock {

/// "rank 0 waits in `A` for rank 1's `B`, which stands behind `C`, which waits
/// for ...". Entry k waits for entry k + 1, the last for the first: on another
/// rank for its other end, on the same rank because it stands behind it or is
/// in one group with it.
std::string describeCycle(const Program &program,
                          const std::vector<Site> &cycle);
/// One note per entry.
std::vector<Note> notesOfCycle(const Program &program,
                               const std::vector<Site> &cycle);
/// describeDeadlock, for those who know capacityNeed() already.
Finding describeDeadlock(const Program &program, const DeadlockResult &result,
                         const Semantics &semantics, bool canGroup,
                         const CapacityNeed &need);
/// "`send activation 0 mb 1 to 1`"
std::string quoted(const Program &program, Site site);

} // namespace penstock

#endif // PENSTOCK_LIB_ANALYSIS_DESCRIBE_H
