//===- JobTest.cpp - Whole runs over two processes ------------------------===//
//
// All processes run them alike; see JobMain.cpp.
//
//===----------------------------------------------------------------------===//

#include "TestPrograms.h"
#include "conformance/TestBackend.h"

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
      runProgram(program, onDevice(makeTestModel(std::move(hooks))), options);
  EXPECT_EQ(name(report.error.kind), name(kind)) << report.error.message;
  for (const std::string &message : testJob().gather(report.error.message))
    EXPECT_EQ(message, report.error.message);
  return report.error;
}

/// The losses of a run that must succeed.
std::vector<double> lossesOf(const Program &program, int64_t steps, Hooks hooks,
                             RunOptions options) {
  const auto backend = makeTestBackend(2);
  options.backend = backend.get();
  return runLosses(program, steps, onDevice(makeTestModel(std::move(hooks))),
                   options);
}

TEST(InProcesses, KnowEachOther) {
  ASSERT_EQ(testJob().size(), 2);
  const int32_t own = testJob().number();
  EXPECT_EQ(testJob().localNumber(), own); // on one machine
  const auto all = testJob().gather("I am " + std::to_string(own));
  EXPECT_EQ(all, (std::vector<std::string>{"I am 0", "I am 1"}));
  EXPECT_EQ(testJob().broadcast("from " + std::to_string(own), 1), "from 1");
  const std::string large(3'000'000, static_cast<char>('a' + own));
  EXPECT_EQ(testJob().gather(large)[1], std::string(3'000'000, 'b'));
  EXPECT_TRUE(contains(testJob().describe(),
                       "process " + std::to_string(own) + " of 2, as "));
}

TEST(InProcesses, WaitNoLongerThanTheyAreTold) {
  const auto peers = testJob().makePeers();
  if (testJob().number() == 0) {
    EXPECT_TRUE(peers->gather("early", 0.05).empty());
  }
  testJob().gather("");
  if (testJob().number() == 1) {
    EXPECT_EQ(peers->gather("late", 0.05).front(), "early");
  }
  EXPECT_EQ(peers->gather("on time").size(), 2u);
  EXPECT_FALSE(peers->lostPeer());
}

TEST(InProcesses, MustFitTheRanks) {
#ifdef PENSTOCK_TEST_MPI
  const std::string launcher = "mpirun", option = "mpirun -n ";
#else
  const std::string launcher = "the launcher", option = "--world-size=";
#endif
  const auto backend = testJob().makeBackend(4);
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.message(), "the program has 4 ranks, but " + launcher +
                                   " has started 2 processes; start it with " +
                                   option + "4");
  // Nor may they have different programs.
  const auto other = testJob().makeBackend(2 + testJob().number());
  ASSERT_FALSE(other);
  EXPECT_EQ(other.message(), "the program has 3 ranks, but " + launcher +
                                 " has started 2 processes; start it with " +
                                 option + "3");
}

TEST(InProcesses, LossesAreThoseOfThePlainLoop) {
  for (int32_t m : {1, 5})
    for (bool transferQueue : {false, true})
      for (uint64_t seed : {0, 7}) {
        const Program program = makeGPipe(
            2, m, {.split = seed > 0, .transferQueue = transferQueue});
        Hooks hooks;
        hooks.delaySeed = seed;
        EXPECT_EQ(lossesOf(program, 20, hooks, {}),
                  referenceLosses(program.problem, 20))
            << "m " << m << " transferQueue " << transferQueue;
      }
}

TEST(InProcesses, ReportAndRecorderHaveAllRanks) {
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
  const RunReport report =
      runProgram(program, onDevice(makeTestModel()), options);
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

TEST(InProcesses, RecordersMustBeAlike) {
  const Program program = makeGPipe(2, 1);
  const auto backend = makeTestBackend(2);
  const int32_t own = testJob().number();
  Recorder recorder(program, 1 + own);
  RunOptions options;
  options.backend = backend.get();
  options.recorder = &recorder;
  const Error error =
      runProgram(program, onDevice(makeTestModel()), options).error;
  EXPECT_EQ(error.kind, ErrorKind::Mismatch);
  EXPECT_EQ(error.message, "rank " + std::to_string(1 - own) +
                               " has recorded other steps than this one; use "
                               "the same build everywhere, and recorders of as "
                               "many steps");
}

TEST(InProcesses, RanksComparePrograms) {
  const Error error =
      runToError(makeGPipe(2, testJob().number() + 2), ErrorKind::Mismatch);
  EXPECT_TRUE(contains(error.message, "rank 1 has program "));
  EXPECT_TRUE(contains(error.message, "; give the same file to all ranks"));
}

TEST(InProcesses, ErrorOfOneRankEndsAll) {
  for (int32_t stage : {0, 1}) {
    Hooks hooks;
    hooks.onCall = [=](const ActionContext &context, Op) {
      if (context.stage == stage && context.microbatch == 1)
        throw std::runtime_error("out of ink");
    };
    const Error error =
        runToError(makeGPipe(2, 3), ErrorKind::ModelError, hooks);
    EXPECT_TRUE(contains(error.message, "out of ink"));
    EXPECT_EQ(error.site.rank, stage);
  }
}

TEST(InProcesses, FaultBeforeTheRunIsThatOfAll) {
  const auto backend = makeTestBackend(2);
  RunOptions options;
  options.backend = backend.get();
  const ModelFactory none = [](const Program &program, int32_t rank) {
    if (rank == 1)
      return Result<std::unique_ptr<Model>>(Failure{"no paper"});
    return onDevice(makeTestModel())(program, rank);
  };
  const RunReport report = runProgram(makeGPipe(2, 1), none, options);
  EXPECT_EQ(report.error.kind, ErrorKind::BadModel);
  EXPECT_EQ(report.error.message, "rank 1: no paper");
}

TEST(InProcesses, LossThatIsNotFiniteEndsAll) {
  Hooks hooks;
  hooks.onLoss = [](double) { return std::numeric_limits<double>::infinity(); };
  RunOptions options;
  options.steps = 3;
  const Error error =
      runToError(makeGPipe(2, 1), ErrorKind::NotFinite, hooks, options);
  EXPECT_TRUE(contains(error.message, "rank 1, step 0: the loss of "
                                      "micro-batch 0 is infinite"));
}

TEST(InProcesses, DeadlockEndsWithTheCycle) {
  RunOptions options;
  options.force = true;
  options.timeout = 0.3;
  // On a busy machine a rank may answer too late. All processes try as often.
  int numComplete = 0;
  std::string last;
  for (int attempt = 0; attempt < 4; ++attempt) {
    last = runToError(makeDeadlock(), ErrorKind::Timeout, {}, options).message;
    EXPECT_TRUE(contains(last, "no progress for 0.3 s in step 0:\n")) << last;
    EXPECT_TRUE(contains(last, "deadlock: under documented semantics "))
        << last;
    numComplete += contains(last, "  rank 0, queue 0: waits in `") &&
                   contains(last, "  rank 1, queue 0: waits in `");
  }
  EXPECT_GT(numComplete, 0) << last;
}

TEST(InProcesses, SlowPeerIsNoHang) {
  Hooks hooks;
  hooks.onCall = [](const ActionContext &context, Op) {
    if (context.stage == 1 && context.microbatch == 0)
      std::this_thread::sleep_for(700ms);
  };
  RunOptions options;
  options.timeout = 0.3;
  const Program program = makeGPipe(2, 1);
  EXPECT_EQ(lossesOf(program, 1, hooks, options),
            referenceLosses(program.problem, 1));
}

TEST(InProcesses, StopOfOneProcessStopsAll) {
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

#ifdef PENSTOCK_TEST_MPI
TEST(InProcesses, MessagesHaveALimit) {
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
#elif !defined(PENSTOCK_TEST_CUDA)
// More than sockets hold, in both directions at once.
TEST(InProcesses, LargeMessagesPassEachOther) {
  const int32_t own = testJob().number(), other = 1 - own;
  constexpr int64_t bytes = 20'000'000;
  const auto backend = makeTestBackend(2);
  const auto transport = std::move(*backend->makeTransport(own));
  std::vector<std::byte> out(bytes, std::byte(own)), in(bytes, std::byte(7));
  const Instruction send = transfer(Op::Send, Payload::Activation, own, 0,
                                    other, 0, bytes),
                    recv = transfer(Op::Recv, Payload::Activation, other, 0,
                                    other, 0, bytes);
  const Transfer members[] = {{&send, out.data()}, {&recv, in.data()}};
  const auto id = transport->addGroup(members);
  ASSERT_TRUE(id);
  ASSERT_FALSE(transport->connect({1, 2}));
  for (int round = 0; round < 3; ++round)
    EXPECT_FALSE(transport->run(*id, nullptr));
  EXPECT_EQ(in, std::vector<std::byte>(bytes, std::byte(other)));
  testJob().gather("");
}

// What has begun to leave when a run is aborted does not spoil the next one.
TEST(InProcesses, AbortInTheMiddleOfAMessage) {
  const int32_t own = testJob().number();
  constexpr int64_t bytes = 50'000'000;
  for (int round = 0; round < 4; ++round) {
    const auto backend = makeTestBackend(2);
    std::vector<std::byte> data(bytes);
    const Instruction inst =
        transfer(own == 0 ? Op::Send : Op::Recv, Payload::Activation, 0, 0,
                 1 - own, 0, bytes);
    const Transfer member{&inst, data.data()};
    auto transport = std::move(*backend->makeTransport(own));
    const auto id = transport->addGroup({&member, 1});
    ASSERT_FALSE(transport->connect({1, 2}));
    std::thread runner([&] { (void)transport->run(*id, nullptr); });
    std::this_thread::sleep_for(std::chrono::milliseconds(round * 3));
    if (own == round % 2)
      transport->abort();
    std::this_thread::sleep_for(5ms);
    transport->abort();
    runner.join();
    transport.reset();
  }
  EXPECT_EQ(testJob().gather("").size(), 2u);
}
#endif

} // namespace
