//===- CudaTest.cpp - Whole runs on streams and NCCL ----------------------===//
//
// Without a GPU: on the stand-in.
//
//===----------------------------------------------------------------------===//

#include "TestPrograms.h"
#include "conformance/TestBackend.h"
#include "standin/StandIn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <sstream>
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

/// Runs on the machine as it is.
RunReport runCuda(const Program &program, const ModelFactory &model,
                  RunOptions options = {}, CudaOptions cuda = {}) {
  auto backend = makeCudaBackend(program.problem.numRanks, cuda);
  RunReport report;
  if (!backend) {
    report.error = {ErrorKind::DeviceError, backend.message()};
    return report;
  }
  options.backend = backend->get();
  return runProgram(program, model, options);
}

/// The losses of a run that must succeed.
std::vector<double> lossesOf(const Program &program, int64_t steps,
                             Hooks hooks = {}, RunOptions options = {},
                             CudaOptions cuda = {}) {
  std::vector<double> losses;
  options.steps = steps;
  options.onStep = [&](const StepReport &report) {
    losses.push_back(report.loss);
  };
  const RunReport report = runCuda(
      program, makeIssuing(makeTestModel(std::move(hooks))), options, cuda);
  EXPECT_TRUE(report) << report.error.message;
  EXPECT_EQ(report.replayFault, "");
  return losses;
}

Error runToError(const Program &program, ErrorKind kind, Hooks hooks = {},
                 RunOptions options = {}, CudaOptions cuda = {}) {
  const RunReport report = runCuda(
      program, makeIssuing(makeTestModel(std::move(hooks))), options, cuda);
  EXPECT_EQ(name(report.error.kind), name(kind)) << report.error.message;
  return report.error;
}

/// A collective over all ranks, at the end of each rank.
void addCollective(Program &program, Op op, int32_t stage) {
  Instruction inst = action(op, stage, -1);
  for (int32_t r = 0; r < program.problem.numRanks; ++r)
    add(program, r, inst);
}

//===----------------------------------------------------------------------===//
// Right programs
//===----------------------------------------------------------------------===//

TEST(Cuda, LossesAreThoseOfThePlainLoop) {
  for (int32_t m : {1, 5})
    for (bool transferQueue : {false, true})
      for (bool replay : {false, true}) {
        const Program program =
            makeGPipe(2, m, {.split = replay, .transferQueue = transferQueue});
        RunOptions options;
        options.replay = replay;
        Hooks hooks;
        hooks.delaySeed = m;
        EXPECT_EQ(lossesOf(program, 20, hooks, options),
                  referenceLosses(program.problem, 20))
            << "m " << m << " transferQueue " << transferQueue << " replay "
            << replay;
      }
}

/// A group with messages of two communicators is two kernels, one behind the
/// other on the stream: their order must not be that of the program, which is
/// another one at the other end.
TEST(Cuda, GroupsOverSeveralCommunicatorsRunInOneOrder) {
  Program program = makeGPipe(2, 2, {.transferQueue = false});
  auto &first = program.ranks[0].instructions,
       &second = program.ranks[1].instructions;
  // Rank 0: F0, send, F1, {send, recv}, B0, ...; rank 1: recv, F0, B0,
  // {send, recv}, F1, ...
  ASSERT_EQ(first[3].op, Op::Send);
  ASSERT_EQ(first[4].op, Op::Recv);
  first[4].joined = true;
  ASSERT_EQ(second[2].op, Op::Recv);
  ASSERT_EQ(second[5].op, Op::Send);
  std::rotate(second.begin() + 2, second.begin() + 4, second.begin() + 6);
  ASSERT_EQ(second[3].op, Op::Send);
  ASSERT_EQ(second[4].op, Op::Recv);
  second[4].joined = true;
  for (RankProgram &rank : program.ranks)
    for (Instruction &inst : rank.instructions)
      inst.comm = inst.payload == Payload::Gradient;
  EXPECT_EQ(lossesOf(program, 3), referenceLosses(program.problem, 3));
}

TEST(Cuda, ManyRanksConnectInRounds) {
  // Each rank meets the first one in a barrier: more than a group may have.
  constexpr int32_t kMany = 40;
  standin::Options machine;
  machine.devices = kMany;
  machine.firstUse = true;
  standin::reset(machine);
  Program program = makeGPipe(kMany, 1);
  addCollective(program, Op::Barrier, -1);
  EXPECT_EQ(lossesOf(program, 2), referenceLosses(program.problem, 2));
}

TEST(Cuda, MemoryOfNcclIsRegistered) {
  const Program program = makeGPipe(2, 3);
  CudaOptions cuda;
  cuda.ncclMemory = true;
  EXPECT_EQ(lossesOf(program, 3, {}, {}, cuda),
            referenceLosses(program.problem, 3));
  EXPECT_EQ(standin::numCalls("ncclMemAlloc"), 2u);
  EXPECT_EQ(standin::numCalls("ncclCommRegister"), 2u);
  EXPECT_EQ(standin::numCalls("ncclCommDeregister"), 2u);
  EXPECT_EQ(standin::numCalls("ncclMemFree"), 2u);
}

TEST(Cuda, GoodRunsPartWithoutAnAbort) {
  const Program program = makeGPipe(2, 2);
  lossesOf(program, 2);
  EXPECT_EQ(standin::numCalls("ncclCommAbort"), 0u);
  EXPECT_EQ(standin::numCalls("ncclCommFinalize"), 2u);
  EXPECT_EQ(standin::numCalls("ncclCommDestroy"), 2u);
}

TEST(Cuda, StepsNeitherAllocateNorSynchronise) {
  const Program program = makeGPipe(2, 4);
  auto numCalls = [&](int64_t steps, std::string_view function) {
    standin::reset();
    lossesOf(program, steps);
    return standin::numCalls(function);
  };
  for (const char *function :
       {"cudaMalloc", "cudaMallocHost", "cudaFree", "cudaEventCreateWithFlags",
        "cudaStreamCreateWithFlags", "cudaStreamSynchronize",
        "cudaDeviceSynchronize", "cudaEventSynchronize"})
    EXPECT_EQ(numCalls(10, function), numCalls(2, function)) << function;
}

TEST(Cuda, OffloadedStashesAreInPinnedMemory) {
  const Program program = makeOffloaded();
  auto numCalls = [&](int64_t steps, std::string_view function) {
    standin::reset();
    EXPECT_EQ(lossesOf(program, steps),
              referenceLosses(program.problem, steps));
    return standin::numCalls(function);
  };
  // The model copies, too, but as often in every step.
  const uint64_t one = numCalls(1, "cudaMemcpyAsync");
  EXPECT_EQ(numCalls(3, "cudaMemcpyAsync"), 3 * one);
  const uint64_t allocations = numCalls(1, "cudaMallocHost");
  EXPECT_EQ(numCalls(3, "cudaMallocHost"), allocations);
  EXPECT_EQ(standin::leaks(), "");

  standin::reset();
  standin::fail("cudaMallocHost", allocations, cudaErrorMemoryAllocation);
  const RunReport report = runCuda(program, makeIssuing(makeTestModel()), {});
  EXPECT_EQ(name(report.error.kind), name(ErrorKind::DeviceError));
  EXPECT_TRUE(contains(report.error.message,
                       "rank 0: an arena of 256 bytes in host memory, for "
                       "offloaded stashes: cudaMallocHost: out of memory"))
      << report.error.message;
  EXPECT_EQ(standin::leaks(), "");
}

TEST(Cuda, ReplayedStepsAreOneLaunch) {
  const Program program = makeGPipe(2, 4);
  RunOptions options;
  options.replay = true;
  lossesOf(program, 10, {}, options);
  EXPECT_EQ(standin::numCalls("cudaGraphInstantiate"), 2u);
  EXPECT_EQ(standin::numCalls("cudaGraphLaunch"), 2u * 9);
}

TEST(Cuda, ReplayedStepsAreRecorded) {
  const Program program = makeGPipe(2, 2);
  for (bool replay : {false, true}) {
    standin::reset();
    Recorder recorder(program, 3);
    RunOptions options;
    options.replay = replay;
    options.recorder = &recorder;
    lossesOf(program, 6, {}, options);
    for (int32_t r : {0, 1}) {
      EXPECT_EQ(recorder.currentStep(r), 5);
      int64_t last = 0;
      for (int64_t step : {3, 4, 5}) {
        int64_t end = 0;
        for (uint32_t i = 0; i < program.ranks[r].instructions.size(); ++i) {
          const Stamps &stamps = recorder.stamps(r, step, i);
          EXPECT_GT(stamps.enqueued, last) << step;
          EXPECT_GE(stamps.started, stamps.enqueued) << step;
          EXPECT_GE(stamps.ended, stamps.started) << step;
          end = std::max<int64_t>(end, stamps.ended);
        }
        last = end;
      }
    }
    for (const Stage &stage : recorder.measuredProblem().stages)
      EXPECT_GT(stage.cost.forward, 0);
  }
}

TEST(Cuda, OneStepIsNoGraph) {
  RunOptions options;
  options.replay = true;
  options.steps = 1;
  const RunReport report =
      runCuda(makeGPipe(2, 2), makeIssuing(makeTestModel()), options);
  ASSERT_TRUE(report) << report.error.message;
  EXPECT_EQ(report.replayFault,
            "the second step is captured, and there was only one");
}

TEST(Cuda, ModelThatCannotBeReplayedIsIssued) {
  const Program program = makeGPipe(2, 2);
  RunOptions options;
  options.replay = true;
  options.steps = 3;
  const RunReport report = runCuda(
      program, makeIssuing(makeTestModel(), /*replays=*/false), options);
  ASSERT_TRUE(report) << report.error.message;
  EXPECT_EQ(report.replayFault,
            "rank 0: the calls of the model cannot be replayed");
  EXPECT_EQ(report.lastLoss, referenceLosses(program.problem, 3).back());
}

TEST(Cuda, CaptureThatFailsOnOneRankFailsOnAll) {
  const Program program = makeGPipe(2, 2);
  RunOptions options;
  options.replay = true;
  options.steps = 4;
  for (const char *function :
       {"cudaStreamBeginCapture", "cudaGraphInstantiate"}) {
    standin::reset();
    standin::fail(function, 2, cudaErrorStreamCaptureUnsupported);
    const RunReport report =
        runCuda(program, makeIssuing(makeTestModel()), options);
    ASSERT_TRUE(report) << function << ": " << report.error.message;
    EXPECT_TRUE(contains(report.replayFault,
                         std::string(function) +
                             ": operation not permitted when stream is "
                             "capturing"))
        << report.replayFault;
    EXPECT_EQ(standin::numCalls("cudaGraphLaunch"), 0u);
    EXPECT_EQ(report.lastLoss, referenceLosses(program.problem, 4).back());
  }
}

//===----------------------------------------------------------------------===//
// Refusals
//===----------------------------------------------------------------------===//

TEST(Cuda, NeedsAGpu) {
  standin::fail("cudaGetDeviceCount", 1, cudaErrorNoDevice);
  const auto backend = makeCudaBackend(2);
  ASSERT_FALSE(backend);
  EXPECT_TRUE(
      contains(backend.message(), "back end 'cuda': cudaGetDeviceCount: "))
      << backend.message();
  EXPECT_TRUE(contains(backend.message(),
                       "; use a machine with an NVIDIA GPU and its driver, or "
                       "the back end 'host'"));
}

TEST(Cuda, KernelsAreLoadedBeforeTheyAreLaunched) {
  unsetenv("CUDA_MODULE_LOADING");
  ASSERT_TRUE(makeCudaBackend(2));
  EXPECT_STREQ(getenv("CUDA_MODULE_LOADING"), "EAGER");
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  ASSERT_TRUE(makeCudaBackend(2));
  EXPECT_STREQ(getenv("CUDA_MODULE_LOADING"), "LAZY");
  unsetenv("CUDA_MODULE_LOADING");
}

TEST(Cuda, ModelMustIssue) {
  const RunReport report = runCuda(makeGPipe(2, 1), makeTestModel());
  EXPECT_EQ(report.error.kind, ErrorKind::NotSupported);
  EXPECT_EQ(report.error.message,
            "rank 0: the model computes on the host, but this device needs one "
            "that gives its work to a native queue; take another model, or a "
            "back end with devices 'host'");
  EXPECT_TRUE(runCuda(makeGPipe(2, 1), makeNullModel()));
}

TEST(Cuda, PaceStretchesActionsAndTransfers) {
  Program program = makeGPipe(2, 2);
  for (Stage &stage : program.problem.stages)
    stage.cost.forward = 2;
  program.problem.link.latency = 2;
  for (bool replay : {false, true}) {
    standin::reset();
    Recorder recorder(program, 1);
    RunOptions options;
    options.pace = 0.002;
    options.replay = replay;
    options.recorder = &recorder;
    EXPECT_EQ(lossesOf(program, 3, {}, options),
              referenceLosses(program.problem, 3));
    int forwards = 0, sends = 0;
    for (int32_t r : {0, 1})
      for (uint32_t i = 0; i < program.ranks[r].instructions.size(); ++i) {
        const Instruction &inst = program.ranks[r].instructions[i];
        if (inst.op != Op::Forward && inst.op != Op::Send)
          continue;
        (inst.op == Op::Send ? sends : forwards) += 1;
        const Stamps &stamps = recorder.stamps(r, 2, i);
        EXPECT_GE(stamps.ended - stamps.started, 4'000'000) << replay;
      }
    EXPECT_EQ(forwards, 4);
    EXPECT_EQ(sends, 4);
  }
}

TEST(Cuda, PacedTransferIsNoHang) {
  Program program = makeGPipe(2, 1);
  program.problem.link.latency = 1;
  RunOptions options;
  options.pace = 0.4;
  options.timeout = 0.15;
  EXPECT_EQ(lossesOf(program, 1, {}, options),
            referenceLosses(program.problem, 1));
}

TEST(CudaFaults, StopEndsAPause) {
  std::stop_source source;
  std::atomic<bool> runs = false;
  RunOptions options;
  options.pace = 3600;
  options.stop = source.get_token();
  Hooks hooks;
  hooks.onCall = [&](const ActionContext &, Op) { runs = true; };
  std::thread stopper([&] {
    while (!runs)
      std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(20ms);
    source.request_stop();
  });
  const Error error =
      runToError(makeGPipe(2, 1), ErrorKind::Aborted, hooks, options);
  stopper.join();
  EXPECT_EQ(error.message, "the run was stopped by its caller");
}

TEST(Cuda, CannotCheckWhetherFinite) {
  RunOptions options;
  options.checkFinite = true;
  const Error error =
      runToError(makeGPipe(2, 1), ErrorKind::NotSupported, {}, options);
  EXPECT_TRUE(contains(error.message,
                       "rank 0: what this device computes is not in host "
                       "memory and cannot be checked; leave the check for "
                       "finite values away, or take a back end with devices "
                       "'host'"));
}

TEST(Cuda, PostValidationIsNotSupported) {
  Program program = makeGPipe(2, 1);
  program.problem.postValidation = true;
  RunOptions options;
  options.force = true;
  const Error error = runToError(program, ErrorKind::NotSupported, {}, options);
  EXPECT_TRUE(contains(error.message, "the program has post-validation, which "
                                      "this device does not support"))
      << error.message;
}

/// A group of sends of rank 0, of one byte each, to these ranks.
Result<uint32_t> addSends(const std::vector<int32_t> &peers) {
  const auto backend = makeTestBackend(200);
  const auto transport = std::move(*backend->makeTransport(0));
  std::vector<Instruction> sends;
  for (int32_t peer : peers)
    sends.push_back(transfer(Op::Send, Payload::Activation, 0, 0, peer, 0, 1));
  std::vector<Transfer> members;
  for (const Instruction &send : sends)
    members.push_back({&send, nullptr});
  return transport->addGroup(members);
}

TEST(Cuda, GroupsHaveALimit) {
  std::vector<int32_t> peers(101);
  std::iota(peers.begin(), peers.end(), 1);
  const auto large = addSends(peers);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.message(),
            "a group of 101 transfers is too large for NCCL, which may split "
            "one of more than 100 differently on each rank, and then hang; "
            "make smaller groups, alike on all ranks");
  peers.pop_back();
  EXPECT_TRUE(addSends(peers));
  EXPECT_TRUE(addSends({1, 1, 1, 1, 1, 1, 1}));
  const auto many = addSends({1, 1, 1, 1, 1, 1, 1, 1});
  ASSERT_FALSE(many);
  EXPECT_EQ(many.message(),
            "a group with more than 7 sends to one rank is too large for NCCL, "
            "which may split it differently on the two ranks, and then hang; "
            "make smaller groups, alike on both");
}

TEST(Cuda, RanksOfOneProcessNeedAGpuEach) {
  standin::Options machine;
  machine.devices = 1;
  standin::reset(machine);
  const Error error = runToError(makeGPipe(2, 1), ErrorKind::DeviceError);
  EXPECT_TRUE(contains(error.message, "ranks of one process need a GPU each"))
      << error.message;
}

TEST(Cuda, CollectivesMustAgree) {
  std::vector<float> left(3), right(3);
  const auto backend = makeTestBackend(2);
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<Instruction> collectives(2);
  for (int32_t r : {0, 1}) {
    collectives[r].op = r == 0 ? Op::AllReduce : Op::Barrier;
    collectives[r].stage = r == 0 ? 0 : -1;
    transports.push_back(std::move(*backend->makeTransport(r)));
    ASSERT_TRUE(transports[r]->addCollective(
        collectives[r], std::vector<int32_t>{0, 1},
        r == 0 ? std::span<float>(left) : std::span<float>()));
  }
  Error errors[2];
  standin::runThreads(2, [&](int r) {
    errors[r] = transports[r]->connect({1, 2});
  });
  for (const Error &error : errors) {
    EXPECT_EQ(error.kind, ErrorKind::Mismatch);
    EXPECT_EQ(error.message,
              "rank 0's `all_reduce 0` meets rank 1's `barrier`");
  }
}

TEST(Cuda, SumsOfDeviceMemoryAreInTheOrderOfTheRanks) {
  // In another order 1 is lost.
  constexpr int32_t kRanks = 3;
  const std::array<float, kRanks> parts = {1e8f, -1e8f, 1};
  const auto backend = makeTestBackend(kRanks);
  Instruction inst = action(Op::AllReduce, 0, -1);
  std::array<float, kRanks> sums = {};
  standin::runThreads(kRanks, [&](int r) {
    cudaSetDevice(r);
    void *values = nullptr;
    ASSERT_EQ(cudaMalloc(&values, 4), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(values, &parts[r], 4, cudaMemcpyHostToDevice),
              cudaSuccess);
    {
      auto device = std::move(*backend->makeDevice(r));
      auto transport = std::move(*backend->makeTransport(r));
      ASSERT_TRUE(device->addQueue(1));
      const auto id =
          transport->addCollective(inst, std::vector<int32_t>{0, 1, 2},
                                   {static_cast<float *>(values), 1});
      ASSERT_TRUE(id);
      ASSERT_FALSE(transport->connect({1, 2}));
      device->enqueue(
          0, [&](void *queue) { EXPECT_FALSE(transport->run(*id, queue)); });
      EXPECT_TRUE(device->synchronize());
      EXPECT_FALSE(transport->disconnect());
    }
    cudaMemcpy(&sums[r], values, 4, cudaMemcpyDeviceToHost);
    cudaFree(values);
  });
  for (float sum : sums)
    EXPECT_EQ(sum, 1);
}

TEST(Cuda, MissingPeerIsNamedInTime) {
  // The exchange answers for rank 1, which never comes to NCCL.
  CudaOptions cuda;
  cuda.localRanks = {0};
  cuda.connectTimeout = 0.2;
  cuda.exchange = [](int32_t, const std::string &own, std::stop_token) {
    return Result<std::vector<std::string>>(std::vector<std::string>{own, own});
  };
  standin::Options machine;
  machine.onDeadlock = standin::OnDeadlock::Hang;
  standin::reset(machine);
  const auto backend = std::move(*makeCudaBackend(2, cuda));
  const auto transport = std::move(*backend->makeTransport(0));
  const Instruction inst =
      transfer(Op::Send, Payload::Activation, 0, 0, 1, 0, 0);
  const Transfer member{&inst, nullptr};
  ASSERT_TRUE(transport->addGroup({&member, 1}));
  const Error error = transport->connect({1, 2});
  EXPECT_EQ(error.kind, ErrorKind::Timeout);
  EXPECT_EQ(error.message,
            "rank 0 waits for NCCL to connect to, or part from, rank(s) 1 for "
            "more than 0.2 s; see whether they run, and what NCCL_DEBUG=INFO "
            "says");
}

//===----------------------------------------------------------------------===//
// Faults
//===----------------------------------------------------------------------===//

TEST(CudaFaults, ExceptionInAHostFunctionIsAModelError) {
  for (bool replay : {false, true})
    for (int32_t stage : {0, 1}) {
      standin::reset();
      std::atomic<int> calls = 0;
      Hooks hooks;
      hooks.onCall = [&](const ActionContext &context, Op op) {
        if (context.stage == stage && context.microbatch == 1 &&
            op == Op::Forward && ++calls == 3)
          throw std::runtime_error("out of ink");
      };
      RunOptions options;
      options.steps = 5;
      options.replay = replay;
      const Error error =
          runToError(makeGPipe(2, 3), ErrorKind::ModelError, hooks, options);
      EXPECT_EQ(error.message, "rank " + std::to_string(stage) +
                                   ", step 2: the model threw: forward " +
                                   std::to_string(stage) + " mb 1: out of ink");
      EXPECT_EQ(error.site.rank, stage);
    }
}

/// Throws when it is asked to issue.
class ThrowingModel final : public Model {
public:
  explicit ThrowingModel(int32_t rank) : rank(rank) {}
  bool issues() const override { return true; }
  bool canReplay() const override { return true; }
  void beginStep(int64_t s) override { step = s; }
  void forward(const ActionContext &) override {}
  void backward(const ActionContext &) override {
    if (rank == 1 && step == 1)
      throw std::runtime_error("out of ink");
  }
  void backwardInput(const ActionContext &) override {}
  void backwardWeight(const ActionContext &) override {}
  void recompute(const ActionContext &) override {}
  void optimizerStep(int32_t) override {}
  double loss(int32_t) const override { return 0; }

private:
  const int32_t rank;
  int64_t step = 0;
};

TEST(CudaFaults, ExceptionOfAnIssuingCallIsAModelError) {
  const ModelFactory factory = [](const Program &, int32_t rank) {
    return Result<std::unique_ptr<Model>>(
        std::make_unique<ThrowingModel>(rank));
  };
  RunOptions options;
  options.steps = 4;
  const Program program = makeGPipe(2, 2);
  const RunReport report = runCuda(program, factory, options);
  EXPECT_EQ(report.error.kind, ErrorKind::ModelError);
  EXPECT_TRUE(contains(report.error.message,
                       "(backward 1 mb 0): the model threw: out of ink"))
      << report.error.message;
  // In the step that is captured it only means that there is no capture: then
  // the step is issued.
  options.replay = true;
  const RunReport captured = runCuda(program, factory, options);
  EXPECT_EQ(captured.error.kind, ErrorKind::ModelError);
  EXPECT_TRUE(contains(captured.replayFault, "the model threw: out of ink"))
      << captured.replayFault;
}

TEST(CudaFaults, DeadlockEndsWithTheCycle) {
  standin::Options machine;
  machine.onDeadlock = standin::OnDeadlock::Hang;
  RunOptions options;
  options.force = true;
  options.timeout = 0.3;
  options.steps = 3;
  // With few places the host hangs too, in a launch.
  for (unsigned launchQueue : {0, 2, 3, 4, 5, 6, 7}) {
    machine.launchQueue = launchQueue;
    standin::reset(machine);
    const Error error =
        runToError(makeDeadlock(), ErrorKind::Timeout, {}, options);
    EXPECT_TRUE(contains(error.message, "no progress for 0.3 s in step 0:\n"))
        << error.message;
    EXPECT_TRUE(contains(error.message,
                         "rank 0, queue 0: waits in `recv gradient 1 mb 0 from "
                         "1` for rank 1's `send gradient 1 mb 0 to 0`"))
        << error.message;
    EXPECT_TRUE(contains(error.message,
                         "rank 1, queue 0: waits in `recv activation 0 mb 1 "
                         "from 0` for rank 0's `send activation 0 mb 1 to 1`"))
        << error.message;
    EXPECT_TRUE(contains(error.message, "deadlock: under documented semantics"))
        << error.message;
  }
}

TEST(CudaFaults, SlowCallIsNoHang) {
  Hooks hooks;
  hooks.onCall = [](const ActionContext &context, Op) {
    if (context.stage == 1 && context.microbatch == 0)
      std::this_thread::sleep_for(500ms);
  };
  RunOptions options;
  options.timeout = 0.2;
  const Program program = makeGPipe(2, 1);
  EXPECT_EQ(lossesOf(program, 1, hooks, options),
            referenceLosses(program.problem, 1));
}

TEST(CudaFaults, CallThatDoesNotReturnIsNamed) {
  std::atomic<bool> go = false;
  Hooks hooks;
  hooks.onCall = [&](const ActionContext &context, Op) {
    while (context.stage == 1 && !go)
      std::this_thread::sleep_for(1ms);
  };
  RunOptions options;
  options.timeout = 0.1;
  options.callTimeout = 0.3;
  options.onError = [&](const Error &) { go = true; };
  const Error error =
      runToError(makeGPipe(2, 1), ErrorKind::Timeout, hooks, options);
  EXPECT_TRUE(contains(error.message, "a call of the model takes more than"))
      << error.message;
  EXPECT_TRUE(contains(error.message, "rank 1, queue 0: is inside `forward 1 "
                                      "mb 0`"))
      << error.message;
}

TEST(CudaFaults, StopEndsTheRun) {
  for (bool replay : {false, true}) {
    standin::reset();
    std::stop_source source;
    RunOptions options;
    options.steps = 1'000'000'000;
    options.replay = replay;
    options.stop = source.get_token();
    options.onStep = [&](const StepReport &report) {
      if (report.step == 10)
        source.request_stop();
    };
    const Error error =
        runToError(makeGPipe(2, 2), ErrorKind::Aborted, {}, options);
    EXPECT_EQ(error.message, "the run was stopped by its caller");
  }
}

TEST(CudaFaults, LossThatIsNotFiniteEndsAll) {
  Hooks hooks;
  hooks.onLoss = [](double) { return std::numeric_limits<double>::infinity(); };
  const Error error = runToError(makeGPipe(2, 1), ErrorKind::NotFinite, hooks);
  EXPECT_TRUE(contains(error.message, "rank 1, step 0: the loss of "
                                      "micro-batch 0 is infinite"));
}

TEST(CudaFaults, BrokenGpuEndsTheRun) {
  std::atomic<int> calls = 0;
  Hooks hooks;
  hooks.onCall = [&](const ActionContext &context, Op) {
    if (context.stage == 1 && ++calls == 5)
      standin::breakDevice(1, cudaErrorIllegalAddress);
  };
  RunOptions options;
  options.steps = 10;
  const Error error =
      runCuda(makeGPipe(2, 2), makeIssuing(makeTestModel(hooks)), options)
          .error;
  EXPECT_TRUE(contains(error.message, "rank 1, ")) << error.message;
  // Whoever calls CUDA next meets it: the model, the transport or the device.
  if (error.kind == ErrorKind::ModelError) {
    EXPECT_TRUE(contains(error.message, "an illegal memory access"))
        << error.message;
    return;
  }
  EXPECT_EQ(error.kind, ErrorKind::DeviceError) << error.message;
  EXPECT_TRUE(contains(error.message,
                       "(cudaErrorIllegalAddress); a kernel is at fault; find "
                       "it with compute-sanitizer"))
      << error.message;
}

TEST(CudaFaults, LostPeerIsALostPeer) {
  standin::fail("ncclCommGetAsyncError", 60, ncclRemoteError);
  RunOptions options;
  options.steps = 1000;
  const Error error =
      runToError(makeGPipe(2, 2), ErrorKind::LostPeer, {}, options);
  EXPECT_TRUE(contains(error.message, "the process of another rank has ended "
                                      "or failed"))
      << error.message;
}

/// Peers that have nothing to say.
class SilentPeers final : public Peers {
public:
  Error listen(Listener, size_t, double) override { return {}; }
  void post(std::span<const double>) override {}
  void tell(const Error &) override {}
  std::vector<int32_t> silentRanks(double) override { return {}; }
  std::vector<std::string> askStates(double) override { return {}; }
  std::vector<std::string> shareStates(double) override { return {}; }
  void stop(bool) override {}
  Error lostPeer() override { return {}; }
  std::vector<std::string> gather(const std::string &, double) override {
    return {};
  }
};

/// NCCL may hear first that a process is gone, but it does not know which.
TEST(CudaFaults, PeersHaveTimeToSayWhoIsLost) {
  CudaOptions cuda;
  cuda.peers = std::make_shared<SilentPeers>();
  const auto backend = std::move(*makeCudaBackend(2, cuda));
  std::vector<std::unique_ptr<Transport>> transports;
  const Instruction ends[] = {
      transfer(Op::Send, Payload::Activation, 0, 0, 1, 0, 0),
      transfer(Op::Recv, Payload::Activation, 0, 0, 0, 0, 0)};
  for (int32_t r : {0, 1}) {
    transports.push_back(std::move(*backend->makeTransport(r)));
    const Transfer member{&ends[r], nullptr};
    ASSERT_TRUE(transports[r]->addGroup({&member, 1}));
  }
  standin::runThreads(2, [&](int r) {
    EXPECT_FALSE(transports[r]->connect({1, 2}));
  });
  std::atomic<bool> said = false;
  standin::fail("ncclCommGetAsyncError", 1, ncclRemoteError);
  std::thread peers([&] {
    std::this_thread::sleep_for(50ms);
    said = true;
    transports[0]->abort();
  });
  EXPECT_EQ(transports[0]->check().kind, ErrorKind::LostPeer);
  EXPECT_TRUE(said);
  peers.join();
  // Nobody says anything.
  standin::fail("ncclCommGetAsyncError", 1, ncclRemoteError);
  const Error error = transports[1]->check();
  EXPECT_EQ(error.kind, ErrorKind::LostPeer);
  EXPECT_TRUE(contains(error.message, "the process of another rank has ended "
                                      "or failed"))
      << error.message;
  transports[1]->abort();
}

/// Every call of every function once fails, the first few, one in the middle
/// and the last.
class CudaInjection : public testing::TestWithParam<bool> {};

TEST_P(CudaInjection, EveryErrorIsTyped) {
  Program program = makeGPipe(2, 2);
  program.problem.tied = {{{0, 1}, 8}};
  addCollective(program, Op::ReduceTied, 0);
  std::swap(program.ranks[0].instructions.back(),
            program.ranks[0].instructions.rbegin()[1]);
  std::swap(program.ranks[1].instructions.back(),
            program.ranks[1].instructions.rbegin()[1]);
  std::array<float, 2> gradients[2] = {};
  Hooks hooks;
  hooks.gradients = [&](int32_t rank) { return std::span(gradients[rank]); };
  RunOptions options;
  options.steps = 3;
  options.replay = GetParam();
  options.force = true; // the model is not told of the tied parameter
  options.timeout = 20;
  auto run = [&] {
    return runCuda(program, makeIssuing(makeTestModel(hooks)), options);
  };
  const RunReport good = run();
  ASSERT_TRUE(good) << good.error.message;
  std::vector<std::pair<std::string, uint64_t>> functions;
  std::istringstream calls(standin::calls());
  for (std::string function; calls >> function;) {
    uint64_t count = 0;
    calls >> count;
    functions.emplace_back(function, count);
  }
  ASSERT_GT(functions.size(), 20u);
  // What releases something, and what only asks for the last error.
  const std::set<std::string> tolerant = {
      "cudaFree",          "cudaFreeHost",       "cudaEventDestroy",
      "cudaStreamDestroy", "cudaGraphDestroy",   "cudaGraphExecDestroy",
      "ncclMemFree",       "ncclCommAbort",      "cudaGetErrorString",
      "cudaGetErrorName",  "ncclGetErrorString", "ncclGetLastError"};
  // What only the capture needs.
  const std::set<std::string> capture = {
      "cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate"};
  for (const auto &[function, count] : functions)
    for (uint64_t n : std::set<uint64_t>{1, 2, 3, 5, count / 2, count}) {
      if (n == 0 || n > count)
        continue;
      SCOPED_TRACE(function + " call " + std::to_string(n));
      standin::reset();
      if (function.starts_with("nccl"))
        standin::fail(function, n, ncclInternalError);
      else
        standin::fail(function, n, cudaErrorUnknown);
      const RunReport report = run();
      // Behind the last step these are asked once more.
      const bool isOver =
          report.steps == options.steps &&
          (function == "cudaSetDevice" || function == "cudaStreamQuery");
      if (standin::hasFailed() && report && !isOver) {
        EXPECT_TRUE(tolerant.contains(function) || capture.contains(function) ||
                    !report.replayFault.empty());
      }
      if (report.error) {
        // What the model calls too, it throws.
        EXPECT_TRUE(report.error.kind == ErrorKind::DeviceError ||
                    ((function == "cudaLaunchHostFunc" ||
                      function == "cudaMemcpyAsync") &&
                     report.error.kind == ErrorKind::ModelError) ||
                    (function == "cudaMallocHost" &&
                     report.error.kind == ErrorKind::BadModel))
            << name(report.error.kind) << ": " << report.error.message;
        EXPECT_TRUE(contains(report.error.message, "; ")) // a way out
            << report.error.message;
      }
      // Who cannot ask cannot know what is still in progress; nothing else may
      // be found.
      const bool knows =
          function != "ncclCommGetAsyncError" || !standin::hasFailed();
      std::istringstream findings(standin::findings());
      for (std::string line; std::getline(findings, line);)
        EXPECT_TRUE(!knows && contains(line, "is in progress there")) << line;
      EXPECT_EQ(standin::leaks(), "");
    }
}

INSTANTIATE_TEST_SUITE_P(IssuedAndReplayed, CudaInjection, testing::Bool(),
                         [](const auto &info) {
                           return info.param ? "replayed" : "issued";
                         });

} // namespace
