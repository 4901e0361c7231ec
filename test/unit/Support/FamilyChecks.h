//===- FamilyChecks.h - What every schedule family promises -----*- C++ -*-===//
//
// Orders written as in the literature, and the promises that hold for every
// family: complete, able to run, and still so, and as fast, when lowered.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_TEST_UNIT_SUPPORT_FAMILYCHECKS_H
#define PENSTOCK_TEST_UNIT_SUPPORT_FAMILYCHECKS_H

#include "Problems.h"

#include "penstock/Analysis/Simulate.h"
#include "penstock/Analysis/Timeline.h"
#include "penstock/Analysis/Verify.h"
#include "penstock/Lowering/Lowering.h"
#include "penstock/Program/Text.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

namespace penstock::test {

/// Numbers of micro-batches up to 64, for grids over all numbers of ranks: all
/// small ones, and some of the others.
inline constexpr int32_t kMicrobatches[] = {1, 2, 3,  4,  5,  6,
                                            7, 8, 13, 21, 31, 64};

/// A problem with `chunks` stages a rank, along the ranks and back.
inline Problem snake(int32_t numRanks, int32_t chunks, int32_t numMicrobatches,
                     StageCost stageCost = {}) {
  Problem problem = pipeline(numRanks * chunks, numMicrobatches, stageCost);
  problem.numRanks = numRanks;
  problem.placement = placeSnake(numRanks * chunks, numRanks);
  return problem;
}

/// A problem with one stage a rank on either of two chains.
inline Problem bothWays(int32_t numRanks, int32_t numMicrobatches,
                        StageCost stageCost = {}) {
  Problem problem = pipeline(numRanks, numMicrobatches, stageCost);
  placeBothWays(problem);
  return problem;
}

/// "0F0 1F0 (0F1&1B0)": stage, letter and micro-batch, pairs in parentheses.
inline std::string listing(const RankProgram &rank) {
  std::string text;
  const auto &list = rank.instructions;
  for (size_t i = 0; i < list.size(); ++i) {
    const bool more = i + 1 < list.size() && list[i + 1].joined;
    text += list[i].joined ? "&" : i > 0 ? " " : "";
    text += more && !list[i].joined ? "(" : "";
    text += std::to_string(list[i].stage) + letter(list[i].op) +
            std::to_string(list[i].microbatch);
    text += !more && list[i].joined ? ")" : "";
  }
  return text;
}

/// The lists of all ranks, each with its line end.
inline std::string listing(const Result<Program> &order) {
  std::string text = order ? "" : order.message();
  if (order)
    for (const RankProgram &rank : order->ranks)
      text += listing(rank) + '\n';
  return text;
}

inline std::string messagesOf(const Verdict &verdict) {
  std::string text;
  for (const Finding &finding : verdict.findings)
    text += finding.message + '\n';
  return text;
}

inline Timing simulated(const Result<Program> &order) {
  EXPECT_TRUE(order) << order.message();
  std::optional<Timing> timing = simulateOrder(*order);
  EXPECT_TRUE(timing);
  return timing ? *timing : Timing{};
}

/// The order is complete and runs; lowered it passes the verifier, and takes no
/// longer. Gives the timing of the order, whose transfers must be free.
inline Timing checked(const Result<Program> &order) {
  const Timing timing = simulated(order);
  VerifyOptions options;
  options.order = true;
  const Verdict asOrder = verify(*order, options);
  EXPECT_TRUE(asOrder.accepted()) << messagesOf(asOrder);
  Program program = *order;
  appendSteps(program);
  Result<TransferStatistics> transfers = insertTransfers(program);
  EXPECT_TRUE(transfers) << transfers.message();
  Result<BufferStatistics> buffers = planBuffers(program);
  EXPECT_TRUE(buffers) << buffers.message();
  const Verdict verdict = verify(program);
  EXPECT_TRUE(verdict.accepted()) << messagesOf(verdict);
  std::optional<Timing> lowered = simulateProgram(program);
  EXPECT_TRUE(lowered);
  if (lowered) {
    EXPECT_DOUBLE_EQ(lowered->makespan, timing.makespan);
  }
  return timing;
}

inline std::vector<int64_t> peaks(const Timing &timing) {
  std::vector<int64_t> result;
  for (const RankTiming &rank : timing.ranks)
    result.push_back(rank.peakActivations);
  return result;
}

/// Every I as B, without the W: nobody waits for W.
inline Program withoutSplit(Result<Program> order) {
  EXPECT_TRUE(order) << order.message();
  for (RankProgram &rank : order->ranks) {
    std::erase_if(rank.instructions, [](const Instruction &inst) {
      return inst.op == Op::BackwardWeight;
    });
    for (Instruction &inst : rank.instructions)
      if (inst.op == Op::BackwardInput)
        inst.op = Op::Backward;
  }
  return *order;
}

inline int64_t largestPeak(const Timing &timing) {
  int64_t peak = 0;
  for (const RankTiming &rank : timing.ranks)
    peak = std::max(peak, rank.peakActivations);
  return peak;
}

/// The time in the span that the busiest rank does not work.
inline double idle(const Timing &timing) {
  double busiest = 0;
  for (const RankTiming &rank : timing.ranks)
    busiest = std::max(busiest, rank.busy);
  return timing.span - busiest;
}

/// The timeline of an order as it stands in the comment of its family, whose
/// source file is named.
inline void expectTimelineInSource(const Result<Program> &order,
                                   const std::string &name) {
  std::string path = PENSTOCK_SOURCE_DIR "/lib/Schedule/Families/";
  path += name;
  path += ".cpp";
  std::ifstream file(path);
  std::ostringstream source;
  source << file.rdbuf();
  std::string comment;
  std::istringstream timeline(renderTimeline(*order, simulated(order), 72));
  for (std::string line; std::getline(timeline, line);)
    comment += "//   " + line + "\n";
  EXPECT_NE(source.str().find(comment), std::string::npos) << comment;
}

} // namespace penstock::test

#endif // PENSTOCK_TEST_UNIT_SUPPORT_FAMILYCHECKS_H
