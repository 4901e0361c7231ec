//===- CudaMain.cpp - The main function of tests with the stand-in --------===//
//
// Each test has a machine of its own, and must leave nothing behind there.
//
//===----------------------------------------------------------------------===//

#include "CudaTest.h"

#include "penstock/Program/Text.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace penstock::runtime::test {

std::unique_ptr<Backend> makeTestBackend(int32_t numRanks) {
  return std::move(*makeCudaBackend(numRanks));
}

/// What tests have given to queues: a graph may call it again.
static std::deque<std::function<void()>> given;
static std::mutex givenMutex;

void atQueue(void *nativeQueue, std::function<void()> fn) {
  std::lock_guard lock(givenMutex);
  given.push_back(std::move(fn));
  cudaLaunchHostFunc(
      static_cast<cudaStream_t>(nativeQueue),
      [](void *data) { (*static_cast<std::function<void()> *>(data))(); },
      &given.back());
}

void IssuingModel::issue(Op op, const ActionContext &context) {
  if (numCalls == calls.size())
    calls.emplace_back();
  Call &call = calls[numCalls++];
  call = {this, op, context};
  if (const cudaError_t code = cudaLaunchHostFunc(
          static_cast<cudaStream_t>(context.queue), run, &call);
      code != cudaSuccess)
    throw std::runtime_error(std::string("cudaLaunchHostFunc: ") +
                             cudaGetErrorString(code) + "; try again");
}

void IssuingModel::optimizerStep(int32_t) {
  throw std::logic_error("the model issues its steps");
}

void IssuingModel::issueStep(int32_t stage, void *queue) {
  ActionContext context;
  context.stage = stage;
  context.queue = queue;
  issue(Op::Step, context);
}

void IssuingModel::run(void *call) {
  static_cast<Call *>(call)->model->run(*static_cast<Call *>(call));
}

void IssuingModel::run(const Call &call) {
  {
    std::lock_guard lock(mutex);
    if (!fault.empty())
      return;
  }
  try {
    switch (call.op) {
    case Op::Forward:
      return model->forward(call.context);
    case Op::Backward:
      return model->backward(call.context);
    case Op::BackwardInput:
      return model->backwardInput(call.context);
    case Op::BackwardWeight:
      return model->backwardWeight(call.context);
    case Op::Recompute:
      return model->recompute(call.context);
    default:
      return model->optimizerStep(call.context.stage);
    }
  } catch (...) {
    Instruction inst;
    inst.op = call.op;
    inst.stage = call.context.stage;
    inst.microbatch = call.context.microbatch;
    std::lock_guard lock(mutex);
    fault = describe(inst) + ": " + describeCurrentException();
  }
}

void IssuingModel::endStep() {
  std::lock_guard lock(mutex);
  if (!fault.empty())
    throw std::runtime_error(std::exchange(fault, {}));
}

ModelFactory makeIssuing(ModelFactory factory, bool replays) {
  return [=](const Program &program,
             int32_t rank) -> Result<std::unique_ptr<Model>> {
    auto model = factory(program, rank);
    if (!model)
      return model;
    auto issuing = std::make_unique<IssuingModel>(std::move(*model));
    issuing->replays = replays;
    return std::unique_ptr<Model>(std::move(issuing));
  };
}

namespace {
class Machine final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo &) override {
    standin::reset();
    given.clear();
  }
  void OnTestEnd(const testing::TestInfo &) override {
    EXPECT_EQ(standin::findings(), "");
    EXPECT_EQ(standin::leaks(), "");
  }
};
} // namespace

} // namespace penstock::runtime::test

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(
      new penstock::runtime::test::Machine);
  return RUN_ALL_TESTS();
}
