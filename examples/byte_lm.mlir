// A byte-level language model of eight layers on four ranks: what scripts/demo
// trains. The model is what `penstock-run --print-model 8` prints; one unit of time
// is the forward of one block.

// byte-lm:width=128,hidden=256,context=8,embed=32,samples=64,lr=0.003,optimizer=adam,seed=1
pipe.model @byte_lm {
  layer "embedding" costs(#pipe.cost<forward = 0.5, input = 0.0, weight = 1.0>) bytes(#pipe.bytes<output = 32768, stash = 98304, parameters = 164352, gradients = 164352, optimizer = 328704>)
  layer "block" times 6 costs(#pipe.cost<forward = 1.0, input = 1.0, weight = 1.0>) bytes(#pipe.bytes<output = 32768, stash = 196864, parameters = 263680, gradients = 263680, optimizer = 527360>)
  layer "head" costs(#pipe.cost<forward = 0.5, input = 0.5, weight = 0.5>) bytes(#pipe.bytes<stash = 98560, parameters = 132096, gradients = 132096, optimizer = 264192>)
}


pipe.cluster @threads ranks(4) memory(16777216) link(#pipe.link<latency = 0.02>)

pipe.schedule @train model(@byte_lm) cluster(@threads) microbatches(8) using(#pipe.one_f_one_b)
