//===- PipeProgramOps.td - What ranks run ------------------*- tablegen -*-===//
//
// The ops of orders and programs: the rank, its instructions, and the two ways
// to issue several of them together.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_DIALECT_PIPE_IR_PIPEPROGRAMOPS_TD
#define PENSTOCK_DIALECT_PIPE_IR_PIPEPROGRAMOPS_TD

include "penstock/Dialect/Pipe/IR/PipeOpBase.td"

//===----------------------------------------------------------------------===//
// Containers
//===----------------------------------------------------------------------===//

def Pipe_RankOp : Pipe_ContainerOp<"rank", [
    IsolatedFromAbove, HasParent<"ScheduleOp">]> {
  let summary = "the instructions of one rank, in host issue order";
  let description = [{
    `slots` are the planned buffers of the rank, as runs of equal sizes; slot
    numbers count through them. `host_slots` are those in the memory of its host,
    for stashes that are offloaded.

    ```mlir
    rank 0 slots(3 x 16384, 2 x 65536) host_slots(1 x 65536) {
      forward 0 mb 0 out(0) stash(3)
      offload 0 mb 0 slot(3) host(0) queue(2) after(forward 0 mb 0)
    }
    ```
  }];
  let arguments = (ins
    Pipe_Index:$rank,
    Pipe_Sizes:$slots,
    Pipe_Sizes:$host_slots);
  let extraClassDeclaration = [{
    /// Number of slots: the sum over the runs (count, bytes) of `slots`.
    int64_t getNumSlots();
  }];
  let hasRegionVerifier = 1;
}

/// Instructions that are issued together, as one step of one queue.
class Pipe_ItemOp<string opMnemonic>
    : Pipe_ContainerOp<opMnemonic, [HasParent<"RankOp">]> {
  let arguments = (ins Pipe_Queue:$queue, Pipe_Waits:$after);
  let hasRegionVerifier = 1;
}

def Pipe_GroupOp : Pipe_ItemOp<"group"> {
  let summary = "transfers issued together";
  let description = [{
    Sends and receives between `ncclGroupStart` and `ncclGroupEnd`. Queue and
    waits are those of the group.

    ```mlir
    group queue(1) after(forward 0 mb 1) {
      send activation 0 mb 1 to 1 slot(1) bytes(16384)
      recv gradient 1 mb 0 from 1 slot(2) bytes(16384)
    }
    ```
  }];
}

def Pipe_OverlapOp : Pipe_ItemOp<"overlap"> {
  let summary = "actions fused into one";
  let description = [{
    One fused action, such as the forward of one micro-batch together with the
    backward of another (DualPipe).

    ```mlir
    overlap {
      forward 0 mb 2
      backward 0 mb 0
    }
    ```
  }];
}

//===----------------------------------------------------------------------===//
// Instructions
//===----------------------------------------------------------------------===//

/// An instruction. All of them have one syntax (a head that says what it is,
/// then clauses), one parser, one printer and one verifier, driven by
/// the fields of Instruction.
class Pipe_InstructionOp<string opMnemonic>
    : Pipe_Op<opMnemonic, [ParentOneOf<["RankOp", "GroupOp", "OverlapOp"]>,
                           Pipe_InstructionOpInterface]> {
  let extraClassDeclaration = [{
    ::penstock::Instruction getInstruction();
  }];
  let extraClassDefinition = [{
    ::mlir::ParseResult $cppClass::parse(::mlir::OpAsmParser &parser,
                                         ::mlir::OperationState &result) {
      return parseInstruction<$cppClass>(parser, result);
    }
    void $cppClass::print(::mlir::OpAsmPrinter &printer) {
      printInstruction(printer, *this);
    }
    ::llvm::LogicalResult $cppClass::verify() {
      return verifyInstruction(*this);
    }
    ::penstock::Instruction $cppClass::getInstruction() {
      return toInstruction(*this);
    }
  }];
}

class Pipe_ActionOp<string opMnemonic> : Pipe_InstructionOp<opMnemonic> {
  let arguments = (ins
    Pipe_Index:$stage,
    Pipe_Index:$microbatch,
    Pipe_OptionalIndex:$in,
    Pipe_OptionalIndex:$grad,
    Pipe_OptionalIndex:$out,
    Pipe_OptionalIndex:$stash,
    Pipe_Queue:$queue,
    Pipe_Waits:$after);
}

def Pipe_ForwardOp : Pipe_ActionOp<"forward"> {
  let summary = "F: the forward of a stage on a micro-batch";
  let description = [{
    Reads the activation of the stage before, writes its own and a stash.

    ```mlir
    forward 1 mb 3 in(0) out(1) stash(4) after(recv activation 0 mb 3 from 0)
    ```
  }];
}

def Pipe_BackwardOp : Pipe_ActionOp<"backward"> {
  let summary = "B: the full backward of a stage on a micro-batch";
  let description = [{
    Reads what the forward read, the stash and the gradient of the stage behind;
    writes the gradient for the stage before and accumulates weight gradients.

    ```mlir
    backward 1 mb 3 in(0) grad(2) out(1) stash(4)
    ```
  }];
}

def Pipe_BackwardInputOp : Pipe_ActionOp<"backward_input"> {
  let summary = "I: the input-gradient part of a backward";
  let description = [{
    ```mlir
    backward_input 1 mb 3
    ```
  }];
}

def Pipe_BackwardWeightOp : Pipe_ActionOp<"backward_weight"> {
  let summary = "W: the weight-gradient part of a backward";
  let description = [{
    ```mlir
    backward_weight 1 mb 3
    ```
  }];
}

def Pipe_RecomputeOp : Pipe_ActionOp<"recompute"> {
  let summary = "R: the forward again, for its stash";
  let description = [{
    ```mlir
    recompute 1 mb 3
    ```
  }];
}

class Pipe_TransferOp<string opMnemonic> : Pipe_InstructionOp<opMnemonic> {
  let arguments = (ins
    Pipe_Payload:$payload,
    Pipe_Index:$stage,
    Pipe_Index:$microbatch,
    Pipe_Index:$peer,
    Pipe_OptionalIndex:$slot,
    Pipe_Comm:$comm,
    Pipe_Queue:$queue,
    Pipe_Bytes:$bytes,
    Pipe_Waits:$after);
}

def Pipe_SendOp : Pipe_TransferOp<"send"> {
  let summary = "sends an activation, a gradient, a stash or a state to another rank";
  let description = [{
    A payload is named by the stage that produced it: `activation 0` is the
    output of stage 0, `gradient 1` is what stage 1 sends to stage 0, `stash 0` is
    what the forward of stage 0 keeps for its backward, which another rank may
    hold meanwhile. `state` is that of a batch, with `post_validation`, and of no
    stage. The i-th send of a channel (communicator, source,
    destination) meets its i-th receive.

    ```mlir
    send activation 0 mb 1 to 1 slot(1) bytes(16384) comm(0) queue(1) after(forward 0 mb 1)
    send state to 1 bytes(16)
    ```
  }];
}

def Pipe_RecvOp : Pipe_TransferOp<"recv"> {
  let summary = "receives an activation, a gradient, a stash or a state from another rank";
  let description = [{
    ```mlir
    recv gradient 1 mb 0 from 1
    ```
  }];
}

def Pipe_AllReduceOp : Pipe_InstructionOp<"all_reduce"> {
  let summary = "sums the weight gradients of a stage over ranks";
  let description = [{
    Over the ranks named, ascending, or over all ranks.

    ```mlir
    all_reduce 3 ranks(0, 3) bytes(4096) comm(1) queue(2)
    ```
  }];
  let arguments = (ins
    Pipe_Index:$stage,
    Pipe_OptionalIndex:$microbatch,
    Pipe_Indices:$ranks,
    Pipe_Bytes:$bytes,
    Pipe_Comm:$comm,
    Pipe_Queue:$queue,
    Pipe_Waits:$after);
}

def Pipe_ReduceTiedOp : Pipe_InstructionOp<"reduce_tied"> {
  let summary = "sums the gradient of a parameter that stages share over ranks";
  let description = [{
    Names the first stage of a set in `tied(...)`. The ranks that hold a stage of
    the set take part.

    ```mlir
    reduce_tied 0 ranks(0, 3) bytes(4096)
    ```
  }];
  let arguments = (ins
    Pipe_Index:$stage,
    Pipe_Indices:$ranks,
    Pipe_Bytes:$bytes,
    Pipe_Comm:$comm,
    Pipe_Queue:$queue,
    Pipe_Waits:$after);
}

def Pipe_BarrierOp : Pipe_InstructionOp<"barrier"> {
  let summary = "ranks meet";
  let description = [{
    ```mlir
    barrier ranks(0, 1)
    barrier
    ```
  }];
  let arguments = (ins
    Pipe_Indices:$ranks,
    Pipe_Bytes:$bytes,
    Pipe_Comm:$comm,
    Pipe_Queue:$queue,
    Pipe_Waits:$after);
}

/// Work of one rank on its own state.
class Pipe_LocalOp<string opMnemonic, Property stage, Property microbatch>
    : Pipe_InstructionOp<opMnemonic> {
  let arguments = (ins stage:$stage, microbatch:$microbatch,
                       Pipe_Queue:$queue, Pipe_Waits:$after);
}

def Pipe_ReduceGradOp
    : Pipe_LocalOp<"reduce_grad", Pipe_Index, Pipe_OptionalIndex> {
  let summary = "data-parallel reduction of a stage's gradients";
  let description = [{
    ```mlir
    reduce_grad 1
    ```
  }];
}

def Pipe_UnshardOp : Pipe_LocalOp<"unshard", Pipe_Index, Pipe_OptionalIndex> {
  let summary = "gathers a stage's sharded parameters";
  let description = [{
    ```mlir
    unshard 1
    ```
  }];
}

def Pipe_ReshardOp : Pipe_LocalOp<"reshard", Pipe_Index, Pipe_OptionalIndex> {
  let summary = "drops a stage's gathered parameters";
  let description = [{
    ```mlir
    reshard 1
    ```
  }];
}

/// A stash leaves its rank or comes back.
class Pipe_MoveOp<string opMnemonic> : Pipe_InstructionOp<opMnemonic> {
  let arguments = (ins Pipe_Index:$stage, Pipe_Index:$microbatch,
                       Pipe_OptionalIndex:$peer, Pipe_OptionalIndex:$slot,
                       Pipe_OptionalIndex:$host, Pipe_Queue:$queue,
                       Pipe_Waits:$after);
}

def Pipe_OffloadOp : Pipe_MoveOp<"offload"> {
  let summary = "moves a stash to host memory, or to another rank";
  let description = [{
    To host memory it is a copy on a queue of its own, from `slot` to `host`, one
    of the rank's `host_slots`. It takes the time of `host_link`.

    With a rank it belongs into an order: `pipe-insert-transfers` makes a send and
    a receive of it.

    ```mlir
    offload 0 mb 1
    offload 0 mb 1 slot(3) host(0) queue(2) after(forward 0 mb 1)
    offload 0 mb 1 to 3
    ```
  }];
}

def Pipe_ReloadOp : Pipe_MoveOp<"reload"> {
  let summary = "moves a stash back";
  let description = [{
    ```mlir
    reload 0 mb 1
    reload 0 mb 1 slot(3) host(0) queue(2) after(backward 0 mb 0)
    reload 0 mb 1 from 3
    ```
  }];
}

def Pipe_StepOp : Pipe_LocalOp<"step", Pipe_OptionalIndex, Pipe_OptionalIndex> {
  let summary = "optimizer update";
  let description = [{
    Without a stage, of all stages of the rank. With a micro-batch, of those
    gradients only that came since the step before, this one's last: others are
    still in the pipe, and go back with the weights that they went forward with.

    ```mlir
    step
    step 0
    step 0 mb 3
    ```
  }];
}

/// The state of a batch, with `post_validation`.
class Pipe_StateOp<string opMnemonic> : Pipe_InstructionOp<opMnemonic> {
  let arguments = (ins Pipe_Queue:$queue, Pipe_Waits:$after);
}

def Pipe_ReduceStateOp : Pipe_StateOp<"reduce_state"> {
  let summary = "adds the rank's gradients to the state of the batch";
  let description = [{
    Their squares, and whether they overflow. The state comes from the rank before
    and goes on to the next one, so that the last rank has it whole; the step
    behind this happens only if the state allows it as far as it is known.

    ```mlir
    reduce_state
    ```
  }];
}

def Pipe_ValidateOp : Pipe_StateOp<"validate"> {
  let summary = "looks whether the step of the batch before was right";
  let description = [{
    The whole state of the batch before comes from the next rank and goes on to
    the one before. If the step should not have happened it is undone; if the
    gradients should have been scaled it happens with scaled ones. If that changes
    parameters on any rank the batch is void, and runs again.

    ```mlir
    validate
    ```
  }];
}

#endif // PENSTOCK_DIALECT_PIPE_IR_PIPEPROGRAMOPS_TD
