//===- PipeSpecOps.td - What people write ------------------*- tablegen -*-===//
//
// The ops of a spec: model, cluster, schedule, and the stage table that stands
// at the top of a schedule once the layers are dealt out.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_DIALECT_PIPE_IR_PIPESPECOPS_TD
#define PENSTOCK_DIALECT_PIPE_IR_PIPESPECOPS_TD

include "penstock/Dialect/Pipe/IR/PipeOpBase.td"

def Pipe_FamilyAttr : Attr<
    CPred<"::llvm::isa<::penstock::pipe::ScheduleFamilyAttrInterface>($_self)">,
    "a schedule family"> {
  let storageType = "::penstock::pipe::ScheduleFamilyAttrInterface";
  let returnType = storageType;
  let convertFromStorage = "$_self";
}

def Pipe_ModelOp : Pipe_ContainerOp<"model", [IsolatedFromAbove, Symbol]> {
  let summary = "layers of a model, along the data flow";
  let description = [{
    ```mlir
    pipe.model @gpt {
      layer "embedding" bytes(#pipe.bytes<output = 16777216, parameters = 411041792>)
      layer "block" times 30 costs(#pipe.cost<forward = 1.0>)
      layer "head" costs(#pipe.cost<forward = 2.0>)
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name);
  let hasRegionVerifier = 1;
}

def Pipe_LayerOp : Pipe_Op<"layer", [HasParent<"ModelOp">]> {
  let summary = "a layer, or several equal ones";
  let description = [{
    Layers are numbered in the order they stand in; `times n` counts as n of
    them.

    ```mlir
    layer "block" times 30 costs(#pipe.cost<forward = 1.0>) bytes(#pipe.bytes<output = 4096>)
    ```
  }];
  let arguments = (ins
    StringProp:$name,
    DefaultValuedProp<Pipe_Index, "1">:$times,
    OptionalAttr<Pipe_CostAttr>:$costs,
    OptionalAttr<Pipe_BytesAttr>:$bytes);
}

def Pipe_ClusterOp : Pipe_Op<"cluster", [Symbol]> {
  let summary = "what a schedule runs on";
  let description = [{
    `memory` is what each rank may use, in bytes; without it there is no limit.
    `link` is the link between two ranks, `host_link` that between a rank and the
    memory of its host, which an `offload` or `reload` takes.

    ```mlir
    pipe.cluster @node ranks(8) memory(85899345920) link(#pipe.link<latency = 0.6>)
    ```
  }];
  let arguments = (ins
    SymbolNameAttr:$sym_name,
    Pipe_Index:$ranks,
    Pipe_Bytes:$memory,
    OptionalAttr<Pipe_LinkAttr>:$link,
    OptionalAttr<Pipe_LinkAttr>:$host_link);
}

def Pipe_ScheduleOp : Pipe_ContainerOp<"schedule", [
    IsolatedFromAbove, Symbol,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "a pipeline-parallel schedule";
  let description = [{
    A spec, an order or a program. Clauses may stand in any order, each at most
    once:

    | clause | meaning |
    | --- | --- |
    | `model(@m)` | deals the layers of this model out to the stages |
    | `cluster(@c)` | ranks, memory and links |
    | `ranks(n)` | number of ranks |
    | `microbatches(n)` | number of micro-batches |
    | `using(#family)` | schedule family; the `rank` ops, where there are any, come first |
    | `costs(#pipe.cost<...>)` | costs of every stage that has none of its own |
    | `bytes(#pipe.bytes<...>)` | sizes of every stage that has none of its own |
    | `memory(n)` | bytes that each rank may use; 0, the default: no limit |
    | `link(#pipe.link<...>)` | the link between two ranks |
    | `host_link(#pipe.link<...>)` | the link between a rank and the memory of its host, for `offload` and `reload`; without it they take no time |
    | `slices(n)` | parts that each micro-batch is cut into along its sequence |
    | `chains([...])` | chain of each micro-batch, for bidirectional schedules |
    | `weights([...])` | weight of each micro-batch in the loss of the step; without it all have 1 / microbatches |
    | `tied([0, 7] bytes 4096, ...)` | sets of stages that use one parameter, with the size of its gradient: their ranks add it up |
    | `overlap(x)` | from 0 to 1: the part of the shorter actions of an `overlap` that the longest one hides; without it none |
    | `post_validation` | ranks step before they know the gradients of all others, and validate the step in the next batch |

    What the schedule says itself wins over its model and cluster. Costs are per
    stage: a rank with v stages takes v times as long.

    With `slices(n)`, or a family that says so, instructions are about slices:
    micro-batch i is `mb` i n to i n + n - 1. A slice costs, and sends and keeps
    of bytes, an n-th of what costs and sizes say, which are those of a whole
    micro-batch. It needs the slices before it forwards and those after it
    backwards, as with causal attention.

    ```mlir
    pipe.schedule @train ranks(8) microbatches(24) using(#pipe.one_f_one_b)
        costs(#pipe.cost<forward = 18.522, input = 18.086, weight = 9.337, transfer = 0.601>)
    ```
  }];
  let arguments = (ins
    SymbolNameAttr:$sym_name,
    OptionalAttr<FlatSymbolRefAttr>:$model,
    OptionalAttr<FlatSymbolRefAttr>:$cluster,
    Pipe_OptionalIndex:$ranks,
    Pipe_OptionalIndex:$microbatches,
    Pipe_OptionalIndex:$slices,
    OptionalAttr<Pipe_FamilyAttr>:$family,
    OptionalAttr<Pipe_CostAttr>:$costs,
    OptionalAttr<Pipe_BytesAttr>:$bytes,
    DefaultValuedProp<Pipe_IntProp<"int64_t", -1>, "-1">:$memory,
    OptionalAttr<Pipe_LinkAttr>:$link,
    OptionalAttr<Pipe_LinkAttr>:$host_link,
    Pipe_Indices:$chains,
    OptionalAttr<DenseF64ArrayAttr>:$weights,
    // All sets one after the other; of each, the number of stages and the bytes.
    Pipe_Indices:$tied_stages,
    Pipe_Sizes:$tied_sizes,
    OptionalAttr<F64Attr>:$overlap,
    UnitAttr:$post_validation);
  let builders = [
    OpBuilder<(ins "::llvm::StringRef":$name)>];
  let extraClassDeclaration = [{
    /// Calls `fn(stages, bytes)` for every set of tied stages.
    void forEachTied(
        ::llvm::function_ref<void(::llvm::ArrayRef<int32_t>, int64_t)> fn);
  }];
  let hasRegionVerifier = 1;
}

def Pipe_StageOp : Pipe_Op<"stage", [HasParent<"ScheduleOp">]> {
  let summary = "where a stage lives, what it holds, what it costs";
  let description = [{
    Either no stage of a schedule has an op or every one has. The second number
    is the rank; a bidirectional schedule has one rank per chain.
    `layers(first, count)` are the layers of the stage; without it stage s is
    layer s.

    ```mlir
    stage 0 on 0 layers(0, 8) costs(#pipe.cost<forward = 8.0>)
    stage 1 on (1, 0) layers(8, 8)
    ```
  }];
  let arguments = (ins
    Pipe_Index:$stage,
    Pipe_Indices:$placement,
    Pipe_OptionalIndex:$first_layer,
    DefaultValuedProp<Pipe_Index, "1">:$num_layers,
    OptionalAttr<Pipe_CostAttr>:$costs,
    OptionalAttr<Pipe_BytesAttr>:$bytes);
}

#endif // PENSTOCK_DIALECT_PIPE_IR_PIPESPECOPS_TD
