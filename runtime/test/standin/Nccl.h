//===- Nccl.h - Communicators of the stand-in -------------------*- C++ -*-===//
//
// What NCCL runs: an *item* is one kernel, made of transfers or collectives. A
// channel is (clique, source, destination); its sends and receives are numbered
// in the order in which the hosts issue them, and match by number.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_TEST_STANDIN_NCCL_H
#define PENSTOCK_RUNTIME_TEST_STANDIN_NCCL_H

#include "World.h"

namespace penstock::standin {

struct Clique;

/// What communicators that share resources keep in host order.
struct Resource {
  OpRef last;
};

struct Transfer {
  ncclComm *comm = nullptr;
  bool isSend = false;
  int peer = 0;
  void *buffer = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclInt8;

  uint64_t number = 0;       ///< of its end of the channel
  size_t layer = 0;          ///< among those to the peer in the item
  size_t batch = 0;          ///< of the plan
  bool isRendezvous = false; ///< whatever the capacity
  bool sent = false;         ///< to another process
  bool done = false;
  std::vector<std::byte> staged; ///< of a send that ran ahead
};

struct Collective {
  enum Kind : uint8_t {
    AllReduce,
    Reduce,
    Broadcast,
    AllGather,
    ReduceScatter,
    AllToAll,
    Gather,
    Scatter,
    Meet
  } kind = Meet;
  ncclComm *comm = nullptr;
  const void *send = nullptr;
  void *receive = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  std::vector<int> ranks = {}; ///< that take part
  std::string key = {};        ///< what must agree, and how often it was before
  bool done = false;
};

struct Item {
  OpRef op; ///< once it has started
  int device = 0;
  std::string what;
  std::vector<Transfer> transfers;
  std::vector<Collective> collectives;
  std::set<ncclComm *> comms;
  bool ready = false, done = false;
  bool dead = false; ///< its communicator was aborted
  std::weak_ptr<Op> owner;
};

struct Channel {
  struct End {
    std::deque<std::pair<ItemRef, size_t>> issued;
    uint64_t first = 0; ///< number of the first in `issued`
    uint64_t next = 0;
  } sends, receives;
  uint64_t received = 0;
  bool connected = false;
};

/// Where a rank is.
struct Place {
  std::string address; ///< of its process
  std::string host;
  int bus = 0; ///< of its device
};

/// The ranks of a communicator.
struct Clique {
  uint64_t id = 0;
  std::string key;           ///< the unique id
  std::vector<Place> places; ///< empty: all ranks are in this process
  std::string here;          ///< the address of this process
  int size = 0, joined = 0;
  ncclResult_t failure = ncclSuccess;
  std::vector<ncclComm *> ranks;
  std::map<std::pair<int, int>, Channel> channels;
  /// By key: the item and index of each rank.
  std::map<std::string, std::map<int, std::pair<ItemRef, size_t>>> meetings;
  struct Split {
    struct Entry {
      int color, key, rank;
      ncclComm *parent, *child;
    };
    std::vector<Entry> entries;
    bool done = false;
  };
  std::map<uint64_t, std::shared_ptr<Split>> splits;

  bool isComplete() const { return joined == size; }
  /// True if the rank, of a complete one, is in another process.
  bool isElsewhere(int rank) const {
    return !places.empty() && places[static_cast<size_t>(rank)].address != here;
  }
};

/// A group whose host waits for new connections.
struct Connecting {
  struct End {
    Clique *clique;
    int rank, peer;
    bool isSend;
    auto operator<=>(const End &) const = default;
  };
  std::set<End> ends;
  std::set<ncclComm *> comms;
  bool done = false;
  ncclResult_t error = ncclSuccess;
};

struct World::Cliques {
  std::map<std::string, std::shared_ptr<Clique>> byId;
  std::vector<std::shared_ptr<Clique>> all;
  std::vector<std::shared_ptr<Connecting>> connecting;
  std::map<void *, std::pair<ncclComm *, uintptr_t>> registrations;

  /// \name Between processes
  /// @{
  /// Where the ranks are that have come for an id of this process.
  struct Arrivals {
    int size = 0;
    std::map<int, Place> places;
  };
  std::map<std::string, Arrivals> arrivals;
  /// What has come for a channel (key, source, destination), by number.
  struct Mail {
    size_t count = 0;
    ncclDataType_t type = ncclInt8;
    std::string data;
  };
  using ChannelName = std::tuple<std::string, int, int>;
  std::map<ChannelName, std::map<uint64_t, Mail>> mail;
  /// @}
};

} // namespace penstock::standin

struct ncclComm {
  std::shared_ptr<penstock::standin::Clique> clique; ///< null while splitting
  int rank = 0, size = 0, device = 0;
  bool blocking = true, splitShare = false;
  std::shared_ptr<penstock::standin::Resource> resource;
  ncclResult_t asyncError = ncclSuccess;
  unsigned jobs = 0; ///< in progress
  bool finalized = false, revoked = false, aborted = false, broken = false;
  size_t unfinished = 0; ///< items
  uint64_t numSplits = 0;
  penstock::standin::Thread *user = nullptr; ///< the last one
  unsigned inside = 0;                       ///< threads that wait in a call
  std::map<std::string, uint64_t> occurrences;
};

#endif // PENSTOCK_RUNTIME_TEST_STANDIN_NCCL_H
