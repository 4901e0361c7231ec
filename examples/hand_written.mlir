// An order written by hand: 1F1B on two ranks, with the backward of rank 1 split
// so that rank 0 gets its gradients earlier. Transfers, slots and waits are left
// to the compiler.

pipe.schedule @by_hand ranks(2) microbatches(3) {
  stage 0 on 0
  stage 1 on 1
  rank 0 {
    forward 0 mb 0
    forward 0 mb 1
    backward 0 mb 0
    forward 0 mb 2
    backward 0 mb 1
    backward 0 mb 2
  }
  rank 1 {
    forward 1 mb 0
    backward_input 1 mb 0
    forward 1 mb 1
    backward_input 1 mb 1
    backward_weight 1 mb 0
    forward 1 mb 2
    backward_input 1 mb 2
    backward_weight 1 mb 1
    backward_weight 1 mb 2
  }
}
