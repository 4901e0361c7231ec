//===- Memory.cpp - Memory with guard zones and a quarantine --------------===//
//
// Every allocation lies between two guard zones. Memory that is released goes
// into a quarantine: it keeps its address, is filled with a pattern, and its
// use is a finding, or under AddressSanitizer an error at once.
//
//===----------------------------------------------------------------------===//

#include "World.h"

#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(p, n) __asan_poison_memory_region(p, n)
#define UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

using namespace penstock::standin;

static constexpr size_t kGuard = 256; // also the alignment
static constexpr std::byte kGuardByte{0xFB}, kNewByte{0xA5}, kFreedByte{0xDD};
static constexpr size_t kQuarantine = size_t(256) << 20;

void *World::allocate(size_t size, Allocation::Kind kind, int device,
                      bool isNccl) {
  const size_t rounded = (size + kGuard - 1) / kGuard * kGuard;
  Allocation a;
  a.kind = kind;
  a.size = size;
  a.device = device;
  a.isNccl = isNccl;
  a.blockSize = rounded + 2 * kGuard;
  a.block = static_cast<std::byte *>(std::aligned_alloc(kGuard, a.blockSize));
  if (!a.block)
    return nullptr;
  std::memset(a.block, static_cast<int>(kGuardByte), a.blockSize);
  std::byte *data = a.block + kGuard;
  std::memset(data, static_cast<int>(kNewByte), size);
  POISON(a.block, kGuard);
  POISON(data + size, a.blockSize - kGuard - size);
  memory[reinterpret_cast<uintptr_t>(data)] = a;
  return data;
}

static std::string nameOf(const Allocation &a) {
  return std::string(a.kind == Allocation::DeviceMemory ? "device" : "host") +
         " memory of " + std::to_string(a.size) + " bytes";
}

/// Whether all bytes of a region have the value.
static bool all(const std::byte *p, size_t n, std::byte value) {
  UNPOISON(p, n);
  bool same = true;
  for (size_t i = 0; i < n; ++i)
    same &= p[i] == value;
  POISON(p, n);
  return same;
}

static void checkAllocation(World &world, uintptr_t start,
                            const Allocation &a) {
  if (!a.block)
    return;
  auto *data = reinterpret_cast<std::byte *>(start);
  const std::byte *end = data + a.size;
  if (!all(a.block, kGuard, kGuardByte))
    world.find("bytes before the begin of " + nameOf(a) + " were written");
  if (!all(end, static_cast<size_t>(a.block + a.blockSize - end), kGuardByte))
    world.find("bytes behind the end of " + nameOf(a) + " were written");
  if (a.freed && !all(data, a.size, kFreedByte))
    world.find(nameOf(a) + " was written after its release");
}

void World::release(std::map<uintptr_t, Allocation>::iterator it) {
  Allocation &a = it->second;
  checkAllocation(*this, it->first, a);
  if (a.kind == Allocation::DeviceMemory)
    devices[a.device].usedBytes -= a.size;
  auto *data = reinterpret_cast<std::byte *>(it->first);
  std::memset(data, static_cast<int>(kFreedByte), a.size);
  POISON(data, a.size);
  a.freed = true;
  quarantine.push_back(it->first);
  quarantined += a.size;
  while (quarantined > kQuarantine) {
    auto old = memory.find(quarantine.front());
    quarantine.pop_front();
    quarantined -= old->second.size;
    checkAllocation(*this, old->first, old->second);
    UNPOISON(old->second.block, old->second.blockSize);
    std::free(old->second.block);
    memory.erase(old);
  }
}

std::map<uintptr_t, Allocation>::iterator World::lookUp(const void *p,
                                                        size_t size) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  auto it = memory.upper_bound(address);
  if (it == memory.begin())
    return memory.end();
  --it;
  const Allocation &a = it->second;
  if (a.freed || address + size > it->first + a.size ||
      address >= it->first + std::max<size_t>(a.size, 1))
    return memory.end();
  return it;
}

bool World::checkRange(const void *p, size_t size, const std::string &what) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  auto it = memory.upper_bound(address + size);
  if (size == 0 || it == memory.begin())
    return true;
  --it;
  const Allocation &a = it->second;
  const uintptr_t end = a.block
                            ? reinterpret_cast<uintptr_t>(a.block) + a.blockSize
                            : it->first + a.size;
  if (address >= end)
    return true; // none of ours
  if (a.freed) {
    find(what + " uses " + nameOf(a) + " after its release");
    return false;
  }
  if (address < it->first || address + size > it->first + a.size) {
    if (!a.block)
      return true;
    find(what + " goes over the bounds of " + nameOf(a));
    return false;
  }
  return true;
}

void World::checkMemory() {
  for (const auto &[start, a] : memory)
    checkAllocation(*this, start, a);
}

void World::releaseAll() {
  for (auto &[start, a] : memory)
    if (a.block) {
      UNPOISON(a.block, a.blockSize);
      std::free(a.block);
    }
  memory.clear();
  quarantine.clear();
  quarantined = 0;
}
