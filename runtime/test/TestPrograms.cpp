//===- TestPrograms.cpp - Small programs and a model to run them ----------===//

#include "TestPrograms.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <thread>

namespace penstock::runtime::test {

Problem makeProblem(int32_t numRanks, int32_t numMicrobatches) {
  Problem problem;
  problem.name = "test";
  problem.numRanks = numRanks;
  problem.numMicrobatches = numMicrobatches;
  for (int32_t s = 0; s < numRanks; ++s) {
    Stage stage;
    stage.firstLayer = s;
    stage.bytes.output = 8;
    stage.bytes.stash = 8;
    problem.stages.push_back(stage);
    problem.placement.push_back(s);
  }
  return problem;
}

uint32_t add(Program &program, int32_t rank, Instruction inst,
             std::vector<uint32_t> waits) {
  RankProgram &own = program.ranks[rank];
  if (!waits.empty()) {
    inst.firstWait = static_cast<uint32_t>(own.waits.size());
    inst.numWaits = static_cast<uint16_t>(waits.size());
    own.waits.insert(own.waits.end(), waits.begin(), waits.end());
  }
  own.instructions.push_back(inst);
  return static_cast<uint32_t>(own.instructions.size() - 1);
}

Instruction action(Op op, int32_t stage, int32_t mb) {
  Instruction inst;
  inst.op = op;
  inst.stage = stage;
  inst.microbatch = mb;
  return inst;
}

Instruction transfer(Op op, Payload payload, int32_t stage, int32_t mb,
                     int32_t peer, int32_t slot, int64_t bytes) {
  Instruction inst = action(op, stage, mb);
  inst.payload = payload;
  inst.peer = peer;
  inst.slots[Slot] = slot;
  inst.bytes = bytes;
  return inst;
}

Program makeGPipe(int32_t numRanks, int32_t numMicrobatches, Shape shape) {
  Program program;
  program.problem = makeProblem(numRanks, numMicrobatches);
  program.ranks.resize(numRanks);
  const int32_t m = numMicrobatches, last = numRanks - 1;
  for (int32_t r = 0; r < numRanks; ++r) {
    RankProgram &own = program.ranks[r];
    // Slots: input, output, gradient in, gradient out, stash of each mb; those
    // that the ends of the pipeline do not have stay out.
    int32_t numSlots = 0;
    std::array<int32_t, 5> base;
    const std::array<bool, 5> has = {r > 0, r < last, r<last, r> 0, true};
    for (unsigned k = 0; k < 5; ++k) {
      base[k] = has[k] ? numSlots : kNoSlot;
      numSlots += has[k] ? m : 0;
    }
    own.slotBytes.assign(numSlots, 8);
    auto slot = [&](unsigned k, int32_t mb) {
      return has[k] ? base[k] + mb : kNoSlot;
    };
    const auto queue = static_cast<uint8_t>(shape.transferQueue);
    auto addTransfer = [&](Op op, Payload payload, int32_t stage, int32_t mb,
                           int32_t peer, int32_t slot,
                           std::vector<uint32_t> waits) {
      Instruction inst = transfer(op, payload, stage, mb, peer, slot);
      inst.queue = queue;
      if (queue == 0)
        waits.clear();
      return add(program, r, inst, waits);
    };
    auto addAction = [&](Op op, int32_t mb, int64_t received) {
      Instruction inst = action(op, r, mb);
      inst.slots[Input] = slot(0, mb);
      inst.slots[Stash] = slot(4, mb);
      if (op == Op::Forward) {
        inst.slots[Output] = slot(1, mb);
      } else {
        inst.slots[Gradient] = slot(2, mb);
        if (op != Op::BackwardWeight)
          inst.slots[Output] = slot(3, mb);
      }
      std::vector<uint32_t> waits;
      if (received >= 0 && queue != 0)
        waits.push_back(static_cast<uint32_t>(received));
      return add(program, r, inst, waits);
    };
    for (int32_t mb = 0; mb < m; ++mb) {
      int64_t received = -1;
      if (r > 0)
        received = addTransfer(Op::Recv, Payload::Activation, r - 1, mb, r - 1,
                               slot(0, mb), {});
      const uint32_t done = addAction(Op::Forward, mb, received);
      if (r < last)
        addTransfer(Op::Send, Payload::Activation, r, mb, r + 1, slot(1, mb),
                    {done});
    }
    for (int32_t mb = 0; mb < m; ++mb) {
      int64_t received = -1;
      if (r < last)
        received = addTransfer(Op::Recv, Payload::Gradient, r + 1, mb, r + 1,
                               slot(2, mb), {});
      const uint32_t done = addAction(
          shape.split ? Op::BackwardInput : Op::Backward, mb, received);
      if (r > 0)
        addTransfer(Op::Send, Payload::Gradient, r, mb, r - 1, slot(3, mb),
                    {done});
      if (shape.split)
        addAction(Op::BackwardWeight, mb, -1);
    }
    if (shape.steps)
      add(program, r, action(Op::Step, -1, -1));
  }
  return program;
}

Program makeOffloaded() {
  Program program = makeGPipe(1, 1);
  RankProgram &rank = program.ranks[0];
  rank.hostSlotBytes = {8};
  Instruction copy = action(Op::Offload, 0, 0);
  copy.slots[Slot] = rank.instructions[0].slots[Stash];
  copy.slots[Host] = 0;
  rank.instructions.insert(rank.instructions.begin() + 1, copy);
  copy.op = Op::Reload;
  rank.instructions.insert(rank.instructions.begin() + 2, copy);
  return program;
}

Program makeDeadlock() {
  // As makeGPipe(2, 2), but rank 0 wants the gradient of mb 0 before it sends
  // the activation of mb 1, and rank 1 wants that activation first.
  Program program = makeGPipe(2, 2, {.transferQueue = false});
  auto &insts = program.ranks[0].instructions;
  auto find = [&](Op op, Payload payload, int32_t mb) {
    return std::find_if(insts.begin(), insts.end(), [&](const auto &inst) {
      return inst.op == op && inst.payload == payload && inst.microbatch == mb;
    });
  };
  std::iter_swap(find(Op::Send, Payload::Activation, 1),
                 find(Op::Recv, Payload::Gradient, 0));
  return program;
}

//===----------------------------------------------------------------------===//
// The model
//===----------------------------------------------------------------------===//

static uint64_t load(const std::byte *memory) {
  uint64_t value;
  std::memcpy(&value, memory, sizeof(value));
  return value;
}
static void store(std::byte *memory, uint64_t value) {
  std::memcpy(memory, &value, sizeof(value));
}

static uint64_t inputOf(int64_t step, int32_t mb) {
  return static_cast<uint64_t>(step) * 1000 + static_cast<uint64_t>(mb) * 7 + 1;
}
static uint64_t forwardOf(uint64_t input, uint64_t parameter) {
  return (input ^ (parameter << 1)) * 6364136223846793005u +
         1442695040888963407u;
}
static uint64_t backwardOf(uint64_t gradient, uint64_t stash) {
  return gradient * 3 + stash;
}
static uint64_t weightOf(uint64_t gradient, uint64_t stash) {
  return gradient * (stash | 1);
}
static double lossOf(uint64_t output) {
  return static_cast<double>(output % 1000003);
}

namespace {
class TestModel final : public Model {
public:
  TestModel(Hooks hooks, const Problem &problem, int32_t rank)
      : hooks(std::move(hooks)), numStages(problem.numStages()), rank(rank),
        losses(problem.numMicrobatches, kNoLoss), parameters(numStages),
        sums(numStages), random(this->hooks.delaySeed + rank) {}

  void beginStep(int64_t s) override {
    if (hooks.onBeginStep)
      hooks.onBeginStep(s);
    step = s;
    std::fill(losses.begin(), losses.end(), kNoLoss);
  }
  void forward(const ActionContext &c) override {
    enter(c, Op::Forward);
    const uint64_t input =
        c.stage == 0 ? inputOf(step, c.microbatch) : load(c.input);
    const uint64_t output = forwardOf(input, parameters[c.stage]);
    store(c.stash, input);
    if (c.stage < numStages - 1) {
      store(c.output, output);
      return;
    }
    losses[c.microbatch] = lossOf(output);
  }
  void backward(const ActionContext &c) override {
    enter(c, Op::Backward);
    input(c);
    weight(c);
  }
  void backwardInput(const ActionContext &c) override {
    enter(c, Op::BackwardInput);
    input(c);
  }
  void backwardWeight(const ActionContext &c) override {
    enter(c, Op::BackwardWeight);
    weight(c);
  }
  void recompute(const ActionContext &c) override {
    enter(c, Op::Recompute);
    store(c.stash, c.stage == 0 ? inputOf(step, c.microbatch) : load(c.input));
  }
  void optimizerStep(int32_t stage) override {
    if (hooks.onStep)
      hooks.onStep(stage);
    for (int32_t s = 0; s < numStages; ++s)
      if (stage < 0 || s == stage)
        parameters[s] += std::exchange(sums[s], 0);
  }
  std::span<float> gradients(int32_t) override {
    return hooks.gradients ? hooks.gradients(rank) : std::span<float>();
  }
  std::span<float> tiedGradients(int32_t) override { return gradients(0); }
  double loss(int32_t microbatch) const override {
    const double loss = losses[microbatch];
    return hooks.onLoss ? hooks.onLoss(loss) : loss;
  }

private:
  void enter(const ActionContext &c, Op op) {
    if (hooks.delaySeed) {
      random = forwardOf(random, 0);
      std::this_thread::sleep_for(std::chrono::microseconds(random >> 57));
    }
    if (hooks.onCall)
      hooks.onCall(c, op);
  }
  uint64_t gradientOf(const ActionContext &c) const {
    return c.stage < numStages - 1
               ? load(c.gradient)
               : forwardOf(load(c.stash), parameters[c.stage]);
  }
  void input(const ActionContext &c) const {
    if (c.stage > 0)
      store(c.output, backwardOf(gradientOf(c), load(c.stash)));
  }
  void weight(const ActionContext &c) {
    sums[c.stage] += weightOf(gradientOf(c), load(c.stash));
  }

  const Hooks hooks;
  const int32_t numStages, rank;
  int64_t step = 0;
  static constexpr double kNoLoss = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> losses; ///< by micro-batch
  std::vector<uint64_t> parameters, sums;
  uint64_t random;
};
} // namespace

ModelFactory makeTestModel(Hooks hooks) {
  return [hooks](const Program &program,
                 int32_t rank) -> Result<std::unique_ptr<Model>> {
    return std::unique_ptr<Model>(
        std::make_unique<TestModel>(hooks, program.problem, rank));
  };
}

std::vector<double> referenceLosses(const Problem &problem, int64_t steps) {
  const int32_t numStages = problem.numStages();
  std::vector<uint64_t> parameters(numStages), sums(numStages);
  std::vector<double> losses;
  for (int64_t step = 0; step < steps; ++step) {
    double loss = 0;
    for (int32_t mb = 0; mb < problem.numMicrobatches; ++mb) {
      std::vector<uint64_t> values = {inputOf(step, mb)};
      for (int32_t s = 0; s < numStages; ++s)
        values.push_back(forwardOf(values[s], parameters[s]));
      loss += lossOf(values.back());
      uint64_t gradient = values.back();
      for (int32_t s = numStages; s-- > 0;) {
        sums[s] += weightOf(gradient, values[s]);
        gradient = backwardOf(gradient, values[s]);
      }
    }
    losses.push_back(loss / problem.numMicrobatches);
    for (int32_t s = 0; s < numStages; ++s)
      parameters[s] += std::exchange(sums[s], 0);
  }
  return losses;
}

std::vector<double> runLosses(const Program &program, int64_t steps,
                              Hooks hooks, RunOptions options) {
  return runLosses(program, steps, makeTestModel(std::move(hooks)), options);
}

std::vector<double> runLosses(const Program &program, int64_t steps,
                              const ModelFactory &model, RunOptions options) {
  std::vector<double> losses;
  options.steps = steps;
  options.onStep = [&](const StepReport &report) {
    EXPECT_EQ(report.step, static_cast<int64_t>(losses.size()));
    losses.push_back(report.loss);
  };
  const RunReport report = runProgram(program, model, options);
  EXPECT_FALSE(report.error) << report.error.message;
  EXPECT_EQ(report.steps, steps);
  return losses;
}

} // namespace penstock::runtime::test
