// Eighteen unequal layers on four ranks; memory for 1F1B, not for GPipe.
pipe.model @gpt {
  layer "embedding"      costs(#pipe.cost<forward = 0.5, input = 0.0, weight = 0.5>) bytes(#pipe.bytes<output = 4096, stash = 4096, parameters = 65536, gradients = 65536, optimizer = 131072>)
  layer "block" times 16 costs(#pipe.cost<forward = 1.0, input = 1.0, weight = 1.0>) bytes(#pipe.bytes<output = 4096, stash = 16384, parameters = 16384, gradients = 16384, optimizer = 32768>)
  layer "head"           costs(#pipe.cost<forward = 2.0, input = 2.0, weight = 2.0>) bytes(#pipe.bytes<parameters = 65536, gradients = 65536, optimizer = 131072>)
}
pipe.cluster @node ranks(4) memory(720000) link(#pipe.link<latency = 0.1, bytes_per_time = 32768.0>)
pipe.schedule @train model(@gpt) cluster(@node) microbatches(8)
