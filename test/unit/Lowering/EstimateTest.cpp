//===- EstimateTest.cpp - What schedules would cost -----------------------===//

#include "../Support/Families.h"
#include "../Support/Problems.h"

#include "penstock/Lowering/Estimate.h"
#include "penstock/Lowering/Lowering.h"

#include <gtest/gtest.h>

using namespace penstock;
using namespace penstock::test;

/// Costs, sizes and a link.
static Problem sized(const PlacedFamily &family, int32_t p, int32_t m) {
  Problem problem = loopedPipeline(p, family.chunks, m, cost(2, 2, 1), 0.25);
  for (int32_t s = 0; s < problem.numStages(); ++s)
    problem.stages[s].bytes = {1 + s, 100, 1000, 2000, 3000};
  problem.link.bytesPerTime = 64;
  family.place(problem);
  return problem;
}

static std::vector<PlacedFamily> allFamilies() {
  std::vector<PlacedFamily> all = {kNaive, kGPipe, kOneForwardOneBackward};
  all.insert(all.end(), std::begin(kInOrder), std::end(kInOrder));
  all.insert(all.end(), std::begin(kInAnotherOrder), std::end(kInAnotherOrder));
  return all;
}

static int64_t largestBytes(const Timing &timing) {
  int64_t bytes = 0;
  for (const RankTiming &rank : timing.ranks)
    bytes = std::max(bytes, rank.peakBytes);
  return bytes;
}

// The figures are those of the simulator, the transfers those that lowering
// inserts.
TEST(Estimate, IsWhatTheSimulatorFinds) {
  for (const PlacedFamily &family : allFamilies()) {
    SCOPED_TRACE(family.name);
    Result<Program> order = family.make(sized(family, 4, 8));
    ASSERT_TRUE(order) << order.message();
    for (bool lower : {false, true}) {
      Program program = *order;
      TransferStatistics inserted;
      if (lower) {
        appendSteps(program);
        Result<TransferStatistics> result = insertTransfers(program);
        ASSERT_TRUE(result && planBuffers(program));
        inserted = *result;
      }
      const Timing timing =
          lower ? *simulateProgram(program) : *simulateOrder(program);
      const Estimate found = estimate(*order, lower);
      EXPECT_EQ(found.reason, "");
      EXPECT_TRUE(found.runs);
      EXPECT_EQ(found.makespan, timing.makespan);
      EXPECT_EQ(found.span, timing.span);
      EXPECT_EQ(found.bubbleRate, timing.bubbleRate);
      EXPECT_EQ(found.peakBytes(), largestBytes(timing));
      EXPECT_EQ(found.numStages, program.problem.numStages());
      if (lower) {
        EXPECT_EQ(found.traffic.transfers, inserted.transfers);
      }
      int64_t bytes = 0;
      for (const RankProgram &rank : program.ranks)
        for (const Instruction &inst : rank.instructions)
          bytes += inst.op == Op::Send ? inst.bytes : 0;
      if (lower) {
        EXPECT_EQ(found.traffic.bytes, bytes);
      }
    }
  }
}

TEST(Estimate, SharesOfTheLink) {
  // One F of 2 and one B of 3 for each transfer of 1.
  Problem problem = pipeline(2, 4, cost(2, 2, 1));
  problem.stages[0].bytes.output = 10;
  problem.link.bytesPerTime = 10;
  const Estimate found = estimate(gpipe(problem));
  EXPECT_DOUBLE_EQ(found.linkShare, 1.0 / 5);
  EXPECT_EQ(found.traffic, (RankTraffic{8, 80, 8}));
}

TEST(Estimate, SaysWhatKeepsAScheduleFromRunning) {
  Estimate found = estimate(zbV(pipeline(4, 8)));
  EXPECT_EQ(found.reason, "zb_v: needs 2 stages on every rank, but there are 4 "
                          "stages and 4 ranks; make it 8 stages");
  EXPECT_FALSE(found.runs);

  Program order = *gpipe(pipeline(2, 2));
  std::swap(order.ranks[1].instructions[0], order.ranks[1].instructions[2]);
  for (bool lower : {false, true}) {
    found = estimate(order, lower);
    EXPECT_EQ(found.reason.substr(0, 25), "the order cannot run: ran");
    EXPECT_FALSE(found.runs);
  }
  order = *gpipe(pipeline(2, 2));
  order.ranks[1].instructions.pop_back();
  EXPECT_EQ(estimate(order).reason,
            "`backward 1 mb 1` is missing; add it to rank 1");
}

TEST(Estimate, PostValidationNeedsOneStep) {
  Problem problem = pipeline(2, 4);
  problem.postValidation = true;
  for (bool lower : {false, true}) {
    EXPECT_TRUE(estimate(gpipe(problem), lower).feasible());
    const Estimate onTheWay = estimate(pipeDream(problem), lower);
    EXPECT_FALSE(onTheWay.runs);
    EXPECT_TRUE(onTheWay.reason.ends_with("drop post_validation"))
        << onTheWay.reason;
  }
}

TEST(Estimate, SaysWhichRankHasTooLittleMemory) {
  Problem problem = pipeline(2, 4);
  problem.stages[1].bytes = {0, 256, 100, 200, 300};
  problem.memory = 1624;
  Estimate found = estimate(gpipe(problem));
  EXPECT_TRUE(found.feasible()) << found.reason;
  problem.memory = 1623;
  found = estimate(gpipe(problem));
  EXPECT_EQ(
      found.reason,
      "rank 1 needs 1624 bytes, 1 more than the limit of 1623: parameters "
      "100, gradients 200, optimizer 300, activations 1024");
  EXPECT_TRUE(found.runs);
  EXPECT_EQ(found.fullest, 1);
  EXPECT_EQ(estimate(gpipe(problem), true).reason, found.reason);
}

TEST(Estimate, IsOrderedByTheKeyWithWhatCannotBeUsedBehind) {
  Estimate fast, small, large, never;
  fast.runs = small.runs = large.runs = true;
  fast.makespan = 1, fast.span = 3, fast.memory = {{0, 0, 0, 5}};
  small.makespan = 2, small.span = 2, small.memory = {{0, 0, 0, 4}};
  large.makespan = 0, large.span = 0, large.memory = {{0, 0, 0, 9}};
  large.reason = "too large";
  never.reason = "never";
  EXPECT_TRUE(isBetter(fast, small, EstimateKey::Makespan));
  EXPECT_TRUE(isBetter(small, fast, EstimateKey::Span));
  EXPECT_TRUE(isBetter(small, fast, EstimateKey::Memory));
  for (EstimateKey key :
       {EstimateKey::Makespan, EstimateKey::Span, EstimateKey::Memory}) {
    EXPECT_TRUE(isBetter(fast, large, key));
    EXPECT_TRUE(isBetter(large, never, key));
    EXPECT_FALSE(isBetter(fast, fast, key));
  }
}

//===----------------------------------------------------------------------===//
// The least number of micro-batches
//===----------------------------------------------------------------------===//

/// The closed forms of families that are not named as theirs, by name.
static std::optional<BubbleForm> formOf(const PlacedFamily &family,
                                        const Problem &problem) {
  const std::string_view name = family.name;
  Result<BubbleForm> form =
      bubbleForm(name == "eager" ? "one_f_one_b" : name,
                 {problem.numRanks, family.chunks, problem.stages[0].cost,
                  problem.overlap, family.slices});
  return form ? std::optional(*form) : std::nullopt;
}

// With and without a closed form it is what trying all numbers finds.
TEST(LeastMicrobatches, IsWhatTryingAllFinds) {
  constexpr int32_t kMost = 24;
  constexpr int64_t kActions = 1 << 15; // enough to try so many
  std::vector<PlacedFamily> families = allFamilies();
  families.push_back(kPipeDream);
  families.push_back(
      {"half_groups",
       [](const Problem &p) { return gis(p, (p.numRanks + 1) / 2); }, 2});
  int found = 0, beyond = 0;
  for (const PlacedFamily &family : families)
    for (const StageCost &each :
         {cost(1, 1, 1), cost(1.5, 1.25, 1.5), cost(1, 1, 1.5)})
      for (int32_t p = 1; p <= 5; ++p) {
        Problem problem = loopedPipeline(p, family.chunks, 1, each);
        problem.overlap = 0.5;
        auto make = [&](Problem &trial) {
          trial.chains.clear();
          if (family.shape == Shape::BothWays)
            placeBothWays(trial);
          return family.make(trial);
        };
        family.place(problem);
        std::vector<double> rates;
        for (int32_t m = 1; m <= kMost; ++m) {
          Problem trial = problem;
          trial.numMicrobatches = m * family.slices;
          const Estimate one = estimate(make(trial));
          rates.push_back(one.runs ? one.bubbleRate : 1);
        }
        for (double target : {0.0, 0.05, 0.2, 0.4}) {
          int32_t least = 1;
          while (least <= kMost && rates[least - 1] > target + 1e-12)
            ++least;
          for (const auto &form : {formOf(family, problem), {}}) {
            const std::optional<int32_t> m =
                leastMicrobatches(problem, make, form, target, kActions);
            const std::string what = std::string(family.name) +
                                     ", p = " + std::to_string(p) +
                                     ", F = " + std::to_string(each.forward) +
                                     ", target = " + std::to_string(target);
            if (least <= kMost) {
              EXPECT_EQ(m, least) << what;
              ++found;
            } else if (m) {
              EXPECT_GT(*m, kMost) << what;
              Problem trial = problem;
              trial.numMicrobatches = *m * family.slices;
              EXPECT_LE(estimate(make(trial)).bubbleRate, target + 1e-12)
                  << what;
              ++beyond;
            }
          }
        }
      }
  EXPECT_GE(found, 100);
  EXPECT_GE(beyond, 100);
}

// Too many to try all: 63/(2m + 63) <= 1/20 from 599 on.
TEST(LeastMicrobatches, BehindThoseThatAreTriedOneByOne) {
  const Problem problem = loopedPipeline(64, 2, 1);
  auto make = [](Problem &trial) { return interleaved1F1B(trial); };
  EXPECT_EQ(leastMicrobatches(problem, make, {}, 0.05), 599);
  const Result<BubbleForm> form = bubbleForm("interleaved_1f1b", {64, 2});
  EXPECT_EQ(leastMicrobatches(problem, make, *form, 0.05), 599);
  EXPECT_EQ(leastMicrobatches(problem, make, *form, 0.001), 31469);
  EXPECT_EQ(leastMicrobatches(problem, make, {}, 0.001), std::nullopt);
}

//===----------------------------------------------------------------------===//
// Layers that fit
//===----------------------------------------------------------------------===//

static std::vector<int32_t> fitted(Result<Program> order, int64_t memory,
                                   const std::vector<Stage> &layers) {
  order->problem.memory = memory;
  order->problem.stages =
      *dealLayers(layers, order->problem.numStages(), order->problem.placement);
  Result<std::vector<Stage>> stages = fitLayers(layers, *order);
  EXPECT_TRUE(stages) << stages.message();
  order->problem.stages = *stages;
  EXPECT_EQ(estimate(*order).reason, "");
  std::vector<int32_t> sizes;
  for (const Stage &stage : *stages)
    sizes.push_back(stage.numLayers);
  return sizes;
}

// Under 1F1B rank r has min(m, p - r) micro-batches in flight, under GPipe m.
TEST(FitLayers, FollowsTheOrderInItsMemory) {
  using Sizes = std::vector<int32_t>;
  Stage layer;
  layer.bytes = {0, 10, 1, 1, 2};
  const std::vector<Stage> layers(16, layer);
  const Problem problem = pipeline(4, 8);
  const Result<Program> order = oneForwardOneBackward(problem);
  EXPECT_EQ(stashesAlive(*order), (std::vector<int64_t>{4, 3, 2, 1}));
  EXPECT_EQ(fitted(order, 0, layers), (Sizes{4, 4, 4, 4}));
  EXPECT_EQ(fitted(order, 176, layers), (Sizes{4, 4, 4, 4}));
  EXPECT_EQ(fitted(order, 140, layers), (Sizes{3, 4, 4, 5}));
  EXPECT_EQ(fitted(gpipe(problem), 336, layers), (Sizes{4, 4, 4, 4}));
  // Only stage inputs are kept, and one stash.
  EXPECT_EQ(fitted(gpipe(problem, {.recompute = true}), 56, layers),
            (Sizes{4, 4, 4, 4}));

  Program tight = *order;
  tight.problem.memory = 100;
  tight.problem.stages = *dealLayers(layers, 4);
  EXPECT_EQ(fitLayers(layers, tight).message(),
            "the layers do not fit: filled as far as memory allows, 4 stages "
            "hold 15 of 16 layers; with layer 15, the last stage needs 112 "
            "bytes with 1 stash alive, more than the 100 there are; use more "
            "stages or ranks, smaller micro-batches, a schedule with fewer "
            "stashes alive, or recompute");
}

TEST(FitLayers, TakesLayersFromTheRankThatLacksMemory) {
  Stage layer;
  layer.bytes = {0, 0, 10, 0, 0};
  std::vector<Stage> layers(16, layer);
  layers[0].bytes.parameters += 50;
  // Rank 0 has stages 0 and 2, and 130 bytes to hold where there are 110 each.
  EXPECT_EQ(fitted(breadthFirst(loopedPipeline(2, 2, 4)), 110, layers),
            (std::vector<int32_t>{3, 5, 3, 5}));
}

TEST(FitLayers, SharesTheMemoryOfARank) {
  Stage layer;
  layer.bytes = {0, 10, 1, 1, 2};
  std::vector<Stage> layers(16, layer);
  // All 8 layers of a rank have 4 stashes alive; the cut that fits is kept
  // although the shares of the memory are not equal.
  layers[0].bytes.parameters += 100;
  EXPECT_EQ(
      fitted(breadthFirst(loopedPipeline(2, 2, 4)), 2 * 4 * 44 + 100, layers),
      (std::vector<int32_t>{4, 4, 4, 4}));
  Problem both = pipeline(4, 8);
  placeBothWays(both);
  EXPECT_EQ(fitted(chimera(both), 2 * 4 * 44 + 100, layers),
            (std::vector<int32_t>{4, 4, 4, 4}));
}

//===----------------------------------------------------------------------===//
// Ranks of several stages
//===----------------------------------------------------------------------===//

/// Blocks that cost 1 in all of F, I and W, and a head.
static std::vector<Stage> blocksWithHead(int32_t blocks, double head) {
  std::vector<Stage> layers(blocks + 1);
  layers.back().cost = {head, 2 * head, head, head, head};
  return layers;
}

static double makespanOf(Result<Program> (*make)(const Problem &), bool snake,
                         const std::vector<Stage> &layers) {
  Problem problem = loopedPipeline(4, 2, 64);
  if (snake)
    problem.placement = placeSnake(8, 4);
  problem.stages = *dealLayers(layers, 8, problem.placement);
  return estimate(make(problem)).makespan;
}

// A step takes as long as the busiest rank. The limits are the makespans of
// cuts by hand, into stages of 1 2 2 2 3 3 3 6 and 2 2 2 1 3 3 3 4; by stages
// alone it is 1540, 1544, 1541 and 1160.
TEST(DealLayers, RelievesTheRankOfAnExpensiveHead) {
  const std::vector<Stage> layers = blocksWithHead(16, 6);
  EXPECT_LE(makespanOf(zbV, true, layers), 1367);
  EXPECT_LE(makespanOf(vHalf, true, layers), 1364);
  EXPECT_LE(makespanOf(dualPipeV, true, layers), 1366);
  auto interleaved = [](const Problem &problem) {
    return interleavedZB(problem);
  };
  EXPECT_LE(makespanOf(interleaved, false, blocksWithHead(16, 4)), 1037);
}

TEST(FitLayers, RelievesTheBusiestRankWithinItsMemory) {
  std::vector<Stage> layers = blocksWithHead(16, 4);
  for (Stage &layer : layers)
    layer.bytes = {0, 0, 10, 0, 0};
  // All ranks cost 5, the last one with 2 layers.
  Problem problem = loopedPipeline(4, 2, 4);
  EXPECT_EQ(fitted(breadthFirst(problem), 50, layers),
            (std::vector<int32_t>{2, 2, 2, 1, 3, 3, 3, 1}));
}
