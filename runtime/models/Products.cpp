//===- Products.cpp - The matrix products of a linear map -----------------===//

#include "Products.h"

#ifdef PENSTOCK_WITH_EIGEN
#include <Eigen/Core>
#else
#include "PlainProducts.h"
#endif

namespace penstock::runtime {

#ifdef PENSTOCK_WITH_EIGEN

template <typename S>
static auto asEigen(const Map<S> &map) {
  using Matrix = Eigen::Matrix<std::remove_const_t<S>, Eigen::Dynamic,
                               Eigen::Dynamic, Eigen::RowMajor>;
  using Own = std::conditional_t<std::is_const_v<S>, const Matrix, Matrix>;
  return Eigen::Map<Own, Eigen::AlignedMax>(map.data(), map.rows(), map.cols());
}

template <typename S>
void addProduct(Map<S> c, const ConstMap<S> &a, const ConstMap<S> &b) {
  asEigen(c).noalias() += asEigen(a) * asEigen(b);
}

template <typename S>
void addProductTransposed(Map<S> c, const ConstMap<S> &a,
                          const ConstMap<S> &b) {
  asEigen(c).noalias() += asEigen(a) * asEigen(b).transpose();
}

template <typename S>
void addTransposedProduct(Map<S> c, const ConstMap<S> &a,
                          const ConstMap<S> &b) {
  asEigen(c).noalias() += asEigen(a).transpose() * asEigen(b);
}

#else

template <typename S>
void addProduct(Map<S> c, const ConstMap<S> &a, const ConstMap<S> &b) {
  plain::addProduct(c, plain::asIs<S>(a), plain::asIs<S>(b), a.cols());
}

template <typename S>
void addProductTransposed(Map<S> c, const ConstMap<S> &a,
                          const ConstMap<S> &b) {
  plain::addProduct(c, plain::asIs<S>(a), plain::transposed<S>(b), a.cols());
}

template <typename S>
void addTransposedProduct(Map<S> c, const ConstMap<S> &a,
                          const ConstMap<S> &b) {
  plain::addProduct(c, plain::transposed<S>(a), plain::asIs<S>(b), a.rows());
}

#endif

#define INSTANTIATE(S)                                                         \
  template void addProduct<S>(Map<S>, const ConstMap<S> &,                     \
                              const ConstMap<S> &);                            \
  template void addProductTransposed<S>(Map<S>, const ConstMap<S> &,           \
                                        const ConstMap<S> &);                  \
  template void addTransposedProduct<S>(Map<S>, const ConstMap<S> &,           \
                                        const ConstMap<S> &);
INSTANTIATE(float)
INSTANTIATE(double)

} // namespace penstock::runtime
