//===- NcclTransport.h - Transfers between GPUs -----------------*- C++ -*-===//
//
// The transport `nccl`. A group becomes one group of NCCL on the stream that it
// is run on. Each communicator of the program becomes one of NCCL, of the ranks
// that use it: of all ranks where the program has only one, of two where it has
// one for each edge. Collectives have one of their own beside it, so that their
// messages never meet a transfer.
//
// Communicators do not block: whoever waits for NCCL asks in turns, and ends
// when the run is aborted. NCCL is called by one thread at a time, under a
// lock, so that whoever aborts may do so himself when nobody is inside.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_CUDA_NCCLTRANSPORT_H
#define PENSTOCK_RUNTIME_CUDA_NCCLTRANSPORT_H

#include "CudaRank.h"
#include "penstock/Runtime/Backend.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace penstock::runtime {

class NcclTransport final : public Transport {
public:
  /// Of rank `number` of so many. `options` has an exchange.
  NcclTransport(std::shared_ptr<CudaRank> gpu, int32_t number, int32_t numRanks,
                const CudaOptions &options);
  ~NcclTransport() override;

  Result<uint32_t> addGroup(std::span<const Transfer> members) override;
  Result<uint32_t> addCollective(const Instruction &instruction,
                                 std::span<const int32_t> ranks,
                                 std::span<float> values) override;
  Error connect(const ProgramHash &hash) override;
  std::string agree(const std::string &text) override;
  Error run(uint32_t id, void *nativeQueue) override;
  Error check() override;
  Error disconnect() override;
  void abort() override;

private:
  using Clock = std::chrono::steady_clock;

  /// A communicator of the program, and whether it is that of its collectives.
  using CommKey = std::pair<uint16_t, bool>;
  struct Comm {
    std::vector<int32_t> ranks; ///< sorted: the i-th is rank i of NCCL
    ncclComm_t handle = nullptr;
    void *registration = nullptr; ///< of the arena
    int peer(int32_t rank) const;
  };
  struct ChannelKey {
    CommKey comm;
    int32_t source = 0, destination = 0;
    auto operator<=>(const ChannelKey &) const = default;
  };
  using ChannelSet = std::set<ChannelKey>;

  /// One message of a group.
  struct Message {
    Comm *comm = nullptr;
    bool sends = false;
    int32_t rank = 0;          ///< the other one
    int peer = 0;              ///< its number in the communicator
    std::byte *data = nullptr; ///< of the device; null: see `spare`
    size_t bytes = 0;
  };
  struct Operation {
    std::vector<Message> messages; ///< of a collective: to the first rank
    std::vector<Message> back;     ///< and from there
    /// Of an all_reduce. `device` has the values of all other ranks, one after
    /// the other, or on those the own ones; `host`, which is pinned, has those
    /// of all ranks, or the own ones where only host functions can copy them.
    std::span<float> values;
    bool onHost = false;  ///< the values, in memory that CUDA does not know
    size_t numRanks = 0;  ///< that add; 0: nothing is added
    bool isFirst = false; ///< of them
    std::byte *device = nullptr;
    float *host = nullptr;
  };

  Message &addMessage(std::vector<Message> &messages, const CommKey &comm,
                      const Instruction &inst, bool sends, int32_t other,
                      int64_t bytes);
  template <typename Fn>
  Error alone(Fn &&fn);
  Result<std::vector<std::string>> exchange(const std::string &own);
  Error compare(const ProgramHash &hash, ChannelSet &all);
  Error compareAll(const std::vector<ChannelKey> &suspects);
  Error allocate();
  Error makeComms(const ChannelSet &all);
  Error connectPairs(Comm &comm, const CommKey &key, const ChannelSet &all);
  Error runGroup(std::span<const Message> messages, cudaStream_t stream);
  Error runCollective(Operation &operation, cudaStream_t stream);
  static void CUDART_CB addValues(void *operation);
  static void CUDART_CB takeValues(void *operation);
  static void CUDART_CB giveValues(void *operation);

  Error settle(ncclComm_t comm, std::string_view call, ncclResult_t code);
  Error goesOn() const;
  Error fail(std::string_view call, ncclResult_t code, ncclComm_t comm);
  void abortComms();

  const std::shared_ptr<CudaRank> gpu;
  const int32_t rank, numRanks;
  const CudaOptions options;
  std::deque<Operation> operations;
  /// The ends of each channel on this rank, in their order. A collective is a
  /// message from each of its ranks to the first one, and one back.
  std::map<ChannelKey, std::vector<Instruction>> ends;
  std::map<CommKey, Comm> comms; ///< of this rank
  /// Of the device: a byte for each message without bytes, which NCCL might
  /// leave out, and each rank, and one to send from.
  std::byte *spare = nullptr;
  cudaStream_t stream = nullptr; ///< to connect on

  /// While it connects or parts: until when, and with whom.
  Clock::time_point deadline = Clock::time_point::max();
  std::string others;

  std::atomic<bool> aborted = false;
  std::stop_source stop; ///< of exchanges
  Error fault;           ///< asynchronous, under the lock
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_CUDA_NCCLTRANSPORT_H
