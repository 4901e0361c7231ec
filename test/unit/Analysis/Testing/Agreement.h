//===- Agreement.h - The verifier against the interpreter -------*- C++ -*-===//
//
// What must hold between the verifier, the interpreter and the models for every
// program whatever. The unit tests ask it of a few thousand random programs,
// AgreementRun of as many as one likes.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_TEST_UNIT_ANALYSIS_AGREEMENT_H
#define PENSTOCK_TEST_UNIT_ANALYSIS_AGREEMENT_H

#include "penstock/Analysis/Verify.h"

#include <map>
#include <string>

namespace penstock::test {

/// Verdicts of many programs.
struct Tally {
  struct Count {
    size_t accepted = 0, refused = 0, errors = 0;
  };
  std::map<std::string, Count> models;  ///< by name
  size_t cycles = 0;                    ///< that were checked
  size_t shortest = 0;                  ///< cycles compared with all others
  size_t onlyClosure = 0;               ///< refused by closure alone
  std::map<int64_t, size_t> capacities; ///< least capacity, -1: none
  size_t needs = 0;                     ///< sets of buffers that were checked
};

/// All models: groups, capacities, serialised or not, first use or not.
const std::vector<Semantics> &allModels();

/// Compares everything about one well-formed program. Returns what disagrees,
/// empty when nothing does.
std::string compare(const Program &program, Tally &tally);

} // namespace penstock::test

#endif // PENSTOCK_TEST_UNIT_ANALYSIS_AGREEMENT_H
