// The full form of a spec: a model of unequal layers, a cluster with a memory
// limit and a link, and a schedule that brings them together. Layers are balanced
// over the eight stages; the verifier proves that every rank stays in 80 GiB.

pipe.model @gpt {
  layer "embedding"      costs(#pipe.cost<forward = 0.5, weight = 0.5>) bytes(#pipe.bytes<output = 16777216, parameters = 411041792>)
  layer "block" times 30 costs(#pipe.cost<forward = 1.0, input = 1.0, weight = 1.0>) bytes(#pipe.bytes<output = 16777216, stash = 100663296>)
  layer "head"           costs(#pipe.cost<forward = 2.0, input = 2.0, weight = 2.0>)
}
pipe.cluster @node ranks(8) memory(85899345920) link(#pipe.link<latency = 0.6, bytes_per_time = 5.0e7>)
pipe.schedule @train model(@gpt) cluster(@node) microbatches(24) using(#pipe.one_f_one_b)
