//===- HostDevice.cpp - A queue is a thread -------------------------------===//

#include "HostDevice.h"

#include "penstock/Runtime/Error.h"

#include <bit>
#include <chrono>
#include <cstring>
#include <system_error>

namespace penstock::runtime {

HostDevice::~HostDevice() {
  abort();
  join();
}

Result<unsigned> HostDevice::addQueue(unsigned depth) {
  auto queue = std::make_unique<Queue>();
  queue->ring.resize(std::bit_ceil(std::max(depth, 1u)));
  try {
    queue->thread = std::thread([this, q = queue.get()] { runQueue(*q); });
  } catch (const std::system_error &error) {
    return Failure{std::string("cannot start the thread of a queue: ") +
                   error.what() + "; run fewer ranks in one process"};
  }
  queues.push_back(std::move(queue));
  return static_cast<unsigned>(queues.size() - 1);
}

Event HostDevice::addEvent() {
  events.emplace_back();
  return static_cast<Event>(events.size() - 1);
}

Result<std::byte *> HostDevice::allocateArena(int64_t bytes) {
  return allocate(arena, "an arena", bytes);
}

Result<std::byte *> HostDevice::allocateHostArena(int64_t bytes) {
  return allocate(hostArena, "an arena for offloaded stashes", bytes);
}

Result<std::byte *> HostDevice::allocate(Memory &memory, std::string_view what,
                                         int64_t bytes) {
  size_t size = (static_cast<size_t>(bytes) + kSlotAlignment - 1) /
                kSlotAlignment * kSlotAlignment;
  if (size == 0)
    size = kSlotAlignment;
  memory.reset(
      static_cast<std::byte *>(std::aligned_alloc(kSlotAlignment, size)));
  if (!memory)
    return Failure{"cannot allocate " + std::string(what) + " of " +
                   std::to_string(bytes) +
                   " bytes; use smaller micro-batches or fewer ranks"};
  std::memset(memory.get(), 0, size);
  return memory.get();
}

/// The entry to fill next; null after abort, when a full ring may still be in
/// use.
HostDevice::Entry *HostDevice::nextEntry(Queue &queue) {
  const uint64_t size = queue.ring.size();
  if (queue.numIssued >= size &&
      !queue.ended.waitFor(queue.numIssued - size + 1))
    return nullptr;
  return &queue.ring[queue.numIssued & (size - 1)];
}

void HostDevice::issue(Queue &queue) {
  ++queue.numIssued;
  queue.issued.advance();
}

void HostDevice::enqueue(unsigned index, Work work) {
  Queue &queue = *queues[index];
  if (Entry *entry = nextEntry(queue)) {
    entry->work = std::move(work);
    entry->counter = nullptr;
    issue(queue);
  }
}

void HostDevice::record(unsigned queue, Event event) {
  events[event] = {queues[queue].get(), queues[queue]->numIssued};
}

void HostDevice::wait(unsigned index, Event event) {
  Queue &queue = *queues[index];
  const Position &position = events[event];
  if (!position.queue || position.queue == &queue)
    return;
  if (Entry *entry = nextEntry(queue)) {
    entry->counter = &position.queue->ended;
    entry->target = position.count;
    issue(queue);
  }
}

void HostDevice::stamp(void *, std::atomic<int64_t> &time,
                       std::atomic<uint64_t> &count) {
  time.store(std::chrono::steady_clock::now().time_since_epoch() /
                 std::chrono::nanoseconds(1),
             std::memory_order_release);
  count.fetch_add(1);
}

void HostDevice::copy(void *, std::byte *to, const std::byte *from,
                      size_t bytes) {
  if (bytes > 0)
    std::memcpy(to, from, bytes);
}

void HostDevice::runQueue(Queue &queue) {
  for (uint64_t i = 0; queue.issued.waitFor(i + 1); ++i) {
    Entry &entry = queue.ring[i & (queue.ring.size() - 1)];
    if (entry.counter) {
      if (!entry.counter->waitFor(entry.target))
        return;
    } else {
      try {
        entry.work(nullptr);
        entry.work = nullptr;
      } catch (...) {
        {
          std::lock_guard lock(failureMutex);
          if (failure.empty())
            failure = "work on a queue threw: " + describeCurrentException();
        }
        abort();
        return;
      }
    }
    queue.ended.advance();
  }
}

Status HostDevice::synchronize() {
  bool idle = true;
  for (auto &queue : queues)
    idle &= queue->ended.waitFor(queue->numIssued);
  if (idle)
    return success();
  join();
  std::lock_guard lock(failureMutex);
  return Failure{failure.empty() ? "the device was aborted" : failure};
}

void HostDevice::join() {
  for (auto &queue : queues)
    if (queue->thread.joinable())
      queue->thread.join();
}

void HostDevice::abort() {
  for (auto &queue : queues) {
    queue->issued.abort();
    queue->ended.abort();
  }
}

} // namespace penstock::runtime
