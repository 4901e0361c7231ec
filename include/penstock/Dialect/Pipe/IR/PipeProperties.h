//===- PipeProperties.h - Storage of properties -----------------*- C++ -*-===//
//
// The C++ types behind the properties and attribute parameters of the dialect
// that are not plain integers, and how they turn into attributes (for the
// generic form) and bytecode.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_DIALECT_PIPE_IR_PIPEPROPERTIES_H
#define PENSTOCK_DIALECT_PIPE_IR_PIPEPROPERTIES_H

#include "penstock/Program/Program.h"

#include "mlir/Bytecode/BytecodeImplementation.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/SmallVector.h"

#include <limits>
#include <optional>

namespace penstock::pipe {

/// Names an instruction of a rank by what it is (its head: "send activation 0
/// mb 1 to 1"), not by where it stands, so that ops may move. Means the latest
/// earlier instruction with that head.
struct InstructionRef {
  int32_t stage = -1;
  int32_t microbatch = -1;
  int32_t peer = -1; ///< of transfers, and of stashes that change the rank
  Op op = Op::Forward;
  Payload payload = Payload::None;

  InstructionRef() = default;
  explicit InstructionRef(const Instruction &inst)
      : stage(inst.stage), microbatch(inst.microbatch),
        peer(isTransfer(inst.op) || movesToRank(inst) ? inst.peer : -1),
        op(inst.op), payload(inst.payload) {}
  bool operator==(const InstructionRef &) const = default;
};

/// Most instructions wait for one other at most.
using Waits = llvm::SmallVector<InstructionRef, 1>;

/// A number that may be left out. Zero has no sign.
class Number {
public:
  Number() = default;
  explicit Number(double value) : value(value + 0.0) {}

  bool has() const { return value.has_value(); }
  double operator*() const { return *value; }
  double valueOr(double other) const { return value.value_or(other); }
  bool operator==(const Number &) const = default;
  friend llvm::hash_code hash_value(const Number &number) {
    return number.has() ? llvm::hash_value(llvm::bit_cast<uint64_t>(*number))
                        : llvm::hash_code(0);
  }

private:
  std::optional<double> value;
};

using EmitError = llvm::function_ref<mlir::InFlightDiagnostic()>;

mlir::Attribute toAttribute(mlir::MLIRContext *context, int64_t value);
mlir::Attribute toAttribute(mlir::MLIRContext *context, const Waits &waits);

/// Reads an integer in [low, high].
llvm::FailureOr<int64_t> integerFromAttribute(mlir::Attribute attr, int64_t low,
                                              int64_t high,
                                              EmitError emitError);
template <typename T>
llvm::LogicalResult fromAttribute(T &storage, mlir::Attribute attr,
                                  EmitError emitError) {
  auto value = integerFromAttribute(attr, std::numeric_limits<T>::min(),
                                    std::numeric_limits<T>::max(), emitError);
  if (failed(value))
    return llvm::failure();
  storage = static_cast<T>(*value);
  return llvm::success();
}
llvm::LogicalResult fromAttribute(Waits &waits, mlir::Attribute attr,
                                  EmitError emitError);

llvm::hash_code hashWaits(const Waits &waits);
void writeWaits(mlir::DialectBytecodeWriter &writer, const Waits &waits);
llvm::LogicalResult readWaits(mlir::DialectBytecodeReader &reader,
                              Waits &waits);

} // namespace penstock::pipe

#endif // PENSTOCK_DIALECT_PIPE_IR_PIPEPROPERTIES_H
