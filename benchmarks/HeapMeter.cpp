//===- HeapMeter.cpp - How much heap a piece of code needs ----------------===//

#include "HeapMeter.h"

#include <algorithm>
#include <cstdlib>
#include <malloc.h>
#include <new>

static size_t alive = 0, most = 0; // The benchmarks have one thread.

void *operator new(size_t size) {
  void *pointer = std::malloc(size);
  if (!pointer)
    throw std::bad_alloc();
  alive += malloc_usable_size(pointer);
  most = std::max(most, alive);
  return pointer;
}

void operator delete(void *pointer) noexcept {
  if (pointer)
    alive -= malloc_usable_size(pointer);
  std::free(pointer);
}

void operator delete(void *pointer, size_t) noexcept {
  operator delete(pointer);
}

namespace penstock::benchmarks {

HeapMeter::HeapMeter() : before(alive) { most = alive; }

size_t HeapMeter::peak() const { return most - before; }

} // namespace penstock::benchmarks
