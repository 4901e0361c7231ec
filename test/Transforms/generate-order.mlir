// RUN: penstock-opt %s --pipe-generate-order | FileCheck %s
// RUN: penstock-opt %s --pipe-generate-order="split-backward=true" | FileCheck %s --check-prefix=SPLIT

// CHECK-LABEL: pipe.schedule @one_f_one_b
// CHECK:       rank 0 {
// CHECK-NEXT:    forward 0 mb 0
// CHECK-NEXT:    forward 0 mb 1
// CHECK-NEXT:    backward 0 mb 0
// CHECK-NEXT:    backward 0 mb 1
// CHECK-NEXT:    step
// CHECK-NEXT:  }
// CHECK-NEXT:  rank 1 {
// CHECK-NEXT:    forward 1 mb 0
// CHECK-NEXT:    backward 1 mb 0
// CHECK-NEXT:    forward 1 mb 1
// CHECK-NEXT:    backward 1 mb 1
// CHECK-NEXT:    step
// CHECK-NEXT:  }
// CHECK-NEXT: }
// SPLIT-LABEL: pipe.schedule @one_f_one_b
// SPLIT:       rank 1 {
// SPLIT-NEXT:    forward 1 mb 0
// SPLIT-NEXT:    backward_input 1 mb 0
// SPLIT-NEXT:    backward_weight 1 mb 0
// SPLIT-NEXT:    forward 1 mb 1
// SPLIT-NEXT:    backward_input 1 mb 1
// SPLIT-NEXT:    backward_weight 1 mb 1
// SPLIT-NEXT:    step
pipe.schedule @one_f_one_b ranks(2) microbatches(2) using(#pipe.one_f_one_b)

// CHECK-LABEL: pipe.schedule @gpipe
// CHECK:       rank 1 {
// CHECK-NEXT:    forward 1 mb 0
// CHECK-NEXT:    forward 1 mb 1
// CHECK-NEXT:    backward 1 mb 0
// CHECK-NEXT:    backward 1 mb 1
// CHECK-NEXT:    step
pipe.schedule @gpipe ranks(2) microbatches(2) using(#pipe.gpipe)

// CHECK-LABEL: pipe.schedule @naive
// CHECK:       rank 0 {
// CHECK-NEXT:    forward 0 mb 0
// CHECK-NEXT:    backward_input 0 mb 0
// CHECK-NEXT:    backward_weight 0 mb 0
// CHECK-NEXT:    forward 0 mb 1
pipe.schedule @naive ranks(2) microbatches(2) using(#pipe.naive<split_backward = true>)

// An order written by hand stays, and gets its step.
// CHECK-LABEL: pipe.schedule @by_hand
// CHECK:       rank 0 {
// CHECK-NEXT:    forward 0 mb 0
// CHECK-NEXT:    forward 1 mb 0
// CHECK-NEXT:    backward_input 1 mb 0
// CHECK-NEXT:    backward 0 mb 0
// CHECK-NEXT:    backward_weight 1 mb 0
// CHECK-NEXT:    step
pipe.schedule @by_hand ranks(1) microbatches(1) {
  rank 0 {
    forward 0 mb 0
    forward 1 mb 0
    backward_input 1 mb 0
    backward 0 mb 0
    backward_weight 1 mb 0
  }
}

// So does its step.
// CHECK-LABEL: pipe.schedule @with_step
// CHECK:         backward 0 mb 0
// CHECK-NEXT:    step 0
// CHECK-NEXT:  }
pipe.schedule @with_step ranks(1) microbatches(1) {
  rank 0 {
    forward 0 mb 0
    backward 0 mb 0
    step 0
  }
}

// A program is none of its business.
// CHECK-LABEL: pipe.schedule @program
// CHECK:         recv gradient 1 mb 0 from 1
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
