// The smallest 1F1B that deadlocks: both ranks send before they receive. It seems
// to work as long as messages are small enough for NCCL to buffer. `pipe-verify`
// refuses it and shows the cycle:
//
//   penstock-opt deadlock.mlir --pipe-verify
//
// Grouping rank 0's second send with its first receive, and rank 1's first send
// with its second receive, repairs it.

pipe.schedule @crossed_sends ranks(2) microbatches(2) {
  stage 0 on 0
  stage 1 on 1
  rank 0 {
    forward 0 mb 0
    send activation 0 mb 0 to 1
    forward 0 mb 1
    send activation 0 mb 1 to 1
    recv gradient 1 mb 0 from 1
    backward 0 mb 0
    recv gradient 1 mb 1 from 1
    backward 0 mb 1
  }
  rank 1 {
    recv activation 0 mb 0 from 0
    forward 1 mb 0
    backward 1 mb 0
    send gradient 1 mb 0 to 0
    recv activation 0 mb 1 from 0
    forward 1 mb 1
    backward 1 mb 1
    send gradient 1 mb 1 to 0
  }
}
