//===- Random.h - Random numbers without a state ----------------*- C++ -*-===//
//
// Counter-based random numbers: a number is a function of its index only, so
// that data and initial parameters do not depend on the rank that draws them,
// nor on the order.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_MODELS_RANDOM_H
#define PENSTOCK_RUNTIME_MODELS_RANDOM_H

#include <cstdint>
#include <initializer_list>

namespace penstock::runtime {

/// 64 random bits for the index (a, b, ...): SplitMix64 over its parts.
inline uint64_t randomBits(std::initializer_list<uint64_t> index) {
  uint64_t x = 0;
  for (uint64_t part : index) {
    x += part + 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    x ^= x >> 31;
  }
  return x;
}

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_MODELS_RANDOM_H
