//===- BackOff.h - How to wait for what must be asked -----------*- C++ -*-===//

#ifndef PENSTOCK_RUNTIME_CORE_BACKOFF_H
#define PENSTOCK_RUNTIME_CORE_BACKOFF_H

#include <algorithm>
#include <chrono>
#include <thread>

namespace penstock::runtime {

/// Sleeps the longer the more often nothing happened: a waiting rank must leave
/// the core to one that works.
inline void backOff(unsigned round) {
  if (round < 20)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::min(round, 200u)));
}

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_CORE_BACKOFF_H
