// RUN: penstock-opt %s --pipe-insert-transfers --split-input-file --verify-diagnostics

// expected-error @below {{schedule @spec has no instructions yet: run pipe-generate-order before}}
pipe.schedule @spec ranks(2) microbatches(2) using(#pipe.gpipe)

// -----

// An order that cannot run.
pipe.schedule @stuck ranks(2) microbatches(1) {
  rank 0 {
    // expected-error @below {{cannot run}}
    backward 0 mb 0
    forward 0 mb 0
  }
  rank 1 {
    forward 1 mb 0
    backward 1 mb 0
  }
}

// -----

// A stash that is away when its backward starts.
pipe.schedule @away ranks(2) microbatches(1) {
  rank 0 {
    forward 0 mb 0
    offload 0 mb 0 to 1
    // expected-error @below {{`backward 0 mb 0` needs stash 0 mb 0, which rank 1 holds; reload it from there before}}
    backward 0 mb 0
  }
  rank 1 {
    forward 1 mb 0
    backward 1 mb 0
  }
}
