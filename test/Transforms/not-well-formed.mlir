// What no pass can work on is refused by each of them, at its op.
// RUN: penstock-opt %s --pipe-partition-layers --split-input-file --verify-diagnostics
// RUN: penstock-opt %s --pipe-generate-order --split-input-file --verify-diagnostics
// RUN: penstock-opt %s --pipe-insert-transfers --split-input-file --verify-diagnostics
// RUN: penstock-opt %s --pipe-plan-buffers --split-input-file --verify-diagnostics
// RUN: penstock-opt %s --pipe-verify --split-input-file --verify-diagnostics
// RUN: penstock-opt %s --pipe-simulate --split-input-file --verify-diagnostics
// RUN: penstock-opt %s --pipe-compile=verify=false --split-input-file --verify-diagnostics
// RUN: %plain-opt %s --pipe-compile=verify=false --split-input-file --verify-diagnostics

// RUN: not penstock-translate %s --split-input-file --pipe-to-program 2>&1 | FileCheck %s
// RUN: not penstock-translate %s --split-input-file --pipe-to-report 2>&1 | FileCheck %s
// RUN: not penstock-translate %s --split-input-file --pipe-to-text 2>&1 | FileCheck %s
// CHECK: offset :[[# @LINE+8]]:5: error: schedule @no_such_stage: rank 0, instruction 2 (forward 3 mb 0): the stage is 3; it must be 0 to 0

pipe.schedule @no_such_stage ranks(1) microbatches(1) {
  stage 0 on 0
  rank 0 {
    forward 0 mb 0
    backward 0 mb 0
    // expected-error @below {{schedule @no_such_stage: rank 0, instruction 2 (forward 3 mb 0): the stage is 3; it must be 0 to 0}}
    forward 3 mb 0
    backward 3 mb 0
  }
}

// -----

pipe.schedule @no_such_stage_of_a_collective ranks(1) microbatches(1) {
  stage 0 on 0
  rank 0 {
    forward 0 mb 0
    // expected-error @below {{rank 0, instruction 1 (all_reduce 1000000): the stage is 1000000; it must be 0 to 0}}
    all_reduce 1000000 queue(3)
    backward 0 mb 0
  }
}

// -----

pipe.schedule @no_such_slot ranks(1) microbatches(1) {
  rank 0 slots(1 x 0) {
    // expected-error @below {{rank 0, instruction 0 (forward 0 mb 0): slot 1 does not exist; the rank has 1}}
    forward 0 mb 0 stash(1)
    backward 0 mb 0 stash(0)
  }
}
