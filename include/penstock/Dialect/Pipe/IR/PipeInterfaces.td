//===- PipeInterfaces.td - Families and instructions -------*- tablegen -*-===//
//
// What a schedule family must offer, and what all instruction ops have in
// common.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_DIALECT_PIPE_IR_PIPEINTERFACES_TD
#define PENSTOCK_DIALECT_PIPE_IR_PIPEINTERFACES_TD

include "mlir/IR/OpBase.td"

def Pipe_ScheduleFamilyAttrInterface
    : AttrInterface<"ScheduleFamilyAttrInterface"> {
  let cppNamespace = "::penstock::pipe";
  let description = [{
    A schedule family: a rule that places the stages on the ranks and gives every
    rank the order of its actions. `pipe.schedule` names one in `using(...)`.
    Attributes of any dialect may implement it.
  }];
  let methods = [
    InterfaceMethod<"Stages that each rank runs, at least 1.",
      "int32_t", "getChunks", (ins), "", "return 1;">,
    InterfaceMethod<"Slices that each micro-batch is cut into, at least 1.",
      "int32_t", "getSlices", (ins), "", "return 1;">,
    InterfaceMethod<[{
        Sets `placement`, and `chains` where the family has two of them, of a
        problem whose stages, ranks and micro-batches are known.
      }],
      "void", "place", (ins "::penstock::Problem &":$problem), "", [{
        problem.placement =
            ::penstock::placeLoop(problem.numStages(), problem.numRanks);
      }]>,
    InterfaceMethod<[{
        The order: the actions of every rank. A constraint of the family that
        does not hold is a Failure that names it.
      }],
      "::penstock::Result<::penstock::Program>", "generate",
      (ins "const ::penstock::Problem &":$problem)>,
  ];
}

def Pipe_InstructionOpInterface : OpInterface<"InstructionOpInterface"> {
  let cppNamespace = "::penstock::pipe";
  let description = [{
    An op that is one instruction of a program.
  }];
  let methods = [
    InterfaceMethod<[{
        The instruction without what depends on its surroundings: `joined`,
        waits, and the rank set of a collective.
      }],
      "::penstock::Instruction", "getInstruction">,
    InterfaceMethod<"The instructions that it waits for.",
      "::llvm::ArrayRef<::penstock::pipe::InstructionRef>", "getAfter">,
    InterfaceMethod<"The rank set of a collective; empty: all ranks.",
      "::llvm::ArrayRef<int32_t>", "getRanks", (ins), "", "return {};">,
  ];
}

#endif // PENSTOCK_DIALECT_PIPE_IR_PIPEINTERFACES_TD
