//===- HostDevice.h - A queue is a thread -----------------------*- C++ -*-===//
//
// The device `host`. Each queue is a ring of entries that one thread works off;
// an event is a position in a queue.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_HOST_HOSTDEVICE_H
#define PENSTOCK_RUNTIME_HOST_HOSTDEVICE_H

#include "Counter.h"
#include "penstock/Runtime/Device.h"

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace penstock::runtime {

class HostDevice final : public Device {
public:
  ~HostDevice() override;

  Result<unsigned> addQueue(unsigned depth) override;
  Event addEvent() override;
  Result<std::byte *> allocateArena(int64_t bytes) override;
  Result<std::byte *> allocateHostArena(int64_t bytes) override;

  void enqueue(unsigned queue, Work work) override;
  void record(unsigned queue, Event event) override;
  void wait(unsigned queue, Event event) override;
  void stamp(void *nativeQueue, std::atomic<int64_t> &time,
             std::atomic<uint64_t> &count) override;
  void copy(void *nativeQueue, std::byte *to, const std::byte *from,
            size_t bytes) override;
  Status synchronize() override;
  void abort() override;

private:
  /// Work, or the wait for `ended` of another queue to reach a value.
  struct Entry {
    Work work;
    Counter *counter = nullptr;
    uint64_t target = 0;
  };
  struct Queue {
    std::vector<Entry> ring; ///< a power of two of them
    uint64_t numIssued = 0;  ///< of the issuing thread
    Counter issued, ended;
    std::thread thread;
  };
  struct Position {
    Queue *queue = nullptr;
    uint64_t count = 0;
  };

  static Entry *nextEntry(Queue &queue);
  static void issue(Queue &queue);
  void runQueue(Queue &queue);
  void join();

  std::vector<std::unique_ptr<Queue>> queues;
  std::vector<Position> events;
  using Memory = std::unique_ptr<std::byte, decltype(&std::free)>;
  static Result<std::byte *> allocate(Memory &memory, std::string_view what,
                                      int64_t bytes);
  Memory arena{nullptr, &std::free}, hostArena{nullptr, &std::free};
  std::mutex failureMutex;
  std::string failure; ///< of the first work that threw
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_HOST_HOSTDEVICE_H
