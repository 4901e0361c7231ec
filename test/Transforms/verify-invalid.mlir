// RUN: penstock-opt %s --pipe-verify --split-input-file --verify-diagnostics

// expected-error @below {{schedule @spec has no instructions yet: run pipe-generate-order before}}
pipe.schedule @spec ranks(2) microbatches(2) using(#pipe.gpipe)

// -----

// An action twice.
pipe.schedule @twice ranks(1) microbatches(1) {
  rank 0 {
    // expected-note @below {{rank 0, instruction 0: the first time is here}}
    forward 0 mb 0
    // expected-error @below {{rank 0, instruction 1 (forward 0 mb 0): is here a second time; remove one [completeness]}}
    forward 0 mb 0
    backward 0 mb 0
  }
}

// -----

// An action missing.
pipe.schedule @missing ranks(1) microbatches(2) {
  rank 0 {
    forward 0 mb 0
    // expected-error @below {{rank 0, instruction 1 (forward 0 mb 1): stage 0 of micro-batch 1 has no backward on rank 0: neither `backward 0 mb 1` nor `backward_input 0 mb 1` and `backward_weight 0 mb 1`; add one of them [completeness]}}
    forward 0 mb 1
    backward 0 mb 0
  }
}

// -----

// B before F.
pipe.schedule @backward_first ranks(1) microbatches(1) {
  rank 0 {
    // expected-error @below {{rank 0, instruction 0 (backward 0 mb 0): stands before `forward 0 mb 0`, which it needs; put it after that [completeness]}}
    backward 0 mb 0
    // expected-note @below {{what it needs is here}}
    forward 0 mb 0
  }
}

// -----

// W before I.
pipe.schedule @weight_first ranks(1) microbatches(1) {
  rank 0 {
    forward 0 mb 0
    // expected-error @below {{rank 0, instruction 1 (backward_weight 0 mb 0): stands before `backward_input 0 mb 0`, which it needs; put it after that [completeness]}}
    backward_weight 0 mb 0
    // expected-note @below {{what it needs is here}}
    backward_input 0 mb 0
  }
}

// -----

// An action on a rank that does not own its stage.
pipe.schedule @wrong_rank ranks(2) microbatches(1) {
  stage 0 on 0
  stage 1 on 1
  rank 0 {
    forward 0 mb 0
    // expected-error @below {{is on the wrong rank: stage 1 of micro-batch 0 is on rank 1; move it there [completeness]}}
    forward 1 mb 0
    backward 0 mb 0
  }
  rank 1 {
    forward 1 mb 0
    backward 1 mb 0
  }
}

// -----

// A receive without a send.
// expected-note @below {{other ranks that end: 1, that stop too: 0}}
pipe.schedule @no_send ranks(2) microbatches(1) {
  rank 0 {
    forward 0 mb 0
    send activation 0 mb 0 to 1
    // expected-error @below {{rank 0, instruction 2 (recv gradient 1 mb 0 from 1): no send matches this}}
    // expected-error @below {{rank 0 waits in `recv gradient 1 mb 0 from 1` for ever}}
    // expected-note @below {{rank 0 stops here: 2 of its 4 instructions have ended}}
    recv gradient 1 mb 0 from 1
    backward 0 mb 0
  }
  rank 1 {
    recv activation 0 mb 0 from 0
    forward 1 mb 0
    backward 1 mb 0
  }
}

// -----

// A wrong peer, at both ends.
pipe.schedule @wrong_peer ranks(3) microbatches(1) {
  stage 0 on 0
  stage 1 on 1
  rank 0 {
    forward 0 mb 0
    // expected-error @below {{rank 0, instruction 1 (send activation 0 mb 0 to 2): goes to rank 2, but stage 1 of micro-batch 0 is on rank 1; make that its peer [structure]}}
    send activation 0 mb 0 to 2
    recv gradient 1 mb 0 from 1
    backward 0 mb 0
  }
  rank 1 {
    // expected-error @below {{reads activation 0 mb 0, which nothing on this rank produces or receives before; insert what does [data-flow]}}
    forward 1 mb 0
    // expected-error @below {{reads activation 0 mb 0, which nothing on this rank produces or receives before; insert what does [data-flow]}}
    backward 1 mb 0
    send gradient 1 mb 0 to 0
  }
  rank 2 {
    // expected-error @below {{goes to rank 2, but stage 1 of micro-batch 0 is on rank 1; move the transfer there [structure]}}
    recv activation 0 mb 0 from 0
  }
}

// -----

// A slot overwritten while it is in use.
pipe.schedule @overwritten ranks(1) microbatches(2) {
  rank 0 slots(1 x 0) {
    // expected-note @below {{stash 0 mb 0 was put there here}}
    forward 0 mb 0 stash(0)
    // expected-note @below {{slot 0 gets stash 0 mb 1 here}}
    forward 0 mb 1 stash(0)
    // expected-error @below {{reads stash 0 mb 0 from slot 0, where `forward 0 mb 1` has put stash 0 mb 1 over it: the slot is reused too early; give that another slot, or put it after this [data-flow]}}
    backward 0 mb 0 stash(0)
    backward 0 mb 1 stash(0)
  }
}

// -----

// Too little memory.
pipe.schedule @memory ranks(1) microbatches(1) memory(100) {
  stage 0 on 0 bytes(#pipe.bytes<parameters = 60, gradients = 60>)
  // expected-error @below {{rank 0: needs 120 bytes}}
  rank 0 slots(1 x 0) {
    forward 0 mb 0 stash(0)
    backward 0 mb 0 stash(0)
  }
}

// -----

// An order that cannot run, although each rank's list is complete.
pipe.schedule @stuck_order ranks(2) microbatches(2) {
  rank 0 {
    forward 0 mb 0
    // expected-note @below {{`backward 0 mb 0`}}
    backward 0 mb 0
    // expected-note @below {{`forward 0 mb 1`}}
    forward 0 mb 1
    backward 0 mb 1
  }
  rank 1 {
    // expected-error @below {{the order cannot run}}
    // expected-note @below {{`forward 1 mb 1`}}
    // expected-note @below {{rank 1, instruction 0: a later micro-batch comes first here}}
    forward 1 mb 1
    // expected-warning @below {{rank 1, instruction 1 (forward 1 mb 0): computes a loss after `forward 1 mb 1`; Penstock knows losses by micro-batch}}
    forward 1 mb 0
    // expected-note @below {{`backward 1 mb 0`}}
    backward 1 mb 0
    backward 1 mb 1
  }
}

// -----

// Schedules in a nested module are seen too.
module {
  module {
    pipe.schedule @nested ranks(1) microbatches(1) {
      rank 0 {
        // expected-error @below {{stands before `forward 0 mb 0`, which it needs}}
        backward 0 mb 0
        // expected-note @below {{what it needs is here}}
        forward 0 mb 0
      }
    }
  }
}

// -----

// Nobody asks for a validation.
pipe.schedule @no_clause ranks(1) microbatches(1) {
  rank 0 {
    // expected-error @below {{is there for post-validation, which the schedule does not have; add post_validation to it, or remove this}}
    validate
    forward 0 mb 0
    backward 0 mb 0
    step
  }
}

// -----

// With the clause both are needed.
pipe.schedule @no_reduction ranks(1) microbatches(1) post_validation {
  // expected-error @below {{`reduce_state` is missing on rank 0: the rank has to add its gradients to the state of the batch; add it}}
  rank 0 {
    validate
    forward 0 mb 0
    backward 0 mb 0
    step
  }
}
