// RUN: penstock-opt %s --pipe-repair-deadlock --split-input-file --verify-diagnostics

// Nothing is known that helps: no repair moves an action.
pipe.schedule @actions ranks(2) microbatches(2) {
  rank 0 {
    // expected-error @below {{No repair is known that leaves the data in place. As it stands, no buffering of messages would help. [deadlock]}}
    // expected-note @below {{`recv gradient 1 mb 0 from 1` waits for rank 1's `send gradient 1 mb 0 to 0`}}
    // expected-note @below {{rank 0 stops here: 0 of its 4 instructions have ended}}
    recv gradient 1 mb 0 from 1
    backward 0 mb 0
    forward 0 mb 1
    // expected-note @below {{stands behind}}
    send activation 0 mb 1 to 1
  }
  rank 1 {
    // expected-note @below {{waits for rank 0's `send activation 0 mb 1 to 1`}}
    // expected-note @below {{rank 1 stops here: 0 of its 4 instructions have ended}}
    recv activation 0 mb 1 from 0
    forward 1 mb 1
    backward 1 mb 0
    // expected-note @below {{stands behind}}
    send gradient 1 mb 0 to 0
  }
}

// -----

// One deadlock is mended, another one is not: a send that nobody receives.
// expected-error @below {{after 1 repair: under closure semantics rank 0 waits in `send activation 0 mb 1 to 1` for ever}}
pipe.schedule @half ranks(2) microbatches(2) {
  stage 0 on 0
  stage 1 on 1
  rank 0 {
    send activation 0 mb 0 to 1
    recv gradient 1 mb 0 from 1
    send activation 0 mb 1 to 1
  }
  rank 1 {
    send gradient 1 mb 0 to 0
    recv activation 0 mb 0 from 0
  }
}

// -----

// expected-error @below {{schedule @spec has no instructions yet: run pipe-generate-order before}}
pipe.schedule @spec ranks(2) microbatches(1) using(#pipe.gpipe)
