// RUN: penstock-opt %s --pipe-plan-buffers | FileCheck %s
// RUN: penstock-opt %s --pipe-plan-buffers=transfer-queue=0 | FileCheck %s --check-prefix=ONE
// RUN: penstock-opt %s --pipe-plan-buffers --pipe-verify -o /dev/null
// RUN: penstock-opt %s --pipe-plan-buffers=transfer-queue=0 --pipe-verify -o /dev/null
// RUN: penstock-opt %s --pipe-plan-buffers --pipe-plan-buffers | FileCheck %s
// RUN: not penstock-opt %s --pipe-plan-buffers=transfer-queue=256 2>&1 | FileCheck %s --check-prefix=QUEUE

// Each tensor has a slot, and an instruction waits for the other queue only.
// CHECK-LABEL: pipe.schedule @program
// CHECK:       rank 0 slots(1 x 16, 1 x 64) {
// CHECK-NEXT:    forward 0 mb 0 out(1) stash(0)
// CHECK-NEXT:    send activation 0 mb 0 to 1 slot(1) bytes(64) queue(1) after(forward 0 mb 0)
// CHECK-NEXT:    recv gradient 1 mb 0 from 1 slot(1) bytes(64) queue(1)
// CHECK-NEXT:    backward 0 mb 0 grad(1) stash(0) after(recv gradient 1 mb 0 from 1)
// CHECK-NEXT:  }
// CHECK-NEXT:  rank 1 slots(1 x 16, 2 x 64) {
// CHECK-NEXT:    recv activation 0 mb 0 from 0 slot(1) bytes(64) queue(1)
// CHECK-NEXT:    forward 1 mb 0 in(1) stash(0) after(recv activation 0 mb 0 from 0)
// CHECK-NEXT:    backward 1 mb 0 in(1) out(2) stash(0)
// CHECK-NEXT:    send gradient 1 mb 0 to 0 slot(2) bytes(64) queue(1) after(backward 1 mb 0)
// CHECK-NEXT:  }

// On one queue, nothing waits.
// ONE-LABEL:   pipe.schedule @program
// ONE-NOT:     queue
// ONE-NOT:     after

// QUEUE: option transfer-queue=256 must be between 0 and 255
pipe.schedule @program ranks(2) microbatches(1) {
  stage 0 on 0 bytes(#pipe.bytes<output = 64, stash = 16>)
  stage 1 on 1 bytes(#pipe.bytes<output = 64, stash = 16>)
  rank 0 {
    forward 0 mb 0
    send activation 0 mb 0 to 1 bytes(64)
    recv gradient 1 mb 0 from 1 bytes(64)
    backward 0 mb 0
  }
  rank 1 {
    recv activation 0 mb 0 from 0 bytes(64)
    forward 1 mb 0
    backward 1 mb 0
    send gradient 1 mb 0 to 0 bytes(64)
  }
}
