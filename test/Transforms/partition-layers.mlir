// RUN: penstock-opt %s --pipe-partition-layers | FileCheck %s
// RUN: penstock-opt %s --pipe-partition-layers="ranks=2 microbatches=6" | FileCheck %s --check-prefix=OVERRIDE

// The short form: ranks times chunks stages that all cost the same.
// CHECK-LABEL: pipe.schedule @short
// CHECK-SAME:    ranks(4) microbatches(8)
// CHECK-NEXT:    stage 0 on 0
// CHECK-NEXT:    stage 1 on 1
// CHECK-NEXT:    stage 2 on 2
// CHECK-NEXT:    stage 3 on 3
// CHECK-NEXT:  }
// OVERRIDE-LABEL: pipe.schedule @short
// OVERRIDE-SAME:    ranks(2) microbatches(6)
// OVERRIDE-NEXT:    stage 0 on 0
// OVERRIDE-NEXT:    stage 1 on 1
// OVERRIDE-NEXT:  }
pipe.schedule @short ranks(4) microbatches(8) using(#pipe.one_f_one_b)

// Omitted costs: backward is input + weight, recompute is forward.
// CHECK-LABEL: pipe.schedule @costs
// CHECK-SAME:    link(#pipe.link<latency = 0.601
// CHECK-NEXT:    stage 0 on 0 costs(#pipe.cost<forward = 18.522, backward = 27.423, input = 18.086, weight = 9.337, recompute = 18.522>)
pipe.schedule @costs ranks(8) microbatches(24) using(#pipe.gpipe)
    costs(#pipe.cost<forward = 18.522, input = 18.086, weight = 9.337, transfer = 0.601>)

pipe.model @gpt {
  layer "embedding" costs(#pipe.cost<forward = 0.5, input = 0.0, weight = 0.5>) bytes(#pipe.bytes<output = 10, parameters = 1000>)
  layer "block" times 6 costs(#pipe.cost<forward = 1.0, input = 1.0, weight = 1.0>) bytes(#pipe.bytes<output = 20, stash = 7, parameters = 100, gradients = 100, optimizer = 200>)
  layer "head" costs(#pipe.cost<forward = 2.0, input = 2.0, weight = 2.0>) bytes(#pipe.bytes<output = 4, stash = 3>)
}
pipe.cluster @node ranks(2) memory(4096) link(#pipe.link<latency = 0.5, bytes_per_time = 100.0>)

// 1 + 6 * 3 + 6 = 25 over two stages: 13 (embedding and four blocks) and 12. A
// stage sums its layers and puts out what its last layer does.
// CHECK-LABEL: pipe.schedule @full
// CHECK-SAME:    ranks(2) microbatches(4) memory(4096) link(#pipe.link<latency = 0.5, bytes_per_time = 100.0>)
// CHECK-NOT:     model
// CHECK-NEXT:    stage 0 on 0 layers(0, 5) costs(#pipe.cost<forward = 4.5, backward = 8.5, input = 4.0, weight = 4.5, recompute = 4.5>) bytes(#pipe.bytes<output = 20, stash = 28, parameters = 1400, gradients = 400, optimizer = 800>)
// CHECK-NEXT:    stage 1 on 1 layers(5, 3) costs(#pipe.cost<forward = 4.0, backward = 8.0, input = 4.0, weight = 4.0, recompute = 4.0>) bytes(#pipe.bytes<output = 4, stash = 17, parameters = 200, gradients = 200, optimizer = 400>)
// CHECK-NEXT:  }
pipe.schedule @full model(@gpt) cluster(@node) microbatches(4) using(#pipe.one_f_one_b)

// Rank 0 keeps four stashes, rank 1 three and so on: where they fill the memory,
// the first stages get fewer of the sixteen layers.
// CHECK-LABEL: pipe.schedule @tight
// CHECK:         stage 0 on 0 layers(0, 3)
// CHECK-NEXT:    stage 1 on 1 layers(3, 4)
// CHECK-NEXT:    stage 2 on 2 layers(7, 4)
// CHECK-NEXT:    stage 3 on 3 layers(11, 5)
pipe.model @stashes {
  layer "block" times 16 bytes(#pipe.bytes<stash = 10, parameters = 4>)
}
pipe.schedule @tight model(@stashes) ranks(4) microbatches(8) memory(140) using(#pipe.one_f_one_b)

// Where nothing fits, they stay balanced by time: pipe-verify says what is missing.
// CHECK-LABEL: pipe.schedule @too_tight
// CHECK:         stage 0 on 0 layers(0, 4)
// CHECK-NEXT:    stage 1 on 1 layers(4, 4)
pipe.schedule @too_tight model(@stashes) ranks(4) microbatches(8) memory(100) using(#pipe.one_f_one_b)

// Stages that are there already stay as they are.
// CHECK-LABEL: pipe.schedule @stages
// CHECK-NEXT:    stage 0 on 0 costs(#pipe.cost<forward = 3.0
// CHECK-NEXT:    stage 1 on 1
// CHECK-NEXT:  }
pipe.schedule @stages ranks(2) microbatches(4) using(#pipe.gpipe) {
  stage 0 on 0 costs(#pipe.cost<forward = 3.0>)
  stage 1 on 1
}
