//===- Syntax.h - Pieces of syntax shared by ops and attributes -*- C++ -*-===//
//
// Clauses `keyword(value)` of ops, regions, and numbers with a range. Defined
// in PipeSpecOps.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_LIB_DIALECT_PIPE_IR_SYNTAX_H
#define PENSTOCK_LIB_DIALECT_PIPE_IR_SYNTAX_H

#include "penstock/Dialect/Pipe/IR/PipeProperties.h"
#include "penstock/Program/Problem.h"

#include "mlir/IR/OpImplementation.h"

#include <limits>

namespace penstock::pipe {

/// The upper end of a range that has none.
inline constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

/// An error on an op that does not print the op: it may be a million lines.
inline mlir::InFlightDiagnostic error(mlir::Operation *op) {
  return mlir::emitError(op->getLoc());
}

/// The error "stage must be between 0 and 1048575, got -1".
llvm::LogicalResult
rangeError(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
           llvm::StringRef what, int64_t value, int64_t low, int64_t high);

/// Checks that `value` is in [low, high]; `what` names it in the error.
inline llvm::LogicalResult
checkRange(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
           llvm::StringRef what, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high)
    return llvm::success();
  return rangeError(emitError, what, value, low, high);
}

/// Parses an integer in [low, high]; `what` names it in errors.
mlir::ParseResult parseInRange(mlir::AsmParser &parser, llvm::StringRef what,
                               int64_t &value, int64_t low, int64_t high);
template <typename T>
mlir::ParseResult parseInRange(mlir::AsmParser &parser, llvm::StringRef what,
                               T &value, int64_t low, int64_t high) {
  int64_t wide;
  if (parseInRange(parser, what, wide, low, high))
    return mlir::failure();
  value = static_cast<T>(wide);
  return mlir::success();
}

/// Parses a number, with or without a decimal point. Defined in PipeAttrs.cpp.
mlir::ParseResult parseNumber(mlir::AsmParser &parser, Number &number);

/// Parses the clauses of an op, `keyword(value)` each, in any order and each at
/// most once, as long as there are any. `parseValue(i)` parses what stands
/// between the parentheses of clause `known[i]`. The last `numFlags` of them
/// are a keyword only; `parseValue(i)` is told.
mlir::ParseResult
parseClauses(mlir::OpAsmParser &parser, llvm::StringRef op,
             llvm::ArrayRef<llvm::StringRef> known,
             llvm::function_ref<mlir::ParseResult(unsigned)> parseValue,
             unsigned numFlags = 0);

/// Parses an attribute of one class, as the value of a clause.
template <typename Attr>
mlir::ParseResult parseTyped(mlir::AsmParser &parser, llvm::StringRef what,
                             Attr &result) {
  llvm::SMLoc loc = parser.getCurrentLocation();
  mlir::Attribute attr;
  if (parser.parseAttribute(attr))
    return mlir::failure();
  result = llvm::dyn_cast<Attr>(attr);
  if (result)
    return mlir::success();
  return parser.emitError(loc) << "expected " << what << ", got " << attr;
}

/// Parses the region of a container, which has one block even where the text
/// has no op in it. An optional region may be missing altogether.
mlir::ParseResult parseBody(mlir::OpAsmParser &parser,
                            mlir::OperationState &result,
                            bool optional = false);
void printBody(mlir::OpAsmPrinter &printer, mlir::Region &body);

/// Prints " keyword(value)".
template <typename T>
void printClause(mlir::OpAsmPrinter &printer, llvm::StringRef keyword,
                 T value) {
  printer << ' ' << keyword << '(' << value << ')';
}

} // namespace penstock::pipe

#endif // PENSTOCK_LIB_DIALECT_PIPE_IR_SYNTAX_H
