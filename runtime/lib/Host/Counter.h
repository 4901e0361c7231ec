//===- Counter.h - A counter that threads wait for --------------*- C++ -*-===//
//
// The one primitive of the host back end: a count that only grows, and a wait
// for it to reach a value. Queue lengths, completed work, events and the ends
// of transfers are all counts. Advancing costs one atomic operation unless
// somebody sleeps.
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
    // Sequential consistency orders this against the reads in waitFor: either
    // the sleeper sees the new value, or we see the sleeper.
    value.fetch_add(by);
    if (sleepers.load() != 0)
      wakeAll();
  }

  /// Returns true as soon as the count is at least `target`; false after abort.
  bool waitFor(uint64_t target) {
    uint64_t now = value.load();
    if (now < target) {
      std::unique_lock lock(mutex);
      sleepers.fetch_add(1);
      wake.wait(lock, [&] { return (now = value.load()) >= target; });
      sleepers.fetch_sub(1);
    }
    return now < kAborted;
  }

  /// Ends all waits, now and later.
  void abort() {
    value.fetch_or(kAborted);
    wakeAll();
  }
  bool aborted() const { return value.load() >= kAborted; }

private:
  static constexpr uint64_t kAborted = uint64_t(1) << 63;

  void wakeAll() {
    { std::lock_guard lock(mutex); }
    wake.notify_all();
  }

  std::atomic<uint64_t> value = 0;
  std::atomic<uint32_t> sleepers = 0;
  std::mutex mutex;
  std::condition_variable wake;
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_HOST_COUNTER_H
