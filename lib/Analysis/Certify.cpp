//===- Certify.cpp - Makes the proof that a program ends ------------------===//
//
// The time of an instruction is the place of its step in an order in which the
// steps can run.
//
//===----------------------------------------------------------------------===//

#include "penstock/Analysis/Certify.h"

#include "penstock/Analysis/EventGraph.h"
#include "penstock/Program/Certificate.h"

using namespace penstock;

bool penstock::certify(Program &program) {
  dropCertificate(program);
  const EventGraph graph(program, Semantics::Closure);
  const std::vector<uint32_t> order = graph.topologicalOrder();
  if (order.size() != graph.numSteps())
    return false;
  for (RankProgram &rank : program.ranks)
    rank.times.resize(rank.instructions.size());
  for (uint32_t time = 0; time < order.size(); ++time)
    graph.forEachMember(order[time], [&](Site site) {
      program.ranks[site.rank].times[site.instruction] = time;
    });
  return true;
}
