//===- TorchCsv.h - Fingerprints of torch's schedule tables -----*- C++ -*-===//
//
// An order as the CSV text that torch.distributed.pipelining reads, and the
// SHA-256 by which large tables are compared.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_TEST_UNIT_SUPPORT_TORCHCSV_H
#define PENSTOCK_TEST_UNIT_SUPPORT_TORCHCSV_H

#include "penstock/Program/Text.h"

#include <algorithm>
#include <bit>

namespace penstock::test {

/// One row a rank, line feeds between them. An action for which `idle(inst)`
/// holds is an empty cell, and so are the first r cells of rank r with
/// `staggered`.
template <typename Idle>
inline std::string torchCsv(const Program &order, bool staggered, Idle &&idle) {
  std::string text;
  for (size_t r = 0; r < order.ranks.size(); ++r) {
    std::string row(staggered ? r : 0, ',');
    const auto &list = order.ranks[r].instructions;
    for (size_t i = 0; i < list.size(); ++i) {
      const bool more = i + 1 < list.size() && list[i + 1].joined;
      row += list[i].joined ? ";" : more ? "(" : "";
      if (!idle(list[i]))
        row += std::to_string(list[i].stage) + letter(list[i].op) +
               std::to_string(list[i].microbatch);
      row += more ? "" : list[i].joined ? ")OVERLAP_F_B," : ",";
    }
    row.back() = '\n';
    text += row;
  }
  return text;
}

/// The first 12 hexadecimal digits of the SHA-256 of a text (FIPS 180-4).
inline std::string sha256(std::string text) {
  constexpr uint32_t kRound[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
      0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
      0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
      0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
      0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
      0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
      0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
      0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
      0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
      0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
      0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
  uint32_t hash[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const uint64_t bits = 8 * text.size();
  text += '\x80';
  text.resize((text.size() + 8 + 63) / 64 * 64);
  for (int i = 0; i < 8; ++i)
    text[text.size() - 1 - i] = static_cast<char>(bits >> 8 * i);
  for (size_t block = 0; block < text.size(); block += 64) {
    uint32_t word[64] = {};
    for (int i = 0; i < 64; ++i)
      word[i / 4] = word[i / 4] << 8 | static_cast<uint8_t>(text[block + i]);
    for (int i = 16; i < 64; ++i) {
      const uint32_t a = word[i - 15], b = word[i - 2];
      word[i] = word[i - 16] + word[i - 7] +
                (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) +
                (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    uint32_t v[8];
    std::copy(hash, hash + 8, v);
    for (int i = 0; i < 64; ++i) {
      const uint32_t e = v[4], a = v[0];
      const uint32_t t1 =
          v[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
          ((e & v[5]) ^ (~e & v[6])) + kRound[i] + word[i];
      const uint32_t t2 =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) +
          ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
      std::copy_backward(v, v + 7, v + 8);
      v[4] += t1;
      v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; ++i)
      hash[i] += v[i];
  }
  std::string digits;
  for (int i = 0; i < 12; ++i)
    digits += "0123456789abcdef"[hash[i / 8] >> (28 - 4 * (i % 8)) & 15];
  return digits;
}

} // namespace penstock::test

#endif // PENSTOCK_TEST_UNIT_SUPPORT_TORCHCSV_H
