//===- PipeDreamTest.cpp - Updates while micro-batches are in the pipe ----===//

#include "../Support/FamilyChecks.h"

#include "penstock/Analysis/WeightVersions.h"

using namespace penstock;
using namespace penstock::test;

namespace {

/// "F0 F1 B0 step0": one stage, so its number says nothing.
std::string withSteps(const RankProgram &rank) {
  std::string text;
  for (const Instruction &inst : rank.instructions) {
    text += text.empty() ? "" : " ";
    text += inst.op == Op::Step ? "step" : std::string(1, letter(inst.op));
    text += std::to_string(inst.microbatch);
  }
  return text;
}

/// By stage.
std::vector<int32_t> versions(const Program &program) {
  std::vector<int32_t> result;
  for (int32_t s = 0; s < program.problem.numStages(); ++s)
    result.push_back(
        weightVersions(program, program.problem.placement[s]).peak(s));
  return result;
}

TEST(PipeDream, Order) {
  const Result<Program> order = pipeDream(pipeline(3, 4));
  ASSERT_TRUE(order);
  EXPECT_EQ(withSteps(order->ranks[0]),
            "F0 F1 F2 B0 step0 F3 B1 step1 B2 step2 B3 step3");
  EXPECT_EQ(withSteps(order->ranks[1]),
            "F0 F1 B0 step0 F2 B1 step1 F3 B2 step2 B3 step3");
  EXPECT_EQ(withSteps(order->ranks[2]),
            "F0 B0 step0 F1 B1 step1 F2 B2 step2 F3 B3 step3");
}

TEST(PipeDream, OrderOf2BW) {
  const Result<Program> order = pipeDream2BW(pipeline(2, 5));
  ASSERT_TRUE(order);
  EXPECT_EQ(withSteps(order->ranks[0]),
            "F0 F1 B0 F2 B1 step1 F3 B2 F4 B3 step3 B4 step4");
  EXPECT_EQ(withSteps(order->ranks[1]),
            "F0 B0 F1 B1 step1 F2 B2 F3 B3 step3 F4 B4 step4");
  EXPECT_EQ(withSteps(pipeDream2BW(pipeline(2, 4), 3)->ranks[1]),
            "F0 B0 F1 B1 F2 B2 step2 F3 B3 step3");
}

// D. Narayanan et al. (arXiv:1806.03377): stage s of p keeps p - s versions, as
// many as micro-batches it has in flight.
TEST(PipeDream, VersionsOfThePaper) {
  EXPECT_EQ(versions(*pipeDream(pipeline(4, 8))),
            (std::vector<int32_t>{4, 3, 2, 1}));
  EXPECT_EQ(versions(*pipeDream2BW(pipeline(4, 8))),
            (std::vector<int32_t>{2, 2, 2, 1}));
  EXPECT_EQ(weightVersions(*oneForwardOneBackward(pipeline(4, 8)), 0).peak(),
            1);
}

TEST(PipeDream, ClosedFormsOnAGrid) {
  for (int32_t p : {1, 2, 3, 4, 5, 8, 16})
    for (int32_t m : {1, 2, 3, 4, 5, 7, 8, 16, 31, 64}) {
      SCOPED_TRACE(testing::Message() << "p=" << p << " m=" << m);
      const Problem problem = pipeline(p, m, cost(2, 1, 0.5));
      for (int32_t group : {1, p, p + 3}) {
        const Result<Program> order =
            group == 1 ? pipeDream(problem) : pipeDream2BW(problem, group);
        const Timing timing = checked(order);
        EXPECT_EQ(timing.makespan, (m + p - 1) * 3.5);
        for (int32_t s = 0; s < p; ++s) {
          EXPECT_EQ(timing.ranks[s].peakActivations, std::min(m, p - s));
          const int32_t ahead = p - 1 - s;
          const int32_t number =
              group == 1 ? 1 + std::min({ahead, std::max(1, m - ahead), m - 1})
                         : 1 + (ahead > 0 && m > group);
          EXPECT_EQ(timing.ranks[s].peakVersions, number) << "stage " << s;
          // Each F takes the newest weights, each B those of its F.
          const WeightVersions used = weightVersions(*order, s);
          const auto &list = order->ranks[s].instructions;
          for (size_t i = 0; i < list.size(); ++i) {
            const int32_t k = list[i].microbatch;
            EXPECT_EQ(used.used[i], list[i].op == Op::Step
                                        ? -1
                                        : std::max(0, k - ahead) / group);
          }
        }
      }
    }
}

TEST(PipeDream, OneMicrobatchIsTheNaiveOrder) {
  for (int32_t p = 1; p <= 8; ++p) {
    EXPECT_EQ(withSteps(pipeDream(pipeline(p, 1))->ranks[0]), "F0 B0 step0");
    EXPECT_EQ(*pipeDream2BW(pipeline(p, 1)), *pipeDream(pipeline(p, 1)));
  }
}

TEST(PipeDream, TimelineInTheSource) {
  expectTimelineInSource(pipeDream(pipeline(4, 4)), "PipeDream");
}

TEST(PipeDream, LivesOfVersions) {
  // F0 F1 B0 step0 F2 B1 step1 B2 step2
  Result<Program> order = pipeDream(pipeline(2, 3));
  // As much work however many micro-batches there are elsewhere.
  for (int32_t microbatches : {3, kMaxMicrobatches}) {
    order->problem.numMicrobatches = microbatches;
    const WeightVersions versions = weightVersions(*order, 0);
    EXPECT_EQ(
        versions.ranges,
        (std::vector<VersionRange>{
            {0, 0, 0, 6}, {0, 1, 3, 8}, {0, 2, 6, 8 + 1 - 1}, {0, 3, 8, 9}}));
    EXPECT_EQ(versions.used,
              (std::vector<int32_t>{0, 0, 0, -1, 1, 0, -1, 1, -1}));
  }
}

TEST(PipeDream, SplitBackwardsKeepTheirWeightsUntilW) {
  Result<Program> order = pipeDream(pipeline(2, 3));
  splitBackward(*order);
  EXPECT_EQ(withSteps(order->ranks[0]),
            "F0 F1 I0 W0 step0 F2 I1 W1 step1 I2 W2 step2");
  checked(order);
  EXPECT_EQ(versions(*order), (std::vector<int32_t>{2, 1}));
}

TEST(PipeDream, MemoryCountsTheVersions) {
  Problem problem = pipeline(3, 6);
  for (Stage &stage : problem.stages)
    stage.bytes = {0, 1, 1000, 100, 10};
  Result<Program> order = pipeDream(problem);
  const Timing timing = checked(order);
  EXPECT_EQ(timing.ranks[0].peakBytes, 1110 + 2 * 1000 + 3);
  EXPECT_EQ(timing.ranks[2].peakBytes, 1110 + 1);
  appendSteps(*order);
  ASSERT_TRUE(insertTransfers(*order));
  Program program = *order;
  ASSERT_TRUE(planBuffers(program));
  EXPECT_EQ(simulateProgram(program)->ranks[0].peakBytes,
            1110 + 2 * 1000 + slotOffsets(program.ranks[0]).back());

  auto message = [](Program limited, int64_t memory) {
    limited.problem.memory = memory;
    const Verdict verdict = verify(limited);
    return verdict.accepted() ? std::string() : verdict.findings[0].message;
  };
  EXPECT_EQ(message(*order, 3113), "");
  EXPECT_EQ(
      message(*order, 3112),
      "needs 1110 bytes for the parameters, gradients and optimizer state "
      "of its stages and 2003 for the tensors alive at once and further "
      "versions of weights, more than the limit of 3112; most is alive at "
      "`forward 0 mb 4`: 2 further versions of the weights of stage 0 "
      "(2000 bytes), 3 stashes of stage 0 (3 bytes), 1 activation of "
      "stage 0 (0 bytes); use more ranks, a schedule with fewer activations "
      "alive, or recompute");
  const int64_t arena = slotOffsets(program.ranks[0]).back();
  EXPECT_EQ(message(program, 3110 + arena), "");
  const std::string expected =
      "needs 1110 bytes for the parameters, gradients and optimizer state of "
      "its stages and " +
      std::to_string(arena) +
      " for its slots and 2000 for further versions of weights, more than the "
      "limit of " +
      std::to_string(3110 + arena - 1) + ";";
  EXPECT_EQ(message(program, 3110 + arena - 1).substr(0, expected.size()),
            expected);
}

TEST(PipeDream, CompletenessWantsOneStepForEachGradient) {
  auto finding = [](Program order) {
    VerifyOptions options;
    options.order = true;
    const Verdict verdict = verify(order, options);
    EXPECT_FALSE(verdict.accepted());
    return verdict.accepted() ? std::string() : verdict.findings[0].message;
  };
  const Program right = *pipeDream(pipeline(1, 2)); // F B step F B step
  Program wrong = right;
  auto *list = &wrong.ranks[0].instructions;
  std::swap((*list)[1], (*list)[2]);
  EXPECT_EQ(finding(wrong), "stands before `backward 0 mb 0`, whose weight "
                            "gradient it uses; put it after that");
  wrong = right;
  list->insert(list->begin() + 3, (*list)[2]);
  EXPECT_EQ(finding(wrong),
            "comes after `step 0 mb 0`, which has used the weight gradient of "
            "micro-batch 0 already; remove one");
  wrong = right;
  list->pop_back();
  EXPECT_EQ(finding(wrong), "adds a weight gradient that no step uses; add "
                            "`step 0 mb 1` after it");
  wrong = right;
  list->back().microbatch = -1;
  EXPECT_EQ(finding(wrong),
            "is for the whole batch, while `step 0 mb 0` on rank 0 is for one "
            "micro-batch; step the same way everywhere");
  // A stage without steps.
  wrong = *pipeDream(pipeline(2, 2));
  std::erase_if(wrong.ranks[1].instructions,
                [](const Instruction &inst) { return inst.op == Op::Step; });
  EXPECT_EQ(finding(wrong), "adds a weight gradient that no step uses; add "
                            "`step 1 mb 1` after it");
}

TEST(PipeDream, RefusesWhatItCannotSchedule) {
  EXPECT_EQ(
      pipeDream2BW(pipeline(4, 8), 3).message(),
      "pipedream_2bw: updates after every 3 micro-batches need more than "
      "two versions of the weights on 4 ranks; make the group at least 4");
  EXPECT_EQ(pipeDream(pipeline(2, 0)).message(),
            "pipedream: there are no micro-batches; give at least one");
  EXPECT_EQ(pipeDream2BW(pipeline(2, 0)).message(),
            "pipedream_2bw: there are no micro-batches; give at least one");
  Problem problem = pipeline(4, 2);
  problem.numRanks = 2;
  problem.placement = placeLoop(4, 2);
  EXPECT_EQ(pipeDream(problem).message(),
            "pipedream: needs one stage on every rank, but there are 4 stages "
            "and 2 ranks; make the numbers equal");
}

} // namespace
