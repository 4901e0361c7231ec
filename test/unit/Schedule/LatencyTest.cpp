//===- LatencyTest.cpp - What communication costs a family ----------------===//

#include "../Support/Families.h"
#include "../Support/FamilyChecks.h"

#include "penstock/Analysis/Verify.h"
#include "penstock/Lowering/Lowering.h"

using namespace penstock;
using namespace penstock::test;

namespace {

std::vector<PlacedFamily> allFamilies() {
  std::vector<PlacedFamily> all = {kNaive, kGPipe, kOneForwardOneBackward,
                                   kPipeDream, kPipeDream2BW};
  all.insert(all.end(), std::begin(kInOrder), std::end(kInOrder));
  all.insert(all.end(), std::begin(kInAnotherOrder), std::end(kInAnotherOrder));
  return all;
}

double makespanOf(const Program &order, TransferPlacement placement) {
  Program program = order;
  auto transfers = insertTransfers(program, {.placement = placement});
  EXPECT_TRUE(transfers) << transfers.message();
  auto buffers = planBuffers(program);
  EXPECT_TRUE(buffers) << buffers.message();
  program.problem.memory = 0; // that was for the plan
  const Verdict verdict = verify(program);
  EXPECT_TRUE(verdict.accepted())
      << (verdict.accepted() ? "" : verdict.findings[0].message);
  const auto timing = simulateProgram(program);
  EXPECT_TRUE(timing);
  return timing ? timing->makespan : 0;
}

// With torch's placement a receive stands where its sender was, often long
// before it is needed and in front of sends that are ready
// (pytorch/pytorch#188833, #165664).
TEST(Latency, FreeTransfersCostSomethingWithTorchsPlacement) {
  const Result<Program> order = interleaved1F1B(loopedPipeline(8, 2, 16), 8);
  ASSERT_TRUE(order);
  const double ideal = simulateOrder(*order)->makespan;
  EXPECT_EQ(makespanOf(*order, TransferPlacement::Time), ideal);
  EXPECT_EQ(ideal, 117);
  EXPECT_EQ(makespanOf(*order, TransferPlacement::Torch), 172);
  // Slots that are reused cost more here: with one for everything it is 237.
  const Result<Program> deep = interleaved1F1B(loopedPipeline(4, 4, 16), 4);
  ASSERT_TRUE(deep);
  EXPECT_EQ(makespanOf(*deep, TransferPlacement::Torch), 244);
}

// Free transfers: the program is as fast as the order.
TEST(Latency, FreeTransfersCostNothing) {
  for (const PlacedFamily &family : allFamilies())
    for (int32_t p : {2, 4, 8})
      for (int32_t m : {1, 3, 8, 16}) {
        SCOPED_TRACE(std::string(family.name) + " p=" + std::to_string(p) +
                     " m=" + std::to_string(m));
        Problem problem = loopedPipeline(p, family.chunks, m);
        family.place(problem);
        const Result<Program> order = family.make(problem);
        ASSERT_TRUE(order) << order.message();
        EXPECT_EQ(makespanOf(*order, TransferPlacement::Time),
                  simulateOrder(*order)->makespan);
      }
}

// Not where slots are so few that transfers wait for them either.
TEST(Latency, NeverAboveTorchsPlacementInLittleMemory) {
  for (const PlacedFamily &family : allFamilies())
    for (int32_t p : {4, 8})
      for (double latency : {0.25, 1.0}) {
        SCOPED_TRACE(std::string(family.name) + " p=" + std::to_string(p) +
                     " latency=" + std::to_string(latency));
        Problem problem = loopedPipeline(p, family.chunks, 7);
        problem.link.latency = latency;
        for (Stage &stage : problem.stages)
          stage.bytes = {1 << 14, 1 << 16, 1 << 12, 1 << 12, 1 << 13};
        family.place(problem);
        Result<Program> order = family.make(problem);
        ASSERT_TRUE(order) << order.message();
        const std::optional<Timing> timing = simulateOrder(*order);
        ASSERT_TRUE(timing);
        for (const RankTiming &rank : timing->ranks)
          order->problem.memory =
              std::max(order->problem.memory, rank.peakBytes);
        EXPECT_EQ(makespanOf(*order, TransferPlacement::Fastest),
                  std::min(makespanOf(*order, TransferPlacement::Time),
                           makespanOf(*order, TransferPlacement::Torch)));
      }
}

// Transfers that take time: never slower than with torch's placement.
TEST(Latency, NeverAboveTorchsPlacement) {
  size_t numSlower = 0, numFaster = 0;
  for (const PlacedFamily &family : allFamilies())
    for (int32_t p : {2, 4, 8})
      for (int32_t m : {1, 3, 8, 16})
        for (double latency : {0.25, 1.0, 3.0}) {
          SCOPED_TRACE(std::string(family.name) + " p=" + std::to_string(p) +
                       " m=" + std::to_string(m) +
                       " latency=" + std::to_string(latency));
          Problem problem = loopedPipeline(p, family.chunks, m);
          problem.link.latency = latency;
          family.place(problem);
          const Result<Program> order = family.make(problem);
          ASSERT_TRUE(order) << order.message();
          const double fastest = makespanOf(*order, TransferPlacement::Fastest);
          const double byTime = makespanOf(*order, TransferPlacement::Time);
          const double asTorch = makespanOf(*order, TransferPlacement::Torch);
          EXPECT_EQ(fastest, std::min(byTime, asTorch));
          numSlower += byTime > asTorch;
          numFaster += byTime < asTorch;
        }
  // Each is the faster one at times.
  EXPECT_GT(numSlower, 0u);
  EXPECT_GT(numFaster, numSlower);
  std::cout << numFaster << " faster by time, " << numSlower << " as torch\n";
}

} // namespace
