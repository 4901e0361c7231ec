//===- Model.h - What the runtime asks of a user's model --------*- C++ -*-===//
//
// The runtime moves tensors and calls the model; it knows nothing of layers or
// data. One Model object serves one rank: it holds the parameters, gradients
// and optimizer state of the stages on that rank.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_MODEL_H
#define PENSTOCK_RUNTIME_MODEL_H

#include "penstock/Program/Result.h"

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <span>

namespace penstock::runtime {

/// The operands of one action. Pointers are into the rank's arena, aligned to
/// kSlotAlignment, and null where the action has no such operand (the first
/// stage has no input, the last no output, F no gradient).
struct ActionContext {
  int32_t stage = 0;
  int32_t microbatch = 0;
  const std::byte *input = nullptr;    ///< activation of stage - 1
  const std::byte *gradient = nullptr; ///< gradient of stage + 1
  std::byte *output = nullptr; ///< F: activation of stage; B, I: gradient of it
  std::byte *stash = nullptr;  ///< written by F (R), read by B, I, W
  /// Of this micro-batch in the loss of the step, Problem::weightOf: the last
  /// stage multiplies the gradient of the loss by it.
  double weight = 1;
  void *queue = nullptr; ///< native handle of the compute queue, if any
};

/// A model, as one rank sees it. All calls of one object come from one queue,
/// in program order.
class Model {
public:
  virtual ~Model() = default;

  /// Whether the calls for actions and steps, which get pointers to memory of
  /// the device, may give their work to the queue of the context and return at
  /// once. Devices with native queues (CUDA streams) need that.
  virtual bool issues() const { return false; }
  /// Whether it can do nothing else.
  virtual bool needsQueue() const { return false; }
  /// Whether what these calls have issued may be captured in one step, and run
  /// again for others: all that differs between steps is in memory that
  /// beginStep fills.
  virtual bool canReplay() const { return false; }

  /// A new step begins; `step` counts from 0. The data of (step, microbatch)
  /// must not depend on the rank or on what ran before.
  virtual void beginStep(int64_t step) = 0;

  virtual void forward(const ActionContext &context) = 0;
  /// Input and weight gradient; the weight gradient is added to what is there.
  virtual void backward(const ActionContext &context) = 0;
  virtual void backwardInput(const ActionContext &context) = 0;
  virtual void backwardWeight(const ActionContext &context) = 0;
  /// The forward again, for the stash only.
  virtual void recompute(const ActionContext &context) = 0;
  /// Optimizer update of `stage` (-1: all on the rank); gradients become zero.
  /// Schedules without a flush update while micro-batches are in the pipe: then
  /// F takes the newest weights, and R, B, I and W take those that the F of
  /// their micro-batch took. The model keeps them; weightVersions() tells how
  /// many there are.
  virtual void optimizerStep(int32_t stage) = 0;
  /// The same for a model that issues; `queue` as in ActionContext.
  virtual void issueStep(int32_t stage, void *queue) {
    (void)queue;
    optimizerStep(stage);
  }
  /// The step has ended, and the queue is idle: throws what has gone wrong in
  /// work that was only issued.
  virtual void endStep() {}

  /// The accumulated weight gradients of `stage`, for all_reduce over the ranks
  /// that hold copies of it; at the same place during the whole run. Without
  /// those of tied parameters. Empty: the model does not support that.
  virtual std::span<float> gradients(int32_t stage) {
    (void)stage;
    return {};
  }
  /// Likewise the gradient of the parameter that tied stages use together, the
  /// first of them being `firstStage`, for reduce_tied. A rank that holds
  /// several of them has it once.
  virtual std::span<float> tiedGradients(int32_t firstStage) {
    (void)firstStage;
    return {};
  }

  /// \name Post-validation (Problem::postValidation)
  /// Here an optimizer step is tried and may be undone; gradients stay until
  /// clearGradients. A stage is one of the rank.
  /// @{

  /// Whether the model has what follows. Programs with post-validation are
  /// refused without.
  virtual bool canValidate() const { return false; }
  /// Largest norm of the gradients of all ranks that a step may take as they
  /// are, > 0 and equal on all ranks; if it is larger they are scaled down to
  /// it. Infinity: no limit.
  virtual double largestNorm() const {
    return std::numeric_limits<double>::infinity();
  }
  /// Sum of the squares of the accumulated gradients of `stage`, in an order
  /// that does not depend on the schedule; not finite if one of them is not. A
  /// parameter of tied stages counts at the first of them.
  virtual double squaredGradients(int32_t stage) {
    (void)stage;
    return 0;
  }
  /// optimizerStep that keeps the gradients and what undoStep needs.
  virtual void tryStep(int32_t stage) { (void)stage; }
  /// Makes parameters and optimizer state what they were before the last
  /// tryStep, bit for bit.
  virtual void undoStep(int32_t stage) { (void)stage; }
  virtual void scaleGradients(int32_t stage, double factor) {
    (void)stage, (void)factor;
  }
  /// They become zero.
  virtual void clearGradients(int32_t stage) { (void)stage; }
  /// @}

  /// Loss of a micro-batch whose last stage is on this rank, without its
  /// weight; NaN when that has not run since beginStep. Valid when the queue is
  /// idle.
  virtual double loss(int32_t microbatch) const = 0;
};

/// Loss of a step from those of all its micro-batches: their sum by weights, or
/// mean, from the first to the last, so that it does not depend on the
/// schedule.
double lossOfStep(const Problem &problem, std::span<const double> losses);

/// Makes the model of one rank of a program; fails when the program's stages do
/// not suit the model (number of layers, bytes of outputs and stashes).
using ModelFactory = std::function<Result<std::unique_ptr<Model>>(
    const Program &, int32_t rank)>;

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_MODEL_H
