//===- PipeOps.td - All ops of the pipe dialect ------------*- tablegen -*-===//
//
// Everything, for the documentation.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_DIALECT_PIPE_IR_PIPEOPS_TD
#define PENSTOCK_DIALECT_PIPE_IR_PIPEOPS_TD

include "penstock/Dialect/Pipe/IR/PipeSpecOps.td"
include "penstock/Dialect/Pipe/IR/PipeProgramOps.td"

#endif // PENSTOCK_DIALECT_PIPE_IR_PIPEOPS_TD
