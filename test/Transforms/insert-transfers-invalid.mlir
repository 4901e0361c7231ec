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

// -----

// A stash in host memory when its backward starts.
pipe.schedule @in_host_memory ranks(1) microbatches(1) {
  rank 0 {
    forward 0 mb 0
    offload 0 mb 0
    // expected-error @below {{`backward 0 mb 0` needs stash 0 mb 0, which is in host memory; reload it before}}
    backward 0 mb 0
  }
}

// -----

// Steps on the way are not validated.
pipe.schedule @on_the_way ranks(1) microbatches(2) post_validation {
  rank 0 {
    forward 0 mb 0
    backward 0 mb 0
    // expected-error @below {{`step 0 mb 0` is for one micro-batch, but post-validation is of one step for the whole batch; choose a schedule with a flush, or drop post_validation}}
    step 0 mb 0
    forward 0 mb 1
    backward 0 mb 1
    step 0 mb 1
  }
}
