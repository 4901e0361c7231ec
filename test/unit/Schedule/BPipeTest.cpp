//===- BPipeTest.cpp - Activations that spend time on another rank --------===//

#include "../Support/FamilyChecks.h"

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

TEST(BPipe, PrintPeaks) {
  for (int32_t p : {4, 5, 6, 8, 12})
    for (int32_t m : {4, 8, 16, 32}) {
      std::cout << p << " " << m << ":";
      for (int64_t x : peaks(simulated(bPipe(pipeline(p, m)))))
        std::cout << " " << x;
      std::cout << "\n";
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
