//===- BigArray.h - Arrays as long as a program -----------------*- C++ -*-===//
//
// A vector for one entry per instruction. First touching fresh memory page by
// page costs as much as a quick check itself, so large arrays ask the kernel for
// huge pages.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_LIB_ANALYSIS_BIGARRAY_H
#define PENSTOCK_LIB_ANALYSIS_BIGARRAY_H

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <vector>

namespace penstock {

template <typename T>
struct HugePageAllocator {
  using value_type = T;
  static constexpr size_t kHugePage = 1 << 21;

  HugePageAllocator() = default;
  template <typename U>
  HugePageAllocator(const HugePageAllocator<U> &) {}

  T *allocate(size_t n) {
    const size_t bytes = n * sizeof(T);
    if (bytes < kHugePage)
      return static_cast<T *>(::operator new(bytes));
    void *p = ::operator new(bytes, std::align_val_t(kHugePage));
    madvise(p, bytes, MADV_HUGEPAGE); // advice: a refusal changes nothing
    return static_cast<T *>(p);
  }
  void deallocate(T *p, size_t n) {
    if (n * sizeof(T) < kHugePage)
      ::operator delete(p);
    else
      ::operator delete(p, std::align_val_t(kHugePage));
  }
  bool operator==(const HugePageAllocator &) const { return true; }
};

template <typename T>
using BigArray = std::vector<T, HugePageAllocator<T>>;

} // namespace penstock

#endif // PENSTOCK_LIB_ANALYSIS_BIGARRAY_H
