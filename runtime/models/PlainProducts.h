//===- PlainProducts.h - Matrix products without a library ------*- C++ -*-===//
//
// For machines without Eigen: loops over blocks that stay in registers and in
// the cache.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_MODELS_PLAINPRODUCTS_H
#define PENSTOCK_RUNTIME_MODELS_PLAINPRODUCTS_H

#include "Products.h"

namespace penstock::runtime::plain {

/// The element (i, j) of a matrix or of its transpose.
template <typename S>
struct Strided {
  const S *data;
  int64_t rowStride, colStride;

  const S &operator()(int64_t i, int64_t j) const {
    return data[i * rowStride + j * colStride];
  }
};

/// c += a b, where a has `depth` columns. Every element of c adds up the terms
/// of a block of the depth from the first to the last, then the blocks.
template <typename S>
void addProduct(Map<S> c, Strided<S> a, Strided<S> b, int64_t depth) {
  // Of the compiler; four rows of two leave registers for the operands.
  using Vector [[gnu::vector_size(16), gnu::may_alias]] = S;
  constexpr int64_t kWidth = 16 / sizeof(S);
  constexpr int64_t kRows = 4, kCols = 2 * kWidth, kDepth = 256;
  alignas(64) S panel[kDepth * kCols]; // of b, one row after the other
  for (int64_t k0 = 0; k0 < depth; k0 += kDepth) {
    const int64_t numTerms = std::min(kDepth, depth - k0);
    for (int64_t j0 = 0; j0 < c.cols(); j0 += kCols) {
      const int64_t numCols = std::min(kCols, c.cols() - j0);
      for (int64_t k = 0; k < numTerms; ++k)
        for (int64_t j = 0; j < kCols; ++j)
          panel[k * kCols + j] = j < numCols ? b(k0 + k, j0 + j) : S(0);
      for (int64_t i0 = 0; i0 < c.rows(); i0 += kRows) {
        const int64_t numRows = std::min(kRows, c.rows() - i0);
        Vector sums[kRows][2] = {};
        // Rows that are not there are the last one once more.
        const int64_t i1 = i0 + std::min<int64_t>(1, numRows - 1),
                      i2 = i0 + std::min<int64_t>(2, numRows - 1),
                      i3 = i0 + numRows - 1;
        for (int64_t k = 0; k < numTerms; ++k) {
          const auto *row = reinterpret_cast<const Vector *>(panel + k * kCols);
          const S a0 = a(i0, k0 + k), a1 = a(i1, k0 + k), a2 = a(i2, k0 + k),
                  a3 = a(i3, k0 + k);
          for (int v = 0; v < 2; ++v) {
            sums[0][v] += a0 * row[v];
            sums[1][v] += a1 * row[v];
            sums[2][v] += a2 * row[v];
            sums[3][v] += a3 * row[v];
          }
        }
        for (int64_t i = 0; i < numRows; ++i)
          for (int64_t j = 0; j < numCols; ++j)
            c.row(i0 + i)[j0 + j] += sums[i][j / kWidth][j % kWidth];
      }
    }
  }
}

template <typename S>
Strided<S> asIs(const ConstMap<S> &matrix) {
  return {matrix.data(), matrix.cols(), 1};
}
template <typename S>
Strided<S> transposed(const ConstMap<S> &matrix) {
  return {matrix.data(), 1, matrix.cols()};
}

} // namespace penstock::runtime::plain

#endif // PENSTOCK_RUNTIME_MODELS_PLAINPRODUCTS_H
