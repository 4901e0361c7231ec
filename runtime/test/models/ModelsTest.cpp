//===- ModelsTest.cpp - The demo model behind its interface ---------------===//
//
// Drives the models of all ranks by hand, with a buffer per tensor and no
// executor, and compares with the reference.
//
//===----------------------------------------------------------------------===//

#include "ByteLmConfig.h"

#include "penstock/Runtime/Models.h"
#include "gtest/gtest.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <unistd.h>

using namespace penstock;
using namespace penstock::runtime;

namespace {

constexpr const char *kSmall =
    "byte-lm:width=20,hidden=36,context=4,embed=6,samples=5";

/// A file that goes away with the test.
class TextFile {
public:
  explicit TextFile(const std::string &text) {
    static int count = 0;
    path = testing::TempDir() + "penstock-models-" + std::to_string(getpid()) +
           '-' + std::to_string(count++);
    std::ofstream(path, std::ios::binary) << text;
  }
  ~TextFile() { std::filesystem::remove(path); }
  std::string path;
};

std::string repeatedText() {
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += "Water from the river runs through the penstock to the turbine. ";
  return text;
}

/// Stage s on rank s % numRanks, cut after the given layers.
Program makeProgram(std::string_view description, std::vector<int32_t> cuts,
                    int32_t numRanks, int32_t numMicrobatches) {
  const ByteLmConfig config = *ByteLmConfig::parse(description);
  Program program;
  Problem &problem = program.problem;
  problem.numRanks = numRanks;
  problem.numMicrobatches = numMicrobatches;
  int32_t first = 0;
  for (int32_t cut : cuts) {
    Stage stage;
    stage.firstLayer = first;
    stage.numLayers = cut - first;
    stage.bytes = bytesOf(stage, cuts.back(), config);
    first = cut;
    problem.placement.push_back(problem.numStages() % numRanks);
    problem.stages.push_back(stage);
  }
  program.ranks.resize(numRanks);
  return program;
}

/// Memory of one tensor, full of NaNs, with a fence behind it.
class Buffer {
public:
  explicit Buffer(int64_t bytes) : bytes(bytes) {
    const size_t size =
        (bytes + 2 * kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
    memory.reset(
        static_cast<std::byte *>(std::aligned_alloc(kSlotAlignment, size)));
    std::memset(memory.get(), 0xff, size);
    fence = std::vector<std::byte>(size - bytes, std::byte(0xff));
  }
  ~Buffer() {
    EXPECT_EQ(std::memcmp(memory.get() + bytes, fence.data(), fence.size()), 0)
        << "written past the end";
  }
  std::byte *data() { return bytes ? memory.get() : nullptr; }
  void poison() { std::memset(memory.get(), 0xff, bytes); }

private:
  struct Free {
    void operator()(std::byte *p) const { std::free(p); }
  };
  int64_t bytes;
  std::unique_ptr<std::byte, Free> memory;
  std::vector<std::byte> fence;
};

/// The models of all ranks, and actions on them.
class Pipeline {
public:
  Pipeline(const ModelFactory &factory, const Program &program)
      : problem(program.problem) {
    for (int32_t rank = 0; rank < problem.numRanks; ++rank) {
      auto model = factory(program, rank);
      if (!model) {
        ADD_FAILURE() << model.message();
        std::abort();
      }
      auto &inspectable = dynamic_cast<InspectableModel &>(**model);
      inspectable.captureGradients();
      models.push_back(std::move(*model));
      views.push_back(models.back().get());
    }
    auto make = [&](std::vector<std::unique_ptr<Buffer>> &buffers, auto size) {
      for (const Stage &stage : problem.stages)
        for (int32_t mb = 0; mb < problem.numMicrobatches; ++mb)
          buffers.push_back(std::make_unique<Buffer>(size(stage.bytes)));
    };
    make(activations, [](const StageBytes &b) { return b.output; });
    make(gradients, [](const StageBytes &b) { return b.output; });
    make(stashes, [](const StageBytes &b) { return b.stash; });
  }

  void beginStep(int64_t step) {
    for (auto &model : models)
      model->beginStep(step);
  }
  void run(Op op, int32_t stage, int32_t mb) {
    ActionContext context;
    context.stage = stage;
    context.microbatch = mb;
    context.weight = problem.weightOf(mb);
    if (stage > 0)
      context.input = at(activations, stage - 1, mb).data();
    context.stash = at(stashes, stage, mb).data();
    const bool isForward = op == Op::Forward || op == Op::Recompute;
    // Slot (stage, mb) of `gradients` is the gradient of the stage's output.
    if (!isForward)
      context.gradient = at(gradients, stage, mb).data();
    if (op == Op::Forward)
      context.output = at(activations, stage, mb).data();
    else if ((op == Op::Backward || op == Op::BackwardInput) && stage > 0)
      context.output = at(gradients, stage - 1, mb).data();
    Model &model = *models[problem.placement[stage]];
    switch (op) {
    case Op::Forward:
      return model.forward(context);
    case Op::Backward:
      return model.backward(context);
    case Op::BackwardInput:
      return model.backwardInput(context);
    case Op::BackwardWeight:
      return model.backwardWeight(context);
    default:
      at(stashes, stage, mb).poison();
      return model.recompute(context);
    }
  }
  /// The op on all stages in the direction of its data.
  void runAll(Op op, int32_t mb) {
    const int32_t n = problem.numStages();
    for (int32_t i = 0; i < n; ++i)
      run(op, op == Op::Forward || op == Op::Recompute ? i : n - 1 - i, mb);
  }
  void update() {
    for (auto &model : models)
      model->optimizerStep(-1);
  }
  Model &model(int32_t rank) { return *models[rank]; }
  double loss() {
    std::vector<double> losses;
    for (int32_t mb = 0; mb < problem.numMicrobatches; ++mb)
      losses.push_back(models[problem.placement.back()]->loss(mb));
    return lossOfStep(problem, losses);
  }
  Result<GradientCheck> compare(const Reference &reference) {
    return compareGradients(problem, views, reference);
  }

  const Problem problem;
  std::vector<const Model *> views;

private:
  Buffer &at(std::vector<std::unique_ptr<Buffer>> &buffers, int32_t stage,
             int32_t mb) {
    return *buffers[size_t(stage) * problem.numMicrobatches + mb];
  }

  std::vector<std::unique_ptr<Model>> models;
  std::vector<std::unique_ptr<Buffer>> activations, gradients, stashes;
};

using Schedule = void (*)(Pipeline &, int32_t numMicrobatches);

void oneByOne(Pipeline &pipeline, int32_t m) {
  for (int32_t mb = 0; mb < m; ++mb) {
    pipeline.runAll(Op::Forward, mb);
    pipeline.runAll(Op::Backward, mb);
  }
}
void allForwardFirst(Pipeline &pipeline, int32_t m) {
  for (int32_t mb = m; mb-- > 0;) // the order of the forwards is free
    pipeline.runAll(Op::Forward, mb);
  for (int32_t mb = 0; mb < m; ++mb)
    pipeline.runAll(Op::Backward, mb);
}
void split(Pipeline &pipeline, int32_t m) {
  for (int32_t mb = 0; mb < m; ++mb) {
    pipeline.runAll(Op::Forward, mb);
    pipeline.runAll(Op::BackwardInput, mb);
    pipeline.runAll(Op::BackwardWeight, mb);
  }
}
void weightsLast(Pipeline &pipeline, int32_t m) {
  for (int32_t mb = 0; mb < m; ++mb) {
    pipeline.runAll(Op::Forward, mb);
    pipeline.runAll(Op::BackwardInput, mb);
  }
  // Stage by stage: only the order of the micro-batches counts.
  for (int32_t s = 0; s < pipeline.problem.numStages(); ++s)
    for (int32_t mb = 0; mb < m; ++mb)
      pipeline.run(Op::BackwardWeight, s, mb);
}
void withRecompute(Pipeline &pipeline, int32_t m) {
  for (int32_t mb = 0; mb < m; ++mb)
    pipeline.runAll(Op::Forward, mb);
  for (int32_t mb = 0; mb < m; ++mb) {
    pipeline.runAll(Op::Recompute, mb);
    pipeline.runAll(mb % 2 ? Op::Backward : Op::BackwardInput, mb);
    if (mb % 2 == 0)
      pipeline.runAll(Op::BackwardWeight, mb);
  }
}

/// Every partition and interleaving gives the gradients and the losses of the
/// unpipelined model, bit for bit, step after step.
TEST(Models, PipelinedIsUnpipelined) {
  const TextFile text(repeatedText());
  auto factory = makeModel(kSmall, text.path);
  ASSERT_TRUE(factory) << factory.message();
  struct Shape {
    std::vector<int32_t> cuts;
    int32_t numRanks;
  };
  const Shape shapes[] = {{{5}, 1},          {{2}, 1},
                          {{1, 2}, 2},       {{2, 5}, 2},
                          {{1, 4, 5}, 3},    {{2, 3, 5}, 3},
                          {{1, 2, 3, 5}, 4}, {{1, 2, 3, 4, 5, 6}, 3}};
  const Schedule schedules[] = {oneByOne, allForwardFirst, split, weightsLast,
                                withRecompute};
  for (const Shape &shape : shapes)
    for (int32_t m : {1, 2, 3, 6})
      for (const Schedule &schedule : schedules) {
        Program program = makeProgram(kSmall, shape.cuts, shape.numRanks, m);
        Pipeline pipeline(*factory, program);
        auto reference = Reference::make(kSmall, text.path, program.problem);
        ASSERT_TRUE(reference) << reference.message();
        for (int32_t step = 0; step < 2; ++step) {
          pipeline.beginStep(step);
          schedule(pipeline, m);
          pipeline.update();
          EXPECT_EQ(pipeline.loss(), reference->step());
          auto check = pipeline.compare(*reference);
          ASSERT_TRUE(check) << check.message();
          ASSERT_TRUE(check->equal())
              << check->describe() << ", schedule " << &schedule - schedules
              << ", " << shape.cuts.size() << " stages, m = " << m;
          EXPECT_EQ(check->maxRelativeDifference, 0);
        }
      }
}

TEST(Models, DifferencesAreFound) {
  const TextFile text(repeatedText());
  Program program = makeProgram(kSmall, {2, 4}, 2, 3);
  auto factory = makeModel(kSmall, text.path);
  auto reference = Reference::make(kSmall, text.path, program.problem);
  const double expectedLoss = reference->step();

  // Another order of accumulation: other roundings.
  Pipeline reversed(*factory, program);
  reversed.beginStep(0);
  for (int32_t mb = 3; mb-- > 0;) {
    reversed.runAll(Op::Forward, mb);
    reversed.runAll(Op::Backward, mb);
  }
  EXPECT_EQ(reversed.loss(), expectedLoss);
  reversed.update();
  auto check = reversed.compare(*reference);
  ASSERT_TRUE(check);
  EXPECT_FALSE(check->equal());
  EXPECT_GT(check->maxRelativeDifference, 0);
  EXPECT_LT(check->maxRelativeDifference, 1e-5);

  // One weight gradient is missing.
  Pipeline wrong(*factory, program);
  wrong.beginStep(0);
  for (int32_t mb = 0; mb < 3; ++mb) {
    wrong.runAll(Op::Forward, mb);
    wrong.runAll(Op::BackwardInput, mb);
    wrong.run(Op::BackwardWeight, 0, mb);
    if (mb != 1)
      wrong.run(Op::BackwardWeight, 1, mb);
  }
  wrong.update();
  check = wrong.compare(*reference);
  ASSERT_TRUE(check);
  EXPECT_GT(check->maxRelativeDifference, 0.1);
  EXPECT_EQ(check->layer, 2);
  EXPECT_EQ(check->parameter, "weight1");
  EXPECT_EQ(check->index, 0u);
  EXPECT_NE(check->value, check->expected);
  EXPECT_NE(check->describe().find(
                " gradients and parameters differ after 1 step; the first is "
                "layer 2, gradient of weight1[0]: "),
            std::string::npos)
      << check->describe();

  // A NaN is the largest difference.
  Pipeline poisoned(*factory, program);
  poisoned.beginStep(0);
  for (int32_t mb = 0; mb < 3; ++mb) {
    poisoned.runAll(Op::Forward, mb);
    poisoned.run(Op::BackwardWeight, 1, mb); // before its I: reads poison
  }
  poisoned.update();
  check = poisoned.compare(*reference);
  ASSERT_TRUE(check);
  EXPECT_TRUE(std::isnan(check->maxRelativeDifference));

  // Also when numbers that differ follow it.
  Pipeline first(*factory, program);
  first.beginStep(0);
  for (int32_t mb = 0; mb < 2; ++mb) {
    first.runAll(Op::Forward, mb);
    first.runAll(Op::Backward, mb);
  }
  first.model(0).gradients(0)[0] = std::numeric_limits<float>::quiet_NaN();
  first.update();
  check = first.compare(*reference);
  ASSERT_TRUE(check);
  EXPECT_GT(check->numDifferent, 10u);
  EXPECT_TRUE(std::isnan(check->maxRelativeDifference));
}

TEST(Models, GradientsThatCannotBeCompared) {
  const TextFile text(repeatedText());
  Program program = makeProgram(kSmall, {2, 4}, 2, 1);
  auto factory = makeModel(kSmall, text.path);
  auto reference = Reference::make(kSmall, text.path, program.problem);
  Pipeline pipeline(*factory, program);
  oneByOne(pipeline, 1);

  pipeline.views[1] = nullptr;
  EXPECT_EQ(pipeline.compare(*reference).message(),
            "stage 1: there is no model on rank 1 that shows its gradients");
  pipeline.views.pop_back();
  EXPECT_EQ(pipeline.compare(*reference).message(),
            "stage 1: there is no model on rank 1 that shows its gradients");
  const std::string differ =
      " does not have the parameters of the reference; give both the same "
      "description";
  pipeline.views.push_back(pipeline.views[0]); // without stage 1
  EXPECT_EQ(pipeline.compare(*reference).message(),
            "stage 1: the model on rank 1" + differ);

  auto wider = Reference::make("byte-lm:width=24", text.path, program.problem);
  EXPECT_EQ(Pipeline(*factory, program).compare(*wider).message(),
            "stage 0: the model on rank 0" + differ);
}

TEST(Models, CapturedGradientsAreThoseOfTheLastUpdate) {
  const TextFile text(repeatedText());
  Program program = makeProgram(kSmall, {3}, 1, 1);
  auto factory = makeModel(kSmall, text.path);
  auto model = (*factory)(program, 0);
  ASSERT_TRUE(model);
  auto &inspectable = dynamic_cast<InspectableModel &>(**model);
  auto largest = [&] {
    float value = 0;
    inspectable.forEachParameter(0, [&](const Parameter &parameter) {
      for (float g : parameter.gradient)
        value = std::max(value, std::abs(g));
    });
    return value;
  };
  int numCalls = 0;
  inspectable.forEachParameter(1, [&](const Parameter &) { ++numCalls; });
  EXPECT_EQ(numCalls, 0);

  Buffer stash(program.problem.stages[0].bytes.stash);
  ActionContext context;
  context.stash = stash.data();
  auto accumulate = [&](int64_t step) {
    (*model)->beginStep(step);
    (*model)->forward(context);
    (*model)->backward(context);
    return largest();
  };
  // Without capture only what has accumulated shows.
  EXPECT_GT(accumulate(0), 0);
  (*model)->optimizerStep(0);
  EXPECT_EQ(largest(), 0);

  inspectable.captureGradients();
  const float live = accumulate(1);
  EXPECT_GT(live, 0);
  (*model)->optimizerStep(-1);
  EXPECT_EQ(largest(), live);
  (*model)->beginStep(2);
  EXPECT_EQ(largest(), 0); // of this step: nothing yet
}

TEST(Models, LossesAreKeptByMicrobatch) {
  const TextFile text(repeatedText());
  Program program = makeProgram(kSmall, {1, 2}, 2, 2);
  auto factory = makeModel(kSmall, text.path);
  Pipeline pipeline(*factory, program);
  Model &last = pipeline.model(program.problem.placement.back());
  pipeline.beginStep(0);
  EXPECT_TRUE(std::isnan(last.loss(0)));
  pipeline.runAll(Op::Forward, 1);
  EXPECT_TRUE(std::isnan(last.loss(0)));
  pipeline.runAll(Op::Forward, 0);
  EXPECT_NE(last.loss(0), last.loss(1));
  EXPECT_EQ(pipeline.loss(), (last.loss(0) + last.loss(1)) / 2);
  EXPECT_TRUE(std::isnan(pipeline.model(0).loss(0))); // the head is elsewhere
  pipeline.beginStep(1);
  EXPECT_TRUE(std::isnan(last.loss(0)));
}

TEST(Models, LossOfAStep) {
  Problem problem;
  problem.numMicrobatches = 3;
  EXPECT_EQ(lossOfStep(problem, std::vector<double>{1, 2, 6}), 3);
  problem.weights = {0.5, 0.25, 0.125};
  EXPECT_EQ(lossOfStep(problem, std::vector<double>{1, 2, 6}), 1.75);
}

TEST(Models, Learns) {
  const TextFile text(repeatedText());
  Problem problem = makeProgram("byte-lm", {4}, 1, 2).problem;
  for (const char *description : {"byte-lm:width=32,hidden=64,lr=0.01",
                                  "byte-lm:width=32,hidden=64,optimizer=sgd"}) {
    auto reference = Reference::make(description, text.path, problem);
    ASSERT_TRUE(reference) << reference.message();
    const double first = reference->step();
    double last = 0;
    for (int step = 0; step < 30; ++step)
      last = reference->step();
    EXPECT_GT(first, 5);
    EXPECT_LT(last, 2.5) << description;
  }
}

TEST(Models, SameSeedSameRun) {
  const TextFile text(repeatedText());
  Problem problem = makeProgram(kSmall, {3}, 1, 2).problem;
  auto losses = [&](const std::string &description) {
    auto reference = Reference::make(description, text.path, problem);
    return std::vector<double>{reference->step(), reference->step()};
  };
  const auto first = losses(kSmall);
  EXPECT_EQ(first, losses(kSmall));
  EXPECT_NE(first, losses(std::string(kSmall) + ",seed=2"));
}

//===----------------------------------------------------------------------===//
// Wrong input
//===----------------------------------------------------------------------===//

TEST(Models, WrongTexts) {
  auto errorOf = [](const std::string &path) {
    auto factory = makeModel("byte-lm:context=4", path);
    return factory ? "" : factory.message();
  };
  const std::string missing = testing::TempDir() + "penstock-no-such-text";
  EXPECT_EQ(errorOf(missing), "text file '" + missing +
                                  "': No such file or directory; name a "
                                  "readable text file of at least 5 bytes");
  const std::string folder = testing::TempDir();
  EXPECT_EQ(errorOf(folder), "text file '" + folder +
                                 "': not a regular file; name a readable text "
                                 "file of at least 5 bytes");
  const std::string device = "/dev/zero"; // has no end
  EXPECT_EQ(errorOf(device), "text file '" + device +
                                 "': not a regular file; name a readable text "
                                 "file of at least 5 bytes");
  const TextFile shortText("1234");
  EXPECT_EQ(errorOf(shortText.path),
            "text file '" + shortText.path +
                "': has 4 bytes, but one sample takes 5, the context and the "
                "next byte; take a longer text or a smaller context");
  const TextFile longEnough("12345");
  EXPECT_EQ(errorOf(longEnough.path), "");
  if (geteuid() != 0) {
    const TextFile hidden("12345");
    std::filesystem::permissions(hidden.path, std::filesystem::perms::none);
    EXPECT_EQ(errorOf(hidden.path),
              "text file '" + hidden.path +
                  "': cannot be opened: Permission "
                  "denied; name a readable text file of at least 5 bytes");
  }
  EXPECT_EQ(makeModel("byte", longEnough.path).message(),
            "unknown model 'byte'; the known models are: byte-lm");
}

TEST(Models, WrongPrograms) {
  const TextFile text(repeatedText());
  auto factory = makeModel(kSmall, text.path);
  const Program right = makeProgram(kSmall, {2, 3, 5}, 3, 2);
  auto errorOf = [&](const Program &program) {
    auto model = (*factory)(program, 0);
    return model ? "" : model.message();
  };
  EXPECT_EQ(errorOf(right), "");
  const std::string advice =
      "; take the pipe.model that penstock-run --print-model prints";
  // Slices of samples that leave too little for rounding.
  Program sliced = right;
  setSlices(sliced.problem, 5);
  const std::string tooSmall = errorOf(sliced);
  EXPECT_NE(tooSmall.find(" for a slice, of which it rounds every tensor up to "
                          "64 bytes; make samples a multiple of 80"),
            std::string::npos)
      << tooSmall;

  Program wrong = right;
  wrong.problem.stages[2].bytes.stash = 65536;
  EXPECT_EQ(
      errorOf(wrong),
      "stage 2: the program plans 65536 bytes of stash, the model needs " +
          std::to_string(right.problem.stages[2].bytes.stash) + advice);
  wrong = right;
  wrong.problem.stages[1].bytes.output += 4;
  EXPECT_EQ(errorOf(wrong),
            "stage 1: the program plans 404 bytes of output, the model needs "
            "400" +
                advice);
  wrong = right;
  wrong.problem.stages[0].bytes.parameters = 0;
  EXPECT_EQ(
      errorOf(wrong),
      "stage 0: the program plans 0 bytes of parameters, the model needs " +
          std::to_string(right.problem.stages[0].bytes.parameters) + advice);
  wrong = right;
  wrong.problem.stages[2].bytes.output = 400; // nobody reads it
  EXPECT_EQ(errorOf(wrong), "");

  const Program one = makeProgram(kSmall, {1}, 1, 2);
  const std::string tooFew =
      "byte-lm has at least 2 layers, the embedding and the head, but the "
      "program has 1; give the schedule a pipe.model with more layers";
  EXPECT_EQ(errorOf(one), tooFew);
  EXPECT_EQ(Reference::make(kSmall, text.path, one.problem).message(), tooFew);
  EXPECT_EQ(Reference::make("gpt", text.path, right.problem).message(),
            "unknown model 'gpt'; the known models are: byte-lm");
}

} // namespace
