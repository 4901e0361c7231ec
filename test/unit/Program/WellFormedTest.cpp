//===- WellFormedTest.cpp - What every program fulfils --------------------===//

#include "penstock/Program/File.h"

#include "RandomProgram.h"

#include <functional>
#include <gtest/gtest.h>
#include <limits>

using namespace penstock;

namespace {

Instruction make(Op op, int32_t stage = -1, int32_t microbatch = -1) {
  Instruction inst;
  inst.op = op;
  inst.stage = stage;
  inst.microbatch = microbatch;
  return inst;
}

/// Two ranks, two stages and two chains; on rank 0:
///   0 forward 0 mb 0, slots 0 and 1
///   1 send activation 0 mb 0 to 1, queue 1, after 0   } a group
///   2 recv gradient 1 mb 0 from 1, queue 1            }
///   3 backward 0 mb 0, after 2 and 0
///   4 all_reduce 0 over {0, 1}
///   5 barrier over {0}
///   6 step
Program valid() {
  Program program;
  Problem &problem = program.problem;
  problem.name = "valid";
  problem.numRanks = 2;
  problem.numMicrobatches = 3;
  problem.stages.resize(2);
  problem.placement = {0, 1, 1, 0};
  problem.chains = {0, 1, 0};
  program.ranks.resize(2);
  program.rankSets = {{0, 1}, {0}};
  RankProgram &rank = program.ranks[0];
  rank.slotBytes = {8, 16};
  rank.waits = {0, 2, 0};
  Instruction forward = make(Op::Forward, 0, 0);
  forward.slots = {-1, -1, 0, 1};
  Instruction send = make(Op::Send, 0, 0);
  send.payload = Payload::Activation;
  send.peer = 1;
  send.queue = 1;
  send.bytes = 8;
  send.numWaits = 1;
  Instruction recv = make(Op::Recv, 1, 0);
  recv.payload = Payload::Gradient;
  recv.peer = 1;
  recv.queue = 1;
  recv.joined = true;
  Instruction backward = make(Op::Backward, 0, 0);
  backward.firstWait = 1;
  backward.numWaits = 2;
  Instruction reduce = make(Op::AllReduce, 0);
  reduce.peer = 0;
  Instruction barrier = make(Op::Barrier);
  barrier.peer = 1;
  rank.instructions = {forward, send,    recv,          backward,
                       reduce,  barrier, make(Op::Step)};
  return program;
}

struct Fault {
  std::function<void(Program &)> make;
  Site site;
  std::string message;
};

/// Expects that the change makes the valid program ill-formed, in this way.
void expectFaults(const std::vector<Fault> &faults) {
  for (const Fault &fault : faults) {
    Program program = valid();
    ASSERT_TRUE(wellFormed(program));
    fault.make(program);
    Status status = wellFormed(program);
    ASSERT_FALSE(status) << fault.message;
    EXPECT_EQ(status.message(), fault.message);
    EXPECT_EQ(status.failure().site, fault.site) << fault.message;
  }
}

const Site kWhole;
const double kNaN = std::numeric_limits<double>::quiet_NaN();
const double kInfinity = std::numeric_limits<double>::infinity();

TEST(WellFormed, Slices) {
  auto cut = [](Program &p, int32_t slices) {
    p.problem.placement = {0, 1};
    p.problem.chains.clear();
    setSlices(p.problem, slices);
  };
  Program program = valid();
  cut(program, 3);
  EXPECT_TRUE(wellFormed(program));
  expectFaults({
      {[](Program &p) { p.problem.slices = 0; }, kWhole,
       "the number of slices of a micro-batch is 0; it must be 1 to "
       "1073741824"},
      {[](Program &p) { p.problem.slices = -1; }, kWhole,
       "the number of slices of a micro-batch is -1; it must be 1 to "
       "1073741824"},
      {[&](Program &p) { cut(p, 1 << 29); }, kWhole,
       "micro-batches of 536870912 slices are more than 1073741824 slices in "
       "all; give fewer micro-batches or slices"},
      {[](Program &p) { p.problem.slices = 2; }, kWhole,
       "the number of slices in all is 3; it must be a multiple of the 2 "
       "slices of a micro-batch"},
      {[](Program &p) { setSlices(p.problem, 2); }, kWhole,
       "micro-batches that are cut into slices have one chain; drop the 2 "
       "slices or the chains"},
  });
}

TEST(WellFormed, Counts) {
  expectFaults({
      {[](Program &p) { p.problem.numRanks = 0; }, kWhole,
       "the number of ranks is 0; it must be 1 to 1048576"},
      {[](Program &p) { p.problem.numRanks = kMaxRanks + 1; }, kWhole,
       "the number of ranks is 1048577; it must be 1 to 1048576"},
      {[](Program &p) { p.problem.numMicrobatches = 0; }, kWhole,
       "the number of micro-batches is 0; it must be 1 to 1073741824"},
      {[](Program &p) { p.problem.numMicrobatches = -5; }, kWhole,
       "the number of micro-batches is -5; it must be 1 to 1073741824"},
      {[](Program &p) { p.problem.stages.clear(); }, kWhole,
       "the number of stages is 0; it must be 1 to 1048576"},
      {[](Program &p) { p.ranks.pop_back(); }, kWhole,
       "there are instructions for 1 of 2 ranks; give every rank a list, an "
       "empty one too"},
  });
}

TEST(WellFormed, Stages) {
  expectFaults({
      {[](Program &p) { p.problem.stages[1].firstLayer = -1; }, kWhole,
       "stage 1: the first layer is -1; it must be 0 to 2147483647"},
      {[](Program &p) { p.problem.stages[1].numLayers = 0; }, kWhole,
       "stage 1: the number of layers is 0; it must be 1 to 2147483647"},
      {[](Program &p) { p.problem.stages[0].firstLayer = INT32_MAX; }, kWhole,
       "stage 0: the number of layers is 1; it must be 1 to 0"},
      {[](Program &p) { p.problem.stages[0].cost.forward = kNaN; }, kWhole,
       "stage 0: the forward cost is nan; it must be finite and not negative"},
      {[](Program &p) { p.problem.stages[0].cost.backward = -1; }, kWhole,
       "stage 0: the backward cost is -1; it must be finite and not negative"},
      {[](Program &p) { p.problem.stages[0].cost.input = kInfinity; }, kWhole,
       "stage 0: the input-gradient cost is inf; it must be finite and not "
       "negative"},
      {[](Program &p) { p.problem.stages[0].cost.weight = -0.0; }, kWhole,
       "stage 0: the weight-gradient cost is -0; it must be finite and not "
       "negative"},
      {[](Program &p) { p.problem.stages[0].cost.recompute = -2.5; }, kWhole,
       "stage 0: the recompute cost is -2.5; it must be finite and not "
       "negative"},
      {[](Program &p) { p.problem.stages[1].bytes.output = -1; }, kWhole,
       "stage 1: the size of the output is -1; it must be 0 to 1099511627776"},
      {[](Program &p) { p.problem.stages[1].bytes.stash = kMaxBytes + 1; },
       kWhole,
       "stage 1: the size of the stash is 1099511627777; it must be 0 to "
       "1099511627776"},
      {[](Program &p) { p.problem.stages[1].bytes.parameters = -1; }, kWhole,
       "stage 1: the size of the parameters is -1; it must be 0 to "
       "1099511627776"},
      {[](Program &p) { p.problem.stages[1].bytes.gradients = -1; }, kWhole,
       "stage 1: the size of the gradients is -1; it must be 0 to "
       "1099511627776"},
      {[](Program &p) { p.problem.stages[1].bytes.optimizer = -1; }, kWhole,
       "stage 1: the size of the optimizer state is -1; it must be 0 to "
       "1099511627776"},
  });
}

TEST(WellFormed, PlacementAndChains) {
  expectFaults({
      {[](Program &p) { p.problem.placement.pop_back(); }, kWhole,
       "the placement has 3 entries for 2 stages; give every stage one rank "
       "per chain"},
      {[](Program &p) { p.problem.placement.clear(); }, kWhole,
       "the placement has 0 entries for 2 stages; give every stage one rank "
       "per chain"},
      {[](Program &p) { p.problem.placement.resize(2 * 257); }, kWhole,
       "the number of chains is 257; it must be 1 to 256"},
      {[](Program &p) { p.problem.placement[3] = 2; }, kWhole,
       "stage 1 on chain 1: its rank is 2; it must be 0 to 1"},
      {[](Program &p) { p.problem.placement[0] = -1; }, kWhole,
       "stage 0 on chain 0: its rank is -1; it must be 0 to 1"},
      {[](Program &p) { p.problem.chains.pop_back(); }, kWhole,
       "there are chains for 2 of 3 micro-batches; give one for each, or none"},
      {[](Program &p) {
         p.problem.weights = {1, 2};
       },
       kWhole,
       "there are weights for 2 of 3 micro-batches; give one for each, or "
       "none"},
      {[](Program &p) {
         p.problem.weights = {1, 2, 3};
         p.problem.slices = 3;
         p.problem.chains.clear();
         p.problem.placement.resize(2);
       },
       kWhole,
       "micro-batches that are cut into slices have no weights; drop the 3 "
       "slices or the weights"},
      {[](Program &p) {
         p.problem.weights = {1, 2, -1};
       },
       kWhole,
       "micro-batch 2: its weight is -1; it must be finite and not negative"},
      {[](Program &p) {
         p.problem.weights = {kNaN, 2, 1};
       },
       kWhole,
       "micro-batch 0: its weight is nan; it must be finite and not negative"},
      {[](Program &p) {
         p.problem.weights = {0, 0, 0};
       },
       kWhole,
       "the weights of all micro-batches are 0, so that nothing would be "
       "learnt; give one a weight, or drop them"},
      {[](Program &p) { p.problem.tied = {{{1}}}; }, kWhole,
       "a set of tied stages has 1; name at least two, or drop it"},
      {[](Program &p) { p.problem.tied = {{{}}}; }, kWhole,
       "a set of tied stages has 0; name at least two, or drop it"},
      {[](Program &p) {
         p.problem.tied = {{{0, 2}}};
       },
       kWhole, "a tied stage is 2; it must be 0 to 1"},
      {[](Program &p) {
         p.problem.tied = {{{0, 0}}};
       },
       kWhole, "stage 0 is tied twice; name it in one set, once"},
      {[](Program &p) {
         p.problem.tied = {{{0, 1}}, {{0, 1}}};
       },
       kWhole, "stage 0 is tied twice; name it in one set, once"},
      {[](Program &p) {
         p.problem.tied = {{{1, 0}}};
       },
       kWhole,
       "tied stage 0 stands after 1; sort each set, and the sets by their "
       "first stages"},
      {[](Program &p) {
         p.problem.tied = {{{0, 1}, -4}};
       },
       kWhole,
       "tied stage 0: the size of what is tied is -4; it must be 0 to "
       "1099511627776"},
      {[](Program &p) { p.problem.overlap = 1.5; }, kWhole,
       "the overlap is 1.5; it must be 0 to 1, the part of the shorter "
       "actions that running together hides"},
      {[](Program &p) { p.problem.overlap = kNaN; }, kWhole,
       "the overlap is nan; it must be 0 to 1, the part of the shorter "
       "actions that running together hides"},
      {[](Program &p) { p.ranks[0].instructions[4].op = Op::ReduceTied; },
       {0, 4},
       "no set of tied stages begins with stage 0; name the first stage of "
       "one, or tie the stages"},
      {[](Program &p) { p.problem.chains[1] = 2; }, kWhole,
       "micro-batch 1: its chain is 2; it must be 0 to 1"},
  });
}

TEST(WellFormed, Machine) {
  expectFaults({
      {[](Program &p) { p.problem.link.latency = -1; }, kWhole,
       "the latency of the link is -1; it must be finite and not negative"},
      {[](Program &p) { p.problem.link.bytesPerTime = kInfinity; }, kWhole,
       "the bandwidth of the link (bytes per time) is inf; it must be finite "
       "and not negative"},
      {[](Program &p) { p.problem.hostLink.latency = -1; }, kWhole,
       "the latency of the link to host memory is -1; it must be finite and "
       "not negative"},
      {[](Program &p) {
         p.problem.hostLink.bytesPerTime =
             std::numeric_limits<double>::quiet_NaN();
       },
       kWhole,
       "the bandwidth of the link to host memory (bytes per time) is nan; it "
       "must be finite and not negative"},
      {[](Program &p) { p.problem.memory = -1; }, kWhole,
       "the memory of a rank is -1; it must be 0 to 9223372036854775807"},
  });
}

TEST(WellFormed, BytesThatOverflow) {
  auto large = [](Program &p) {
    p = {};
    p.problem.numRanks = 1;
    p.problem.placement = {0};
    p.problem.stages.resize(1);
    p.problem.stages[0].bytes.stash = kMaxBytes;
    p.ranks.resize(1);
  };
  expectFaults({{[&](Program &p) {
                   large(p);
                   p.problem.numMicrobatches = 1 << 22; // 2^62 bytes
                 },
                 kWhole,
                 "the stashes, weights and outputs of a micro-batch, "
                 "1.09951e+12 bytes on all stages, are 4.61169e+18 bytes for "
                 "all 4194304; sums of 4.61169e+18 or more cannot be computed "
                 "with, give fewer micro-batches or smaller sizes"}});
  Program program;
  large(program);
  program.problem.numMicrobatches = (1 << 22) - 1;
  EXPECT_TRUE(wellFormed(program));
}

TEST(WellFormed, TimesThatOverflow) {
  expectFaults({
      {[](Program &p) { p.problem.stages[1].cost.weight = 1e308; }, kWhole,
       "the weight-gradient cost of stage 1 is 1e+308; times that add up to "
       "1e+300 or more cannot be computed with, choose a larger unit of time"},
      {[](Program &p) { // three micro-batches
         p.problem.stages[0].cost.forward = 2e299;
         p.problem.stages[0].cost.backward = 1.5e299;
       },
       kWhole,
       "the forward cost of stage 0 is 2e+299; times that add up to 1e+300 or "
       "more cannot be computed with, choose a larger unit of time"},
      {[](Program &p) { p.problem.link.latency = 1e300; }, kWhole,
       "the time of a transfer of 1 TiB over the link is 1e+300; times that "
       "add up to 1e+300 or more cannot be computed with, choose a larger unit "
       "of time"},
      {[](Program &p) { p.problem.hostLink.latency = 1e300; }, kWhole,
       "the time of a copy of 1 TiB to host memory is 1e+300; times that add "
       "up to 1e+300 or more cannot be computed with, choose a larger unit of "
       "time"},
      {[](Program &p) { p.problem.link.bytesPerTime = 1e-300; }, kWhole,
       "the time of a transfer of 1 TiB over the link is inf; times that add "
       "up to 1e+300 or more cannot be computed with, choose a larger unit of "
       "time"},
  });
  Program program = valid();
  program.problem.stages[0].cost.forward = 2.5e299;
  program.problem.link = {1e298, 1e-280};
  EXPECT_TRUE(wellFormed(program));
}

TEST(WellFormed, RankSets) {
  expectFaults({
      {[](Program &p) { p.rankSets[1].clear(); }, kWhole,
       "rank set 1 is empty; a collective needs a rank"},
      {[](Program &p) {
         p.rankSets[0] = {0, 2};
       },
       kWhole, "rank set 0: a member is 2; it must be 0 to 1"},
      {[](Program &p) {
         p.rankSets[0] = {1, 0};
       },
       kWhole, "rank set 0 has 0 after 1; sort the ranks and name each once"},
      {[](Program &p) {
         p.rankSets[0] = {1, 1};
       },
       kWhole, "rank set 0 has 1 after 1; sort the ranks and name each once"},
      {[](Program &p) {
         p.rankSets[1] = {0, 1};
       },
       kWhole, "rank sets 0 and 1 are equal; use the first for both"},
      {[](Program &p) { p.rankSets.push_back({1}); }, kWhole,
       "no collective uses rank set 2; drop it"},
      {[](Program &p) { p.ranks[0].instructions[4].peer = 2; },
       {0, 4},
       "the rank set is 2; there are 2, and -1 means all ranks"},
      {[](Program &p) { p.ranks[0].instructions[4].peer = -2; },
       {0, 4},
       "the rank set is -2; there are 2, and -1 means all ranks"},
      {[](Program &p) { p.ranks[0].instructions[4].peer = 1; },
       {0, 4},
       "uses rank set 1 before 0; number rank sets by first use"},
  });
}

TEST(WellFormed, Slots) {
  expectFaults({
      {[](Program &p) { p.ranks[0].slotBytes[1] = -1; },
       {0, kNoInstruction},
       "slot 1: its size is -1; it must be 0 to 1099511627776"},
      {[](Program &p) {
         p.ranks[1].slotBytes.assign(size_t(1) << 22, kMaxBytes);
       },
       {1, kNoInstruction},
       "the slots need more than 2^62 bytes; make them smaller"},
      {[](Program &p) { p.ranks[0].instructions[0].slots[Stash] = 2; },
       {0, 0},
       "slot 2 does not exist; the rank has 2"},
      {[](Program &p) {
         p.ranks[0].instructions[6] = make(Op::Offload, 0, 0);
         p.ranks[0].instructions[6].slots[Host] = 1;
         p.ranks[0].hostSlotBytes = {8};
       },
       {0, 6},
       "host slot 1 does not exist; the rank has 1"},
      {[](Program &p) {
         p.ranks[0].instructions[6] = make(Op::Offload, 0, 0);
         p.ranks[0].instructions[6].peer = 1; // in an order
         p.ranks[0].instructions[6].slots[Slot] = 1;
       },
       {0, 6},
       "has slot 1 as operand 0, which the op does not take; set it to -1"},
      {[](Program &p) {
         p.ranks[0].hostSlotBytes = {8, -1};
       },
       {0, kNoInstruction},
       "host slot 1: its size is -1; it must be 0 to 1099511627776"},
      {[](Program &p) { p.ranks[0].instructions[0].slots[Input] = -2; },
       {0, 0},
       "slot -2 does not exist; the rank has 2"},
      {[](Program &p) { p.ranks[0].instructions[1].slots[1] = 0; },
       {0, 1},
       "has slot 0 as operand 1, which the op does not take; set it to -1"},
      {[](Program &p) { p.ranks[0].instructions[6].slots[0] = 0; },
       {0, 6},
       "has slot 0 as operand 0, which the op does not take; set it to -1"},
  });
}

TEST(WellFormed, Names) {
  expectFaults({
      {[](Program &p) { p.ranks[0].instructions[0].op = Op(kNumOps); },
       {0, 0},
       "the op is 18; it must be 0 to 17"},
      {[](Program &p) { p.ranks[0].instructions[0].stage = 2; },
       {0, 0},
       "the stage is 2; it must be 0 to 1"},
      {[](Program &p) { p.ranks[0].instructions[4].stage = -1; },
       {0, 4},
       "the stage is -1; it must be 0 to 1"},
      {[](Program &p) { p.ranks[0].instructions[6].stage = -2; },
       {0, 6},
       "the stage is -2; it must be 0 to 1"},
      {[](Program &p) { p.ranks[0].instructions[5].stage = 1; },
       {0, 5},
       "has stage 1, which the op does not take; set it to -1"},
      {[](Program &p) { p.ranks[0].instructions[3].microbatch = 3; },
       {0, 3},
       "the micro-batch is 3; it must be 0 to 2"},
      {[](Program &p) { p.ranks[0].instructions[5].microbatch = 0; },
       {0, 5},
       "has micro-batch 0, which the op does not take; set it to -1"},
      {[](Program &p) { p.ranks[0].instructions[6].microbatch = 0; },
       {0, 6},
       "has micro-batch 0 and no stage; name the stage too"},
  });
}

TEST(WellFormed, TransfersAndCollectives) {
  expectFaults({
      {[](Program &p) { p.ranks[0].instructions[1].payload = Payload::None; },
       {0, 1},
       "the payload is 0; a transfer moves an activation (1), a gradient (2), "
       "a stash (3) or a state (4)"},
      {[](Program &p) { p.ranks[0].instructions[1].payload = Payload(5); },
       {0, 1},
       "the payload is 5; a transfer moves an activation (1), a gradient (2), "
       "a stash (3) or a state (4)"},
      {[](Program &p) {
         p.ranks[0].instructions[0].payload = Payload::Gradient;
       },
       {0, 0},
       "has payload 2; only transfers have one"},
      {[](Program &p) { p.ranks[0].instructions[1].peer = 0; },
       {0, 1},
       "is a transfer of the rank with itself; use the tensor where it is"},
      {[](Program &p) { p.ranks[0].instructions[1].peer = 2; },
       {0, 1},
       "the peer is 2; it must be 0 to 1"},
      {[](Program &p) { p.ranks[0].instructions[0].peer = 1; },
       {0, 0},
       "has peer 1, which the op does not take; set it to -1"},
      {[](Program &p) { p.ranks[0].instructions[1].bytes = -1; },
       {0, 1},
       "the number of bytes is -1; it must be 0 to 1099511627776"},
      {[](Program &p) { p.ranks[0].instructions[0].bytes = 1; },
       {0, 0},
       "has 1 bytes and communicator 0; only transfers and collectives have "
       "these"},
      {[](Program &p) { p.ranks[0].instructions[0].comm = 1; },
       {0, 0},
       "has 0 bytes and communicator 1; only transfers and collectives have "
       "these"},
  });
}

TEST(WellFormed, Items) {
  expectFaults({
      {[](Program &p) { p.ranks[0].instructions[0].joined = true; },
       {0, 0},
       "is joined to the instruction before it, but is the first of the rank; "
       "clear the flag"},
      {[](Program &p) { p.ranks[0].instructions[1].joined = true; },
       {0, 1},
       "is joined to `forward 0 mb 0`; only transfers form a group and only "
       "actions an overlap"},
      {[](Program &p) { p.ranks[0].instructions[5].joined = true; },
       {0, 5},
       "is joined to `all_reduce 0`; only transfers form a group and only "
       "actions an overlap"},
      {[](Program &p) { p.ranks[0].instructions[2].queue = 2; },
       {0, 2},
       "is on queue 2 and joined to `send activation 0 mb 0 to 1` on queue 1; "
       "an item has one queue"},
      {[](Program &p) {
         Instruction overlapped = p.ranks[0].instructions[3];
         overlapped.joined = true;
         overlapped.firstWait = 3;
         overlapped.numWaits = 1;
         p.ranks[0].waits.push_back(0);
         p.ranks[0].instructions.insert(p.ranks[0].instructions.begin() + 4,
                                        overlapped);
       },
       {0, 4},
       "is joined to the instruction before it and has waits; give them to the "
       "first instruction of the item"},
  });
}

TEST(WellFormed, Waits) {
  expectFaults({
      {[](Program &p) { p.ranks[0].waits[0] = 1; },
       {0, 1},
       "waits for instruction 1; only earlier ones of the same rank can be "
       "waited for"},
      {[](Program &p) { p.ranks[0].waits[2] = kNoInstruction; },
       {0, 3},
       "waits for instruction 4294967295; only earlier ones of the same rank "
       "can be waited for"},
      {[](Program &p) { p.ranks[0].instructions[3].firstWait = 0; },
       {0, 3},
       "its waits begin at 0; they must begin at 1, where the ones before end "
       "(0 where there is none)"},
      {[](Program &p) { p.ranks[0].instructions[6].firstWait = 3; },
       {0, 6},
       "its waits begin at 3; they must begin at 0, where the ones before end "
       "(0 where there is none)"},
      {[](Program &p) { p.ranks[0].instructions[3].numWaits = 3; },
       {0, 3},
       "has 3 waits from 1 on, but the rank has only 3"},
      {[](Program &p) { p.ranks[0].waits.push_back(0); },
       {0, kNoInstruction},
       "has 4 waits, of which the instructions use 3; drop the others"},
  });
}

TEST(WellFormed, SizeOfTheFile) {
  const Program program = valid();
  const size_t bytes = estimateFileBytes(program);
  EXPECT_TRUE(wellFormed(program, bytes));
  Status status = wellFormed(program, bytes - 1);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.message(), "the program needs " + std::to_string(bytes) +
                                  " bytes, but a program file holds at most " +
                                  std::to_string(bytes - 1) +
                                  "; use fewer micro-batches");
}

TEST(WellFormed, EverythingThatIsAllowed) {
  Program program = valid();
  auto &instructions = program.ranks[0].instructions;
  instructions[4].peer = -1; // all ranks
  instructions[5].peer = 0;
  program.rankSets = {{1}};
  instructions[6].stage = 1; // a step of one stage, of one micro-batch
  EXPECT_TRUE(wellFormed(program));
  instructions[6].microbatch = 2;
  EXPECT_TRUE(wellFormed(program));
  instructions[4].microbatch = 1; // a reduction too
  EXPECT_TRUE(wellFormed(program));
  program.problem.chains.clear(); // all on the first chain
  EXPECT_TRUE(wellFormed(program));
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Program random = test::RandomProgram(seed).make();
    Status status = wellFormed(random);
    ASSERT_TRUE(status) << seed << ": " << status.message() << "\n"
                        << dump(random);
  }
}

} // namespace
