//===- IssuingModel.cpp - A model of the host on CUDA ---------------------===//

#include "IssuingModel.h"

#include "penstock/Program/Text.h"

#include <algorithm>
#include <stdexcept>

namespace penstock::runtime::test {

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

void forgetGiven() {
  std::lock_guard lock(givenMutex);
  given.clear();
}

static void check(const char *call, cudaError_t code) {
  if (code != cudaSuccess)
    throw std::runtime_error(std::string(call) + ": " +
                             cudaGetErrorString(code) + "; try again");
}

IssuingModel::IssuingModel(std::unique_ptr<Model> inner, const Problem &p)
    : model(std::move(inner)), problem(p) {
  std::array<int64_t, 4> sizes = {};
  for (const Stage &stage : problem.stages) {
    for (SlotRole role : {Input, Gradient, Output})
      sizes[role] = std::max(sizes[role], stage.bytes.output);
    sizes[Stash] = std::max(sizes[Stash], stage.bytes.stash);
  }
  for (size_t role = 0; role < memory.size(); ++role) {
    void *made = nullptr;
    const cudaError_t code =
        cudaMallocHost(&made, std::max<int64_t>(sizes[role], 1));
    memory[role] = static_cast<std::byte *>(made);
    if (code != cudaSuccess)
      for (std::byte *earlier : std::exchange(memory, {}))
        cudaFreeHost(earlier);
    check("cudaMallocHost", code);
  }
}

IssuingModel::~IssuingModel() {
  for (std::byte *part : memory)
    cudaFreeHost(part);
}

void IssuingModel::issue(Op op, const ActionContext &context) {
  if (numCalls == calls.size())
    calls.emplace_back();
  Call &call = calls[numCalls++];
  call = {this, op, context};
  const auto queue = static_cast<cudaStream_t>(context.queue);
  Instruction inst;
  inst.op = op;
  inst.stage = context.stage;
  inst.microbatch = context.microbatch;
  auto copyOperands = [&](bool back) {
    forEachAccess(inst, problem.numStages(), [&](const Access &access) {
      const std::byte *const places[] = {context.input, context.gradient,
                                         context.output, context.stash};
      auto *const device = const_cast<std::byte *>(places[access.role]);
      const int64_t bytes = bytesOf(problem, access.tensor);
      if (!device || bytes == 0 ||
          access.mode == (back ? Access::Read : Access::Write))
        return;
      std::byte *const host = memory[access.role];
      check("cudaMemcpyAsync",
            cudaMemcpyAsync(back ? device : host, back ? host : device, bytes,
                            cudaMemcpyDefault, queue));
    });
  };
  if (context.input)
    call.context.input = memory[Input];
  if (context.gradient)
    call.context.gradient = memory[Gradient];
  if (context.output)
    call.context.output = memory[Output];
  if (context.stash)
    call.context.stash = memory[Stash];
  copyOperands(false);
  check("cudaLaunchHostFunc", cudaLaunchHostFunc(queue, run, &call));
  copyOperands(true);
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
    auto issuing =
        std::make_unique<IssuingModel>(std::move(*model), program.problem);
    issuing->replays = replays;
    return std::unique_ptr<Model>(std::move(issuing));
  };
}

} // namespace penstock::runtime::test
