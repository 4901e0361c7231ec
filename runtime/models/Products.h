//===- Products.h - The matrix products of a linear map ---------*- C++ -*-===//
//
// Eigen's products, compiled once.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_MODELS_PRODUCTS_H
#define PENSTOCK_RUNTIME_MODELS_PRODUCTS_H

#include <Eigen/Core>

namespace penstock::runtime {

template <typename S>
using Matrix =
    Eigen::Matrix<S, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
/// A matrix in memory that starts at a multiple of 64 bytes.
template <typename S>
using Map = Eigen::Map<Matrix<S>, Eigen::AlignedMax>;
template <typename S>
class ConstMap : public Eigen::Map<const Matrix<S>, Eigen::AlignedMax> {
public:
  using Base = Eigen::Map<const Matrix<S>, Eigen::AlignedMax>;
  using Base::Base;
  ConstMap(const Map<S> &map) : Base(map.data(), map.rows(), map.cols()) {}
};

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
