//===- Convert.h - Between a schedule op and a flat program -----*- C++ -*-===//
//
// The one extraction and the one write-back of the project. Every pass and
// every translation works on the flat Program: it extracts, calls an algorithm,
// and writes back or reports. Both directions are linear.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_DIALECT_PIPE_IR_CONVERT_H
#define PENSTOCK_DIALECT_PIPE_IR_CONVERT_H

#include "penstock/Dialect/Pipe/IR/PipeOps.h"

namespace penstock::pipe {

/// A program, and the ops that it came from.
struct ExtractedProgram {
  Program program;
  ScheduleOp schedule;
  std::vector<RankOp> rankOps; ///< one per rank, null where there is none
  /// ops[rank][i] is the op of instruction i of `rank`.
  std::vector<std::vector<mlir::Operation *>> ops;

  /// The op of a site: the instruction, else the rank, else the schedule.
  mlir::Operation *at(Site site) const;
};

/// The program that a schedule says, on any level: a spec (the rank lists stay
/// empty), an order, a program. It is well-formed. Faults are reported on the
/// op at fault.
///
/// Ranks, memory and link are the schedule's own, else its cluster's. Stages
/// are those of the `stage` ops. Without `stage` ops there are, with rank ops,
/// the stages that they name, placed where each has its first forward; else as
/// many as the family wants, placed by the family; else one on each rank. Their
/// layers are then dealt out from the model by dealLayers (costs: F + B) or,
/// without a model, stage s is layer s with the costs and bytes of the
/// schedule.
llvm::FailureOr<ExtractedProgram> extractProgram(ScheduleOp schedule);

/// The schedule of a module that has this name, or without a name the only one.
/// Errors name those that there are, and the option --schedule.
llvm::FailureOr<ScheduleOp> findSchedule(mlir::Operation *module,
                                         llvm::StringRef name);

/// The layers of the schedule's model, in order, each a stage of its own; none
/// without a model. Errors are reported as by extractProgram.
llvm::FailureOr<std::vector<Stage>> extractLayers(ScheduleOp schedule);

/// Replaces what the schedule says by the program: clauses, stage ops and, if
/// any rank has instructions, rank ops, all at the schedule's location. Keeps
/// the symbol's name and the family. Extraction gives the same program again,
/// its rank sets in order of first use. Fails, with an error, where a wait
/// cannot be written down because a later instruction has the same head.
llvm::LogicalResult writeProgram(ScheduleOp schedule, const Program &program);

/// A new schedule op, named as the problem is, that says the program.
llvm::FailureOr<ScheduleOp> createSchedule(mlir::OpBuilder &builder,
                                           mlir::Location loc,
                                           const Program &program);

/// An error on the op of a site. Does not print the op, which may be a million
/// lines long.
mlir::InFlightDiagnostic emitAt(const ExtractedProgram &extracted, Site site);

} // namespace penstock::pipe

#endif // PENSTOCK_DIALECT_PIPE_IR_CONVERT_H
