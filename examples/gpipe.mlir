// GPipe: all forwards, then all backwards. As long as 1F1B, but every rank holds
// the activations of all micro-batches.

pipe.schedule @gpipe ranks(4) microbatches(8) using(#pipe.gpipe)
