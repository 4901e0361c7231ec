// RUN: penstock-opt %s --pipe-plan-buffers --split-input-file --verify-diagnostics

// expected-error @below {{schedule @spec has no instructions yet: run pipe-generate-order before}}
pipe.schedule @spec ranks(2) microbatches(2) using(#pipe.gpipe)

// -----

// An order of two ranks lacks its transfers.
pipe.schedule @order ranks(2) microbatches(1) {
  rank 0 {
    forward 0 mb 0
    // expected-error @below {{gradient 1 mb 0 is not on rank 0}}
    backward 0 mb 0
  }
  rank 1 {
    forward 1 mb 0
    backward 1 mb 0
  }
}

// -----

pipe.schedule @not_offloaded ranks(1) microbatches(1) {
  rank 0 {
    forward 0 mb 0
    // expected-error @below {{`reload 0 mb 0` gets back what nothing has offloaded before; offload it first, or remove this}}
    reload 0 mb 0
    backward 0 mb 0
  }
}
