// Schedules on every level that the verifier accepts without a word.
// RUN: penstock-opt %s --pipe-verify --verify-diagnostics | FileCheck %s

// CHECK-LABEL: pipe.schedule @order
pipe.schedule @order ranks(2) microbatches(1) {
  rank 0 {
    forward 0 mb 0
    backward 0 mb 0
  }
  rank 1 {
    forward 1 mb 0
    backward_input 1 mb 0
    backward_weight 1 mb 0
  }
}

// CHECK-LABEL: pipe.schedule @program
pipe.schedule @program ranks(2) microbatches(1) {
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

// Slots, queues and waits written by hand.
// CHECK-LABEL: pipe.schedule @planned
pipe.schedule @planned ranks(2) microbatches(1) {
  rank 0 slots(2 x 0) {
    forward 0 mb 0 out(0) stash(1)
    send activation 0 mb 0 to 1 slot(0) queue(1) after(forward 0 mb 0)
    recv gradient 1 mb 0 from 1 slot(0) queue(1)
    backward 0 mb 0 grad(0) stash(1) after(recv gradient 1 mb 0 from 1)
  }
  rank 1 slots(3 x 0) {
    recv activation 0 mb 0 from 0 slot(0) queue(1)
    forward 1 mb 0 in(0) stash(1) after(recv activation 0 mb 0 from 0)
    backward 1 mb 0 in(0) out(2) stash(1)
    send gradient 1 mb 0 to 0 slot(2) queue(1) after(backward 1 mb 0)
  }
}

// The repair of examples/deadlock.mlir.
// CHECK-LABEL: pipe.schedule @grouped
pipe.schedule @grouped ranks(2) microbatches(2) {
  rank 0 {
    forward 0 mb 0
    send activation 0 mb 0 to 1
    forward 0 mb 1
    group {
      send activation 0 mb 1 to 1
      recv gradient 1 mb 0 from 1
    }
    backward 0 mb 0
    recv gradient 1 mb 1 from 1
    backward 0 mb 1
  }
  rank 1 {
    recv activation 0 mb 0 from 0
    forward 1 mb 0
    backward 1 mb 0
    group {
      send gradient 1 mb 0 to 0
      recv activation 0 mb 1 from 0
    }
    forward 1 mb 1
    backward 1 mb 1
    send gradient 1 mb 1 to 0
  }
}
