//===- LatencyTest.cpp - What communication costs a family ----------------===//

#include "../Support/FamilyChecks.h"

#include "penstock/Analysis/Verify.h"
#include "penstock/Lowering/Lowering.h"

using namespace penstock;
using namespace penstock::test;

namespace {

enum class Shape { Loop, Snake, BothWays };
struct Entry {
  const char *name;
  Result<Program> (*make)(const Problem &);
  Shape shape = Shape::Loop;
  int32_t chunks = 1; ///< stages a rank
};
const Entry kEntries[] = {
    {"naive", naive},
    {"gpipe", gpipe},
    {"gpipe_descending",
     [](const Problem &problem) {
       return gpipe(problem, {.descending = true, .recompute = true});
     }},
    {"one_f_one_b", oneForwardOneBackward},
    {"eager", eagerOneForwardOneBackward},
    {"zb_h1", zbH1},
    {"zb_h2", zbH2},
    {"breadth_first", breadthFirst, Shape::Loop, 2},
    {"interleaved_1f1b",
     [](const Problem &problem) { return interleaved1F1B(problem); },
     Shape::Loop, 3},
    {"interleaved_zb",
     [](const Problem &problem) { return interleavedZB(problem); }, Shape::Loop,
     2},
    {"gis", [](const Problem &problem) { return gis(problem); }, Shape::Loop,
     2},
    {"zb_v", zbV, Shape::Snake, 2},
    {"v_half", vHalf, Shape::Snake, 2},
    {"v_min", vMin, Shape::Snake, 2},
    {"dualpipe_v", dualPipeV, Shape::Snake, 2},
    {"hanayo", [](const Problem &problem) { return hanayo(problem, 2); },
     Shape::Snake, 4},
    {"dualpipe", dualPipe, Shape::BothWays},
    {"chimera", chimera, Shape::BothWays},
};

Problem problemOf(const Entry &entry, int32_t p, int32_t m, double latency) {
  Problem problem = entry.shape == Shape::Snake ? snake(p, entry.chunks, m)
                    : entry.shape == Shape::BothWays
                        ? bothWays(p, m)
                        : loopedPipeline(p, entry.chunks, m);
  problem.link.latency = latency;
  return problem;
}

double makespanOf(const Program &order, TransferPlacement placement) {
  Program program = order;
  auto transfers = insertTransfers(program, {.placement = placement});
  EXPECT_TRUE(transfers) << transfers.message();
  auto buffers = planBuffers(program);
  EXPECT_TRUE(buffers) << buffers.message();
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
  EXPECT_GT(makespanOf(*order, TransferPlacement::Torch), ideal);
}

// Free transfers: the program is as fast as the order.
TEST(Latency, FreeTransfersCostNothing) {
  for (const Entry &entry : kEntries)
    for (int32_t p : {2, 4, 8})
      for (int32_t m : {1, 3, 8, 16}) {
        SCOPED_TRACE(std::string(entry.name) + " p=" + std::to_string(p) +
                     " m=" + std::to_string(m));
        const Result<Program> order = entry.make(problemOf(entry, p, m, 0));
        ASSERT_TRUE(order) << order.message();
        EXPECT_EQ(makespanOf(*order, TransferPlacement::Time),
                  simulateOrder(*order)->makespan);
      }
}

} // namespace
