//===- HashTest.cpp - The hash of programs and texts ----------------------===//

#include "penstock/Support/Hash.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <set>
#include <string>
#include <vector>

using namespace penstock;

namespace {

using Hash = std::pair<uint64_t, uint64_t>;

Hash hashOf(const std::string &bytes) {
  Hasher hasher;
  hasher.add(bytes.size());
  hasher.add(bytes.data(), bytes.size());
  const Hasher::Result hash = hasher.finish();
  return {hash.low, hash.high};
}

/// Of all lengths up to some, random and with little in them.
std::vector<std::string> texts() {
  std::mt19937 random(7);
  std::vector<std::string> texts;
  for (size_t size = 0; size <= 100; ++size) {
    texts.emplace_back(size, '\0');
    std::string text(size, '\0');
    for (char &c : text)
      c = char(random());
    texts.push_back(text);
  }
  return texts;
}

/// That no two differ little in one half only.
class Seen {
public:
  void add(const std::string &text) {
    const auto [low, high] = hashOf(text);
    if (!seen.insert(text).second)
      return;
    EXPECT_TRUE(lows.insert(low).second) << seen.size();
    EXPECT_TRUE(highs.insert(high).second) << seen.size();
  }
  size_t size() const { return seen.size(); }

private:
  std::set<std::string> seen;
  std::set<uint64_t> lows, highs;
};

TEST(Hash, EveryLengthBitAndPairOfBytesCounts) {
  Seen all;
  for (const std::string &text : texts()) {
    all.add(text);
    for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
      std::string changed = text;
      changed[bit / 8] ^= char(1 << (bit % 8));
      all.add(changed);
    }
    for (size_t i = 0; i < text.size(); ++i)
      for (size_t j = i + 1; j < text.size(); ++j) {
        std::string changed = text;
        std::swap(changed[i], changed[j]);
        all.add(changed);
      }
  }
  EXPECT_GT(all.size(), 200000u);
}

TEST(Hash, OrderAndCutOfWordsCount) {
  Seen all;
  // Permutations of words that differ in one bit, and zeros between them.
  for (uint64_t words : {4, 5, 8})
    for (uint64_t bit = 0; bit < 64; ++bit)
      for (uint64_t at = 0; at < words; ++at) {
        std::string text(8 * words, '\0');
        text[8 * at + bit / 8] = char(1 << (bit % 8));
        all.add(text);
      }
  Hasher one, other;
  one.add(1), one.add(2);
  other.add(2), other.add(1);
  EXPECT_NE(one.finish().low, other.finish().low);
  EXPECT_NE(one.finish().high, other.finish().high);
}

/// Half of the bits change with each bit, on average.
TEST(Hash, ABitChangesHalfOfTheBits) {
  std::mt19937 random(3);
  for (size_t size : {8, 32, 100}) {
    std::string text(size, '\0');
    for (char &c : text)
      c = char(random());
    const Hash before = hashOf(text);
    double changed = 0;
    for (size_t bit = 0; bit < 8 * size; ++bit) {
      text[bit / 8] ^= char(1 << (bit % 8));
      const Hash after = hashOf(text);
      text[bit / 8] ^= char(1 << (bit % 8));
      const int low = std::popcount(before.first ^ after.first),
                high = std::popcount(before.second ^ after.second);
      EXPECT_GT(low, 8) << bit;
      EXPECT_GT(high, 8) << bit;
      changed += low + high;
    }
    EXPECT_NEAR(changed / double(8 * size), 64, 2) << size;
  }
}

TEST(Hash, IsTheSameEverywhere) {
  EXPECT_EQ(hashOf(""), Hash(0x51a7b592f6c04a2c, 0xd79f3faf7ce9aeb5));
  EXPECT_EQ(hashOf("a program of some forty bytes, and a tail"),
            Hash(0x8aa07dddce0d9125, 0xb6711000c023fa37));
}

} // namespace
