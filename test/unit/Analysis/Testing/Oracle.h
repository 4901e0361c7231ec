//===- Oracle.h - Whether a program is right, by definition -----*- C++ -*-===//
//
// The rules of docs/semantics.md written down a second time, as plainly as
// possible and without code of the verifier: partners are found by counting,
// order on a rank by closing it transitively, and races by comparing all pairs
// of accesses. Slow; for small programs.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_TEST_UNIT_ANALYSIS_ORACLE_H
#define PENSTOCK_TEST_UNIT_ANALYSIS_ORACLE_H

#include "penstock/Program/Program.h"

namespace penstock::test {

/// Every transfer has a partner, first to first, that moves the same tensor.
bool endsMatch(const Program &program);

/// Nothing is wrong with the program: it ends under closure, both ends of its
/// transfers agree, every action is there once and reads what it needs,
/// whatever the queues do, and planned memory stays below the limit.
bool isRight(const Program &program);

} // namespace penstock::test

#endif // PENSTOCK_TEST_UNIT_ANALYSIS_ORACLE_H
