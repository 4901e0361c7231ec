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

/// The best of all ways to cut that `allows(cuts)`.
template <typename Allows>
static void enumerate(const Costs &costs, size_t numStages, Cuts &cuts,
                      Quality &best, Allows &&allows) {
  if (cuts.size() == numStages) {
    if (allows(cuts))
      best = std::min(best, qualityOf(costs, cuts));
    return;
  }
  const size_t left = numStages - cuts.size();
  for (size_t cut = cuts.back() + 1; cut + left <= costs.size(); ++cut) {
    cuts.push_back(static_cast<int32_t>(cut));
    enumerate(costs, numStages, cuts, best, allows);
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
  // The Llama 3 Herd of Models (arXiv:2407.21783), section 3.3: 126 layers, the
  // embedding and the head over 16 ranks.
  Cuts eights;
  for (int32_t cut = 0; cut < 128; cut += 8)
    eights.push_back(cut);
  EXPECT_EQ(balanced(Costs(128, 1.0), 16), eights);
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
    enumerate(costs, numStages, cuts, best, [](const Cuts &) { return true; });
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
// Within memory
//===----------------------------------------------------------------------===//

static Stage layer(double cost, int64_t held, int64_t stash) {
  Stage stage;
  stage.cost = {cost, 0, 0, 0, 0};
  stage.bytes.stash = stash;
  stage.bytes.parameters = held / 2;
  stage.bytes.gradients = held / 4;
  stage.bytes.optimizer = held - held / 2 - held / 4;
  return stage;
}

static std::string messageOf(const std::vector<Stage> &layers,
                             const std::vector<StageLimit> &limits) {
  Result<Cuts> cuts = balanceLayers(layers, limits);
  return cuts ? "accepted" : cuts.message();
}

static void expectBegin(const std::string &text, const std::string &begin) {
  EXPECT_EQ(text.substr(0, begin.size()), begin);
}

TEST(BalanceMemory, IsTheBestOfAllCutsThatFit) {
  std::mt19937 random(2);
  int found = 0, refused = 0;
  for (int round = 0; round < 2000; ++round) {
    const size_t n = 1 + random() % 9;
    const size_t numStages = 1 + random() % n;
    std::vector<Stage> layers(n);
    Costs costs(n);
    for (size_t i = 0; i < n; ++i) {
      costs[i] = static_cast<double>(random() % 6);
      layers[i] = layer(costs[i], random() % 20, random() % 8);
    }
    std::vector<StageLimit> limits(numStages);
    const bool free = round % 10 == 0;
    for (StageLimit &limit : limits)
      limit = {static_cast<int64_t>(random() % 5),
               free ? 100000 : static_cast<int64_t>(random() % 120)};
    auto fits = [&](const Cuts &cuts) {
      for (size_t s = 0; s < numStages; ++s) {
        const size_t end = s + 1 < numStages ? cuts[s + 1] : n;
        int64_t bytes = 0;
        for (size_t i = cuts[s]; i < end; ++i) {
          const StageBytes &b = layers[i].bytes;
          bytes += b.parameters + b.gradients + b.optimizer +
                   limits[s].stashes * b.stash;
        }
        if (bytes > limits[s].bytes)
          return false;
      }
      return true;
    };
    Cuts cuts = {0};
    Quality best{std::numeric_limits<double>::infinity(), 0, {}};
    enumerate(costs, numStages, cuts, best, fits);
    Result<Cuts> result = balanceLayers(layers, limits);
    ASSERT_EQ(bool(result), !best.cuts.empty()) << round;
    if (result) {
      EXPECT_EQ(*result, best.cuts) << round;
      ++found;
    } else {
      ++refused;
    }
    if (free) {
      EXPECT_EQ(*result, balanced(costs, static_cast<int32_t>(numStages)));
    }
  }
  EXPECT_GT(found, 400);
  EXPECT_GT(refused, 400);
}

// Under 1F1B rank r has p - r stashes alive: the first stage gets
// fewer layers where stashes fill the memory.
TEST(BalanceMemory, MovesLayersAwayFromTheFirstStage) {
  const std::vector<Stage> layers(8, layer(1, 0, 10));
  EXPECT_EQ(*balanceLayers(layers, std::vector<StageLimit>{{2, 80}, {1, 80}}),
            (Cuts{0, 4}));
  EXPECT_EQ(*balanceLayers(layers, std::vector<StageLimit>{{2, 60}, {1, 60}}),
            (Cuts{0, 3}));
}

TEST(BalanceMemory, SaysWhyNothingFits) {
  const std::vector<Stage> layers(8, layer(1, 4, 10));
  EXPECT_EQ(messageOf(layers, {{2, 60}, {1, 60}}),
            "the layers do not fit: filled as far as memory allows, 2 stages "
            "hold 6 of 8 layers; with layer 6, the last stage needs 70 bytes "
            "with 1 stash alive, more than the 60 there are; use more stages "
            "or ranks, smaller micro-batches, a schedule with fewer stashes "
            "alive, or recompute");
  expectBegin(messageOf(layers, {{2, 12}, {1, 13}}),
              "layer 0 fits on no stage: even on stage 1 it "
              "needs 14 bytes with 1 stash alive, "
              "more than the 13 there are; use more stages");
  // Layer 2 fits on stage 0 only, which would leave none for stage 1.
  const std::vector<Stage> last = {layer(1, 30, 0), layer(1, 1, 0),
                                   layer(1, 30, 0)};
  EXPECT_EQ(messageOf(last, {{0, 100}, {0, 20}}),
            "the layers do not fit: some fit on a few stages only, and no cut "
            "into 2 stages with a layer each puts all of them there; use more "
            "stages or ranks, smaller micro-batches, a schedule with fewer "
            "stashes alive, or recompute");
  EXPECT_EQ(messageOf({layer(1, -4, 0)}, {{0, 100}}),
            "layer 0 has -2 bytes; a size must be at least 0 and at most "
            "1099511627776");
  EXPECT_EQ(messageOf(layers, {}),
            "there are no stages to put layers on; give at least one");
}

TEST(BalanceMemory, SumsMayBeLargerThanAnyLimit) {
  const std::vector<Stage> layers(64, layer(1, kMaxBytes, kMaxBytes));
  const int64_t most = std::numeric_limits<int64_t>::max();
  expectBegin(messageOf(layers, {{most, most}}),
              "layer 0 fits on no stage: even on stage 0 it "
              "needs more than 9223372036854775807 bytes with ");
}

TEST(BalanceMemory, LongModelsTakeNoQuadraticTime) {
  std::vector<Stage> layers(1 << 17, layer(1, 1, 1));
  Result<Cuts> cuts =
      balanceLayers(layers, std::vector<StageLimit>(8, {1, 1 << 15}));
  ASSERT_TRUE(cuts) << cuts.message();
  for (int32_t s = 0; s < 8; ++s)
    EXPECT_EQ((*cuts)[s], s << 14);
}

//===----------------------------------------------------------------------===//
// Several stages a rank
//===----------------------------------------------------------------------===//

/// The largest sum of a rank, then the largest part.
static std::pair<double, double> loadOf(const Costs &costs, Cuts cuts,
                                        const std::vector<int32_t> &placement) {
  const size_t numStages = cuts.size();
  cuts.push_back(static_cast<int32_t>(costs.size()));
  std::vector<double> ranks(numStages, 0);
  double largest = 0;
  for (size_t i = 0; i < placement.size(); ++i) {
    double sum = 0;
    for (int32_t l = cuts[i % numStages]; l < cuts[i % numStages + 1]; ++l)
      sum += costs[l];
    ranks[placement[i]] += sum;
    largest = std::max(largest, sum);
  }
  return {*std::max_element(ranks.begin(), ranks.end()), largest};
}

static Cuts balancedOn(const Costs &costs, int32_t numStages,
                       const std::vector<int32_t> &placement) {
  Result<Cuts> cuts = balanceLayers(costs, numStages, placement);
  EXPECT_TRUE(cuts) << cuts.message();
  return *cuts;
}

static Costs blocksWithHead(int32_t blocks, double head) {
  Costs costs(blocks, 1.0);
  costs.push_back(head);
  return costs;
}

// reference: "balance rank sums, not only chunks".
TEST(BalanceRanks, AnExpensiveHeadRelievesItsRank) {
  using Load = std::pair<double, double>;
  // No rank has less than the head and a layer on each of its other stages.
  Costs costs = blocksWithHead(16, 6);
  const std::vector<int32_t> vee = placeSnake(8, 4);
  EXPECT_EQ(balancedOn(costs, 8, vee), (Cuts{0, 1, 3, 5, 7, 10, 13, 16}));
  EXPECT_EQ(loadOf(costs, balancedOn(costs, 8, vee), vee), Load(7, 6));

  costs = blocksWithHead(16, 4);
  const std::vector<int32_t> loop = placeLoop(8, 4);
  EXPECT_EQ(loadOf(costs, balancedOn(costs, 8, loop), loop), Load(5, 4));

  costs = blocksWithHead(32, 4.8);
  costs.insert(costs.begin(), 0.1);
  const std::vector<int32_t> long4 = placeLoop(16, 4);
  EXPECT_DOUBLE_EQ(loadOf(costs, balancedOn(costs, 16, long4), long4).first,
                   9.8);
}

TEST(BalanceRanks, OneStageARankOrEqualLayersChangeNothing) {
  const Costs costs = blocksWithHead(30, 4);
  EXPECT_EQ(balancedOn(costs, 8, placeLoop(8, 8)), balanced(costs, 8));
  for (int32_t layers : {16, 24, 32})
    EXPECT_EQ(balancedOn(Costs(layers, 1.0), 8, placeSnake(8, 4)),
              balanced(Costs(layers, 1.0), 8));
}

TEST(BalanceRanks, CountsBothChains) {
  Problem both;
  both.numRanks = 4;
  both.numMicrobatches = 4;
  both.stages.resize(4);
  placeBothWays(both);
  // Rank 0 has the first stage and the last one, which is 6 at least.
  const Costs costs = blocksWithHead(10, 6);
  EXPECT_EQ(loadOf(costs, balanced(costs, 4), both.placement).first, 9);
  EXPECT_EQ(balancedOn(costs, 4, both.placement), (Cuts{0, 2, 6, 10}));
}

// Where layers but for the first and the last are equal, no cut is better.
// Where all are at random, most cuts are the best, and none is worse than that
// by stages alone.
TEST(BalanceRanks, IsTheBestCutOfUsualModels) {
  std::mt19937 random(3);
  int best = 0, all = 0;
  for (int round = 0; round < 400; ++round) {
    const int32_t p = 2 + static_cast<int32_t>(random() % 2);
    const int32_t chunks = p == 2 ? 2 + static_cast<int32_t>(random() % 2) : 2;
    const int32_t numStages = p * chunks;
    const bool usual = round % 2 == 0;
    Costs costs(numStages + random() % 6, 1.0);
    if (usual) {
      costs.front() = static_cast<double>(random() % 8) / 2;
      costs.back() = static_cast<double>(random() % 16) / 2;
    } else {
      for (double &cost : costs)
        cost = static_cast<double>(1 + random() % 5);
    }
    const std::vector<int32_t> placement =
        random() % 2 ? placeLoop(numStages, p) : placeSnake(numStages, p);
    double least = std::numeric_limits<double>::infinity();
    Cuts cuts = {0};
    Quality quality{std::numeric_limits<double>::infinity(), 0, {}};
    enumerate(costs, static_cast<size_t>(numStages), cuts, quality,
              [&](const Cuts &tried) {
                least = std::min(least, loadOf(costs, tried, placement).first);
                return true;
              });
    const double found =
        loadOf(costs, balancedOn(costs, numStages, placement), placement).first;
    EXPECT_LE(found,
              loadOf(costs, balanced(costs, numStages), placement).first);
    if (usual) {
      EXPECT_EQ(found, least) << round;
    } else {
      ++all;
      best += found == least;
    }
  }
  EXPECT_GE(best * 10, all * 9);
}

TEST(BalanceRanks, LongModelsTakeNoQuadraticTime) {
  Costs costs(1 << 17, 1.0);
  costs.back() = 1 << 15;
  const std::vector<int32_t> placement = placeSnake(8, 4);
  EXPECT_LE(loadOf(costs, balancedOn(costs, 8, placement), placement).first,
            40961);
  // Moves are given up at some time.
  const Costs many(1 << 13, 1.0);
  EXPECT_EQ(balancedOn(many, 1 << 12, placeLoop(1 << 12, 1 << 10)).size(),
            size_t(1) << 12);
}

TEST(BalanceRanks, KeepsToTheMemoryOfRanks) {
  const std::vector<Stage> layers(8, layer(1, 10, 0));
  const std::vector<StageLimit> free(4, {0, 1000});
  const std::vector<int32_t> loop = placeLoop(4, 2);
  Result<Cuts> cuts =
      balanceLayers(layers, free, loop, std::vector<int64_t>{30, 60});
  ASSERT_TRUE(cuts) << cuts.message();
  EXPECT_EQ(*cuts, (Cuts{0, 1, 3, 5}));
  EXPECT_EQ(
      balanceLayers(layers, free, loop, std::vector<int64_t>{30, 40}).message(),
      "no cut was found that leaves every rank enough memory");
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

TEST(DealLayers, KeepsToLimits) {
  const std::vector<Stage> layers(8, layer(1, 0, 10));
  Result<std::vector<Stage>> stages =
      dealLayers(layers, std::vector<StageLimit>{{2, 60}, {1, 60}});
  ASSERT_TRUE(stages) << stages.message();
  EXPECT_EQ(stages->at(0).numLayers, 3);
  EXPECT_EQ(stages->at(1).bytes.stash, 50);
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
