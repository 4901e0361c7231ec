//===- EventGraphTest.cpp - Steps and their order -------------------------===//

#include "Testing/Build.h"

#include "penstock/Analysis/EventGraph.h"

#include <gtest/gtest.h>

using namespace penstock;
using namespace penstock::test;

namespace {

/// Every instruction is a member of exactly one step of the order.
void expectComplete(const Program &program, const EventGraph &graph) {
  std::vector<uint32_t> order = graph.topologicalOrder();
  EXPECT_EQ(order.size(), graph.numSteps());
  std::vector<std::vector<int>> seen;
  for (const RankProgram &rank : program.ranks)
    seen.emplace_back(rank.instructions.size());
  for (uint32_t step : order)
    graph.forEachMember(
        step, [&](Site site) { ++seen[site.rank][site.instruction]; });
  for (const auto &rank : seen)
    for (int count : rank)
      EXPECT_EQ(count, 1);
}

TEST(EventGraph, PairOfTransfersIsOneStep) {
  Program program = makeProgram(2, 1);
  RankBuilder(program, 0).f(0, 0).sendAct(0, 0, 1);
  RankBuilder(program, 1).recvAct(0, 0, 0).f(1, 0);
  EventGraph graph(program, Semantics::Closure);
  EXPECT_EQ(graph.numSteps(), 3u);
  std::vector<uint32_t> order = graph.topologicalOrder();
  ASSERT_EQ(order.size(), 3u);
  std::vector<Site> members;
  graph.forEachMember(order[1], [&](Site site) { members.push_back(site); });
  ASSERT_EQ(members.size(), 2u);
  EXPECT_EQ(members[0].rank + members[1].rank, 1);
}

TEST(EventGraph, RunsOneForwardOneBackward) {
  for (bool planned : {false, true})
    for (int32_t p : {1, 2, 3, 5})
      for (int32_t m : {1, 2, 4, 9}) {
        Program program = oneForwardOneBackward(p, m, planned);
        expectComplete(program, EventGraph(program, Semantics::Closure));
        expectComplete(program, EventGraph(program, Semantics::Documented));
      }
}

TEST(EventGraph, CrossedSendsBlock) {
  Program program = makeProgram(2, 1);
  RankBuilder(program, 0).sendAct(0, 0, 1).recvGrad(1, 0, 1);
  RankBuilder(program, 1).sendGrad(1, 0, 0).recvAct(0, 0, 0);
  for (Semantics semantics : {Semantics::Closure, Semantics::Documented}) {
    EventGraph graph(program, semantics);
    EXPECT_EQ(graph.numSteps(), 2u);
    EXPECT_EQ(graph.topologicalOrder().size(), 0u);
  }
}

} // namespace
