//===- WeightVersions.h - Which weights an action uses ----------*- C++ -*-===//
//
// Schedules without a flush step while micro-batches are in the pipe: `step S
// mb K` comes before the backward of a micro-batch whose forward has run. F
// takes the newest weights of its stage; R, B, I and W take those that the F of
// their micro-batch took. So a stage keeps a version of its weights as long as
// somebody still needs it: the order says how many, and when one can go.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_ANALYSIS_WEIGHTVERSIONS_H
#define PENSTOCK_ANALYSIS_WEIGHTVERSIONS_H

#include "penstock/Program/Program.h"

#include <vector>

namespace penstock {

/// The life of one version of the weights of a stage.
struct VersionRange {
  int32_t stage = 0;
  int32_t version = 0; ///< steps of the stage before it, in one run
  uint32_t first = 0;  ///< the step that makes it; 0 for version 0
  uint32_t end = 0; ///< behind the last instruction that needs it; the newest
                    ///< one lives to the end of the list
  bool operator==(const VersionRange &) const = default;
};

struct WeightVersions {
  /// Of each instruction, the version that an action uses; -1 for others, and
  /// for what comes before the F of its micro-batch or behind its B or W.
  std::vector<int32_t> used;
  /// By stage in the order of first use, each from version 0 on.
  std::vector<VersionRange> ranges;

  /// Versions of the stage alive at once, at most; 0 if it is not on the rank.
  int32_t peak(int32_t stage) const;
  /// The largest over all stages, at least 1.
  int32_t peak() const;
};

/// Of a rank of a well-formed program. Linear; empty where no instruction steps
/// for a single micro-batch: every stage then has one version.
WeightVersions weightVersions(const Program &program, int32_t rank);

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_WEIGHTVERSIONS_H
