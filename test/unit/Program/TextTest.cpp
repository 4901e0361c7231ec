//===- TextTest.cpp - Programs as readable text ---------------------------===//

#include "penstock/Program/Text.h"

#include "RandomProgram.h"

#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>
#include <sstream>

using namespace penstock;

namespace {

Instruction make(Op op, int32_t stage = -1, int32_t microbatch = -1) {
  Instruction inst;
  inst.op = op;
  inst.stage = stage;
  inst.microbatch = microbatch;
  return inst;
}

Instruction transfer(Op op, Payload payload, int32_t stage, int32_t microbatch,
                     int32_t peer) {
  Instruction inst = make(op, stage, microbatch);
  inst.payload = payload;
  inst.peer = peer;
  return inst;
}

/// Appends an instruction that waits for others.
void add(RankProgram &rank, Instruction inst,
         std::initializer_list<uint32_t> waits = {}) {
  if (waits.size()) {
    inst.firstWait = rank.waits.size();
    inst.numWaits = waits.size();
    rank.waits.insert(rank.waits.end(), waits);
  }
  rank.instructions.push_back(inst);
}

Instruction onQueue(Instruction inst, uint8_t queue) {
  inst.queue = queue;
  return inst;
}
Instruction joined(Instruction inst) {
  inst.joined = true;
  return inst;
}
Instruction withSlots(Instruction inst, std::array<int32_t, 4> slots) {
  inst.slots = slots;
  return inst;
}
Instruction withSlot(Instruction inst, int32_t slot, int64_t bytes) {
  inst.slots[Slot] = slot;
  inst.bytes = bytes;
  return inst;
}

TEST(Text, NamesOfOps) {
  EXPECT_EQ(mnemonic(Op::Forward), "forward");
  EXPECT_EQ(mnemonic(Op::Backward), "backward");
  EXPECT_EQ(mnemonic(Op::BackwardInput), "backward_input");
  EXPECT_EQ(mnemonic(Op::BackwardWeight), "backward_weight");
  EXPECT_EQ(mnemonic(Op::Recompute), "recompute");
  EXPECT_EQ(mnemonic(Op::Send), "send");
  EXPECT_EQ(mnemonic(Op::Recv), "recv");
  EXPECT_EQ(mnemonic(Op::AllReduce), "all_reduce");
  EXPECT_EQ(mnemonic(Op::Barrier), "barrier");
  EXPECT_EQ(mnemonic(Op::ReduceGrad), "reduce_grad");
  EXPECT_EQ(mnemonic(Op::Unshard), "unshard");
  EXPECT_EQ(mnemonic(Op::Reshard), "reshard");
  EXPECT_EQ(mnemonic(Op::ReduceState), "reduce_state");
  EXPECT_EQ(mnemonic(Op::Validate), "validate");
  EXPECT_EQ(mnemonic(Op::Offload), "offload");
  EXPECT_EQ(mnemonic(Op::Reload), "reload");
  EXPECT_EQ(mnemonic(Op::Step), "step");
  EXPECT_EQ(mnemonic(static_cast<Op>(kNumOps)), "unknown");
  std::string letters;
  for (unsigned op = 0; op < 5; ++op)
    letters += letter(static_cast<Op>(op));
  EXPECT_EQ(letters, "FBIWR");
  EXPECT_EQ(letter(Op::Send), 0);
}

TEST(Text, Describe) {
  EXPECT_EQ(describe(make(Op::Forward, 0, 3)), "forward 0 mb 3");
  EXPECT_EQ(describe(transfer(Op::Send, Payload::Activation, 0, 1, 1)),
            "send activation 0 mb 1 to 1");
  EXPECT_EQ(describe(transfer(Op::Recv, Payload::Gradient, 2, 0, 3)),
            "recv gradient 2 mb 0 from 3");
  EXPECT_EQ(describe(transfer(Op::Send, Payload::Stash, 0, 2, 3)),
            "send stash 0 mb 2 to 3");
  EXPECT_EQ(describe(transfer(Op::Send, Payload::State, -1, -1, 3)),
            "send state to 3");
  EXPECT_EQ(describe(transfer(Op::Offload, Payload::None, 0, 2, 3)),
            "offload 0 mb 2 to 3");
  EXPECT_EQ(describe(transfer(Op::Reload, Payload::None, 0, 2, 3)),
            "reload 0 mb 2 from 3");
  EXPECT_EQ(describe(make(Op::AllReduce, 3)), "all_reduce 3");
  EXPECT_EQ(describe(make(Op::Step)), "step");
  EXPECT_EQ(describe(make(Op::Step, 0, 3)), "step 0 mb 3");

  Program program;
  program.ranks.resize(1);
  program.ranks[0].instructions = {make(Op::Forward, 0, 3)};
  EXPECT_EQ(describe(program, Site{}), "program");
  EXPECT_EQ(describe(program, Site{0, kNoInstruction}), "rank 0");
  EXPECT_EQ(describe(program, Site{0, 0}),
            "rank 0, instruction 0 (forward 0 mb 3)");
  EXPECT_EQ(describe(program, Site{0, 1}), "rank 0, instruction 1");
  EXPECT_EQ(describe(program, Site{1, 0}), "rank 1, instruction 0");
}

TEST(Text, Numbers) {
  EXPECT_EQ(formatRounded(33), "33.0");
  EXPECT_EQ(formatRounded(61.780000000000022), "61.78");
  EXPECT_EQ(formatNumber(1), "1.0");
  EXPECT_EQ(formatNumber(0), "0.0");
  EXPECT_EQ(formatNumber(0.601), "0.601");
  EXPECT_EQ(formatNumber(1e20), "1.0e+20");
  EXPECT_EQ(formatNumber(5e7), "5.0e+07");
  EXPECT_EQ(formatNumber(1.5e-9), "1.5e-09");
  EXPECT_EQ(formatNumber(std::numeric_limits<double>::infinity()), "inf");
  for (double value : {1.0 / 3, 5e-324, 1.7976931348623157e308, 123456789.0}) {
    const std::string text = formatNumber(value);
    EXPECT_EQ(std::strtod(text.c_str(), nullptr), value);
    EXPECT_NE(text.find_first_of(".e"), std::string::npos) << text;
  }
}

TEST(Text, SmallestProgram) {
  Program program;
  program.problem.name = "tiny";
  program.problem.numRanks = 1;
  program.problem.numMicrobatches = 1;
  program.problem.stages.resize(1);
  program.problem.placement = {0};
  program.ranks.resize(1);
  EXPECT_EQ(dump(program), R"(pipe.schedule @tiny ranks(1) microbatches(1) {
  stage 0 on 0
  rank 0 {
  }
}
)");
}

TEST(Text, EveryClause) {
  Program program;
  Problem &problem = program.problem;
  problem.name = "train";
  problem.numRanks = 4;
  problem.numMicrobatches = 8;
  problem.memory = 85899345920;
  problem.link = {0.6, 5e7};
  problem.hostLink.bytesPerTime = 2.5e7;
  problem.stages.resize(2);
  problem.stages[0] = {0, 8, {1, 2.5, 1, 1.5, 1}, {16384, 65536, 4096, 0, 8}};
  problem.stages[1] = {1, 1, {}, {}};
  problem.placement = {0, 1};
  program.ranks.resize(4);
  program.rankSets = {{0, 3}, {0, 1, 2}};

  RankProgram &rank = program.ranks[0];
  rank.slotBytes = {16384, 16384, 16384, 65536, 65536, 8};
  rank.hostSlotBytes = {65536, 65536};
  add(rank, withSlots(make(Op::Forward, 0, 0), {-1, -1, 0, 3}));
  add(rank,
      withSlot(onQueue(transfer(Op::Send, Payload::Activation, 0, 0, 1), 1), 0,
               16384),
      {0});
  add(rank, make(Op::Forward, 0, 1));
  add(rank, make(Op::Backward, 0, 0));
  add(rank,
      withSlot(onQueue(transfer(Op::Send, Payload::Activation, 0, 1, 1), 1), 1,
               16384),
      {2, 3});
  add(rank, joined(withSlot(
                onQueue(transfer(Op::Recv, Payload::Gradient, 1, 0, 1), 1), 2,
                16384)));
  add(rank, withSlots(make(Op::Forward, 0, 2), {-1, -1, 0, 4}));
  add(rank, joined(withSlots(make(Op::Backward, 0, 0), {-1, 2, -1, 3})));
  add(rank, withSlots(make(Op::Backward, 1, 0), {0, 2, 1, 3}), {1});
  add(rank, make(Op::BackwardInput, 1, 1));
  add(rank, make(Op::BackwardWeight, 1, 1));
  add(rank, make(Op::Recompute, 1, 2));
  Instruction reduce = onQueue(make(Op::AllReduce, 1), 2);
  reduce.peer = 0;
  reduce.bytes = 4096;
  reduce.comm = 1;
  add(rank, reduce, {9, 8});
  Instruction barrier = make(Op::Barrier);
  add(rank, barrier);
  barrier.peer = 1;
  add(rank, barrier);
  add(rank, make(Op::ReduceGrad, 1));
  add(rank, make(Op::Unshard, 1));
  add(rank, make(Op::Reshard, 1));
  Instruction offload = make(Op::Offload, 0, 1);
  offload.slots[Slot] = 3;
  offload.slots[Host] = 0;
  add(rank, offload);
  add(rank, onQueue(make(Op::Reload, 0, 1), 3), {18});
  add(rank, make(Op::Step));
  add(rank, make(Op::Step, 0));
  add(rank, make(Op::Step, 0, 3), {14, 20});

  RankProgram &last = program.ranks[3];
  last.slotBytes = {8};
  Instruction recv = transfer(Op::Recv, Payload::Activation, 0, 0, 0);
  recv.comm = 2;
  add(last, recv);
  add(last, onQueue(make(Op::Forward, 0, 0), 1));
  add(last, onQueue(joined(make(Op::Backward, 1, 0)), 1));

  const char *expected =
      R"(pipe.schedule @train ranks(4) microbatches(8) memory(85899345920) link(#pipe.link<latency = 0.6, bytes_per_time = 5.0e+07>) host_link(#pipe.link<latency = 0.0, bytes_per_time = 2.5e+07>) {
  stage 0 on 0 layers(0, 8) costs(#pipe.cost<forward = 1.0, backward = 2.5, input = 1.0, weight = 1.5, recompute = 1.0>) bytes(#pipe.bytes<output = 16384, stash = 65536, parameters = 4096, gradients = 0, optimizer = 8>)
  stage 1 on 1
  rank 0 slots(3 x 16384, 2 x 65536, 1 x 8) host_slots(2 x 65536) {
    forward 0 mb 0 out(0) stash(3)
    send activation 0 mb 0 to 1 slot(0) bytes(16384) queue(1) after(forward 0 mb 0)
    forward 0 mb 1
    backward 0 mb 0
    group queue(1) after(forward 0 mb 1, backward 0 mb 0) {
      send activation 0 mb 1 to 1 slot(1) bytes(16384)
      recv gradient 1 mb 0 from 1 slot(2) bytes(16384)
    }
    overlap {
      forward 0 mb 2 out(0) stash(4)
      backward 0 mb 0 grad(2) stash(3)
    }
    backward 1 mb 0 in(0) grad(2) out(1) stash(3) after(send activation 0 mb 0 to 1)
    backward_input 1 mb 1
    backward_weight 1 mb 1
    recompute 1 mb 2
    all_reduce 1 ranks(0, 3) bytes(4096) comm(1) queue(2) after(backward_input 1 mb 1, backward 1 mb 0)
    barrier
    barrier ranks(0, 1, 2)
    reduce_grad 1
    unshard 1
    reshard 1
    offload 0 mb 1 slot(3) host(0)
    reload 0 mb 1 queue(3) after(offload 0 mb 1)
    step
    step 0
    step 0 mb 3 after(barrier, step)
  }
  rank 1 {
  }
  rank 2 {
  }
  rank 3 slots(1 x 8) {
    recv activation 0 mb 0 from 0 comm(2)
    overlap queue(1) {
      forward 0 mb 0
      backward 1 mb 0
    }
  }
}
)";
  EXPECT_EQ(dump(program), expected);
  std::ostringstream os;
  dump(program, os);
  EXPECT_EQ(os.str(), expected);
}

TEST(Text, TwoChains) {
  Program program;
  Problem &problem = program.problem;
  problem.name = "both";
  problem.numRanks = 2;
  problem.numMicrobatches = 4;
  problem.stages.resize(2);
  problem.stages[1].firstLayer = 1;
  problem.placement = {0, 1, 1, 0};
  problem.chains = {0, 0, 1, 1};
  problem.link.latency = 0.5;
  program.ranks.resize(2);
  EXPECT_EQ(
      dump(program),
      R"(pipe.schedule @both ranks(2) microbatches(4) chains([0, 0, 1, 1]) link(#pipe.link<latency = 0.5, bytes_per_time = 0.0>) {
  stage 0 on (0, 1)
  stage 1 on (1, 0)
  rank 0 {
  }
  rank 1 {
  }
}
)");
}

TEST(Text, Slices) {
  Program program;
  Problem &problem = program.problem;
  problem.name = "cut";
  problem.numRanks = 1;
  problem.numMicrobatches = 4;
  problem.stages.resize(1);
  problem.placement = {0};
  setSlices(problem, 2);
  program.ranks.resize(1);
  EXPECT_EQ(problem.numMicrobatches, 8);
  EXPECT_EQ(countedMicrobatches(problem), "4 micro-batches of 2 slices");
  EXPECT_EQ(dump(program),
            "pipe.schedule @cut ranks(1) microbatches(4) slices(2) {\n"
            "  stage 0 on 0\n  rank 0 {\n  }\n}\n");
  setSlices(problem, 1);
  EXPECT_EQ(problem.numMicrobatches, 4);
  EXPECT_EQ(countedMicrobatches(problem), "4 micro-batches");
}

TEST(Text, Symbols) {
  EXPECT_EQ(formatSymbol("a1_$."), "@a1_$.");
  EXPECT_EQ(formatSymbol("_"), "@_");
  EXPECT_EQ(formatSymbol(""), "@\"\"");
  EXPECT_EQ(formatSymbol("1st"), "@\"1st\"");
  EXPECT_EQ(formatSymbol("a b"), "@\"a b\"");
  EXPECT_EQ(formatSymbol("a-b"), "@\"a-b\"");
  EXPECT_EQ(formatSymbol("\"\\\n\xff"), "@\"\\22\\\\\\0A\\FF\"");
}

TEST(Text, CountsThings) {
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(1, "micro-batch"), "1 micro-batch");
  EXPECT_EQ(counted(2, "micro-batch"), "2 micro-batches");
  EXPECT_EQ(counted(3, "stash"), "3 stashes");
  EXPECT_EQ(counted(4, "message"), "4 messages");
}

TEST(Text, EveryInstructionHasItsLine) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Program program = test::RandomProgram(seed).make();
    const std::string text = dump(program);
    size_t lines = std::count(text.begin(), text.end(), '\n');
    size_t expected = 2 + program.problem.stages.size() +
                      2 * program.problem.numRanks + program.numInstructions();
    for (const RankProgram &rank : program.ranks)
      for (size_t i = 1; i < rank.instructions.size(); ++i)
        if (rank.instructions[i].joined && !rank.instructions[i - 1].joined)
          expected += 2;
    EXPECT_EQ(lines, expected) << text;
  }
}

} // namespace
