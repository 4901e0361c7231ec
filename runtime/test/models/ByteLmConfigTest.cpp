//===- ByteLmConfigTest.cpp - Descriptions, layouts and the printed model -===//

#include "ByteLmConfig.h"

#include "penstock/Runtime/Models.h"
#include "gtest/gtest.h"

using namespace penstock;
using namespace penstock::runtime;

namespace {

std::string errorOf(std::string_view description) {
  Result<ByteLmConfig> config = ByteLmConfig::parse(description);
  return config ? "" : config.message();
}

TEST(ByteLmConfig, NameAloneIsTheDefault) {
  Result<ByteLmConfig> config = ByteLmConfig::parse("byte-lm");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->str(), ByteLmConfig().str());
}

TEST(ByteLmConfig, EveryKeyIsReadAndPrinted) {
  const std::string text = "byte-lm:width=24,hidden=40,context=5,embed=6,"
                           "samples=7,lr=0.125,optimizer=sgd,seed=99";
  Result<ByteLmConfig> config = ByteLmConfig::parse(text);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->width, 24);
  EXPECT_EQ(config->hidden, 40);
  EXPECT_EQ(config->context, 5);
  EXPECT_EQ(config->embed, 6);
  EXPECT_EQ(config->samples, 7);
  EXPECT_EQ(config->lr, 0.125);
  EXPECT_EQ(config->optimizer, Optimizer::Sgd);
  EXPECT_EQ(config->seed, 99u);
  EXPECT_EQ(config->str(), text);
}

TEST(ByteLmConfig, RateDependsOnTheOptimizer) {
  EXPECT_EQ(ByteLmConfig::parse("byte-lm:optimizer=adam")->lr, 0.003);
  EXPECT_EQ(ByteLmConfig::parse("byte-lm:optimizer=sgd")->lr, 0.3);
  EXPECT_EQ(ByteLmConfig::parse("byte-lm:lr=0.5,optimizer=sgd")->lr, 0.5);
}

TEST(ByteLmConfig, Clip) {
  EXPECT_EQ(ByteLmConfig::parse("byte-lm")->clip, 0);
  const ByteLmConfig config = *ByteLmConfig::parse("byte-lm:clip=0.5");
  EXPECT_EQ(config.clip, 0.5);
  EXPECT_EQ(ByteLmConfig::parse(config.str())->clip, 0.5);
}

TEST(ByteLmConfig, Type) {
  EXPECT_EQ(ByteLmConfig::parse("byte-lm:type=fp32")->str(),
            ByteLmConfig().str());
  const ByteLmConfig config = *ByteLmConfig::parse("byte-lm:type=bf16");
  EXPECT_EQ(config.type, ElementType::BFloat16);
  EXPECT_EQ(ByteLmConfig::parse(config.str())->type, ElementType::BFloat16);
  EXPECT_EQ(errorOf("byte-lm:type=fp16"),
            "model byte-lm: 'type=fp16' is not fp32 or bf16");
}

// Activations have half the bytes; beside the parameters there are those that
// products read.
TEST(ByteLmConfig, BytesWithBFloat16) {
  const ByteLmConfig full = *ByteLmConfig::parse("byte-lm"),
                     half = *ByteLmConfig::parse("byte-lm:type=bf16");
  for (LayerKind kind :
       {LayerKind::Embedding, LayerKind::Block, LayerKind::Head}) {
    const StageBytes f = bytesOf(kind, full), h = bytesOf(kind, half);
    // The root of the mean square stays.
    const int64_t rms = kind == LayerKind::Embedding ? 0 : 4 * full.samples;
    EXPECT_EQ(2 * h.output, f.output);
    EXPECT_EQ(2 * (h.stash - rms), f.stash - rms);
    EXPECT_EQ(2 * h.parameters, 3 * f.parameters);
    EXPECT_EQ(h.gradients, f.gradients);
    EXPECT_EQ(h.optimizer, f.optimizer);
  }
}

TEST(ByteLmConfig, WrongDescriptions) {
  EXPECT_EQ(errorOf("gpt:width=3"),
            "unknown model 'gpt'; the known models are: byte-lm");
  EXPECT_EQ(errorOf(""), "unknown model ''; the known models are: byte-lm");
  EXPECT_EQ(errorOf("byte-lm:"),
            "model byte-lm: '' is not of the form key=value");
  EXPECT_EQ(errorOf("byte-lm:width"),
            "model byte-lm: 'width' is not of the form key=value");
  EXPECT_EQ(errorOf("byte-lm:seed=1,"),
            "model byte-lm: '' is not of the form key=value");
  EXPECT_EQ(
      errorOf("byte-lm:seed=1,widht=3"),
      "model byte-lm: 'widht=3' is not known; the keys are width, "
      "hidden, context, embed, samples, lr, optimizer, clip, type and seed");
  for (const char *entry : {"width=0", "width=-1", "width=8193", "width=3x",
                            "width=", "width=99999999999"})
    EXPECT_EQ(errorOf(std::string("byte-lm:") + entry),
              std::string("model byte-lm: '") + entry +
                  "' is not an integer from 1 to 8192");
  for (const char *entry : {"lr=0", "lr=-1", "lr=nan", "lr=inf", "lr=fast"})
    EXPECT_EQ(errorOf(std::string("byte-lm:") + entry),
              std::string("model byte-lm: '") + entry +
                  "' is not a positive number");
  for (const char *entry : {"clip=0", "clip=-1", "clip=inf", "clip=tight"})
    EXPECT_EQ(errorOf(std::string("byte-lm:") + entry),
              std::string("model byte-lm: '") + entry +
                  "' is not a positive number");
  EXPECT_EQ(errorOf("byte-lm:optimizer=lion"),
            "model byte-lm: 'optimizer=lion' is not adam or sgd");
  EXPECT_EQ(errorOf("byte-lm:seed=-1"),
            "model byte-lm: 'seed=-1' is not an integer >= 0");
}

TEST(ByteLmConfig, BytesOfAStageAreTheSumOfItsLayers) {
  // Odd sizes, so that every tensor needs padding.
  ByteLmConfig config = *ByteLmConfig::parse(
      "byte-lm:width=5,hidden=7,context=3,embed=3,samples=3");
  const int32_t numLayers = 6;
  for (int32_t first = 0; first < numLayers; ++first)
    for (int32_t count = 1; first + count <= numLayers; ++count) {
      Stage stage;
      stage.firstLayer = first;
      stage.numLayers = count;
      StageBytes sum;
      for (int32_t l = first; l < first + count; ++l) {
        StageBytes bytes = bytesOf(kindOf(l, numLayers), config);
        EXPECT_EQ(bytes.stash % 64, 0);
        EXPECT_EQ(bytes.parameters % 64, 0);
        sum.output = bytes.output;
        sum.stash += bytes.stash;
        sum.parameters += bytes.parameters;
        sum.gradients += bytes.gradients;
        sum.optimizer += bytes.optimizer;
      }
      EXPECT_EQ(bytesOf(stage, numLayers, config), sum);
    }
}

TEST(ByteLmConfig, CountsTheLayersOfAProgram) {
  Problem problem;
  problem.numMicrobatches = 1;
  problem.stages.resize(2);
  problem.stages[0].numLayers = 3;
  problem.stages[1].firstLayer = 3;
  problem.stages[1].numLayers = 2;
  EXPECT_EQ(*countLayers(problem), 5);

  problem.stages[1].firstLayer = 4;
  EXPECT_EQ(countLayers(problem).message(),
            "stage 1: its layers (4, 2) do not follow those of the stage "
            "before; expected a first layer of 3 and at least one layer");
  problem.stages.resize(1);
  problem.stages[0].numLayers = 1;
  EXPECT_EQ(countLayers(problem).message(),
            "byte-lm has at least 2 layers, the embedding and the head, but "
            "the program has 1; give the schedule a pipe.model with more "
            "layers");
  problem.stages[0].numLayers = 2;
  problem.numMicrobatches = 0;
  EXPECT_EQ(countLayers(problem).message(), "the program has no micro-batches");
}

TEST(PrintModel, IsAPipeModel) {
  Result<std::string> text = printModel(
      "byte-lm:width=16,hidden=32,context=4,embed=8,samples=2,optimizer=sgd",
      5);
  ASSERT_TRUE(text);
  EXPECT_EQ(
      *text,
      R"(// byte-lm:width=16,hidden=32,context=4,embed=8,samples=2,lr=0.3,optimizer=sgd,seed=1
pipe.model @byte_lm {
  layer "embedding" costs(#pipe.cost<forward = 0.5, input = 0.0, weight = 1.0>) bytes(#pipe.bytes<output = 128, stash = 384, parameters = 10304, gradients = 10304>)
  layer "block" times 3 costs(#pipe.cost<forward = 1.0, input = 1.0, weight = 1.0>) bytes(#pipe.bytes<output = 128, stash = 832, parameters = 4288, gradients = 4288>)
  layer "head" costs(#pipe.cost<forward = 4.0, input = 4.0, weight = 4.0>) bytes(#pipe.bytes<stash = 2240, parameters = 17408, gradients = 17408>)
}
)");
}

TEST(PrintModel, NumbersOfLayers) {
  EXPECT_EQ(printModel("byte-lm", 2)->find("block"), std::string::npos);
  const std::string three = *printModel("byte-lm", 3);
  EXPECT_NE(three.find("\"block\" costs"), std::string::npos);
  EXPECT_NE(three.find("optimizer = "), std::string::npos);
  EXPECT_EQ(printModel("byte-lm", 1).message(),
            "byte-lm has from 2 to 1048576 layers, the embedding and the head "
            "among them, not 1");
  EXPECT_EQ(printModel("nope", 4).message(),
            "unknown model 'nope'; the known models are: byte-lm");
}

TEST(DescribeModels, NamesKeysAndDefaults) {
  EXPECT_EQ(describeModels(),
            "byte-lm:width=128,hidden=256,context=8,embed=32,samples=64,"
            "lr=0.003,optimizer=adam,seed=1 (optimizer: adam or sgd; clip: "
            "largest norm of the gradients, with post_validation; type: "
            "fp32, or bf16 on GPUs; all keys optional)\n");
}

} // namespace
