//===- GpuModelTest.cpp - The model on GPUs trains as on the host ---------===//
//
// Without a GPU: the functors of the kernels, and the calls of CUDA, NCCL and
// cuBLAS, run on the stand-in.
//
//===----------------------------------------------------------------------===//

#include "conformance/FamilyPrograms.h"
#include "conformance/TestBackend.h"
#include "standin/Cublas.h"
#include "standin/StandIn.h"

#include <cmath>

using namespace penstock;
using namespace penstock::runtime;
using namespace penstock::runtime::test;
using namespace penstock::test;

namespace {

constexpr int32_t kNumRanks = 4;

/// Trains; the losses of the steps.
RunReport train(const Program &program, const ModelFactory &factory,
                RunOptions run, std::vector<double> *losses = nullptr) {
  const auto backend = makeTestBackend(program.problem.numRanks);
  run.backend = backend.get();
  if (losses)
    run.onStep = [&](const StepReport &report) {
      losses->push_back(report.loss);
    };
  return runProgram(program, factory, run);
}

GradientCheckReport checkOnGpus(const Program &program,
                                const std::string &description,
                                const std::string &text, int64_t steps = 2) {
  const auto backend = makeTestBackend(program.problem.numRanks);
  RunOptions run;
  run.backend = backend.get();
  run.steps = steps;
  return checkGradients(program, description, text, run, makeGpuModel);
}

std::string with(const std::string &entry) { return kModel + "," + entry; }

/// The program of a family for a model that is described so.
Program makeProgram(const std::string &description, int32_t numRanks, int32_t m,
                    const PlacedFamily &family) {
  Program program = makeOrder(numRanks, m, family, false, {}, description);
  EXPECT_TRUE(insertTransfers(program));
  EXPECT_TRUE(planBuffers(program));
  return program;
}

//===----------------------------------------------------------------------===//
// Every family
//===----------------------------------------------------------------------===//

class GpuFamilies : public testing::TestWithParam<FamilyCase> {
protected:
  const SampleText text;
};

TEST_P(GpuFamilies, GradientsAreThoseOfTheHost) {
  const Program program = makeFamilyProgram(kNumRanks, GetParam());
  const GradientCheckReport report = checkOnGpus(program, kModel, text.path);
  if (report.error.kind == ErrorKind::NotSupported) // updates in the pipe
    return;
  ASSERT_FALSE(report.error) << report.error.message;
  EXPECT_FALSE(report.check.exact);
  EXPECT_EQ(report.check.rounding, 1e-5);
  EXPECT_TRUE(report.check.agrees()) << report.check.describe();
  EXPECT_GT(report.check.numValues, 1000u);
}

// Those of schedules that update while micro-batches are in the pipe, too.
TEST_P(GpuFamilies, TrajectoryIsThatOfTheHost) {
  const Program program = makeFamilyProgram(kNumRanks, GetParam());
  for (const char *optimizer : {"optimizer=sgd", "optimizer=adam"}) {
    const std::vector<uint64_t> expected =
        trainToBits(program, {}, {0, 1, 2, 3}, {}, with(optimizer));
    const auto backend = makeTestBackend(kNumRanks);
    RunOptions run;
    run.backend = backend.get();
    ModelWrapper wrapper;
    wrapper.make = makeGpuModel;
    const std::vector<uint64_t> bits =
        trainToBits(program, run, {0, 1, 2, 3}, wrapper, with(optimizer));
    ASSERT_EQ(bits.size(), expected.size());
    // The losses, and what the ranks have at the end. Adam makes whole steps of
    // gradients that are nearly 0.
    for (size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(std::bit_cast<double>(bits[i]),
                  std::bit_cast<double>(expected[i]), 1e-5);
    const bool isAdam = std::string_view(optimizer) == "optimizer=adam";
    for (size_t i = 3; i + 1 < bits.size() && !isAdam; ++i)
      ASSERT_NEAR(std::bit_cast<float>(uint32_t(bits[i])),
                  std::bit_cast<float>(uint32_t(expected[i])), 3e-6)
          << i;
  }
}

TEST_P(GpuFamilies, ReplayHasTheSameBits) {
  const Program program = makeFamilyProgram(kNumRanks, GetParam());
  auto bits = [&](bool replay, const std::string &model,
                  const standin::Options &options = {}) {
    standin::reset(options);
    std::vector<uint64_t> result;
    {
      const auto backend = makeTestBackend(kNumRanks);
      RunOptions run;
      run.backend = backend.get();
      run.replay = replay;
      ModelWrapper wrapper;
      wrapper.make = makeGpuModel;
      result = trainToBits(program, run, {0, 1, 2, 3}, wrapper, model);
    }
    EXPECT_EQ(standin::findings(), "");
    EXPECT_EQ(standin::leaks(), "");
    return result;
  };
  const auto expected = bits(false, kModel);
  EXPECT_GT(expected.size(), 1000u);
  EXPECT_TRUE(bits(true, kModel) == expected);
  if (std::get<0>(GetParam()) > 3)
    return;
  // As the stand-in likes to delay things.
  standin::Options options;
  options.queues = standin::Queues::Shared;
  options.connections = 2;
  options.serialHostFunctions = true;
  options.lazyLoading = true;
  options.maxDelay = 20;
  EXPECT_TRUE(bits(false, kModel, options) == expected);
}

/// Some of all: fused and split, several stages a rank, several copies of a
/// stage, recompute, slices, updates in the pipe.
std::vector<FamilyCase> someFamilyCases() {
  std::vector<FamilyCase> cases;
  for (const FamilyCase &family : allFamilyCases()) {
    const auto &[m, placed, split] = family;
    const std::string_view name = placed.name;
    auto isOneOf = [&](std::initializer_list<std::string_view> names) {
      return std::ranges::find(names, name) != names.end();
    };
    if (m == 3 ? isOneOf({"one_f_one_b", "zb_h1", "interleaved_1f1b",
                          "interleaved_zb", "zb_v", "dualpipe_v",
                          "gpipe_descending", "seq_1f1b", "dualpipe"}) ||
                     (split && isOneOf({"gpipe", "pipedream"}))
               : isOneOf({"zb_h2", "gis", "hanayo", "breadth_first"}) ||
                     (!split && isOneOf({"pipedream_2bw"})))
      cases.push_back(family);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Some, GpuFamilies,
                         testing::ValuesIn(someFamilyCases()), nameOfFamily);

//===----------------------------------------------------------------------===//
// The model
//===----------------------------------------------------------------------===//

class GpuModel : public testing::Test {
protected:
  Program makeSmall(int32_t m = 4) const {
    return makeProgram(kModel, 2, m, kOneForwardOneBackward);
  }
  Error trainToError(const Program &program, const std::string &description,
                     ErrorKind kind, RunOptions run = {}) const {
    auto factory = makeGpuModel(description, text.path);
    EXPECT_TRUE(factory) << factory.message();
    const RunReport report = train(program, *factory, run);
    EXPECT_EQ(name(report.error.kind), name(kind)) << report.error.message;
    return report.error;
  }

  const SampleText text;
};

TEST_F(GpuModel, Sizes) {
  for (const char *sizes :
       {"byte-lm:samples=16", "byte-lm:type=bf16,samples=16",
        "byte-lm:width=24,hidden=40,context=3,embed=5,samples=10",
        "byte-lm:width=7,hidden=130,context=1,embed=1,samples=3",
        "byte-lm:width=1,hidden=1,context=2,embed=3,samples=1",
        "byte-lm:width=33,hidden=9,context=5,embed=2,samples=65"}) {
    const Program program = makeProgram(sizes, 2, 2, kOneForwardOneBackward);
    const GradientCheckReport report = checkOnGpus(program, sizes, text.path);
    ASSERT_FALSE(report.error) << sizes << ": " << report.error.message;
    EXPECT_TRUE(report.check.agrees())
        << sizes << ": " << report.check.describe();
  }
}

// One rank has both ends of the model, and no transfers.
TEST_F(GpuModel, OneRank) {
  const Program program = makeProgram(kModel, 1, 3, kOneForwardOneBackward);
  const GradientCheckReport report = checkOnGpus(program, kModel, text.path);
  ASSERT_FALSE(report.error) << report.error.message;
  EXPECT_TRUE(report.check.agrees()) << report.check.describe();
}

TEST_F(GpuModel, WrongProgramsDiffer) {
  for (const std::string &model : {kModel, with("type=bf16")}) {
    Program program = makeProgram(model, 2, 4, kOneForwardOneBackward);
    GradientCheckReport report = checkOnGpus(program, model, text.path);
    ASSERT_FALSE(report.error) << report.error.message;
    EXPECT_TRUE(report.check.agrees()) << report.check.describe();
    EXPECT_FALSE(report.check.equal());
    // One micro-batch counts for more.
    program.problem.weights = {0.4, 0.2, 0.2, 0.2};
    Program heavier = program;
    program.problem.weights.clear();
    auto reference =
        Reference::make(with("optimizer=sgd"), text.path, program.problem);
    ASSERT_TRUE(reference);
    reference->step();
    RunOptions run;
    GradientCheck check;
    run.onFinished = [&](std::span<const Model *const> models) {
      check = *compareGradients(heavier.problem, models, *reference);
    };
    ASSERT_TRUE(train(heavier,
                      *makeGpuModel(model + ",optimizer=sgd", text.path), run));
    check.exact = false;
    check.rounding = report.check.rounding;
    check.byNorm = report.check.byNorm;
    EXPECT_FALSE(check.agrees()) << check.describe();
  }
}

TEST_F(GpuModel, BFloat16TrainsAsFloatDoes) {
  std::vector<double> losses[2];
  RunOptions run;
  run.steps = 60;
  int which = 0;
  for (const char *type : {"type=fp32", "type=bf16"}) {
    const std::string model = with(type);
    const Program program = makeProgram(model, 2, 4, kOneForwardOneBackward);
    const RunReport report =
        train(program, *makeGpuModel(model, text.path), run, &losses[which++]);
    ASSERT_TRUE(report) << report.error.message;
  }
  EXPECT_NE(losses[0], losses[1]);
  for (size_t i = 0; i < losses[0].size(); ++i)
    EXPECT_NEAR(losses[0][i], losses[1][i], 0.02 * losses[0][i]) << i;
  EXPECT_LT(losses[1].back(), 0.8 * losses[1].front());
}

/// Counts calls that allocate or wait.
std::string slowCalls() {
  std::string text;
  for (const char *call :
       {"cudaMalloc", "cudaMallocHost", "cudaHostAlloc", "cudaMallocAsync",
        "cudaFree", "cudaFreeHost", "cudaMemcpy", "cudaMemset",
        "cudaDeviceSynchronize", "cudaStreamSynchronize",
        "cudaEventSynchronize", "cublasCreate", "cublasSetWorkspace"})
    text += call + (" " + std::to_string(standin::numCalls(call))) + "\n";
  return text;
}

TEST_F(GpuModel, NothingIsAllocatedOrWaitedForInAStep) {
  const Program program = makeSmall();
  for (bool replay : {false, true}) {
    std::string first;
    uint64_t products = 0;
    RunOptions run;
    run.steps = 6;
    run.replay = replay;
    run.onStep = [&](const StepReport &report) {
      if (report.step == 2) {
        first = slowCalls();
        products = standin::numCalls("cublasGemmEx");
      } else if (report.step == 4) {
        EXPECT_EQ(slowCalls(), first);
        // A graph calls nothing.
        EXPECT_EQ(standin::numCalls("cublasGemmEx") > products, !replay);
      }
    };
    const RunReport report =
        train(program, *makeGpuModel(kModel, text.path), run);
    ASSERT_TRUE(report) << report.error.message;
    EXPECT_EQ(report.replayFault, "");
  }
}

// Whatever makes itself when it is first used does so before the first step.
TEST_F(GpuModel, EveryCallIsMadeBeforeTheRun) {
  for (const std::string &description : {kModel, with("optimizer=sgd")}) {
    const Program program = makeProgram(description, 1, 2, kGPipe);
    auto model = (*makeGpuModel(description, text.path))(program, 0);
    ASSERT_TRUE(model) << model.message();
    auto onHost = (*makeModel(description, text.path))(program, 0);
    ASSERT_TRUE(onHost) << onHost.message();
    EXPECT_GT(standin::numCalls("cublasGemmEx"), 0u);
    EXPECT_GT(standin::numCalls("cudaLaunchKernel"), 0u);
    std::vector<float> expected, values;
    auto addTo = [](std::vector<float> &to) {
      return [&](const Parameter &parameter) {
        to.insert(to.end(), parameter.value.begin(), parameter.value.end());
        to.insert(to.end(), parameter.gradient.begin(),
                  parameter.gradient.end());
      };
    };
    dynamic_cast<const InspectableModel &>(**model).forEachParameter(
        0, addTo(values));
    dynamic_cast<const InspectableModel &>(**onHost).forEachParameter(
        0, addTo(expected));
    EXPECT_GT(values.size(), 1000u);
    EXPECT_EQ(values, expected);
    model->reset();
    standin::reset();
  }
}

TEST_F(GpuModel, OldWeightsAreNotReplayed) {
  const Program program = makeProgram(kModel, 2, 4, kPipeDream);
  RunOptions run;
  run.steps = 3;
  run.replay = true;
  const RunReport report =
      train(program, *makeGpuModel(kModel, text.path), run);
  ASSERT_TRUE(report) << report.error.message;
  EXPECT_EQ(report.replayFault,
            "rank 0: the calls of the model cannot be replayed");
}

TEST_F(GpuModel, AllReduceIsOnMemoryOfTheGpu) {
  // Two copies of each stage.
  const Program program = makeFamilyProgram(
      kNumRanks,
      {3, PlacedFamily{"dualpipe", dualPipe, 1, Shape::BothWays}, false});
  size_t sums = 0;
  for (const RankProgram &rank : program.ranks)
    for (const Instruction &inst : rank.instructions)
      sums += inst.op == Op::AllReduce;
  ASSERT_GT(sums, 0u);
  const GradientCheckReport report = checkOnGpus(program, kModel, text.path);
  ASSERT_FALSE(report.error) << report.error.message;
  EXPECT_TRUE(report.check.agrees()) << report.check.describe();
}

TEST_F(GpuModel, WhatIsNotFiniteEndsTheRun) {
  RunOptions run;
  run.steps = 100;
  for (const char *type : {"type=fp32", "type=bf16"}) {
    const std::string model =
        with(std::string(type) + ",optimizer=sgd,lr=1e30");
    const Error error =
        trainToError(makeProgram(model, 2, 4, kOneForwardOneBackward), model,
                     ErrorKind::NotFinite, run);
    EXPECT_NE(error.message.find("lower the learning rate"), std::string::npos)
        << error.message;
  }
}

//===----------------------------------------------------------------------===//
// What cannot be
//===----------------------------------------------------------------------===//

TEST_F(GpuModel, BadDescriptions) {
  EXPECT_EQ(makeGpuModel("byte-lm:type=fp16", text.path).message(),
            "model byte-lm: 'type=fp16' is not fp32 or bf16");
  EXPECT_EQ(makeGpuModel("byte-lm:clip=1", text.path).message(),
            "byte-lm cannot clip on GPUs, which have no post-validation yet; "
            "leave clip out, or use --backend=host");
  EXPECT_EQ(makeGpuModel("gpt", text.path).message(),
            "unknown model 'gpt'; the known models are: byte-lm");
  EXPECT_NE(makeGpuModel("byte-lm", "/nowhere").message().find("/nowhere"),
            std::string::npos);
}

TEST_F(GpuModel, TheHostHasNoBFloat16) {
  const std::string model = with("type=bf16");
  const RunReport report =
      runProgram(makeProgram(model, 2, 4, kOneForwardOneBackward),
                 *makeModel(model, text.path));
  EXPECT_EQ(report.error.kind, ErrorKind::BadModel);
  EXPECT_EQ(report.error.message,
            "rank 0: byte-lm has type=bf16 on GPUs only; leave it out, or use "
            "--backend=cuda");
}

TEST_F(GpuModel, ProgramsOfAnotherModel) {
  const Error error =
      trainToError(makeSmall(), with("type=bf16"), ErrorKind::BadModel);
  EXPECT_NE(error.message.find(
                "rank 0: stage 0: the program plans 128 bytes of output, the "
                "model needs 64; take the pipe.model that penstock-run "
                "--print-model prints"),
            std::string::npos)
      << error.message;
}

TEST_F(GpuModel, ItNeedsAQueue) {
  const Program program = makeSmall(1);
  const RunReport report =
      runProgram(program, *makeGpuModel(kModel, text.path));
  EXPECT_EQ(report.error.kind, ErrorKind::NotSupported);
  EXPECT_EQ(report.error.message,
            "rank 0: the model gives its work to a native queue, which this "
            "device does not have; take a model of the host, or a back end "
            "with devices 'cuda'");
}

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

TEST_F(GpuModel, ErrorsOfCublasNameTheCall) {
  const Program program = makeSmall();
  struct {
    const char *call;
    cublasStatus_t status;
    const char *text;
  } const cases[] = {
      {"cublasCreate", CUBLAS_STATUS_ALLOC_FAILED,
       "rank 0: cublasCreate: the resource allocation failed "
       "(CUBLAS_STATUS_ALLOC_FAILED); use smaller micro-batches, or more "
       "ranks"},
      {"cublasSetMathMode", CUBLAS_STATUS_NOT_INITIALIZED,
       "rank 0: cublasSetMathMode: the library was not initialized "
       "(CUBLAS_STATUS_NOT_INITIALIZED); install cuBLAS and a driver that "
       "suits it, or use --backend=host"},
      {"cublasSetStream", CUBLAS_STATUS_INVALID_VALUE,
       ": cublasSetStream: an error (CUBLAS_STATUS_INVALID_VALUE); "
       "CUBLAS_LOGINFO_DBG=1 says more"},
      {"cublasSetWorkspace", CUBLAS_STATUS_INTERNAL_ERROR,
       ": cublasSetWorkspace: an error (CUBLAS_STATUS_INTERNAL_ERROR); "
       "CUBLAS_LOGINFO_DBG=1 says more"},
      {"cublasGemmEx", CUBLAS_STATUS_EXECUTION_FAILED,
       ": cublasGemmEx: the function failed to launch on the GPU "
       "(CUBLAS_STATUS_EXECUTION_FAILED); CUDA_LAUNCH_BLOCKING=1 shows which "
       "call is at fault"},
      {"cublasGemmEx", CUBLAS_STATUS_ARCH_MISMATCH,
       ": cublasGemmEx: an error (CUBLAS_STATUS_ARCH_MISMATCH); leave "
       "type=bf16 "
       "out, or take a newer GPU"}};
  for (const auto &[call, status, expected] : cases) {
    standin::reset();
    // In the step, if not with the model.
    uint64_t before = 0;
    if (std::string_view(expected).starts_with(":")) {
      for (int32_t rank : {0, 1})
        EXPECT_TRUE((*makeGpuModel(kModel, text.path))(program, rank));
      before = standin::numCalls(call);
      standin::reset();
    }
    standin::fail(call, before + 1, status);
    const Error error = trainToError(program, kModel, ErrorKind::DeviceError);
    EXPECT_NE(error.message.find(expected), std::string::npos) << error.message;
    // The action is named where there is one.
    EXPECT_EQ(error.site.instruction != kNoInstruction,
              std::string_view(expected).starts_with(":"))
        << error.message;
  }
}

TEST_F(GpuModel, TooLittleMemory) {
  standin::Options small;
  small.deviceBytes = 1 << 20;
  standin::reset(small);
  const Error error = trainToError(makeSmall(), kModel, ErrorKind::DeviceError);
  EXPECT_NE(error.message.find("rank 0: cudaMalloc: "), std::string::npos)
      << error.message;
  EXPECT_NE(error.message.find("; use smaller micro-batches, or more ranks"),
            std::string::npos)
      << error.message;
}

TEST_F(GpuModel, AnErrorAtEachCall) {
  const Program program = makeSmall(2);
  for (bool replay : {false, true}) {
    bool failed = true;
    for (uint64_t n = 1; failed; n += n < 40 ? 1 : 31) {
      standin::reset();
      standin::failAny(n, cudaErrorUnknown, ncclSystemError);
      RunOptions run;
      run.steps = 3;
      run.replay = replay;
      RunReport report;
      if (auto backend = makeCudaBackend(2)) {
        run.backend = backend->get();
        report = runProgram(program, *makeGpuModel(kModel, text.path), run);
      }
      failed = standin::hasFailed();
      if (report.error) {
        EXPECT_EQ(name(report.error.kind), name(ErrorKind::DeviceError))
            << n << ": " << report.error.message;
      }
      ASSERT_EQ(standin::leaks(), "") << n;
    }
  }
}

} // namespace
