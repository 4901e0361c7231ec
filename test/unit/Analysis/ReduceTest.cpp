//===- ReduceTest.cpp - Minimal programs with the same fault --------------===//

#include "Testing/Build.h"
#include "Testing/RandomProgram.h"

#include "penstock/Analysis/Certify.h"
#include "penstock/Analysis/Reduce.h"
#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"

#include <gtest/gtest.h>

using namespace penstock;
using namespace penstock::test;

namespace {

/// Interleaved 1F1B as Megatron-LM issues it: p ranks, v chunks a rank, micro-
/// batches in groups of g. An m that leaves a remainder below p deadlocks.
Program interleaved(int32_t p, int32_t v, int32_t m, int32_t g) {
  Program order = makeProgram(p, m, p * v);
  struct Unit {
    int32_t mb, chunk;
  };
  std::vector<Unit> table;
  for (int32_t first = 0; first < m; first += g)
    for (int32_t chunk = 0; chunk < v; ++chunk)
      for (int32_t mb = first; mb < std::min(m, first + g); ++mb)
        table.push_back({mb, chunk});
  const auto total = static_cast<int32_t>(table.size());
  for (int32_t r = 0; r < p; ++r) {
    RankBuilder rank(order, r);
    auto forward = [&](const Unit &unit) {
      rank.f(unit.chunk * p + r, unit.mb);
    };
    auto backward = [&](const Unit &unit) {
      rank.b((v - 1 - unit.chunk) * p + r, unit.mb);
    };
    const int32_t warmup = std::min(total, 2 * (p - 1 - r) + (v - 1) * g);
    for (int32_t k = 0; k < warmup; ++k)
      forward(table[k]);
    for (int32_t k = 0; k < total; ++k) {
      if (warmup + k < total)
        forward(table[warmup + k]);
      backward(table[k]);
    }
  }
  return order;
}

/// Expects that what is left has the same fault.
Reduction expectReduced(const Program &program,
                        const ReduceOptions &options = {}) {
  Result<Reduction> reduction = reduce(program, options);
  EXPECT_TRUE(reduction) << reduction.message();
  if (!reduction)
    return {};
  const Program &small = reduction->program;
  EXPECT_TRUE(wellFormed(small)) << wellFormed(small).message();
  VerifyOptions verifyOptions;
  verifyOptions.order = options.order;
  const Verdict before = verify(program, verifyOptions);
  const Verdict after = verify(small, verifyOptions);
  EXPECT_FALSE(after.accepted());
  EXPECT_TRUE(sameVerdict(before, after, options.rule));
  EXPECT_LE(small.numInstructions(), program.numInstructions());
  // 1-minimal: no single part can go.
  for (unsigned part = 0; part < kNumParts; ++part)
    for (size_t n = countParts(small, Part(part)), k = 0; k < n; ++k) {
      const Program less = dropParts(small, Part(part), k, 1);
      if (wellFormed(less)) {
        EXPECT_FALSE(
            sameVerdict(before, verify(less, verifyOptions), options.rule))
            << "part " << part << ", " << k << " of " << n;
      }
    }
  return std::move(*reduction);
}

TEST(Reduce, InterleavedOrderThatDeadlocks) {
  const Program order = interleaved(8, 2, 20, 8);
  EXPECT_EQ(order.numInstructions(), 640u);
  ReduceOptions options;
  options.order = true;
  const Reduction reduction = expectReduced(order, options);
  EXPECT_EQ(dump(reduction.program),
            R"(pipe.schedule @test ranks(2) microbatches(2) {
  stage 0 on 1
  stage 1 on 0
  rank 0 {
    forward 1 mb 0
    forward 1 mb 1
    backward 1 mb 0
    backward 1 mb 1
  }
  rank 1 {
    forward 0 mb 0
    backward 0 mb 0
    forward 0 mb 1
    backward 0 mb 1
  }
}
)");
  VerifyOptions asOrder;
  asOrder.order = true;
  EXPECT_TRUE(verify(interleaved(8, 2, 20, 10), asOrder).accepted());
}

TEST(Reduce, MicrobatchesGoWithAllTheirSlices) {
  Program order = makeProgram(1, 3);
  setSlices(order.problem, 2);
  RankBuilder rank(order, 0);
  for (int32_t mb = 0; mb < 6; ++mb)
    rank.f(0, mb);
  for (int32_t mb = 6; mb-- > 0;)
    rank.b(0, mb);
  ASSERT_EQ(countParts(order, Part::Microbatches), 3u);
  const Program less = dropParts(order, Part::Microbatches, 1, 1);
  EXPECT_TRUE(wellFormed(less));
  EXPECT_EQ(dump(less),
            R"(pipe.schedule @test ranks(1) microbatches(2) slices(2) {
  stage 0 on 0
  rank 0 {
    forward 0 mb 0
    forward 0 mb 1
    forward 0 mb 2
    forward 0 mb 3
    backward 0 mb 3
    backward 0 mb 2
    backward 0 mb 1
    backward 0 mb 0
  }
}
)");
}

TEST(Reduce, OneForwardOneBackwardWithoutGroups) {
  for (bool planned : {false, true}) {
    Program program = oneForwardOneBackward(5, 12, planned, false);
    const Reduction reduction = expectReduced(program);
    EXPECT_EQ(reduction.program.ranks.size(), 2u);
    EXPECT_EQ(reduction.program.problem.numMicrobatches, 2);
    // F, B and their transfers for two micro-batches, and the steps.
    EXPECT_LE(reduction.program.numInstructions(), 18u);
    // The deadlock alone: two crossed sends.
    ReduceOptions options;
    options.rule = Rule::Deadlock;
    const Reduction bare = expectReduced(program, options);
    ASSERT_EQ(bare.program.ranks.size(), 2u);
    std::string text;
    for (const RankProgram &rank : bare.program.ranks)
      for (const Instruction &inst : rank.instructions)
        text += describe(inst) + '\n';
    EXPECT_EQ(text, "send activation 0 mb 1 to 1\n"
                    "recv gradient 1 mb 0 from 1\n"
                    "send gradient 1 mb 0 to 0\n"
                    "recv activation 0 mb 1 from 0\n");
    EXPECT_FALSE(bare.program.isPlanned());
  }
}

/// Where a stage goes, what flowed through it flows past it: whoever computes
/// or moves something still gets what it needs. (Groups may not fit any more.)
TEST(Reduce, StagesCloseUp) {
  const int32_t p = 4;
  for (bool grouped : {false, true}) {
    const Program program = oneForwardOneBackward(p, 5, false, grouped);
    for (Part part : {Part::Stages, Part::Ranks})
      for (int32_t k = 0; k < p; ++k) {
        const Program less = dropParts(program, part, k, 1);
        ASSERT_TRUE(wellFormed(less)) << wellFormed(less).message();
        EXPECT_EQ(less.problem.numStages(), p - 1);
        for (const Finding &finding : verify(less).findings)
          EXPECT_EQ(finding.rule, Rule::Deadlock) << finding.message;
      }
  }
}

TEST(Reduce, TiedStagesAndWeights) {
  Program program = oneForwardOneBackward(3, 2, false);
  program.problem.tied = {{{0, 2}, 4}};
  program.problem.weights = {0.25, 0.75};
  program.rankSets = {{0, 2}};
  for (int32_t rank : {0, 2})
    RankBuilder(program, rank).collective(Op::ReduceTied, 0, 0);
  auto numSums = [](const Program &of) {
    size_t n = 0;
    for (const RankProgram &rank : of.ranks)
      for (const Instruction &inst : rank.instructions)
        n += inst.op == Op::ReduceTied;
    return n;
  };
  Program less = dropParts(program, Part::Stages, 1, 1);
  EXPECT_TRUE(wellFormed(less)) << wellFormed(less).message();
  EXPECT_EQ(less.problem.tied, (std::vector<TiedStages>{{{0, 1}, 4}}));
  EXPECT_EQ(numSums(less), 2u);
  // One alone is not tied any more.
  for (int32_t stage : {0, 2}) {
    less = dropParts(program, Part::Stages, stage, 1);
    EXPECT_TRUE(wellFormed(less)) << wellFormed(less).message();
    EXPECT_TRUE(less.problem.tied.empty());
    EXPECT_EQ(numSums(less), 0u);
  }
  less = dropParts(program, Part::Microbatches, 0, 1);
  EXPECT_EQ(less.problem.weights, std::vector<double>{0.75});
}

TEST(Reduce, KeepsTheFirstRule) {
  Program program = oneForwardOneBackward(3, 6, true);
  auto &list = program.ranks[1].instructions;
  for (size_t i = list.size(); i-- > 0;)
    if (list[i].op == Op::Backward) { // backward 1 mb 5 becomes mb 4 again
      --list[i].microbatch;
      break;
    }
  const Reduction reduction = expectReduced(program);
  EXPECT_EQ(reduction.verdict.findings[0].rule, Rule::Completeness);
}

/// A certificate is of the whole program only.
TEST(Reduce, DropsTheCertificate) {
  Program program = oneForwardOneBackward(3, 6, true);
  auto &list = program.ranks[0].instructions;
  const auto last = list.end() - 2; // behind it there is the step
  ASSERT_EQ(last->op, Op::Backward);
  last->op = Op::BackwardInput; // and no W
  ASSERT_TRUE(certify(program));
  const Reduction reduction = expectReduced(program);
  EXPECT_EQ(reduction.verdict.findings[0].rule, Rule::Completeness);
  EXPECT_EQ(reduction.program.problem.numMicrobatches, 1);
}

TEST(Reduce, Failures) {
  const Program program = oneForwardOneBackward(2, 2, true);
  EXPECT_EQ(reduce(program).message(),
            "the program is accepted: there is no fault to reduce");
  ReduceOptions options;
  options.rule = Rule::Memory;
  EXPECT_EQ(reduce(oneForwardOneBackward(2, 2, true, false), options).message(),
            "the rule memory does not refuse the program; the first that does "
            "is deadlock");
}

TEST(Reduce, RandomPrograms) {
  std::mt19937 random(2130);
  for (int trial = 0; trial < 60; ++trial) {
    SCOPED_TRACE(trial);
    Program program = randomProgram(random);
    numberRankSets(program);
    for (RankProgram &rank : program.ranks)
      for (Instruction &inst : rank.instructions)
        if (inst.op == Op::Barrier)
          inst.stage = -1;
    ASSERT_TRUE(wellFormed(program));
    expectReduced(program); // never complete
    ReduceOptions options;
    options.rule = Rule::Deadlock;
    if (!checkDeadlock(program, Semantics::Closure).ok)
      expectReduced(program, options);
    if (HasFailure())
      FAIL() << dump(program);
  }
}

} // namespace
