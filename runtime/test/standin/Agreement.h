//===- Agreement.h - Programs on the stand-in -------------------*- C++ -*-===//
//
// Runs a program on the stand-in, straight from its instructions, to compare
// what happens with what the verifier says.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_TEST_STANDIN_AGREEMENT_H
#define PENSTOCK_RUNTIME_TEST_STANDIN_AGREEMENT_H

#include "penstock/Analysis/Verify.h"

#include <map>
#include <string>

namespace penstock::standin::test {

/// One thread a rank issues its instructions to one stream a queue: groups and
/// transfers as NCCL's, actions as host functions, waits as events.
Outcome runProgram(const Program &program, const Semantics &semantics,
                   uint64_t seed = 1, unsigned maxDelay = 0);

/// What the verifier and the stand-in disagree about, under all models; empty
/// if nothing. Counts outcomes by model.
std::string compare(const Program &program,
                    std::map<std::string, std::map<Outcome, size_t>> &tally,
                    uint64_t seed = 1, unsigned maxDelay = 0);

} // namespace penstock::standin::test

#endif // PENSTOCK_RUNTIME_TEST_STANDIN_AGREEMENT_H
