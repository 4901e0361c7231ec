//===- Products.cpp - The matrix products of a linear map -----------------===//

#include "Products.h"

namespace penstock::runtime {

template <typename S>
void addProduct(Map<S> c, const ConstMap<S> &a, const ConstMap<S> &b) {
  c.noalias() += a * b;
}

template <typename S>
void addProductTransposed(Map<S> c, const ConstMap<S> &a,
                          const ConstMap<S> &b) {
  c.noalias() += a * b.transpose();
}

template <typename S>
void addTransposedProduct(Map<S> c, const ConstMap<S> &a,
                          const ConstMap<S> &b) {
  c.noalias() += a.transpose() * b;
}

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
