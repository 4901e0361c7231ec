//===- PlanBuffersTest.cpp - Slots and waits ------------------------------===//

#include "Orders.h"

#include "penstock/Analysis/Certify.h"
#include "penstock/Analysis/Simulate.h"
#include "penstock/Analysis/Verify.h"
#include "penstock/Lowering/Lowering.h"
#include "penstock/Program/Certificate.h"
#include "penstock/Program/Text.h"

#include <map>
#include <sstream>
#include <tuple>

using namespace penstock;
using namespace penstock::test;

static Program lowered(Program program, const BufferOptions &options = {}) {
  Result<TransferStatistics> transfers = insertTransfers(program);
  EXPECT_TRUE(transfers) << transfers.message();
  Result<BufferStatistics> buffers = planBuffers(program, options);
  EXPECT_TRUE(buffers) << buffers.message();
  return program;
}

/// One instruction a line: queue, text, slots by role, waits.
static std::string listing(const RankProgram &rank) {
  std::ostringstream os;
  for (const Instruction &inst : rank.instructions) {
    os << (inst.joined ? "+" : "") << unsigned(inst.queue) << ' '
       << describe(inst) << " [";
    for (int32_t slot : inst.slots)
      os << (slot == kNoSlot ? "-" : std::to_string(slot));
    os << "]";
    for (unsigned w = 0; w < inst.numWaits; ++w)
      os << " after "
         << describe(rank.instructions[rank.waits[inst.firstWait + w]]);
    os << '\n';
  }
  return os.str();
}

TEST(PlanBuffers, SlotsAndWaitsOfASmallPipeline) {
  Problem problem = pipeline(2, 2);
  problem.stages[0].bytes = {10, 200, 0, 0, 0};
  problem.stages[1].bytes = {0, 300, 0, 0, 0};
  const Program program = lowered(*gpipe(problem));
  EXPECT_EQ(program.ranks[0].slotBytes, (std::vector<int64_t>{10, 200, 200}));
  EXPECT_EQ(listing(program.ranks[0]),
            "0 forward 0 mb 0 [--01]\n"
            "1 send activation 0 mb 0 to 1 [0---] after forward 0 mb 0\n"
            "0 forward 0 mb 1 [--02] after send activation 0 mb 0 to 1\n"
            "1 send activation 0 mb 1 to 1 [0---] after forward 0 mb 1\n"
            "1 recv gradient 1 mb 0 from 1 [0---]\n"
            "0 backward 0 mb 0 [-0-1] after recv gradient 1 mb 0 from 1\n"
            "1 recv gradient 1 mb 1 from 1 [0---] after backward 0 mb 0\n"
            "0 backward 0 mb 1 [-0-2] after recv gradient 1 mb 1 from 1\n");
  EXPECT_EQ(program.ranks[1].slotBytes,
            (std::vector<int64_t>{10, 10, 10, 300, 300}));
  EXPECT_EQ(listing(program.ranks[1]),
            "1 recv activation 0 mb 0 from 0 [0---]\n"
            "0 forward 1 mb 0 [0--3] after recv activation 0 mb 0 from 0\n"
            "1 recv activation 0 mb 1 from 0 [1---]\n"
            "0 forward 1 mb 1 [1--4] after recv activation 0 mb 1 from 0\n"
            "0 backward 1 mb 0 [0-23]\n"
            "1 send gradient 1 mb 0 to 0 [2---] after backward 1 mb 0\n"
            "0 backward 1 mb 1 [1-04]\n"
            "1 send gradient 1 mb 1 to 0 [0---] after backward 1 mb 1\n");
}

TEST(PlanBuffers, AGroupWaitsOnceAndIsWaitedForByName) {
  const Program program = lowered(*oneForwardOneBackward(pipeline(2, 3)));
  const std::string text = listing(program.ranks[0]);
  EXPECT_NE(text.find("1 send activation 0 mb 2 to 1 [0---] after forward 0 mb "
                      "2\n"
                      "+1 recv gradient 1 mb 1 from 1 "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("backward 0 mb 1 [-3-2] after recv gradient 1 mb 1 from"),
            std::string::npos)
      << text;
}

TEST(PlanBuffers, OnQueueZeroNothingWaits) {
  const Program program =
      lowered(*oneForwardOneBackward(pipeline(4, 8)), {.transferQueue = 0});
  for (const RankProgram &rank : program.ranks) {
    EXPECT_TRUE(rank.waits.empty());
    for (const Instruction &inst : rank.instructions)
      EXPECT_EQ(inst.queue, 0);
  }
}

TEST(PlanBuffers, OtherQueuesStayAndKeepTheirOrder) {
  Program program = *naive(pipeline(1, 2)); // F0 B0 F1 B1
  Instruction inst;
  inst.op = Op::ReduceGrad;
  inst.stage = 0;
  inst.queue = 3;
  program.ranks[0].instructions.push_back(inst);
  inst.op = Op::Step;
  inst.stage = -1;
  inst.queue = 0;
  program.ranks[0].instructions.push_back(inst);
  inst.op = Op::Unshard;
  inst.stage = 0;
  inst.queue = 5;
  program.ranks[0].instructions.push_back(inst);
  ASSERT_TRUE(planBuffers(program));
  const std::string text = listing(program.ranks[0]);
  EXPECT_NE(text.find("3 reduce_grad 0 [----] after backward 0 mb 1\n"
                      "0 step [----] after reduce_grad 0\n"
                      "5 unshard 0 [----] after step\n"),
            std::string::npos)
      << text;
}

// W reads the parameters, as the verifier has it.
TEST(PlanBuffers, ReshardWaitsForTheWeightPart) {
  Program program = *naive(pipeline(1, 1));
  splitBackward(program); // F0 I0 W0
  auto &list = program.ranks[0].instructions;
  Instruction inst;
  inst.op = Op::Unshard;
  inst.stage = 0;
  list.insert(list.begin(), inst);
  inst.op = Op::Reshard;
  inst.queue = 3;
  list.push_back(inst);
  ASSERT_TRUE(planBuffers(program));
  EXPECT_NE(listing(program.ranks[0])
                .find("3 reshard 0 [----] after backward_weight 0 mb 0\n"),
            std::string::npos)
      << listing(program.ranks[0]);
  EXPECT_TRUE(verify(program).accepted());
}

TEST(PlanBuffers, AWeightPartOnItsOwnQueue) {
  Program program = *naive(pipeline(1, 2));
  splitBackward(program); // F0 I0 W0 F1 I1 W1
  program.ranks[0].instructions[2].queue = 2;
  appendSteps(program);
  ASSERT_TRUE(planBuffers(program));
  EXPECT_EQ(listing(program.ranks[0]),
            "0 forward 0 mb 0 [---0]\n"
            "0 backward_input 0 mb 0 [---0]\n"
            "2 backward_weight 0 mb 0 [---0] after backward_input 0 mb 0\n"
            "0 forward 0 mb 1 [---0] after backward_weight 0 mb 0\n"
            "0 backward_input 0 mb 1 [---0]\n"
            "0 backward_weight 0 mb 1 [---0]\n"
            "0 step [----]\n");
}

TEST(PlanBuffers, PlansAnew) {
  const Program program = lowered(*oneForwardOneBackward(pipeline(3, 4)));
  Program again = program;
  ASSERT_TRUE(planBuffers(again));
  EXPECT_EQ(again, program);
}

TEST(PlanBuffers, WhateverChangesAProgramDropsItsTimes) {
  Program program = *oneForwardOneBackward(pipeline(3, 4));
  for (auto change : std::initializer_list<void (*)(Program &)>{
           [](Program &p) { splitBackward(p); },
           [](Program &p) { appendSteps(p); },
           [](Program &p) { appendSteps(p); },
           [](Program &p) { ASSERT_TRUE(insertTransfers(p)); },
           [](Program &p) { ASSERT_TRUE(planBuffers(p)); }}) {
    ASSERT_TRUE(certify(program));
    ASSERT_TRUE(hasCertificate(program));
    change(program);
    EXPECT_FALSE(hasCertificate(program));
  }
}

TEST(PlanBuffers, AnOverlapSharesNoSlotWithinItself) {
  Program program = *naive(pipeline(1, 2)); // F0 {B0 F1} B1
  program.ranks[0].instructions[2].joined = true;
  ASSERT_TRUE(planBuffers(program));
  EXPECT_EQ(listing(program.ranks[0]), "0 forward 0 mb 0 [---0]\n"
                                       "0 backward 0 mb 0 [---0]\n"
                                       "+0 forward 0 mb 1 [---1]\n"
                                       "0 backward 0 mb 1 [---1]\n");
}

TEST(PlanBuffers, Refuses) {
  auto failure = [](Program program) {
    Result<BufferStatistics> result = planBuffers(program);
    EXPECT_FALSE(result);
    return result ? Failure{"accepted"} : result.failure();
  };
  const Program order = *gpipe(pipeline(2, 1));
  EXPECT_EQ(failure(order).message,
            "gradient 1 mb 0 is not on rank 0 when `backward 0 mb 0` reads it; "
            "insert what computes or receives it before");
  EXPECT_EQ(failure(order).site, (Site{0, 1}));

  Program moves = *naive(pipeline(1, 1));
  offloadStashes(moves);
  auto &copies = moves.ranks[0].instructions; // F offload reload B
  copies[1].peer = 1;
  EXPECT_EQ(failure(moves).message,
            "`offload 0 mb 0 to 1` belongs into an order; insert the transfers "
            "first");
  EXPECT_EQ(failure(moves).site, (Site{0, 1}));
  copies[1].op = Op::Reload;
  copies[1].peer = -1;
  EXPECT_EQ(failure(moves).message,
            "`reload 0 mb 0` gets back what nothing has offloaded before; "
            "offload it first, or remove this");
  EXPECT_EQ(failure(moves).site, (Site{0, 1}));
  copies[1].op = copies[2].op = Op::Offload;
  EXPECT_EQ(failure(moves).message,
            "stash 0 mb 0 is not on rank 0 when `offload 0 mb 0` reads it; "
            "insert what computes or receives it before");
  EXPECT_EQ(failure(moves).site, (Site{0, 2}));

  Program deadlock = *gpipe(pipeline(2, 1, {}, /*latency=*/1));
  ASSERT_TRUE(insertTransfers(deadlock));
  auto &list = deadlock.ranks[1].instructions; // recv F B send
  std::swap(list[0].op, list[3].op);
  EXPECT_EQ(failure(deadlock).message,
            "activation 0 mb 0 is not on rank 1 when `send activation 0 mb 0 "
            "to 0` reads it; insert what computes or receives it before");
  deadlock = *gpipe(pipeline(2, 1, {}, /*latency=*/1));
  ASSERT_TRUE(insertTransfers(deadlock));
  auto &sends = deadlock.ranks[0].instructions; // F send recv B
  std::swap(sends[1], sends[2]);
  EXPECT_EQ(failure(deadlock).message,
            "the program deadlocks, so that its buffers cannot be planned; "
            "verify it first");
}

/// The tensors that each item of a rank touches, by name.
namespace {
struct Use {
  uint32_t item;
  bool writes;
  Tensor tensor;
  int32_t slot;
};
} // namespace

static std::vector<Use> usesOf(const Problem &problem, const RankProgram &rank,
                               std::vector<uint32_t> &itemOf) {
  std::vector<Use> uses;
  uint32_t item = 0;
  for (size_t i = 0; i < rank.instructions.size(); ++i) {
    item += i > 0 && !rank.instructions[i].joined;
    itemOf.push_back(item);
    forEachAccess(
        rank.instructions[i], problem.numStages(), [&](const Access &access) {
          uses.push_back({item, access.mode != Access::Read, access.tensor,
                          rank.instructions[i].slots[access.role]});
        });
  }
  return uses;
}

/// Whether all items of a rank that touch a slot, one of them writing, come one
/// after the other by queues and waits alone. By brute force.
static bool isOrdered(const Problem &problem, const RankProgram &rank) {
  std::vector<uint32_t> itemOf;
  const std::vector<Use> uses = usesOf(problem, rank, itemOf);
  const size_t n = itemOf.empty() ? 0 : itemOf.back() + 1;
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n));
  std::map<int, uint32_t> lastOnQueue;
  for (size_t i = 0; i < rank.instructions.size(); ++i) {
    const Instruction &inst = rank.instructions[i];
    if (inst.joined)
      continue;
    auto after = [&](uint32_t earlier) {
      before[itemOf[i]][earlier] = true;
      for (size_t k = 0; k < n; ++k)
        if (before[earlier][k])
          before[itemOf[i]][k] = true;
    };
    if (auto it = lastOnQueue.find(inst.queue); it != lastOnQueue.end())
      after(it->second);
    lastOnQueue[inst.queue] = itemOf[i];
    for (unsigned w = 0; w < inst.numWaits; ++w)
      after(itemOf[rank.waits[inst.firstWait + w]]);
  }
  for (size_t a = 0; a < uses.size(); ++a)
    for (size_t b = a + 1; b < uses.size(); ++b)
      if (uses[a].slot == uses[b].slot && (uses[a].writes || uses[b].writes) &&
          uses[a].item != uses[b].item && !before[uses[b].item][uses[a].item])
        return false;
  return true;
}

TEST(PlanBuffers, WaitsAreEnoughAndEachIsNeededOnAGrid) {
  forEachOrder(5, 7, [](const Program &order) {
    const Program program = lowered(order);
    for (const RankProgram &rank : program.ranks) {
      EXPECT_TRUE(isOrdered(program.problem, rank)) << listing(rank);
      uint32_t next = 0; // canonical
      for (const Instruction &inst : rank.instructions) {
        EXPECT_EQ(inst.firstWait, inst.numWaits ? next : 0);
        next += inst.numWaits;
      }
      EXPECT_EQ(next, rank.waits.size());
      for (Instruction inst : rank.instructions)
        for (unsigned w = 0; w < inst.numWaits; ++w) {
          RankProgram fewer = rank;
          for (Instruction &head : fewer.instructions)
            if (head == inst) {
              std::swap(fewer.waits[inst.firstWait + w],
                        fewer.waits[inst.firstWait + inst.numWaits - 1]);
              --head.numWaits;
            }
          EXPECT_FALSE(isOrdered(program.problem, fewer))
              << describe(inst) << "\n"
              << listing(rank);
        }
    }
  });
}

TEST(PlanBuffers, NoFewerSlotsCanDoOnAGrid) {
  forEachOrder(8, 16, [](const Program &order) {
    const Program program = lowered(order);
    for (const RankProgram &rank : program.ranks) {
      std::vector<uint32_t> itemOf;
      struct Range {
        uint32_t first, last;
        int64_t bytes;
      };
      std::map<std::tuple<int, int, int>, Range> ranges;
      for (const Use &use : usesOf(program.problem, rank, itemOf)) {
        const Tensor &t = use.tensor;
        ranges.try_emplace({int(t.kind), t.stage, t.microbatch}, use.item,
                           use.item, bytesOf(program.problem, t));
        ranges[{int(t.kind), t.stage, t.microbatch}].last = use.item;
        EXPECT_EQ(rank.slotBytes[use.slot], bytesOf(program.problem, t));
      }
      std::map<int64_t, size_t> slots, overlap;
      for (int64_t bytes : rank.slotBytes)
        ++slots[bytes];
      // An overlap is largest where some range starts.
      for (const auto &[tensor, start] : ranges) {
        size_t alive = 0;
        for (const auto &[other, range] : ranges)
          alive += range.bytes == start.bytes && range.first <= start.first &&
                   range.last >= start.first;
        overlap[start.bytes] = std::max(overlap[start.bytes], alive);
      }
      EXPECT_EQ(slots, overlap);
      EXPECT_TRUE(std::is_sorted(rank.slotBytes.begin(), rank.slotBytes.end()));
    }
  });
}

TEST(PlanBuffers, FreeTransfersCostNoTimeOnAGrid) {
  forEachOrder(8, 16, [](const Program &order) {
    const std::optional<Timing> ideal = simulateOrder(order);
    const std::optional<Timing> real = simulateProgram(lowered(order));
    ASSERT_TRUE(ideal && real);
    EXPECT_EQ(real->makespan, ideal->makespan);
    EXPECT_EQ(real->span, ideal->span);
    EXPECT_EQ(real->bubbleRate, ideal->bubbleRate);
  });
}

TEST(PlanBuffers, FreeTransfersCostNoTimeWhateverTheCosts) {
  // Sums of these differ by rounding with the order of summation.
  for (int32_t m : {8, 24, 64}) {
    const Program order =
        *oneForwardOneBackward(pipeline(8, m, cost(18.522, 18.086, 9.337)));
    EXPECT_NEAR(simulateProgram(lowered(order))->makespan,
                simulateOrder(order)->makespan, 1e-9);
  }
}

TEST(PlanBuffers, EverythingOnTheGridVerifies) {
  forEachOrder(8, 16, [](const Program &order) {
    for (bool group : {false, true}) {
      Program program = order;
      ASSERT_TRUE(insertTransfers(program, {.group = group}));
      for (bool planned : {false, true}) {
        if (planned) {
          ASSERT_TRUE(planBuffers(program));
        }
        const Verdict verdict = verify(program);
        EXPECT_TRUE(verdict.accepted()) << verdict.findings[0].message;
        EXPECT_TRUE(verdict.deadlockFree);
        EXPECT_TRUE(verdict.documentedOk);
        EXPECT_EQ(verdict.minCapacity, 0);
      }
    }
  });
}

TEST(PlanBuffers, TransfersThatTakeTimeVerifyToo) {
  forEachOrder(5, 7, [](Program order) {
    order.problem.link = {0.25, 100};
    const Program program = lowered(order);
    const Verdict verdict = verify(program);
    EXPECT_TRUE(verdict.accepted()) << verdict.findings[0].message;
    for (const RankProgram &rank : program.ranks)
      EXPECT_TRUE(isOrdered(program.problem, rank));
  });
}

/// The program without wait `w` of instruction `i`.
static Program withoutWait(Program program, size_t rank, size_t i, unsigned w) {
  RankProgram &list = program.ranks[rank];
  Instruction &inst = list.instructions[i];
  list.waits.erase(list.waits.begin() + inst.firstWait + w);
  if (--inst.numWaits == 0)
    inst.firstWait = 0;
  for (++i; i < list.instructions.size(); ++i)
    if (list.instructions[i].numWaits)
      --list.instructions[i].firstWait;
  return program;
}

TEST(PlanBuffers, TheVerifierMissesEveryWait) {
  forEachOrder(4, 4, [](const Program &order) {
    const Program program = lowered(order);
    for (size_t r = 0; r < program.ranks.size(); ++r)
      for (size_t i = 0; i < program.ranks[r].instructions.size(); ++i) {
        const Instruction &inst = program.ranks[r].instructions[i];
        for (unsigned w = 0; w < inst.numWaits; ++w)
          EXPECT_FALSE(verify(withoutWait(program, r, i, w)).accepted())
              << "rank " << r << ": " << describe(inst) << "\n"
              << listing(program.ranks[r]);
      }
  });
}

// P. Qi et al. (arXiv:2401.10241), table 6: 1F1B whose transfers take time.
// With the fewest slots the makespan would be 1462.759.
TEST(PlanBuffers, SlotsThatAreStillOnTheirWayAreNotReused) {
  Problem problem = pipeline(8, 24, cost(18.522, 18.086, 9.337), 0.601);
  for (Stage &stage : problem.stages)
    stage.bytes = {1000, 5000, 0, 0, 0};
  const Program order = *oneForwardOneBackward(problem);
  EXPECT_NEAR(simulateOrder(order)->makespan, 1456.749, 0.001);
  const Program program = lowered(order);
  EXPECT_NEAR(simulateProgram(program)->makespan, 1459.153, 0.001);

  // Rather wait than run out of memory.
  Program tight = order;
  tight.problem.memory = 1;
  ASSERT_TRUE(insertTransfers(tight, {.placement = TransferPlacement::Time}));
  ASSERT_TRUE(planBuffers(tight));
  EXPECT_NEAR(simulateProgram(tight)->makespan, 1462.759, 0.001);
}

//===----------------------------------------------------------------------===//
// Stashes in host memory
//===----------------------------------------------------------------------===//

/// F0 F1 F2 B0 B1 B2, of which 0 and 2 go to host memory.
static Program offloaded() {
  Problem problem = pipeline(1, 3);
  problem.stages[0].bytes.stash = 10;
  problem.hostLink.latency = 0.5;
  Program order = *gpipe(problem);
  offloadStashes(order);
  return lowered(order);
}

TEST(PlanBuffers, StashesInHostMemory) {
  const Program program = offloaded();
  EXPECT_EQ(program.ranks[0].hostSlotBytes, (std::vector<int64_t>{10, 10}));
  EXPECT_EQ(program.ranks[0].slotBytes, (std::vector<int64_t>{10, 10}));
  EXPECT_EQ(listing(program.ranks[0]),
            "0 forward 0 mb 0 [---0]\n"
            "2 offload 0 mb 0 [00--] after forward 0 mb 0\n"
            "0 forward 0 mb 1 [---1]\n"
            "0 forward 0 mb 2 [---0] after offload 0 mb 0\n"
            "2 offload 0 mb 2 [01--] after forward 0 mb 2\n"
            "2 reload 0 mb 0 [00--]\n"
            "0 backward 0 mb 0 [---0] after reload 0 mb 0\n"
            "0 backward 0 mb 1 [---1]\n"
            "2 reload 0 mb 2 [01--] after backward 0 mb 1\n"
            "0 backward 0 mb 2 [---0] after reload 0 mb 2\n");
}

TEST(PlanBuffers, CopiesToHostMemoryCostWhatTheOrderSays) {
  for (double time : {0.0, 0.25, 1.0, 3.5})
    for (size_t ahead : {0, 1, 3})
      forEachOrder(4, 7, [&](Program order) {
        SCOPED_TRACE(time);
        SCOPED_TRACE(ahead);
        order.problem.hostLink.latency = time;
        offloadStashes(order, ahead);
        const std::optional<Timing> ideal = simulateOrder(order);
        const Program program = lowered(order);
        const Verdict verdict = verify(program);
        EXPECT_TRUE(verdict.accepted()) << verdict.findings[0].message;
        const std::optional<Timing> real = simulateProgram(program);
        ASSERT_TRUE(ideal && real);
        EXPECT_DOUBLE_EQ(real->makespan, ideal->makespan);
        for (size_t r = 0; r < program.ranks.size(); ++r)
          EXPECT_EQ(real->ranks[r].peakActivations,
                    ideal->ranks[r].peakActivations);
      });
}

TEST(PlanBuffers, SlotsInHostMemoryAreReused) {
  Problem problem = pipeline(4, 16);
  for (Stage &stage : problem.stages)
    stage.bytes.stash = 1000;
  problem.hostLink.latency = 0.5;
  Program order = *oneForwardOneBackward(problem);
  const Program without = lowered(order);
  offloadStashes(order);
  const Program program = lowered(order);
  // Of four stashes on rank 0 two are of even micro-batches.
  EXPECT_EQ(program.ranks[0].hostSlotBytes, (std::vector<int64_t>{1000, 1000}));
  auto stashes = [](const Program &p) {
    return std::count(p.ranks[0].slotBytes.begin(), p.ranks[0].slotBytes.end(),
                      1000);
  };
  EXPECT_EQ(stashes(without), 4);
  EXPECT_EQ(stashes(program), 3);
}

TEST(PlanBuffers, RatherWaitsForAnOffloadThanRunsOutOfMemory) {
  Problem problem = pipeline(1, 3);
  problem.stages[0].bytes.stash = 256;
  problem.hostLink.latency = 2;
  Program order = *gpipe(problem, {.descending = true}); // F0 F1 F2 B2 B1 B0
  offloadStashes(order, /*ahead=*/1);
  std::erase_if(order.ranks[0].instructions, [](const Instruction &inst) {
    return movesToHost(inst) && inst.microbatch == 2;
  });
  const Program ample = lowered(order);
  EXPECT_EQ(ample.ranks[0].slotBytes.size(), 3u);
  EXPECT_EQ(simulateProgram(ample)->makespan, 9);
  order.problem.memory = 512;
  const Program tight = lowered(order);
  EXPECT_EQ(tight.ranks[0].slotBytes.size(), 2u);
  EXPECT_GT(simulateProgram(tight)->makespan, 9);
  EXPECT_TRUE(verify(tight).accepted());
}

TEST(PlanBuffers, CopiesStayOnQueueZeroWithTheTransfers) {
  Program order = *oneForwardOneBackward(pipeline(2, 4));
  offloadStashes(order);
  const Program program = lowered(order, {.transferQueue = 0});
  for (const RankProgram &rank : program.ranks)
    for (const Instruction &inst : rank.instructions)
      EXPECT_EQ(inst.queue, 0);
  EXPECT_TRUE(verify(program).accepted());
  // Else on a queue that nothing else is on.
  order.ranks[0].instructions.back().queue = 4;
  for (const RankProgram &rank : lowered(order, {.transferQueue = 3}).ranks)
    for (const Instruction &inst : rank.instructions)
      if (movesToHost(inst)) {
        EXPECT_EQ(inst.queue, 5);
      }
}

TEST(PlanBuffers, TheVerifierMissesTheWaitsOfCopies) {
  const Program program = offloaded(); // see StashesInHostMemory
  auto message = [&](size_t i) {
    const Verdict verdict = verify(withoutWait(program, 0, i, 0));
    return verdict.accepted() ? "" : verdict.findings[0].message;
  };
  EXPECT_EQ(message(1), "offloads stash 0 mb 0 on queue 2, not ordered after "
                        "`forward 0 mb 0` on queue 0, which writes it; let it "
                        "wait for that");
  EXPECT_EQ(message(3),
            "writes slot 0 on queue 0, not ordered after `offload 0 "
            "mb 0` on queue 2, which copies it; let it wait for "
            "that");
  EXPECT_EQ(message(6), "reads stash 0 mb 0 on queue 0, not ordered after "
                        "`reload 0 mb 0` on queue 2, which writes it; let it "
                        "wait for that");
  EXPECT_EQ(message(8), "reloads stash 0 mb 2 on queue 2, not ordered after "
                        "`backward 0 mb 0` on queue 0, which reads it; let it "
                        "wait for that");
}

TEST(PlanBuffers, TheVerifierKnowsWhatIsInHostMemory) {
  const Program program = offloaded();
  auto message = [&](void (*change)(RankProgram &)) {
    Program changed = program;
    change(changed.ranks[0]);
    const Verdict verdict = verify(changed);
    return verdict.accepted() ? "" : verdict.findings[0].message;
  };
  EXPECT_EQ(message([](RankProgram &) {}), "");
  EXPECT_EQ(message([](RankProgram &rank) {
              std::swap(rank.instructions[5].slots[Host],
                        rank.instructions[8].slots[Host]);
            }),
            "reloads stash 0 mb 0 from host slot 1, which holds stash 0 mb 2; "
            "name the one that it was offloaded to");
  EXPECT_EQ(message([](RankProgram &rank) {
              rank.instructions[1].slots[Host] =
                  rank.instructions[4].slots[Host] = 1;
            }),
            "reloads stash 0 mb 0 from host slot 0, into which nothing has "
            "been offloaded before; offload it there first, or remove this");
  EXPECT_EQ(message([](RankProgram &rank) { rank.hostSlotBytes[0] = 9; }),
            "puts stash 0 mb 0 of 10 bytes into host slot 0, which has 9; use "
            "a larger one");
  EXPECT_EQ(message([](RankProgram &rank) {
              rank.instructions[4].slots[Host] = kNoSlot;
            }),
            "has no host slot for stash 0 mb 2, which it offloads; plan the "
            "buffers");
  EXPECT_EQ(message([](RankProgram &rank) {
              rank.instructions[5].slots[Slot] = kNoSlot;
            }),
            "has no slot for stash 0 mb 0, which it reloads; plan the buffers");
  EXPECT_EQ(
      message([](RankProgram &rank) { rank.instructions[5].slots[Slot] = 1; }),
      "reads stash 0 mb 0 from slot 0, which `offload 0 mb 2` has emptied; "
      "`reload 0 mb 0` puts it into slot 1, so name that one");
}
