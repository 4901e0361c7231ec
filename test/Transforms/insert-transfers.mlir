// RUN: penstock-opt %s --pipe-generate-order --pipe-insert-transfers | FileCheck %s
// RUN: penstock-opt %s --pipe-generate-order --pipe-insert-transfers=group=false | FileCheck %s --check-prefix=SINGLE
// RUN: penstock-opt %s --pipe-generate-order --pipe-insert-transfers=placement=torch | FileCheck %s --check-prefix=TORCH

// The first two forwards are sent one by one; then both ranks send and receive
// at the same time, in one group each.
// CHECK-LABEL: pipe.schedule @one_f_one_b
// CHECK:       rank 0 {
// CHECK-NEXT:    forward 0 mb 0
// CHECK-NEXT:    send activation 0 mb 0 to 1 bytes(64)
// CHECK-NEXT:    forward 0 mb 1
// CHECK:       group {
// CHECK-NOT:   queue
// SINGLE-NOT:  group
// A receive stands behind all that the rank has when its send is issued.
// TORCH-LABEL: pipe.schedule @one_f_one_b
// TORCH:       rank 0 {
// TORCH-NEXT:    forward 0 mb 0
// TORCH-NEXT:    send activation 0 mb 0 to 1 bytes(64)
// TORCH-NEXT:    forward 0 mb 1
// TORCH-NEXT:    send activation 0 mb 1 to 1 bytes(64)
// TORCH-NEXT:    recv gradient 1 mb 0 from 1 bytes(64)
// TORCH-NEXT:    backward 0 mb 0
// TORCH-NOT:   group
pipe.schedule @one_f_one_b ranks(2) microbatches(3) using(#pipe.one_f_one_b) bytes(#pipe.bytes<output = 64, stash = 8>)

// The state of the batch before comes in the warm-up, that of the batch behind
// the gradients.
// CHECK-LABEL: pipe.schedule @validated
// CHECK-SAME:  post_validation
// CHECK:       rank 1 {
// CHECK-NEXT:    recv activation 0 mb 0 from 0
// CHECK-NEXT:    forward 1 mb 0
// CHECK-NEXT:    validate
// CHECK-NEXT:    send state to 0 bytes(16)
// CHECK-NEXT:    recv activation 0 mb 1 from 0
// CHECK-NEXT:    backward_input 1 mb 0
// CHECK:         backward_weight 1 mb 1
// CHECK-NEXT:    recv state from 0 bytes(16)
// CHECK-NEXT:    reduce_state
// CHECK-NEXT:    step
// CHECK-NEXT:  }
pipe.schedule @validated ranks(2) microbatches(2) using(#pipe.zb_h1) post_validation

// A complete program is left alone.
// CHECK-LABEL: pipe.schedule @program
// CHECK:       rank 0 {
// CHECK-NEXT:    forward 0 mb 0
// CHECK-NEXT:    send activation 0 mb 0 to 1
// CHECK-NEXT:    recv gradient 1 mb 0 from 1
// CHECK-NEXT:    backward 0 mb 0
// CHECK-NEXT:  }
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
