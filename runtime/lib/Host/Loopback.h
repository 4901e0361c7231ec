//===- Loopback.h - All ranks in one process --------------------*- C++ -*-===//
//
// The transport `loopback`: strict rendezvous between threads. The side of a
// transfer that comes second copies from slot to slot; nothing is buffered, so
// a program that relies on buffering hangs here as it may hang under NCCL.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_HOST_LOOPBACK_H
#define PENSTOCK_RUNTIME_HOST_LOOPBACK_H

#include "Counter.h"
#include "penstock/Runtime/Transport.h"

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

namespace penstock::runtime {

class LoopbackTransport;

/// What the endpoints of one run share.
class LoopbackWorld {
public:
  explicit LoopbackWorld(int32_t numRanks) : numRanks(numRanks) {}

private:
  friend class LoopbackTransport;

  struct Channel;
  /// One end of a transfer. Its operation waits on `done` for all its members.
  struct Post {
    const Instruction *instruction = nullptr;
    std::byte *data = nullptr;
    Channel *channel = nullptr;
    Counter *done = nullptr;
    Post *next = nullptr; ///< behind it in the channel
  };
  /// The posts of a (comm, source, destination) that have no partner yet: all
  /// of them sends, or all receives.
  struct Channel {
    std::mutex mutex;
    Post *head = nullptr, *tail = nullptr;
  };
  /// Where the ranks of a collective meet, each time. `here` and `values` are
  /// of those that wait, in the order of the ranks.
  struct Meeting {
    std::mutex mutex;
    std::vector<Counter *> here; ///< null: not here yet
    std::vector<std::span<float>> values;
    size_t numHere = 0;
  };
  using ChannelKey = std::tuple<uint16_t, int32_t, int32_t>;
  using MeetingKey =
      std::tuple<Op, uint16_t, std::vector<int32_t>, int32_t, int32_t>;

  const int32_t numRanks;
  std::mutex mutex; ///< of what follows; not taken in a step
  std::map<ChannelKey, Channel> channels;
  std::map<MeetingKey, Meeting> meetings;
  /// Of all endpoints: a peer may still touch a counter when its owner has
  /// gone.
  std::deque<Counter> counters;
  ProgramHash firstHash;
  int32_t firstRank = -1;
};

class LoopbackTransport final : public Transport {
public:
  LoopbackTransport(std::shared_ptr<LoopbackWorld> world, int32_t rank);

  Result<uint32_t> addGroup(std::span<const Transfer> members) override;
  Result<uint32_t> addCollective(const Instruction &instruction,
                                 std::span<const int32_t> ranks,
                                 std::span<float> values) override;
  Error connect(const ProgramHash &hash) override;
  Error run(uint32_t id, void *nativeQueue) override;
  void abort() override;

private:
  /// A group of posts or, with a meeting, a collective.
  struct Operation {
    std::vector<LoopbackWorld::Post> posts;
    LoopbackWorld::Meeting *meeting = nullptr;
    size_t seat = 0; ///< of this rank in the meeting
    std::span<float> values;
    Counter *done = nullptr;
    uint64_t target = 0; ///< of `done`, when the present run has ended
  };

  Operation &addOperation();
  void join(Operation &operation, LoopbackWorld::MeetingKey key);
  Error post(LoopbackWorld::Post &post);
  Error meet(Operation &operation);
  Error run(Operation &operation);

  std::shared_ptr<LoopbackWorld> world;
  const int32_t rank;
  std::deque<Operation> operations; ///< the first one is connect()
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_HOST_LOOPBACK_H
