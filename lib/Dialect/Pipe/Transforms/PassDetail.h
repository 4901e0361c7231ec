//===- PassDetail.h - What the passes share ---------------------*- C++ -*-===//
//
// Private to the passes.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_LIB_DIALECT_PIPE_TRANSFORMS_PASSDETAIL_H
#define PENSTOCK_LIB_DIALECT_PIPE_TRANSFORMS_PASSDETAIL_H

#include "penstock/Analysis/Verify.h"
#include "penstock/Dialect/Pipe/IR/Convert.h"
#include "penstock/Program/Text.h"

namespace penstock::pipe {

using llvm::failure;
using llvm::success;

/// True when a program says more than where its stages are.
inline bool hasInstructions(const Program &program) {
  return program.numInstructions() != 0;
}

/// An error on the op of a site that names the site too: ops that a pass has
/// written share one location.
inline mlir::InFlightDiagnostic emitNamed(const ExtractedProgram &extracted,
                                          Site site) {
  mlir::InFlightDiagnostic diag = emitAt(extracted, site);
  if (site.rank >= 0)
    diag << describe(extracted.program, site) << ": ";
  return diag;
}

/// Reports the failure of an algorithm.
inline mlir::InFlightDiagnostic emitFailure(const ExtractedProgram &extracted,
                                            const Failure &failure) {
  return emitNamed(extracted, failure.site) << failure.message;
}

/// Completes the diagnostic of a finding: a note at each op that explains it.
inline void explain(mlir::InFlightDiagnostic diag,
                    const ExtractedProgram &extracted, const Finding &finding) {
  diag << finding.message << " [" << name(finding.rule) << ']';
  for (const Note &note : finding.notes) {
    mlir::Diagnostic &at = diag.attachNote(extracted.at(note.site)->getLoc());
    if (note.site.rank >= 0)
      at << "rank " << note.site.rank;
    if (note.site.instruction != kNoInstruction)
      at << ", instruction " << note.site.instruction;
    at << (note.site.rank >= 0 ? ": " : "") << note.text;
  }
}

/// Extracts a schedule that must have instructions already.
inline llvm::FailureOr<ExtractedProgram>
extractInstructions(ScheduleOp schedule) {
  llvm::FailureOr<ExtractedProgram> extracted = extractProgram(schedule);
  if (succeeded(extracted) && !hasInstructions(extracted->program)) {
    mlir::emitError(schedule.getLoc())
        << "schedule @" << schedule.getSymName()
        << " has no instructions yet: run pipe-generate-order before";
    return failure();
  }
  return extracted;
}

} // namespace penstock::pipe

#endif // PENSTOCK_LIB_DIALECT_PIPE_TRANSFORMS_PASSDETAIL_H
