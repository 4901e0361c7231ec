//===- WriteTorchCsvTest.cpp - Schedules written for torch ----------------===//

#include "penstock/Import/TorchCsv.h"

#include "Support/Problems.h"
#include "penstock/Analysis/Verify.h"
#include "penstock/Lowering/Lowering.h"
#include "penstock/Schedule/Schedule.h"

#include <gtest/gtest.h>

using namespace penstock;
using penstock::test::loopedPipeline;
using penstock::test::pipeline;

namespace {

Program read(const std::string &text) {
  Result<TorchTable> table = readTorchCsv(text);
  EXPECT_TRUE(table) << table.message();
  return table ? table->program : Program();
}
std::string write(const Program &program) {
  Result<std::string> text = writeTorchCsv(program);
  EXPECT_TRUE(text) << text.message();
  return text ? *text : "";
}

TEST(WriteTorchCsv, Orders) {
  // Idle cells only align the table for the eye.
  EXPECT_EQ(write(read("0F0,0F1,,0B0,0B1\r\n\"\"\n,(1F0;1F1)OVERLAP_F_B,"
                       "1I0,1W0,1B1")),
            "0F0,0F1,0B0,0B1\n"
            "\"\"\n"
            "(1F0;1F1)OVERLAP_F_B,1I0,1W0,1B1\n");
  // torch's loop of the user makes the step.
  Result<Program> order = oneForwardOneBackward(pipeline(2, 2));
  ASSERT_TRUE(order);
  appendSteps(*order);
  EXPECT_EQ(write(*order), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
}

TEST(WriteTorchCsv, Programs) {
  // What is there is kept, and read again it is the same program.
  const std::string text =
      "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
      "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD\n";
  EXPECT_EQ(write(read(text)), text);
  EXPECT_EQ(write(read("0F0,0SEND_F0,0RECV_B0,0B0\n"
                       "1RECV_F0,1F0,1B0,1SEND_B0\n")),
            "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
            "1RECV_F0,1UNSHARD,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD\n");
}

TEST(WriteTorchCsv, Sharding) {
  // The next three stages of a rank are gathered.
  const std::string text =
      write(read("0F0,1F0,2F0,3F0,3SEND_F0,3RECV_B0,3B0,2B0,1B0,0B0\n"
                 "4RECV_F0,4F0,4B0,4SEND_B0,4REDUCE_GRAD\n"));
  EXPECT_EQ(text, "0UNSHARD,1UNSHARD,2UNSHARD,0F0,0RESHARD,3UNSHARD,1F0,2F0,"
                  "3F0,3SEND_F0,3RECV_B0,3B0,3RESHARD,0UNSHARD,2B0,2RESHARD,"
                  "1B0,1RESHARD,0B0,0RESHARD\n"
                  "4RECV_F0,4UNSHARD,4F0,4B0,4SEND_B0,4REDUCE_GRAD,4RESHARD\n");
  EXPECT_EQ(write(read(text)), text);
  // All parts of a container are gathered.
  EXPECT_EQ(write(read("0F0,(1F0;2F0;3F0;4F0)OVERLAP_F_B,4SEND_F0\n5RECV_F0"))
                .substr(0, 89),
            "0UNSHARD,1UNSHARD,2UNSHARD,0F0,0RESHARD,3UNSHARD,4UNSHARD,"
            "(1F0;2F0;3F0;4F0)OVERLAP_F_B,4S");
}

// pytorch/pytorch#164756: stage 15 of the last rank is gathered four times
// where three stages are kept.
TEST(WriteTorchCsv, ShardingOfInterleaved) {
  Result<Program> order = interleaved1F1B(loopedPipeline(4, 4, 16), 4);
  ASSERT_TRUE(order);
  ASSERT_TRUE(insertTransfers(*order));
  const std::string text = write(*order);
  const std::string last = text.substr(text.rfind('\n', text.size() - 2) + 1);
  size_t count = 0;
  for (size_t at = last.find("15UNSHARD"); at != last.npos;
       at = last.find("15UNSHARD", at + 1))
    ++count;
  EXPECT_EQ(count, 4u);
  // Never twice without a reshard between.
  const Program again = read(text);
  for (const RankProgram &rank : again.ranks) {
    std::vector<int> gathered(16, 0);
    for (const Instruction &inst : rank.instructions) {
      if (inst.op == Op::Unshard || inst.op == Op::Reshard)
        gathered[inst.stage] += inst.op == Op::Unshard ? 1 : -1;
      EXPECT_LE(gathered[inst.stage], 1);
      EXPECT_TRUE(!isAction(inst.op) || gathered[inst.stage] == 1);
    }
    EXPECT_EQ(gathered, std::vector<int>(16, 0));
  }
}

TEST(WriteTorchCsv, GroupsEndInTorchToo) {
  // Each side lists its send first; as single cells that would be a deadlock.
  Program program = read("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0RECV_B1,0B0,0B1\n"
                         "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,"
                         "1SEND_B1\n");
  EXPECT_FALSE(checkDeadlock(program, Semantics::Closure).ok);
  program.ranks[0].instructions[4].joined = true;
  program.ranks[1].instructions[4].joined = true;
  EXPECT_TRUE(checkDeadlock(program, Semantics::Closure).ok);
  Program again = read(write(program));
  EXPECT_TRUE(checkDeadlock(again, Semantics::Closure).ok);
  ASSERT_TRUE(setFifos(again, Fifo::Rank));
  EXPECT_TRUE(verify(again).accepted());
}

TEST(WriteTorchCsv, Faults) {
  auto fault = [](const Program &program) {
    const Result<std::string> text = writeTorchCsv(program);
    return text ? "" : text.message();
  };
  Program program = read("0F0,0B0");
  program.ranks[0].instructions[0].op = Op::Recompute;
  EXPECT_EQ(fault(program), "has no form in torch's schedules; leave it out");
  EXPECT_EQ(writeTorchCsv(program).failure().site, (Site{0, 0}));

  program = read("0F0,0B0,0REDUCE_GRAD");
  program.ranks[0].instructions[2].microbatch = 0;
  EXPECT_EQ(fault(program),
            "is for one micro-batch; torch has it for all of them only, so "
            "leave the micro-batch out");

  Problem problem = pipeline(2, 4);
  placeBothWays(problem);
  Result<Program> order = dualPipe(problem);
  ASSERT_TRUE(order) << order.message();
  EXPECT_EQ(fault(*order),
            "has 2 chains; torch places every stage on one rank, so choose a "
            "schedule with one chain");

  problem = pipeline(2, 4);
  EXPECT_EQ(fault(*pipeDream(problem)),
            "is for one micro-batch; torch has it for all of them only, so "
            "leave the micro-batch out");
  Result<Program> evens = bPipe(pipeline(4, 4));
  const std::string moves =
      "moves a stash between ranks; torch keeps it where it is, so choose a "
      "schedule that does, such as one_f_one_b";
  EXPECT_EQ(fault(*evens), moves);
  EXPECT_EQ(writeTorchCsv(*evens).failure().site, (Site{0, 3}));
  ASSERT_TRUE(insertTransfers(*evens));
  EXPECT_EQ(fault(*evens), moves);
  setSlices(problem, 3);
  EXPECT_EQ(fault(*seq1F1B(problem)),
            "cuts micro-batches into 3 slices; torch knows whole micro-batches "
            "only, so choose another schedule");
}

TEST(WriteTorchCsv, WhatTorchDoesNotKnow) {
  Result<Program> order = gpipe(test::pipeline(2, 2));
  ASSERT_TRUE(order);
  order->problem.weights = {0.25, 0.75};
  EXPECT_EQ(writeTorchCsv(*order).message(),
            "has weights of micro-batches; torch scales all alike, so weigh "
            "the losses in your loss function and leave weights(...) out");
  order->problem.weights.clear();
  order->problem.tied = {{{0, 1}, 4}};
  EXPECT_EQ(writeTorchCsv(*order).message(),
            "has tied stages, of which torch's schedules know nothing; add up "
            "their gradients behind the schedule and leave tied(...) out");
  order->problem.tied.clear();
  order->problem.postValidation = true;
  EXPECT_EQ(writeTorchCsv(*order).message(),
            "has post-validation, of which torch's schedules know nothing; "
            "leave post_validation out");
}

} // namespace
