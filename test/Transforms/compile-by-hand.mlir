// schedule= replaces an order written by hand and places its stages anew.
// RUN: penstock-opt %s --pipe-compile | FileCheck %s
// RUN: penstock-opt %s --pipe-compile="schedule=gpipe" | FileCheck %s --check-prefix=GPIPE
// RUN: not penstock-opt %s --pipe-compile="microbatches=3" 2>&1 | FileCheck %s --check-prefix=MICROBATCHES
// RUN: not penstock-opt %s --pipe-compile="ranks=3" 2>&1 | FileCheck %s --check-prefix=RANKS

// CHECK-LABEL: pipe.schedule @by_hand
// CHECK-NEXT:    stage 0 on 1
// CHECK-NEXT:    stage 1 on 0
// CHECK-NEXT:    rank 0
// CHECK:           forward 1 mb 1
// CHECK:           forward 1 mb 0
// GPIPE-LABEL: pipe.schedule @by_hand
// GPIPE-NEXT:    stage 0 on 0
// GPIPE-NEXT:    stage 1 on 1
// GPIPE-NEXT:    rank 0
// GPIPE-NEXT:      forward 0 mb 0
// GPIPE:           forward 0 mb 1
// MICROBATCHES: option microbatches=3 does not fit the rank ops, which are written for 2; remove them or give a schedule= too
// RANKS:        schedule @by_hand: option ranks=3 does not fit the stage ops, which are written for other ranks; remove them
// RANKS:        schedule @without_stages: option ranks=3 does not fit the rank ops, which are written for other ranks; remove them
pipe.schedule @by_hand ranks(2) microbatches(2) {
  stage 0 on 1
  stage 1 on 0
  rank 0 {
    forward 1 mb 1
    forward 1 mb 0
    backward 1 mb 1
    backward 1 mb 0
  }
  rank 1 {
    forward 0 mb 1
    forward 0 mb 0
    backward 0 mb 1
    backward 0 mb 0
  }
}

// Without stage ops, a stage is where its forward is.
// CHECK-LABEL: pipe.schedule @without_stages
// CHECK-NEXT:    stage 0 on 1
// CHECK-NEXT:    stage 1 on 0
pipe.schedule @without_stages ranks(2) microbatches(1) {
  rank 0 {
    forward 1 mb 0
    backward 1 mb 0
  }
  rank 1 {
    forward 0 mb 0
    backward 0 mb 0
  }
}
