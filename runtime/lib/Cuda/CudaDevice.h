//===- CudaDevice.h - A queue is a stream -----------------------*- C++ -*-===//
//
// The device `cuda`: one GPU. Work is called at once, on the thread of the
// rank, and launches what it has to do on a stream.
//
// Stamps are host functions on the stream. That is the one way without a kernel
// of our own in which times are seen while the step runs: events with times can
// be read only by asking for each of them, and in a graph they cost a node all
// the same. It holds the stream up by some microseconds, the time to the host
// and back. A kernel of one thread that writes the GPU's clock to mapped memory
// costs less, and can take the place of writeStamp without anyone noticing.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_CUDA_CUDADEVICE_H
#define PENSTOCK_RUNTIME_CUDA_CUDADEVICE_H

#include "CudaRank.h"
#include "penstock/Runtime/Device.h"

#include <deque>
#include <memory>
#include <vector>

namespace penstock::runtime {

class CudaDevice final : public Device {
public:
  /// `ncclMemory`: the arena is made by ncclMemAlloc, for the transport to
  /// register.
  CudaDevice(std::shared_ptr<CudaRank> rank, bool ncclMemory)
      : rank(std::move(rank)), ncclMemory(ncclMemory) {}
  ~CudaDevice() override;

  bool issuesWork() const override { return true; }

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
  void pause(void *nativeQueue, const std::atomic<int64_t> &since,
             std::chrono::nanoseconds time) override;
  Status synchronize() override;

  Status capture(const std::function<void()> &issue) override;
  void replay() override;

  bool showsRanges() const override;
  void beginRange(const char *name) override;
  void endRange() override;

  void abort() override { aborted = true; }

private:
  /// What a host function needs: of a stamp, or of a pause.
  struct Mark {
    CudaDevice *device;
    std::atomic<int64_t> *time = nullptr;
    std::atomic<uint64_t> *count = nullptr;
    const std::atomic<int64_t> *since = nullptr;
    std::chrono::nanoseconds pause{0};
  };
  static void CUDART_CB writeStamp(void *mark);
  static void CUDART_CB sleep(void *mark);
  void call(cudaHostFn_t function, void *nativeQueue, const Mark &mark);

  Result<cudaEvent_t> makeEvent();
  void order(cudaStream_t first, cudaStream_t second, cudaEvent_t event);
  bool isIdle();
  bool accepts();
  bool check(std::string_view call, cudaError_t code);
  void fail(std::string why);
  std::string &fault() { return capturing ? captureFault : failure; }

  const std::shared_ptr<CudaRank> rank;
  const bool ncclMemory;
  std::vector<cudaStream_t> queues;
  std::vector<cudaEvent_t> events;
  std::byte *arena = nullptr;
  void *hostArena = nullptr; ///< pinned, or copies would hold up the host

  /// Those of the present step, and those of the graph. They stay where they
  /// are, and after the first step there are enough.
  std::deque<Mark> marks, captured;
  size_t numMarks = 0;

  bool capturing = false;
  cudaEvent_t forkEvent = nullptr; ///< of captures
  std::vector<cudaEvent_t> joinEvents;

  std::atomic<bool> aborted = false;
  std::string failure, captureFault; ///< the first; of the rank's thread
  bool isBroken = false;             ///< CUDA does nothing any more
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_CUDA_CUDADEVICE_H
