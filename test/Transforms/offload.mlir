// Stashes in host memory, from the order to the program.
//
// RUN: penstock-opt %examples/offload.mlir --pipe-insert-transfers | FileCheck %s --check-prefix=INSERT
// RUN: penstock-opt %examples/offload.mlir --pipe-compile -o %t.mlir
// RUN: FileCheck %s --check-prefix=PLAN < %t.mlir
// RUN: penstock-opt %t.mlir --verify-roundtrip --pipe-verify -o /dev/null
// RUN: penstock-translate --pipe-to-program %t.mlir -o %t.psp
// RUN: penstock-check %t.psp | FileCheck %s --check-prefix=VERIFY
// RUN: penstock-translate --program-to-pipe %t.psp | FileCheck %s --check-prefix=PLAN
// RUN: penstock-translate --pipe-to-report %t.mlir | FileCheck %s --check-prefix=REPORT
// RUN: penstock-translate --pipe-to-svg %t.mlir | FileCheck %s --check-prefix=SVG
// RUN: penstock-translate --pipe-to-html %t.mlir -o /dev/null
// RUN: penstock-opt %examples/offload.mlir --pipe-compile=transfer-queue=0 | FileCheck %s --check-prefix=ONE
// RUN: sed 's/ after(reload 0 mb 0, / after(/' %t.mlir > %t.backward.mlir
// RUN: not penstock-opt %t.backward.mlir --pipe-verify 2>&1 | FileCheck %s --check-prefix=BACKWARD
// RUN: sed 's/ after(offload 0 mb 0, / after(/' %t.mlir > %t.reuse.mlir
// RUN: not penstock-opt %t.reuse.mlir --pipe-verify 2>&1 | FileCheck %s --check-prefix=REUSE
// RUN: sed 's/ host(0) queue(2) after(backward/ queue(2) after(backward/' %t.mlir > %t.host.mlir
// RUN: not penstock-opt %t.host.mlir --pipe-verify 2>&1 | FileCheck %s --check-prefix=HOST

// The copies stand directly behind the action before them.
// INSERT:      rank 0 {
// INSERT-NEXT:   forward 0 mb 0
// INSERT-NEXT:   offload 0 mb 0
// INSERT-NEXT:   send activation 0 mb 0 to 1
// INSERT:        backward 0 mb 2
// INSERT-NEXT:   reload 0 mb 0
// INSERT-NEXT:   recv gradient 1 mb 1 from 1

// PLAN:      host_link(#pipe.link<latency = 0.0, bytes_per_time = 200.0>)
// PLAN:      rank 0 slots(1 x 16, 2 x 100) host_slots(1 x 100) {
// PLAN-NEXT:   forward 0 mb 0 out(0) stash(1)
// PLAN-NEXT:   offload 0 mb 0 slot(1) host(0) queue(2) after(forward 0 mb 0)
// PLAN:        forward 0 mb 2 out(0) stash(1) after(offload 0 mb 0, send activation 0 mb 1 to 1)
// PLAN:        backward 0 mb 2
// PLAN-NEXT:   reload 0 mb 0 slot(1) host(0) queue(2) after(backward 0 mb 2)
// PLAN:        backward 0 mb 0 grad(0) stash(1) after(reload 0 mb 0, recv gradient 1 mb 0 from 1)

// VERIFY: accepted: @offload, 2 ranks

// REPORT:      "program": {
// REPORT:        "makespan": 12,
// REPORT:        "host_bytes": 256,
// REPORT-NEXT:   "peak_activations": 2,

// SVG: fill="#444"
// SVG: to host memory

// ONE-NOT: queue
// ONE-NOT: after

// BACKWARD: reads stash 0 mb 0 on queue 0, not ordered after `reload 0 mb 0` on queue 2, which writes it; let it wait for that
// REUSE: writes slot 1 on queue 0, not ordered after `offload 0 mb 0` on queue 2, which copies it; let it wait for that
// HOST: has no host slot for stash 0 mb 0, which it reloads; plan the buffers
