//===- MpiTest.cpp - Whole runs over two processes ------------------------===//
//
// Run by `mpirun -n 2`.
//
//===----------------------------------------------------------------------===//

#include "MpiTest.h"
#include "TestPrograms.h"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <thread>

using namespace penstock;
using namespace penstock::runtime;
using namespace penstock::runtime::test;
using namespace std::chrono_literals;

namespace {

bool contains(const std::string &text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// Runs what must fail, alike in both processes.
Error runToError(const Program &program, ErrorKind kind, Hooks hooks = {},
                 RunOptions options = {}) {
  const auto backend = makeTestBackend(2);
  options.backend = backend.get();
  RunReport report =
      runProgram(program, makeTestModel(std::move(hooks)), options);
  EXPECT_EQ(name(report.error.kind), name(kind)) << report.error.message;
  for (const std::string &message : testJob().gather(report.error.message))
    EXPECT_EQ(message, report.error.message);
  return report.error;
}

TEST(Mpi, ProcessesMustFitTheRanks) {
  const auto backend = makeMpiBackend(testJob(), 4);
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.message(),
            "the program has 4 ranks, but mpirun has started 2 processes; "
            "start it with mpirun -n 4");
  // Nor may they have different programs.
  const auto other = makeMpiBackend(testJob(), 2 + testJob().number());
  ASSERT_FALSE(other);
  EXPECT_EQ(other.message(),
            "the program has 3 ranks, but mpirun has started 2 processes; "
            "start it with mpirun -n 3");
}

TEST(Mpi, LossesAreThoseOfThePlainLoop) {
  for (int32_t m : {1, 5})
    for (bool transferQueue : {false, true})
      for (uint64_t seed : {0, 7}) {
        const Program program = makeGPipe(
            2, m, {.split = seed > 0, .transferQueue = transferQueue});
        const auto backend = makeTestBackend(2);
        RunOptions options;
        options.backend = backend.get();
        Hooks hooks;
        hooks.delaySeed = seed;
        EXPECT_EQ(runLosses(program, 20, hooks, options),
                  referenceLosses(program.problem, 20))
            << "m " << m << " transferQueue " << transferQueue;
      }
}

TEST(Mpi, ReportAndRecorderHaveAllRanks) {
  const Program program = makeGPipe(2, 3);
  const auto backend = makeTestBackend(2);
  Recorder recorder(program);
  RunOptions options;
  options.backend = backend.get();
  options.recorder = &recorder;
  options.steps = 5;
  bool seen = false;
  options.onFinished = [&](std::span<const Model *const> models) {
    seen = true;
    ASSERT_EQ(models.size(), 2u);
    EXPECT_NE(models[testJob().number()], nullptr);
    EXPECT_EQ(models[1 - testJob().number()], nullptr);
  };
  const RunReport report = runProgram(program, makeTestModel(), options);
  ASSERT_TRUE(report) << report.error.message;
  EXPECT_TRUE(seen);
  EXPECT_EQ(report.steps, 5);
  EXPECT_EQ(report.lastLoss, referenceLosses(program.problem, 5).back());
  EXPECT_GT(report.bubbleRate, 0);
  for (int32_t r : {0, 1}) {
    EXPECT_EQ(recorder.currentStep(r), 4);
    for (uint32_t i = 0; i < program.ranks[r].instructions.size(); ++i)
      EXPECT_NE(recorder.stamps(r, 4, i).ended, 0);
  }
  for (const Stage &stage : recorder.measuredProblem().stages)
    EXPECT_GT(stage.cost.forward, 0);
}

TEST(Mpi, RanksComparePrograms) {
  const Error error =
      runToError(makeGPipe(2, testJob().number() + 2), ErrorKind::Mismatch);
  EXPECT_TRUE(contains(error.message, "rank 1 has program "));
  EXPECT_TRUE(contains(error.message, "; give the same file to all ranks"));
}

TEST(Mpi, ErrorOfOneRankEndsAll) {
  for (int32_t stage : {0, 1}) {
    Hooks hooks;
    hooks.onCall = [=](const ActionContext &context, Op) {
      if (context.stage == stage && context.microbatch == 1)
        throw std::runtime_error("out of ink");
    };
    const Error error =
        runToError(makeGPipe(2, 3), ErrorKind::ModelError, hooks);
    EXPECT_TRUE(contains(error.message, "the model threw: out of ink"));
    EXPECT_EQ(error.site.rank, stage);
  }
}

TEST(Mpi, FaultBeforeTheRunIsThatOfAll) {
  const auto backend = makeTestBackend(2);
  RunOptions options;
  options.backend = backend.get();
  const ModelFactory none = [](const Program &program, int32_t rank) {
    if (rank == 1)
      return Result<std::unique_ptr<Model>>(Failure{"no paper"});
    return makeTestModel()(program, rank);
  };
  const RunReport report = runProgram(makeGPipe(2, 1), none, options);
  EXPECT_EQ(report.error.kind, ErrorKind::BadModel);
  EXPECT_EQ(report.error.message, "rank 1: no paper");
}

TEST(Mpi, LossThatIsNotFiniteEndsAll) {
  Hooks hooks;
  hooks.onLoss = [](double) { return std::numeric_limits<double>::infinity(); };
  RunOptions options;
  options.steps = 3;
  const Error error =
      runToError(makeGPipe(2, 1), ErrorKind::NotFinite, hooks, options);
  EXPECT_TRUE(contains(error.message, "rank 1, step 0: the loss of "
                                      "micro-batch 0 is infinite"));
}

TEST(Mpi, DeadlockEndsWithTheCycle) {
  RunOptions options;
  options.force = true;
  options.timeout = 0.3;
  const Error error =
      runToError(makeDeadlock(), ErrorKind::Timeout, {}, options);
  EXPECT_TRUE(contains(error.message, "no progress for 0.3 s in step 0:\n"))
      << error.message;
  EXPECT_TRUE(contains(error.message, ", queue 0: waits in `"))
      << error.message;
  EXPECT_TRUE(contains(error.message, "deadlock: under documented semantics "))
      << error.message;
}

TEST(Mpi, SlowPeerIsNoHang) {
  Hooks hooks;
  hooks.onCall = [](const ActionContext &context, Op) {
    if (context.stage == 1 && context.microbatch == 0)
      std::this_thread::sleep_for(700ms);
  };
  const auto backend = makeTestBackend(2);
  RunOptions options;
  options.backend = backend.get();
  options.timeout = 0.3;
  const Program program = makeGPipe(2, 1);
  EXPECT_EQ(runLosses(program, 1, hooks, options),
            referenceLosses(program.problem, 1));
}

TEST(Mpi, StopOfOneProcessStopsAll) {
  std::stop_source source;
  RunOptions options;
  options.steps = 1'000'000'000;
  options.stop = source.get_token();
  options.onStep = [&](const StepReport &report) {
    if (report.step == 10 && testJob().number() == 1)
      source.request_stop();
  };
  const Error error =
      runToError(makeGPipe(2, 1), ErrorKind::Aborted, {}, options);
  EXPECT_EQ(error.message, "the run was stopped by its caller");
}

TEST(Mpi, MessagesHaveALimit) {
  const auto backend = makeTestBackend(2);
  const auto transport = std::move(*backend->makeTransport(testJob().number()));
  const Instruction inst =
      transfer(Op::Send, Payload::Activation, 0, 0, 1, 0, int64_t(1) << 31);
  const Transfer member{&inst, nullptr};
  const auto id = transport->addGroup({&member, 1});
  ASSERT_FALSE(id);
  EXPECT_EQ(id.message(),
            "a message of 2147483648 bytes is too long for MPI, which takes up "
            "to 2147483647; use smaller micro-batches or stages");
}

} // namespace
