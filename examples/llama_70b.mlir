// Llama 3 70B (arXiv:2407.21783, table 3: 80 layers, hidden size 8,192) on eight
// pipeline ranks, each a node of eight GPUs that share every layer, so that sizes
// and costs are those of a node. A micro-batch is one sequence of 8,192 tokens.
//
//   costs  milliseconds: 2 x parameters x tokens, and causal attention, at
//          8 x 400 TFLOP/s; I redoes no attention, W has none
//   bytes  bf16 activations and weights, 34 x tokens x hidden size to keep for a
//          backward, fp32 gradients, 12 bytes of optimizer state per parameter,
//          divided by a data-parallel size of 16
//   link   8 x 50 GB/s

pipe.model @llama_70b {
  layer "embedding"      costs(#pipe.cost<forward = 0.1, input = 0.0, weight = 0.1>) bytes(#pipe.bytes<output = 134217728, parameters = 2101346304, gradients = 4202692608, optimizer = 788004864>)
  layer "block" times 80 costs(#pipe.cost<forward = 4.73, input = 5.07, weight = 4.38>) bytes(#pipe.bytes<output = 134217728, stash = 2281701376, parameters = 1711276032, gradients = 3422552064, optimizer = 641728512>)
  layer "head"           costs(#pipe.cost<forward = 5.38, input = 5.38, weight = 5.38>) bytes(#pipe.bytes<stash = 4202692608, parameters = 2101346304, gradients = 4202692608, optimizer = 788004864>)
}
pipe.cluster @nodes ranks(8) memory(640000000000) link(#pipe.link<latency = 0.02, bytes_per_time = 4.0e8>)
pipe.schedule @train model(@llama_70b) cluster(@nodes) microbatches(32)
