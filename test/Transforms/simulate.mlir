// RUN: penstock-opt %s --pipe-simulate --split-input-file --verify-diagnostics

// expected-remark @below {{order @order: makespan 6.0, span 6.0, bubble rate 0.5; at most 1 activations and 16 bytes on a rank; critical path: F 2.0, B 4.0}}
pipe.schedule @order ranks(2) microbatches(1) bytes(#pipe.bytes<stash = 16>) {
  rank 0 {
    forward 0 mb 0
    backward 0 mb 0
  }
  rank 1 {
    forward 1 mb 0
    backward 1 mb 0
  }
}

// -----

// The transfers cost 0.5 each.
// expected-remark @below {{program @program: makespan 7.0, span 7.0, bubble rate 0.571429; at most 1 activations and 0 bytes on a rank; critical path: F 2.0, B 4.0, transfers 1.0}}
pipe.schedule @program ranks(2) microbatches(1) link(#pipe.link<latency = 0.5>) {
  rank 0 {
    forward 0 mb 0
    send activation 0 mb 0 to 1
    recv gradient 1 mb 0 from 1
    backward 0 mb 0
  }
  rank 1 {
    recv activation 0 mb 0 from 0
    forward 1 mb 0
    backward 1 mb 0
    send gradient 1 mb 0 to 0
  }
}

// -----

// expected-error @below {{schedule @stuck cannot run to its end: pipe-verify says why}}
pipe.schedule @stuck ranks(2) microbatches(1) {
  rank 0 {
    forward 0 mb 0
    recv gradient 1 mb 0 from 1
    send activation 0 mb 0 to 1
    backward 0 mb 0
  }
  rank 1 {
    recv activation 0 mb 0 from 0
    forward 1 mb 0
    backward 1 mb 0
    send gradient 1 mb 0 to 0
  }
}

// -----

// expected-error @below {{schedule @spec has no instructions yet: run pipe-generate-order before}}
pipe.schedule @spec ranks(2) microbatches(2) using(#pipe.gpipe)
