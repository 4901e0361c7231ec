// Parameters of the schedule families: in any order, printed where they are given.
//
// RUN: penstock-opt %s --verify-roundtrip | FileCheck %s
// RUN: penstock-opt %s --emit-bytecode | penstock-opt | FileCheck %s

// CHECK: using(#pipe.gpipe<descending = true, recompute = true>)
pipe.schedule @a using(#pipe.gpipe<recompute = true, descending = true, split_backward = false>)
// CHECK: using(#pipe.one_f_one_b<eager = true, split_backward = true>)
pipe.schedule @b using(#pipe.one_f_one_b<split_backward = true, eager = true>)
// CHECK: using(#pipe.zb_h1)
pipe.schedule @c using(#pipe.zb_h1)
// CHECK: using(#pipe.zb_h2)
pipe.schedule @d using(#pipe.zb_h2)
// CHECK: using(#pipe.interleaved_1f1b<chunks = 2>)
pipe.schedule @e using(#pipe.interleaved_1f1b)
// CHECK: using(#pipe.interleaved_1f1b<chunks = 3, group = 5, split_backward = true>)
pipe.schedule @f using(#pipe.interleaved_1f1b<split_backward = true, group = 5, chunks = 3>)
// CHECK: using(#pipe.breadth_first<chunks = 4>)
pipe.schedule @g using(#pipe.breadth_first<chunks = 4>)
// CHECK: using(#pipe.interleaved_zb<chunks = 2, group = 4>)
pipe.schedule @h using(#pipe.interleaved_zb<group = 4>)
// CHECK: using(#pipe.gis<chunks = 2>)
pipe.schedule @i using(#pipe.gis<chunks = 2>)
