//===- ConvertTest.cpp - Tests of extraction and write-back ---------------===//

#include "penstock/Dialect/Pipe/IR/Convert.h"

#include "penstock/Lowering/Lowering.h"
#include "penstock/Program/Text.h"
#include "penstock/Schedule/Schedule.h"

#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace penstock;
using penstock::pipe::ExtractedProgram;
using penstock::pipe::extractProgram;
using penstock::pipe::ScheduleOp;

namespace {

class ConvertTest : public testing::Test {
protected:
  ConvertTest()
      : handler(&context, [this](mlir::Diagnostic &diagnostic) {
          errors += std::to_string(lineOf(diagnostic.getLocation())) + ": " +
                    diagnostic.str() + "\n";
        }) {
    context.loadDialect<pipe::PipeDialect>();
  }

  static unsigned lineOf(mlir::Location loc) {
    auto file = llvm::dyn_cast<mlir::FileLineColLoc>(loc);
    return file ? file.getLine() : 0;
  }

  /// Parses and extracts the last schedule of the text.
  llvm::FailureOr<ExtractedProgram> extract(llvm::StringRef text) {
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    if (!module)
      return mlir::failure();
    ScheduleOp last;
    for (auto schedule : module->getOps<ScheduleOp>())
      last = schedule;
    return extractProgram(last);
  }

  Program extractOrDie(llvm::StringRef text) {
    auto extracted = extract(text);
    if (failed(extracted)) {
      ADD_FAILURE() << errors << text.str();
      return {};
    }
    return extracted->program;
  }

  /// Why a text cannot be extracted, with line numbers.
  std::string whyNot(llvm::StringRef text) {
    errors.clear();
    EXPECT_TRUE(failed(extract(text)));
    EXPECT_TRUE(module) << "not even parsed";
    return errors;
  }

  /// The text of a program as an op; empty when it cannot be written.
  std::string write(const Program &program) {
    mlir::Location loc = mlir::UnknownLoc::get(&context);
    mlir::OwningOpRef<mlir::ModuleOp> written = mlir::ModuleOp::create(loc);
    mlir::OpBuilder builder = mlir::OpBuilder::atBlockEnd(written->getBody());
    auto schedule = pipe::createSchedule(builder, loc, program);
    if (failed(schedule))
      return "";
    EXPECT_TRUE(succeeded(verify(*written)));
    std::string text;
    llvm::raw_string_ostream os(text);
    schedule->print(os);
    return text + "\n";
  }

  /// Writing a program, as an op and without MLIR, gives one text, and reading
  /// it gives the program.
  void expectRoundTrip(const Program &program) {
    std::string text = write(program);
    EXPECT_TRUE(extractOrDie(text) == program) << text;
    if (program.numInstructions() > 0) {
      EXPECT_EQ(text, dump(program));
    }
    EXPECT_TRUE(extractOrDie(dump(program)) == program) << dump(program);
  }

  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  std::string errors;
  mlir::ScopedDiagnosticHandler handler;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

Problem problemOf(int32_t ranks, int32_t microbatches) {
  Problem problem;
  problem.name = "s";
  problem.numRanks = ranks;
  problem.numMicrobatches = microbatches;
  problem.stages.resize(ranks);
  for (int32_t s = 0; s < ranks; ++s)
    problem.stages[s].firstLayer = s;
  problem.placement = placeLoop(ranks, ranks);
  return problem;
}

//===----------------------------------------------------------------------===//
// Spec
//===----------------------------------------------------------------------===//

TEST_F(ConvertTest, ShortSpecGivesProblemAndEmptyRanks) {
  Program program = extractOrDie(R"(
    pipe.schedule @train ranks(3) microbatches(5) using(#pipe.one_f_one_b)
        costs(#pipe.cost<forward = 18.5, input = 18.25, weight = 9.25, transfer = 0.5>)
        bytes(#pipe.bytes<output = 7, stash = 8, parameters = 9, gradients = 10, optimizer = 11>)
        memory(1000))");
  Problem expected = problemOf(3, 5);
  expected.name = "train";
  expected.link.latency = 0.5;
  expected.memory = 1000;
  for (Stage &stage : expected.stages) {
    stage.cost = {18.5, 27.5, 18.25, 9.25, 18.5};
    stage.bytes = {7, 8, 9, 10, 11};
  }
  EXPECT_TRUE(program.problem == expected);
  ASSERT_EQ(program.ranks.size(), 3u);
  EXPECT_EQ(program.numInstructions(), 0u);
}

TEST_F(ConvertTest, CostDefaults) {
  auto resolve = [&](const std::string &fields) {
    Program program = extractOrDie(
        "pipe.schedule @s ranks(1) microbatches(1) costs(#pipe.cost<" + fields +
        ">)");
    return program.problem.stages.at(0).cost;
  };
  EXPECT_EQ(resolve(""), (StageCost{1, 2, 1, 1, 1}));
  EXPECT_EQ(resolve("forward = 3"), (StageCost{3, 2, 1, 1, 3}));
  EXPECT_EQ(resolve("input = 3"), (StageCost{1, 4, 3, 1, 1}));
  EXPECT_EQ(resolve("backward = 3"), (StageCost{1, 3, 1.5, 1.5, 1}));
  EXPECT_EQ(resolve("backward = 3, weight = 2"), (StageCost{1, 3, 1, 2, 1}));
  EXPECT_EQ(resolve("forward = 0, recompute = 2"), (StageCost{0, 2, 1, 1, 2}));
}

TEST_F(ConvertTest, ScheduleWinsOverCluster) {
  const std::string cluster =
      "pipe.cluster @c ranks(4) memory(10) link(#pipe.link<latency = 2, "
      "bytes_per_time = 3>) host_link(#pipe.link<latency = 4>)\n";
  Problem all =
      extractOrDie(cluster + "pipe.schedule @s cluster(@c) microbatches(1)")
          .problem;
  EXPECT_EQ(all.numRanks, 4);
  EXPECT_EQ(all.memory, 10);
  EXPECT_EQ(all.link, (Link{2, 3}));
  EXPECT_EQ(all.hostLink, (Link{4, 0}));
  Problem own =
      extractOrDie(cluster + "pipe.schedule @s cluster(@c) microbatches(1) "
                             "ranks(2) memory(0) link(#pipe.link<latency = 1>) "
                             "host_link(#pipe.link<bytes_per_time = 5>)")
          .problem;
  EXPECT_EQ(own.numRanks, 2);
  EXPECT_EQ(own.memory, 0);
  EXPECT_EQ(own.link, (Link{1, 0}));
  EXPECT_EQ(own.hostLink, (Link{0, 5}));
  Problem transfer =
      extractOrDie(cluster + "pipe.schedule @s cluster(@c) microbatches(1) "
                             "costs(#pipe.cost<transfer = 7>)")
          .problem;
  EXPECT_EQ(transfer.link, (Link{7, 3}));
}

TEST_F(ConvertTest, LayersAreDealtOut) {
  Problem problem = extractOrDie(R"(
    pipe.model @m {
      layer "a" costs(#pipe.cost<forward = 2, input = 2, weight = 2>) bytes(#pipe.bytes<output = 1, stash = 10, parameters = 100, gradients = 1000, optimizer = 10000>)
      layer "b" times 3 bytes(#pipe.bytes<output = 2, stash = 20, parameters = 200, gradients = 2000, optimizer = 20000>)
    }
    pipe.schedule @s model(@m) ranks(2) microbatches(1))")
                        .problem;
  ASSERT_EQ(problem.numStages(), 2);
  // Layers weigh 6, 3, 3, 3: cut after the first two is 9 | 6, after one 6 | 9.
  EXPECT_EQ(problem.stages[0].firstLayer, 0);
  EXPECT_EQ(problem.stages[1].firstLayer, problem.stages[0].numLayers);
  EXPECT_EQ(problem.stages[1].numLayers, 4 - problem.stages[0].numLayers);
  EXPECT_EQ(problem.stages[0].numLayers, 1);
  EXPECT_EQ(problem.stages[0].cost, (StageCost{2, 4, 2, 2, 2}));
  EXPECT_EQ(problem.stages[0].bytes, (StageBytes{1, 10, 100, 1000, 10000}));
  EXPECT_EQ(problem.stages[1].cost, (StageCost{3, 6, 3, 3, 3}));
  // The output is that of the last layer, the rest adds up.
  EXPECT_EQ(problem.stages[1].bytes, (StageBytes{2, 60, 600, 6000, 60000}));
}

TEST_F(ConvertTest, FamiliesGenerate) {
  struct Case {
    const char *family;
    Result<Program> (*generate)(const Problem &);
  };
  for (Case c : {Case{"naive", naive}, Case{"gpipe", gpipe},
                 Case{"one_f_one_b", oneForwardOneBackward}})
    for (bool split : {false, true}) {
      auto extracted = extract("pipe.schedule @s ranks(3) microbatches(4) "
                               "using(#pipe." +
                               std::string(c.family) +
                               (split ? "<split_backward = true>)" : ")"));
      ASSERT_TRUE(succeeded(extracted)) << errors;
      const Problem &problem = extracted->program.problem;
      auto family = extracted->schedule.getFamilyAttr();
      EXPECT_EQ(family.getChunks(), 1);
      Result<Program> order = family.generate(problem);
      Result<Program> expected = c.generate(problem);
      ASSERT_TRUE(order && expected);
      if (split)
        splitBackward(*expected);
      EXPECT_TRUE(*order == *expected) << c.family;
      EXPECT_GT(order->numInstructions(), 0u);
    }
}

/// A family from elsewhere: two stages on each rank, back and forth.
struct ZigZag
    : pipe::ScheduleFamilyAttrInterface::ExternalModel<ZigZag,
                                                       mlir::StringAttr> {
  int32_t getChunks(mlir::Attribute) const { return 2; }
  void place(mlir::Attribute, Problem &problem) const {
    const int32_t ranks = problem.numRanks;
    for (int32_t s = 0; s < problem.numStages(); ++s)
      problem.placement.push_back(s < ranks ? s : 2 * ranks - 1 - s);
  }
  Result<Program> generate(mlir::Attribute, const Problem &) const {
    return Failure{"no order"};
  }
};

TEST_F(ConvertTest, FamiliesFromElsewhere) {
  mlir::StringAttr::attachInterface<ZigZag>(context);
  auto extracted =
      extract("pipe.schedule @s ranks(2) microbatches(1) using(\"zigzag\")");
  ASSERT_TRUE(succeeded(extracted)) << errors;
  EXPECT_EQ(extracted->program.problem.placement,
            (std::vector<int32_t>{0, 1, 1, 0}));
  auto family = extracted->schedule.getFamilyAttr();
  EXPECT_EQ(family.generate(extracted->program.problem).message(), "no order");
}

//===----------------------------------------------------------------------===//
// Orders and programs
//===----------------------------------------------------------------------===//

constexpr const char *kPlanned = R"(
  pipe.schedule @NAME ranks(4) microbatches(4) memory(123) link(#pipe.link<latency = 0.6, bytes_per_time = 5.0e+07>) host_link(#pipe.link<bytes_per_time = 7.0>) chains([0, 0, 1, 1]) {
    stage 0 on (0, 3) layers(0, 8) costs(#pipe.cost<forward = 0.1, backward = 2.5, input = 1.0, weight = 1.0, recompute = 0.0>) bytes(#pipe.bytes<output = 16384, optimizer = 8192>)
    stage 1 on (1, 2) layers(8, 1)
    stage 2 on (2, 1)
    stage 3 on (3, 0)
    rank 0 slots(3 x 16384, 2 x 65536, 1 x 16384) host_slots(1 x 65536, 1 x 8) {
      forward 0 mb 0 out(0) stash(3)
      send activation 0 mb 0 to 1 slot(0) bytes(16384) queue(1) after(forward 0 mb 0)
      forward 0 mb 1
      backward 0 mb 0
      group queue(1) after(forward 0 mb 1, backward 0 mb 0) {
        send activation 0 mb 1 to 1 slot(1) bytes(16384) comm(65535)
        recv gradient 1 mb 0 from 1 slot(2) bytes(16384)
      }
      overlap queue(255) after(recv gradient 1 mb 0 from 1, send activation 0 mb 0 to 1) {
        forward 0 mb 2 out(0) stash(4)
        backward 0 mb 0 grad(2) stash(3) in(1)
      }
      all_reduce 3 ranks(0, 3) bytes(4096) comm(1) queue(2)
      all_reduce 3 mb 1 after(all_reduce 3)
      barrier ranks(0, 1)
      barrier ranks(0, 3)
      reduce_grad 1
      unshard 1
      reshard 1
      offload 0 mb 1 slot(3) host(1)
      reload 0 mb 1 after(offload 0 mb 1) slot(4) host(0)
      backward_input 0 mb 0
      backward_weight 0 mb 0
      recompute 0 mb 3
      barrier after(barrier)
      step
      step 0
      step 0 mb 3 after(step, step 0)
    }
    rank 1 {
    }
    rank 2 {
    }
    rank 3 slots(1 x 0) {
    }
  })";

TEST_F(ConvertTest, EverythingExtracts) {
  auto extracted = extract(kPlanned);
  ASSERT_TRUE(succeeded(extracted)) << errors;
  const Program &program = extracted->program;
  const Problem &problem = program.problem;
  EXPECT_EQ(problem.name, "NAME");
  EXPECT_EQ(problem.memory, 123);
  EXPECT_EQ(problem.link, (Link{0.6, 5e7}));
  EXPECT_EQ(problem.hostLink, (Link{0, 7}));
  EXPECT_EQ(problem.chains, (std::vector<uint8_t>{0, 0, 1, 1}));
  EXPECT_EQ(problem.placement, (std::vector<int32_t>{0, 1, 2, 3, 3, 2, 1, 0}));
  EXPECT_EQ(problem.stages[0].numLayers, 8);
  EXPECT_EQ(problem.stages[1].firstLayer, 8);
  EXPECT_EQ(problem.stages[2].firstLayer, 2);
  EXPECT_EQ(problem.stages[0].cost, (StageCost{0.1, 2.5, 1, 1, 0}));
  EXPECT_EQ(problem.stages[1].cost, StageCost());

  const RankProgram &rank = program.ranks[0];
  EXPECT_EQ(rank.slotBytes,
            (std::vector<int64_t>{16384, 16384, 16384, 65536, 65536, 16384}));
  EXPECT_EQ(rank.hostSlotBytes, (std::vector<int64_t>{65536, 8}));
  ASSERT_EQ(rank.instructions.size(), 24u);
  EXPECT_EQ(rank.instructions[15].slots, (std::array{3, 1, -1, -1}));
  EXPECT_EQ(rank.instructions[16].slots, (std::array{4, 0, -1, -1}));
  EXPECT_EQ(rank.waits,
            (std::vector<uint32_t>{0, 2, 3, 5, 1, 8, 15, 11, 21, 22}));

  const Instruction &send = rank.instructions[4];
  EXPECT_EQ(send.op, Op::Send);
  EXPECT_EQ(send.payload, Payload::Activation);
  EXPECT_EQ(send.stage, 0);
  EXPECT_EQ(send.microbatch, 1);
  EXPECT_EQ(send.peer, 1);
  EXPECT_EQ(send.slots[Slot], 1);
  EXPECT_EQ(send.bytes, 16384);
  EXPECT_EQ(send.comm, 65535);
  EXPECT_EQ(send.queue, 1);
  EXPECT_EQ(send.numWaits, 2);
  EXPECT_EQ(send.firstWait, 1u);
  EXPECT_FALSE(send.joined);
  const Instruction &recv = rank.instructions[5];
  EXPECT_TRUE(recv.joined);
  EXPECT_EQ(recv.op, Op::Recv);
  EXPECT_EQ(recv.payload, Payload::Gradient);
  EXPECT_EQ(recv.queue, 1);
  EXPECT_EQ(recv.numWaits, 0);
  const Instruction &fused = rank.instructions[7];
  EXPECT_TRUE(fused.joined);
  EXPECT_EQ(fused.queue, 255);
  EXPECT_EQ(fused.slots, (std::array<int32_t, 4>{1, 2, -1, 3}));

  EXPECT_EQ(program.rankSets,
            (std::vector<std::vector<int32_t>>{{0, 3}, {0, 1}}));
  EXPECT_EQ(rank.instructions[8].peer, 0);
  EXPECT_EQ(rank.instructions[9].peer, -1);
  EXPECT_EQ(rank.instructions[10].peer, 1);
  EXPECT_EQ(rank.instructions[11].peer, 0);

  // Where an error on an instruction goes: to its op.
  EXPECT_EQ(lineOf(extracted->at({0, 0})->getLoc()), 8u);
  EXPECT_EQ(lineOf(extracted->at({0, 5})->getLoc()), 14u);
  EXPECT_EQ(lineOf(extracted->at({0, kNoInstruction})->getLoc()), 7u);
  EXPECT_EQ(lineOf(extracted->at({})->getLoc()), 2u);
  emitAt(*extracted, {0, 5}) << "here";
  EXPECT_EQ(errors, "14: here\n");
}

TEST_F(ConvertTest, PlannedRoundTrip) {
  Program program = extractOrDie(kPlanned);
  EXPECT_TRUE(program.isPlanned());
  expectRoundTrip(program);
  // Written twice is written once.
  EXPECT_EQ(write(program), write(extractOrDie(write(program))));
}

TEST_F(ConvertTest, EveryLevelRoundTrips) {
  Problem problem = problemOf(4, 6);
  problem.stages[1].bytes.output = 64;
  problem.stages[2].cost = {1, 2, 1, 1.5, 1};
  Program program;
  program.problem = problem;
  program.ranks.resize(4);
  expectRoundTrip(program);
  Result<Program> order = oneForwardOneBackward(problem);
  ASSERT_TRUE(order);
  appendSteps(*order);
  expectRoundTrip(*order);
  ASSERT_TRUE(insertTransfers(*order));
  EXPECT_FALSE(order->isOrder());
  expectRoundTrip(*order);
  ASSERT_TRUE(planBuffers(*order));
  EXPECT_TRUE(order->isPlanned());
  expectRoundTrip(*order);
}

TEST_F(ConvertTest, StagesAreWhereTheirForwardsAre) {
  Problem problem = extractOrDie(R"(
    pipe.schedule @s ranks(2) microbatches(2) chains([0, 1]) bytes(#pipe.bytes<output = 4>) {
      rank 0 {
        forward 1 mb 0
        forward 0 mb 1
        forward 0 mb 0
      }
      rank 1 {
        forward 0 mb 0
        backward 1 mb 1
        forward 1 mb 1
      }
    })")
                        .problem;
  EXPECT_EQ(problem.placement, (std::vector<int32_t>{0, 0, 0, 1}));
  EXPECT_EQ(problem.stages.at(1).firstLayer, 1);
  EXPECT_EQ(problem.stages.at(1).bytes.output, 4);
}

TEST_F(ConvertTest, UniformCostsHoldForStagesWithoutOwn) {
  Problem problem = extractOrDie(R"(
    pipe.schedule @s ranks(2) microbatches(2) costs(#pipe.cost<forward = 4>) {
      stage 0 on 0
      stage 1 on 1 costs(#pipe.cost<forward = 5>)
    })")
                        .problem;
  EXPECT_EQ(problem.stages[0].cost.forward, 4);
  EXPECT_EQ(problem.stages[1].cost.forward, 5);
}

//===----------------------------------------------------------------------===//
// Faults
//===----------------------------------------------------------------------===//

TEST_F(ConvertTest, FaultsOfASpec) {
  EXPECT_EQ(whyNot("pipe.schedule @s microbatches(1)"),
            "1: schedule @s: no ranks: add ranks(N) or cluster(@name)\n");
  EXPECT_EQ(whyNot("pipe.schedule @s ranks(1)"),
            "1: schedule @s: no micro-batches: add microbatches(N)\n");
  std::string tooFew = whyNot(R"(
    pipe.model @m { layer "a" }
    pipe.schedule @s model(@m) ranks(2) microbatches(1))");
  EXPECT_NE(tooFew.find("3: schedule @s: layers of model @m: "),
            std::string::npos)
      << tooFew;
  EXPECT_EQ(whyNot(R"(
    pipe.model @m {
      layer "a" times 1000000
      layer "b" times 1000000
    }
    pipe.schedule @s model(@m) ranks(2) microbatches(1))"),
            "4: schedule @s: model @m has more than 1048576 layers; make "
            "one of several\n");
}

TEST_F(ConvertTest, FaultsOfPlaces) {
  EXPECT_EQ(
      whyNot(R"(
    pipe.cluster @c ranks(1)
    pipe.schedule @s cluster(@c) microbatches(1) {
      stage 0 on 1
    })"),
      "4: schedule @s: stage 0 is on rank 1, but there are 1 ranks; place it "
      "on a rank below 1\n");
  EXPECT_EQ(
      whyNot(R"(
    pipe.cluster @c ranks(1)
    pipe.schedule @s cluster(@c) microbatches(1) {
      rank 1 {
      }
    })"),
      "4: schedule @s: rank 1 is out of range: there are 1 ranks; write 0 to "
      "0\n");
  EXPECT_EQ(whyNot(R"(
    pipe.schedule @s ranks(1) microbatches(1) {
      rank 0 {
        forward 1 mb 0
        backward 0 mb 0
      }
    })"),
            "2: schedule @s: stage 0 is on no rank: no rank runs its forward; "
            "add it, or say where the stage is with `stage 0 on R`\n");
  EXPECT_EQ(whyNot(R"(
    pipe.schedule @s ranks(1) microbatches(2) chains([0, 1]) {
      rank 0 {
        forward 0 mb 0
        backward 0 mb 0
      }
    })"),
            "2: schedule @s: stage 0 is on no rank: no rank runs its forward "
            "on chain 1; add it, or say where the stage is with `stage 0 on "
            "R`\n");
  // Numbers with gaps would make tables of nearly empty places.
  EXPECT_EQ(whyNot(R"(
    pipe.schedule @s ranks(1) microbatches(1) {
      rank 0 {
        forward 900000 mb 0
      }
    })"),
            "2: schedule @s: 900001 stages need a forward each, but there are "
            "1 instructions: stage 900000 is the last one named; number stages "
            "and chains from 0 without gaps\n");
  EXPECT_EQ(whyNot(R"(
    pipe.schedule @s ranks(1) microbatches(1) chains([255]) {
      rank 0 {
        forward 1048575 mb 0
      }
    })"),
            "2: schedule @s: 1048576 stages on 256 chains need a forward each, "
            "but there are 1 instructions: stage 1048575 is the last one "
            "named; number stages and chains from 0 without gaps\n");
}

TEST_F(ConvertTest, FaultsOfInstructions) {
  EXPECT_EQ(whyNot(R"(
    pipe.schedule @s ranks(1) microbatches(2) {
      rank 0 {
        forward 0 mb 2
      }
    })"),
            "4: schedule @s: `forward 0 mb 2`: there are only 2 "
            "micro-batches; write 0 to 1, or raise microbatches(N)\n");
  // A wait means an earlier instruction, and not one of the same group.
  EXPECT_EQ(whyNot(R"(
    pipe.schedule @s ranks(1) microbatches(2) {
      rank 0 {
        forward 0 mb 0 after(forward 0 mb 1)
        forward 0 mb 1
      }
    })"),
            "4: schedule @s: rank 0 waits for `forward 0 mb 1`, which does not "
            "stand before; move that forward, or drop the wait\n");
  EXPECT_EQ(
      whyNot(R"(
    pipe.schedule @s ranks(2) microbatches(2) {
      rank 0 {
        group after(send activation 0 mb 1 to 1) {
          recv activation 0 mb 0 from 1
          send activation 0 mb 1 to 1
        }
      }
    })"),
      "4: schedule @s: rank 0 waits for `send activation 0 mb 1 to 1`, "
      "which does not stand before; move that forward, or drop the wait\n");
}

TEST_F(ConvertTest, AmbiguousWaitIsNotWritten) {
  Program program;
  program.problem = problemOf(1, 1);
  program.ranks.resize(1);
  RankProgram &rank = program.ranks[0];
  Instruction step;
  step.op = Op::Step;
  rank.instructions = {step, step, step};
  rank.instructions[2].numWaits = 1;
  rank.waits = {0};
  EXPECT_EQ(write(program), "");
  EXPECT_EQ(errors, "0: rank 0, `step`: cannot write that it waits for "
                    "instruction 0, because another `step` stands in between; "
                    "use one of the two only\n");
  rank.waits = {1};
  expectRoundTrip(program);
}

TEST_F(ConvertTest, TooManyStages) {
  mlir::StringAttr::attachInterface<ZigZag>(context);
  EXPECT_EQ(whyNot("pipe.schedule @s ranks(1048576) microbatches(1) "
                   "using(\"zigzag\")"),
            "1: schedule @s: 2097152 stages are too many, the limit is "
            "1048576\n");
}

TEST_F(ConvertTest, TooManyWaits) {
  ASSERT_TRUE(succeeded(extract(R"(
    pipe.schedule @s ranks(1) microbatches(1) {
      rank 0 {
        forward 0 mb 0
        step
      }
    })")));
  pipe::StepOp step;
  module->walk([&](pipe::StepOp op) { step = op; });
  pipe::Waits waits(65536);
  step.setAfter(waits);
  EXPECT_TRUE(failed(verify(*module)));
  EXPECT_EQ(errors, "5: after(...) names 65536 instructions, 65535 at most\n");
  waits.pop_back();
  step.setAfter(waits);
  EXPECT_TRUE(succeeded(verify(*module)));
}

TEST_F(ConvertTest, UnknownInstructionInBytecode) {
  ASSERT_TRUE(succeeded(extract(R"(
    pipe.schedule @s ranks(1) microbatches(1) {
      rank 0 {
        forward 0 mb 0
        step
      }
    })")));
  pipe::StepOp step;
  module->walk([&](pipe::StepOp op) { step = op; });
  pipe::Waits waits(1);
  waits[0].op = static_cast<Op>(kNumOps);
  step.setAfter(waits);
  std::string bytes;
  llvm::raw_string_ostream os(bytes);
  ASSERT_TRUE(succeeded(mlir::writeBytecodeToFile(*module, os)));
  EXPECT_FALSE(mlir::parseSourceString<mlir::ModuleOp>(bytes, &context));
  EXPECT_NE(errors.find("unknown instruction in waits"), std::string::npos)
      << errors;
}

} // namespace
