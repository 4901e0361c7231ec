//===- PipeOps.h - Operations of the pipe dialect ---------------*- C++ -*-===//
//
// The ops of specs, orders and programs.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_DIALECT_PIPE_IR_PIPEOPS_H
#define PENSTOCK_DIALECT_PIPE_IR_PIPEOPS_H

#include "penstock/Dialect/Pipe/IR/PipeDialect.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"

#include "penstock/Dialect/Pipe/IR/PipeOpInterfaces.h.inc"

#define GET_OP_CLASSES
#include "penstock/Dialect/Pipe/IR/PipeSpecOps.h.inc"

#define GET_OP_CLASSES
#include "penstock/Dialect/Pipe/IR/PipeProgramOps.h.inc"

namespace penstock::pipe {

/// Makes the op of an instruction, detached. `ranks` is the rank set of a
/// collective. The instruction's own peer index, waits and `joined` are not
/// looked at for that.
mlir::Operation *createInstruction(mlir::Location loc, const Instruction &inst,
                                   llvm::ArrayRef<InstructionRef> after,
                                   llvm::ArrayRef<int32_t> ranks);

} // namespace penstock::pipe

#endif // PENSTOCK_DIALECT_PIPE_IR_PIPEOPS_H
