//===- TorchLogTest.cpp - Reported schedules, one by one ------------------===//
//
// Public problem reports about pipeline schedules, each as the smallest table
// that shows it, with the verdict that a verifier must give. The number of the
// report stands beside each; a bare one is of pytorch/pytorch.
//
//===----------------------------------------------------------------------===//

#include "TorchRules.h"

#include "Support/Problems.h"
#include "penstock/Analysis/Simulate.h"
#include "penstock/Analysis/Verify.h"
#include "penstock/Import/Cases.h"
#include "penstock/Lowering/Lowering.h"
#include "penstock/Schedule/Schedule.h"

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <set>
#include <tuple>
#include <utility>

using namespace penstock;
using penstock::test::loopedPipeline;
using penstock::test::pipeline;

namespace {

/// A row with blanks between its cells.
std::string row(std::string cells) {
  std::replace(cells.begin(), cells.end(), ' ', ',');
  return cells + '\n';
}

TorchTable read(const std::string &text,
                TorchPlacement placement = TorchPlacement::Rows) {
  Result<TorchTable> table = readTorchCsv(text, placement);
  EXPECT_TRUE(table) << table.message();
  return table ? *table : TorchTable();
}

Verdict verifyOrder(const TorchTable &table) {
  EXPECT_EQ(table.format, TorchFormat::ComputeOnly);
  VerifyOptions options;
  options.order = true;
  return verify(table.program, options);
}
Verdict verifyOrder(const std::string &text) { return verifyOrder(read(text)); }

Program withFifos(const TorchTable &table, Fifo fifo) {
  EXPECT_EQ(table.format, TorchFormat::ComputeComms);
  Program program = table.program;
  const Status status = setFifos(program, fifo);
  EXPECT_TRUE(status) << status.message();
  return program;
}
Verdict verifyComms(const TorchTable &table, Fifo fifo) {
  return verify(withFifos(table, fifo));
}

/// "rank 0, cell 3 (0SEND_F1)" of every entry of the cycle.
std::vector<std::string> cellsOfCycle(const TorchTable &table,
                                      const Verdict &verdict) {
  std::vector<std::string> cells;
  for (Site site : verdict.cycle)
    cells.push_back(describeCell(table, site));
  return cells;
}

/// The first finding: its rule, its place and its words.
std::string first(const TorchTable &table, const Verdict &verdict) {
  if (verdict.accepted())
    return "accepted";
  const Finding &finding = verdict.findings.front();
  return std::string(name(finding.rule)) + ": " +
         (finding.site.rank < 0 ? ""
                                : describeCell(table, finding.site) + ": ") +
         finding.message;
}
std::string firstOfOrder(const std::string &text) {
  const TorchTable table = read(text);
  return first(table, verifyOrder(table));
}

/// Schedules of torch: the micro-batches in rounds of at least p.
int32_t torchGroup(int32_t numRanks, int32_t numMicrobatches) {
  return numMicrobatches / std::max(1, numMicrobatches / numRanks);
}
Program interleaved(int32_t p, int32_t v, int32_t m) {
  Result<Program> order =
      interleaved1F1B(loopedPipeline(p, v, m), torchGroup(p, m));
  EXPECT_TRUE(order) << order.message();
  return *order;
}
Program loopedBFS(int32_t p, int32_t v, int32_t m) {
  Result<Program> order = breadthFirst(loopedPipeline(p, v, m));
  EXPECT_TRUE(order) << order.message();
  return *order;
}
Program inV(int32_t p, int32_t m, Result<Program> (*family)(const Problem &)) {
  Problem problem = loopedPipeline(p, 2, m);
  problem.placement = placeSnake(2 * p, p);
  Result<Program> order = family(problem);
  EXPECT_TRUE(order) << order.message();
  return *order;
}
TorchTable asTorchRunsIt(const Program &order) {
  return read(textOf(lowerAsTorch(order)));
}
std::string csv(const Program &program) {
  Result<std::string> text = writeTorchCsv(program);
  EXPECT_TRUE(text) << text.message();
  return text ? *text : "";
}

/// The cells of a program, transfers by themselves.
std::string cellsOf(const Program &program) {
  std::string text;
  for (int32_t r = 0; r < program.problem.numRanks; ++r) {
    const auto &insts = program.ranks[r].instructions;
    for (uint32_t i = 0; i < insts.size(); i = itemEnd(insts, i))
      text += (i == 0 ? "" : ",") + (isTransfer(insts[i].op)
                                         ? torchText(insts[i])
                                         : torchCell(program, {r, i}));
    text += '\n';
  }
  return text;
}

/// The rows without the cells that the placement of transfers leaves out.
TorchRows withoutSharding(TorchRows rows) {
  for (auto &row : rows)
    std::erase_if(row, [](const TorchCell &cell) {
      const Op op = cell.parts[0].op;
      return op == Op::Unshard || op == Op::Reshard || op == Op::ReduceGrad;
    });
  return rows;
}
std::string placedAsTorch(Program program) {
  EXPECT_TRUE(insertTransfers(
      program, {.placement = penstock::TransferPlacement::Torch}));
  return cellsOf(program);
}

// Two implementations of torch's rounds: the sends and receives stand where
// they do when the row has UNSHARD, RESHARD and REDUCE_GRAD too.
TEST(TorchPlacement, IsTorchs) {
  bool sharding = false;
  for (int32_t p : {2, 3, 4})
    for (int32_t m : {1, 2, 4, 9})
      for (const Program &order :
           {interleaved(p, 2, m), interleaved(p, 5, p), loopedBFS(p, 3, m),
            inV(p, m, zbV), inV(p, m, dualPipeV), *gpipe(pipeline(p, m)),
            *oneForwardOneBackward(pipeline(p, m))}) {
        const std::string placed = placedAsTorch(order);
        EXPECT_EQ(placed, textOf(withoutSharding(lowerAsTorch(order))));
        sharding |= placed != textOf(insertTransfersAsTorch(order));
      }
  EXPECT_TRUE(sharding) << "it makes a difference";
}

// More stages than torch keeps gathered, a container across the border.
TEST(TorchPlacement, OfContainers) {
  const Program order =
      read("0F0,1F0,2F0,0F1,1F1,2F1,3F0,3B0,2B0,1B0,(3F1;0B0)OVERLAP_F_B,"
           "3B1,2B1,1B1,0B1\n4F0,4B0,4F1,4B1\n")
          .program;
  EXPECT_EQ(placedAsTorch(order), textOf(withoutSharding(lowerAsTorch(order))));
}

// The figures of torch's lists in the model with one FIFO per rank and as many
// buffers as are asked for: F = 1, B = 2, I = W = 1, free transfers (torch.md
// 2.8 and 4.2).
TEST(TorchPlacement, Makespans) {
  const struct {
    Program order;
    double makespan;
  } cases[] = {
      {*gpipe(pipeline(4, 8)), 33},
      {*oneForwardOneBackward(pipeline(4, 8)), 33},
      {loopedBFS(4, 2, 8), 77},
      {interleaved(2, 2, 4), 27},
      {interleaved(4, 2, 8), 70},
      {interleaved(4, 2, 3), 38},
      {interleaved(8, 2, 8), 124},
      {interleaved(8, 2, 16), 172},
      {interleaved(4, 4, 16), 237},
      {*interleavedZB(loopedPipeline(2, 2, 8), 2), 49},
      {inV(2, 1, zbV), 10},
      {inV(2, 4, zbV), 25},
      {inV(4, 8, zbV), 55},
      {inV(4, 10, dualPipeV), 88},
  };
  for (const auto &[order, makespan] : cases) {
    Program program = order;
    ASSERT_TRUE(insertTransfers(
        program, {.placement = penstock::TransferPlacement::Torch}));
    const std::optional<Timing> timing =
        simulateProgram(withFifos(read(cellsOf(program)), Fifo::Rank));
    ASSERT_TRUE(timing);
    EXPECT_EQ(timing->makespan, makespan);
  }
}

//===----------------------------------------------------------------------===//
// Reports
//===----------------------------------------------------------------------===//

// #172668, row 1: after receives have moved behind forwards both ranks sit in a
// send. torch's validation and its dry run pass it.
TEST(TorchLog, Row1CrossedSends) {
  const TorchTable table =
      read(row("0F0 0SEND_F0 0F1 0SEND_F1 2RECV_F0 2F0 2RECV_F1 2F1") +
           row("1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1"));
  for (Fifo fifo : {Fifo::Rank, Fifo::Pair}) {
    const Verdict verdict = verifyComms(table, fifo);
    EXPECT_FALSE(verdict.deadlockFree);
    EXPECT_EQ(verdict.minCapacity, 1);
    const std::vector<std::string> cycle = cellsOfCycle(table, verdict);
    EXPECT_EQ(cycle.size(), 4u);
    for (const char *cell :
         {"rank 0, cell 3 (0SEND_F1)", "rank 1, cell 2 (1SEND_F0)"})
      EXPECT_EQ(std::count(cycle.begin(), cycle.end(), cell), 1) << cell;
  }
  EXPECT_TRUE(verifyComms(table, Fifo::Edge).deadlockFree);
}

// #178815, row 3: torch's expected table of deferred receives.
TEST(TorchLog, Row3DeferredReceives) {
  const std::string expected =
      row("0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1") +
      row("1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1");
  Result<Program> order = oneForwardOneBackward(pipeline(2, 2));
  ASSERT_TRUE(order);
  EXPECT_EQ(textOf(deferReceivesAsTorch(insertTransfersAsTorch(*order))),
            expected);
  const TorchTable table = read(expected);
  EXPECT_FALSE(verifyComms(table, Fifo::Rank).deadlockFree);
  const Verdict verdict = verifyComms(table, Fifo::Pair);
  EXPECT_FALSE(verdict.deadlockFree);
  EXPECT_EQ(verdict.minCapacity, 1);
  const std::vector<std::string> cycle = cellsOfCycle(table, verdict);
  EXPECT_EQ(cycle.size(), 4u);
  for (const char *cell :
       {"rank 0, cell 3 (0SEND_F1)", "rank 1, cell 3 (1SEND_B0)"})
    EXPECT_EQ(std::count(cycle.begin(), cycle.end(), cell), 1) << cell;
  EXPECT_TRUE(verifyComms(table, Fifo::Edge).accepted());
}

// #178815, row 3: with ZBV, p = 2, m = 3, deferral makes the order of receives
// other than that of sends, so that NCCL swaps an activation and a gradient,
// whatever the communicators.
TEST(TorchLog, Row3DeferredReceivesSwapTensors) {
  const TorchTable table = read(
      textOf(deferReceivesAsTorch(insertTransfersAsTorch(inV(2, 3, zbV)))));
  for (Fifo fifo : {Fifo::Rank, Fifo::Pair, Fifo::Edge}) {
    const Verdict verdict = verifyComms(table, fifo);
    ASSERT_FALSE(verdict.accepted());
    EXPECT_EQ(verdict.findings[0].rule, Rule::Structure);
    EXPECT_EQ(verdict.findings[0].message.substr(0, 37),
              "`send activation 0 mb 2 to 1` arrives");
  }
  // Without deferral torch's own order is right.
  const TorchTable before = asTorchRunsIt(inV(2, 3, zbV));
  for (Fifo fifo : {Fifo::Rank, Fifo::Pair, Fifo::Edge})
    EXPECT_TRUE(verifyComms(before, fifo).accepted());
}

// #188833, #165664, row 4: a receive far ahead of its data holds the sends
// behind it back: 172 instead of 117 units, 124 instead of 69. The other
// figures are of the same model.
TEST(TorchLog, Row4HeadOfLineReceives) {
  struct {
    Program order;
    double ideal, torch;
  } cases[] = {
      {interleaved(8, 2, 16), 117, 172}, {interleaved(8, 2, 8), 69, 124},
      {interleaved(2, 2, 4), 27, 27},    {interleaved(4, 2, 8), 57, 70},
      {interleaved(4, 4, 16), 201, 237}, {loopedBFS(4, 2, 8), 57, 77},
      {inV(4, 8, zbV), 51, 55},          {inV(4, 10, dualPipeV), 66, 88},
  };
  for (auto &[order, ideal, torch] : cases) {
    const std::optional<Timing> played = simulateOrder(order);
    ASSERT_TRUE(played);
    EXPECT_EQ(played->makespan, ideal);
    const TorchTable table = asTorchRunsIt(order);
    for (Fifo fifo : {Fifo::Rank, Fifo::Pair, Fifo::Edge}) {
      const Program program = withFifos(table, fifo);
      EXPECT_TRUE(verify(program).accepted());
      const std::optional<Timing> timing = simulateProgram(program);
      ASSERT_TRUE(timing);
      EXPECT_EQ(timing->makespan, fifo == Fifo::Rank ? torch : ideal)
          << name(fifo);
    }
    // Penstock's own order of transfers reaches the ideal in torch too.
    ASSERT_TRUE(insertTransfers(order));
    const Program ours = withFifos(read(csv(order)), Fifo::Rank);
    EXPECT_TRUE(verify(ours).accepted());
    const std::optional<Timing> timing = simulateProgram(ours);
    ASSERT_TRUE(timing);
    EXPECT_EQ(timing->makespan, ideal);
  }
}

// torchtitan#775, #144702, row 5: 1F1B with fewer micro-batches than ranks.
TEST(TorchLog, Row5FewMicrobatches) {
  std::string text;
  for (int s = 0; s < 4; ++s) {
    const std::string n = std::to_string(s);
    const std::vector<std::string> cells =
        s < 3 ? std::vector<std::string>{"F0", "F1", "B0", "B1"}
              : std::vector<std::string>{"F0", "B0", "F1", "B1"};
    for (const std::string &cell : cells)
      text += n + cell + (cell == "B1" ? '\n' : ',');
  }
  EXPECT_TRUE(verifyOrder(text).accepted());
  Result<Program> order = oneForwardOneBackward(pipeline(4, 2));
  ASSERT_TRUE(order);
  EXPECT_EQ(csv(*order), text);

  order = oneForwardOneBackward(pipeline(8, 1));
  ASSERT_TRUE(order);
  EXPECT_TRUE(verifyOrder(csv(*order)).accepted());
  ASSERT_TRUE(insertTransfers(*order));
  EXPECT_TRUE(verifyComms(read(csv(*order)), Fifo::Rank).accepted());
}

// AMD-AGI/Primus#1003, row 6: a backward of a micro-batch that there is not.
TEST(TorchLog, Row6WarmUpNotClamped) {
  const std::string text = row("0F0 0F1 0B0 0B1 0B2") + row("1F0 1F1 1B0 1B1") +
                           row("2F0 2F1 2B0 2B1") + row("3F0 3B0 3F1 3B1");
  EXPECT_EQ(firstOfOrder(text), "structure: rank 0, cell 4 (0B2): the "
                                "micro-batch is 2; it must be 0 to 1");
}

// #129597, row 7: micro-batches that are no multiple of the ranks.
TEST(TorchLog, Row7InterleavedWithFewMicrobatches) {
  const TorchTable table = read(csv(interleaved(4, 2, 3)));
  EXPECT_TRUE(verifyOrder(table).accepted());
  const std::optional<Timing> timing = simulateOrder(table.program);
  ASSERT_TRUE(timing);
  EXPECT_EQ(timing->makespan, 30);
  // torch's rounds, R = 2 for m = 9, must divide m; here the last is shorter.
  const TorchTable remainder = read(csv(interleaved(4, 2, 9)));
  EXPECT_TRUE(verifyOrder(remainder).accepted());
  for (Fifo fifo : {Fifo::Rank, Fifo::Pair, Fifo::Edge})
    EXPECT_TRUE(
        verifyComms(asTorchRunsIt(interleaved(4, 2, 9)), fifo).accepted())
        << name(fifo);
}

// torchtitan#774, row 8: ZBV run with the placement of a loop.
TEST(TorchLog, Row8WrongPlacement) {
  const std::string text = csv(inV(4, 8, zbV));
  EXPECT_TRUE(verifyOrder(read(text, TorchPlacement::V)).accepted());
  const TorchTable table = read(text, TorchPlacement::Loop);
  const Verdict verdict = verifyOrder(table);
  ASSERT_FALSE(verdict.accepted());
  const auto isStage7 = [](const Finding &finding) {
    return finding.rule == Rule::Completeness && finding.site.rank == 0 &&
           finding.message == "is on the wrong rank: stage 7 of micro-batch 0 "
                              "is on rank 3; move it there";
  };
  EXPECT_EQ(
      std::count_if(verdict.findings.begin(), verdict.findings.end(), isStage7),
      3) // F, I and W
      << first(table, verdict);
}

// torchtitan#568, row 9: a schedule for one stage a rank, chosen for two.
TEST(TorchLog, Row9SingleStageScheduleForLoopedStages) {
  const Result<Program> order = oneForwardOneBackward(loopedPipeline(4, 2, 8));
  ASSERT_FALSE(order);
  EXPECT_EQ(order.message(),
            "one_f_one_b: needs one stage on every rank, but there are 8 "
            "stages and 4 ranks; make the numbers equal");
}

// #127796, row 10: looped breadth-first, whose sends wrap around.
TEST(TorchLog, Row10LoopedBreadthFirst) {
  const std::string text =
      row("0F0 0F1 0F2 0F3 2F0 2F1 2F2 2F3 2B3 2B2 2B1 2B0 0B3 0B2 0B1 0B0") +
      row("1F0 1F1 1F2 1F3 3F0 3F1 3F2 3F3 3B3 3B2 3B1 3B0 1B3 1B2 1B1 1B0");
  EXPECT_EQ(csv(loopedBFS(2, 2, 4)), text);
  TorchTable table = read(text);
  EXPECT_TRUE(verifyOrder(table).accepted());
  ASSERT_TRUE(insertTransfers(table.program));
  EXPECT_TRUE(verify(table.program).accepted());
  for (Fifo fifo : {Fifo::Rank, Fifo::Pair, Fifo::Edge})
    EXPECT_TRUE(verifyComms(read(csv(table.program)), fifo).accepted());
}

// #195760, row 11: on one communicator a receive waits behind sends that it
// does not need.
TEST(TorchLog, Row11ReceiveBehindUnrelatedSends) {
  const TorchTable table = read(
      row("0F0 0SEND_F0 0F1 0SEND_F1 4RECV_F0 4F0 4SEND_F0 4RECV_F1 4F1 "
          "4SEND_F1") +
      row("1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1 5RECV_F0 5F0 5SEND_F0 "
          "5RECV_F1 5F1 5SEND_F1") +
      row("2RECV_F0 2F0 2SEND_F0 2RECV_F1 2F1 2SEND_F1 6RECV_F0 6F0 6SEND_F0 "
          "6RECV_F1 6F1 6SEND_F1") +
      row("3RECV_F0 3F0 3SEND_F0 3RECV_F1 3F1 3SEND_F1 7RECV_F0 7F0 7RECV_F1 "
          "7F1"));
  ASSERT_EQ(describeCell(table, {0, 3}), "rank 0, cell 3 (0SEND_F1)");
  ASSERT_EQ(describeCell(table, {0, 4}), "rank 0, cell 4 (4RECV_F0)");
  for (Fifo fifo : {Fifo::Rank, Fifo::Pair, Fifo::Edge}) {
    const Program program = withFifos(table, fifo);
    const auto &insts = program.ranks[0].instructions;
    const bool waits =
        insts[3].queue == insts[4].queue || insts[3].comm == insts[4].comm;
    // Stage 4 comes from rank 3: another pair.
    EXPECT_EQ(waits, fifo == Fifo::Rank) << name(fifo);
    EXPECT_TRUE(checkDeadlock(program, Semantics::Closure).ok);
  }
}

// NVIDIA/nccl#479, row 13: both ranks send first; fine as groups.
TEST(TorchLog, Row13BothSendFirst) {
  std::ifstream in(PENSTOCK_SOURCE_DIR "/test/cases/deadlock.json");
  const Result<std::vector<Case>> cases =
      readCases(std::string(std::istreambuf_iterator<char>(in), {}));
  ASSERT_TRUE(cases) << cases.message();
  auto closureOf = [&](const char *id) {
    for (const Case &c : *cases)
      if (c.id == id)
        return checkDeadlock(c.program, Semantics::Closure).ok;
    ADD_FAILURE() << id;
    return false;
  };
  EXPECT_FALSE(closureOf("C01"));
  EXPECT_TRUE(closureOf("C01fix"));
}

// pytorch/PiPPy#969, #127964, #179293, row 14: the receives of a skip
// connection and of the neighbour, posted as one.
TEST(TorchLog, Row14SkipConnectionWithABatchedReceive) {
  auto ends = [](const std::string &rank2) {
    const Result<std::vector<Case>> cases = readCases(
        R"({"schema": "penstock-deadlock-cases", "version": 1, "cases": [
            {"id": "skip", "programs": {
              "0": [{"queue": "q", "op": "send", "comm": "w", "peer": 2, "message": "skip"},
                    {"queue": "q", "op": "send", "comm": "w", "peer": 1, "message": "x"}],
              "1": [{"queue": "q", "op": "recv", "comm": "w", "peer": 0, "message": "x"},
                    {"queue": "q", "op": "send", "comm": "w", "peer": 2, "message": "y"}],
              "2": [)" +
        rank2 + "]}}]}");
    EXPECT_TRUE(cases) << cases.message();
    return cases &&
           checkDeadlock(cases->front().program, Semantics::Closure).ok;
  };
  EXPECT_FALSE(ends(
      R"({"queue": "q", "op": "group", "members": [
          {"op": "recv", "comm": "w", "peer": 0, "message": "skip"},
          {"op": "recv", "comm": "w", "peer": 1, "message": "y"}]})"));
  EXPECT_TRUE(ends(
      R"({"queue": "q", "op": "recv", "comm": "w", "peer": 0, "message": "skip"},
         {"queue": "q", "op": "recv", "comm": "w", "peer": 1, "message": "y"})"));
}

// pytorch/PiPPy#1088, #127332, row 15: interleaved 1F1B at the border of
// warm-up and steady state.
TEST(TorchLog, Row15InterleavedBorder) {
  for (const Program &order : {interleaved(2, 2, 4), interleaved(4, 2, 8)}) {
    const TorchTable table = asTorchRunsIt(order);
    for (Fifo fifo : {Fifo::Rank, Fifo::Pair, Fifo::Edge})
      EXPECT_TRUE(verifyComms(table, fifo).accepted());
  }
}

// #139404, row 17: ReorderedB of torch's tests.
TEST(TorchLog, Row17ReorderedBackwards) {
  const TorchTable table =
      read(row("0F0 0F1 0SEND_F0 0SEND_F1 0RECV_B0 0RECV_B1 0B0 0B1") +
           row("1RECV_F0 1RECV_F1 1F0 1F1 1B0 1B1 1SEND_B0 1SEND_B1"));
  for (Fifo fifo : {Fifo::Rank, Fifo::Pair, Fifo::Edge})
    EXPECT_TRUE(verifyComms(table, fifo).accepted());
}

// #164756, #164775, #165467, row 18: what a rank gathers it drops before it
// gathers that again; a window as wide as its stages gathers each once.
TEST(TorchLog, Row18EpisodesOfUnshard) {
  auto episodes = [](const Program &order, size_t window) {
    const TorchTable table = read(textOf(insertTransfersAsTorch(
        insertShardingAsTorch(order, window), order.problem)));
    const Verdict verdict = verifyComms(table, Fifo::Pair);
    EXPECT_TRUE(verdict.accepted()) << first(table, verdict);
    std::vector<int> number(order.problem.numStages(), 0);
    for (const RankProgram &rank : table.program.ranks)
      for (const Instruction &inst : rank.instructions)
        number[inst.stage] += inst.op == Op::Unshard;
    return number;
  };
  EXPECT_EQ(episodes(interleaved(2, 4, 4), 3)[0], 4);
  EXPECT_EQ(episodes(interleaved(2, 4, 4), 4), std::vector<int>(8, 1));
  EXPECT_EQ(episodes(interleaved(4, 4, 16), 3)[15], 4);

  TorchTable table = read(row("0UNSHARD 0UNSHARD 0F0 0B0 0RESHARD"));
  EXPECT_EQ(first(table, verifyComms(table, Fifo::Rank)),
            "data-flow: rank 0, cell 1 (0UNSHARD): gathers the parameters of "
            "stage 0, which are gathered already; reshard them between, or "
            "remove this");
  table = read(row("0UNSHARD 0F0 0RESHARD 0B0"));
  EXPECT_EQ(first(table, verifyComms(table, Fifo::Rank)),
            "data-flow: rank 0, cell 3 (0B0): needs the parameters of stage 0, "
            "which `reshard 0` has dropped; unshard them again before");
}

// torch raises on each of these: W asserts gathered parameters, RESHARD that a
// compute action has waited for them, and the end of the step that one has
// waited for every UNSHARD (torch.md 4.1).
TEST(TorchLog, UnshardWithoutUse) {
  auto fault = [](const char *cells) {
    const TorchTable table = read(row(cells));
    return first(table, verifyComms(table, Fifo::Rank));
  };
  EXPECT_EQ(fault("0UNSHARD 0F0 0I0 0RESHARD 0W0 0REDUCE_GRAD"),
            "data-flow: rank 0, cell 4 (0W0): needs the parameters of stage 0, "
            "which `reshard 0` has dropped; unshard them again before");
  EXPECT_EQ(fault("0UNSHARD 0RESHARD 0UNSHARD 0F0 0B0 0REDUCE_GRAD 0RESHARD"),
            "data-flow: rank 0, cell 1 (0RESHARD): drops the parameters of "
            "stage 0, which no action has needed since `unshard 0` has "
            "gathered them; remove both, or put the actions of the stage "
            "between");
  EXPECT_EQ(fault("0UNSHARD 0F0 0B0 0REDUCE_GRAD 0RESHARD 0UNSHARD"),
            "data-flow: rank 0, cell 5 (0UNSHARD): gathers the parameters of "
            "stage 0, which no action behind it needs; remove it");
  // What stays gathered after use is no fault there.
  EXPECT_EQ(fault("0UNSHARD 0F0 0I0 0W0 0REDUCE_GRAD"), "accepted");
}

// #196706, row 19: with a second window parameters are gathered later, and
// dropped where they were.
TEST(TorchLog, Row19UnshardLookahead) {
  Program program = interleaved(2, 4, 4);
  ASSERT_TRUE(insertTransfers(program));
  auto rows = [&](int32_t active, int32_t lookahead) {
    TorchCsvOptions options;
    options.activeStages = active;
    options.lookahead = lookahead;
    Result<std::string> text = writeTorchCsv(program, options);
    EXPECT_TRUE(text) << text.message();
    const TorchTable table = read(*text);
    const Verdict verdict = verifyComms(table, Fifo::Pair);
    EXPECT_TRUE(verdict.accepted()) << first(table, verdict);
    return table.program.ranks;
  };
  // By the number of other cells before them.
  auto positions = [](const RankProgram &rank, Op op) {
    std::vector<std::pair<size_t, int32_t>> found;
    size_t others = 0;
    for (const Instruction &inst : rank.instructions)
      if (inst.op == op)
        found.emplace_back(others, inst.stage);
      else
        others += inst.op != Op::Unshard && inst.op != Op::Reshard;
    return found;
  };
  const auto full = rows(3, TorchCsvOptions::kAll), two = rows(3, 2);
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(positions(two[r], Op::Reshard), positions(full[r], Op::Reshard));
    const auto early = positions(full[r], Op::Unshard),
               late = positions(two[r], Op::Unshard);
    ASSERT_EQ(early.size(), late.size());
    size_t numLater = 0;
    for (size_t k = 0; k < late.size(); ++k) {
      EXPECT_EQ(early[k].second, late[k].second);
      EXPECT_LE(early[k].first, late[k].first);
      numLater += early[k].first < late[k].first;
    }
    EXPECT_GT(numLater, 0u);
  }

  // "auto": p = 4, window 4, as many ahead as 2, 3, 4 and 4 stages.
  program = interleaved(4, 4, 4);
  ASSERT_TRUE(insertTransfers(program));
  const auto byRank = rows(4, TorchCsvOptions::kByRank);
  std::vector<int> ahead;
  for (const RankProgram &rank : byRank) {
    ahead.push_back(0);
    for (const Instruction &inst : rank.instructions) {
      if (isAction(inst.op))
        break;
      ahead.back() += inst.op == Op::Unshard;
    }
  }
  EXPECT_EQ(ahead, (std::vector<int>{2, 3, 4, 4}));
}

// #193903, #194120 to #194122, #128910, row 20: an activation that was sent is
// kept to the end of the step, where it is needed until its own backward only.
TEST(TorchLog, Row20SentActivationsAreFreed) {
  Program program = interleaved(4, 4, 64);
  ASSERT_TRUE(insertTransfers(program));
  std::vector<int64_t> sent, peak;
  for (const RankProgram &rank : program.ranks) {
    int64_t all = 0, kept = 0, most = 0;
    std::set<std::pair<int32_t, int32_t>> held;
    for (const Instruction &inst : rank.instructions) {
      const std::pair key(inst.stage, inst.microbatch);
      if (inst.op == Op::Send && inst.payload == Payload::Activation) {
        held.insert(key);
        ++all;
        most = std::max(most, ++kept);
      }
      if (inst.op == Op::Backward)
        kept -= static_cast<int64_t>(held.erase(key));
    }
    sent.push_back(all);
    peak.push_back(most);
  }
  EXPECT_EQ(sent, (std::vector<int64_t>{256, 256, 256, 192}));
  EXPECT_EQ(peak, (std::vector<int64_t>{19, 17, 15, 13}));
}

/// The most receives of each rank that are posted and not read yet.
std::vector<int> mostPosted(const Program &program) {
  std::vector<int> result;
  for (const RankProgram &rank : program.ranks) {
    std::set<std::tuple<TensorKind, int32_t, int32_t>> posted;
    size_t most = 0;
    for (const Instruction &inst : rank.instructions)
      forEachAccess(
          inst, program.problem.numStages(), [&](const Access &access) {
            const std::tuple key(access.tensor.kind, access.tensor.stage,
                                 access.tensor.microbatch);
            if (inst.op == Op::Recv)
              posted.insert(key);
            else if (access.mode == Access::Read && inst.op != Op::Send)
              posted.erase(key);
            most = std::max(most, posted.size());
          });
    result.push_back(static_cast<int>(most));
  }
  return result;
}

// #136380, #193872, #196463, row 22: a receive buffer for every micro-batch,
// where few are posted and not read at once.
TEST(TorchLog, Row22FewReceivesArePosted) {
  auto ofTorch = [](const Program &order) {
    return mostPosted(asTorchRunsIt(order).program);
  };
  EXPECT_EQ(ofTorch(*gpipe(pipeline(2, 64))), (std::vector{1, 1}));
  EXPECT_EQ(ofTorch(*oneForwardOneBackward(pipeline(4, 64))),
            (std::vector{1, 2, 2, 1}));
  EXPECT_EQ(ofTorch(interleaved(4, 4, 64)), (std::vector{4, 4, 3, 4}));
  EXPECT_EQ(ofTorch(inV(4, 10, dualPipeV)), (std::vector{3, 4, 4, 2}));
}

// #126600, #159942, torchtitan#431, rows 23 and 24: micro-batches of different
// sizes. A stage has one size, and a transfer of another is refused.
TEST(TorchLog, Row23SizesByMicrobatch) {
  Problem problem = pipeline(3, 3);
  for (Stage &stage : problem.stages)
    stage.bytes.output = 300;
  Program program = *oneForwardOneBackward(problem);
  ASSERT_TRUE(insertTransfers(program));
  EXPECT_TRUE(verify(program).accepted());
  for (RankProgram &rank : program.ranks)
    for (Instruction &inst : rank.instructions)
      if (isTransfer(inst.op) && inst.microbatch == 2)
        inst.bytes = 200;
  Verdict verdict = verify(program);
  ASSERT_FALSE(verdict.accepted());
  EXPECT_EQ(verdict.findings[0].message,
            "moves 200 bytes, but activation 0 mb 2 has 300 in the stage "
            "table; make them equal");
}

// #144530, row 29: gradients are reduced after the last W, not the last I.
TEST(TorchLog, Row29ReduceAfterTheLastW) {
  Result<Program> order = interleavedZB(loopedPipeline(2, 2, 4));
  ASSERT_TRUE(order);
  ASSERT_TRUE(insertTransfers(*order));
  const TorchTable table = read(csv(*order));
  EXPECT_TRUE(verifyComms(table, Fifo::Pair).accepted());
  for (const RankProgram &rank : table.program.ranks) {
    std::vector<int> weights(4, 0);
    for (const Instruction &inst : rank.instructions) {
      weights[std::max(inst.stage, 0)] += inst.op == Op::BackwardWeight;
      if (inst.op == Op::ReduceGrad) {
        EXPECT_EQ(std::exchange(weights[inst.stage], -1), 4);
      }
    }
    EXPECT_EQ(std::count(weights.begin(), weights.end(), -1), 2);
  }
  const TorchTable early =
      read(row("0UNSHARD 0F0 0I0 0REDUCE_GRAD 0W0 0RESHARD"));
  EXPECT_EQ(first(early, verifyComms(early, Fifo::Rank)),
            "data-flow: rank 0, cell 4 (0W0): adds a weight gradient of stage "
            "0 after `reduce_grad 0` has used them; put it before that");
}

// torchtitan#773, #136766, #138119, row 30: with full recomputation both I and
// W run the forward again.
TEST(TorchLog, Row30ZeroBubbleIsSlowerWithRecomputation) {
  StageCost fused, split;
  fused.forward = split.forward = 1;
  fused.backward = 1 + 2;
  split.input = split.weight = 1 + 1;
  const auto plain =
      simulateOrder(*interleaved1F1B(loopedPipeline(8, 2, 16, fused), 8));
  const auto zero =
      simulateOrder(*interleavedZB(loopedPipeline(8, 2, 16, split)));
  ASSERT_TRUE(plain && zero);
  EXPECT_GT(zero->makespan, plain->makespan);
}

// torchtitan#1682, #1721, row 32: F and B of a container together take the sum
// of their times, or less where their computing and communicating interleave.
TEST(TorchLog, Row32OverlapTakesTheSumOrLess) {
  Program order = inV(4, 10, dualPipeV);
  EXPECT_EQ(simulateOrder(order)->makespan, 66);
  order.problem.overlap = 0.5; // F is half of B: 2.5 for both
  const double half = simulateOrder(order)->makespan;
  order.problem.overlap = 1; // 2
  const double whole = simulateOrder(order)->makespan;
  EXPECT_LT(half, 66);
  EXPECT_LT(whole, half);
  EXPECT_GE(whole, 40) << "the 20 B of a rank";

  // The program takes no longer, and verifies as torch runs it.
  ASSERT_TRUE(insertTransfers(order));
  ASSERT_TRUE(planBuffers(order));
  EXPECT_EQ(simulateProgram(order)->makespan, whole);
  const TorchTable table = read(csv(order));
  size_t numContainers = 0;
  for (const RankProgram &rank : table.program.ranks)
    for (const Instruction &inst : rank.instructions)
      numContainers += inst.joined;
  EXPECT_GT(numContainers, 0u);
  const Verdict verdict = verifyComms(table, Fifo::Rank);
  EXPECT_TRUE(verdict.accepted()) << first(table, verdict);
}

// #138134, #130488, row 34: whatever torch puts into a table is simulated.
TEST(TorchLog, Row34EveryActionIsSimulated) {
  for (const Program &order : {interleaved(4, 2, 8), inV(4, 10, dualPipeV)}) {
    const TorchTable table = asTorchRunsIt(order);
    std::set<Op> ops;
    for (const RankProgram &rank : table.program.ranks)
      for (const Instruction &inst : rank.instructions)
        ops.insert(inst.op);
    for (Op op : {Op::Send, Op::Recv, Op::Unshard, Op::Reshard, Op::ReduceGrad})
      EXPECT_TRUE(ops.contains(op));
    const auto ideal = simulateOrder(order);
    const auto timing = simulateProgram(withFifos(table, Fifo::Edge));
    ASSERT_TRUE(ideal && timing);
    EXPECT_GE(timing->makespan, ideal->makespan);
  }
}

// uw-syfi/piper#13, torchtitan#4486, #51931, row 35: the embedding of the first
// stage is the head of the last one.
TEST(TorchLog, Row35TiedStages) {
  auto lowered = [](Problem problem, std::vector<int32_t> placement) {
    problem.placement = std::move(placement);
    problem.tied = {{{0, problem.numStages() - 1}, 4096}};
    Result<Program> order = interleaved1F1B(problem);
    if (problem.placement.back() == 0)
      order = zbV(problem);
    EXPECT_TRUE(order) << order.message();
    appendSteps(*order);
    EXPECT_TRUE(insertTransfers(*order));
    return *order;
  };
  auto sums = [](const Program &program) {
    std::vector<size_t> found; // behind so many actions
    for (const RankProgram &rank : program.ranks) {
      size_t actions = 0;
      for (const Instruction &inst : rank.instructions) {
        actions += isAction(inst.op);
        if (inst.op == Op::ReduceTied)
          found.push_back(actions);
      }
    }
    return found;
  };
  // On one rank there is nothing to add up.
  Program program = lowered(loopedPipeline(2, 2, 4), placeSnake(4, 2));
  EXPECT_TRUE(sums(program).empty());
  EXPECT_TRUE(verify(program).accepted());
  // On ranks 0 and 3 behind all 2 x 2 x 4 actions.
  program = lowered(loopedPipeline(4, 2, 4), placeLoop(8, 4));
  EXPECT_EQ(sums(program), (std::vector<size_t>{16, 16}));
  EXPECT_TRUE(verify(program).accepted());
  Program wrong = program;
  for (RankProgram &rank : wrong.ranks)
    std::erase_if(rank.instructions, [](const Instruction &inst) {
      return inst.op == Op::ReduceTied;
    });
  numberRankSets(wrong);
  const Verdict verdict = verify(wrong);
  ASSERT_FALSE(verdict.accepted());
  EXPECT_EQ(verdict.findings.front().message,
            "`reduce_tied 0` is missing on rank 0: stages 0, 7 use one "
            "parameter on ranks 0, 3, each with a part of its gradients, while "
            "`step` on rank 0 uses gradients; add them up on all these ranks");
}

// #155935, row 33: the table that torch shows for 1F1B is off by one on the
// last rank.
TEST(TorchLog, Row33DisplayTableIsOffByOne) {
  EXPECT_EQ(firstOfOrder(row("0F0 0F1 0B0 0B1") + row("1F1 1B0 1F2 1B1")),
            "structure: rank 1, cell 2 (1F2): the micro-batch is 2; it must be "
            "0 to 1");
  EXPECT_EQ(firstOfOrder(row("0F0 0F1 0B0 0B1") + row("1F1 1B0 1B1")),
            "completeness: rank 1: `forward 1 mb 0` is missing on rank 1; add "
            "it");
}

// #174288, #174942, row 36: one group with more than 256 transfers hangs in
// NCCL. Penstock groups two opposite transfers at most.
TEST(TorchLog, Row36GroupsAreSmall) {
  Program program = loopedBFS(2, 2, 300);
  ASSERT_TRUE(insertTransfers(program));
  size_t largest = 0, groups = 0;
  for (const RankProgram &rank : program.ranks)
    for (uint32_t i = 0, end; i < rank.instructions.size(); i = end) {
      end = itemEnd(rank.instructions, i);
      if (!isTransfer(rank.instructions[i].op))
        continue;
      largest = std::max<size_t>(largest, end - i);
      groups += end - i > 1;
    }
  EXPECT_LE(largest, 2u);
  EXPECT_GT(groups, 0u);
}

//===----------------------------------------------------------------------===//
// Tables of torch's tests
//===----------------------------------------------------------------------===//

// Stages of unequal number, and a rank that waits for itself.
TEST(TorchLog, UnbalancedTable) {
  const std::string text = "0F0,1F0,,,4F0,4B0,,,1B0,0B0\n"
                           ",,2F0,3F0,,,3B0,2B0\n";
  TorchTable table = read(text);
  EXPECT_TRUE(verifyOrder(table).accepted());
  EXPECT_EQ(table.program.problem.placement,
            (std::vector<int32_t>{0, 0, 1, 1, 0}));
  ASSERT_TRUE(insertTransfers(table.program));
  EXPECT_TRUE(verify(table.program).accepted());
  EXPECT_TRUE(verifyComms(read(csv(table.program)), Fifo::Rank).accepted());
}

//===----------------------------------------------------------------------===//
// Tables that torch accepts and that are wrong
//===----------------------------------------------------------------------===//

TEST(TorchNegative, Cyclic) {
  const TorchTable table =
      read(row("0F0 0B0 0F1 0B1") + row("1F0 1F1 1B0 1B1"));
  const Verdict verdict = verifyOrder(table);
  ASSERT_EQ(verdict.findings.size(), 1u);
  EXPECT_EQ(verdict.findings[0].rule, Rule::Deadlock);
  const std::vector<std::string> cycle = cellsOfCycle(table, verdict);
  for (const char *cell : {"rank 0, cell 1 (0B0)", "rank 1, cell 1 (1F1)"})
    EXPECT_EQ(std::count(cycle.begin(), cycle.end(), cell), 1) << cell;
}

// Ranks 0, 1 and 2 wait in a circle, and so do 3 and 4: the shorter one is
// told.
TEST(TorchNegative, TwoCycles) {
  const TorchTable table = read(
      row("0F0 3F0 3F1 0F1 3B0 0B0 3B1 0B1") + row("1F0 1F1 1B0 1B1") +
      row("2F0 2F1 2B0 2B1") + row("4F0 4B0 4F1 4B1") + row("5F0 5F1 5B0 5B1"));
  EXPECT_EQ(cellsOfCycle(table, verifyOrder(table)),
            (std::vector<std::string>{
                "rank 3, cell 1 (4B0)", "rank 4, cell 2 (5B0)",
                "rank 4, cell 1 (5F1)", "rank 3, cell 2 (4F1)"}));
}

TEST(TorchNegative, Duplicate) {
  EXPECT_EQ(firstOfOrder(row("0F0 0F0 0B0")),
            "completeness: rank 0, cell 1 (0F0): is here a second time; remove "
            "one");
  EXPECT_EQ(firstOfOrder(row("0F0 0B0 0B0")),
            "completeness: rank 0, cell 2 (0B0): is here a second time, its "
            "weight gradient would count twice; remove one");
}

TEST(TorchNegative, OnlyMicrobatch5) {
  EXPECT_EQ(firstOfOrder(row("0F5 0B5")),
            "completeness: rank 0: `forward 0 mb 0` is missing on rank 0; add "
            "it");
}

TEST(TorchNegative, BackwardTwiceAndNever) {
  const TorchTable table = read(row("0F0 0F1 0I0 0W0 0B0"));
  const Verdict verdict = verifyOrder(table);
  ASSERT_EQ(verdict.findings.size(), 2u);
  EXPECT_EQ(first(table, verdict),
            "completeness: rank 0, cell 3 (0W0): repeats a part of `backward 0 "
            "mb 0`, the weight gradient would count twice; keep the whole "
            "backward or its two parts");
  EXPECT_EQ(verdict.findings[1].message.substr(0, 47),
            "stage 0 of micro-batch 1 has no backward on ran");
}

// Legal in Penstock; torch would pair the losses wrong.
TEST(TorchNegative, ForwardsOfTheLastStageOutOfOrder) {
  const TorchTable table =
      read(row("0F0 0F1 0B0 0B1") + row("1F1 1F0 1B0 1B1"));
  const Verdict verdict = verifyOrder(table);
  EXPECT_TRUE(verdict.accepted());
  ASSERT_EQ(verdict.warnings.size(), 1u);
  EXPECT_EQ(describeCell(table, verdict.warnings[0].site),
            "rank 1, cell 1 (1F0)");
}

TEST(TorchNegative, SendMissing) {
  const TorchTable table =
      read(row("0F0 0RECV_B0 0B0") + row("1RECV_F0 1F0 1B0 1SEND_B0"));
  for (Fifo fifo : {Fifo::Rank, Fifo::Pair, Fifo::Edge}) {
    const Verdict verdict = verifyComms(table, fifo);
    EXPECT_EQ(first(table, verdict).substr(0, 60),
              "structure: rank 1, cell 0 (1RECV_F0): no send matches this: ");
    EXPECT_FALSE(verdict.deadlockFree);
  }
}

TEST(TorchNegative, Text) {
  for (const char *cell : {"2BW0", "0F", "0F0xyz"}) {
    const Result<TorchTable> table = readTorchCsv(cell);
    ASSERT_FALSE(table);
    EXPECT_EQ(table.message().substr(0, 36),
              "line 1, column 1 (rank 0, cell 0): `");
  }
}

TEST(TorchNegative, TrailingBlankLine) {
  const Result<TorchTable> table = readTorchCsv("0F0,0B0\n1F0,1B0\n\n");
  ASSERT_FALSE(table);
  EXPECT_EQ(table.message(), "line 3: is a trailing blank line, which torch "
                             "counts as one more rank; delete it");
}

//===----------------------------------------------------------------------===//
// Deferred receives deadlock in every table of these schedules
//===----------------------------------------------------------------------===//

TEST(TorchNegative, DeferredReceivesOnOnePairOfRanks) {
  auto ends = [](const Program &order, Fifo fifo) {
    const TorchTable table =
        read(textOf(deferReceivesAsTorch(insertTransfersAsTorch(order))));
    return checkDeadlock(withFifos(table, fifo), Semantics::Closure).ok;
  };
  for (int32_t p = 2; p <= 4; ++p)
    for (int32_t m : {2, 4, 8}) {
      EXPECT_FALSE(ends(*oneForwardOneBackward(pipeline(p, m)), Fifo::Pair))
          << p << ' ' << m;
      EXPECT_TRUE(ends(*gpipe(pipeline(p, m)), Fifo::Pair)) << p << ' ' << m;
      EXPECT_FALSE(ends(inV(p, m, zbV), Fifo::Pair)) << p << ' ' << m;
      if (m >= 2 * p) {
        EXPECT_FALSE(ends(inV(p, m, dualPipeV), Fifo::Pair)) << p << ' ' << m;
      }
      if (m % torchGroup(p, m) == 0) {
        EXPECT_FALSE(ends(interleaved(p, 2, m), Fifo::Pair)) << p << ' ' << m;
      }
      EXPECT_EQ(ends(loopedBFS(p, 2, m), Fifo::Pair), p > 2) << p << ' ' << m;
    }
}

} // namespace
