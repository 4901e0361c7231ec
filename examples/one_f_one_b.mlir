// 1F1B on four ranks: the shortest spec there is. Every stage costs one unit for
// its forward and two for its backward; transfers are free.
//
//   penstock-opt one_f_one_b.mlir --pipe-compile
//   penstock-opt one_f_one_b.mlir --pipe-compile | penstock-translate --pipe-to-text

pipe.schedule @one_f_one_b ranks(4) microbatches(8) using(#pipe.one_f_one_b)
