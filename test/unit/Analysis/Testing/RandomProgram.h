//===- RandomProgram.h - Small random programs ------------------*- C++ -*-===//
//
// Random programs that are well-formed, often right and often wrong: a global
// order of transfers, collectives and computes is dealt out to ranks,
// neighbours are grouped at random, and sometimes the result is damaged.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_TEST_UNIT_ANALYSIS_RANDOMPROGRAM_H
#define PENSTOCK_TEST_UNIT_ANALYSIS_RANDOMPROGRAM_H

#include "penstock/Program/Program.h"

#include <random>

namespace penstock::test {

Program randomProgram(std::mt19937 &random);

} // namespace penstock::test

#endif // PENSTOCK_TEST_UNIT_ANALYSIS_RANDOMPROGRAM_H
