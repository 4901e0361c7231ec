//===- Interpret.h - Plain execution, to check the verifier -----*- C++ -*-===//
//
// A second, independent implementation of the execution model: it runs the
// program step by step with maximal progress, without a graph. Slow, short, and
// used by tests only to compare with the verifier.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_ANALYSIS_INTERPRET_H
#define PENSTOCK_ANALYSIS_INTERPRET_H

#include "penstock/Analysis/Verify.h"

namespace penstock {

struct Execution {
  bool finished = false;
  /// done[rank][i]: instruction i has ended.
  std::vector<std::vector<uint8_t>> done;
};

/// Runs a well-formed program under the semantics until it ends or sticks.
Execution interpret(const Program &program, const Semantics &semantics);

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_INTERPRET_H
