//===- HeapMeter.h - How much heap a piece of code needs --------*- C++ -*-===//
//
// Counts all allocations of the process through operator new.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_BENCHMARKS_HEAPMETER_H
#define PENSTOCK_BENCHMARKS_HEAPMETER_H

#include <cstddef>

namespace penstock::benchmarks {

/// Measures from its construction on.
class HeapMeter {
public:
  HeapMeter();
  /// The most bytes alive at once, beyond those alive at the start.
  size_t peak() const;

private:
  size_t before;
};

} // namespace penstock::benchmarks

#endif // PENSTOCK_BENCHMARKS_HEAPMETER_H
