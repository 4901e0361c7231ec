//===- ByteLm.cpp - The byte-level language model -------------------------===//

#include "ByteLm.h"

#include "ByteLmStage.h"

#include <algorithm>
#include <limits>

namespace penstock::runtime {

namespace {

class ByteLm final : public InspectableModel {
public:
  ByteLm(std::shared_ptr<const ByteLmSource> source, const Problem &problem,
         int32_t rank, int32_t numLayers)
      : source(std::move(source)), parts(problem.stages.size()),
        losses(problem.numMicrobatches, kNoLoss) {
    for (size_t k = 0; k < problem.placement.size(); ++k)
      if (const size_t s = k % parts.size();
          problem.placement[k] == rank && !parts[s].stage)
        parts[s].stage = std::make_unique<ByteLmStage<float>>(
            this->source->config, this->source->corpus, problem.stages[s],
            numLayers);
  }

  void beginStep(int64_t newStep) override {
    step = newStep;
    std::fill(losses.begin(), losses.end(), kNoLoss);
    for (Part &part : parts)
      part.hasCapture = false;
  }

  void forward(const ActionContext &context) override {
    ByteLmStage<float> &stage = *parts[context.stage].stage;
    stage.forward(context, step);
    if (stage.hasHead())
      losses[context.microbatch] = stage.loss();
  }
  void backward(const ActionContext &context) override {
    backwardInput(context);
    backwardWeight(context);
  }
  void backwardInput(const ActionContext &context) override {
    parts[context.stage].stage->backwardInput(context, step);
  }
  void backwardWeight(const ActionContext &context) override {
    parts[context.stage].stage->backwardWeight(context, step);
  }
  void recompute(const ActionContext &context) override {
    ActionContext withoutOutput = context;
    withoutOutput.output = nullptr;
    forward(withoutOutput);
  }

  void optimizerStep(int32_t stage) override {
    if (stage >= 0)
      return update(parts[stage]);
    for (Part &part : parts)
      if (part.stage)
        update(part);
  }

  std::span<float> gradients(int32_t stage) override {
    return parts[stage].stage->gradientArray();
  }

  double loss(int32_t microbatch) const override { return losses[microbatch]; }

  void captureGradients() override {
    for (Part &part : parts)
      if (part.stage)
        part.captured.resize(part.stage->gradientArray().size());
  }

  void forEachParameter(
      int32_t stage,
      const std::function<void(const Parameter &)> &fn) const override {
    if (stage < 0 || size_t(stage) >= parts.size() || !parts[stage].stage)
      return;
    const Part &part = parts[stage];
    const std::span<const float> values = part.stage->parameterArray();
    std::span<const float> gradients = part.stage->gradientArray();
    if (part.hasCapture)
      gradients = part.captured;
    part.stage->forEachParameter(
        [&](int32_t layer, const TensorShape &tensor, int64_t offset) {
          fn({layer, tensor.name, values.subspan(offset, tensor.size()),
              gradients.subspan(offset, tensor.size())});
        });
  }

private:
  struct Part {
    std::unique_ptr<ByteLmStage<float>> stage; ///< null: on another rank
    std::vector<float> captured;               ///< gradients; empty: not wanted
    bool hasCapture = false;                   ///< since beginStep
  };

  static void update(Part &part) {
    if (!part.captured.empty()) {
      std::ranges::copy(part.stage->gradientArray(), part.captured.begin());
      part.hasCapture = true;
    }
    part.stage->update();
  }

  std::shared_ptr<const ByteLmSource> source;
  std::vector<Part> parts; ///< one per stage
  int64_t step = 0;
  static constexpr double kNoLoss = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> losses; ///< of each micro-batch, since beginStep
};

/// Whether the stage table has the model's bytes.
Status checkStages(const Problem &problem, int32_t numLayers,
                   const ByteLmConfig &config) {
  for (int32_t s = 0; s < problem.numStages(); ++s) {
    const Stage &stage = problem.stages[s];
    const StageBytes needs = bytesOf(stage, numLayers, config);
    const std::string where = "stage " + std::to_string(s) + ": ";
    auto check = [&](int64_t planned, int64_t needed, const char *what,
                     std::string &why) {
      if (why.empty() && planned != needed)
        why = where + "the program plans " + std::to_string(planned) +
              " bytes of " + what + ", the model needs " +
              std::to_string(needed) +
              "; take the pipe.model that penstock-run --print-model prints";
    };
    std::string why;
    // Nobody reads the output of the last stage.
    if (s + 1 < problem.numStages())
      check(stage.bytes.output, needs.output, "output", why);
    check(stage.bytes.stash, needs.stash, "stash", why);
    check(stage.bytes.parameters, needs.parameters, "parameters", why);
    if (!why.empty())
      return Failure{why};
  }
  return success();
}

} // namespace

Result<std::shared_ptr<const ByteLmSource>>
ByteLmSource::make(std::string_view description, const std::string &textPath) {
  Result<ByteLmConfig> config = ByteLmConfig::parse(description);
  if (!config)
    return config.failure();
  Result<Corpus> corpus = Corpus::read(textPath, config->context);
  if (!corpus)
    return corpus.failure();
  return std::make_shared<const ByteLmSource>(
      ByteLmSource{*config, std::move(*corpus)});
}

Result<std::unique_ptr<InspectableModel>>
makeByteLm(std::shared_ptr<const ByteLmSource> source, const Problem &problem,
           int32_t rank) {
  Result<int32_t> numLayers = countLayers(problem);
  if (!numLayers)
    return numLayers.failure();
  if (Status status = checkStages(problem, *numLayers, source->config); !status)
    return status.failure();
  try {
    return std::unique_ptr<InspectableModel>(
        std::make_unique<ByteLm>(std::move(source), problem, rank, *numLayers));
  } catch (const std::bad_alloc &) {
    return Failure{"rank " + std::to_string(rank) +
                   ": not enough memory for the parameters of byte-lm; take a "
                   "smaller width, hidden or embed"};
  }
}

} // namespace penstock::runtime
