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

// expected-error @below {{there is no pipe.model @gpt}}
pipe.schedule @s model(@gpt) ranks(2) microbatches(2) using(#pipe.one_f_one_b)

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
