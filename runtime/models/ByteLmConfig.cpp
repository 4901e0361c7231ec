//===- ByteLmConfig.cpp - Shape of the byte-level language model ----------===//

#include "ByteLmConfig.h"

#include "penstock/Program/Text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace penstock::runtime {

namespace {
/// The keys with an integer.
struct IntegerKey {
  std::string_view name;
  int32_t ByteLmConfig::*member;
  int32_t max;
};
constexpr IntegerKey kIntegerKeys[] = {
    {"width", &ByteLmConfig::width, 8192},
    {"hidden", &ByteLmConfig::hidden, 32768},
    {"context", &ByteLmConfig::context, 4096},
    {"embed", &ByteLmConfig::embed, 1024},
    {"samples", &ByteLmConfig::samples, 65536},
};

template <typename T>
bool parseNumber(std::string_view text, T &value) {
  const char *end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end && !text.empty();
}
} // namespace

/// Sets one key; returns what is wrong with the value, or nothing.
static std::string setKey(ByteLmConfig &config, std::string_view key,
                          std::string_view value) {
  for (const IntegerKey &known : kIntegerKeys) {
    if (key != known.name)
      continue;
    int32_t &member = config.*known.member;
    if (!parseNumber(value, member) || member < 1 || member > known.max)
      return "is not an integer from 1 to " + std::to_string(known.max);
    return "";
  }
  if (key == "lr") {
    if (!parseNumber(value, config.lr) || !std::isfinite(config.lr) ||
        config.lr <= 0)
      return "is not a positive number";
    return "";
  }
  if (key == "clip") {
    if (!parseNumber(value, config.clip) || !std::isfinite(config.clip) ||
        config.clip <= 0)
      return "is not a positive number";
    return "";
  }
  if (key == "seed")
    return parseNumber(value, config.seed) ? "" : "is not an integer >= 0";
  if (key == "optimizer") {
    if (value != "adam" && value != "sgd")
      return "is not adam or sgd";
    config.optimizer = value == "sgd" ? Optimizer::Sgd : Optimizer::Adam;
    return "";
  }
  if (key == "type") {
    if (value != "fp32" && value != "bf16")
      return "is not fp32 or bf16";
    config.type = value == "bf16" ? ElementType::BFloat16 : ElementType::Float;
    return "";
  }
  return "is not known; the keys are width, hidden, context, embed, samples, "
         "lr, optimizer, clip, type and seed";
}

Result<ByteLmConfig> ByteLmConfig::parse(std::string_view description) {
  const size_t colon = description.find(':');
  const std::string_view name = description.substr(0, colon);
  if (name != "byte-lm")
    return Failure{"unknown model '" + std::string(name) +
                   "'; the known models are: byte-lm"};
  ByteLmConfig config;
  config.lr = 0;
  for (size_t begin = colon; begin != std::string_view::npos;) {
    const size_t end = description.find(',', begin + 1);
    const std::string_view entry = description.substr(
        begin + 1, std::min(end, description.size()) - begin - 1);
    begin = end;
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos)
      return Failure{"model byte-lm: '" + std::string(entry) +
                     "' is not of the form key=value"};
    const std::string why =
        setKey(config, entry.substr(0, equals), entry.substr(equals + 1));
    if (!why.empty())
      return Failure{"model byte-lm: '" + std::string(entry) + "' " + why};
  }
  if (config.lr == 0)
    config.lr = config.optimizer == Optimizer::Sgd ? 0.3 : ByteLmConfig().lr;
  return config;
}

std::string ByteLmConfig::str() const {
  std::string text = "byte-lm:";
  for (const IntegerKey &key : kIntegerKeys)
    text +=
        std::string(key.name) + '=' + std::to_string(this->*key.member) + ',';
  return text + "lr=" + formatNumber(lr) +
         ",optimizer=" + (optimizer == Optimizer::Adam ? "adam" : "sgd") +
         (clip > 0 ? ",clip=" + formatNumber(clip) : "") +
         (type == ElementType::BFloat16 ? ",type=bf16" : "") +
         ",seed=" + std::to_string(seed);
}

std::string describeByteLm() {
  return ByteLmConfig().str() +
         " (optimizer: adam or sgd; clip: largest norm of the "
         "gradients, with post_validation; type: fp32, or bf16 on GPUs; all "
         "keys optional)";
}

LayerShape shapeOf(LayerKind kind, const ByteLmConfig &config) {
  const int64_t n = config.samples, width = config.width,
                hidden = config.hidden,
                inputs = int64_t(config.context) * config.embed;
  // A sum of k products with unit inputs has unit variance at sqrt(3 / k).
  auto bound = [](int64_t k) { return std::sqrt(3.0 / double(k)); };
  auto stash = [&](std::string_view name, int64_t rows, int64_t cols) {
    return TensorShape{name, rows, cols, 0, config.type};
  };
  switch (kind) {
  case LayerKind::Embedding:
    return {{{"table", 256, config.embed, std::sqrt(3.0)},
             {"weight", inputs, width, bound(inputs)},
             {"bias", 1, width}},
            {stash("inputs", n, inputs), stash("gradient", n, width)}};
  case LayerKind::Block:
    return {{{"weight1", width, hidden, bound(width)},
             {"bias1", 1, hidden},
             {"weight2", hidden, width, 0.5 * bound(hidden)},
             {"bias2", 1, width}},
            {stash("normalised", n, width),
             {"inverse_rms", n, 1},
             stash("hidden", n, hidden),
             stash("hidden_gradient", n, hidden),
             stash("gradient", n, width)}};
  case LayerKind::Head:
    break;
  }
  return {{{"weight", width, 256, 0.1 * bound(width)}, {"bias", 1, 256}},
          {stash("normalised", n, width),
           {"inverse_rms", n, 1},
           stash("logits_gradient", n, 256)}};
}

int64_t strideOf(std::span<const TensorShape> tensors) {
  int64_t stride = 0;
  for (const TensorShape &tensor : tensors)
    stride += tensor.stride();
  return stride;
}

int64_t bytesOf(std::span<const TensorShape> tensors) {
  int64_t bytes = 0;
  for (const TensorShape &tensor : tensors)
    bytes += tensor.bytes();
  return bytes;
}

StageBytes bytesOf(LayerKind kind, const ByteLmConfig &config) {
  const LayerShape shape = shapeOf(kind, config);
  StageBytes bytes;
  if (kind != LayerKind::Head)
    bytes.output = sizeOf(config.type) * config.samples * config.width;
  bytes.stash = bytesOf(shape.stash);
  bytes.parameters = bytes.gradients = bytesOf(shape.parameters);
  bytes.optimizer =
      config.optimizer == Optimizer::Adam ? 2 * bytes.parameters : 0;
  // Beside the parameters there are those that products read.
  if (config.type != ElementType::Float)
    bytes.parameters += sizeOf(config.type) * strideOf(shape.parameters);
  return bytes;
}

StageBytes bytesOf(const Stage &stage, int32_t numLayers,
                   const ByteLmConfig &config) {
  StageBytes sum;
  const int32_t last = stage.firstLayer + stage.numLayers - 1;
  auto add = [&](LayerKind kind, int64_t times) {
    const StageBytes bytes = bytesOf(kind, config);
    sum.stash += times * bytes.stash;
    sum.parameters += times * bytes.parameters;
    sum.gradients += times * bytes.gradients;
    sum.optimizer += times * bytes.optimizer;
  };
  const bool embedding = stage.firstLayer == 0, head = last == numLayers - 1;
  add(LayerKind::Embedding, embedding);
  add(LayerKind::Block, stage.numLayers - embedding - head);
  add(LayerKind::Head, head);
  sum.output = bytesOf(kindOf(last, numLayers), config).output;
  return sum;
}

StageCost costOf(LayerKind kind, const ByteLmConfig &config) {
  const double block = 2.0 * config.width * config.hidden;
  switch (kind) {
  case LayerKind::Embedding: {
    // No gradient leaves the first layer; that of the table comes through a
    // second product.
    const double forward =
        double(config.context) * config.embed * config.width / block;
    return {forward, 2 * forward, 0, 2 * forward, forward};
  }
  case LayerKind::Block:
    return {1, 2, 1, 1, 1};
  case LayerKind::Head:
    break;
  }
  const double forward = 256.0 * config.width / block;
  return {forward, 2 * forward, forward, forward, forward};
}

Result<int32_t> countLayers(const Problem &problem) {
  int32_t layers = 0;
  for (int32_t s = 0; s < problem.numStages(); ++s) {
    const Stage &stage = problem.stages[s];
    if (stage.firstLayer != layers || stage.numLayers < 1)
      return Failure{"stage " + std::to_string(s) + ": its layers (" +
                     std::to_string(stage.firstLayer) + ", " +
                     std::to_string(stage.numLayers) +
                     ") do not follow those of the stage before; expected a "
                     "first layer of " +
                     std::to_string(layers) + " and at least one layer"};
    layers += stage.numLayers;
  }
  if (layers < 2)
    return Failure{"byte-lm has at least 2 layers, the embedding and the head, "
                   "but the program has " +
                   std::to_string(layers) +
                   "; give the schedule a pipe.model with more layers"};
  if (problem.numMicrobatches < 1)
    return Failure{"the program has no micro-batches"};
  return layers;
}

} // namespace penstock::runtime
