// Specs: model, cluster, and the clauses of a schedule in any order.
//
// RUN: penstock-opt %s --verify-roundtrip | FileCheck %s --match-full-lines --strict-whitespace
// RUN: penstock-opt %s | penstock-opt | FileCheck %s --match-full-lines --strict-whitespace
// RUN: penstock-opt %s --mlir-print-op-generic | penstock-opt | FileCheck %s --match-full-lines --strict-whitespace
// RUN: penstock-opt %s --emit-bytecode | penstock-opt | FileCheck %s --match-full-lines --strict-whitespace

// CHECK:  pipe.schedule @short ranks(8) microbatches(24) using(#pipe.one_f_one_b) costs(#pipe.cost<forward = 18.522, input = 18.086, weight = 9.337, transfer = 0.601>)
pipe.schedule @short ranks(8) microbatches(24) using(#pipe.one_f_one_b)
    costs(#pipe.cost<forward = 18.522, input = 18.086, weight = 9.337, transfer = 0.601>)

// CHECK-NEXT:  pipe.model @gpt {
// CHECK-NEXT:    layer "embedding" costs(#pipe.cost<forward = 0.5, weight = 0.5>) bytes(#pipe.bytes<output = 16777216, parameters = 411041792>)
// CHECK-NEXT:    layer "block" times 30 costs(#pipe.cost<forward = 1.0, input = 1.0, weight = 1.0>) bytes(#pipe.bytes<output = 16777216, stash = 100663296>)
// CHECK-NEXT:    layer "quo\22te" {note = "x"}
// CHECK-NEXT:  }
pipe.model @gpt {
  layer "embedding"      costs(#pipe.cost<forward = 0.5, weight = 0.5>) bytes(#pipe.bytes<output = 16777216, parameters = 411041792>)
  layer "block" times 30 costs(#pipe.cost<weight = 1, forward = 1.0, input = 1.0>) bytes(#pipe.bytes<output = 16777216, stash = 100663296>)
  layer "quo\"te" times 1 {note = "x"}
}

// CHECK-NEXT:  pipe.cluster @node ranks(8) memory(85899345920) link(#pipe.link<latency = 0.6, bytes_per_time = 5.0e+07>) host_link(#pipe.link<bytes_per_time = 2.0e+07>)
pipe.cluster @node host_link(#pipe.link<bytes_per_time = 2.0e7>) link(#pipe.link<latency = 0.6, bytes_per_time = 5.0e7>) memory(85899345920) ranks(8)

// CHECK-NEXT:  pipe.cluster @plain ranks(1)
pipe.cluster @plain ranks(1)

// CHECK-NEXT:  pipe.schedule @full model(@gpt) cluster(@node) microbatches(24) using(#pipe.one_f_one_b<split_backward = true>)
pipe.schedule @full model(@gpt) cluster(@node) microbatches(24) using(#pipe.one_f_one_b<split_backward = true>)

// Which fields were given is kept; a family's parameters at their default are not.
// CHECK-NEXT:  pipe.schedule @fields ranks(1) microbatches(1) memory(0) link(#pipe.link<bytes_per_time = 0.0>) host_link(#pipe.link<latency = 3.0>) using(#pipe.gpipe) costs(#pipe.cost<forward = 1.0, backward = 1.0e+20, recompute = 0.0>) bytes(#pipe.bytes<output = 0, gradients = 1099511627776, optimizer = 3>)
pipe.schedule @fields host_link(#pipe.link<latency = 3>) bytes(#pipe.bytes<optimizer = 3, gradients = 1099511627776, output = 0>)
    costs(#pipe.cost<recompute = -0.0, backward = 100000000000000000000.0, forward = 1>)
    using(#pipe.gpipe<split_backward = false>) link(#pipe.link<bytes_per_time = 0.0>) memory(0) microbatches(1) ranks(1)

// CHECK-NEXT:  pipe.schedule @chains ranks(2) microbatches(4) chains([0, 0, 1, 1]) using(#pipe.naive) attributes {note = "x"} {
// CHECK-NEXT:    stage 0 on (0, 1)
// CHECK-NEXT:    stage 1 on (1, 0)
// CHECK-NEXT:  }
pipe.schedule @chains ranks(2) microbatches(4) chains([0, 0, 1, 1]) using(#pipe.naive) attributes {note = "x"} {
  stage 0 on (0, 1)
  stage 1 on (1, 0)
}

// CHECK-NEXT:  pipe.schedule @more ranks(4) microbatches(2) weights([0.375, 0.625]) tied([0, 3] bytes 4096, [1, 2]) overlap(0.25) memory(8) using(#pipe.gpipe)
pipe.schedule @more ranks(4) using(#pipe.gpipe) memory(8) overlap(0.25) tied([0, 3] bytes 4096, [1, 2])
    weights([0.375, 0.625]) microbatches(2)

// CHECK-NEXT:  pipe.schedule @validated ranks(4) microbatches(2) post_validation memory(8) using(#pipe.zb_h1)
pipe.schedule @validated ranks(4) post_validation using(#pipe.zb_h1) memory(8) microbatches(2)

// Nothing said yet, for options of passes to say.
// CHECK-NEXT:  pipe.schedule @nothing
pipe.schedule @nothing {}
