// RUN: penstock-opt %s --pipe-generate-order --split-input-file --verify-diagnostics

// expected-error @below {{schedule @nothing has neither a family nor an order: add using(#pipe.<family>) or rank ops}}
pipe.schedule @nothing ranks(2) microbatches(2)

// -----

// A family whose constraint does not hold says so.
// expected-error @below {{one_f_one_b: needs one stage on every rank, but there are 3 stages and 2 ranks}}
pipe.schedule @three_on_two ranks(2) microbatches(2) using(#pipe.one_f_one_b) {
  stage 0 on 0
  stage 1 on 1
  stage 2 on 0
}

// -----

// expected-error@+1 {{gpipe: 20000000 micro-batches on 2 stages are more instructions than a program can hold; give at most 5208333 micro-batches}}
pipe.schedule @s ranks(2) microbatches(20000000) using(#pipe.gpipe) {
  stage 0 on 0
  stage 1 on 1
}

// -----

// expected-error@+1 {{interleaved_1f1b: 3 chunks on 2 ranks are 6 stages, but there are 4; make it 6 stages or chunks = 2}}
pipe.schedule @s ranks(2) microbatches(2) using(#pipe.interleaved_1f1b<chunks = 3>) {
  stage 0 on 0
  stage 1 on 1
  stage 2 on 0
  stage 3 on 1
}

// -----

// expected-error@+1 {{breadth_first: 2 chunks on 2 ranks are 4 stages, but there are 3; make it 4 stages}}
pipe.schedule @s ranks(2) microbatches(2) using(#pipe.breadth_first) {
  stage 0 on 0
  stage 1 on 1
  stage 2 on 0
}

// -----

// expected-error@+1 {{hanayo: needs 4 stages on every rank, but there are 4 stages and 2 ranks; make it 8 stages or waves = 1}}
pipe.schedule @s ranks(2) microbatches(2) using(#pipe.hanayo<waves = 2>) {
  stage 0 on 0
  stage 1 on 1
  stage 2 on 1
  stage 3 on 0
}

// -----

// expected-error@+1 {{schedule @s: slices(2) does not go with #pipe.one_f_one_b, which does not run the forwards of a micro-batch's slices ascending and their backwards descending, as causal attention needs: use #pipe.seq_1f1b, #pipe.gpipe<descending = true>, #pipe.breadth_first, or an order of rank ops}}
pipe.schedule @s ranks(2) microbatches(2) slices(2) using(#pipe.one_f_one_b)

// -----

// expected-error@+1 {{schedule @s: stage 0 hands on 10 bytes for a micro-batch, which cannot be cut into 100 slices; give at most 10, or a larger output}}
pipe.schedule @s ranks(2) microbatches(2) using(#pipe.seq_1f1b<slices = 100>) bytes(#pipe.bytes<output = 10>)

// -----

// expected-error@+1 {{schedule @s: micro-batch 1 is on chain 1, but there is one chain, as every stage is on one rank; drop the chains, or use a family with two, as dualpipe and chimera are}}
pipe.schedule @s ranks(2) microbatches(4) using(#pipe.gpipe) chains([0, 1, 0, 1])

// -----

// expected-error@+1 {{gis: groups of 3 micro-batches cannot be formed of 2; give a group of 1 to 2}}
pipe.schedule @s ranks(2) microbatches(2) using(#pipe.gis<group = 3>)

// -----

// expected-error@+1 {{interleaved_1f1b: groups of 8 of the 20 micro-batches deadlock on 8 ranks: rank 0 has forward 8 mb 17 before backward 8 mb 8, which it needs; the nearest group that works is 10}}
pipe.schedule @s ranks(8) microbatches(20) using(#pipe.interleaved_1f1b<group = 8>)

// -----

// expected-error@+1 {{dualpipe: needs an even number of ranks, but there are 3; give 2 or 4}}
pipe.schedule @s ranks(3) microbatches(6) using(#pipe.dualpipe)

// -----

// expected-error@+1 {{hanayo: 40 waves; give a number from 1 to 32}}
pipe.schedule @s ranks(2) microbatches(2) using(#pipe.hanayo<waves = 40>)

// -----

// expected-error@+1 {{zb_v: needs 2 stages on every rank, but there are 3 stages and 2 ranks; make it 4 stages}}
pipe.schedule @s ranks(2) microbatches(2) using(#pipe.zb_v) {
  stage 0 on 0
  stage 1 on 1
  stage 2 on 0
}

// -----

// expected-error@+1 {{schedule @s: slices(3) disagrees with the 2 slices of the family; drop one of them}}
pipe.schedule @s ranks(2) microbatches(2) slices(3) using(#pipe.seq_1f1b<slices = 2>)

// -----

// expected-error@+1 {{schedule @s: micro-batches of 1073741824 slices are more than 1073741824 slices in all; give fewer micro-batches or slices}}
pipe.schedule @s ranks(2) microbatches(2) using(#pipe.seq_1f1b<slices = 1073741824>)

// -----

// expected-error@+1 {{schedule @s: micro-batches that are cut into slices have one chain; drop the 2 slices or the chains}}
pipe.schedule @s ranks(2) microbatches(2) slices(2) using(#pipe.dualpipe)

// -----

pipe.schedule @s ranks(1) microbatches(2) slices(2) {
  rank 0 {
    // expected-error@+1 {{there are only 2 micro-batches of 2 slices; write 0 to 3, or raise microbatches(N)}}
    forward 0 mb 4
  }
}

// -----

// expected-error@+1 {{pipedream_2bw: updates after every 1 micro-batches need more than two versions of the weights on 2 ranks; make the group at least 2}}
pipe.schedule @s ranks(2) microbatches(2) using(#pipe.pipedream_2bw<group = 1>)
