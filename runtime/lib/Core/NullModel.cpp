//===- NullModel.cpp - A model that computes nothing ----------------------===//

#include "penstock/Runtime/Run.h"

namespace penstock::runtime {

namespace {
class NullModel final : public Model {
public:
  bool issues() const override { return true; }
  bool canReplay() const override { return true; }
  void beginStep(int64_t) override {}
  void forward(const ActionContext &) override {}
  void backward(const ActionContext &) override {}
  void backwardInput(const ActionContext &) override {}
  void backwardWeight(const ActionContext &) override {}
  void recompute(const ActionContext &) override {}
  void optimizerStep(int32_t) override {}
  /// One value stands for all, so that an all_reduce meets.
  std::span<float> gradients(int32_t) override { return {&gradient, 1}; }
  std::span<float> tiedGradients(int32_t) override { return {&gradient, 1}; }
  bool canValidate() const override { return true; }
  double loss(int32_t) const override { return 0; }

private:
  float gradient = 0;
};
} // namespace

ModelFactory makeNullModel() {
  return [](const Program &, int32_t) -> Result<std::unique_ptr<Model>> {
    return std::unique_ptr<Model>(std::make_unique<NullModel>());
  };
}

} // namespace penstock::runtime
