// Every op of orders and programs reads back as it was written: as text, in
// generic form and as bytecode.
//
// RUN: penstock-opt %s --verify-roundtrip | FileCheck %s --match-full-lines --strict-whitespace
// RUN: penstock-opt %s | penstock-opt | FileCheck %s --match-full-lines --strict-whitespace
// RUN: penstock-opt %s --mlir-print-op-generic | penstock-opt | FileCheck %s --match-full-lines --strict-whitespace
// RUN: penstock-opt %s --emit-bytecode | penstock-opt | FileCheck %s --match-full-lines --strict-whitespace

// CHECK:module {
// CHECK-NEXT:  pipe.schedule @program ranks(4) microbatches(8) {
// CHECK-NEXT:    stage 0 on 0 layers(0, 8) costs(#pipe.cost<forward = 1.5>) bytes(#pipe.bytes<output = 16384>)
// CHECK-NEXT:    stage 1 on 1
// CHECK-NEXT:    stage 2 on 2 {note = "x"}
// CHECK-NEXT:    rank 0 slots(3 x 16384, 2 x 65536) host_slots(1 x 8, 1 x 65536) {
// CHECK-NEXT:      forward 0 mb 0 out(0) stash(3)
// CHECK-NEXT:      send activation 0 mb 0 to 1 slot(0) bytes(16384) queue(1) after(forward 0 mb 0)
// CHECK-NEXT:      recv gradient 1 mb 0 from 1 slot(1) bytes(16384) comm(65535) queue(255) after(send activation 0 mb 0 to 1, forward 0 mb 0)
// CHECK-NEXT:      backward 0 mb 0 in(0) grad(1) out(2) stash(3) queue(2) after(recv gradient 1 mb 0 from 1)
// CHECK-NEXT:      group queue(1) after(forward 0 mb 0, backward 0 mb 0) {
// CHECK-NEXT:        send activation 0 mb 1 to 1 slot(1) bytes(16384)
// CHECK-NEXT:        recv gradient 1 mb 0 from 1 slot(2) bytes(16384) comm(3)
// CHECK-NEXT:      }
// CHECK-NEXT:      group {
// CHECK-NEXT:        send gradient 0 mb 1 to 1
// CHECK-NEXT:      }
// CHECK-NEXT:      overlap queue(1) after(recv gradient 1 mb 0 from 1) {
// CHECK-NEXT:        forward 0 mb 2 out(0) stash(4)
// CHECK-NEXT:        backward 0 mb 0 grad(2) stash(3)
// CHECK-NEXT:      }
// CHECK-NEXT:      backward_input 0 mb 0
// CHECK-NEXT:      backward_weight 0 mb 0
// CHECK-NEXT:      recompute 0 mb 3
// CHECK-NEXT:      all_reduce 3 ranks(0, 3) bytes(4096) comm(1) queue(2) after(backward_weight 0 mb 0)
// CHECK-NEXT:      all_reduce 3 mb 1
// CHECK-NEXT:      reduce_tied 0 ranks(0, 3) bytes(4096) comm(1) queue(2) after(all_reduce 3 mb 1)
// CHECK-NEXT:      barrier ranks(0, 1)
// CHECK-NEXT:      barrier
// CHECK-NEXT:      reduce_grad 1
// CHECK-NEXT:      reduce_grad 1 mb 2
// CHECK-NEXT:      unshard 1
// CHECK-NEXT:      reshard 1
// CHECK-NEXT:      offload 0 mb 1 slot(3) host(1) queue(3)
// CHECK-NEXT:      reload 0 mb 1 slot(4) host(1) after(offload 0 mb 1, barrier, all_reduce 3 mb 1)
// CHECK-NEXT:      send stash 0 mb 2 to 1 bytes(8)
// CHECK-NEXT:      recv stash 0 mb 2 from 1 bytes(8) after(send stash 0 mb 2 to 1)
// CHECK-NEXT:      offload 0 mb 3 to 1
// CHECK-NEXT:      reload 0 mb 3 from 1 after(offload 0 mb 3 to 1)
// CHECK-NEXT:      recv state from 1 bytes(16) comm(2)
// CHECK-NEXT:      validate queue(1) after(recv state from 1)
// CHECK-NEXT:      send state to 1 after(validate)
// CHECK-NEXT:      reduce_state after(recv state from 1, validate)
// CHECK-NEXT:      step after(reduce_grad 1, step 0 mb 1)
// CHECK-NEXT:      step 0
// CHECK-NEXT:      step 0 mb 3 {note = "x"}
// CHECK-NEXT:    }
// CHECK-NEXT:    rank 1 attributes {note = "x"} {
// CHECK-NEXT:    }
// CHECK-NEXT:  }
// CHECK-NEXT:}
pipe.schedule @program microbatches(8) ranks(4) {
  stage 0 on 0 bytes(#pipe.bytes<output = 16384>) layers(0, 8) costs(#pipe.cost<forward = 1.5>)
  stage 1 on (1)
  stage 2 on 2 {note = "x"}
  rank 0 host_slots(1 x 8, 1 x 65536) slots(3 x 16384, 2 x 65536) {
    forward 0 mb 0 stash(3) out(0)
    send activation 0 mb 0 to 1 after(forward 0 mb 0) queue(1) bytes(16384) slot(0)
    recv gradient 1 mb 0 from 1 slot(1) bytes(16384) comm(65535) queue(255) after(send activation 0 mb 0 to 1, forward 0 mb 0)
    backward 0 mb 0 in(0) grad(1) out(2) stash(3) queue(2) after(recv gradient 1 mb 0 from 1)
    group queue(1) after(forward 0 mb 0, backward 0 mb 0) {
      send activation 0 mb 1 to 1 slot(1) bytes(16384)
      recv gradient 1 mb 0 from 1 slot(2) bytes(16384) comm(3)
    }
    group {
      pipe.send gradient 0 mb 1 to 1 bytes(0) comm(0) queue(0)
    }
    overlap after(recv gradient 1 mb 0 from 1) queue(1) {
      forward 0 mb 2 out(0) stash(4)
      backward 0 mb 0 grad(2) stash(3)
    }
    backward_input 0 mb 0
    backward_weight 0 mb 0
    recompute 0 mb 3
    all_reduce 3 ranks(0, 3) bytes(4096) comm(1) queue(2) after(backward_weight 0 mb 0)
    all_reduce 3 mb 1
    reduce_tied 0 ranks(0, 3) bytes(4096) comm(1) queue(2) after(all_reduce 3 mb 1)
    barrier ranks(0, 1)
    barrier
    reduce_grad 1
    reduce_grad 1 mb 2
    unshard 1
    reshard 1
    offload 0 mb 1 queue(3) host(1) slot(3)
    reload 0 mb 1 slot(4) host(1) after(offload 0 mb 1, barrier, all_reduce 3 mb 1)
    send stash 0 mb 2 to 1 bytes(8)
    recv stash 0 mb 2 from 1 bytes(8) after(send stash 0 mb 2 to 1)
    offload 0 mb 3 to 1
    reload 0 mb 3 from 1 after(offload 0 mb 3 to 1)
    recv state from 1 comm(2) bytes(16)
    validate after(recv state from 1) queue(1)
    send state to 1 after(validate)
    reduce_state after(recv state from 1, validate)
    step after(reduce_grad 1, step 0 mb 1)
    step 0
    step 0 mb 3 {note = "x"}
  }
  rank 1 attributes {note = "x"} {
  }
}
