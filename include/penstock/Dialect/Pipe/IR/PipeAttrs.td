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
  let summary = "a link: between two ranks, or to the memory of the host";
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

class Pipe_Flag<string desc> : DefaultValuedParameter<"bool", "false", desc>;
class Pipe_Count<string desc, int value>
    : DefaultValuedParameter<"int32_t", "" # value, desc>;

/// A family of the dialect. Parameters named `chunks` and `slices` are the
/// interface's getChunks() and getSlices().
class Pipe_Family<string name, string attrMnemonic, dag fields = (ins)>
    : Pipe_Attr<name, attrMnemonic,
        [DeclareAttrInterfaceMethods<Pipe_ScheduleFamilyAttrInterface>]> {
  let parameters = fields;
}

/// One whose backwards are whole, unless the parameter `split_backward` cuts
/// each in its input-gradient and its weight-gradient part.
class Pipe_FusedFamily<string name, string attrMnemonic, dag fields = (ins)>
    : Pipe_Family<name, attrMnemonic, !con(fields, (ins
        Pipe_Flag<"cut every backward in two">:$split_backward))>;

def Pipe_NaiveAttr : Pipe_FusedFamily<"Naive", "naive"> {
  let summary = "one micro-batch at a time";
  let description = [{
    Every micro-batch goes forward through all stages and back before the next
    one starts.
  }];
}

def Pipe_GPipeAttr : Pipe_FusedFamily<"GPipe", "gpipe", (ins
    Pipe_Flag<"backwards from the last micro-batch to the first">:$descending,
    Pipe_Flag<"recompute before every backward">:$recompute)> {
  let summary = "all forwards, then all backwards";
  let description = [{
    Huang et al., *GPipe: Efficient Training of Giant Neural Networks using
    Pipeline Parallelism*, 2019. The backwards ascend, or descend if
    `descending = true`; with `recompute = true` every forward is done again
    before its backward, so that only the inputs of the stages are kept.
  }];
}

def Pipe_OneFOneBAttr : Pipe_FusedFamily<"OneFOneB", "one_f_one_b", (ins
    Pipe_Flag<"twice the warm-up">:$eager)> {
  let summary = "one forward, one backward";
  let description = [{
    1F1B with a flush: Fan et al., *DAPPLE*, 2021; Narayanan et al.,
    *Memory-Efficient Pipeline-Parallel DNN Training* (PipeDream-Flush), 2021.
    `eager = true` doubles the warm-up, which hides the latency of transfers:
    Zhuang et al., *On Optimizing the Communication of Model Parallelism*, 2023.

    ```mlir
    pipe.schedule @s ranks(4) microbatches(8) using(#pipe.one_f_one_b<split_backward = true>)
    ```
  }];
}

def Pipe_BPipeAttr : Pipe_FusedFamily<"BPipe", "bpipe"> {
  let summary = "1F1B with activations evened out over pairs of ranks";
  let description = [{
    Kim et al., *BPipe: Memory-Balanced Pipeline Parallelism for Training Large
    Language Models*, 2023: the order of 1F1B; a rank of the first half of the
    pipeline gives what it has above ceil((p + 2) / 2) activations to the rank of
    stage p - 1 - s, and gets each back before its backward.
  }];
}

def Pipe_PipeDreamAttr : Pipe_FusedFamily<"PipeDream", "pipedream"> {
  let summary = "1F1B with an update after every micro-batch";
  let description = [{
    Narayanan et al., *PipeDream: Generalized Pipeline Parallelism for DNN
    Training*, 2019: the order of 1F1B, and the optimizer steps after every
    backward. A backward takes the weights that its forward took, so stage s
    keeps up to p - s versions of them.
  }];
}

def Pipe_PipeDream2BWAttr : Pipe_FusedFamily<"PipeDream2BW", "pipedream_2bw",
    (ins Pipe_Count<"micro-batches of one update", 0>:$group)> {
  let summary = "1F1B with updates on the way and two versions of the weights";
  let description = [{
    Narayanan et al., *Memory-Efficient Pipeline-Parallel DNN Training*, 2021:
    the optimizer steps after every `group` micro-batches, at least as many as
    there are ranks, which is also the default. Two versions of the weights are
    enough for that.

    ```mlir
    pipe.schedule @s ranks(4) microbatches(16) using(#pipe.pipedream_2bw<group = 8>)
    ```
  }];
}

def Pipe_Seq1F1BAttr : Pipe_FusedFamily<"Seq1F1B", "seq_1f1b",
    (ins Pipe_Count<"slices of a micro-batch", 2>:$slices)> {
  let summary = "1F1B over slices of the sequence";
  let description = [{
    Sun et al., *Seq1F1B: Efficient Sequence-Level Pipeline Parallelism for Large
    Language Model Training*, 2024. Micro-batches are cut into `slices` of equal
    work, which flow one after the other; `mb` numbers the slices.

    ```mlir
    pipe.schedule @s ranks(4) microbatches(8) using(#pipe.seq_1f1b<slices = 4>)
    ```
  }];
}

def Pipe_ZBH1Attr : Pipe_Family<"ZBH1", "zb_h1"> {
  let summary = "zero bubble within the memory of 1F1B";
  let description = [{
    Qi et al., *Zero Bubble Pipeline Parallelism*, 2024: backwards are cut in
    two, and the weight-gradient parts fill the cool-down.
  }];
}

def Pipe_ZBH2Attr : Pipe_Family<"ZBH2", "zb_h2"> {
  let summary = "zero bubble with twice the memory of 1F1B";
  let description = [{
    Qi et al., *Zero Bubble Pipeline Parallelism*, 2024: more forwards in the
    warm-up fill the wait for the first backward, too.
  }];
}

def Pipe_Chunks : Pipe_Count<"stages on every rank", 2>;
def Pipe_Group : Pipe_Count<"micro-batches that pass a chunk together", 0>;

def Pipe_Interleaved1F1BAttr
    : Pipe_FusedFamily<"Interleaved1F1B", "interleaved_1f1b",
        (ins Pipe_Chunks:$chunks, Pipe_Group:$group)> {
  let summary = "1F1B on several stages a rank";
  let description = [{
    Narayanan et al., *Efficient Large-Scale Language Model Training on GPU
    Clusters Using Megatron-LM*, 2021. Stages run round the ranks `chunks`
    times. Micro-batches pass the chunks of a rank in groups of `group`; left
    out, that is the smallest number of at least the ranks that divides the
    micro-batches or leaves a rest that is no smaller than the ranks either.

    ```mlir
    pipe.schedule @s ranks(4) microbatches(10) using(#pipe.interleaved_1f1b<chunks = 2, group = 5>)
    ```
  }];
}

def Pipe_BreadthFirstAttr : Pipe_FusedFamily<"BreadthFirst", "breadth_first",
    (ins Pipe_Chunks:$chunks)> {
  let summary = "all micro-batches, chunk by chunk";
  let description = [{
    Lamy-Poirier, *Breadth-First Pipeline Parallelism*, 2023; LoopedBFS in torch.
  }];
}

def Pipe_InterleavedZBAttr : Pipe_Family<"InterleavedZB", "interleaved_zb",
    (ins Pipe_Chunks:$chunks, Pipe_Group:$group)> {
  let summary = "ZB-H1 on several stages a rank";
  let description = [{
    InterleavedZeroBubble in torch. `group` as in `#pipe.interleaved_1f1b`.
  }];
}

def Pipe_GISAttr : Pipe_Family<"GIS", "gis",
    (ins Pipe_Chunks:$chunks, Pipe_Group:$group)> {
  let summary = "interleaved 1F1B with less memory";
  let description = [{
    Wan et al., *PipeOffload*, 2025: generalised interleaved schedules. A
    `group` of half the ranks is their GIS-H; left out it is that of
    `#pipe.interleaved_1f1b`.
  }];
}

/// Two stages on every rank, along the ranks and back.
class Pipe_VFamily<string name, string attrMnemonic>
    : Pipe_Family<name, attrMnemonic> {
  let extraClassDeclaration = [{
    int32_t getChunks() const { return 2; }
    void place(::penstock::Problem &problem) const {
      problem.placement =
          ::penstock::placeSnake(problem.numStages(), problem.numRanks);
    }
  }];
}

def Pipe_ZBVAttr : Pipe_VFamily<"ZBV", "zb_v"> {
  let summary = "zero bubble in a V";
  let description = [{
    Qi et al., *Zero Bubble Pipeline Parallelism*, 2024, as written down by
    hand; ZBVZeroBubble in torch. Rank r has stages r and 2p-1-r.
  }];
}

def Pipe_VHalfAttr : Pipe_VFamily<"VHalf", "v_half"> {
  let summary = "half of the activations of 1F1B";
  let description = [{
    Qi et al., *Pipeline Parallelism with Controllable Memory*, 2024. Rank r has
    stages r and 2p-1-r.
  }];
}

def Pipe_VMinAttr : Pipe_VFamily<"VMin", "v_min"> {
  let summary = "a third of the activations of 1F1B";
  let description = [{
    Qi et al., *Pipeline Parallelism with Controllable Memory*, 2024. Rank r has
    stages r and 2p-1-r.
  }];
}

def Pipe_DualPipeVAttr : Pipe_VFamily<"DualPipeV", "dualpipe_v"> {
  let summary = "DualPipe on half the ranks";
  let description = [{
    DeepSeek-AI, github.com/deepseek-ai/DualPipe, 2025. Rank r has stages r and
    2p-1-r of one copy of the model; a forward of the one and a backward of the
    other run as one overlap.
  }];
}

def Pipe_HanayoAttr : Pipe_FusedFamily<"Hanayo", "hanayo", (ins
    Pipe_Count<"times along the ranks and back", 1>:$waves)> {
  let summary = "waves along the ranks and back";
  let description = [{
    Liu et al., *Hanayo: Harnessing Wave-like Pipeline Parallelism*, 2023. Every
    rank has two stages for each of `waves` waves.

    ```mlir
    pipe.schedule @s ranks(4) microbatches(4) using(#pipe.hanayo<waves = 2>)
    ```
  }];
  let extraClassDeclaration = [{
    int32_t getChunks() const { return 2 * getWaves(); }
    void place(::penstock::Problem &problem) const {
      problem.placement =
          ::penstock::placeSnake(problem.numStages(), problem.numRanks);
    }
  }];
}

/// Two chains against each other, with a copy of every stage on each.
defvar placeBothWays = [{
    void place(::penstock::Problem &problem) const {
      ::penstock::placeBothWays(problem);
    }
}];

def Pipe_DualPipeAttr : Pipe_Family<"DualPipe", "dualpipe"> {
  let summary = "two chains, forwards and backwards overlapped";
  let description = [{
    DeepSeek-AI, *DeepSeek-V3 Technical Report*, 2024. Rank r has stage r of one
    chain and stage p-1-r of the other, p being even; the first half of the
    micro-batches, rounded up, runs on the first chain unless `chains(...)` says
    otherwise. The two copies of a stage sum their gradients before the step.
  }];
  let extraClassDeclaration = placeBothWays;
}

def Pipe_ChimeraAttr : Pipe_FusedFamily<"Chimera", "chimera"> {
  let summary = "two pipelines that fill each other's bubbles";
  let description = [{
    Li and Hoefler, *Chimera: Efficiently Training Large-Scale Neural Networks
    with Bidirectional Pipelines*, 2021. Placed as `#pipe.dualpipe`.
  }];
  let extraClassDeclaration = placeBothWays;
}

#endif // PENSTOCK_DIALECT_PIPE_IR_PIPEATTRS_TD
