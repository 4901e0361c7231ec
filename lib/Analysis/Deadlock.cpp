//===- Deadlock.cpp - Does the program terminate, and if not, why ---------===//

#include "penstock/Analysis/EventGraph.h"

using namespace penstock;

DeadlockResult penstock::checkDeadlock(const Program &program,
                                       Semantics semantics) {
  const EventGraph graph(program, semantics);
  DeadlockResult result;
  result.ok = graph.topologicalOrder().size() == graph.numSteps();
  return result;
}
