//===- Counter.h - A counter that threads wait for --------------*- C++ -*-===//
//
// The one primitive of the host back end: a count that only grows, and a wait
// for it to reach a value. Queue lengths, completed work, events and the ends
// of transfers are all counts. Advancing costs one atomic operation and a load
// unless a sleeper's target is reached.
//
// To fall asleep and be woken takes two changes of context, ten times as long
// as a hand-over between two threads that run. So whoever waits looks some
// hundred times first, where that has been worth while lately: a thread that
// waits for long, or for one that has no core, soon goes to sleep at once, and
// only tries again now and then.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_HOST_COUNTER_H
#define PENSTOCK_RUNTIME_HOST_COUNTER_H

#include <algorithm>
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
    if (now < target && (now = look(target)) < target) {
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
  static constexpr unsigned kMostLooks = 512, kFewestLooks = 8;

  /// Looks for a while, twice as long when it was worth while, half as long
  /// when it was not, and as long as ever every 32nd time: two threads that
  /// wake each other may both run by now.
  uint64_t look(uint64_t target) {
    const unsigned limit = looks.load(std::memory_order_relaxed);
    for (unsigned i = 0; i < limit; ++i) {
      pause();
      if (const uint64_t now = count.load(std::memory_order_acquire);
          now >= target) {
        looks.store(std::min(limit * 2, kMostLooks), std::memory_order_relaxed);
        return now;
      }
    }
    looks.store(target % 32 == 0 ? kMostLooks
                                 : std::max(limit / 2, kFewestLooks),
                std::memory_order_relaxed);
    return count.load();
  }
  static void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

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
  std::atomic<unsigned> looks = kMostLooks; ///< before falling asleep
  std::mutex mutex;
  std::condition_variable wake;
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_HOST_COUNTER_H
