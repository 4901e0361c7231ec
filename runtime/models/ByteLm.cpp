//===- ByteLm.cpp - The byte-level language model -------------------------===//

#include "ByteLm.h"

#include "ByteLmStage.h"
#include "OldWeights.h"
#include "penstock/Analysis/WeightVersions.h"

#include <algorithm>
#include <limits>

namespace penstock::runtime {

namespace {

class ByteLm final : public InspectableModel {
public:
  ByteLm(std::shared_ptr<const ByteLmSource> source, const ByteLmConfig &config,
         const Program &program, int32_t rank, int32_t numLayers)
      : source(std::move(source)), config(config),
        parts(program.problem.stages.size()),
        losses(program.problem.numMicrobatches, kNoLoss) {
    const Problem &problem = program.problem;
    const WeightVersions versions = weightVersions(program, rank);
    for (size_t k = 0; k < problem.placement.size(); ++k) {
      const size_t s = k % parts.size();
      if (problem.placement[k] != rank || parts[s].stage)
        continue;
      parts[s].stage = std::make_unique<ByteLmStage<float>>(
          this->config, this->source->corpus, problem.stages[s], numLayers,
          problem.slices);
      if (problem.postValidation)
        parts[s].stage->keepUndo();
      if (const int32_t count = versions.peak(static_cast<int32_t>(s));
          count > 1)
        parts[s].keepOld(count - 1, problem.numMicrobatches);
    }
  }

  void beginStep(int64_t newStep) override {
    step = newStep;
    std::fill(losses.begin(), losses.end(), kNoLoss);
    for (Part &part : parts)
      part.hasCapture = false;
  }

  void forward(const ActionContext &context) override {
    Part &part = parts[context.stage];
    part.old.goForward(context.microbatch);
    runForward(part, context);
  }
  void backward(const ActionContext &context) override {
    backwardInput(context);
    backwardWeight(context);
  }
  void backwardInput(const ActionContext &context) override {
    Part &part = parts[context.stage];
    withItsWeights(part, context,
                   [&] { part.stage->backwardInput(context, step); });
  }
  void backwardWeight(const ActionContext &context) override {
    Part &part = parts[context.stage];
    withItsWeights(part, context,
                   [&] { part.stage->backwardWeight(context, step); });
    part.old.leave(context.microbatch);
  }
  void recompute(const ActionContext &context) override {
    Part &part = parts[context.stage];
    ActionContext withoutOutput = context;
    withoutOutput.output = nullptr;
    withItsWeights(part, context, [&] { runForward(part, withoutOutput); });
  }

  void optimizerStep(int32_t stage) override {
    if (stage >= 0)
      return update(parts[stage]);
    for (Part &part : parts)
      if (part.stage)
        update(part);
  }

  bool canValidate() const override { return true; }
  double largestNorm() const override {
    return config.clip > 0 ? config.clip : Model::largestNorm();
  }
  double squaredGradients(int32_t stage) override {
    return parts[stage].stage->squaredGradients();
  }
  void tryStep(int32_t stage) override {
    capture(parts[stage]);
    parts[stage].stage->tryStep();
  }
  void undoStep(int32_t stage) override { parts[stage].stage->undoStep(); }
  void scaleGradients(int32_t stage, double factor) override {
    parts[stage].stage->scaleGradients(factor);
  }
  void clearGradients(int32_t stage) override {
    parts[stage].stage->clearGradients();
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
    OldWeights old;
    std::vector<AlignedArray<float>> copies; ///< as `old` numbers them

    void keepOld(int32_t count, int32_t numMicrobatches) {
      old = OldWeights(count, numMicrobatches);
      for (int32_t k = 0; k < count; ++k)
        copies.push_back(
            makeAlignedArray<float>(int64_t(stage->parameterArray().size())));
    }
  };

  void runForward(Part &part, const ActionContext &context) {
    part.stage->forward(context, step);
    if (part.stage->hasHead())
      losses[context.microbatch] = part.stage->loss();
  }
  /// Runs `pass` with the weights that the forward of the micro-batch took.
  template <typename Pass>
  static void withItsWeights(Part &part, const ActionContext &context,
                             Pass &&pass) {
    const int32_t version = part.old.of(context.microbatch);
    if (version != OldWeights::kNewest)
      part.stage->useWeights(part.copies[version].get());
    pass();
    if (version != OldWeights::kNewest)
      part.stage->useWeights(nullptr);
  }

  static void capture(Part &part) {
    if (part.captured.empty())
      return;
    std::ranges::copy(part.stage->gradientArray(), part.captured.begin());
    part.hasCapture = true;
  }
  static void update(Part &part) {
    capture(part);
    if (const int32_t copy = part.old.beforeUpdate();
        copy != OldWeights::kNewest)
      std::ranges::copy(part.stage->parameterArray(), part.copies[copy].get());
    part.stage->update();
  }

  std::shared_ptr<const ByteLmSource> source;
  const ByteLmConfig config; ///< of a slice
  std::vector<Part> parts;   ///< one per stage
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
    // With slices, each has its part of them, rounded up.
    const int64_t output = bytesOf(problem, {TensorKind::Activation, s, 0}),
                  stash = bytesOf(problem, {TensorKind::Stash, s, 0});
    const std::string where = "stage " + std::to_string(s) + ": ";
    auto check = [&](int64_t planned, int64_t needed, const char *what,
                     std::string &why) {
      if (why.empty() && planned != needed)
        why =
            where + "the program plans " + std::to_string(planned) +
            " bytes of " + what + ", the model needs " +
            std::to_string(needed) +
            (problem.slices > 1 && planned < needed
                 ? " for a slice, of which it rounds every tensor up to 64 "
                   "bytes; make samples a multiple of " +
                       std::to_string(64 / sizeOf(config.type) * problem.slices)
                 : "; take the pipe.model that penstock-run --print-model "
                   "prints");
    };
    std::string why;
    // Nobody reads the output of the last stage.
    if (s + 1 < problem.numStages())
      check(output, needs.output, "output", why);
    check(stash, needs.stash, "stash", why);
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

Result<ByteLmConfig> configOfSlice(const ByteLmConfig &config, int32_t slices) {
  ByteLmConfig result = config;
  result.samples /= slices;
  if (result.samples * slices == config.samples)
    return result;
  return Failure{"byte-lm cannot cut its " + std::to_string(config.samples) +
                 " samples of a micro-batch into " + std::to_string(slices) +
                 " slices; give a multiple, samples=" +
                 std::to_string((result.samples + 1) * int64_t(slices))};
}

Result<FittedByteLm> fitByteLm(const ByteLmConfig &config,
                               const Problem &problem) {
  Result<ByteLmConfig> ofSlice = configOfSlice(config, problem.slices);
  if (!ofSlice)
    return ofSlice.failure();
  Result<int32_t> numLayers = countLayers(problem);
  if (!numLayers)
    return numLayers.failure();
  if (Status status = checkStages(problem, *numLayers, *ofSlice); !status)
    return status.failure();
  return FittedByteLm{*ofSlice, *numLayers};
}

Result<std::unique_ptr<InspectableModel>>
makeByteLm(std::shared_ptr<const ByteLmSource> source, const Program &program,
           int32_t rank) {
  if (source->config.type != ElementType::Float)
    return Failure{"byte-lm has type=bf16 on GPUs only; leave it out, or use "
                   "--backend=cuda"};
  if (source->config.clip > 0 && !program.problem.postValidation)
    return Failure{"byte-lm can clip only where the norm of all gradients is "
                   "known; add post_validation to the schedule, or leave clip "
                   "out"};
  auto fitted = fitByteLm(source->config, program.problem);
  if (!fitted)
    return fitted.failure();
  try {
    return std::unique_ptr<InspectableModel>(std::make_unique<ByteLm>(
        std::move(source), fitted->config, program, rank, fitted->numLayers));
  } catch (const std::bad_alloc &) {
    return Failure{"rank " + std::to_string(rank) +
                   ": not enough memory for the parameters of byte-lm; take a "
                   "smaller width, hidden or embed"};
  }
}

} // namespace penstock::runtime
