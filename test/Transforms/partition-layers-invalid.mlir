// RUN: penstock-opt %s --pipe-partition-layers --split-input-file --verify-diagnostics

pipe.model @small {
  layer "block" times 3
}
// expected-error @below {{layers of model @small}}
pipe.schedule @s model(@small) ranks(4) microbatches(8) using(#pipe.one_f_one_b)

// -----

// expected-note @below {{the cluster}}
pipe.cluster @node ranks(8)
// expected-error @below {{schedule @s: ranks(4) disagrees with the 8 ranks of cluster @node; drop one of them}}
pipe.schedule @s cluster(@node) ranks(4) microbatches(8) using(#pipe.one_f_one_b)

// -----

// expected-error @below {{no ranks: add ranks(N) or cluster(@name)}}
pipe.schedule @s microbatches(8) using(#pipe.one_f_one_b)

// -----

// expected-error @below {{no micro-batches: add microbatches(N)}}
pipe.schedule @s ranks(2) using(#pipe.one_f_one_b)

// -----

// expected-error @below {{there is no pipe.model @gpt; define it, or drop the clause}}
pipe.schedule @s model(@gpt) ranks(2) microbatches(2) using(#pipe.one_f_one_b)

// -----

// Sums that a stage cannot hold.
pipe.model @large {
  layer "b" times 4 bytes(#pipe.bytes<parameters = 549755813888>)
}
// expected-error @below {{schedule @s: layers of model @large: stage 0, layers 0 to 3: the bytes `parameters` must add up to at most 1099511627776; use more stages or smaller layers}}
pipe.schedule @s model(@large) ranks(1) microbatches(1) memory(1000) using(#pipe.gpipe)

// -----

pipe.model @slow {
  layer "b" times 4 costs(#pipe.cost<forward = 5.0e307, input = 0, weight = 0>)
}
// expected-error @below {{schedule @s: layers of model @slow: stage 0, layers 0 to 3: the costs `forward` must add up to a finite number; give costs in a larger unit}}
pipe.schedule @s model(@slow) ranks(1) microbatches(1) using(#pipe.gpipe)

// -----

// Costs that are no number before anything is added.
// expected-error @below {{schedule @s: stage 0: the backward cost is inf; it must be finite and not negative}}
pipe.schedule @s ranks(1) microbatches(1) using(#pipe.gpipe) costs(#pipe.cost<input = 1.0e308, weight = 1.0e308>)

// -----

// A stage on no rank.
// expected-error @below {{stage 1 is on no rank: no rank runs its forward}}
pipe.schedule @s ranks(2) microbatches(1) {
  rank 0 {
    forward 0 mb 0
    backward 0 mb 0
  }
  rank 1 {
    forward 2 mb 0
    backward 2 mb 0
  }
}

// -----

module {
  module {
    // expected-error @below {{schedule @nested stands in a nested op and would not be compiled: move it to the outermost module}}
    pipe.schedule @nested ranks(1) microbatches(1) using(#pipe.gpipe)
  }
}
