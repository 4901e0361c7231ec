//===- Spec.h - Trials of a spec --------------------------------*- C++ -*-===//
//
// What pipe-partition-layers and penstock-plan do with a spec: replace parts of
// it for a trial, and cut its model into the stages of a family.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_DIALECT_PIPE_TRANSFORMS_SPEC_H
#define PENSTOCK_DIALECT_PIPE_TRANSFORMS_SPEC_H

#include "penstock/Dialect/Pipe/IR/Convert.h"

#include <limits>

namespace penstock::pipe {

/// An option that is not given.
inline constexpr int64_t kNotGiven = std::numeric_limits<int64_t>::min();

/// What a trial replaces: where there is none, and at kNotGiven, the spec
/// stays.
struct SpecOverrides {
  ScheduleFamilyAttrInterface family;
  int64_t microbatches = kNotGiven;
  int64_t ranks = kNotGiven;
};

/// The family that an option names: the text of an attribute, of this dialect
/// unless it begins with '#'. Errors stand at `loc`, and name `option`.
llvm::FailureOr<ScheduleFamilyAttrInterface>
parseFamily(llvm::StringRef text, mlir::Location loc,
            llvm::StringRef option = "schedule");

/// Writes the overrides into a schedule. A family replaces an order written by
/// hand. Errors stand at the schedule.
llvm::LogicalResult overrideSpec(ScheduleOp op, const SpecOverrides &overrides);

/// The problem of a schedule: as extractProgram has it; with `placeAnew` its
/// family places the stages even if they were there. Where layers are dealt
/// from a model and the order of the family would need more memory than there
/// is, they are cut so that it fits, if fitLayers can do that.
llvm::FailureOr<Problem> partitionLayers(ScheduleOp op, bool placeAnew);

} // namespace penstock::pipe

#endif // PENSTOCK_DIALECT_PIPE_TRANSFORMS_SPEC_H
