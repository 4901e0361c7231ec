// Every family compiles, and its program is accepted; what its parameters do shows
// in the order of one rank.
//
// RUN: penstock-opt %s --pipe-compile -o /dev/null
// RUN: penstock-opt %s --pipe-generate-order | FileCheck %s

// CHECK-LABEL: pipe.schedule @gpipe
// CHECK:       rank 1 {
// CHECK-NEXT:    forward 1 mb 0
// CHECK-NEXT:    forward 1 mb 1
// CHECK-NEXT:    recompute 1 mb 1
// CHECK-NEXT:    backward 1 mb 1
// CHECK-NEXT:    recompute 1 mb 0
// CHECK-NEXT:    backward 1 mb 0
pipe.schedule @gpipe ranks(2) microbatches(2) using(#pipe.gpipe<descending = true, recompute = true>)

// CHECK-LABEL: pipe.schedule @eager
// CHECK:       rank 0 {
// CHECK-NEXT:    forward 0 mb 0
// CHECK-NEXT:    forward 0 mb 1
// CHECK-NEXT:    forward 0 mb 2
// CHECK-NEXT:    backward 0 mb 0
pipe.schedule @eager ranks(2) microbatches(4) using(#pipe.one_f_one_b<eager = true>)

// CHECK-LABEL: pipe.schedule @bpipe
// CHECK:         forward 0 mb 2
// CHECK-NEXT:    offload 0 mb 2 to 3
// CHECK-NEXT:    forward 0 mb 3
// CHECK:         backward_weight 0 mb 1
// CHECK-NEXT:    reload 0 mb 2 from 3
// CHECK-NEXT:    backward_input 0 mb 2
pipe.schedule @bpipe ranks(4) microbatches(4) using(#pipe.bpipe<split_backward = true>)

// CHECK-LABEL: pipe.schedule @pipedream
// CHECK:       rank 1 {
// CHECK-NEXT:    forward 1 mb 0
// CHECK-NEXT:    backward 1 mb 0
// CHECK-NEXT:    step 1 mb 0
// CHECK-NEXT:    forward 1 mb 1
pipe.schedule @pipedream ranks(2) microbatches(3) using(#pipe.pipedream)

// CHECK-LABEL: pipe.schedule @two_versions
// CHECK:       rank 1 {
// CHECK:         backward_input 1 mb 2
// CHECK-NEXT:    backward_weight 1 mb 2
// CHECK-NEXT:    step 1 mb 2
// CHECK-NEXT:    forward 1 mb 3
// CHECK-NEXT:    backward_input 1 mb 3
// CHECK-NEXT:    backward_weight 1 mb 3
// CHECK-NEXT:    step 1 mb 3
// CHECK-NEXT:  }
pipe.schedule @two_versions ranks(2) microbatches(4) using(#pipe.pipedream_2bw<group = 3, split_backward = true>)

// Costs stay those of a micro-batch; a slice has its part of the bytes.
// CHECK-LABEL: pipe.schedule @seq_1f1b ranks(2) microbatches(2) slices(2) using(#pipe.seq_1f1b<slices = 2>)
// CHECK:         stage 0 on 0 costs(#pipe.cost<forward = 3.0,
// CHECK:       rank 1 {
// CHECK-NEXT:    forward 1 mb 0
// CHECK-NEXT:    forward 1 mb 1
// CHECK-NEXT:    backward 1 mb 1
// CHECK-NEXT:    forward 1 mb 2
// CHECK-NEXT:    backward 1 mb 0
pipe.schedule @seq_1f1b ranks(2) microbatches(2) using(#pipe.seq_1f1b) costs(#pipe.cost<forward = 3>)

// Breadth-first runs slices in the right order too.
// CHECK-LABEL: pipe.schedule @sliced_breadth_first ranks(2) microbatches(1) slices(3)
pipe.schedule @sliced_breadth_first ranks(2) microbatches(1) slices(3) using(#pipe.breadth_first)

// CHECK-LABEL: pipe.schedule @terapipe ranks(2) microbatches(1) slices(3)
// CHECK:       rank 1 {
// CHECK:         forward 1 mb 2
// CHECK-NEXT:    backward 1 mb 2
// CHECK-NEXT:    backward 1 mb 1
pipe.schedule @terapipe ranks(2) microbatches(1) slices(3) using(#pipe.gpipe<descending = true>)

// CHECK-LABEL: pipe.schedule @zb_h1
// CHECK:       rank 1 {
// CHECK-NEXT:    forward 1 mb 0
// CHECK-NEXT:    backward_input 1 mb 0
// CHECK-NEXT:    forward 1 mb 1
// CHECK-NEXT:    backward_input 1 mb 1
// CHECK-NEXT:    backward_weight 1 mb 0
pipe.schedule @zb_h1 ranks(2) microbatches(3) using(#pipe.zb_h1)

// CHECK-LABEL: pipe.schedule @zb_h2
// CHECK:       rank 1 {
// CHECK:         backward_input 1 mb 1
// CHECK-NEXT:    forward 1 mb 2
// CHECK-NEXT:    backward_input 1 mb 2
// CHECK-NEXT:    backward_weight 1 mb 0
pipe.schedule @zb_h2 ranks(2) microbatches(3) using(#pipe.zb_h2)

// CHECK-LABEL: pipe.schedule @interleaved_1f1b
// CHECK:       rank 1 {
// CHECK-NEXT:    forward 1 mb 0
// CHECK-NEXT:    forward 1 mb 1
// CHECK-NEXT:    forward 1 mb 2
// CHECK-NEXT:    forward 3 mb 0
// CHECK-NEXT:    backward_input 3 mb 0
// CHECK-NEXT:    backward_weight 3 mb 0
pipe.schedule @interleaved_1f1b ranks(2) microbatches(5) using(#pipe.interleaved_1f1b<group = 3, split_backward = true>)

// CHECK-LABEL: pipe.schedule @breadth_first
// CHECK:       rank 0 {
// CHECK-NEXT:    forward 0 mb 0
// CHECK-NEXT:    forward 0 mb 1
// CHECK-NEXT:    forward 2 mb 0
// CHECK-NEXT:    forward 2 mb 1
// CHECK-NEXT:    forward 4 mb 0
// CHECK-NEXT:    forward 4 mb 1
// CHECK-NEXT:    backward 4 mb 1
pipe.schedule @breadth_first ranks(2) microbatches(2) using(#pipe.breadth_first<chunks = 3>)

// CHECK-LABEL: pipe.schedule @interleaved_zb
// CHECK:       rank 1 {
// CHECK-NEXT:    forward 1 mb 0
// CHECK-NEXT:    forward 1 mb 1
// CHECK-NEXT:    forward 3 mb 0
// CHECK-NEXT:    backward_input 3 mb 0
// CHECK-NEXT:    forward 3 mb 1
// CHECK-NEXT:    backward_input 3 mb 1
// CHECK-NEXT:    backward_weight 3 mb 0
pipe.schedule @interleaved_zb ranks(2) microbatches(4) using(#pipe.interleaved_zb)

// CHECK-LABEL: pipe.schedule @gis
// CHECK:       rank 1 {
// CHECK-NEXT:    forward 1 mb 0
// CHECK-NEXT:    forward 3 mb 0
// CHECK-NEXT:    backward_input 3 mb 0
// CHECK-NEXT:    backward_weight 3 mb 0
pipe.schedule @gis ranks(2) microbatches(4) using(#pipe.gis<group = 1>)

// CHECK-LABEL: pipe.schedule @zb_v
// CHECK:       rank 1 {
// CHECK-NEXT:    forward 1 mb 0
// CHECK-NEXT:    forward 2 mb 0
// CHECK-NEXT:    forward 1 mb 1
// CHECK-NEXT:    forward 2 mb 1
// CHECK-NEXT:    backward_input 2 mb 0
// CHECK-NEXT:    backward_weight 2 mb 0
pipe.schedule @zb_v ranks(2) microbatches(4) using(#pipe.zb_v)

// CHECK-LABEL: pipe.schedule @v_half
// CHECK:       rank 1 {
// CHECK-NEXT:    forward 1 mb 0
// CHECK-NEXT:    forward 2 mb 0
// CHECK-NEXT:    forward 1 mb 1
// CHECK-NEXT:    forward 2 mb 1
// CHECK-NEXT:    backward_input 2 mb 0
pipe.schedule @v_half ranks(2) microbatches(4) using(#pipe.v_half)

// CHECK-LABEL: pipe.schedule @v_min
// CHECK:       rank 2 {
// CHECK-NEXT:    forward 2 mb 0
// CHECK-NEXT:    forward 3 mb 0
// CHECK-NEXT:    forward 2 mb 1
// CHECK-NEXT:    forward 3 mb 1
// CHECK-NEXT:    backward_input 3 mb 0
// CHECK-NEXT:    backward_input 2 mb 0
pipe.schedule @v_min ranks(3) microbatches(4) using(#pipe.v_min)

// CHECK-LABEL: pipe.schedule @dualpipe_v
// CHECK:       rank 1 {
// CHECK:         backward 2 mb 0
// CHECK-NEXT:    overlap {
// CHECK-NEXT:      forward 2 mb 2
// CHECK-NEXT:      backward 1 mb 0
// CHECK-NEXT:    }
pipe.schedule @dualpipe_v ranks(2) microbatches(4) using(#pipe.dualpipe_v)

// Micro-batch 2 is the first of the other chain.
// CHECK-LABEL: pipe.schedule @dualpipe ranks(2) microbatches(4)
// CHECK-SAME:  chains([0, 0, 1, 1])
// CHECK:         stage 0 on (0, 1)
// CHECK:         stage 1 on (1, 0)
// CHECK:       rank 1 {
// CHECK-NEXT:    forward 0 mb 2
// CHECK-NEXT:    forward 1 mb 0
pipe.schedule @dualpipe ranks(2) microbatches(4) using(#pipe.dualpipe)

// CHECK-LABEL: pipe.schedule @chimera ranks(2) microbatches(3)
// CHECK-SAME:  chains([1, 0, 0])
// CHECK:       rank 1 {
// CHECK-NEXT:    forward 0 mb 0
// CHECK-NEXT:    forward 1 mb 1
// CHECK-NEXT:    backward 1 mb 1
pipe.schedule @chimera ranks(2) microbatches(3) using(#pipe.chimera) chains([1, 0, 0])

// CHECK-LABEL: pipe.schedule @hanayo
// CHECK:       rank 1 {
// CHECK-NEXT:    forward 1 mb 0
// CHECK-NEXT:    forward 2 mb 0
// CHECK-NEXT:    forward 5 mb 0
// CHECK-NEXT:    forward 6 mb 0
pipe.schedule @hanayo ranks(2) microbatches(1) using(#pipe.hanayo<waves = 2>)

// The stages of a model: two for each rank.
// CHECK-LABEL: pipe.schedule @layers
// CHECK:       rank 1 {
// CHECK-NEXT:    forward 1 mb 0
// CHECK-NEXT:    forward 3 mb 0
pipe.model @model {
  layer "block" times 8 costs(#pipe.cost<>)
}
pipe.schedule @layers model(@model) ranks(2) microbatches(1) using(#pipe.interleaved_1f1b)
