//===- IssuingModel.h - A model of the host on CUDA -------------*- C++ -*-===//
//
// Lets tests run code of the host on the streams of a GPU, or of the stand-in
// for one: as host functions, with copies of what is in the memory of the GPU.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_TEST_ISSUINGMODEL_H
#define PENSTOCK_RUNTIME_TEST_ISSUINGMODEL_H

#include "penstock/Runtime/Run.h"

#include <cuda_runtime.h>

#include <array>
#include <deque>
#include <mutex>

namespace penstock::runtime::test {

/// Inside work: calls the function when the queue gets there. It is kept, for a
/// graph may call it again.
void atQueue(void *nativeQueue, std::function<void()> fn);
/// No graph with such functions is left.
void forgetGiven();

/// A model of the host as one that issues: each call becomes copies of its
/// operands to the host, a host function on the queue, and copies back. What
/// such a call throws comes out at the end of the step, and until then no other
/// call is made.
class IssuingModel final : public Model {
public:
  IssuingModel(std::unique_ptr<Model> model, const Problem &problem);
  ~IssuingModel() override;
  const Model &inner() const { return *model; }

  bool issues() const override { return true; }
  bool canReplay() const override { return replays; }
  void beginStep(int64_t step) override {
    numCalls = 0;
    model->beginStep(step);
  }
  void forward(const ActionContext &c) override { issue(Op::Forward, c); }
  void backward(const ActionContext &c) override { issue(Op::Backward, c); }
  void backwardInput(const ActionContext &c) override {
    issue(Op::BackwardInput, c);
  }
  void backwardWeight(const ActionContext &c) override {
    issue(Op::BackwardWeight, c);
  }
  void recompute(const ActionContext &c) override { issue(Op::Recompute, c); }
  void optimizerStep(int32_t) override;
  void issueStep(int32_t stage, void *queue) override;
  void endStep() override;
  std::span<float> gradients(int32_t stage) override {
    return model->gradients(stage);
  }
  std::span<float> tiedGradients(int32_t firstStage) override {
    return model->tiedGradients(firstStage);
  }
  bool canValidate() const override { return model->canValidate(); }
  double loss(int32_t microbatch) const override {
    return model->loss(microbatch);
  }

  bool replays = true;

private:
  struct Call {
    IssuingModel *model;
    Op op;
    ActionContext context;
  };
  void issue(Op op, const ActionContext &context);
  static void CUDART_CB run(void *call);
  void run(const Call &call);

  const std::unique_ptr<Model> model;
  const Problem problem;
  /// On the host, for each role of an operand: calls come one after the other.
  std::array<std::byte *, 4> memory = {};
  std::deque<Call> calls; ///< of the present step, and of the graph
  size_t numCalls = 0;
  std::mutex mutex;
  std::string fault;
};

/// The same of what a factory makes.
ModelFactory makeIssuing(ModelFactory factory, bool replays = true);

} // namespace penstock::runtime::test

#endif // PENSTOCK_RUNTIME_TEST_ISSUINGMODEL_H
