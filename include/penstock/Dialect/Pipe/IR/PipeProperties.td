//===- PipeProperties.td - Properties of pipe ops ----------*- tablegen -*-===//
//
// Whatever an instruction says is a native property: a plain C++ value inside
// the operation, without an attribute behind it.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_DIALECT_PIPE_IR_PIPEPROPERTIES_TD
#define PENSTOCK_DIALECT_PIPE_IR_PIPEPROPERTIES_TD

include "mlir/IR/EnumAttr.td"
include "mlir/IR/Properties.td"

/// An integer that knows its range when it is read back from an attribute or
/// from bytecode. `lowest` is the smallest value that makes sense; bytecode
/// counts from there, so that "none" (-1) takes one byte.
class Pipe_IntProp<string type, int lowest> : IntProp<type, "integer"> {
  let convertToAttribute = [{
    return ::penstock::pipe::toAttribute($_ctxt, int64_t($_storage));
  }];
  let convertFromAttribute = [{
    return ::penstock::pipe::fromAttribute($_storage, $_attr, $_diag);
  }];
  let writeToMlirBytecode = "$_writer.writeVarInt(uint64_t($_storage) - uint64_t("
                            # lowest # "));";
  let readFromMlirBytecode = [{
    uint64_t value;
    if (::mlir::failed($_reader.readVarInt(value)))
      return ::mlir::failure();
    $_storage = static_cast<}] # type # [{>(value + uint64_t(}] # lowest # [{));
  }];
}

/// Number of a stage, micro-batch, rank or slot; -1 where there is none.
def Pipe_Index : Pipe_IntProp<"int32_t", -1>;
def Pipe_OptionalIndex : DefaultValuedProp<Pipe_Index, "-1">;
def Pipe_Queue : DefaultValuedProp<Pipe_IntProp<"uint8_t", 0>, "0">;
def Pipe_Comm : DefaultValuedProp<Pipe_IntProp<"uint16_t", 0>, "0">;
def Pipe_Bytes : DefaultValuedProp<Pipe_IntProp<"int64_t", 0>, "0">;

/// A set of ranks, or the chain of each micro-batch.
def Pipe_Indices : DefaultValuedProp<IntArrayProp<I32Prop>,
    "::llvm::ArrayRef<int32_t>{}", "::llvm::SmallVector<int32_t>{}">;
/// Sizes.
def Pipe_Sizes : DefaultValuedProp<IntArrayProp<I64Prop>,
    "::llvm::ArrayRef<int64_t>{}", "::llvm::SmallVector<int64_t>{}">;

/// What a transfer moves. The enum is that of the Program library.
def Pipe_PayloadEnum : I32Enum<"Payload", "what a transfer moves", [
    I32EnumCase<"Activation", 1, "activation">,
    I32EnumCase<"Gradient", 2, "gradient">,
    I32EnumCase<"Stash", 3, "stash">,
    I32EnumCase<"State", 4, "state">]> {
  let cppNamespace = "::penstock";
  let underlyingType = "uint8_t";
}
def Pipe_Payload : EnumProp<Pipe_PayloadEnum>;

/// The instructions that an instruction waits for.
def Pipe_WaitsBase : Property<"::penstock::pipe::Waits",
    "instructions to wait for",
    "::llvm::ArrayRef<::penstock::pipe::InstructionRef>"> {
  let assignToStorage = "$_storage.assign($_value.begin(), $_value.end())";
  let hashProperty = "::penstock::pipe::hashWaits($_storage)";
  let convertToAttribute = [{
    return ::penstock::pipe::toAttribute($_ctxt, $_storage);
  }];
  let convertFromAttribute = [{
    return ::penstock::pipe::fromAttribute($_storage, $_attr, $_diag);
  }];
  let writeToMlirBytecode = "::penstock::pipe::writeWaits($_writer, $_storage);";
  let readFromMlirBytecode = [{
    if (::mlir::failed(::penstock::pipe::readWaits($_reader, $_storage)))
      return ::mlir::failure();
  }];
}
def Pipe_Waits : DefaultValuedProp<Pipe_WaitsBase,
    "::llvm::ArrayRef<::penstock::pipe::InstructionRef>{}",
    "::penstock::pipe::Waits{}">;

#endif // PENSTOCK_DIALECT_PIPE_IR_PIPEPROPERTIES_TD
