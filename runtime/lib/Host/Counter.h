//===- Counter.h - A counter that threads wait for --------------*- C++ -*-===//
//
// The one primitive of the host back end: a count that only grows, and a wait
// for it to reach a value. Queue lengths, completed work, events and the ends
// of transfers are all counts. Advancing costs one atomic operation and a load
// unless a sleeper's target is reached.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_HOST_COUNTER_H
#define PENSTOCK_RUNTIME_HOST_COUNTER_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace penstock::runtime {

class Counter {
public:
  void advance(uint64_t by = 1) {
    // Sequential consistency orders this against waitFor: either the sleeper
    // sees the new count, or we see what it wants.
    if (count.fetch_add(by) + by >= wanted.load())
      wakeAll();
  }

  /// Returns true as soon as the count is at least `target`; false after abort.
  bool waitFor(uint64_t target) {
    uint64_t now = count.load();
    if (now < target) {
      std::unique_lock lock(mutex);
      while (true) {
        if (target < wanted.load())
          wanted.store(target);
        if ((now = count.load()) >= target)
          break;
        wake.wait(lock);
      }
    }
    return now < kAborted;
  }

  /// Ends all waits, now and later.
  void abort() {
    count.fetch_or(kAborted);
    wakeAll();
  }

private:
  static constexpr uint64_t kAborted = uint64_t(1) << 63;
  static constexpr uint64_t kNobody = ~uint64_t(0);

  /// Those whose target is not reached yet say again what they want.
  void wakeAll() {
    {
      std::lock_guard lock(mutex);
      wanted.store(kNobody);
    }
    wake.notify_all();
  }

  std::atomic<uint64_t> count = 0;
  /// The smallest target that somebody sleeps for; nobody is woken before.
  std::atomic<uint64_t> wanted = kNobody;
  std::mutex mutex;
  std::condition_variable wake;
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_HOST_COUNTER_H
