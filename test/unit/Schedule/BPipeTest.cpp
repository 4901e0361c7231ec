//===- BPipeTest.cpp - Activations that spend time on another rank --------===//

#include "../Support/FamilyChecks.h"

#include "penstock/Analysis/Footprint.h"
#include "penstock/Analysis/Reduce.h"
#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"

using namespace penstock;
using namespace penstock::test;

namespace {

/// "F0 F1 >1 F2 <1 B0": > is an offload, < a reload.
std::string withMoves(const RankProgram &rank) {
  std::string text;
  for (const Instruction &inst : rank.instructions) {
    text += text.empty() ? "" : " ";
    text += inst.op == Op::Offload  ? '>'
            : inst.op == Op::Reload ? '<'
                                    : letter(inst.op);
    text += std::to_string(inst.microbatch);
  }
  return text;
}

int64_t capOf(int32_t p) { return (p + 3) / 2; }

TEST(BPipe, Order) {
  const Result<Program> order = bPipe(pipeline(4, 8));
  ASSERT_TRUE(order);
  EXPECT_EQ(withMoves(order->ranks[0]),
            "F0 F1 F2 >2 F3 B0 F4 B1 F5 >5 <2 B2 F6 B3 F7 B4 <5 B5 B6 B7");
  EXPECT_EQ(describe(order->ranks[0].instructions[3]), "offload 0 mb 2 to 3");
  EXPECT_EQ(describe(order->ranks[0].instructions[10]), "reload 0 mb 2 from 3");
  const Result<Program> plain = oneForwardOneBackward(pipeline(4, 8));
  for (int32_t r = 1; r < 4; ++r)
    EXPECT_EQ(order->ranks[r], plain->ranks[r]);
}

// What is evicted by the rule of the paper: the newest, when the rank is full.
TEST(BPipe, EvictsTheNewestWhereARankIsFull) {
  for (int32_t p = 1; p <= 16; ++p)
    for (int32_t m = 1; m <= 40; ++m) {
      const Result<Program> order = bPipe(pipeline(p, m));
      ASSERT_TRUE(order);
      const Result<Program> plain = oneForwardOneBackward(pipeline(p, m));
      for (int32_t s = 0; s < p; ++s) {
        std::vector<int32_t> here;
        std::vector<bool> away(m, false);
        std::string text;
        auto evict = [&] {
          text += " >" + std::to_string(here.back());
          away[here.back()] = true;
          here.pop_back();
        };
        for (const Instruction &inst : plain->ranks[s].instructions) {
          const int32_t mb = inst.microbatch;
          const bool full = static_cast<int64_t>(here.size()) == capOf(p);
          if (inst.op == Op::Forward) {
            if (full)
              evict();
            here.push_back(mb);
          } else {
            if (away[mb]) {
              if (full)
                evict();
              text += " <" + std::to_string(mb);
              here.push_back(mb);
            }
            std::erase(here, mb);
          }
          text += std::string(" ") + letter(inst.op) + std::to_string(mb);
        }
        EXPECT_EQ(" " + withMoves(order->ranks[s]), text)
            << "p=" << p << " m=" << m << " s=" << s;
      }
    }
}

TEST(BPipe, PeakOfThePaperOnAGrid) {
  for (int32_t p = 1; p <= 16; ++p)
    for (int32_t m : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64})
      for (const StageCost &costs : {cost(1, 1, 1), cost(2, 1, 0.5)}) {
        SCOPED_TRACE(testing::Message() << "p=" << p << " m=" << m);
        Problem problem = pipeline(p, m, costs);
        for (Stage &stage : problem.stages)
          stage.bytes.stash = kSlotAlignment;
        const Result<Program> order = bPipe(problem);
        const Timing timing = checked(order);
        EXPECT_EQ(timing.makespan,
                  (m + p - 1) * (costs.forward + costs.backward));
        Program program = *order;
        ASSERT_TRUE(insertTransfers(program));
        const std::optional<Timing> lowered = simulateProgram(program);
        ASSERT_TRUE(lowered && planBuffers(program));
        for (int32_t s = 0; s < p; ++s) {
          const int64_t own = std::min(m, p - s);
          const int64_t peak = timing.ranks[s].peakActivations;
          EXPECT_LE(peak, capOf(p)) << "stage " << s;
          if (p - s >= capOf(p)) {
            EXPECT_EQ(peak, std::min(own, capOf(p))) << "stage " << s;
          } else {
            EXPECT_GE(peak, own) << "stage " << s;
          }
          EXPECT_EQ(timing.ranks[s].peakBytes, peak * kSlotAlignment);
          EXPECT_LE(lowered->ranks[s].peakActivations, capOf(p));
          const auto slots =
              std::count(program.ranks[s].slotBytes.begin(),
                         program.ranks[s].slotBytes.end(), kSlotAlignment);
          EXPECT_LE(slots, capOf(p)) << "stage " << s;
        }
      }
}

// ceil((p + 2) / 2) on full ranks, whatever else they hold; 1F1B has p.
TEST(BPipe, PeaksOfAllRanks) {
  using Peaks = std::vector<int64_t>;
  EXPECT_EQ(peaks(simulated(bPipe(pipeline(4, 16)))), (Peaks{3, 3, 2, 2}));
  EXPECT_EQ(peaks(simulated(bPipe(pipeline(8, 16)))),
            (Peaks{5, 5, 5, 5, 4, 4, 5, 4}));
}

TEST(BPipe, StashesGoWhereTheActionBeforeEnds) {
  Result<Program> order = bPipe(pipeline(4, 8));
  ASSERT_TRUE(insertTransfers(*order));
  auto stashes = [&](int32_t r) {
    std::string text;
    for (const Instruction &inst : order->ranks[r].instructions)
      if (isAction(inst.op))
        text += std::string(1, letter(inst.op)) +
                std::to_string(inst.microbatch) + ' ';
      else if (inst.payload == Payload::Stash) {
        EXPECT_FALSE(inst.joined);
        text += describe(inst) + ", ";
      }
    return text;
  };
  EXPECT_EQ(stashes(0), "F0 F1 F2 send stash 0 mb 2 to 3, F3 B0 F4 B1 F5 send "
                        "stash 0 mb 5 to 3, recv stash 0 mb 2 from 3, B2 F6 B3 "
                        "F7 B4 recv stash 0 mb 5 from 3, B5 B6 B7 ");
  EXPECT_EQ(stashes(3),
            "recv stash 0 mb 2 from 0, F0 B0 F1 B1 F2 B2 F3 B3 F4 recv stash 0 "
            "mb 5 from 0, send stash 0 mb 2 to 0, B4 F5 B5 F6 B6 send stash 0 "
            "mb 5 to 0, F7 B7 ");
}

TEST(BPipe, RunsAlsoWhereTransfersTakeTimeAndAsTorchPlacesThem) {
  for (int32_t p : {4, 5, 8})
    for (TransferPlacement placement :
         {TransferPlacement::Time, TransferPlacement::Torch})
      for (bool split : {false, true}) {
        Problem problem = pipeline(p, 12, cost(1, 1, 1), 0.25);
        for (Stage &stage : problem.stages)
          stage.bytes = {8, 64, 10, 10, 0};
        Result<Program> order = bPipe(problem);
        if (split)
          splitBackward(*order);
        appendSteps(*order);
        TransferOptions options;
        options.placement = placement;
        ASSERT_TRUE(insertTransfers(*order, options));
        ASSERT_TRUE(planBuffers(*order));
        const Verdict verdict = verify(*order);
        EXPECT_TRUE(verdict.accepted()) << messagesOf(verdict);
      }
}

TEST(BPipe, UnequalStagesOnShuffledRanks) {
  for (int32_t p : {4, 5, 6, 8})
    for (uint32_t seed = 0; seed < 12; ++seed) {
      SCOPED_TRACE(testing::Message() << "p=" << p << " seed=" << seed);
      const Problem problem = irregularPipeline(p, 11, seed);
      const Timing timing = checked(bPipe(problem));
      EXPECT_EQ(timing.makespan,
                simulated(oneForwardOneBackward(problem)).makespan);
      EXPECT_LE(largestPeak(timing), capOf(p));
    }
}

TEST(BPipe, TrafficCountsTheStashes) {
  Problem problem = pipeline(4, 8);
  for (Stage &stage : problem.stages)
    stage.bytes.stash = 64;
  Program program = *bPipe(problem);
  const std::vector<RankTraffic> plain = trafficOf(problem);
  for (int lowered = 0; lowered < 2; ++lowered) {
    const std::vector<RankTraffic> traffic = trafficOf(program);
    EXPECT_EQ(traffic[0].transfers, plain[0].transfers + 2);
    EXPECT_EQ(traffic[0].bytes, plain[0].bytes + 2 * 64);
    EXPECT_EQ(traffic[1], plain[1]);
    EXPECT_EQ(traffic[3].bytes, plain[3].bytes + 2 * 64);
    ASSERT_TRUE(lowered || insertTransfers(program));
  }
}

/// What is wrong with an order on rank 0 of 2; stage 0 is there.
std::string orderFault(const std::vector<std::pair<Op, int32_t>> &list) {
  Program order = *oneForwardOneBackward(pipeline(3, 1));
  order.ranks[0].instructions.clear();
  for (auto [op, peer] : list) {
    Instruction inst;
    inst.op = op;
    inst.stage = inst.microbatch = 0;
    inst.peer = peer;
    order.ranks[0].instructions.push_back(inst);
  }
  VerifyOptions options;
  options.order = true;
  const Verdict verdict = verify(order, options);
  const Result<TransferStatistics> inserted = insertTransfers(order);
  EXPECT_EQ(verdict.accepted(), static_cast<bool>(inserted));
  if (verdict.accepted())
    return "";
  EXPECT_EQ(verdict.findings[0].rule, Rule::Completeness);
  const Site site = verdict.findings[0].site;
  EXPECT_EQ(inserted.message(),
            "`" + describe(order.ranks[0].instructions[site.instruction]) +
                "` " + verdict.findings[0].message);
  return verdict.findings[0].message;
}

TEST(BPipe, OrdersWhoseMovesAreWrong) {
  using enum Op;
  EXPECT_EQ(orderFault({{Forward, -1},
                        {Offload, 1},
                        {Reload, 1},
                        {Offload, 2},
                        {Reload, 2},
                        {Backward, -1}}),
            "");
  EXPECT_EQ(orderFault({{Forward, -1}, {Offload, 1}, {Backward, -1}}),
            "needs stash 0 mb 0, which rank 1 holds; reload it from there "
            "before");
  EXPECT_EQ(orderFault({{Forward, -1},
                        {Offload, 1},
                        {Offload, 2},
                        {Reload, 2},
                        {Backward, -1}}),
            "moves stash 0 mb 0, which rank 1 holds; reload it from there "
            "before");
  EXPECT_EQ(orderFault({{Forward, -1}, {Reload, 1}, {Backward, -1}}),
            "gets back stash 0 mb 0, which rank 1 does not hold; offload it "
            "there first, or remove this");
  EXPECT_EQ(
      orderFault({{Forward, -1}, {Offload, 1}, {Reload, 2}, {Backward, -1}}),
      "gets back stash 0 mb 0, which rank 2 does not hold; rank 1 does, so "
      "name that");
  EXPECT_EQ(
      orderFault({{Offload, 1}, {Forward, -1}, {Reload, 1}, {Backward, -1}}),
      "moves stash 0 mb 0, which is not there yet; put it after the forward");
  EXPECT_EQ(
      orderFault({{Forward, -1}, {Backward, -1}, {Offload, 1}, {Reload, 1}}),
      "moves stash 0 mb 0, which the backward has used already; put it before "
      "that");
  EXPECT_EQ(orderFault({{Forward, -1},
                        {BackwardInput, -1},
                        {Offload, 1},
                        {Reload, 1},
                        {BackwardWeight, -1}}),
            "moves stash 0 mb 0, which the backward has used already; put it "
            "before that");

  Program order = *bPipe(pipeline(4, 4));
  std::swap(order.ranks[0], order.ranks[1]);
  order.ranks[0] = order.ranks[1];
  VerifyOptions options;
  options.order = true;
  EXPECT_FALSE(verify(order, options).accepted());
  order = *oneForwardOneBackward(pipeline(2, 1));
  Instruction stray = order.ranks[0].instructions[0];
  stray.op = Op::Offload;
  stray.peer = 0;
  order.ranks[1].instructions.push_back(stray);
  EXPECT_EQ(messagesOf(verify(order, options)),
            "is on the wrong rank: stage 0 of micro-batch 0 is on rank 0; move "
            "it there\n");
  order.ranks[1].instructions.back().peer = 1;
  EXPECT_EQ(messagesOf(verify(order, options)),
            "moves a stash to the rank on which it is; name another rank, or "
            "none for host memory\n");
  order.ranks[1].instructions.back().peer = 2;
  EXPECT_EQ(messagesOf(verify(order, options)),
            "the rank of the stash is 2; it must be 0 to 1\n");
}

TEST(BPipe, ProgramsWhoseMovesAreWrong) {
  Program right = *bPipe(pipeline(4, 4));
  for (Stage &stage : right.problem.stages)
    stage.bytes.stash = 8;
  auto fault = [](const Program &program) {
    const Verdict verdict = verify(program);
    return verdict.accepted() ? "" : verdict.findings[0].message;
  };
  EXPECT_EQ(fault(right).substr(0, 21), "belongs into an order");
  ASSERT_TRUE(insertTransfers(right));
  EXPECT_EQ(fault(right), "");
  auto change = [&](Op op, auto &&fn) {
    Program wrong = right;
    for (int32_t r : {0, 3})
      for (Instruction &inst : wrong.ranks[r].instructions)
        if (inst.payload == Payload::Stash &&
            (inst.op == op) == (r == 0)) // both ends
          fn(inst, r);
    return fault(wrong);
  };
  EXPECT_EQ(
      change(Op::Send, [](Instruction &inst, int32_t) { inst.bytes = 4; }),
      "moves 4 bytes, but stash 0 mb 2 has 8 in the stage table; make "
      "them equal");
  EXPECT_EQ(
      change(Op::Send, [](Instruction &inst, int32_t) { inst.stage = 1; }),
      "goes from rank 0 to rank 3, but stage 1 of micro-batch 2 is on "
      "rank 1, which gives its stash away and gets it back; make that "
      "one of the two ends");
  EXPECT_EQ(
      change(Op::Send, [](Instruction &inst, int32_t) { inst.microbatch = 3; }),
      "sends stash 0 mb 3 before `forward 0 mb 3` writes it; put it "
      "after that");
  // The two directions of a pair, one of them another tensor.
  Program wrong = right;
  for (Instruction &inst : wrong.ranks[3].instructions)
    if (inst.op == Op::Recv && inst.payload == Payload::Stash)
      inst.payload = Payload::Activation;
  const std::string message = messagesOf(verify(wrong));
  EXPECT_NE(
      message.find("`send stash 0 mb 2 to 3` arrives in rank 3's `recv "
                   "activation 0 mb 2 from 0`, because messages from rank 0 to "
                   "rank 3 on communicator 0 have no tags and match first to "
                   "first; make the order equal at both ends or give stashes a "
                   "communicator of their own"),
      std::string::npos)
      << message;
  // What I has added is lost when an older stash comes back behind it.
  Program late = *bPipe(pipeline(4, 4));
  splitBackward(late);
  ASSERT_TRUE(insertTransfers(late));
  auto &list = late.ranks[0].instructions;
  const auto recv =
      std::find_if(list.begin(), list.end(), [](const Instruction &inst) {
        return inst.op == Op::Recv && inst.payload == Payload::Stash;
      });
  ASSERT_NE(recv, list.end());
  const auto input =
      std::find_if(recv, list.end(), [](const Instruction &inst) {
        return inst.op == Op::BackwardInput;
      });
  std::rotate(recv, recv + 1, input + 1);
  EXPECT_EQ(fault(late),
            "reads stash 0 mb 2 as `recv stash 0 mb 2 from 3` has left it, "
            "without what `backward_input 0 mb 2` has added; put `recv stash 0 "
            "mb 2 from 3` before that");
}

TEST(BPipe, ReductionKeepsWhatItCan) {
  for (bool lowered : {false, true}) {
    Program program = *bPipe(pipeline(5, 5));
    for (Stage &stage : program.problem.stages)
      stage.bytes.stash = 8;
    ASSERT_TRUE(!lowered || insertTransfers(program));
    for (Part part : {Part::Microbatches, Part::Ranks, Part::Stages})
      for (size_t k = 0; k < countParts(program, part); ++k) {
        const Status status = wellFormed(dropParts(program, part, k, 1));
        EXPECT_TRUE(status) << status.message();
      }
    auto movesOf = [&](Part part, size_t k) {
      size_t moves = 0;
      const Program less = dropParts(program, part, k, 1);
      for (const RankProgram &rank : less.ranks)
        for (const Instruction &inst : rank.instructions)
          moves += movesToRank(inst) || inst.payload == Payload::Stash;
      return moves;
    };
    const size_t all = lowered ? 4 : 2; // of micro-batch 3
    EXPECT_EQ(movesOf(Part::Stages, 2), all);
    EXPECT_EQ(movesOf(Part::Stages, 0), 0u);
    EXPECT_EQ(movesOf(Part::Ranks, 2), all);
    EXPECT_EQ(movesOf(Part::Ranks, 4), 0u);
    EXPECT_EQ(movesOf(Part::Microbatches, 3), 0u);
  }
}

TEST(BPipe, FilesKeepTheMoves) {
  for (bool lowered : {false, true}) {
    Program program = *bPipe(pipeline(4, 4));
    ASSERT_TRUE(!lowered || insertTransfers(program));
    const Result<Program> read = deserialize(serialize(program));
    ASSERT_TRUE(read) << read.message();
    EXPECT_EQ(*read, program);
  }
}

TEST(BPipe, TimelineInTheSource) {
  expectTimelineInSource(bPipe(pipeline(4, 4)), "BPipe");
}

TEST(BPipe, RefusesWhatItCannotSchedule) {
  EXPECT_EQ(bPipe(pipeline(2, 0)).message(),
            "bpipe: there are no micro-batches; give at least one");
  Problem problem = pipeline(4, 2);
  problem.numRanks = 2;
  problem.placement = placeLoop(4, 2);
  EXPECT_EQ(bPipe(problem).message(),
            "bpipe: needs one stage on every rank, but there are 4 stages "
            "and 2 ranks; make the numbers equal");
}

} // namespace
