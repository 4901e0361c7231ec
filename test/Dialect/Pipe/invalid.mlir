// RUN: penstock-opt %s --split-input-file --verify-diagnostics

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

// expected-error-re@+1 {{unknown attribute '#pipe.zb_h7'; the schedule families are naive, gpipe, one_f_one_b, {{.*}}; the other attributes are cost, bytes, link}}
pipe.schedule @s ranks(1) microbatches(1) using(#pipe.zb_h7)

// -----

// expected-error@+1 {{expected a schedule family, got #pipe.link<>}}
pipe.schedule @s ranks(1) microbatches(1) using(#pipe.link<>)

// -----

// expected-error@+1 {{expected a #pipe.cost, got #pipe.link<>}}
pipe.schedule @s ranks(1) microbatches(1) costs(#pipe.link<>)

// -----

// expected-error@+1 {{unknown field 'split' of #pipe.gpipe; its fields are descending, recompute, split_backward}}
pipe.schedule @s using(#pipe.gpipe<split = true>)

// -----

// expected-error@+1 {{expected true or false}}
pipe.schedule @s using(#pipe.gpipe<split_backward = 1>)

// -----

// expected-error@+1 {{waves must be between 1 and 524288, got 0}}
pipe.schedule @s using(#pipe.hanayo<waves = 0>)

// -----

// expected-error@+1 {{unknown field 'chunks' of #pipe.zb_h1; it has none}}
pipe.schedule @s using(#pipe.zb_h1<chunks = 2>)

// -----

// expected-error@+1 {{chunks must be between 1 and 1048576, got 0}}
pipe.schedule @s using(#pipe.interleaved_1f1b<chunks = 0>)

// -----

// expected-error@+1 {{group must be between 1 and 1073741824, got -1}}
pipe.schedule @s using(#pipe.gis<group = -1>)

// -----

// expected-error@+1 {{unknown field 'fwd' of #pipe.cost; its fields are forward, backward, input, weight, recompute, transfer}}
pipe.schedule @s costs(#pipe.cost<fwd = 1.0>)

// -----

// expected-error@+1 {{field 'forward' is given twice}}
pipe.schedule @s costs(#pipe.cost<forward = 1.0, forward = 1.0>)

// -----

// expected-error@+1 {{weight must be finite and not negative, got -1.5}}
pipe.schedule @s costs(#pipe.cost<weight = -1.5>)

// -----

// expected-error@+1 {{expected a finite number, got 'nan'}}
pipe.schedule @s costs(#pipe.cost<forward = nan>)

// -----

// expected-error@+1 {{expected a finite number, got 'inf'}}
pipe.schedule @s costs(#pipe.cost<forward = inf>)

// -----

// expected-error@+1 {{transfer must be finite and not negative, got inf}}
pipe.schedule @s costs(#pipe.cost<transfer = 1.0e999>)

// -----

// expected-error@+1 {{expected floating point literal}}
pipe.schedule @s costs(#pipe.cost<forward = "one">)

// -----

// expected-error@+1 {{unknown field 'input' of #pipe.bytes; its fields are output, stash, parameters, gradients, optimizer}}
pipe.schedule @s bytes(#pipe.bytes<input = 1>)

// -----

// expected-error@+1 {{stash must be between 0 and 1099511627776, got -1}}
pipe.schedule @s bytes(#pipe.bytes<stash = -1>)

// -----

pipe.model @m {
  // expected-error@+1 {{parameters must be between 0 and 1099511627776, got 4611686018427387904}}
  layer "b" times 4 bytes(#pipe.bytes<parameters = 4611686018427387904>)
}

// -----

// expected-error@+1 {{expected a #pipe.link, got #pipe.cost<>}}
pipe.cluster @c ranks(1) host_link(#pipe.cost<>)

// -----

// expected-error@+1 {{bytes_per_time must be finite and not negative, got -1.0}}
pipe.schedule @s host_link(#pipe.link<bytes_per_time = -1>)

// -----

// expected-error@+1 {{unknown field 'bandwidth' of #pipe.link; its fields are latency, bytes_per_time}}
pipe.schedule @s link(#pipe.link<bandwidth = 1.0>)

// -----

// expected-error@+1 {{latency must be finite and not negative, got -1.0}}
pipe.schedule @s link(#pipe.link<latency = -1>)

// -----

// expected-error@+1 {{bytes_per_time must be finite and not negative, got -1.0}}
pipe.schedule @s link(#pipe.link<bytes_per_time = -1>)

// -----

//===----------------------------------------------------------------------===//
// Model and cluster
//===----------------------------------------------------------------------===//

// expected-error@+1 {{model @m has no layer: add layer "name"}}
pipe.model @m {
}

// -----

pipe.model @m {
  // expected-error@+1 {{a model holds only layers}}
  builtin.module {}
}

// -----

pipe.model @m {
  // expected-error@+1 {{times must be between 1 and 1048576, got 0}}
  layer "a" times 0
}

// -----

pipe.model @m {
  // expected-error@+1 {{times must be between 1 and 1048576, got -3}}
  "pipe.layer"() <{name = "a", times = -3}> : () -> ()
}

// -----

pipe.model @m {
  // expected-error@+1 {{transfer is not a cost of a single stage or layer: give it in the costs of the schedule, or as the latency of a link}}
  layer "a" costs(#pipe.cost<transfer = 1.0>)
}

// -----

// expected-error@+1 {{'pipe.layer' op expects parent op 'pipe.model'}}
pipe.layer "a"

// -----

// expected-error@+1 {{cluster @c has no ranks: add ranks(N)}}
pipe.cluster @c memory(1)

// -----

// expected-error@+1 {{ranks must be between 1 and 1048576, got 0}}
pipe.cluster @c ranks(0)

// -----

// expected-error@+1 {{ranks must be between 1 and 1048576, got 0}}
"pipe.cluster"() <{sym_name = "c", ranks = 0}> : () -> ()

// -----

// expected-error@+1 {{memory must be at least 0, got -1}}
pipe.cluster @c ranks(1) memory(-1)

// -----

// expected-error@+1 {{memory must be at least 0, got -1}}
"pipe.cluster"() <{sym_name = "c", ranks = 1, memory = -1}> : () -> ()

// -----

//===----------------------------------------------------------------------===//
// Schedule
//===----------------------------------------------------------------------===//

// expected-error@+1 {{a schedule needs at least one rank; write ranks(N) with N >= 1}}
pipe.schedule @s ranks(0) microbatches(1)

// -----

// expected-error@+1 {{a schedule needs at least one micro-batch; write microbatches(N) with N >= 1}}
pipe.schedule @s ranks(1) microbatches(0)

// -----

// expected-error@+1 {{ranks must be between 1 and 1048576, got -4}}
pipe.schedule @s ranks(-4) microbatches(1)

// -----

// expected-error@+1 {{microbatches must be between 1 and 1073741824, got 2000000000}}
pipe.schedule @s ranks(1) microbatches(2000000000)

// -----

// expected-error@+1 {{memory must be at least 0, got -1}}
pipe.schedule @s memory(-1)

// -----

// expected-error@+1 {{integer value too large}}
pipe.schedule @s memory(9223372036854775808)

// -----

// expected-error@+1 {{memory must be at least -1, got -2}}
"pipe.schedule"() <{sym_name = "s", memory = -2}> ({^bb0: }) : () -> ()

// -----

// expected-error@+1 {{unknown clause 'rnaks' of a schedule; its clauses are model, cluster, ranks, microbatches, using, costs, bytes, memory, link, slices, chains}}
pipe.schedule @s rnaks(4)

// -----

// expected-error@+1 {{clause 'ranks' is given twice}}
pipe.schedule @s ranks(4) ranks(4)

// -----

// expected-error@+1 {{there is no pipe.model @m; define it, or drop the clause}}
pipe.schedule @s model(@m)

// -----

pipe.model @m { layer "a" }
// expected-error@+1 {{there is no pipe.cluster @m; define it, or drop the clause}}
pipe.schedule @s cluster(@m)

// -----

pipe.model @m { layer "a" }
// expected-error@+1 {{costs and sizes come from model @m: drop costs(...) and bytes(...), or the model}}
pipe.schedule @s model(@m) costs(#pipe.cost<forward = 1>)

// -----

pipe.model @m { layer "a" }
// expected-error@+1 {{costs and sizes come from model @m: drop costs(...) and bytes(...), or the model}}
pipe.schedule @s model(@m) bytes(#pipe.bytes<output = 1>)

// -----

// A transfer time is not one of those.
pipe.model @m { layer "a" }
pipe.schedule @s model(@m) costs(#pipe.cost<transfer = 1>)

// -----

// expected-error@+1 {{the latency of the link is given twice: as transfer in costs(...) and as latency in link(...)}}
pipe.schedule @s costs(#pipe.cost<transfer = 1>) link(#pipe.link<latency = 1>)

// -----

// expected-error@+1 {{chains(...) has 2 entries: write microbatches(N) and one chain for each micro-batch}}
pipe.schedule @s microbatches(3) chains([0, 1])

// -----

// expected-error@+1 {{slices must be between 1 and 1073741824, got 0}}
pipe.schedule @s microbatches(1) slices(0)

// -----

// expected-error@+1 {{slices must be at least 1, got -1}}
pipe.schedule @s microbatches(1) slices(-1)

// -----

// expected-error@+1 {{slices must be between 1 and 1073741824, got 0}}
pipe.schedule @s using(#pipe.seq_1f1b<slices = 0>)

// -----

// expected-error@+1 {{chain must be between 0 and 255, got 256}}
pipe.schedule @s microbatches(1) chains([256])

// -----

// expected-error@+1 {{chain must be between 0 and 255, got -1}}
"pipe.schedule"() <{sym_name = "s", microbatches = 1, chains = array<i32: -1>}> ({^bb0: }) : () -> ()

// -----

// expected-error@+1 {{micro-batch 1 is on chain 1, but stages have 1 chains: write stage S on (R0, R1)}}
pipe.schedule @s ranks(1) microbatches(2) chains([0, 1]) {
  stage 0 on 0
}

// -----

pipe.schedule @s {
  // expected-error@+1 {{a schedule holds only stage and rank ops}}
  builtin.module {}
}

// -----

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

pipe.schedule @s ranks(1) microbatches(1) {
  // expected-error@+1 {{expected stage 0 here, got stage 1: stages stand in ascending order, each once}}
  stage 1 on 0
}

// -----

pipe.schedule @s ranks(1) microbatches(1) {
  stage 0 on 0
  // expected-error@+1 {{expected stage 1 here, got stage 0: stages stand in ascending order, each once}}
  stage 0 on 0
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  stage 0 on 0
  // expected-error@+1 {{stage 1 has 2 chains, but stage 0 has 1}}
  stage 1 on (1, 0)
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{stage 0 is on rank 2, but the schedule has 2 ranks; place it on a rank below 2, or raise ranks(N)}}
  stage 0 on 2
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{stage must be between 0 and 1048575, got -1}}
  stage -1 on 0
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{rank must be between 0 and 1048575, got -1}}
  stage 0 on -1
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{first layer must be between 0 and 2147483647, got -1}}
  stage 0 on 0 layers(-1, 1)
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{number of layers must be between 1 and 2147483647, got 0}}
  stage 0 on 0 layers(0, 0)
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{stage 0 is on no rank}}
  "pipe.stage"() <{stage = 0}> : () -> ()
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{rank must be between 0 and 1048575, got -7}}
  "pipe.stage"() <{stage = 0, placement = array<i32: -7>}> : () -> ()
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{stage must be between 0 and 1048575, got -1}}
  "pipe.stage"() <{stage = -1, placement = array<i32: 0>}> : () -> ()
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{first layer must be between -1 and 2147483647, got -2}}
  "pipe.stage"() <{stage = 0, placement = array<i32: 0>, first_layer = -2}> : () -> ()
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{number of layers must be between 1 and 2147483647, got 0}}
  "pipe.stage"() <{stage = 0, placement = array<i32: 0>, num_layers = 0}> : () -> ()
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{transfer is not a cost of a single stage or layer}}
  stage 0 on 0 costs(#pipe.cost<transfer = 1>)
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
  }
  // expected-error@+1 {{stages stand before the first rank}}
  stage 0 on 0
}

// -----

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{rank 2 is out of range: the schedule has 2 ranks}}
  rank 2 {
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-note@+1 {{the first one}}
  rank 1 {
  }
  // expected-error@+1 {{rank 1 is there twice}}
  rank 1 {
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{rank must be between 0 and 1048575, got -1}}
  rank -1 {
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{rank must be between 0 and 1048575, got -1}}
  "pipe.rank"() <{rank = -1}> ({^bb0: }) : () -> ()
}

// -----

// expected-error@+1 {{'pipe.rank' op expects parent op 'pipe.schedule'}}
pipe.rank 0 {
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{number of slots must be between 1 and 16777216, got 0}}
  rank 0 host_slots(0 x 16) {
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{number of slots must be between 1 and 16777216, got 0}}
  rank 0 slots(0 x 16) {
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{bytes must be at least 0, got -16}}
  "pipe.rank"() <{rank = 0, slots = array<i64: 1, -16>}> ({^bb0: }) : () -> ()
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{expected slots as `count x bytes`}}
  rank 0 slots(16) {
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{expected slots as `count x bytes`}}
  rank 0 slots(-1 x 16) {
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{number of slots must be between 1 and 16777216, got 16777217}}
  rank 0 slots(16777216 x 1, 1 x 2) {
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{slots are pairs of a count and a size, got 3 numbers}}
  "pipe.rank"() <{rank = 0, slots = array<i64: 1, 2, 3>}> ({^bb0: }) : () -> ()
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{a rank holds only instructions, groups and overlaps}}
    builtin.module {}
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  // expected-error@+1 {{unknown clause 'slot' of a rank; its clauses are slots, host_slots}}
  rank 0 slot(1 x 2) {
  }
}

// -----

//===----------------------------------------------------------------------===//
// Groups and overlaps
//===----------------------------------------------------------------------===//

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{empty group: remove it or add transfers}}
    group {
    }
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{empty overlap: remove it or add actions}}
    overlap {
    }
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    group {
      // expected-error@+1 {{group holds only transfers, got forward}}
      forward 0 mb 0
    }
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    overlap {
      // expected-error@+1 {{overlap holds only actions, got send}}
      send activation 0 mb 0 to 1
    }
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    group {
      // expected-error@+1 {{queue(...) and after(...) belong to the whole group: write them there}}
      send activation 0 mb 0 to 1 queue(1)
    }
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    forward 0 mb 0
    overlap {
      // expected-error@+1 {{queue(...) and after(...) belong to the whole overlap: write them there}}
      forward 0 mb 0 after(forward 0 mb 0)
    }
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    group {
      // expected-error@+1 {{'pipe.group' op expects parent op 'pipe.rank'}}
      group {
      }
    }
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{unknown clause 'comm' of group; its clauses are queue, after}}
    group comm(1) {
    }
  }
}

// -----

//===----------------------------------------------------------------------===//
// Instructions
//===----------------------------------------------------------------------===//

// expected-error@+1 {{'pipe.forward' op expects parent op to be one of 'pipe.rank, pipe.group, pipe.overlap'}}
pipe.forward 0 mb 0

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{stage must be between 0 and 1048575, got -1}}
    forward -1 mb 0
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{micro-batch must be between 0 and 1073741823, got -1}}
    forward 0 mb -1
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+2 {{expected 'mb'}}
    forward 0
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{slot must be between 0 and 2147483647, got -1}}
    forward 0 mb 0 out(-1)
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{queue must be between 0 and 255, got 256}}
    forward 0 mb 0 queue(256)
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{unknown clause 'slot' of forward; its clauses are in, grad, out, stash, queue, after}}
    forward 0 mb 0 slot(1)
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{clause 'out' is given twice}}
    forward 0 mb 0 out(1) out(1)
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{'fwd' is no instruction to wait for}}
    forward 0 mb 0 after(fwd 0 mb 0)
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{expected activation, gradient, stash or state}}
    send 0 mb 0 to 1
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{expected 'to'}}
    send state 0 mb 0 to 1
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{unknown clause 'slot' of send; its clauses are bytes, comm, queue, after}}
    send state to 1 slot(3)
  }
}

// -----

// expected-error@+1 {{clause 'post_validation' is given twice}}
pipe.schedule @s post_validation ranks(2) post_validation microbatches(1)

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{expected 'from'}}
    recv activation 0 mb 0 to 1
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{rank must be between 0 and 1048575, got -1}}
    send activation 0 mb 0 to -1
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{communicator must be between 0 and 65535, got 65536}}
    send activation 0 mb 0 to 1 comm(65536)
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{bytes must be at least 0, got -4}}
    send activation 0 mb 0 to 1 bytes(-4)
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{ranks(...) must ascend, but 0 follows 1}}
    barrier ranks(1, 0)
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{ranks(...) must ascend, but 1 follows 1}}
    barrier ranks(1, 1)
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{stage must be between 0 and 1048575, got -1}}
    step -1
  }
}

// -----

//===----------------------------------------------------------------------===//
// Instructions in generic form, past the parser of their own syntax
//===----------------------------------------------------------------------===//

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{stage must be between 0 and 1048575, got -1}}
    "pipe.forward"() <{stage = -1, microbatch = 0}> : () -> ()
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{micro-batch must be between 0 and 1073741823, got -1}}
    "pipe.forward"() <{stage = 0, microbatch = -1}> : () -> ()
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{stage must be between -1 and 1048575, got -2}}
    "pipe.step"() <{stage = -2}> : () -> ()
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{slot must be between -1 and 2147483647, got -2}}
    "pipe.forward"() <{stage = 0, microbatch = 0, out = -2}> : () -> ()
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{rank must be between 0 and 1048575, got -1}}
    "pipe.send"() <{payload = 1 : i8, stage = 0, microbatch = 0, peer = -1}> : () -> ()
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{payload}}
    "pipe.send"() <{payload = 5 : i8, stage = 0, microbatch = 0, peer = 1}> : () -> ()
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{a state is of no stage or micro-batch and in no slot: leave them out}}
    "pipe.send"() <{payload = 4 : i8, stage = 0, microbatch = 0, peer = 1}> : () -> ()
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{bytes must be at least 0, got -4}}
    "pipe.send"() <{payload = 1 : i8, stage = 0, microbatch = 0, peer = 1, bytes = -4}> : () -> ()
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{rank must be between 0 and 1048575, got -1}}
    "pipe.barrier"() <{ranks = array<i32: -1>}> : () -> ()
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{expected an integer from 0 to 255, got 256}}
    "pipe.forward"() <{stage = 0, microbatch = 0, queue = 256}> : () -> ()
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{expected an integer, got "zero"}}
    "pipe.forward"() <{stage = "zero", microbatch = 0}> : () -> ()
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{expected waits as an array<i32> of five numbers each (op, payload, stage, micro-batch, peer)}}
    "pipe.forward"() <{stage = 0, microbatch = 0, after = array<i32: 1>}> : () -> ()
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{expected a known op and payload in waits, got 18 and 0}}
    "pipe.forward"() <{stage = 0, microbatch = 0, after = array<i32: 18, 0, 0, 0, 0>}> : () -> ()
  }
}

// -----

// expected-error@+1 {{pipe.schedule needs a name: write @name}}
pipe.schedule @"" ranks(1) microbatches(1)

// -----

// expected-error@+1 {{pipe.cluster needs a name: write @name}}
pipe.cluster @"" ranks(1)

// -----

// expected-error@+1 {{ranks must be at least 1, got -1}}
pipe.schedule @s ranks(-1) microbatches(1)

// -----

// expected-error@+1 {{microbatches must be at least 1, got -1}}
pipe.schedule @s ranks(1) microbatches(-1)

// -----

// expected-error@+1 {{expected a decimal number}}
pipe.schedule @s ranks(1) microbatches(1) costs(#pipe.cost<forward = 0x7FF8000000000000>)

// -----

// expected-error@+1 {{a number with an exponent needs a point: write 1.0e...}}
pipe.schedule @s ranks(1) microbatches(1) costs(#pipe.cost<forward = 1e308>)

// -----

//===----------------------------------------------------------------------===//
// Regions without a block, in generic form
//===----------------------------------------------------------------------===//

// expected-error@+1 {{region #0 ('body') failed to verify constraint: region with 1 blocks}}
"pipe.schedule"() ({}) {sym_name = "x"} : () -> ()

// -----

// expected-error@+1 {{region #0 ('body') failed to verify constraint: region with 1 blocks}}
"pipe.model"() ({}) {sym_name = "x"} : () -> ()

// -----

pipe.schedule @x ranks(1) microbatches(1) {
  // expected-error@+1 {{region #0 ('body') failed to verify constraint: region with 1 blocks}}
  "pipe.rank"() ({}) : () -> ()
}

// -----

pipe.schedule @x ranks(1) microbatches(1) {
  stage 0 on 0
  rank 0 {
    // expected-error@+1 {{region #0 ('body') failed to verify constraint: region with 1 blocks}}
    "pipe.overlap"() ({}) : () -> ()
  }
}

// -----

// expected-error@+1 {{expected a finite number, got 'one'}}
pipe.schedule @s ranks(1) microbatches(1) weights([one])

// -----

// expected-error@+1 {{tied stage must be between 0 and 1048575, got -1}}
pipe.schedule @s ranks(1) microbatches(1) tied([0, -1])

// -----

// expected-error@+1 {{bytes must be at least 0, got -4}}
pipe.schedule @s ranks(1) microbatches(1) tied([0, 1] bytes -4)

// -----

// expected-error@+1 {{the number of tied stages must be between 0 and 2, got 3}}
"pipe.schedule"() <{sym_name = "s", tied_stages = array<i32: 0, 1>, tied_sizes = array<i64: 3, 4>}> ({
^bb0:
}) : () -> ()

// -----

// expected-error@+1 {{tied_sizes must be pairs of a number of stages and a number of bytes, for all of tied_stages}}
"pipe.schedule"() <{sym_name = "s", tied_stages = array<i32: 0, 1>, tied_sizes = array<i64: 1, 4>}> ({
^bb0:
}) : () -> ()

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{custom op 'mb' is unknown}}
    reduce_tied 0 mb 0
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{rank must be between 0 and}}
    offload 0 mb 0 to -1
  }
}

// -----

pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    // expected-error@+1 {{expected 'from'}}
    recv stash 0 mb 0 to 1
  }
}

// -----

// expected-error@+1 {{waves must be between 1 and 524288, got 1073741824}}
pipe.schedule @s using(#pipe.hanayo<waves = 1073741824>)

// -----

// expected-error@+1 {{chunks must be between 1 and 1048576, got 2147483647}}
pipe.schedule @s using(#pipe.interleaved_1f1b<chunks = 2147483647>)

// -----

// expected-error@+1 {{group must be between 1 and 1073741824, got 2147483647}}
pipe.schedule @s using(#pipe.gis<group = 2147483647>)
