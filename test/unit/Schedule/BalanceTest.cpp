//===- BalanceTest.cpp - Layers over stages -------------------------------===//

#include "penstock/Schedule/Schedule.h"

#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace penstock;

using Costs = std::vector<double>;
using Cuts = std::vector<int32_t>;

static Cuts balanced(const Costs &costs, int32_t numStages) {
  Result<Cuts> cuts = balanceLayers(costs, numStages);
  EXPECT_TRUE(cuts) << cuts.message();
  return *cuts;
}

/// Maximum, sum of squares and cuts: what balanceLayers minimizes, in order.
struct Quality {
  double maximum = 0, squares = 0;
  Cuts cuts;
  auto operator<=>(const Quality &) const = default;
};

static Quality qualityOf(const Costs &costs, const Cuts &cuts) {
  Quality quality;
  quality.cuts = cuts;
  for (size_t part = 0; part < cuts.size(); ++part) {
    const size_t end = part + 1 < cuts.size() ? cuts[part + 1] : costs.size();
    double sum = 0;
    for (size_t i = cuts[part]; i < end; ++i)
      sum += costs[i];
    quality.maximum = std::max(quality.maximum, sum);
    quality.squares += sum * sum;
  }
  return quality;
}

/// The best of all ways to cut.
static void enumerate(const Costs &costs, size_t numStages, Cuts &cuts,
                      Quality &best) {
  if (cuts.size() == numStages) {
    best = std::min(best, qualityOf(costs, cuts));
    return;
  }
  const size_t left = numStages - cuts.size();
  for (size_t cut = cuts.back() + 1; cut + left <= costs.size(); ++cut) {
    cuts.push_back(static_cast<int32_t>(cut));
    enumerate(costs, numStages, cuts, best);
    cuts.pop_back();
  }
}

TEST(Balance, KnownOptima) {
  EXPECT_EQ(balanced({1, 2, 3, 4, 5, 6, 7, 8, 9}, 3), (Cuts{0, 5, 7}));
  const Costs peaks = {5, 1, 1, 1, 5, 1, 1, 1, 5};
  EXPECT_EQ(qualityOf(peaks, balanced(peaks, 3)).maximum, 7);
  const Costs ones(10, 1.0);
  EXPECT_EQ(balanced(ones, 4), (Cuts{0, 2, 4, 7}));
  Costs model(32, 1.0);
  model.front() = 2;
  model.back() = 1.5;
  EXPECT_EQ(qualityOf(model, balanced(model, 8)).maximum, 5);
}

TEST(Balance, EqualLayersTieWhateverTheirCost) {
  for (double value : {0.1, 0.3, 1e-300, 1e300, 5e-324})
    EXPECT_EQ(balanced(Costs(10, value), 4), (Cuts{0, 2, 4, 7})) << value;
}

TEST(Balance, LayersWithoutCostStillFillEveryStage) {
  EXPECT_EQ(balanced({0, 0, 0, 0}, 3), (Cuts{0, 1, 2}));
  EXPECT_EQ(balanced({0, 0, 7}, 3), (Cuts{0, 1, 2}));
  EXPECT_EQ(balanced({3}, 1), (Cuts{0}));
}

TEST(Balance, IsTheBestOfAllCuts) {
  std::mt19937 random(1);
  for (int round = 0; round < 400; ++round) {
    const size_t n = 1 + random() % 10;
    const auto numStages = static_cast<int32_t>(1 + random() % n);
    Costs costs(n);
    for (double &cost : costs)
      cost = static_cast<double>(random() % 6);
    Cuts cuts = {0};
    Quality best{std::numeric_limits<double>::infinity(), 0, {}};
    enumerate(costs, numStages, cuts, best);
    EXPECT_EQ(balanced(costs, numStages), best.cuts);
  }
}

TEST(Balance, LongModelsTakeNoQuadraticTime) {
  const Cuts cuts = balanced(Costs(1 << 17, 1.0), 8);
  for (int32_t s = 0; s < 8; ++s)
    EXPECT_EQ(cuts[s], s << 14);
}

TEST(Balance, RefusesWhatCannotBeCut) {
  auto message = [](const Costs &costs, int32_t numStages) {
    Result<Cuts> cuts = balanceLayers(costs, numStages);
    return cuts ? "accepted" : cuts.message();
  };
  EXPECT_EQ(message({1, 2}, 3),
            "3 stages need at least as many layers, but there are 2; use fewer "
            "stages or cut the model into more layers");
  EXPECT_EQ(message({1, 2}, 0),
            "there are no stages to put layers on; give at least one");
  EXPECT_EQ(message(Costs((1 << 16) + 1, 1.0), 1 << 10),
            "65537 layers on 1024 stages are too many to balance, their "
            "product is above 67108864; make one layer of several, or use "
            "fewer stages");
  EXPECT_EQ(message({1, -2}, 1),
            "layer 1 costs -2.0; a cost must be finite and at least 0");
  EXPECT_EQ(message({std::numeric_limits<double>::quiet_NaN()}, 1),
            "layer 0 costs nan; a cost must be finite and at least 0");
  EXPECT_EQ(message({std::numeric_limits<double>::infinity()}, 1),
            "layer 0 costs inf; a cost must be finite and at least 0");
}

//===----------------------------------------------------------------------===//
// Stages of layers
//===----------------------------------------------------------------------===//

TEST(DealLayers, AddsUpWhatLayersCostAndKeep) {
  std::vector<Stage> layers(4);
  layers[0].cost = {2, 4, 3, 1, 5};
  layers[0].bytes = {1, 10, 100, 1000, 10000};
  for (size_t i = 1; i < 4; ++i)
    layers[i].bytes = {static_cast<int64_t>(i), 20, 200, 2000, 20000};
  Result<std::vector<Stage>> stages = dealLayers(layers, 2);
  ASSERT_TRUE(stages) << stages.message();
  EXPECT_EQ(*stages, (std::vector<Stage>{
                         {0, 1, {2, 4, 3, 1, 5}, {1, 10, 100, 1000, 10000}},
                         {1, 3, {3, 6, 3, 3, 3}, {3, 60, 600, 6000, 60000}}}));
}

TEST(DealLayers, TakesSumsUpToTheLimit) {
  std::vector<Stage> layers(2);
  layers[0].bytes.stash = kMaxBytes - 1;
  layers[1].bytes.stash = 1;
  Result<std::vector<Stage>> stages = dealLayers(layers, 1);
  ASSERT_TRUE(stages) << stages.message();
  EXPECT_EQ(stages->at(0).bytes.stash, kMaxBytes);
}

TEST(DealLayers, RefusesSumsOutOfRange) {
  auto message = [](const Stage &layer, int32_t numStages) {
    Result<std::vector<Stage>> stages =
        dealLayers(std::vector<Stage>(6, layer), numStages);
    return stages ? "accepted" : stages.message();
  };
  for (auto [field, what] : {std::pair(&StageBytes::stash, "stash"),
                             std::pair(&StageBytes::parameters, "parameters"),
                             std::pair(&StageBytes::gradients, "gradients"),
                             std::pair(&StageBytes::optimizer, "optimizer")})
    for (int64_t bytes : {kMaxBytes / 2, INT64_MAX / 2 + 1, int64_t(-1)}) {
      Stage layer;
      layer.bytes.*field = bytes;
      EXPECT_EQ(message(layer, 2),
                "stage 0, layers 0 to 2: the bytes `" + std::string(what) +
                    "` must add up to at most 1099511627776; use more stages "
                    "or smaller "
                    "layers");
    }
  // Forward and backward are added before, where layers are cut.
  for (auto [field, what] : {std::pair(&StageCost::forward, "forward"),
                             std::pair(&StageCost::backward, "backward"),
                             std::pair(&StageCost::input, "input"),
                             std::pair(&StageCost::weight, "weight"),
                             std::pair(&StageCost::recompute, "recompute")}) {
    Stage layer;
    layer.cost.*field = 1e308;
    EXPECT_EQ(
        message(layer, 2),
        "stage 0, layers 0 to 2: the costs `" + std::string(what) +
            "` must add up to a finite number; give costs in a larger unit");
    EXPECT_EQ(message(layer, 6), "accepted");
  }
  EXPECT_EQ(message({}, 7),
            "7 stages need at least as many layers, but there are 6; use fewer "
            "stages or cut the model into more layers");
}
