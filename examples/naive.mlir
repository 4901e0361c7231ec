// Naive model parallelism: one micro-batch at a time, one rank at work.

pipe.schedule @naive ranks(4) microbatches(8) using(#pipe.naive)
