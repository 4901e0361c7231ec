//===- Hash.h - A hash that finds accidents ---------------------*- C++ -*-===//
//
// Tells whether bytes are the same on all machines, in files and between
// processes: against damage and mix-ups, not against an enemy.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_SUPPORT_HASH_H
#define PENSTOCK_SUPPORT_HASH_H

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace penstock {

/// Words of 64 bits, little-endian wherever it runs, go in turn to four lanes,
/// independent to hide the time of a multiplication. The step of a lane (xor,
/// multiply by an odd number, xor with the own upper bits) can be undone, and
/// so can the mixing at the end: a change within one word always changes the
/// hash.
class Hasher {
public:
  /// A whole word for each value.
  void add(uint64_t value) { step(lanes[0], value, kFactors[0]); }
  /// Bytes of a number that has been added: the last word is filled with zeros.
  void add(const void *data, size_t size) {
    const auto *bytes = static_cast<const unsigned char *>(data);
    for (; size >= 32; bytes += 32, size -= 32)
      for (unsigned lane = 0; lane < 4; ++lane)
        step(lanes[lane], word(bytes + 8 * lane), kFactors[lane]);
    for (unsigned lane = 0; size > 0; ++lane) {
      const size_t part = size < 8 ? size : 8;
      step(lanes[lane], word(bytes, part), kFactors[lane]);
      bytes += part;
      size -= part;
    }
  }

  struct Result {
    uint64_t low, high;
  };
  Result finish() const {
    uint64_t low = lanes[0] ^ std::rotl(lanes[2], 23);
    uint64_t high = lanes[1] ^ std::rotl(lanes[3], 29);
    // Each half takes part in the other one.
    step(low, high, kFactors[0]);
    step(high, low, kFactors[1]);
    step(low, high, kFactors[2]);
    return {low, high};
  }

private:
  static void step(uint64_t &lane, uint64_t value, uint64_t factor) {
    // A product carries changes upwards only, hence twice.
    lane = (lane ^ value) * factor;
    lane = (lane ^ lane >> 32) * factor;
    lane ^= lane >> 29;
  }
  static uint64_t word(const unsigned char *bytes, size_t size = 8) {
    uint64_t value = 0;
    if constexpr (std::endian::native == std::endian::little)
      std::memcpy(&value, bytes, size);
    else
      for (size_t i = 0; i < size; ++i)
        value |= uint64_t(bytes[i]) << (8 * i);
    return value;
  }

  // Bits all over: fractions of the square roots of the first primes. Factors
  // are odd.
  static constexpr uint64_t kFactors[] = {
      0x6a09e667f3bcc909, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
      0xa54ff53a5f1d36f1};
  uint64_t lanes[4] = {0x510e527fade682d1, 0x9b05688c2b3e6c1f,
                       0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
};

} // namespace penstock

#endif // PENSTOCK_SUPPORT_HASH_H
