// A stash in host memory: rank 0 runs the last forward first backward, so that the
// stash of micro-batch 0 waits longest, and offloads it meanwhile. A copy takes
// half as long as a forward, beside the actions:
//
//   penstock-opt offload.mlir --pipe-compile | penstock-translate --pipe-to-report

pipe.schedule @offload ranks(2) microbatches(3)
    host_link(#pipe.link<bytes_per_time = 200>) bytes(#pipe.bytes<output = 16, stash = 100>) {
  rank 0 {
    forward 0 mb 0
    offload 0 mb 0
    forward 0 mb 1
    forward 0 mb 2
    backward 0 mb 2
    reload 0 mb 0
    backward 0 mb 1
    backward 0 mb 0
    step
  }
  rank 1 {
    forward 1 mb 0
    forward 1 mb 1
    forward 1 mb 2
    backward 1 mb 2
    backward 1 mb 1
    backward 1 mb 0
    step
  }
}
