//===- Fuzz.h - What every fuzz target needs --------------------*- C++ -*-===//
//
// A target is one file with LLVMFuzzerTestOneInput. Built with clang and
// -fsanitize=fuzzer (the preset `fuzz`) libFuzzer drives it; in every other
// build Replay.cpp does, with the seeds, the findings and a fixed number of
// mutations of them: then it is a test.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_FUZZ_FUZZ_H
#define PENSTOCK_FUZZ_FUZZ_H

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

/// Ends the process when what must hold does not; an assert in every build.
#define REQUIRE(condition)                                                     \
  do {                                                                         \
    if (!(condition)) {                                                        \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__,   \
                   #condition);                                                \
      std::abort();                                                            \
    }                                                                          \
  } while (false)

extern "C" {
/// The target. Returns 0; a fault is an abort, or a report of a sanitizer.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/// How the target changes an input, where random bytes would not get far. It
/// has room for `maxSize` bytes and returns the new size.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                               unsigned seed);
/// The driver's own way to change an input.
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);
}

#endif // PENSTOCK_FUZZ_FUZZ_H
