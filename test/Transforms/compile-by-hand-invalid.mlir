// Faults of what was written by hand are reported where it was written.
// RUN: penstock-opt %s --pipe-compile --split-input-file --verify-diagnostics

pipe.schedule @order ranks(1) microbatches(1) {
  rank 0 {
    // expected-note @below {{the first time is here}}
    forward 0 mb 0
    // expected-error @below {{is here a second time; remove one}}
    forward 0 mb 0
    backward 0 mb 0
  }
}

// -----

pipe.schedule @program ranks(2) microbatches(1) {
  rank 0 {
    forward 0 mb 0
    // expected-note @below {{waits for rank 1's `send gradient 1 mb 0 to 0`}}
    // expected-note @below {{rank 0 stops here: 1 of its 4 instructions have ended}}
    recv gradient 1 mb 0 from 1
    // expected-note @below {{stands behind `recv gradient 1 mb 0 from 1`}}
    send activation 0 mb 0 to 1
    backward 0 mb 0
  }
  rank 1 {
    // expected-error @below {{rank 1 waits in `recv activation 0 mb 0 from 0`, which waits for}}
    // expected-note @below {{waits for rank 0's `send activation 0 mb 0 to 1`}}
    // expected-note @below {{rank 1 stops here: 0 of its 4 instructions have ended}}
    recv activation 0 mb 0 from 0
    forward 1 mb 0
    backward 1 mb 0
    // expected-note @below {{stands behind}}
    send gradient 1 mb 0 to 0
  }
}

// -----

// A rank without an op takes nothing away from the places of the others.
pipe.schedule @idle_rank ranks(2) microbatches(1) {
  stage 0 on 0
  rank 0 {
    // expected-note @below {{the first time is here}}
    forward 0 mb 0
    // expected-error @below {{is here a second time; remove one}}
    forward 0 mb 0
    backward 0 mb 0
  }
}
