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
  Outcome outcome = Outcome::Deadlock;
  /// done[rank][i]: instruction i has ended.
  std::vector<std::vector<uint8_t>> done;
};

/// Runs a well-formed program under the semantics until it ends or sticks. The
/// capacity of the channels named in `buffers` is given there.
Execution interpret(const Program &program, const Semantics &semantics,
                    std::span<const ChannelNeed> buffers = {});

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_INTERPRET_H
