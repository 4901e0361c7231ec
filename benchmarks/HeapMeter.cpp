//===- HeapMeter.cpp - How much heap a piece of code needs ----------------===//

#include "HeapMeter.h"

#include <algorithm>
#include <cstdlib>
#include <malloc.h>
#include <new>

static size_t alive = 0, most = 0; // The benchmarks have one thread.

static void *count(void *pointer) {
  if (!pointer)
    throw std::bad_alloc();
  alive += malloc_usable_size(pointer);
  most = std::max(most, alive);
  return pointer;
}

void *operator new(size_t size) { return count(std::malloc(size)); }

void *operator new(size_t size, std::align_val_t alignment) {
  const auto align = static_cast<size_t>(alignment);
  return count(std::aligned_alloc(align, (size + align - 1) / align * align));
}

void operator delete(void *pointer) noexcept {
  if (pointer)
    alive -= malloc_usable_size(pointer);
  std::free(pointer);
}

void operator delete(void *pointer, size_t) noexcept {
  operator delete(pointer);
}

void operator delete(void *pointer, std::align_val_t) noexcept {
  operator delete(pointer);
}

namespace penstock::benchmarks {

HeapMeter::HeapMeter() : before(alive) { most = alive; }

size_t HeapMeter::peak() const { return most - before; }

} // namespace penstock::benchmarks
