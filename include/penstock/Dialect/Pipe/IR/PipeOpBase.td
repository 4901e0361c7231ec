//===- PipeOpBase.td - Base classes of pipe ops ------------*- tablegen -*-===//
//
// What all ops of the dialect have in common.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_DIALECT_PIPE_IR_PIPEOPBASE_TD
#define PENSTOCK_DIALECT_PIPE_IR_PIPEOPBASE_TD

include "penstock/Dialect/Pipe/IR/PipeAttrs.td"
include "penstock/Dialect/Pipe/IR/PipeProperties.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Pipe_Op<string opMnemonic, list<Trait> traits = []>
    : Op<Pipe_Dialect, opMnemonic, traits> {
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

/// An op whose region holds ops of this dialect, printed bare.
class Pipe_ContainerOp<string opMnemonic, list<Trait> traits = []>
    : Pipe_Op<opMnemonic, !listconcat(traits, [
        SingleBlock, NoTerminator, NoRegionArguments,
        DeclareOpInterfaceMethods<OpAsmOpInterface, ["getDefaultDialect"]>])> {
  let regions = (region SizedRegion<1>:$body);
  let extraClassDefinition = [{
    ::llvm::StringRef $cppClass::getDefaultDialect() { return "pipe"; }
  }];
}

#endif // PENSTOCK_DIALECT_PIPE_IR_PIPEOPBASE_TD
