//===- Memory.h - Arrays as long as a program -------------------*- C++ -*-===//
//
// First touching fresh memory page by page costs as much as a quick check of a
// whole program, so large arrays ask the kernel for more at once. All of it is
// advice: a refusal changes nothing but time.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_SUPPORT_MEMORY_H
#define PENSTOCK_SUPPORT_MEMORY_H

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace penstock {

/// Makes the pages of memory that is about to be written present, in one call.
inline void prefault([[maybe_unused]] const void *memory,
                     [[maybe_unused]] size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  constexpr uintptr_t kPage = 4096;
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t begin = (address + kPage - 1) / kPage * kPage;
  const uintptr_t end = (address + bytes) / kPage * kPage;
  if (begin < end)
    madvise(reinterpret_cast<void *>(begin), end - begin, MADV_POPULATE_WRITE);
#endif
}

/// Loads what lies `bytes` behind `address` into the cache. For walks along
/// many arrays at once, which the hardware does not foresee.
inline void prefetch(const void *address, size_t bytes) {
  __builtin_prefetch(reinterpret_cast<const void *>(
      reinterpret_cast<uintptr_t>(address) + bytes));
}

/// Puts what is large on huge pages. Numbers that are given no value have none.
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
    madvise(p, bytes, MADV_HUGEPAGE);
    return static_cast<T *>(p);
  }
  void deallocate(T *p, size_t n) {
    if (n * sizeof(T) < kHugePage)
      ::operator delete(p);
    else
      ::operator delete(p, std::align_val_t(kHugePage));
  }
  template <typename U>
  void construct(U *p) {
    ::new (static_cast<void *>(p)) U;
  }
  bool operator==(const HugePageAllocator &) const { return true; }
};

/// A vector for one entry per instruction.
template <typename T>
using BigArray = std::vector<T, HugePageAllocator<T>>;

} // namespace penstock

#endif // PENSTOCK_SUPPORT_MEMORY_H
