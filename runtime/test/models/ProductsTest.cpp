//===- ProductsTest.cpp - Matrix products, with and without a library -----===//

#include "ByteLmStage.h"
#include "PlainProducts.h"

#include <gtest/gtest.h>

#include <random>

using namespace penstock::runtime;

namespace {

template <typename S>
class ProductsTest : public testing::Test {
protected:
  struct Owned {
    AlignedArray<S> memory;
    Map<S> map;
  };
  static Owned make(int64_t rows, int64_t cols, unsigned seed) {
    AlignedArray<S> memory = makeAlignedArray<S>(rows * cols);
    std::mt19937 random(seed);
    for (int64_t i = 0; i < rows * cols; ++i)
      memory.get()[i] = std::uniform_real_distribution<S>(-1, 1)(random);
    S *data = memory.get();
    return {std::move(memory), {data, rows, cols}};
  }
};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(ProductsTest, Scalars);

TYPED_TEST(ProductsTest, BothAreTheDefinition) {
  using S = TypeParam;
  auto make = TestFixture::make;
  const int64_t sizes[] = {1, 3, 4, 8, 17, 300};
  for (int64_t rows : sizes)
    for (int64_t cols : sizes)
      for (int64_t depth : sizes) {
        const auto a = make(rows, depth, 1), b = make(depth, cols, 2),
                   aT = make(depth, rows, 3), bT = make(cols, depth, 4);
        auto check = [&](auto &&product, auto &&termOf) {
          const auto before = make(rows, cols, 5);
          auto c = make(rows, cols, 5);
          product(c.map);
          for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < cols; ++j) {
              double sum = before.map.row(i)[j];
              for (int64_t k = 0; k < depth; ++k)
                sum += termOf(i, j, k);
              ASSERT_NEAR(c.map.row(i)[j], sum,
                          4 * double(depth + 1) *
                              std::numeric_limits<S>::epsilon())
                  << rows << " x " << depth << " x " << cols;
            }
        };
        auto first = [&](int64_t i, int64_t j, int64_t k) {
          return double(a.map.row(i)[k]) * double(b.map.row(k)[j]);
        };
        auto second = [&](int64_t i, int64_t j, int64_t k) {
          return double(a.map.row(i)[k]) * double(bT.map.row(j)[k]);
        };
        auto third = [&](int64_t i, int64_t j, int64_t k) {
          return double(aT.map.row(k)[i]) * double(b.map.row(k)[j]);
        };
        const ConstMap<S> A = a.map, B = b.map, AT = aT.map, BT = bT.map;
        check([&](Map<S> c) { addProduct<S>(c, A, B); }, first);
        check([&](Map<S> c) { addProductTransposed<S>(c, A, BT); }, second);
        check([&](Map<S> c) { addTransposedProduct<S>(c, AT, B); }, third);
        using namespace plain;
        check(
            [&](Map<S> c) {
              plain::addProduct(c, asIs<S>(A), asIs<S>(B), depth);
            },
            first);
        check(
            [&](Map<S> c) {
              plain::addProduct(c, asIs<S>(A), transposed<S>(BT), depth);
            },
            second);
        check(
            [&](Map<S> c) {
              plain::addProduct(c, transposed<S>(AT), asIs<S>(B), depth);
            },
            third);
      }
}

// Where blocks begin and end changes nothing.
TYPED_TEST(ProductsTest, AnElementDependsOnItsRowAndColumnOnly) {
  using S = TypeParam;
  const auto a = TestFixture::make(37, 300, 1),
             b = TestFixture::make(300, 21, 2);
  auto whole = TestFixture::make(37, 21, 3),
       parts = TestFixture::make(37, 21, 3);
  auto multiply = [&](Map<S> c, int64_t from, int64_t rows) {
    const ConstMap<S> some(a.map.row(from), rows, 300);
    plain::addProduct(Map<S>(c.row(from), rows, 21), plain::asIs<S>(some),
                      plain::asIs<S>(ConstMap<S>(b.map)), 300);
  };
  multiply(whole.map, 0, 37);
  for (int64_t from = 0; from < 37; from += 6)
    multiply(parts.map, from, std::min<int64_t>(6, 37 - from));
  for (int64_t i = 0; i < whole.map.size(); ++i)
    ASSERT_EQ(whole.map[i], parts.map[i]) << i;
}

} // namespace
