// RUN: penstock-opt %s --pipe-compile | FileCheck %s
// RUN: penstock-opt %s --pipe-compile="schedule=gpipe microbatches=3 ranks=1" | FileCheck %s --check-prefix=GPIPE
// RUN: penstock-opt %s --pipe-compile="schedule={one_f_one_b<split_backward = true>}" | FileCheck %s --check-prefix=SPLIT
// RUN: penstock-opt %s --pipe-compile="schedule=one_f_one_b<split_backward=true>" | FileCheck %s --check-prefix=SPLIT
// RUN: penstock-opt %s --pipe-compile="split-backward=true" | FileCheck %s --check-prefix=SPLIT
// RUN: penstock-opt %s --pipe-compile="transfer-queue=0" | FileCheck %s --check-prefix=ONE-QUEUE

// What is compiled stays what it is.
// RUN: penstock-opt %s --pipe-compile -o %t.1.mlir
// RUN: penstock-opt %t.1.mlir --pipe-compile -o %t.2.mlir
// RUN: diff %t.1.mlir %t.2.mlir

// A pipeline prints in a form that parses again and means the same.
// RUN: penstock-opt %s --pipe-compile="schedule={one_f_one_b<split_backward = true>} microbatches=3 transfer-queue=2" \
// RUN:   --dump-pass-pipeline -o %t.3.mlir 2>&1 | FileCheck %s --check-prefix=PIPELINE
// PIPELINE:      builtin.module(
// PIPELINE-NEXT:   pipe-partition-layers{microbatches=3 ranks= schedule={one_f_one_b<split_backward = true>}},
// PIPELINE-NEXT:   pipe.schedule(
// PIPELINE-NEXT:     pipe-generate-order{split-backward=false},
// PIPELINE-NEXT:     pipe-verify,
// PIPELINE-NEXT:     pipe-insert-transfers{group=true placement=fastest},
// PIPELINE-NEXT:     pipe-plan-buffers{transfer-queue=2},
// PIPELINE-NEXT:     pipe-verify
// PIPELINE-NEXT:   )
// PIPELINE-NEXT: )
// RUN: penstock-opt %s --pass-pipeline="builtin.module(pipe-partition-layers{microbatches=3 ranks= schedule={one_f_one_b<split_backward = true>}},pipe.schedule(pipe-generate-order{split-backward=false},pipe-verify,pipe-insert-transfers{group=true placement=fastest},pipe-plan-buffers{transfer-queue=2},pipe-verify))" -o %t.4.mlir
// RUN: diff %t.3.mlir %t.4.mlir

// So do options that are not given.
// RUN: penstock-opt %s --pipe-compile --dump-pass-pipeline -o %t.5.mlir 2>&1 | FileCheck %s --check-prefix=NOTHING
// NOTHING: pipe-partition-layers{microbatches= ranks= schedule=},
// RUN: penstock-opt %s --pass-pipeline="builtin.module(pipe-partition-layers{microbatches= ranks= schedule=},pipe.schedule(pipe-generate-order,pipe-insert-transfers,pipe-plan-buffers))" -o %t.6.mlir
// RUN: diff %t.5.mlir %t.6.mlir

// CHECK-LABEL: pipe.schedule @train
// CHECK-SAME:    ranks(2) microbatches(2)
// CHECK-NEXT:    stage 0 on 0
// CHECK-NEXT:    stage 1 on 1
// CHECK-NEXT:    rank 0 slots(
// CHECK-NEXT:      forward 0 mb 0 out(0) stash(
// CHECK-NEXT:      send activation 0 mb 0 to 1 slot(0) queue(1) after(forward 0 mb 0)
// CHECK:           step
// CHECK-NEXT:    }

// GPIPE-LABEL: pipe.schedule @train
// GPIPE-SAME:    ranks(1) microbatches(3)
// GPIPE-SAME:    using(#pipe.gpipe)
// GPIPE:         rank 0 slots(
// GPIPE-NEXT:      forward 0 mb 0
// GPIPE-NEXT:      forward 0 mb 1
// GPIPE-NEXT:      forward 0 mb 2
// GPIPE-NEXT:      backward 0 mb 0

// SPLIT-LABEL: pipe.schedule @train
// SPLIT:         rank 1
// SPLIT:           forward 1 mb 0
// SPLIT:           backward_input 1 mb 0
// SPLIT:           backward_weight 1 mb 0

// ONE-QUEUE-LABEL: pipe.schedule @train
// ONE-QUEUE:     send
// ONE-QUEUE-NOT: queue
// ONE-QUEUE-NOT: after
pipe.schedule @train ranks(2) microbatches(2) using(#pipe.one_f_one_b)
