//===- Report.h - What a schedule costs, as JSON ----------------*- C++ -*-===//
//
// The report is the stable, machine-readable summary of a schedule: how long it
// takes, how much of that is bubble, what each rank holds, and whether it can
// run at all. Scripts and tests rely on its keys; docs/report.md explains them.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_TARGET_REPORT_H
#define PENSTOCK_TARGET_REPORT_H

#include "penstock/Program/Program.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"

namespace penstock {

struct ReportOptions {
  bool memory = false; ///< what each rank holds over time, step by step
};

/// The report of a well-formed order or program; `schedule` names what made it.
/// A part that does not exist is null: `program` and the verdicts of an order,
/// the times of what cannot run, `min_capacity` when no capacity helps.
llvm::json::Value reportOf(const Program &program, llvm::StringRef schedule,
                           const ReportOptions &options = {});

} // namespace penstock

#endif // PENSTOCK_TARGET_REPORT_H
