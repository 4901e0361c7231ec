//===- Models.h - The models that come with Penstock ------------*- C++ -*-===//
//
// A small, real model on real input, for the demo, the tests and as an example
// of the Model interface: `byte-lm`, a byte-level language model in float32 on
// the CPU. Beside it stands the same model without a pipeline, as the reference
// that a pipelined run is compared with.
//
// A model is named by a description, `byte-lm` or `byte-lm:width=64,lr=0.001`;
// describeModels() lists the keys. The number of layers is the program's: layer
// 0 is the embedding of the context, the last one the head with the loss, all
// others are residual blocks.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_MODELS_H
#define PENSTOCK_RUNTIME_MODELS_H

#include "penstock/Runtime/Run.h"

#include <span>
#include <string>
#include <string_view>

namespace penstock::runtime {

/// A named array of parameters and its gradient. A parameter lives in one
/// layer; its values do not depend on how layers are cut into stages.
struct Parameter {
  int32_t layer = 0;
  std::string_view name; ///< unique in its layer: "weight", "bias", ...
  std::span<const float> value;
  std::span<const float> gradient;
};

/// A model that shows its parameters. Valid when the compute queue is idle.
class InspectableModel : public Model {
public:
  /// From now on optimizerStep keeps a copy of the gradients that it consumes.
  virtual void captureGradients() = 0;

  /// Calls `fn` for each parameter of `stage`, in layer order; does nothing
  /// when the stage is not on this rank. The gradient is the one that the last
  /// optimizerStep has consumed when gradients are captured and there was one
  /// since beginStep, else what has been accumulated so far.
  virtual void
  forEachParameter(int32_t stage,
                   const std::function<void(const Parameter &)> &fn) const = 0;
};

/// Every known model with its keys and defaults, one line each: for --help.
std::string describeModels();

/// The factory of the described model, trained on the bytes of the file
/// `textPath`. What it makes is an InspectableModel. The factory refuses a
/// program whose layers or bytes (output, stash, parameters) are not the
/// model's. It may be copied and called from several threads.
Result<ModelFactory> makeModel(std::string_view description,
                               const std::string &textPath);

/// The same for a back end whose queues are CUDA streams: the parameters, the
/// data and the stash of makeModel, on the GPU that is the current one where
/// the factory is called. With type=bf16 activations and what products read are
/// bfloat16. Fails when this build cannot do that, or not what is described.
Result<ModelFactory> makeGpuModel(std::string_view description,
                                  const std::string &textPath);

/// One of these.
using MakeModel = Result<ModelFactory>(std::string_view, const std::string &);

/// The described model as a `pipe.model` op of `numLayers` layers, with its
/// relative costs and its bytes: what a spec needs so that its program suits
/// the model.
Result<std::string> printModel(std::string_view description, int32_t numLayers);

/// The same model in one thread, layer by layer, with a plain loop over the
/// micro-batches: what a pipelined run must be equal to. Of a program it takes
/// nothing but the order in which floats are added up, so that no bit differs.
class Reference {
public:
  /// Takes the number of layers, the micro-batches and, if these are cut, the
  /// slices from `problem`, whose stages must be placed. Each stage adds its
  /// weight gradients in ascending order of micro-batches, those of each copy
  /// for itself.
  static Result<Reference> make(std::string_view description,
                                const std::string &textPath,
                                const Problem &problem);

  /// The same, but each copy of a stage adds the weight gradients in the order
  /// of the first B or W of each micro-batch in the instructions of its rank.
  /// A micro-batch that no rank or more than one takes counts once all the
  /// same. The program must be wellFormed().
  static Result<Reference> make(std::string_view description,
                                const std::string &textPath,
                                const Program &program);

  /// Trains the next step, counted from 0, and returns its loss. The model then
  /// shows the gradients of this step.
  double step();

  int64_t numSteps() const { return nextStep; }
  /// As InspectableModel, all layers in order.
  void forEachParameter(const std::function<void(const Parameter &)> &fn) const;

private:
  /// W of one micro-batch in the layers of one stage of the program.
  struct Share {
    int32_t stage, copy, microbatch;
  };
  /// The operands of one layer for one micro-batch, as offsets.
  struct Operands {
    size_t output, gradient, stash;
  };
  using Bytes = std::unique_ptr<std::byte, void (*)(void *)>;

  Reference() = default;
  Status allocate();
  ActionContext contextOf(int32_t layer, int32_t microbatch) const;
  void addCopies();

  Problem problem; ///< one rank, and a stage for each layer
  /// Of each stage of the program its layers, from the first to the next one's.
  std::vector<int32_t> firstLayers;
  std::vector<int32_t> numCopies; ///< of each stage of the program
  /// Of each micro-batch what can be added once its gradients are known, and
  /// was not before.
  std::vector<std::vector<Share>> shares;

  /// All have the same parameters. The first computes the gradients of the
  /// activations; k adds up the weight gradients of the k-th copies.
  std::vector<std::unique_ptr<InspectableModel>> copies;
  std::vector<Operands> operands; ///< of each layer
  std::vector<int32_t> memoryOf;  ///< of each micro-batch, index into `memory`
  std::vector<Bytes> memory;      ///< for the micro-batches that still wait
  int64_t nextStep = 0;
};

/// How the gradients and parameters of a pipelined run compare with the
/// reference.
struct GradientCheck {
  int64_t steps = 1;       ///< of both
  size_t numValues = 0;    ///< compared
  size_t numDifferent = 0; ///< of them, not bitwise equal
  /// Largest difference, relative to the largest value of the parameter that it
  /// is in; NaN when one of the values is.
  double maxRelativeDifference = 0;
  /// The same of Euclidean norms: of the differences, and of the parameter.
  double maxNormDifference = 0;
  /// The first difference, in layer order.
  int32_t layer = -1;
  std::string parameter;
  bool inGradient = true; ///< else in the value of the parameter
  size_t index = 0;
  float value = 0, expected = 0;
  /// The program computes as the reference does, so that no bit may differ.
  /// Else sums of floats may, in their last bits.
  bool exact = true;
  /// What those may come to, as maxRelativeDifference or, with `byNorm`, as
  /// maxNormDifference.
  double rounding = kGpuRounding;
  bool byNorm = false;

  /// On a GPU, where products and sums of rows have orders of their own.
  static constexpr double kGpuRounding = 1e-5;
  /// With bfloat16, of norms, times the root of the number of layers. Its 8
  /// bits make the input of a relu wrong by some 2^-8 of its size, so that of
  /// about as many inputs the sign is wrong, and with it all of their gradient:
  /// 2^-4 of its norm. Layers add up as what is random does. That is enough to
  /// find programs in which a micro-batch is missing or counted twice: they
  /// miss a whole share.
  static constexpr double kBFloat16Rounding = 0x1p-4;

  bool equal() const { return numDifferent == 0; }
  /// Whether the program trains as the model without a pipeline.
  bool agrees() const { return exact ? equal() : difference() <= rounding; }
  double difference() const {
    return byNorm ? maxNormDifference : maxRelativeDifference;
  }
  /// One sentence, for people.
  std::string describe() const;

  /// Takes in what another process has found in its stages.
  void add(const GradientCheck &other);
};

/// Compares the gradients and the parameters of all stages of `problem`, of
/// each copy, with the reference, whose step() must have been called as often
/// as beginStep() of the ranks. `ranks[r]` is the model of rank r, made by
/// makeModel() and told to captureGradients() before the step. Compares only
/// those of the ranks `here`, if that is not empty. Fails when a stage or a
/// parameter is on no rank.
Result<GradientCheck> compareGradients(const Problem &problem,
                                       std::span<const Model *const> ranks,
                                       const Reference &reference,
                                       std::span<const int32_t> here = {});

struct GradientCheckReport {
  Error error; ///< why the pipelined run, or the comparison, failed
  GradientCheck check;
};

/// Trains `run.steps` steps with the program and as many with the reference,
/// both from the first, and compares. More than one step shows whether the
/// optimizer ran once for each. The reference adds as the program does: each
/// copy of a stage its micro-batches in the order of its rank, then, as
/// Transport::addCollective promises, the copies in the order of their ranks.
/// So on the host no bit may differ. `run.onFinished` is not called. Where the
/// ranks are in several processes, all get the check of all stages. With
/// `makeGpu` (makeGpuModel) it makes the models of the program, which then
/// round otherwise than the reference; both take the sgd optimizer, as adam
/// would make whole steps of differences in the last bits.
GradientCheckReport checkGradients(const Program &program,
                                   std::string_view description,
                                   const std::string &textPath, RunOptions run,
                                   MakeModel *makeGpu = nullptr);

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_MODELS_H
