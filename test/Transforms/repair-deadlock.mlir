// RUN: penstock-opt %s --pipe-repair-deadlock --pipe-verify 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t

// Both ranks send first: on both sides the two transfers become a group.
// REMARK: remark: repaired: group `send gradient 1 mb 0 to 0` and `recv activation 0 mb 1 from 0` on rank 1, and `send activation 0 mb 1 to 1` and `recv gradient 1 mb 0 from 1` on rank 0
// CHECK-LABEL: pipe.schedule @crossed_sends
// CHECK:       rank 0 {
// CHECK:         forward 0 mb 1
// CHECK-NEXT:    group {
// CHECK-NEXT:      send activation 0 mb 1 to 1
// CHECK-NEXT:      recv gradient 1 mb 0 from 1
// CHECK-NEXT:    }
// CHECK:       rank 1 {
// CHECK:         group {
// CHECK-NEXT:      send gradient 1 mb 0 to 0
// CHECK-NEXT:      recv activation 0 mb 1 from 0
// CHECK-NEXT:    }
pipe.schedule @crossed_sends ranks(2) microbatches(2) {
  rank 0 {
    forward 0 mb 0
    send activation 0 mb 0 to 1
    forward 0 mb 1
    send activation 0 mb 1 to 1
    recv gradient 1 mb 0 from 1
    backward 0 mb 0
    recv gradient 1 mb 1 from 1
    backward 0 mb 1
  }
  rank 1 {
    recv activation 0 mb 0 from 0
    forward 1 mb 0
    backward 1 mb 0
    send gradient 1 mb 0 to 0
    recv activation 0 mb 1 from 0
    forward 1 mb 1
    backward 1 mb 1
    send gradient 1 mb 1 to 0
  }
}

// A receive in front of what must come first moves back.
// REMARK: remark: repaired: issue `recv gradient 1 mb 0 from 1` after `send activation 0 mb 0 to 1` on rank 0
// CHECK-LABEL: pipe.schedule @early_receive
// CHECK:       rank 0 {
// CHECK-NEXT:    forward 0 mb 0
// CHECK-NEXT:    send activation 0 mb 0 to 1
// CHECK-NEXT:    recv gradient 1 mb 0 from 1
// CHECK-NEXT:    backward 0 mb 0
pipe.schedule @early_receive ranks(2) microbatches(1) {
  rank 0 {
    recv gradient 1 mb 0 from 1
    forward 0 mb 0
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

// What ends is left alone, and so is an order.
// REMARK-NOT:  remark
// CHECK-LABEL: pipe.schedule @right
// CHECK:       rank 0 {
// CHECK-NEXT:    forward 0 mb 0
// CHECK-NEXT:    send activation 0 mb 0 to 1
// CHECK-NEXT:    recv gradient 1 mb 0 from 1
pipe.schedule @right ranks(2) microbatches(1) {
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
// CHECK-LABEL: pipe.schedule @order
// CHECK:       rank 0 {
// CHECK-NEXT:    forward 0 mb 0
// CHECK-NEXT:    backward 0 mb 0
// CHECK-NEXT:  }
pipe.schedule @order ranks(1) microbatches(1) {
  rank 0 {
    forward 0 mb 0
    backward 0 mb 0
  }
}
