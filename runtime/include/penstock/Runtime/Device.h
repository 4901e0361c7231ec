//===- Device.h - Queues, events and memory of one rank ---------*- C++ -*-===//
//
// What the executor asks of the hardware of one rank. The interface is the
// common part of a thread that works off a list (`host`) and of a CUDA stream
// (`cuda`): work is given to a queue in order, and it either *is* the work (a
// host function on the queue's own thread) or *issues* it (kernel launches to
// the native queue, from the caller's thread). The executor cannot tell.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_DEVICE_H
#define PENSTOCK_RUNTIME_DEVICE_H

#include "penstock/Program/Result.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>

namespace penstock::runtime {

/// Names an event of a device.
using Event = uint32_t;

/// The device of one rank. All calls come from one thread at a time, except
/// `abort`, which any thread may call, and `stamp`, which is called inside
/// work.
class Device {
public:
  /// One piece of work. `nativeQueue` is what Model and Transport get: a
  /// cudaStream_t, or null on the host. Captures of at most 16 bytes, trivially
  /// copyable, keep enqueue free of allocations.
  using Work = std::function<void(void *nativeQueue)>;

  virtual ~Device() = default;

  /// Whether work issues: then it is called at once, by enqueue, and gives what
  /// is to be done to the native queue. Else it is called when the queue gets
  /// to it.
  virtual bool issuesWork() const { return false; }

  /// \name Preparation
  /// @{

  /// A new queue; numbered from 0. `depth` is the number of calls of enqueue
  /// and wait between two synchronisations for which there must be room; a
  /// caller that exceeds it may block until the queue has worked off some.
  virtual Result<unsigned> addQueue(unsigned depth) = 0;
  virtual Event addEvent() = 0;
  /// The arena, aligned to kSlotAlignment and zero; once. It lives as long as
  /// the device.
  virtual Result<std::byte *> allocateArena(int64_t bytes) = 0;
  /// Memory of the host for copies, likewise; what is in it at first is
  /// undefined.
  virtual Result<std::byte *> allocateHostArena(int64_t bytes) = 0;
  /// @}

  /// \name The step; none of these allocates
  /// @{

  /// Gives work to a queue. An exception that leaves the work fails the device:
  /// what is queued behind it, on any queue, does not run.
  virtual void enqueue(unsigned queue, Work work) = 0;
  /// The event happens when everything enqueued on `queue` so far has ended. A
  /// new record replaces the old one for later waits.
  virtual void record(unsigned queue, Event event) = 0;
  /// What is enqueued on `queue` from now on starts after the last recorded
  /// occurrence of the event; at once if there is none.
  virtual void wait(unsigned queue, Event event) = 0;
  /// Inside work: when the queue gets here, stores the steady clock's time in
  /// nanoseconds and adds 1 to `count`. Both are seen while the step runs: the
  /// watchdog has nothing else.
  virtual void stamp(void *nativeQueue, std::atomic<int64_t> &time,
                     std::atomic<uint64_t> &count) = 0;
  /// Inside work: when the queue gets here, copies from the arena to that in
  /// host memory or back.
  virtual void copy(void *nativeQueue, std::byte *to, const std::byte *from,
                    size_t bytes) = 0;
  /// Inside work of a device that issues: when the queue gets here, it stands
  /// still until so much time has passed since `since`, which is as `stamp`
  /// stores it, or until the device is aborted.
  virtual void pause(void *nativeQueue, const std::atomic<int64_t> &since,
                     std::chrono::nanoseconds time) {
    (void)nativeQueue, (void)since, (void)time;
  }
  /// Waits until all queues are idle. Fails when the device has failed or was
  /// aborted; then, too, no work runs any more when this returns.
  virtual Status synchronize() = 0;
  /// @}

  /// \name A step as one piece
  /// @{

  /// Calls `issue` and keeps what it enqueues, records and waits for, instead
  /// of running it. Fails, and keeps nothing, where that is not possible. The
  /// queues must be idle.
  virtual Status capture(const std::function<void()> &issue) {
    (void)issue;
    return Failure{"this device has no graphs"};
  }
  /// Runs what was captured, stamps included.
  virtual void replay() {}
  /// @}

  /// \name Ranges for a profiler, of the calling thread, one inside the other
  /// @{
  virtual bool showsRanges() const { return false; }
  /// The name is used only now.
  virtual void beginRange(const char *name) { (void)name; }
  virtual void endRange() {}
  /// @}

  /// Ends all waits; work that has not started does not run any more, but for
  /// what a native queue has already got. Not during preparation.
  virtual void abort() = 0;
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_DEVICE_H
