//===- SeqTest.cpp - 1F1B over slices of the sequence ---------------------===//

#include "../Support/FamilyChecks.h"

using namespace penstock;
using namespace penstock::test;

/// One stage a rank; costs are those of a whole micro-batch.
static Problem sliced(int32_t p, int32_t m, int32_t slices,
                      StageCost stageCost = {}) {
  Problem problem = pipeline(p, m, stageCost);
  setSlices(problem, slices);
  return problem;
}

// A. Sun et al. (arXiv:2406.03488): 0F0.0 0F0.1 0F1.0 0B0.1 0F1.1 0B0.0 0B1.1
// 0B1.0 and 1F0.0 1F0.1 1B0.1 1F1.0 1B0.0 1F1.1 1B1.1 1B1.0, slice j of
// micro-batch i being number 2 i + j.
TEST(Seq1F1B, Order) {
  EXPECT_EQ(listing(seq1F1B(sliced(2, 2, 2))),
            "0F0 0F1 0F2 0B1 0F3 0B0 0B3 0B2\n"
            "1F0 1F1 1B1 1F2 1B0 1F3 1B3 1B2\n");
}

TEST(Seq1F1B, OneSliceIs1F1B) {
  for (int32_t p : {1, 2, 3, 4, 7})
    for (int32_t m : {1, 2, 3, 8})
      EXPECT_EQ(*seq1F1B(pipeline(p, m)),
                *oneForwardOneBackward(pipeline(p, m)));
}

// The same source: bubble (p - 1) (F + B) / n, peak (n + p - 1 - r) / n
// micro-batches.
TEST(Seq1F1B, FiguresOfThePaper) {
  const Timing timing = simulated(seq1F1B(sliced(4, 4, 4)));
  EXPECT_EQ(idle(timing), 2.25);
  EXPECT_EQ(peaks(timing), (std::vector<int64_t>{7, 6, 5, 4}));
  const Timing deep = simulated(seq1F1B(sliced(8, 8, 16)));
  EXPECT_EQ(deep.ranks[0].peakActivations, 1.4375 * 16);
  EXPECT_EQ(deep.ranks[7].peakActivations, 16);
}

TEST(Seq1F1B, ClosedFormsOnAGrid) {
  for (int32_t p = 1; p <= 16; p += p < 4 ? 1 : 4)
    for (int32_t m : {1, 2, 3, 4, 7, 16, 64})
      for (int32_t n : {1, 2, 4, 8}) {
        SCOPED_TRACE(testing::Message()
                     << "p=" << p << " m=" << m << " n=" << n);
        const Problem problem = sliced(p, m, n, cost(2, 1, 0.5));
        const Timing timing = checked(seq1F1B(problem));
        EXPECT_EQ(timing.makespan, (m * n + p - 1) * 3.5 / n);
        for (int32_t r = 0; r < p; ++r) {
          EXPECT_EQ(timing.ranks[r].busy, m * 3.5);
          EXPECT_EQ(timing.ranks[r].peakActivations,
                    std::min(m * n, p - 1 - r + n));
        }
      }
}

TEST(Seq1F1B, BytesAreThoseOfSlices) {
  Problem problem = sliced(2, 4, 4);
  for (Stage &stage : problem.stages)
    stage.bytes = {10, 100, 1000, 0, 0}; // 3 and 25 a slice
  const Timing timing = checked(seq1F1B(problem));
  EXPECT_EQ(timing.ranks[0].peakBytes, 1000 + 5 * 25);
  Program program = *seq1F1B(problem);
  ASSERT_TRUE(insertTransfers(program));
  for (const RankProgram &rank : program.ranks)
    for (const Instruction &inst : rank.instructions)
      if (isTransfer(inst.op)) {
        EXPECT_EQ(inst.bytes, 3);
      }
}

TEST(Seq1F1B, TimelineInTheSource) {
  expectTimelineInSource(seq1F1B(sliced(4, 2, 2, cost(2, 2, 2))), "Seq1F1B");
}

// The paper's starting point: all F, then all B from the last slice down.
TEST(Seq1F1B, OtherFamiliesMayRunSlices) {
  GPipeOptions descending;
  descending.descending = true;
  const Timing timing =
      checked(gpipe(sliced(3, 2, 4, cost(4, 4, 4)), descending));
  EXPECT_EQ(timing.makespan, (2 * 4 + 2) * 3);
}

TEST(Seq1F1B, CompletenessWantsTheOrderOfSlices) {
  auto finding = [](const Result<Program> &order) {
    VerifyOptions options;
    options.order = true;
    const Verdict verdict = verify(*order, options);
    EXPECT_FALSE(verdict.accepted());
    return verdict.accepted() ? "" : verdict.findings[0].message;
  };
  // Backwards that ascend.
  EXPECT_EQ(
      finding(oneForwardOneBackward(sliced(2, 1, 2))),
      "stands before `backward 0 mb 1`, the slice after it, which attends "
      "to it: backwards descend over the slices of micro-batch 0; put it "
      "after that");
  Result<Program> order = seq1F1B(sliced(1, 2, 2));
  EXPECT_EQ(listing(order), "0F0 0F1 0B1 0F2 0B0 0F3 0B3 0B2\n");
  auto &list = order->ranks[0].instructions;
  std::swap(list[3].microbatch, list[5].microbatch);
  EXPECT_EQ(finding(order),
            "stands before `forward 0 mb 2`, the slice before it, to which it "
            "attends: forwards ascend over the slices of micro-batch 1; put it "
            "after that");
  // Between micro-batches there is no such order.
  order = seq1F1B(sliced(1, 2, 2));
  std::swap(order->ranks[0].instructions[3], order->ranks[0].instructions[4]);
  VerifyOptions options;
  options.order = true;
  EXPECT_TRUE(verify(*order, options).accepted());
}

TEST(Seq1F1B, DataFlowWantsTheOrderOfSlicesOnAllQueues) {
  Program program = *seq1F1B(sliced(1, 1, 2));
  EXPECT_TRUE(verify(program).accepted());
  program.ranks[0].instructions[1].queue = 1; // F of the second slice
  program.ranks[0].instructions[2].queue = 1; // and its B
  const Verdict verdict = verify(program);
  ASSERT_FALSE(verdict.accepted());
  EXPECT_EQ(verdict.findings[0].message,
            "runs a slice of stage 0 on queue 1, not ordered after `forward 0 "
            "mb 0` on queue 0, which runs before it; let it wait for that");
}

TEST(Seq1F1B, RefusesWhatItCannotSchedule) {
  Problem problem = sliced(2, 3, 2);
  problem.slices = 0;
  EXPECT_EQ(seq1F1B(problem).message(),
            "seq_1f1b: micro-batches are cut into 0 slices; give at least one");
  problem.slices = 4;
  EXPECT_EQ(seq1F1B(problem).message(),
            "seq_1f1b: 6 slices are no whole micro-batches of 4 each; give a "
            "multiple");
  EXPECT_EQ(seq1F1B(sliced(2, 0, 2)).message(),
            "seq_1f1b: there are no micro-batches; give at least one");
  problem = sliced(4, 2, 2);
  problem.numRanks = 2;
  problem.placement = placeLoop(4, 2);
  EXPECT_EQ(seq1F1B(problem).message(),
            "seq_1f1b: needs one stage on every rank, but there are 4 stages "
            "and 2 ranks; make the numbers equal");
  EXPECT_EQ(seq1F1B(sliced(2, 1 << 20, 1 << 10)).message(),
            "seq_1f1b: 1073741824 micro-batches on 2 stages are more "
            "instructions than a program can hold; give at most 5208333 "
            "micro-batches");
}
