//===- PipeAttrs.td - Costs, sizes, links, families --------*- tablegen -*-===//
//
// Attributes of the spec. They exist once per stage or schedule, never per
// instruction.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_DIALECT_PIPE_IR_PIPEATTRS_TD
#define PENSTOCK_DIALECT_PIPE_IR_PIPEATTRS_TD

include "penstock/Dialect/Pipe/IR/PipeDialect.td"
include "penstock/Dialect/Pipe/IR/PipeInterfaces.td"
include "mlir/IR/AttrTypeBase.td"

class Pipe_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<Pipe_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
  let hasCustomAssemblyFormat = 1;
}

/// A field that may be left out; which fields were given is part of the value,
/// so that text stays as it was written.
class Pipe_Number<string desc> : OptionalParameter<"::penstock::pipe::Number", desc>;
class Pipe_Size<string desc> : OptionalParameter<"std::optional<int64_t>", desc>;

def Pipe_CostAttr : Pipe_Attr<"Cost", "cost"> {
  let summary = "how long the actions of a stage or layer take";
  let description = [{
    Time per micro-batch, in any unit that the link uses too. Every field may be
    left out: `forward`, `input` and `weight` are then 1, `backward` is
    input + weight, `recompute` is forward, `transfer` is 0. If only `backward`
    is given, `input` and `weight` are half of it each. `transfer`, the latency
    of the link, belongs to the costs of a schedule alone.

    ```mlir
    #pipe.cost<forward = 1.5, input = 1.5, weight = 1.0>
    ```
  }];
  let parameters = (ins
    Pipe_Number<"forward">:$forward,
    Pipe_Number<"full backward">:$backward,
    Pipe_Number<"input-gradient part of the backward">:$input,
    Pipe_Number<"weight-gradient part of the backward">:$weight,
    Pipe_Number<"forward again, for its stash">:$recompute,
    Pipe_Number<"latency of the link between two ranks">:$transfer);
  let genVerifyDecl = 1;
  let builders = [
    AttrBuilder<(ins "const ::penstock::StageCost &":$cost), [{
      return $_get($_ctxt, Number(cost.forward), Number(cost.backward),
                   Number(cost.input), Number(cost.weight),
                   Number(cost.recompute), Number());
    }]>];
  let extraClassDeclaration = [{
    /// The costs with every default filled in.
    ::penstock::StageCost resolve() const;
  }];
}

def Pipe_BytesAttr : Pipe_Attr<"Bytes", "bytes"> {
  let summary = "how large the tensors of a stage or layer are, in bytes";
  let description = [{
    `output` and `stash` are per micro-batch. A field that is left out is 0.

    ```mlir
    #pipe.bytes<output = 16777216, stash = 100663296, parameters = 411041792>
    ```
  }];
  let parameters = (ins
    Pipe_Size<"activation handed to the next stage">:$output,
    Pipe_Size<"what a forward keeps for its backward">:$stash,
    Pipe_Size<"weights">:$parameters,
    Pipe_Size<"accumulated weight gradients">:$gradients,
    Pipe_Size<"optimizer state">:$optimizer);
  let genVerifyDecl = 1;
  let builders = [
    AttrBuilder<(ins "const ::penstock::StageBytes &":$bytes), [{
      return $_get($_ctxt, bytes.output, bytes.stash, bytes.parameters,
                   bytes.gradients, bytes.optimizer);
    }]>];
  let extraClassDeclaration = [{
    /// The sizes with every default filled in.
    ::penstock::StageBytes resolve() const;
  }];
}

def Pipe_LinkAttr : Pipe_Attr<"Link", "link"> {
  let summary = "the link between two ranks";
  let description = [{
    A transfer of n bytes takes `latency` + n / `bytes_per_time`. Either is 0
    when it is left out; where `bytes_per_time` is 0, sizes do not matter.

    ```mlir
    #pipe.link<latency = 0.6, bytes_per_time = 5.0e+07>
    ```
  }];
  let parameters = (ins
    Pipe_Number<"time of an empty transfer">:$latency,
    Pipe_Number<"bytes per unit of time">:$bytes_per_time);
  let genVerifyDecl = 1;
  let builders = [
    AttrBuilder<(ins "const ::penstock::Link &":$link), [{
      return $_get($_ctxt, Number(link.latency), Number(link.bytesPerTime));
    }]>];
  let extraClassDeclaration = [{
    /// The link with every default filled in.
    ::penstock::Link resolve() const;
  }];
}

//===----------------------------------------------------------------------===//
// Schedule families
//===----------------------------------------------------------------------===//

/// A family of the dialect. The parameter `split_backward` says whether every
/// backward is cut in its input-gradient and its weight-gradient part.
class Pipe_Family<string name, string attrMnemonic>
    : Pipe_Attr<name, attrMnemonic,
        [DeclareAttrInterfaceMethods<Pipe_ScheduleFamilyAttrInterface>]> {
  let parameters = (ins
    DefaultValuedParameter<"bool", "false",
      "cut every backward in two">:$split_backward);
}

def Pipe_NaiveAttr : Pipe_Family<"Naive", "naive"> {
  let summary = "one micro-batch at a time";
  let description = [{
    Every micro-batch goes forward through all stages and back before the next
    one starts.
  }];
}

def Pipe_GPipeAttr : Pipe_Family<"GPipe", "gpipe"> {
  let summary = "all forwards, then all backwards";
  let description = [{
    Huang et al., *GPipe: Efficient Training of Giant Neural Networks using
    Pipeline Parallelism*, 2019.
  }];
}

def Pipe_OneFOneBAttr : Pipe_Family<"OneFOneB", "one_f_one_b"> {
  let summary = "one forward, one backward";
  let description = [{
    1F1B with a flush: Fan et al., *DAPPLE*, 2021; Narayanan et al.,
    *Memory-Efficient Pipeline-Parallel DNN Training* (PipeDream-Flush), 2021.

    ```mlir
    pipe.schedule @s ranks(4) microbatches(8) using(#pipe.one_f_one_b<split_backward = true>)
    ```
  }];
}

#endif // PENSTOCK_DIALECT_PIPE_IR_PIPEATTRS_TD
