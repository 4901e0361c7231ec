// What people get wrong, each with its own answer.
// RUN: penstock-opt %s --pipe-compile --split-input-file --verify-diagnostics

// expected-error @below {{unknown attribute '#pipe.one_b_one_f'; the schedule families are}}
pipe.schedule @unknown_family ranks(2) microbatches(2) using(#pipe.one_b_one_f)

// -----

// expected-error @below {{a schedule needs at least one rank; write ranks(N) with N >= 1}}
pipe.schedule @zero_ranks ranks(0) microbatches(2) using(#pipe.gpipe)

// -----

// expected-error @below {{a schedule needs at least one micro-batch; write microbatches(N) with N >= 1}}
pipe.schedule @zero_microbatches ranks(2) microbatches(0) using(#pipe.gpipe)

// -----

// expected-error @below {{forward must be finite and not negative, got -1.0}}
pipe.schedule @negative ranks(2) microbatches(2) using(#pipe.gpipe) costs(#pipe.cost<forward = -1.0>)

// -----

// expected-error @below {{expected a finite number, got 'nan'}}
pipe.schedule @nan ranks(2) microbatches(2) using(#pipe.gpipe) costs(#pipe.cost<forward = nan>)

// -----

// Too large for a double.
// expected-error @below {{forward must be finite and not negative}}
pipe.schedule @infinite ranks(2) microbatches(2) using(#pipe.gpipe) costs(#pipe.cost<forward = 1.0e400>)

// -----

pipe.schedule @no_such_rank ranks(2) microbatches(2) using(#pipe.gpipe) {
  stage 0 on 0
  // expected-error @below {{stage 1 is on rank 7, but the schedule has 2 ranks; place it on a rank below 2, or raise ranks(N)}}
  stage 1 on 7
}
