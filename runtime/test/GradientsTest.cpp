//===- GradientsTest.cpp - Compiled programs train as without a pipeline --===//

#include "ByteLm.h"
#include "ByteLmStage.h"

#include "FamilyPrograms.h"
#include "penstock/Analysis/Verify.h"
#include "penstock/Lowering/Lowering.h"
#include "penstock/Runtime/Models.h"
#include "penstock/Schedule/Schedule.h"

#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <map>

using namespace penstock;
using namespace penstock::runtime;
using namespace penstock::runtime::test;
using namespace penstock::test;

namespace {

/// Numbers of ranks and micro-batches, schedule, whether B is split.
using Case = std::tuple<int32_t, int32_t, PlacedFamily, bool>;

class Gradients : public testing::TestWithParam<Case> {
protected:
  using Change = std::function<void(Program &order)>;

  static Program compile(
      const Case &shape, std::vector<double> weights = {},
      const std::string &model = kModel,
      const Change &change = [](Program &) {}) {
    const auto &[p, m, family, split] = shape;
    Program program = makeOrder(p, m, family, split, std::move(weights), model);
    change(program);
    EXPECT_TRUE(insertTransfers(program));
    EXPECT_TRUE(planBuffers(program));
    return program;
  }

  GradientCheckReport check(const Program &program, bool force = false,
                            const std::string &model = kModel) const {
    RunOptions run;
    run.steps = 2;
    run.force = force;
    return checkGradients(program, model, text, run);
  }

  const SampleText file;
  const std::string &text = file.path;
};

TEST_P(Gradients, AreBitwiseThoseOfTheUnpipelinedModel) {
  const GradientCheckReport report = check(compile(GetParam()));
  ASSERT_FALSE(report.error) << report.error.message;
  EXPECT_TRUE(report.check.exact);
  EXPECT_TRUE(report.check.equal()) << report.check.describe();
  EXPECT_EQ(report.check.describe(),
            "all " + std::to_string(report.check.numValues) +
                " gradients and parameters are bitwise equal to the "
                "unpipelined model's after 2 steps");
  EXPECT_GT(report.check.numValues, 1000u);
}

std::string nameOf(const testing::TestParamInfo<Case> &info) {
  const auto &[p, m, family, split] = info.param;
  return "p" + std::to_string(p) + "_m" + std::to_string(m) + "_" +
         family.name + (split ? "_split" : "_fused");
}

INSTANTIATE_TEST_SUITE_P(
    Compiled, Gradients,
    testing::Combine(testing::Values(1, 2, 3, 4), testing::Values(1, 2, 3, 8),
                     testing::Values(kNaive, kGPipe, kOneForwardOneBackward),
                     testing::Bool()),
    nameOf);

INSTANTIATE_TEST_SUITE_P(InOrder, Gradients,
                         testing::Combine(testing::Values(2, 4),
                                          testing::Values(1, 3, 8),
                                          testing::ValuesIn(kInOrder),
                                          testing::Values(false)),
                         nameOf);

INSTANTIATE_TEST_SUITE_P(InAnotherOrder, Gradients,
                         testing::Combine(testing::Values(2, 4),
                                          testing::Values(1, 3, 8, 16),
                                          testing::ValuesIn(kInAnotherOrder),
                                          testing::Values(false)),
                         nameOf);

INSTANTIATE_TEST_SUITE_P(InHostMemory, Gradients,
                         testing::Combine(testing::Values(1, 2, 4),
                                          testing::Values(3, 8),
                                          testing::ValuesIn(kInHostMemory),
                                          testing::Values(false)),
                         nameOf);

/// With the width of the model of examples/byte_lm.mlir, where sums of many
/// terms in another order differ by more than the last bits.
class WideGradients : public Gradients {};

TEST_P(WideGradients, AreBitwiseThoseOfTheUnpipelinedModel) {
  const std::string model = "byte-lm:samples=16";
  const GradientCheckReport report =
      check(compile(GetParam(), {}, model), false, model);
  ASSERT_FALSE(report.error) << report.error.message;
  EXPECT_TRUE(report.check.exact);
  EXPECT_TRUE(report.check.equal()) << report.check.describe();
}

INSTANTIATE_TEST_SUITE_P(InAnotherOrder, WideGradients,
                         testing::Combine(testing::Values(4),
                                          testing::Values(16, 32),
                                          testing::ValuesIn(kInAnotherOrder),
                                          testing::Values(false)),
                         nameOf);

/// The reference takes the order of its sums from the program, but not what
/// it adds.
class WrongSums : public Gradients {
protected:
  void expectFound(const Change &change) const {
    Program wrong = compile(GetParam(), {}, kModel, change);
    numberRankSets(wrong);
    ASSERT_FALSE(verify(wrong).accepted());
    const GradientCheckReport report = check(wrong, true);
    ASSERT_FALSE(report.error) << report.error.message;
    EXPECT_FALSE(report.check.agrees());
    EXPECT_GT(report.check.maxRelativeDifference, 1e-3);
  }
  /// The last action with a weight gradient of a rank that is not in a pair.
  static size_t lastOf(const RankProgram &rank) {
    const auto &insts = rank.instructions;
    for (size_t i = insts.size() - 1; i-- > 0;)
      if ((insts[i].op == Op::Backward || insts[i].op == Op::BackwardWeight) &&
          !insts[i].joined && !insts[i + 1].joined)
        return i;
    ADD_FAILURE();
    return 0;
  }
};

TEST_P(WrongSums, MicrobatchesThatAreLeftOutAreFound) {
  expectFound([](Program &order) {
    auto &insts = order.ranks[1].instructions;
    const size_t i = lastOf(order.ranks[1]);
    if (insts[i].op == Op::Backward)
      insts[i].op = Op::BackwardInput;
    else
      insts.erase(insts.begin() + static_cast<std::ptrdiff_t>(i));
  });
}

TEST_P(WrongSums, MicrobatchesThatCountTwiceAreFound) {
  expectFound([](Program &order) {
    auto &insts = order.ranks[1].instructions;
    const size_t i = lastOf(order.ranks[1]);
    Instruction again = insts[i];
    again.op = Op::BackwardWeight;
    insts.insert(insts.begin() + static_cast<std::ptrdiff_t>(i) + 1, again);
  });
}

INSTANTIATE_TEST_SUITE_P(Families, WrongSums,
                         testing::Combine(testing::Values(2, 4),
                                          testing::Values(8),
                                          testing::ValuesIn(kInAnotherOrder),
                                          testing::Values(false)),
                         nameOf);

INSTANTIATE_TEST_SUITE_P(
    Compiled, WrongSums,
    testing::Combine(testing::Values(2), testing::Values(4),
                     testing::Values(kOneForwardOneBackward), testing::Bool()),
    nameOf);

class CopiesOfStages : public Gradients {};

TEST_P(CopiesOfStages, AreAllCompared) {
  const auto &[p, m, family, split] = GetParam();
  const GradientCheckReport two = check(compile(GetParam()));
  const GradientCheckReport one =
      check(compile({p, m, kOneForwardOneBackward, split}));
  EXPECT_EQ(two.check.numValues, 2 * one.check.numValues);
}

TEST_P(CopiesOfStages, HaveOnlyAPartOfTheGradientsWithoutTheirSum) {
  const auto &[p, m, family, split] = GetParam();
  Program parts = makeOrder(p, m, family, split);
  ASSERT_TRUE(insertTransfers(parts));
  for (RankProgram &rank : parts.ranks)
    std::erase_if(rank.instructions, [](const Instruction &inst) {
      return inst.op == Op::AllReduce;
    });
  ASSERT_TRUE(planBuffers(parts));
  numberRankSets(parts);
  ASSERT_FALSE(verify(parts).accepted());
  const GradientCheckReport wrong = check(parts, true);
  ASSERT_FALSE(wrong.error) << wrong.error.message;
  EXPECT_FALSE(wrong.check.agrees());
}

INSTANTIATE_TEST_SUITE_P(
    Families, CopiesOfStages,
    testing::Combine(testing::Values(2, 4), testing::Values(1, 3, 8),
                     testing::ValuesIn(kInAnotherOrder + 3,
                                       std::end(kInAnotherOrder)),
                     testing::Values(false)),
    nameOf);

//===----------------------------------------------------------------------===//
// References
//===----------------------------------------------------------------------===//

using References = Gradients;

/// Values of the gradients that differ, and by how much of the largest one of
/// their parameter.
std::pair<size_t, double> compareReferences(const Reference &a,
                                            const Reference &b) {
  std::vector<std::vector<float>> expected;
  a.forEachParameter([&](const Parameter &parameter) {
    expected.emplace_back(parameter.gradient.begin(), parameter.gradient.end());
  });
  size_t at = 0, numDifferent = 0;
  double most = 0;
  b.forEachParameter([&](const Parameter &parameter) {
    const std::vector<float> &values = expected[at++];
    double largest = 0, difference = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(double(values[i])));
      difference = std::max(
          difference, std::abs(double(values[i]) - parameter.gradient[i]));
      numDifferent += values[i] != parameter.gradient[i];
    }
    most = std::max(most, difference / largest);
  });
  EXPECT_EQ(at, expected.size());
  return {numDifferent, most};
}

// So it is the order that differs, and not what is added.
TEST_P(References, DifferByRoundingFromAscendingSums) {
  const Program program = compile(GetParam());
  auto ascending = Reference::make(kModel, text, program.problem),
       asProgram = Reference::make(kModel, text, program);
  ASSERT_TRUE(ascending && asProgram);
  EXPECT_EQ(ascending->step(), asProgram->step());
  const auto [numDifferent, most] = compareReferences(*ascending, *asProgram);
  EXPECT_GT(numDifferent, 0u);
  EXPECT_LT(most, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Families, References,
                         testing::Combine(testing::Values(4),
                                          testing::Values(8),
                                          testing::Values(kInAnotherOrder[0],
                                                          kInAnotherOrder[1],
                                                          kSeq1F1B),
                                          testing::Values(false)),
                         nameOf);

// The slices of a micro-batch add up to it.
TEST(SlicedReference, IsTheWholeOneButForRounding) {
  const SampleText text;
  Problem whole = makeOrder(2, 3, kNaive, false).problem;
  Problem sliced = makeOrder(2, 3, kSeq1F1B, false).problem;
  ASSERT_EQ(sliced.numMicrobatches, 6);
  auto a = Reference::make(kModel, text.path, whole),
       b = Reference::make(kModel, text.path, sliced);
  ASSERT_TRUE(a && b);
  EXPECT_NEAR(a->step(), b->step(), 1e-6);
  EXPECT_LT(compareReferences(*a, *b).second, 1e-5);
}

//===----------------------------------------------------------------------===//
// Updates while micro-batches are in the pipe
//===----------------------------------------------------------------------===//

/// The stages one micro-batch after the other, in one thread and without a
/// program. Of every stage all versions of its weights are kept; micro-batch k
/// takes the one after max(0, k - (p - 1 - s)) / group updates.
class Staleness {
public:
  Staleness(const Program &program, const ByteLmSource &source, int32_t group)
      : source(source), group(group),
        numMicrobatches(program.problem.numMicrobatches) {
    const Problem &problem = program.problem;
    const Stage &end = problem.stages.back();
    for (const Stage &stage : problem.stages) {
      stages.push_back(std::make_unique<ByteLmStage<float>>(
          source.config, source.corpus, stage, end.firstLayer + end.numLayers));
      stashes.push_back(makeAlignedArray<float>(stage.bytes.stash / 4));
      const int64_t size = source.config.samples * source.config.width;
      activations.push_back(makeAlignedArray<float>(size));
      gradients.push_back(makeAlignedArray<float>(size));
    }
  }

  /// One run of the program: the pipe is empty before and after it.
  void run(int64_t step) {
    const size_t p = stages.size();
    std::vector<std::vector<std::vector<float>>> history(p);
    for (size_t s = 0; s < p; ++s)
      history[s].push_back(weightsOf(s));
    for (int32_t k = 0; k < numMicrobatches; ++k) {
      auto useTheirs = [&](size_t s) {
        const auto ahead = static_cast<int32_t>(p - 1 - s);
        std::ranges::copy(history[s][std::max(0, k - ahead) / group],
                          stages[s]->parameterArray().begin());
      };
      for (size_t s = 0; s < p; ++s) {
        useTheirs(s);
        stages[s]->forward(context(s, k, true), step);
      }
      for (size_t s = p; s-- > 0;) {
        useTheirs(s);
        stages[s]->backwardInput(context(s, k, false), step);
        stages[s]->backwardWeight(context(s, k, false), step);
        std::ranges::copy(history[s].back(),
                          stages[s]->parameterArray().begin());
        if ((k + 1) % group != 0 && k + 1 < numMicrobatches)
          continue;
        const auto gradient = stages[s]->gradientArray();
        lastGradients[s].assign(gradient.begin(), gradient.end());
        stages[s]->update();
        history[s].push_back(weightsOf(s));
      }
    }
  }

  std::vector<float> weightsOf(size_t s) {
    const auto values = stages[s]->parameterArray();
    return {values.begin(), values.end()};
  }
  std::map<size_t, std::vector<float>> lastGradients;
  std::vector<std::unique_ptr<ByteLmStage<float>>> stages;

private:
  ActionContext context(size_t s, int32_t microbatch, bool forward) {
    const bool first = s == 0, last = s + 1 == stages.size();
    auto bytes = [](auto &array) {
      return reinterpret_cast<std::byte *>(array.get());
    };
    ActionContext context;
    context.stage = static_cast<int32_t>(s);
    context.microbatch = microbatch;
    context.weight = 1.0 / numMicrobatches;
    context.input = first ? nullptr : bytes(activations[s - 1]);
    context.gradient = last ? nullptr : bytes(gradients[s + 1]);
    if (forward)
      context.output = last ? nullptr : bytes(activations[s]);
    else
      context.output = first ? nullptr : bytes(gradients[s]);
    context.stash = bytes(stashes[s]);
    return context;
  }

  const ByteLmSource &source;
  const int32_t group, numMicrobatches;
  std::vector<AlignedArray<float>> stashes, activations, gradients;
};

class StaleGradients : public Gradients {
protected:
  /// Weights and last gradients that are not bitwise those of the emulation.
  size_t countDifferences(const Program &program, int32_t group) {
    auto source = ByteLmSource::make(kModel, text);
    EXPECT_TRUE(source);
    Staleness expected(program, **source, group);
    auto factory = makeModel(kModel, text);
    EXPECT_TRUE(factory);
    size_t compared = 0, different = 0;
    RunOptions run;
    run.steps = 2;
    run.onFinished = [&](std::span<const Model *const> models) {
      for (int64_t step = 0; step < run.steps; ++step)
        expected.run(step);
      for (int32_t s = 0; s < program.problem.numStages(); ++s) {
        const std::vector<float> weights = expected.weightsOf(s);
        const std::vector<float> &gradients = expected.lastGradients[s];
        size_t offset = 0;
        dynamic_cast<const InspectableModel &>(
            *models[program.problem.placement[s]])
            .forEachParameter(s, [&](const Parameter &actual) {
              // As the stage lays them out.
              size_t at = 0, number = 0;
              expected.stages[s]->forEachParameter(
                  [&](int32_t, const TensorShape &, int64_t begin) {
                    if (number++ == offset)
                      at = static_cast<size_t>(begin);
                  });
              ++offset;
              for (size_t i = 0; i < actual.value.size(); ++i) {
                ++compared;
                different += std::bit_cast<uint32_t>(actual.value[i]) !=
                                 std::bit_cast<uint32_t>(weights[at + i]) ||
                             std::bit_cast<uint32_t>(actual.gradient[i]) !=
                                 std::bit_cast<uint32_t>(gradients[at + i]);
              }
            });
      }
    };
    const ModelFactory capturing = [&](const Program &p, int32_t rank) {
      auto model = (*factory)(p, rank);
      if (model)
        dynamic_cast<InspectableModel &>(**model).captureGradients();
      return model;
    };
    const RunReport report = runProgram(program, capturing, run);
    EXPECT_FALSE(report.error) << report.error.message;
    EXPECT_GT(compared, 1000u);
    return different;
  }
};

TEST_P(StaleGradients, AreBitwiseThoseOfTheSameStaleness) {
  const auto &[p, m, family, split] = GetParam();
  const Program program = compile(GetParam());
  ASSERT_TRUE(verify(program).accepted());
  const int32_t group = family.make == kPipeDream.make ? 1 : p;
  EXPECT_EQ(countDifferences(program, group), 0u);
  // Where somebody takes old weights, another staleness is another training.
  if (p > 1 && m > p) {
    EXPECT_GT(countDifferences(program, 2 * m), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Compiled, StaleGradients,
    testing::Combine(testing::Values(1, 2, 4), testing::Values(1, 3, 9),
                     testing::Values(kPipeDream, kPipeDream2BW),
                     testing::Bool()),
    nameOf);

using GradientsOf = Gradients;

TEST_P(GradientsOf, CannotBeCheckedWithUpdatesOnTheWay) {
  const GradientCheckReport report = check(compile({2, 4, kPipeDream, false}));
  EXPECT_EQ(report.error.kind, ErrorKind::NotSupported);
  EXPECT_EQ(report.error.message,
            "the program updates while micro-batches are in the pipe (`step 0 "
            "mb 0`), which no unpipelined model does; check the gradients of a "
            "schedule with a flush");
}

TEST_P(GradientsOf, SlicesShareTheSamples) {
  // Four samples.
  Program program = compile({2, 1, kOneForwardOneBackward, false});
  program.problem.slices = 3;
  program.problem.numMicrobatches = 3;
  const GradientCheckReport report = check(program, true);
  EXPECT_EQ(report.error.kind, ErrorKind::BadModel);
  EXPECT_NE(report.error.message.find(
                "byte-lm cannot cut its 4 samples of a micro-batch into 3 "
                "slices; give a multiple, samples=6"),
            std::string::npos)
      << report.error.message;
}

TEST_P(GradientsOf, WrongStepsDiffer) {
  auto expectDifference = [&](const Program &program) {
    const GradientCheckReport report = check(program, true);
    ASSERT_FALSE(report.error) << report.error.message;
    EXPECT_FALSE(report.check.equal());
  };
  const Program right = compile(GetParam());
  for (size_t r = 0; r < right.ranks.size(); ++r) {
    Program wrong = right;
    auto &insts = wrong.ranks[r].instructions;
    ASSERT_EQ(insts.back().op, Op::Step);
    insts.push_back(insts.back());
    insts.back().numWaits = 0;
    expectDifference(wrong); // twice
    insts.resize(insts.size() - 2);
    expectDifference(wrong); // not at all
  }
}

TEST_P(GradientsOf, MicrobatchesWithWeights) {
  // Of unequal numbers of tokens, pytorch/torchtitan#2972.
  Program program = compile(GetParam(), {0.375, 0.625});
  GradientCheckReport report = check(program);
  ASSERT_FALSE(report.error) << report.error.message;
  EXPECT_TRUE(report.check.equal()) << report.check.describe();
  // They count: a model that goes by others differs.
  auto equalWeights = makeModel(kModel, text);
  auto reference = Reference::make(kModel, text, program.problem);
  RunOptions run;
  run.onFinished = [&](std::span<const Model *const> models) {
    reference->step();
    auto compared = compareGradients(program.problem, models, *reference);
    ASSERT_TRUE(compared) << compared.message();
    EXPECT_FALSE(compared->equal());
  };
  program.problem.weights.clear();
  const RunReport ended = runProgram(program, *equalWeights, run);
  EXPECT_TRUE(ended) << ended.error.message;
}

TEST_P(GradientsOf, WhatDoesNotRunFailsAsTheRunDoes) {
  Program program = compile(GetParam());
  program.ranks[0].instructions.pop_back();
  program.problem.stages[0].bytes.parameters += 4;
  EXPECT_EQ(check(program, true).error.kind, ErrorKind::BadModel);
  program.ranks.pop_back();
  EXPECT_EQ(check(program).error.kind, ErrorKind::InvalidProgram);
  RunOptions run;
  EXPECT_EQ(checkGradients(program, "gpt", text, run).error.kind,
            ErrorKind::BadModel);
}

INSTANTIATE_TEST_SUITE_P(Compiled, GradientsOf,
                         testing::Values(Case{2, 2, kOneForwardOneBackward,
                                              false}),
                         nameOf);

} // namespace
