//===- RunTest.cpp - Whole runs on the host back end ----------------------===//

#include "TestPrograms.h"

#include "Support/Families.h"
#include "Support/Offload.h"

#include "penstock/Analysis/Certify.h"
#include "penstock/Lowering/Lowering.h"
#include "penstock/Runtime/Watchdog.h"
#include "penstock/Schedule/Schedule.h"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <thread>

using namespace penstock;
using namespace penstock::runtime;
using namespace penstock::runtime::test;
using penstock::test::kInOrder;
using namespace std::chrono_literals;

namespace {

size_t numThreads() {
  size_t count = 0;
  for (auto &entry : std::filesystem::directory_iterator("/proc/self/task")) {
    (void)entry;
    ++count;
  }
  return count;
}

bool contains(const std::string &text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// Runs what must fail, and expects that all its threads have ended.
RunReport runToError(const Program &program, ErrorKind kind, Hooks hooks = {},
                     RunOptions options = {}) {
  const size_t before = numThreads();
  std::vector<Error> told;
  options.onError = [&](const Error &error) { told.push_back(error); };
  RunReport report =
      runProgram(program, makeTestModel(std::move(hooks)), options);
  EXPECT_EQ(name(report.error.kind), name(kind)) << report.error.message;
  EXPECT_LE(told.size(), 1u);
  // A thread may stay visible for a moment after it was joined.
  // So `before` may be one too many, of the test before this.
  for (int i = 0; i < 1000 && numThreads() > before; ++i)
    std::this_thread::sleep_for(1ms);
  EXPECT_LE(numThreads(), before);
  return report;
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

TEST(Run, LossesAreThoseOfThePlainLoop) {
  for (int32_t p = 1; p <= 4; ++p)
    for (int32_t m : {1, 2, 5})
      for (bool split : {false, true})
        for (bool transferQueue : {false, true}) {
          const Program program =
              makeGPipe(p, m, {.split = split, .transferQueue = transferQueue});
          EXPECT_EQ(runLosses(program, 3), referenceLosses(program.problem, 3))
              << "p " << p << " m " << m << " split " << split
              << " transferQueue " << transferQueue;
        }
}

using Family = Result<Program> (*)(const Problem &);

Program compile(Family family, const Problem &problem, bool split) {
  Program program = *family(problem);
  if (split)
    splitBackward(program);
  appendSteps(program);
  EXPECT_TRUE(insertTransfers(program));
  EXPECT_TRUE(planBuffers(program));
  return program;
}

TEST(Run, CompiledProgramsTrainLikeThePlainLoop) {
  for (Family family : {naive, gpipe, oneForwardOneBackward})
    for (int32_t p = 1; p <= 4; ++p)
      for (int32_t m : {1, 3, 8})
        for (bool split : {false, true}) {
          const Problem problem = makeProblem(p, m);
          EXPECT_EQ(runLosses(compile(family, problem, split), 3),
                    referenceLosses(problem, 3))
              << "p " << p << " m " << m << " split " << split;
        }
}

TEST(Run, StashesInHostMemoryComeBackAsTheyWere) {
  const Problem problem = makeProblem(3, 8);
  Program program = *oneForwardOneBackward(problem);
  appendSteps(program);
  penstock::test::offloadStashes(program);
  ASSERT_TRUE(insertTransfers(program));
  ASSERT_TRUE(planBuffers(program));
  ASSERT_EQ(program.ranks[0].hostSlotBytes.size(), 2u);
  const std::vector<double> expected = referenceLosses(problem, 3);
  EXPECT_EQ(runLosses(program, 3), expected);
  Hooks hooks;
  for (hooks.delaySeed = 1; hooks.delaySeed <= 20; ++hooks.delaySeed)
    EXPECT_EQ(runLosses(program, 3, hooks), expected);
  // The copies are not idle: what they would bring is missed.
  for (Instruction &inst : program.ranks[0].instructions)
    if (inst.op == Op::Reload)
      inst.slots[Host] = 1 - inst.slots[Host];
  RunOptions options;
  options.force = true;
  EXPECT_NE(runLosses(program, 3, Hooks(), options), expected);
}

/// Of every family for which one loop says what comes out: each stage once, and
/// one update a step.
TEST(Run, LossesDoNotDependOnDelays) {
  std::vector<Program> programs;
  for (const auto &family : kInOrder)
    for (bool split : {false, true}) {
      Problem problem = makeProblem(4 * family.chunks, 6);
      problem.name = family.name;
      problem.numRanks = 4;
      family.place(problem);
      programs.push_back(compile(family.make, problem, split));
    }
  // As many runs as one likes; each ends with the same numbers.
  const char *wish = std::getenv("PENSTOCK_RUNS");
  const uint64_t numRuns = wish ? std::strtoull(wish, nullptr, 10) : 100;
  Hooks hooks;
  for (hooks.delaySeed = 1; hooks.delaySeed <= numRuns; ++hooks.delaySeed) {
    const Program &program = programs[hooks.delaySeed % programs.size()];
    ASSERT_EQ(runLosses(program, 3, hooks), referenceLosses(program.problem, 3))
        << program.problem.name << ", seed " << hooks.delaySeed;
  }
}

TEST(Run, ReportsFirstAndLastLossAndTheBubble) {
  const Program program = makeGPipe(2, 2);
  RunOptions options;
  options.steps = 4;
  const RunReport report = runProgram(program, makeTestModel(), options);
  ASSERT_TRUE(report) << report.error.message;
  const std::vector<double> expected = referenceLosses(program.problem, 4);
  EXPECT_EQ(report.firstLoss, expected.front());
  EXPECT_EQ(report.lastLoss, expected.back());
  EXPECT_EQ(report.steps, 4);
  EXPECT_GT(report.seconds, 0);
  EXPECT_GE(report.bubbleRate, 0);
  EXPECT_LT(report.bubbleRate, 1);
}

TEST(Run, ModelsAreShownWhenTheRunHasEnded) {
  const Program program = makeGPipe(3, 1);
  RunOptions options;
  size_t numModels = 0;
  double loss = 0;
  options.onFinished = [&](std::span<const Model *const> models) {
    numModels = models.size();
    loss = models[2]->loss(0);
  };
  const RunReport report = runProgram(program, makeTestModel(), options);
  ASSERT_TRUE(report) << report.error.message;
  EXPECT_EQ(numModels, 3u);
  EXPECT_EQ(loss, report.lastLoss);
}

TEST(Run, OverlapRunsItsActionsOneAfterTheOther) {
  // B(0) and F(1) of one rank as an overlap.
  Program program = makeGPipe(1, 2, {.transferQueue = false});
  auto &insts = program.ranks[0].instructions; // F0 F1 B0 B1 step
  std::swap(insts[1], insts[2]);
  insts[2].joined = true;
  std::vector<std::pair<Op, int32_t>> calls;
  Hooks hooks;
  hooks.onCall = [&](const ActionContext &c, Op op) {
    calls.emplace_back(op, c.microbatch);
  };
  EXPECT_EQ(runLosses(program, 1, hooks), referenceLosses(program.problem, 1));
  const std::vector<std::pair<Op, int32_t>> expected = {
      {Op::Forward, 0}, {Op::Backward, 0}, {Op::Forward, 1}, {Op::Backward, 1}};
  EXPECT_EQ(calls, expected);
}

TEST(Run, OperationsWithoutHostMeaningDoNothing) {
  Program program = makeGPipe(2, 1);
  for (int32_t r = 0; r < 2; ++r) {
    auto &list = program.ranks[r].instructions;
    list.insert(list.end() - 1, action(Op::ReduceGrad, r, -1)); // then the step
    list.insert(list.begin(), action(Op::Unshard, r, -1));
    for (uint32_t &wait : program.ranks[r].waits)
      ++wait;
    add(program, r, action(Op::Reshard, r, -1));
  }
  EXPECT_EQ(runLosses(program, 2), referenceLosses(program.problem, 2));
}

TEST(Run, BarrierAndAllReduceMeetOnTheirCommunicator) {
  Program program = makeGPipe(2, 1, {.steps = false});
  program.rankSets = {{0, 1}};
  program.problem.placement = {0, 1, 1, 0};
  for (int32_t r = 0; r < 2; ++r) {
    const auto last =
        static_cast<uint32_t>(program.ranks[r].instructions.size() - 1);
    Instruction reduce = action(Op::AllReduce, 0, -1);
    reduce.peer = 0;
    reduce.comm = 1;
    reduce.queue = 2;
    reduce.bytes = 8;
    add(program, r, reduce, {last});
    add(program, r, action(Op::Barrier, -1, -1));
    add(program, r, action(Op::Step, -1, -1));
  }
  RunOptions options;
  options.force = true; // no micro-batch uses the second copy of stage 0
  std::vector<float> gradients[2] = {{1, 2}, {10, 20}};
  Hooks hooks;
  hooks.gradients = [&](int32_t rank) {
    return std::span<float>(gradients[rank]);
  };
  EXPECT_EQ(runLosses(program, 2, hooks, options),
            referenceLosses(program.problem, 2));
  EXPECT_EQ(gradients[0], (std::vector<float>{22, 44})); // two steps
  EXPECT_EQ(gradients[1], gradients[0]);

  const RunReport report =
      runToError(program, ErrorKind::NotSupported, {}, options);
  EXPECT_TRUE(contains(report.error.message,
                       "the model does not show the gradients of stage 0"))
      << report.error.message;
}

/// A model of one number: every micro-batch has a gradient and a loss that are
/// given.
class NumberModel final : public Model {
public:
  NumberModel(std::vector<double> values, float *sum)
      : values(std::move(values)), sum(sum) {}
  void beginStep(int64_t) override {}
  void forward(const ActionContext &) override {}
  void backward(const ActionContext &c) override {
    if (c.stage == 0)
      *sum += static_cast<float>(c.weight * values[c.microbatch]);
  }
  void backwardInput(const ActionContext &) override {}
  void backwardWeight(const ActionContext &) override {}
  void recompute(const ActionContext &) override {}
  void optimizerStep(int32_t) override { *sum = 0; }
  std::span<float> tiedGradients(int32_t) override { return {sum, 1}; }
  double loss(int32_t microbatch) const override { return values[microbatch]; }

private:
  const std::vector<double> values;
  float *const sum;
};
/// The gradients go to `sums`, by rank.
ModelFactory makeNumberModel(std::vector<double> values, float *sums) {
  return [=](const Program &, int32_t rank) -> Result<std::unique_ptr<Model>> {
    return std::unique_ptr<Model>(
        std::make_unique<NumberModel>(values, sums + rank));
  };
}

// torchtitan#4711: a loss must not depend on the order in which the forwards of
// the last stage run.
TEST(Run, LossesAreAddedFromTheFirstMicrobatchToTheLast) {
  const std::vector<double> losses = {1e16, 1, -1e16, 1};
  float sums[2] = {};
  Program program = makeGPipe(2, 4);
  EXPECT_EQ(runProgram(program, makeNumberModel(losses, sums)).lastLoss, 0.25);
  // The last stage runs them the other way round, as far as it has them.
  Program backwards = makeGPipe(1, 4);
  auto &list = backwards.ranks[0].instructions;
  ASSERT_EQ(list[3].op, Op::Forward);
  std::reverse(list.begin(), list.begin() + 4);
  const RunReport report = runProgram(backwards, makeNumberModel(losses, sums));
  ASSERT_TRUE(report) << report.error.message;
  EXPECT_EQ(report.lastLoss, 0.25);
}

// torchtitan#1733, #1732, #196641: gradients of several steps that are added up
// before an update are each scaled once. With every gradient 1 and m = 4 two
// steps give 2; dividing all there is by m after each gives 1.25.
TEST(Run, GradientsOfStepsWithoutUpdateAddUp) {
  float sums[2] = {};
  RunOptions options;
  options.steps = 2;
  const RunReport report =
      runProgram(makeGPipe(2, 4, {.steps = false}),
                 makeNumberModel({1, 1, 1, 1}, sums), options);
  ASSERT_TRUE(report) << report.error.message;
  EXPECT_EQ(sums[0], 2);
  EXPECT_EQ(report.lastLoss, 1);
}

// torchtitan#2972: two micro-batches of 3 and 5 tokens, with means 2 and 6: the
// mean of all tokens is that of 1 .. 8.
TEST(Run, MicrobatchesHaveWeights) {
  float sums[2] = {};
  Program program = makeGPipe(2, 2, {.steps = false});
  program.problem.weights = {3. / 8, 5. / 8};
  const RunReport report = runProgram(program, makeNumberModel({2, 6}, sums));
  ASSERT_TRUE(report) << report.error.message;
  EXPECT_EQ(sums[0], 4.5f);
  EXPECT_EQ(report.lastLoss, 4.5);
}

// uw-syfi/piper#13, torchtitan#4486, #51931: the embedding of the first stage
// is the head of the last one.
TEST(Run, TiedGradientsAreAddedUp) {
  Program program = makeGPipe(2, 1, {.steps = false});
  program.problem.tied = {{{0, 1}, 4}};
  for (int32_t r = 0; r < 2; ++r) {
    const auto last =
        static_cast<uint32_t>(program.ranks[r].instructions.size() - 1);
    Instruction reduce = action(Op::ReduceTied, 0, -1);
    reduce.comm = 1;
    reduce.bytes = 4;
    add(program, r, reduce, {last});
  }
  std::vector<float> gradients[2] = {{1}, {10}};
  Hooks hooks;
  hooks.gradients = [&](int32_t rank) {
    return std::span<float>(gradients[rank]);
  };
  EXPECT_EQ(runLosses(program, 1, hooks), referenceLosses(program.problem, 1));
  EXPECT_EQ(gradients[0], (std::vector<float>{11}));
  EXPECT_EQ(gradients[1], gradients[0]);

  const RunReport report = runToError(program, ErrorKind::NotSupported);
  EXPECT_TRUE(contains(report.error.message,
                       "the model does not show the tied gradients of stage "
                       "0, so they cannot be reduced; implement "
                       "Model::tiedGradients"))
      << report.error.message;
}

TEST(Run, TransfersOfOneCommunicatorKeepHostOrderAcrossQueues) {
  // Both messages of rank 0 on queues of their own; the first one's producer is
  // slow. Without host order the second would take the first one's receive.
  Program program = makeGPipe(2, 2);
  uint8_t queue = 1;
  for (Instruction &inst : program.ranks[0].instructions)
    if (isTransfer(inst.op))
      inst.queue = queue++;
  Hooks hooks;
  hooks.onCall = [](const ActionContext &c, Op op) {
    if (c.stage == 0 && op == Op::Forward && c.microbatch == 0)
      std::this_thread::sleep_for(5ms);
  };
  EXPECT_EQ(runLosses(program, 3, hooks), referenceLosses(program.problem, 3));
}

//===----------------------------------------------------------------------===//
// Programs that do not run
//===----------------------------------------------------------------------===//

TEST(Run, OrderIsRefused) {
  Program program = makeGPipe(1, 1);
  program.ranks[0].slotBytes.clear();
  for (Instruction &inst : program.ranks[0].instructions)
    inst.slots.fill(kNoSlot);
  const RunReport report = runToError(program, ErrorKind::InvalidProgram);
  EXPECT_EQ(report.error.message,
            "the program is only an order, without transfers and buffers; "
            "compile it with penstock-opt --pipe-compile");
}

TEST(Run, UnplannedProgramIsRefused) {
  Program program = makeGPipe(2, 1, {.transferQueue = false});
  for (RankProgram &rank : program.ranks) {
    rank.slotBytes.clear();
    for (Instruction &inst : rank.instructions)
      inst.slots.fill(kNoSlot);
  }
  const RunReport report = runToError(program, ErrorKind::InvalidProgram);
  EXPECT_EQ(report.error.message,
            "the program has transfers but no planned buffers; compile it with "
            "penstock-opt --pipe-compile, or plan those of a hand-written one "
            "with --pipe-plan-buffers");
}

TEST(Run, MalformedProgramIsRefusedEvenByForce) {
  Program program = makeGPipe(2, 1);
  program.ranks[1].instructions[1].stage = 7;
  RunOptions options;
  options.force = true;
  const RunReport report =
      runToError(program, ErrorKind::InvalidProgram, {}, options);
  EXPECT_EQ(report.error.site, (Site{1, 1}));
}

TEST(Run, RefusedProgramNamesTheVerifiersFinding) {
  const RunReport report = runToError(makeDeadlock(), ErrorKind::Refused);
  EXPECT_TRUE(contains(report.error.message, "): deadlock: "))
      << report.error.message;
}

TEST(Run, ACertificateReplacesTheSearch) {
  Program program = makeGPipe(3, 4);
  ASSERT_TRUE(certify(program));
  EXPECT_EQ(runLosses(program, 2), referenceLosses(program.problem, 2));

  // The other rules are checked all the same.
  Program wrong = program;
  wrong.problem.memory = 1;
  RunReport report = runToError(wrong, ErrorKind::Refused);
  EXPECT_TRUE(contains(report.error.message, ": memory: "))
      << report.error.message;
}

TEST(Run, ACertificateThatDoesNotHoldIsRefused) {
  for (Program program : {makeGPipe(2, 2), makeDeadlock()}) {
    for (RankProgram &rank : program.ranks)
      rank.times.assign(rank.instructions.size(), 1);
    const RunReport report = runToError(program, ErrorKind::Refused);
    EXPECT_TRUE(contains(report.error.message,
                         "deadlock: the certificate does not hold: "))
        << report.error.message;
    EXPECT_EQ(report.error.site.rank, 0);
  }
  // Force overrules this as all else.
  Program program = makeGPipe(2, 2);
  for (RankProgram &rank : program.ranks)
    rank.times.assign(rank.instructions.size(), 1);
  RunOptions options;
  options.force = true;
  EXPECT_TRUE(runProgram(program, makeTestModel(), options));
}

TEST(Run, MissingSlotIsFoundBeforeTheRun) {
  Program program = makeGPipe(2, 1);
  program.ranks[1].instructions[1].slots[Input] = kNoSlot;
  RunOptions options;
  options.force = true;
  const RunReport report =
      runToError(program, ErrorKind::InvalidProgram, {}, options);
  EXPECT_TRUE(contains(report.error.message,
                       "rank 1, instruction 1 (forward 1 mb 0): an operand of "
                       "8 bytes has no slot"))
      << report.error.message;
}

TEST(Run, WrongRankIsFoundBeforeTheRunEvenWithForce) {
  RunOptions options;
  options.force = true;
  auto errorOf = [&](const Program &program) {
    return runToError(program, ErrorKind::InvalidProgram, {}, options)
        .error.message;
  };
  const std::string fault =
      "is on the wrong rank: stage 1 is on rank 1; move it there";
  Program program = makeGPipe(2, 1);
  program.ranks[0].instructions[0].stage = 1;
  EXPECT_EQ(errorOf(program),
            "rank 0, instruction 0 (forward 1 mb 0): " + fault);
  for (Op op :
       {Op::Step, Op::AllReduce, Op::ReduceGrad, Op::Unshard, Op::Reshard}) {
    program = makeGPipe(2, 1);
    program.ranks[0].instructions.back() = action(op, 1, -1);
    if (op == Op::AllReduce) {
      program.rankSets = {{0}};
      program.ranks[0].instructions.back().peer = 0;
    }
    const std::string message = errorOf(program);
    EXPECT_TRUE(contains(message, fault)) << message;
    // A second chain brings the stage here.
    program.problem.placement = {0, 1, 1, 0};
    if (op == Op::Step) {
      EXPECT_TRUE(runProgram(program, makeTestModel(), options));
    }
  }
}

TEST(Run, SlotThatIsTooSmallIsFoundBeforeTheRun) {
  Program program = makeGPipe(2, 1);
  program.ranks[0].instructions[1].bytes = 800;
  RunOptions options;
  options.force = true;
  const RunReport report =
      runToError(program, ErrorKind::InvalidProgram, {}, options);
  EXPECT_TRUE(contains(report.error.message,
                       "of 8 bytes is too small for an operand of 800 bytes"))
      << report.error.message;
}

TEST(Run, CopiesThatAreWrongAreFoundBeforeTheRun) {
  const Program right = makeOffloaded();
  auto expectFault = [&](void (*change)(RankProgram &),
                         const std::string &part) {
    Program program = right;
    change(program.ranks[0]);
    RunOptions options;
    options.force = true;
    const RunReport report =
        runToError(program, ErrorKind::InvalidProgram, {}, options);
    EXPECT_TRUE(contains(report.error.message, part)) << report.error.message;
  };
  expectFault(
      [](RankProgram &rank) { rank.instructions[1].slots[Host] = kNoSlot; },
      "(offload 0 mb 0): an operand of 8 bytes has no slot");
  expectFault(
      [](RankProgram &rank) { rank.instructions[2].slots[Slot] = kNoSlot; },
      "(reload 0 mb 0): an operand of 8 bytes has no slot");
  expectFault([](RankProgram &rank) { rank.hostSlotBytes[0] = 7; },
              "host slot 0 of 7 bytes is too small for an operand of 8 bytes");
}

TEST(Run, AStashForAnotherRankBelongsIntoAnOrder) {
  Program program = makeGPipe(2, 1);
  Instruction move = action(Op::Offload, 0, 0);
  move.peer = 1;
  add(program, 0, move);
  RunOptions options;
  options.force = true;
  const RunReport report =
      runToError(program, ErrorKind::InvalidProgram, {}, options);
  EXPECT_TRUE(contains(report.error.message,
                       "(offload 0 mb 0 to 1): belongs into an order"))
      << report.error.message;
}

TEST(Run, ModelOnAnotherQueueIsNotSupported) {
  Program program = makeGPipe(1, 1);
  program.ranks[0].instructions[1].queue = 3;
  RunOptions options;
  options.force = true;
  const RunReport report =
      runToError(program, ErrorKind::NotSupported, {}, options);
  EXPECT_TRUE(contains(report.error.message,
                       "the model is called on queue 0 only, not on queue 3"))
      << report.error.message;
}

TEST(Run, SizesThatDifferAreATypedError) {
  Program program = makeGPipe(2, 1);
  program.ranks[0].slotBytes.assign(program.ranks[0].slotBytes.size(), 16);
  program.ranks[0].instructions[1].bytes = 16;
  RunOptions options;
  options.force = true;
  const RunReport report =
      runToError(program, ErrorKind::Mismatch, {}, options);
  EXPECT_TRUE(contains(report.error.message, "of 16 bytes meets rank 1's"))
      << report.error.message;
}

//===----------------------------------------------------------------------===//
// Runs that fail
//===----------------------------------------------------------------------===//

TEST(Run, ExceptionInTheModelEndsAllRanks) {
  Hooks hooks;
  hooks.onCall = [](const ActionContext &c, Op op) {
    if (c.stage == 1 && op == Op::Backward && c.microbatch == 1)
      throw std::runtime_error("no more numbers");
  };
  const RunReport report =
      runToError(makeGPipe(3, 2), ErrorKind::ModelError, hooks);
  EXPECT_TRUE(contains(report.error.message,
                       "(backward 1 mb 1): the model threw: no more numbers"))
      << report.error.message;
  EXPECT_EQ(report.error.site.rank, 1);
}

TEST(Run, ExceptionsOutsideActionsEndAllRanksToo) {
  Hooks hooks;
  hooks.onBeginStep = [](int64_t step) {
    if (step == 2)
      throw 5; // not a std::exception
  };
  RunOptions options;
  options.steps = 5;
  RunReport report =
      runToError(makeGPipe(2, 2), ErrorKind::ModelError, hooks, options);
  EXPECT_TRUE(contains(report.error.message,
                       "step 2: the model threw in beginStep: something that "
                       "is not a std::exception"))
      << report.error.message;

  hooks = {};
  hooks.onStep = [](int32_t) { throw std::runtime_error("no update"); };
  report = runToError(makeGPipe(2, 2), ErrorKind::ModelError, hooks, options);
  EXPECT_TRUE(contains(report.error.message, "(step): the model threw: no up"))
      << report.error.message;

  hooks = {};
  hooks.onLoss = [](double) -> double { throw std::runtime_error("no loss"); };
  report = runToError(makeGPipe(2, 2), ErrorKind::ModelError, hooks, options);
  EXPECT_TRUE(
      contains(report.error.message, "the model threw in loss: no loss"))
      << report.error.message;
}

TEST(Run, LossThatIsNotFiniteEndsTheRun) {
  for (double bad : {std::numeric_limits<double>::quiet_NaN(),
                     -std::numeric_limits<double>::infinity()}) {
    Hooks hooks;
    auto calls = std::make_shared<std::atomic<int>>(0);
    hooks.onLoss = [=](double loss) {
      // Rank 0 has no loss. Rank 1 fails in its third step.
      return std::isnan(loss) || calls->fetch_add(1) < 5 ? loss : bad;
    };
    RunOptions options;
    options.steps = 5;
    const RunReport report =
        runToError(makeGPipe(2, 2), ErrorKind::NotFinite, hooks, options);
    EXPECT_TRUE(contains(report.error.message,
                         std::isnan(bad)
                             ? "rank 1, step 2: the loss of micro-batch 1 is "
                               "not a number"
                             : "rank 1, step 2: the loss of micro-batch 1 is "
                               "infinite"))
        << report.error.message;
    EXPECT_EQ(report.steps, 2);
  }
}

TEST(Run, LossOfAStepThatIsNotFiniteEndsTheRun) {
  Program program = makeGPipe(2, 2);
  program.problem.weights = {1e308, 1e308};
  Hooks hooks;
  hooks.onLoss = [](double loss) { return std::isnan(loss) ? loss : 1; };
  const RunReport report = runToError(program, ErrorKind::NotFinite, hooks);
  EXPECT_TRUE(contains(report.error.message,
                       "step 0: the losses of all micro-batches, each finite, "
                       "add up to more than a number can be; lower their "
                       "weights"))
      << report.error.message;
}

TEST(Run, LossWithoutForwardOfTheLastStageSaysSo) {
  Program program = makeGPipe(2, 1);
  Instruction &forward = program.ranks[1].instructions[1];
  ASSERT_EQ(forward.op, Op::Forward);
  forward.op = Op::Recompute;
  RunOptions options;
  options.force = true;
  const RunReport report =
      runToError(program, ErrorKind::NotFinite, {}, options);
  EXPECT_EQ(report.error.message,
            "rank 1, step 0: there is no loss of micro-batch 0, because no "
            "forward of it of the last stage, 1, is on this rank; add it to "
            "the program");
}

TEST(Run, ModelThatDoesNotSuitTheProgramIsRefused) {
  RunReport report = runProgram(
      makeGPipe(2, 1),
      [](const Program &, int32_t rank) -> Result<std::unique_ptr<Model>> {
        if (rank == 0)
          return makeTestModel()(makeGPipe(2, 1), 0);
        return Failure{"the model has 5 layers"};
      });
  EXPECT_EQ(report.error.kind, ErrorKind::BadModel);
  EXPECT_EQ(report.error.message, "rank 1: the model has 5 layers");

  report = runProgram(
      makeGPipe(2, 1),
      [](const Program &, int32_t) -> Result<std::unique_ptr<Model>> {
        throw std::runtime_error("out of memory");
      });
  EXPECT_EQ(report.error.kind, ErrorKind::BadModel);
  EXPECT_EQ(report.error.message,
            "rank 0: making the model threw: out of memory");
}

TEST(Run, CallerStopsTheRunFromTheCallback) {
  std::stop_source source;
  RunOptions options;
  options.steps = 1'000'000;
  options.stop = source.get_token();
  options.onStep = [&](const StepReport &report) {
    if (report.step == 3)
      source.request_stop();
  };
  const RunReport report =
      runToError(makeGPipe(4, 2), ErrorKind::Aborted, {}, options);
  EXPECT_EQ(report.error.message, "the run was stopped by its caller");
  EXPECT_GE(report.steps, 4);
}

TEST(Run, StopReachesSixteenThreadsSoon) {
  // Rank 7 sleeps in its pace for a minute; all others wait for it.
  Program program = makeGPipe(8, 1);
  program.problem.stages[7].cost.forward = 60;
  std::stop_source source;
  RunOptions options;
  options.pace = 1;
  options.stop = source.get_token();
  for (int32_t s = 0; s < 7; ++s)
    program.problem.stages[s].cost.forward = 0;
  std::chrono::steady_clock::time_point stopped;
  std::thread stopper([&] {
    std::this_thread::sleep_for(50ms);
    stopped = std::chrono::steady_clock::now();
    source.request_stop();
  });
  const RunReport report = runProgram(program, makeTestModel(), options);
  const auto end = std::chrono::steady_clock::now();
  stopper.join();
  EXPECT_EQ(report.error.kind, ErrorKind::Aborted);
  EXPECT_LT(end - stopped, 500ms);
}

//===----------------------------------------------------------------------===//
// The watchdog
//===----------------------------------------------------------------------===//

TEST(Watchdog, DeadlockEndsWithTheCycle) {
  RunOptions options;
  options.force = true;
  options.timeout = 0.3;
  const auto begin = std::chrono::steady_clock::now();
  const RunReport report =
      runToError(makeDeadlock(), ErrorKind::Timeout, {}, options);
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), 0.3 + 0.5);
  const std::string &text = report.error.message;
  EXPECT_TRUE(contains(text, "no progress for 0.3 s in step 0:")) << text;
  EXPECT_TRUE(contains(text, "rank 0, queue 0: waits in `recv gradient 1 mb 0 "
                             "from 1` for rank 1's `send gradient 1 mb 0 to "
                             "0`"))
      << text;
  EXPECT_TRUE(contains(text, "rank 1, queue 0: waits in `recv activation 0 mb "
                             "1 from 0` for rank 0's `send activation 0 mb 1 "
                             "to 1`"))
      << text;
  EXPECT_TRUE(contains(text, "): deadlock: ")) << text;
  EXPECT_TRUE(contains(text, "which stands behind")) << text;
  EXPECT_NE(text.back(), '\n');
}

TEST(Watchdog, QueuesThatStandBehindOthersAreNamed) {
  Program program = makeDeadlock();
  // Rank 1 has a second queue whose barrier waits for a stuck receive.
  for (int32_t r = 0; r < 2; ++r) {
    Instruction barrier = action(Op::Barrier, -1, -1);
    barrier.queue = 2;
    barrier.comm = 1;
    std::vector<uint32_t> waits;
    if (r == 1)
      waits.push_back(2); // recv activation 0 mb 1
    add(program, r, barrier, waits);
  }
  RunOptions options;
  options.force = true;
  options.timeout = 0.1;
  const RunReport report = runToError(program, ErrorKind::Timeout, {}, options);
  const std::string &text = report.error.message;
  EXPECT_TRUE(contains(text, "rank 0, queue 2: waits in `barrier` for the "
                             "other ranks of it"))
      << text;
  EXPECT_TRUE(contains(text, "rank 1, queue 2: stands before `barrier`, which "
                             "waits for `recv activation 0 mb 1 from 0`"))
      << text;
}

TEST(Watchdog, MissingPartnerIsNamed) {
  Program program = makeGPipe(2, 1);
  // Rank 1 never sends its gradient.
  auto &insts = program.ranks[1].instructions;
  insts.erase(std::find_if(insts.begin(), insts.end(), [](const auto &inst) {
    return inst.op == Op::Send;
  }));
  program.ranks[1].waits.resize(1); // that of the forward
  RunOptions options;
  options.force = true;
  options.timeout = 0.1;
  const RunReport report = runToError(program, ErrorKind::Timeout, {}, options);
  const std::string &text = report.error.message;
  EXPECT_TRUE(contains(text, "rank 0, queue 1: waits in `recv gradient 1 mb 0 "
                             "from 1` for rank 1, which has no send for it"))
      << text;
  EXPECT_TRUE(contains(text, "rank 0, queue 0: stands before `backward 0 mb "
                             "0`, which waits for `recv gradient 1 mb 0 from "
                             "1`"))
      << text;
  EXPECT_TRUE(contains(text, "rank 1: has ended the step")) << text;
}

TEST(Watchdog, SlowActionIsNotAHang) {
  Hooks hooks;
  hooks.onCall = [](const ActionContext &c, Op op) {
    if (c.stage == 1 && op == Op::Forward)
      std::this_thread::sleep_for(300ms);
  };
  RunOptions options;
  options.timeout = 0.05;
  const Program program = makeGPipe(2, 1);
  EXPECT_EQ(runLosses(program, 1, hooks, options),
            referenceLosses(program.problem, 1));
}

TEST(Watchdog, SlowLossIsNotAHang) {
  Hooks hooks;
  hooks.onLoss = [](double loss) {
    if (!std::isnan(loss)) // rank 0 goes on and waits for rank 1
      std::this_thread::sleep_for(200ms);
    return loss;
  };
  RunOptions options;
  options.timeout = 0.05;
  const Program program = makeGPipe(2, 1);
  EXPECT_EQ(runLosses(program, 2, hooks, options),
            referenceLosses(program.problem, 2));
}

TEST(Watchdog, WhoIsFrozenWhileTheRanksConnectIsNamed) {
  const Program program = makeGPipe(2, 1);
  for (const bool connecting : {false, true})
    for (const bool frozen : {false, true}) {
      const Recorder recorder(program);
      RunControl control;
      std::atomic<int> numAsked = 0;
      Watchdog::Others others;
      others.silentRanks = [&](double) {
        ++numAsked;
        return frozen ? std::vector<int32_t>{1} : std::vector<int32_t>();
      };
      {
        Watchdog watchdog(program, {}, recorder, control, 0.2, 0, others);
        watchdog.connecting = connecting;
        if (connecting && frozen)
          while (!control.failed())
            std::this_thread::sleep_for(1ms);
        else
          std::this_thread::sleep_for(500ms);
      }
      EXPECT_EQ(numAsked > 0, connecting);
      EXPECT_EQ(control.failed(), connecting && frozen);
      if (!control.failed())
        continue;
      EXPECT_EQ(control.error().kind, ErrorKind::LostPeer);
      EXPECT_EQ(control.error().site.rank, 1);
      EXPECT_TRUE(contains(control.error().message,
                           "rank 1 gives no sign of life; its process is "
                           "frozen or lost\nno progress for 0.2 s "));
    }
}

TEST(Watchdog, TimeOfASuspendedProcessDoesNotCount) {
  const auto begin = AwakeTime::Clock::now();
  AwakeTime awake(begin, 20ms);
  EXPECT_EQ(awake.at(begin + 10ms), 10ms);
  EXPECT_EQ(awake.at(begin + 25ms), 25ms);
  EXPECT_EQ(awake.at(begin + 1h), 45ms); // suspended
  EXPECT_EQ(awake.at(begin + 1h + 10ms), 55ms);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Watchdog, ThreadThatCannotStartIsADeviceError) {
  // In a process of its own, where no stack of an earlier thread lies ready.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto start = [] {
    const Program program = makeGPipe(1, 1);
    const Recorder recorder(program);
    RunControl control;
    const rlimit nothing = {1, 1};
    setrlimit(RLIMIT_AS, &nothing);
    Watchdog watchdog(program, {}, recorder, control, 1, 1);
    std::fputs(control.error().message.c_str(), stderr);
    std::_Exit(control.error().kind == ErrorKind::DeviceError ? 7 : 8);
  };
  EXPECT_EXIT(start(), testing::ExitedWithCode(7),
              "cannot start the thread of the watchdog: .*; run fewer ranks");
}
#endif

TEST(Watchdog, SlowCallbackIsNotAHang) {
  RunOptions options;
  options.timeout = 0.05;
  options.steps = 2;
  options.onStep = [](const StepReport &) {
    std::this_thread::sleep_for(200ms);
  };
  EXPECT_TRUE(runProgram(makeGPipe(2, 1), makeTestModel(), options));
}

TEST(Watchdog, CallTimeoutNamesTheCall) {
  Hooks hooks;
  hooks.onCall = [](const ActionContext &c, Op op) {
    if (c.stage == 1 && op == Op::Forward)
      std::this_thread::sleep_for(400ms);
  };
  RunOptions options;
  options.timeout = 0.05;
  options.callTimeout = 0.1;
  const RunReport report =
      runToError(makeGPipe(2, 1), ErrorKind::Timeout, hooks, options);
  const std::string &text = report.error.message;
  EXPECT_TRUE(contains(text, "a call of the model takes more than 0.1 s in "
                             "step 0:"))
      << text;
  EXPECT_TRUE(contains(text, "rank 1, queue 0: is inside `forward 1 mb 0`"))
      << text;
  EXPECT_NE(text.back(), '\n');
}

} // namespace
