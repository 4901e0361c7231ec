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
  EXPECT_EQ(message({1, -2}, 1),
            "layer 1 costs -2.0; a cost must be finite and at least 0");
  EXPECT_EQ(message({std::numeric_limits<double>::quiet_NaN()}, 1),
            "layer 0 costs nan; a cost must be finite and at least 0");
  EXPECT_EQ(message({std::numeric_limits<double>::infinity()}, 1),
            "layer 0 costs inf; a cost must be finite and at least 0");
}
