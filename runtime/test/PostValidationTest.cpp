//===- PostValidationTest.cpp - Optimizer steps that are validated --------===//
//
// Programs with post-validation train, bit for bit, as a loop does that looks
// at all gradients before it steps.
//
//===----------------------------------------------------------------------===//

#include "ByteLmStage.h"
#include "FamilyPrograms.h"
#include "penstock/Runtime/Models.h"
#include "penstock/Runtime/Run.h"

#include <algorithm>
#include <numeric>

using namespace penstock;
using namespace penstock::runtime;
using namespace penstock::runtime::test;
using namespace penstock::test;

namespace {

constexpr int64_t kSteps = 9;

/// A gradient of a stage that becomes infinite in a step.
struct Fault {
  int64_t step;
  int32_t stage;
};

/// A model some of whose gradients overflow, and that counts.
class FaultyModel final : public Model {
public:
  FaultyModel(std::unique_ptr<Model> model, std::vector<Fault> faults)
      : model(std::move(model)), faults(std::move(faults)) {}

  void beginStep(int64_t newStep) override {
    step = newStep;
    model->beginStep(step);
  }
  void forward(const ActionContext &c) override { model->forward(c); }
  void backward(const ActionContext &c) override {
    model->backward(c);
    spoil(c.stage);
  }
  void backwardInput(const ActionContext &c) override {
    model->backwardInput(c);
  }
  void backwardWeight(const ActionContext &c) override {
    model->backwardWeight(c);
    spoil(c.stage);
  }
  void recompute(const ActionContext &c) override { model->recompute(c); }
  void optimizerStep(int32_t) override {
    ADD_FAILURE() << "a step that cannot be undone";
  }
  std::span<float> gradients(int32_t stage) override {
    return model->gradients(stage);
  }
  double loss(int32_t mb) const override { return model->loss(mb); }

  bool canValidate() const override { return model->canValidate(); }
  double largestNorm() const override { return model->largestNorm(); }
  double squaredGradients(int32_t stage) override {
    return model->squaredGradients(stage);
  }
  void tryStep(int32_t stage) override { model->tryStep(stage); }
  void undoStep(int32_t stage) override {
    undone.push_back(stage);
    model->undoStep(stage);
  }
  void scaleGradients(int32_t stage, double factor) override {
    model->scaleGradients(stage, factor);
  }
  void clearGradients(int32_t stage) override { model->clearGradients(stage); }

  const InspectableModel &inner() const {
    return dynamic_cast<const InspectableModel &>(*model);
  }
  std::vector<int32_t> undone; ///< stages

private:
  void spoil(int32_t stage) {
    for (const Fault &fault : faults)
      if (fault.step == step && fault.stage == stage)
        model->gradients(stage)[1] = std::numeric_limits<float>::infinity();
  }

  std::unique_ptr<Model> model;
  const std::vector<Fault> faults;
  int64_t step = 0;
};

/// All parameters of a stage.
std::vector<float> parametersOf(const FaultyModel &model, int32_t stage) {
  std::vector<float> values;
  model.inner().forEachParameter(stage, [&](const Parameter &parameter) {
    values.insert(values.end(), parameter.value.begin(), parameter.value.end());
  });
  EXPECT_GT(values.size(), 50u);
  return values;
}

/// One rank after the other, one micro-batch after the other; steps when all
/// gradients are known.
struct Emulation {
  std::vector<std::vector<float>> parameters; ///< of each stage
  std::vector<double> norms;                  ///< of each step
  int clipped = 0, skipped = 0, normal = 0;
  int64_t voidSteps = 0;      ///< that a program runs
  std::vector<size_t> undone; ///< stages, that each rank undoes
};

class PostValidation : public testing::Test {
protected:
  static Program compile(const PlacedFamily &family, int32_t p, int32_t m) {
    Program program = makeOrder(p, m, family, false);
    program.problem.postValidation = true;
    EXPECT_TRUE(insertTransfers(program));
    EXPECT_TRUE(planBuffers(program));
    return program;
  }

  ModelFactory factoryOf(const std::string &description,
                         std::vector<Fault> faults,
                         std::vector<FaultyModel *> &models) const {
    auto factory = makeModel(description, text.path);
    EXPECT_TRUE(factory) << factory.message();
    return [factory = *factory, faults = std::move(faults),
            &models](const Program &program,
                     int32_t rank) -> Result<std::unique_ptr<Model>> {
      auto inner = factory(program, rank);
      if (!inner)
        return inner;
      auto model = std::make_unique<FaultyModel>(std::move(*inner), faults);
      models.resize(program.ranks.size());
      models[rank] = model.get();
      return std::unique_ptr<Model>(std::move(model));
    };
  }

  Emulation emulate(const Program &program, const std::string &description,
                    const std::vector<Fault> &faults) const {
    const Problem &problem = program.problem;
    const int32_t S = problem.numStages(), p = problem.numRanks;
    std::vector<FaultyModel *> models;
    const ModelFactory factory = factoryOf(description, faults, models);
    std::vector<std::unique_ptr<Model>> owners;
    for (int32_t r = 0; r < p; ++r)
      owners.push_back(std::move(*factory(program, r)));

    using Buffer = AlignedArray<float>;
    std::vector<Buffer> outputs, stashes, gradients;
    for (const Stage &stage : problem.stages) {
      outputs.push_back(makeAlignedArray<float>(stage.bytes.output));
      stashes.push_back(makeAlignedArray<float>(stage.bytes.stash));
      gradients.push_back(makeAlignedArray<float>(stage.bytes.output + 4096));
    }
    auto bytes = [](const Buffer &buffer) {
      return reinterpret_cast<std::byte *>(buffer.get());
    };
    auto contextOf = [&](int32_t s, int32_t mb, bool forward) {
      ActionContext context;
      context.stage = s;
      context.microbatch = mb;
      context.weight = problem.weightOf(mb);
      context.input = s > 0 ? bytes(outputs[s - 1]) : nullptr;
      context.stash = bytes(stashes[s]);
      if (forward) {
        context.output = s + 1 < S ? bytes(outputs[s]) : nullptr;
      } else {
        context.gradient = s + 1 < S ? bytes(gradients[s + 1]) : nullptr;
        context.output = s > 0 ? bytes(gradients[s]) : nullptr;
      }
      return context;
    };

    Emulation result;
    result.undone.resize(p);
    for (int64_t step = 0; step < kSteps; ++step) {
      for (FaultyModel *model : models)
        model->beginStep(step);
      for (int32_t mb = 0; mb < problem.numMicrobatches; ++mb) {
        for (int32_t s = 0; s < S; ++s)
          models[problem.placement[s]]->forward(contextOf(s, mb, true));
        for (int32_t s = S; s-- > 0;)
          models[problem.placement[s]]->backward(contextOf(s, mb, false));
      }
      double squares = 0;
      const double limit = models[0]->largestNorm();
      std::vector<bool> tries(p);
      for (int32_t r = 0; r < p; ++r) {
        for (int32_t s = 0; s < S; ++s)
          if (problem.placement[s] == r)
            squares += models[r]->squaredGradients(s);
        tries[r] = std::isfinite(squares) && std::sqrt(squares) <= limit;
      }
      const double norm = std::sqrt(squares);
      result.norms.push_back(norm);
      const bool overflows = !std::isfinite(squares),
                 clips = !overflows && norm > limit;
      for (int32_t s = 0; s < S; ++s) {
        const int32_t r = problem.placement[s];
        if (clips)
          models[r]->scaleGradients(s, limit / norm);
        if (!overflows)
          models[r]->tryStep(s);
        models[r]->clearGradients(s);
        result.undone[r] += tries[r] && (clips || overflows);
      }
      result.clipped += clips;
      result.skipped += overflows;
      result.normal += !clips && !overflows;
      // After the last step nothing runs that could be void.
      result.voidSteps +=
          step + 1 < kSteps && (clips || (overflows && tries[0]));
    }
    for (int32_t s = 0; s < S; ++s)
      result.parameters.push_back(
          parametersOf(*models[problem.placement[s]], s));
    return result;
  }

  /// Runs the program and compares.
  void check(const Program &program, const std::string &description,
             const std::vector<Fault> &faults, const Emulation &expected) {
    std::vector<FaultyModel *> models;
    std::vector<int64_t> steps;
    RunOptions options;
    options.steps = kSteps;
    options.onStep = [&](const StepReport &step) {
      steps.push_back(step.step);
    };
    options.onFinished = [&](std::span<const Model *const>) {
      for (int32_t s = 0; s < program.problem.numStages(); ++s)
        EXPECT_EQ(parametersOf(*models[program.problem.placement[s]], s),
                  expected.parameters[s])
            << "stage " << s;
      for (size_t r = 0; r < models.size(); ++r)
        EXPECT_EQ(models[r]->undone.size(), expected.undone[r]) << "rank " << r;
    };
    const RunReport report =
        runProgram(program, factoryOf(description, faults, models), options);
    ASSERT_TRUE(report) << report.error.message;
    EXPECT_EQ(report.steps, kSteps);
    EXPECT_EQ(report.voidSteps, expected.voidSteps);
    std::vector<int64_t> all(kSteps);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(steps, all); // each reported once
  }

  const SampleText text;
};

using Case = std::tuple<PlacedFamily, int32_t, const char *>;
class ValidatedTraining : public PostValidation,
                          public testing::WithParamInterface<Case> {};

} // namespace

TEST_P(ValidatedTraining, IsThatOfALoop) {
  const auto &[family, p, optimizer] = GetParam();
  const Program program = compile(family, p, 2 * p);
  const std::string description =
      kModel + ",optimizer=" + std::string(optimizer);
  const int32_t last = program.problem.numStages() - 1;
  const std::vector<Fault> none, some = {{0, 0}, {3, last}, {5, last / 2},
                                         {6, 0}, {7, last}, {kSteps - 1, last}};

  Emulation expected = emulate(program, description, none);
  EXPECT_EQ(expected.normal, kSteps);
  EXPECT_EQ(expected.voidSteps, 0);
  check(program, description, none, expected);

  // A limit between the norms.
  std::vector<double> norms = expected.norms;
  std::sort(norms.begin(), norms.end());
  for (double limit : {norms[kSteps / 2], norms[1]}) {
    const std::string clipping = description + ",clip=" + std::to_string(limit);
    expected = emulate(program, clipping, none);
    EXPECT_GT(expected.clipped, 0);
    EXPECT_GT(expected.voidSteps, 0);
    check(program, clipping, none, expected);
    expected = emulate(program, clipping, some);
    EXPECT_GT(expected.clipped, 0);
    EXPECT_EQ(expected.skipped, 6);
    check(program, clipping, some, expected);
  }
  expected = emulate(program, description, some);
  EXPECT_EQ(expected.normal, kSteps - 6);
  // One rank alone knows all before it steps.
  EXPECT_EQ(expected.undone[0] > 0, p > 1);
  check(program, description, some, expected);
}

INSTANTIATE_TEST_SUITE_P(
    Families, ValidatedTraining,
    testing::Combine(testing::Values(PlacedFamily{"zb_h1", zbH1},
                                     PlacedFamily{"zb_h2", zbH2},
                                     PlacedFamily{"interleaved_zb",
                                                  [](const Problem &problem) {
                                                    return interleavedZB(
                                                        problem);
                                                  },
                                                  2},
                                     PlacedFamily{"zb_v", zbV, 2, Shape::Snake},
                                     kOneForwardOneBackward),
                     testing::Values(1, 2, 4), testing::Values("adam", "sgd")),
    [](const testing::TestParamInfo<Case> &info) {
      return std::string(std::get<0>(info.param).name) + "_p" +
             std::to_string(std::get<1>(info.param)) + "_" +
             std::get<2>(info.param);
    });

/// Of a stage with two copies the gradients count once, and both step alike.
TEST_F(PostValidation, CopiesCountOnce) {
  const Program program =
      compile({"dualpipe", dualPipe, 1, Shape::BothWays}, 4, 8);
  const Program single = compile(kOneForwardOneBackward, 4, 8);
  // The sums of both differ by rounding only, so a limit far from the norm
  // clips in neither or in both.
  const double norm =
      emulate(single, kModel + ",optimizer=sgd", {}).norms.front();
  for (double factor : {0.9, 1.1}) {
    std::vector<FaultyModel *> models;
    RunOptions options;
    options.steps = 2; // the second one voided by the first one
    options.onFinished = [&](std::span<const Model *const>) {
      for (int32_t s = 0; s < 4; ++s)
        EXPECT_EQ(parametersOf(*models[s], s), parametersOf(*models[3 - s], s));
    };
    const RunReport report =
        runProgram(program,
                   factoryOf(kModel + ",optimizer=sgd,clip=" +
                                 std::to_string(factor * norm),
                             {}, models),
                   options);
    ASSERT_TRUE(report) << report.error.message;
    EXPECT_EQ(report.voidSteps, factor < 1);
  }
}

TEST_F(PostValidation, AUndoneStepLeavesNoTrace) {
  const ByteLmConfig config = *ByteLmConfig::parse(kModel);
  const Corpus corpus = *Corpus::read(text.path, config.context);
  Stage range;
  range.numLayers = 3;
  ByteLmStage<float> stage(config, corpus, range, 3),
      twin(config, corpus, range, 3);
  stage.keepUndo();
  auto setGradients = [](ByteLmStage<float> &of, float value) {
    for (float &gradient : of.gradientArray())
      gradient = value += 0.25f;
  };
  auto equal = [&] {
    return std::ranges::equal(stage.parameterArray(), twin.parameterArray());
  };
  setGradients(stage, 1);
  stage.tryStep();
  EXPECT_FALSE(equal());
  stage.undoStep();
  EXPECT_TRUE(equal());
  stage.clearGradients();
  EXPECT_EQ(stage.squaredGradients(), 0);
  // Moments and the number of updates are those of before, too.
  for (float value : {3.0f, -5.0f}) {
    setGradients(stage, value);
    setGradients(twin, value);
    stage.update();
    twin.update();
    EXPECT_TRUE(equal());
  }
}

TEST_F(PostValidation, GradientsAreCheckedWithoutClipping) {
  const Program program = compile({"zb_h1", zbH1}, 2, 4);
  RunOptions options;
  options.steps = 3;
  GradientCheckReport report =
      checkGradients(program, kModel, text.path, options);
  ASSERT_FALSE(report.error) << report.error.message;
  EXPECT_TRUE(report.check.equal()) << report.check.describe();
  report = checkGradients(program, kModel + ",clip=1", text.path, options);
  EXPECT_EQ(report.error.kind, ErrorKind::NotSupported);
  EXPECT_EQ(report.error.message,
            "the model clips its gradients by their norm, which the "
            "unpipelined model adds up in another order; check the gradients "
            "without clip");
}

TEST_F(PostValidation, ClippingNeedsIt) {
  Program program = compile(kOneForwardOneBackward, 2, 4);
  for (RankProgram &rank : program.ranks) {
    std::erase_if(rank.instructions, [](const Instruction &inst) {
      return usesState(inst.op) || movesState(inst);
    });
    rank.waits.clear();
    for (Instruction &inst : rank.instructions)
      inst.firstWait = inst.numWaits = 0;
  }
  program.problem.postValidation = false;
  ASSERT_TRUE(planBuffers(program));
  auto model = (*makeModel(kModel + ",clip=1", text.path))(program, 0);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.message(),
            "byte-lm can clip only where the norm of all gradients is known; "
            "add post_validation to the schedule, or leave clip out");
}

TEST_F(PostValidation, NeedsAModelThatCanUndo) {
  const Program program = compile(kOneForwardOneBackward, 2, 4);
  EXPECT_TRUE(runProgram(program, makeNullModel()));

  class Plain final : public Model {
    void beginStep(int64_t) override {}
    void forward(const ActionContext &) override {}
    void backward(const ActionContext &) override {}
    void backwardInput(const ActionContext &) override {}
    void backwardWeight(const ActionContext &) override {}
    void recompute(const ActionContext &) override {}
    void optimizerStep(int32_t) override {}
    double loss(int32_t) const override { return 0; }
  };
  const RunReport report = runProgram(
      program, [](const Program &, int32_t) -> Result<std::unique_ptr<Model>> {
        return std::unique_ptr<Model>(std::make_unique<Plain>());
      });
  EXPECT_EQ(report.error.kind, ErrorKind::NotSupported);
  EXPECT_EQ(report.error.message,
            "rank 0: the program has post-validation, but the model cannot "
            "undo its optimizer steps; implement Model::canValidate and what "
            "belongs to it, or compile without post_validation");
}

TEST_F(PostValidation, RefusesStatesOfAnotherSize) {
  Program program = compile(kOneForwardOneBackward, 2, 4);
  auto &list = program.ranks[0].instructions;
  const auto state = std::find_if(list.begin(), list.end(), movesState);
  state->bytes = 1 << 20;
  RunOptions options;
  options.force = true;
  std::vector<FaultyModel *> models;
  const RunReport report =
      runProgram(program, factoryOf(kModel, {}, models), options);
  EXPECT_EQ(report.error.kind, ErrorKind::InvalidProgram);
  EXPECT_NE(report.error.message.find(
                ": moves 1048576 bytes, but a state has 16; make them equal"),
            std::string::npos)
      << report.error.message;
}

TEST_F(PostValidation, RefusesValidationsInGroups) {
  Program program = compile(kOneForwardOneBackward, 3, 4);
  // Rank 2 sends its gradient and the state of the batch before together.
  ASSERT_TRUE(program.isPlanned());
  auto &list = program.ranks[2].instructions;
  const auto state = std::find_if(list.begin(), list.end(), movesState);
  ASSERT_EQ(state->op, Op::Send);
  Instruction joined = *state;
  auto next = std::find_if(state + 1, list.end(), [](const Instruction &inst) {
    return isTransfer(inst.op) && !inst.joined;
  });
  joined.joined = true;
  joined.numWaits = joined.firstWait = 0;
  list.insert(next + 1, joined);
  RunOptions options;
  options.force = true;
  std::vector<FaultyModel *> models;
  const RunReport report =
      runProgram(program, factoryOf(kModel, {}, models), options);
  EXPECT_EQ(report.error.kind, ErrorKind::NotSupported);
  EXPECT_NE(report.error.message.find(
                ": is in a group with a state, but states travel alone where "
                "the last step is validated; take it out"),
            std::string::npos)
      << report.error.message;
}
