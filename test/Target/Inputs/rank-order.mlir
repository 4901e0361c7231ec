pipe.schedule @sets ranks(3) microbatches(1) {
  stage 0 on 0
  rank 2 {
    barrier ranks(1, 2)
    barrier ranks(0, 2)
  }
  rank 1 slots(1 x 0) {
    barrier ranks(1, 2)
  }
  rank 0 slots(1 x 0) {
    barrier ranks(0, 2)
    forward 0 mb 0 stash(0)
    backward 0 mb 0 stash(0)
  }
}
