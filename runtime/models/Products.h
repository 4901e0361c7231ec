//===- Products.h - Matrices in memory, and their products ------*- C++ -*-===//
//
// The matrix products of a linear map, compiled once: by Eigen where it is
// found, else by loops of our own. Both add up in an order that depends on
// nothing but the shapes.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_MODELS_PRODUCTS_H
#define PENSTOCK_RUNTIME_MODELS_PRODUCTS_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace penstock::runtime {

/// A row-major matrix in memory that starts at a multiple of 64 bytes.
template <typename S>
class Map {
public:
  Map(S *data, int64_t rows, int64_t cols)
      : values(data), numRows(rows), numCols(cols) {}
  /// A matrix that is only read.
  operator Map<const S>() const requires(!std::is_const_v<S>) {
    return {values, numRows, numCols};
  }

  S *data() const { return values; }
  int64_t rows() const { return numRows; }
  int64_t cols() const { return numCols; }
  int64_t size() const { return numRows * numCols; }
  S *row(int64_t i) const { return values + i * numCols; }
  S &operator[](int64_t i) const { return values[i]; }
  void setZero() const { std::fill_n(values, size(), S(0)); }

private:
  S *values;
  int64_t numRows, numCols;
};
template <typename S>
using ConstMap = Map<const S>;

/// Sums of so many terms each, that the compiler can make at once; it may not
/// change the order of a sum itself.
inline constexpr int kPartialSums = 16;

/// The sum of term(i) for i from 0 to n - 1.
template <typename S, typename Term>
S sumOf(int64_t n, Term &&term) {
  S parts[kPartialSums] = {};
  int64_t i = 0;
  for (; i + kPartialSums <= n; i += kPartialSums)
    for (int k = 0; k < kPartialSums; ++k)
      parts[k] += term(i + k);
  for (int k = 0; i < n; ++i, ++k)
    parts[k] += term(i);
  for (int step = kPartialSums / 2; step > 0; step /= 2)
    for (int k = 0; k < step; ++k)
      parts[k] += parts[k + step];
  return parts[0];
}

// For S = float and double.

/// c += a b, as in the forward of a linear map.
template <typename S>
void addProduct(Map<S> c, const ConstMap<S> &a, const ConstMap<S> &b);
/// c += a b^T, as in the gradient of the input.
template <typename S>
void addProductTransposed(Map<S> c, const ConstMap<S> &a, const ConstMap<S> &b);
/// c += a^T b, as in the gradient of the weights.
template <typename S>
void addTransposedProduct(Map<S> c, const ConstMap<S> &a, const ConstMap<S> &b);

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_MODELS_PRODUCTS_H
