//===- ByteLmStageTest.cpp - The mathematics of the layers ----------------===//

#include "ByteLmStage.h"

#include "gtest/gtest.h"

using namespace penstock;
using namespace penstock::runtime;

namespace {

/// A corpus of all byte values in a mixed order.
Corpus mixedCorpus(int32_t context) {
  std::vector<uint8_t> bytes(400);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<uint8_t>(randomBits({i}));
  return Corpus(bytes, context);
}

/// A chain of stages in double precision, and one step over them.
class Chain {
public:
  Chain(const ByteLmConfig &config, const Corpus &corpus,
        std::vector<int32_t> cuts, std::vector<double> weights)
      : weights(std::move(weights)) {
    const int32_t numLayers = cuts.back();
    int32_t first = 0;
    for (int32_t cut : cuts) {
      Stage range;
      range.firstLayer = first;
      range.numLayers = cut - first;
      first = cut;
      stages.push_back(std::make_unique<ByteLmStage<double>>(config, corpus,
                                                             range, numLayers));
      stashes.push_back(
          makeAlignedArray<std::byte>(stages.back()->stashBytes()));
      const int64_t bytes =
          int64_t(sizeof(double)) * config.samples * config.width;
      activations.push_back(makeAlignedArray<std::byte>(bytes));
      gradients.push_back(makeAlignedArray<std::byte>(bytes));
    }
  }

  double forward(int32_t microbatch) {
    for (size_t s = 0; s < stages.size(); ++s)
      stages[s]->forward(context(s, microbatch, activations[s].get()), step);
    return stages.back()->loss();
  }
  void backward(int32_t microbatch) {
    for (size_t s = stages.size(); s-- > 0;) {
      auto operands = context(s, microbatch, gradients[s].get());
      stages[s]->backwardInput(operands, step);
      stages[s]->backwardWeight(operands, step);
    }
  }
  double loss() {
    double sum = 0;
    for (size_t mb = 0; mb < weights.size(); ++mb)
      sum += weights[mb] * forward(static_cast<int32_t>(mb));
    return sum;
  }

  std::vector<std::unique_ptr<ByteLmStage<double>>> stages;

private:
  ActionContext context(size_t s, int32_t microbatch, std::byte *output) {
    const bool last = s + 1 == stages.size();
    ActionContext context;
    context.stage = static_cast<int32_t>(s);
    context.microbatch = microbatch;
    context.weight = weights[microbatch];
    context.input = s ? activations[s - 1].get() : nullptr;
    context.gradient = last ? nullptr : gradients[s + 1].get();
    context.output = output;
    if (output == activations[s].get() ? last : s == 0)
      context.output = nullptr;
    context.stash = stashes[s].get();
    return context;
  }

  int64_t step = 3;
  std::vector<double> weights; ///< of the micro-batches
  std::vector<AlignedArray<std::byte>> stashes, activations, gradients;
};

/// Every parameter of every layer against central differences; through the
/// borders of stages and within them.
TEST(ByteLmStage, GradientsAreTheDifferencesOfTheLoss) {
  const ByteLmConfig config = *ByteLmConfig::parse(
      "byte-lm:width=6,hidden=9,context=3,embed=2,samples=4,seed=4");
  const Corpus corpus = mixedCorpus(config.context);
  for (const std::vector<int32_t> &cuts :
       {std::vector<int32_t>{1, 3, 4}, {2}}) {
    Chain chain(config, corpus, cuts, {0.75, 0.25});
    for (int32_t mb = 0; mb < 2; ++mb) {
      chain.forward(mb);
      chain.backward(mb);
    }
    for (auto &stage : chain.stages)
      stage->forEachParameter(
          [&](int32_t layer, const TensorShape &tensor, int64_t offset) {
            double largest = 0;
            for (int64_t i = 0; i < tensor.size(); ++i) {
              double &value = stage->parameterArray()[offset + i];
              const double gradient = stage->gradientArray()[offset + i],
                           start = value, delta = 1e-5;
              value = start + delta;
              const double above = chain.loss();
              value = start - delta;
              const double below = chain.loss();
              value = start;
              ASSERT_NEAR(gradient, (above - below) / (2 * delta), 1e-8)
                  << "layer " << layer << ' ' << tensor.name << '[' << i << ']';
              largest = std::max(largest, std::abs(gradient));
            }
            // The differences say something.
            EXPECT_GT(largest, 1e-4) << "layer " << layer << ' ' << tensor.name;
          });
  }
}

TEST(ByteLmStage, LossStartsNearThatOfUniformBytes) {
  const ByteLmConfig config;
  const Corpus corpus = mixedCorpus(config.context);
  EXPECT_NEAR(Chain(config, corpus, {6}, {1}).loss(), std::log(256.0), 0.1);
}

/// One value of x, stepped by hand.
TEST(ByteLmStage, Optimizers) {
  const ByteLmConfig adam = *ByteLmConfig::parse(
      "byte-lm:width=4,hidden=4,context=2,embed=2,samples=3,lr=0.01");
  ByteLmConfig sgd = adam;
  sgd.optimizer = Optimizer::Sgd;
  const Corpus corpus = mixedCorpus(adam.context);
  for (const ByteLmConfig &config : {adam, sgd}) {
    Chain chain(config, corpus, {3}, {1});
    ByteLmStage<double> &stage = *chain.stages[0];
    const size_t size = stage.parameterArray().size();
    std::vector<double> m(size), v(size);
    for (int t = 1; t <= 3; ++t) {
      chain.forward(0);
      chain.backward(0);
      std::vector<double> expected(size);
      for (size_t i = 0; i < size; ++i) {
        const double g = stage.gradientArray()[i],
                     x = stage.parameterArray()[i];
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.99 * v[i] + 0.01 * g * g;
        expected[i] =
            config.optimizer == Optimizer::Sgd
                ? x - 0.01 * g
                : x - 0.01 * (m[i] / (1 - std::pow(0.9, t))) /
                          (std::sqrt(v[i] / (1 - std::pow(0.99, t))) + 1e-8);
      }
      stage.update();
      for (size_t i = 0; i < size; ++i) {
        ASSERT_NEAR(stage.parameterArray()[i], expected[i], 1e-12);
        ASSERT_EQ(stage.gradientArray()[i], 0);
      }
    }
  }
}

TEST(ByteLmStage, ParametersDependOnLayerAndSeedOnly) {
  ByteLmConfig config = *ByteLmConfig::parse("byte-lm:width=8,hidden=8");
  const Corpus corpus = mixedCorpus(config.context);
  Chain whole(config, corpus, {4}, {1}), cut(config, corpus, {2, 4}, {1, 1, 1});
  std::vector<double> one, two;
  for (double value : whole.stages[0]->parameterArray())
    one.push_back(value);
  for (auto &stage : cut.stages)
    for (double value : stage->parameterArray())
      two.push_back(value);
  EXPECT_EQ(one, two);

  config.seed = 2;
  Chain other(config, corpus, {4}, {1});
  EXPECT_NE(other.stages[0]->parameterArray()[0], one[0]);
  // Blocks are not copies of each other.
  std::vector<double> blocks;
  whole.stages[0]->forEachParameter(
      [&](int32_t, const TensorShape &tensor, int64_t offset) {
        if (tensor.name == "weight1")
          blocks.push_back(one[offset]);
      });
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_NE(blocks[0], blocks[1]);
}

TEST(Corpus, WindowsCoverTheTextAndStayInIt) {
  const std::vector<uint8_t> bytes = {0, 1, 2, 3, 4};
  const Corpus corpus(bytes, 3); // windows of 4 bytes: two of them
  int count[2] = {};
  for (int32_t sample = 0; sample < 100; ++sample) {
    const uint8_t first = *corpus.window(1, 0, 0, sample);
    ASSERT_LT(first, 2);
    ++count[first];
  }
  EXPECT_GT(count[0], 20);
  EXPECT_GT(count[1], 20);
  // Every part of the index counts.
  const Corpus text = mixedCorpus(8);
  const uint8_t *window = text.window(1, 2, 3, 4);
  EXPECT_EQ(window, text.window(1, 2, 3, 4));
  EXPECT_NE(window, text.window(2, 2, 3, 4));
  EXPECT_NE(window, text.window(1, 3, 3, 4));
  EXPECT_NE(window, text.window(1, 2, 4, 4));
  EXPECT_NE(window, text.window(1, 2, 3, 5));
}

} // namespace
