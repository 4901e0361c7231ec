//===- Nccl.cpp - NCCL of the stand-in ------------------------------------===//
//
// Communicators, groups, and the rules by which transfers progress.
//
//===----------------------------------------------------------------------===//

#include "Nccl.h"

#include "CudaCall.h"
#include "Reduce.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

using namespace penstock::standin;

OpRef &World::lastOf(Resource *resource) { return resource->last; }
size_t World::numRegistrations() const {
  return cliques ? cliques->registrations.size() : 0;
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

static size_t bytesOf(const Transfer &t) { return t.count * sizeOf(t.type); }

static std::string nameOf(const ncclComm *comm) {
  return "rank " + std::to_string(comm->rank) +
         (comm->clique ? " of communicator " + std::to_string(comm->clique->id)
                       : std::string());
}
static std::string nameOf(const Transfer &t) {
  return std::string(t.isSend ? "ncclSend" : "ncclRecv") + " of " +
         std::to_string(bytesOf(t)) + " bytes " + (t.isSend ? "to" : "from") +
         " rank " + std::to_string(t.peer);
}
static const char *nameOf(Collective::Kind kind) {
  static const char *const names[] = {
      "ncclAllReduce", "ncclReduce",        "ncclBroadcast",
      "ncclAllGather", "ncclReduceScatter", "ncclAlltoAll",
      "ncclGather",    "ncclScatter",       "a meeting"};
  return names[kind];
}

//===----------------------------------------------------------------------===//
// Matching
//===----------------------------------------------------------------------===//

static Channel &channelOf(const Transfer &t) {
  const int rank = t.comm->rank;
  return t.comm->clique
      ->channels[t.isSend ? std::pair(rank, t.peer) : std::pair(t.peer, rank)];
}
static Channel::End &endOf(const Transfer &t, bool other = false) {
  Channel &channel = channelOf(t);
  return t.isSend != other ? channel.sends : channel.receives;
}
/// The item with the transfer at the other end; null if it is not issued.
static Item *partnerOf(const Transfer &t, Transfer **partner) {
  Channel::End &end = endOf(t, true);
  *partner = nullptr;
  if (t.number >= end.next || t.number < end.first)
    return nullptr;
  auto &[item, index] = end.issued[t.number - end.first];
  *partner = &item->transfers[index];
  return item.get();
}
static void forgetDone(Channel::End &end) {
  while (!end.issued.empty()) {
    auto &[item, index] = end.issued.front();
    const Transfer &t = item->transfers[index];
    if (!t.done || !t.staged.empty())
      return;
    end.issued.pop_front();
    ++end.first;
  }
}

/// Rounds, work items and batches as NCCL's planner makes them, if every
/// message uses every channel.
static void planBatches(Item &item) {
  for (ncclComm *comm : item.comms) {
    const int n = comm->size;
    std::map<int, std::deque<Transfer *>> sends, receives;
    size_t left = 0;
    for (Transfer &t : item.transfers)
      if (t.comm == comm) {
        (t.isSend ? sends : receives)[t.peer].push_back(&t);
        ++left;
      }
    size_t batch = 0, inBatch = 0;
    int block = -1;
    std::set<int> rounds;
    while (left > 0)
      for (int round = 0; round < n; ++round) {
        auto &send = sends[(comm->rank + round) % n];
        auto &receive = receives[(comm->rank - round + n) % n];
        if (send.empty() && receive.empty())
          continue;
        if (inBatch == 8 || (block >= 0 && block != round / 8) ||
            rounds.count(round)) {
          ++batch;
          inBatch = 0;
          rounds.clear();
        }
        block = round / 8;
        ++inBatch;
        rounds.insert(round);
        for (auto *queue : {&send, &receive})
          if (!queue->empty()) {
            queue->front()->batch = batch;
            queue->pop_front();
            --left;
          }
      }
  }
}

static bool isPosted(const World &world, const Item &item, const Transfer &t) {
  if (!item.ready || item.done || item.dead || t.done || t.comm->broken)
    return false;
  for (const Transfer &other : item.transfers) {
    if (other.done || &other == &t)
      continue;
    bool holdsBack = false;
    switch (world.options.groups) {
    case Groups::Layered:
      holdsBack = other.layer < t.layer;
      break;
    case Groups::Plan:
      holdsBack = other.comm == t.comm && other.batch < t.batch;
      break;
    default:
      holdsBack = other.comm == t.comm && other.isSend == t.isSend &&
                  other.peer == t.peer && other.number < t.number;
    }
    if (holdsBack)
      return false;
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Progress
//===----------------------------------------------------------------------===//

static void finishIfDone(World &world, Item &item) {
  if (item.done)
    return;
  for (const Transfer &t : item.transfers)
    if (!t.done)
      return;
  for (const Collective &c : item.collectives)
    if (!c.done)
      return;
  item.done = true;
  for (ncclComm *comm : item.comms)
    --comm->unfinished;
  for (const Transfer &t : item.transfers)
    forgetDone(endOf(t));
  if (item.op)
    world.complete(item.op);
}

static void setAsyncError(World &world, ncclComm *comm, ncclResult_t error) {
  if (comm->asyncError == ncclSuccess)
    comm->asyncError = error;
  ++world.version;
}

/// Checks a pair, and gives what to move.
static size_t checkPair(World &world, const Transfer &send,
                        const Transfer &receive) {
  const size_t sent = bytesOf(send), received = bytesOf(receive);
  if (world.options.checkPairs &&
      (send.count != receive.count || send.type != receive.type)) {
    world.find(nameOf(send.comm) + ": " + nameOf(send) + ", which calls for " +
               std::to_string(send.count) + " elements of type " +
               std::to_string(send.type) + ", meets " + nameOf(receive) +
               " for " + std::to_string(receive.count) + " elements of type " +
               std::to_string(receive.type));
    setAsyncError(world, send.comm, ncclInvalidUsage);
    setAsyncError(world, receive.comm, ncclInvalidUsage);
  }
  return std::min(sent, received);
}
static void move(World &world, const Transfer &send, const Transfer &receive) {
  const size_t size = checkPair(world, send, receive);
  const void *from = send.staged.empty() ? send.buffer : send.staged.data();
  if ((send.staged.empty() &&
       !world.checkRange(from, size,
                         nameOf(send.comm) + ": " + nameOf(send))) ||
      !world.checkRange(receive.buffer, size,
                        nameOf(receive.comm) + ": " + nameOf(receive))) {
    setAsyncError(world, send.comm, ncclUnhandledCudaError);
    setAsyncError(world, receive.comm, ncclUnhandledCudaError);
    return;
  }
  if (size)
    std::memmove(receive.buffer, from, size);
}

//===----------------------------------------------------------------------===//
// Other processes
//===----------------------------------------------------------------------===//

namespace {
/// The first byte of a message. A rank that comes tells the process that made
/// the id; that tells all where all are. A send brings its data as soon as it
/// is posted, and ends when the receive has told that it has taken them.
enum MessageKind : char { Comes, AllAreHere, IsSent, IsTaken };
} // namespace

static std::string hostName() {
  if (const char *name = std::getenv("NCCL_HOSTID"))
    return name;
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

/// About the channel of a transfer, to the other side.
static void tell(World &world, const Transfer &t, MessageKind kind,
                 const std::string &rest = {}) {
  const int rank = t.comm->rank;
  std::string bytes(1, kind);
  pack(bytes, t.comm->clique->key);
  pack(bytes, t.isSend ? rank : t.peer);
  pack(bytes, t.isSend ? t.peer : rank);
  pack(bytes, t.number);
  world.network()->send(
      t.comm->clique->places[static_cast<size_t>(t.peer)].address,
      bytes + rest);
}

/// One whose other end is in another process.
static bool advanceElsewhere(World &world, Transfer &t) {
  Channel &channel = channelOf(t);
  if (t.isSend) {
    const bool wasSent = std::exchange(t.sent, true);
    if (!wasSent) {
      std::string rest;
      pack(rest, t.count);
      pack(rest, t.type);
      if (!world.checkRange(t.buffer, bytesOf(t),
                            nameOf(t.comm) + ": " + nameOf(t)))
        setAsyncError(world, t.comm, ncclUnhandledCudaError);
      else
        rest.append(static_cast<const char *>(t.buffer), bytesOf(t));
      tell(world, t, IsSent, rest);
    }
    const bool runsAhead =
        !t.isRendezvous && t.number - channel.received < world.options.capacity;
    t.done = channel.received > t.number || runsAhead;
    return t.done || !wasSent;
  }
  auto &mail = world.cliques->mail[{t.comm->clique->key, t.peer, t.comm->rank}];
  const auto found = mail.find(t.number);
  if (found == mail.end())
    return false;
  Transfer send = t;
  send.isSend = true;
  send.peer = t.comm->rank;
  send.count = found->second.count;
  send.type = found->second.type;
  const auto *data =
      reinterpret_cast<const std::byte *>(found->second.data.data());
  send.staged.assign(data, data + found->second.data.size());
  send.staged.resize(std::max<size_t>(send.staged.size(), 1));
  move(world, send, t);
  mail.erase(found);
  ++channel.received;
  tell(world, t, IsTaken);
  return t.done = true;
}

static bool advanceTransfer(World &world, Item &item, Transfer &t) {
  if (!isPosted(world, item, t))
    return false;
  if (t.comm->clique->isElsewhere(t.peer))
    return advanceElsewhere(world, t);
  Transfer *partner;
  Item *other = partnerOf(t, &partner);
  if (other && isPosted(world, *other, *partner)) {
    Transfer &send = t.isSend ? t : *partner,
             &receive = t.isSend ? *partner : t;
    move(world, send, receive);
    ++channelOf(t).received;
    t.done = partner->done = true;
    finishIfDone(world, *other);
    return true;
  }
  if (t.isSend) {
    if (t.isRendezvous ||
        t.number - channelOf(t).received >= world.options.capacity)
      return false;
    const auto *bytes = static_cast<const std::byte *>(t.buffer);
    if (!world.checkRange(bytes, bytesOf(t), nameOf(t.comm) + ": " + nameOf(t)))
      setAsyncError(world, t.comm, ncclUnhandledCudaError);
    else
      t.staged.assign(bytes, bytes + bytesOf(t));
    if (t.staged.empty())
      t.staged.resize(1); // marks that it ran ahead
    return t.done = true;
  }
  if (!other || !partner->done)
    return false;
  // The message was sent ahead.
  move(world, *partner, t);
  partner->staged.clear();
  ++channelOf(t).received;
  t.done = true;
  forgetDone(endOf(*partner));
  return true;
}

/// All items that meet in a collective, if they are all issued.
static std::vector<std::pair<Item *, size_t>> meetingOf(const Collective &c) {
  std::vector<std::pair<Item *, size_t>> result;
  auto it = c.comm->clique->meetings.find(c.key);
  if (it == c.comm->clique->meetings.end() ||
      it->second.size() != c.ranks.size())
    return {};
  for (auto &[rank, place] : it->second)
    result.emplace_back(place.first.get(), place.second);
  return result;
}
static void perform(World &world,
                    const std::vector<std::pair<Item *, size_t>> &meeting) {
  std::vector<Part> parts;
  const Collective &first = meeting[0].first->collectives[meeting[0].second];
  for (auto [item, index] : meeting) {
    Collective &c = item->collectives[index];
    c.done = true;
    parts.push_back({c.send, c.receive, c.comm->rank});
  }
  const Collective c = first; // its key names what is erased
  c.comm->clique->meetings.erase(c.key);
  if (c.kind == Collective::Meet)
    return;
  runCollective(c, parts, [&](const void *p, size_t size) {
    return world.checkRange(p, size, nameOf(c.kind));
  });
}
static bool isReady(const Item &item) {
  if (!item.ready || item.done || item.dead)
    return false;
  return std::none_of(item.comms.begin(), item.comms.end(),
                      [](const ncclComm *comm) { return comm->broken; });
}

static bool advanceCollective(World &world, Item &, Collective &c) {
  if (c.done)
    return false;
  const auto meeting = meetingOf(c);
  if (meeting.empty())
    return false;
  for (auto [other, index] : meeting)
    if (!isReady(*other))
      return false;
  perform(world, meeting);
  for (auto [other, index] : meeting)
    finishIfDone(world, *other);
  return true;
}

/// The least set of items that contains all partners, run as one step.
static bool advanceClosure(World &world, Item &item) {
  std::vector<Item *> step = {&item};
  auto add = [&](Item *other) {
    if (!other || !isReady(*other))
      return false;
    if (std::find(step.begin(), step.end(), other) == step.end())
      step.push_back(other);
    return true;
  };
  if (!isReady(item))
    return false;
  for (size_t i = 0; i < step.size(); ++i) {
    for (const Transfer &t : step[i]->transfers) {
      Transfer *partner;
      if (!t.done && !add(partnerOf(t, &partner)))
        return false;
    }
    for (const Collective &c : step[i]->collectives) {
      const auto meeting = meetingOf(c);
      if (meeting.empty())
        return false;
      for (auto [other, index] : meeting)
        if (!add(other))
          return false;
    }
  }
  for (Item *each : step) {
    for (Transfer &t : each->transfers) {
      if (t.done)
        continue;
      Transfer *partner;
      partnerOf(t, &partner);
      move(world, t.isSend ? t : *partner, t.isSend ? *partner : t);
      ++channelOf(t).received;
      t.done = partner->done = true;
    }
    for (Collective &c : each->collectives)
      if (!c.done)
        perform(world, meetingOf(c));
  }
  for (Item *each : step)
    finishIfDone(world, *each);
  return true;
}

bool World::progressItems() {
  bool progress = false;
  const std::vector<ItemRef> items = active; // an item that ends starts others
  for (const ItemRef &item : items) {
    if (item->done)
      continue;
    if (item->dead) {
      item->done = true;
      complete(item->op);
      progress = true;
      continue;
    }
    if (options.groups == Groups::Closure && !options.processes) {
      progress |= advanceClosure(*this, *item);
      continue;
    }
    for (Collective &c : item->collectives)
      progress |= advanceCollective(*this, *item, c);
    for (Transfer &t : item->transfers)
      progress |= advanceTransfer(*this, *item, t);
    finishIfDone(*this, *item);
    progress |= item->done;
  }
  std::erase_if(active, [](const ItemRef &item) { return item->done; });
  return progress || !startable.empty();
}

void World::kill(Item &item) {
  if (item.dead || item.done)
    return;
  item.dead = true;
  for (ncclComm *comm : item.comms)
    --comm->unfinished;
}

void World::cancelItems(const std::function<bool(const Item &)> &which) {
  for (const auto &[number, op] : pending)
    if (op->item && which(*op->item))
      kill(*op->item);
  ++version;
}

void World::failComms() {
  for (ncclComm *comm : comms) {
    bool waits = comm->unfinished > 0;
    for (const auto &c : cliques->connecting)
      waits |= c->comms.count(comm) > 0;
    if (waits || comm->jobs)
      setAsyncError(*this, comm, ncclInternalError);
  }
}

void World::waitsOf(const Item &item, std::vector<OpRef> &ops,
                    std::vector<Thread *> &hosts, std::string *text) {
  auto partnerIs = [&](const std::string &own, int peer, Clique &clique,
                       const Item *other, bool posted) {
    const bool isGroup = item.transfers.size() + item.collectives.size() > 1;
    std::string line = item.what + (isGroup ? ": " + own : "") + " waits for ";
    if (!other || other->dead)
      line += "rank " + std::to_string(peer);
    ncclComm *comm = clique.ranks[static_cast<size_t>(peer)];
    OpRef op = other ? other->owner.lock() : nullptr;
    if (!other) {
      if (comm && comm->user)
        hosts.push_back(comm->user);
      line += comm && !comm->aborted
                  ? ", which has not issued the other end"
                  : ", whose communicator was aborted or destroyed";
    } else if (other->dead) {
      line += ", whose communicator was aborted";
    } else if (posted) {
      line += other->what + ", but the communicator is broken";
    } else {
      if (op && op.get() != item.op.get())
        ops.push_back(op);
      line +=
          other->what + (other->ready ? ", which has not come to the other end"
                                      : ", which has not started");
    }
    if (text)
      *text += line + "\n";
  };
  for (const Transfer &t : item.transfers) {
    if (t.done)
      continue;
    Transfer *partner;
    const Item *other = partnerOf(t, &partner);
    const bool posted = isPosted(*this, item, t);
    const bool otherPosted = other && isPosted(*this, *other, *partner);
    if (!posted && otherPosted && options.groups != Groups::Closure)
      continue; // the others of the item say why
    if (options.groups == Groups::Closure && otherPosted)
      continue;
    partnerIs(nameOf(t), t.peer, *t.comm->clique, other, otherPosted);
  }
  for (const Collective &c : item.collectives) {
    if (c.done)
      continue;
    auto it = c.comm->clique->meetings.find(c.key);
    for (int rank : c.ranks) {
      const Item *other = nullptr;
      if (it != c.comm->clique->meetings.end()) {
        auto place = it->second.find(rank);
        if (place != it->second.end())
          other = place->second.first.get();
      }
      if (other == &item || (other && other->ready && !other->dead))
        continue;
      partnerIs(nameOf(c.kind), rank, *c.comm->clique, other, false);
    }
  }
}

//===----------------------------------------------------------------------===//
// Calls and groups
//===----------------------------------------------------------------------===//

namespace {

/// A call inside of a group.
struct Issued {
  ncclComm *comm = nullptr;
  CUstream_st *stream = nullptr;
  std::optional<Transfer> transfer;
  std::optional<Collective> collective;
};
/// A communicator to be made at the end of the group.
struct Joining {
  ncclComm *comm;
  std::string id;
  int size, rank;
};
struct Splitting {
  ncclComm *parent;
  std::shared_ptr<Clique::Split> split;
  ncclComm **result;
};
struct Group {
  unsigned depth = 0;
  uint64_t generation = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Issued> calls;
  std::vector<Joining> joins;
  std::vector<Splitting> splits;

  void clear() {
    error = ncclSuccess;
    calls.clear();
    joins.clear();
    splits.clear();
  }
};
thread_local Group group;
thread_local std::string lastErrorText;
thread_local bool injectedNow = false; ///< into the call that runs

/// `fn(world, lock, thread)` as one call of NCCL.
template <typename Fn>
ncclResult_t nccl(const char *function, Fn &&fn, unsigned flags = 0) {
  Call call(function, Library::Nccl, flags & kLooks ? Call::Looks : Call::Acts);
  if (group.generation != call.world.generation) {
    group.depth = 0;
    group.clear();
    group.generation = call.world.generation;
  }
  if (!call.world.cliques)
    call.world.cliques = std::make_shared<World::Cliques>();
  ncclResult_t result = ncclSuccess;
  if (InsideOperation::current) {
    call.world.find(std::string(InsideOperation::current) + " calls " +
                    function + ", which CUDA does not allow");
    result = ncclInvalidUsage;
  } else if (call.injected && !(flags & kReleases)) {
    result = static_cast<ncclResult_t>(*call.injected);
  } else {
    injectedNow = call.injected.has_value();
    result = fn(call.world, call.lock, call.thread);
    injectedNow = false;
    if (call.injected)
      result = static_cast<ncclResult_t>(*call.injected);
  }
  if (result != ncclSuccess && result != ncclInProgress) {
    if (group.depth > 0 && group.error == ncclSuccess)
      group.error = result;
    if (call.injected)
      lastErrorText = std::string(function) + ": injected";
  }
  return result;
}

ncclResult_t refuse(ncclResult_t result, std::string why) {
  lastErrorText = std::move(why);
  return result;
}

bool isKnown(const World &world, ncclComm *comm) {
  return comm && world.comms.count(comm);
}
/// What ncclCommEnsureReady says.
ncclResult_t checkComm(World &world, ncclComm *comm, Thread &t) {
  if (!isKnown(world, comm))
    return refuse(ncclInvalidArgument, "not a communicator");
  comm->user = &t;
  if (comm->jobs || !comm->clique || !comm->clique->isComplete())
    return refuse(ncclInvalidArgument,
                  "the communicator is used before the previous operation has "
                  "returned ncclSuccess");
  if (comm->asyncError != ncclSuccess)
    return refuse(comm->asyncError, "the communicator has failed");
  if (comm->revoked || comm->finalized)
    return refuse(ncclInvalidUsage, "the communicator is finalized or revoked");
  return ncclSuccess;
}

/// Counts threads that wait in a call with a communicator.
class Inside {
public:
  explicit Inside(std::vector<ncclComm *> comms) : comms(std::move(comms)) {
    for (ncclComm *comm : this->comms)
      ++comm->inside;
  }
  ~Inside() {
    for (ncclComm *comm : comms)
      --comm->inside;
  }

private:
  std::vector<ncclComm *> comms;
};

std::vector<Thread *> usersOf(Clique &clique) {
  std::vector<Thread *> users;
  for (ncclComm *comm : clique.ranks)
    if (comm && comm->user)
      users.push_back(comm->user);
  return users;
}

} // namespace

//===----------------------------------------------------------------------===//
// Connections
//===----------------------------------------------------------------------===//

static Channel &channelOf(const Connecting::End &end) {
  return end.clique->channels[end.isSend ? std::pair(end.rank, end.peer)
                                         : std::pair(end.peer, end.rank)];
}
static std::shared_ptr<Connecting> findAnswer(World &world,
                                              const Connecting::End &end) {
  for (const auto &c : world.cliques->connecting)
    if (c->ends.count({end.clique, end.peer, end.rank, !end.isSend}))
      return c;
  return nullptr;
}

/// Connects what can be, and finds records that do not mirror each other.
static void connectAll(World &world) {
  auto &connecting = world.cliques->connecting;
  for (bool again = true; again;) {
    again = false;
    for (const auto &start : connecting) {
      std::vector<std::shared_ptr<Connecting>> together = {start};
      bool complete = start->error == ncclSuccess;
      for (size_t i = 0; complete && i < together.size(); ++i)
        for (const Connecting::End &end : together[i]->ends) {
          auto answer = findAnswer(world, end);
          if (!answer || answer->error != ncclSuccess) {
            complete = false;
            break;
          }
          if (std::find(together.begin(), together.end(), answer) ==
              together.end())
            together.push_back(answer);
        }
      if (!complete)
        continue;
      for (const auto &each : together) {
        for (const Connecting::End &end : each->ends)
          channelOf(end).connected = true;
        each->done = true;
      }
      std::erase_if(connecting, [](const auto &c) { return c->done; });
      ++world.version;
      again = true;
      break;
    }
  }
  for (const auto &x : connecting)
    for (const Connecting::End &end : x->ends) {
      const int n = end.clique->size;
      if (!world.options.mirrorAlways && 2 * (end.peer - end.rank) % n != 0)
        continue;
      for (const auto &y : connecting) {
        auto presents = [&](const Connecting &c, int from, int to, bool send) {
          return c.ends.count({end.clique, from, to, send}) > 0;
        };
        const bool ySend = presents(*y, end.peer, end.rank, true);
        const bool yReceive = presents(*y, end.peer, end.rank, false);
        if (x == y || (!ySend && !yReceive))
          continue;
        if (presents(*x, end.rank, end.peer, true) != yReceive ||
            presents(*x, end.rank, end.peer, false) != ySend) {
          x->error = y->error = ncclInternalError;
          ++world.version;
        }
      }
    }
}

/// Waits until the channels of these calls are connected.
static ncclResult_t connect(World &world, Lock &lock,
                            const std::vector<Issued> &calls) {
  if (!world.options.firstUse)
    return ncclSuccess;
  auto own = std::make_shared<Connecting>();
  for (const Issued &call : calls) {
    if (!call.transfer || call.transfer->peer == call.comm->rank ||
        call.comm->clique->isElsewhere(call.transfer->peer) ||
        channelOf(*call.transfer).connected)
      continue;
    own->ends.insert({call.comm->clique.get(), call.comm->rank,
                      call.transfer->peer, call.transfer->isSend});
    own->comms.insert(call.comm);
  }
  if (own->ends.empty())
    return ncclSuccess;
  world.cliques->connecting.push_back(own);
  ++world.version;
  connectAll(world);
  Inside inside({own->comms.begin(), own->comms.end()});
  auto threads = [own] {
    std::vector<Thread *> users;
    for (const Connecting::End &end : own->ends)
      if (ncclComm *peer = end.clique->ranks[static_cast<size_t>(end.peer)];
          peer && peer->user)
        users.push_back(peer->user);
    return users;
  };
  std::string what = "ncclGroupEnd, which connects";
  for (const Connecting::End &end : own->ends)
    what += " rank " + std::to_string(end.rank) +
            (end.isSend ? " to " : " from ") + std::to_string(end.peer);
  const bool ok = world.wait(
      lock, what, [own] { return own->done || own->error != ncclSuccess; }, {},
      threads);
  if (ok && own->error == ncclSuccess)
    return ncclSuccess;
  if (world.cliques)
    std::erase(world.cliques->connecting, own);
  if (own->error != ncclSuccess)
    return refuse(own->error, "two ranks present different new connections to "
                              "each other, or one has aborted");
  return refuse(ncclInternalError, "the connection was not made");
}

//===----------------------------------------------------------------------===//
// The end of a group
//===----------------------------------------------------------------------===//

static ItemRef makeItem(World &world, const std::vector<Issued> &calls,
                        const std::string &what, bool inGraph) {
  auto item = std::make_shared<Item>();
  item->what = what;
  item->device = calls[0].comm->device;
  for (const Issued &call : calls) {
    item->comms.insert(call.comm);
    if (call.transfer)
      item->transfers.push_back(*call.transfer);
    else
      item->collectives.push_back(*call.collective);
  }
  std::map<std::tuple<ncclComm *, int, bool>, size_t> layers;
  for (size_t i = 0; i < item->transfers.size(); ++i) {
    Transfer &t = item->transfers[i];
    t.layer = layers[{t.comm, t.peer, t.isSend}]++;
    if (world.options.registeredIsRendezvous) {
      t.isRendezvous = inGraph;
      for (const auto &[handle, r] : world.cliques->registrations)
        if (r.first == t.comm &&
            world.lookUp(t.buffer, 1) == world.memory.find(r.second))
          t.isRendezvous = true;
    }
    Channel::End &end = endOf(t);
    t.number = end.next++;
    end.issued.emplace_back(item, i);
  }
  for (size_t i = 0; i < item->collectives.size(); ++i) {
    Collective &c = item->collectives[i];
    c.key += " #" + std::to_string(c.comm->occurrences[c.key]++);
    c.comm->clique->meetings[c.key][c.comm->rank] = {item, i};
  }
  for (ncclComm *comm : item->comms)
    ++comm->unfinished;
  if (world.options.groups == Groups::Plan)
    planBatches(*item);
  for (ncclComm *comm : item->comms) {
    if (world.comms.count(comm) && !comm->aborted)
      continue;
    if (!comm->aborted)
      world.find(what + " is launched after its communicator was destroyed");
    world.kill(*item);
  }
  return item;
}

static std::string describe(const std::vector<Issued> &calls) {
  std::string text = nameOf(calls[0].comm) + ": ";
  if (calls.size() > 1)
    text += "group { ";
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i == 4 && calls.size() > 5) {
      text += ", and " + std::to_string(calls.size() - i) + " more";
      break;
    }
    text += (i ? ", " : "") + (calls[i].transfer
                                   ? nameOf(*calls[i].transfer)
                                   : nameOf(calls[i].collective->kind));
  }
  return text + (calls.size() > 1 ? " }" : "");
}

static ncclResult_t launch(World &world, Lock &lock,
                           const std::vector<Issued> &calls) {
  if (ncclResult_t result = connect(world, lock, calls); result != ncclSuccess)
    return result;
  // One kernel per communicator, or per device.
  std::vector<std::vector<Issued>> kernels;
  for (const Issued &call : calls) {
    auto it = std::find_if(kernels.begin(), kernels.end(), [&](const auto &k) {
      return world.options.kernelPerComm
                 ? k[0].comm == call.comm
                 : k[0].comm->device == call.comm->device;
    });
    if (it == kernels.end())
      it = kernels.insert(kernels.end(), std::vector<Issued>());
    it->push_back(call);
  }
  for (const std::vector<Issued> &kernel : kernels) {
    std::vector<CUstream_st *> streams;
    OpSpec spec;
    spec.what = describe(kernel);
    for (const Issued &call : kernel) {
      if (call.comm->aborted)
        return ncclInternalError;
      if (!world.streams.count(call.stream))
        return refuse(ncclUnhandledCudaError, "a stream was destroyed");
      if (std::find(streams.begin(), streams.end(), call.stream) ==
          streams.end())
        streams.push_back(call.stream);
      Resource *resource = call.comm->resource.get();
      if (std::find(spec.resources.begin(), spec.resources.end(), resource) ==
          spec.resources.end())
        spec.resources.push_back(resource);
    }
    spec.makeItem = [kernel, what = spec.what](bool inGraph) {
      return makeItem(World::get(), kernel, what, inGraph);
    };
    if (world.enqueue(lock, streams, spec) != cudaSuccess)
      return refuse(ncclUnhandledCudaError, "the launch has failed");
  }
  return ncclSuccess;
}

/// What is wrong with the calls of a group.
static ncclResult_t checkGroup(World &world, const std::vector<Issued> &calls) {
  std::map<std::tuple<ncclComm *, int, bool>, size_t> transfers;
  size_t captured = 0;
  for (const Issued &call : calls) {
    captured += call.stream->capture != nullptr;
    if (call.comm->blocking != calls[0].comm->blocking)
      return refuse(ncclInvalidArgument, "communicators that block and such "
                                         "that do not are in one group");
    if (call.transfer)
      ++transfers[{call.comm, call.transfer->peer, call.transfer->isSend}];
  }
  if (captured != 0 && captured != calls.size())
    return refuse(ncclInvalidUsage,
                  "a group is captured in part: all communicators or none");
  for (const auto &[key, n] : transfers) {
    const auto &[comm, peer, isSend] = key;
    if (peer == comm->rank) {
      auto other = transfers.find({comm, peer, !isSend});
      if (other == transfers.end() || other->second != n)
        return refuse(ncclInvalidUsage,
                      "a send to oneself has no receive in its group");
    }
    if (world.options.planLimit && n > world.options.planLimit)
      world.find(nameOf(comm) + ": a group has " + std::to_string(n) +
                 (isSend ? " sends to" : " receives from") + " rank " +
                 std::to_string(peer) +
                 ", which NCCL splits into several kernels: at most " +
                 std::to_string(world.options.planLimit));
  }
  return ncclSuccess;
}

static ncclResult_t join(World &world, Lock &lock,
                         const std::vector<Joining> &joins);
static ncclResult_t endSplits(World &world, Lock &lock,
                              const std::vector<Splitting> &splits);

static ncclResult_t endGroup(World &world, Lock &lock) {
  std::vector<Issued> calls = std::move(group.calls);
  const std::vector<Joining> joins = std::move(group.joins);
  const std::vector<Splitting> splits = std::move(group.splits);
  const ncclResult_t error = group.error;
  group.clear();
  auto dropNewComms = [&] {
    for (const Joining &j : joins) {
      world.comms.erase(j.comm);
      world.graveyard.push_back(std::shared_ptr<ncclComm>(j.comm));
    }
  };
  if (error != ncclSuccess) {
    dropNewComms();
    return error;
  }
  if (!calls.empty() && (!joins.empty() || !splits.empty())) {
    dropNewComms();
    return refuse(ncclInvalidUsage,
                  "a group makes communicators and communicates");
  }
  if (!joins.empty())
    return join(world, lock, joins);
  if (!splits.empty())
    return endSplits(world, lock, splits);
  if (calls.empty())
    return ncclSuccess;
  if (ncclResult_t result = checkGroup(world, calls); result != ncclSuccess)
    return result;
  if (calls[0].comm->blocking)
    return launch(world, lock, calls);

  // In progress: a thread of its own connects and launches.
  std::set<ncclComm *> comms;
  for (const Issued &call : calls)
    if (comms.insert(call.comm).second) {
      ++call.comm->jobs;
    }
  for (const Issued &call : calls)
    if (world.options.slowProgress)
      call.stream->inProgress = call.comm;
  auto job = [&world, calls, comms](Lock &jobLock) {
    const uint64_t generation = world.generation;
    for (const Issued &call : calls)
      if (world.streams.count(call.stream))
        call.stream->inProgress = nullptr;
    const ncclResult_t result = launch(world, jobLock, calls);
    if (world.generation != generation)
      return;
    for (ncclComm *comm : comms) {
      --comm->jobs;
      if (result != ncclSuccess)
        setAsyncError(world, comm, result);
    }
    ++world.version;
  };
  ++world.version;
  if (world.options.slowProgress || world.options.firstUse ||
      world.options.launchQueue)
    world.runLater(job, world.delay(~uint64_t(0), world.nextOp));
  else
    job(lock);
  return ncclInProgress;
}

/// Issues one call, alone or in the group.
static ncclResult_t issue(World &world, Lock &lock, Thread &t, Issued call,
                          cudaStream_t stream) {
  // The legacy stream is that of the communicator's device.
  const int device = t.device;
  t.device = call.comm->device;
  call.stream = world.stream(stream, t);
  t.device = device;
  if (!call.stream || call.stream->device != call.comm->device)
    return refuse(ncclUnhandledCudaError,
                  "the stream is not one of the communicator's device");
  if (world.devices[call.comm->device].broken != cudaSuccess)
    return refuse(ncclUnhandledCudaError, "the device has failed");
  group.calls.push_back(std::move(call));
  return group.depth > 0 ? ncclSuccess : endGroup(world, lock);
}

static bool checkBuffer(World &world, const void *p, size_t size,
                        const char *function) {
  if (!world.options.checkPointers || size == 0 ||
      world.lookUp(p, size) != world.memory.end())
    return true;
  world.find(std::string(function) +
             " gets a buffer that is not, or not wholly, device memory");
  return false;
}

static ncclResult_t transfer(const char *function, bool isSend, void *buffer,
                             size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream) {
  return nccl(function, [&](World &world, Lock &lock, Thread &t) {
    if (ncclResult_t result = checkComm(world, comm, t); result != ncclSuccess)
      return result;
    if (peer < 0 || peer >= comm->size)
      return refuse(ncclInvalidArgument, "no such peer");
    if (static_cast<int>(type) < 0 || type >= ncclNumTypes)
      return refuse(ncclInvalidArgument, "no such type");
    if (!checkBuffer(world, buffer, count * sizeOf(type), function))
      return refuse(ncclInvalidArgument, "not device memory");
    Issued call;
    call.comm = comm;
    call.transfer = Transfer();
    call.transfer->comm = comm;
    call.transfer->isSend = isSend;
    call.transfer->peer = peer;
    call.transfer->buffer = buffer;
    call.transfer->count = count;
    call.transfer->type = type;
    return issue(world, lock, t, std::move(call), stream);
  });
}

static ncclResult_t collective(const char *function, Collective c,
                               cudaStream_t stream) {
  return nccl(function, [&](World &world, Lock &lock, Thread &t) {
    if (ncclResult_t result = checkComm(world, c.comm, t);
        result != ncclSuccess)
      return result;
    if (c.root < 0 || c.root >= c.comm->size)
      return refuse(ncclInvalidArgument, "no such root");
    if (static_cast<int>(c.type) < 0 || c.type >= ncclNumTypes ||
        static_cast<int>(c.op) < 0 || c.op >= ncclNumOps)
      return refuse(ncclInvalidArgument, "no such type or operation");
    if (c.ranks.empty())
      for (int rank = 0; rank < c.comm->size; ++rank)
        c.ranks.push_back(rank);
    if (c.kind != Collective::Meet) {
      const size_t unit = c.count * sizeOf(c.type);
      const size_t n = static_cast<size_t>(c.comm->size);
      if (!checkBuffer(world, c.send, sendBytes(c, c.comm->rank, unit, n),
                       function) ||
          !checkBuffer(world, c.receive, receiveBytes(c, c.comm->rank, unit, n),
                       function))
        return refuse(ncclInvalidArgument, "not device memory");
      c.key = std::string(nameOf(c.kind)) + " of " + std::to_string(c.count) +
              " elements of type " + std::to_string(c.type) + ", operation " +
              std::to_string(c.op) + ", root " + std::to_string(c.root);
    }
    Issued call;
    call.comm = c.comm;
    call.collective = c;
    return issue(world, lock, t, std::move(call), stream);
  });
}

ncclResult_t penstock::standin::meet(ncclComm_t comm, std::string tag,
                                     std::vector<int> ranks,
                                     cudaStream_t stream) {
  Collective c;
  c.comm = comm;
  c.key = "meeting " + tag;
  for (int rank : ranks) {
    c.key += ' ';
    c.key += std::to_string(rank);
  }
  c.ranks = std::move(ranks);
  return collective("meet", c, stream);
}

extern "C" {

ncclResult_t ncclSend(const void *buffer, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  return transfer("ncclSend", true, const_cast<void *>(buffer), count, type,
                  peer, comm, stream);
}
ncclResult_t ncclRecv(void *buffer, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return transfer("ncclRecv", false, buffer, count, type, peer, comm, stream);
}

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return collective("ncclAllReduce",
                    {.kind = Collective::AllReduce,
                     .comm = comm,
                     .send = send,
                     .receive = receive,
                     .count = count,
                     .type = type,
                     .op = op},
                    stream);
}
ncclResult_t ncclReduce(const void *send, void *receive, size_t count,
                        ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclReduce",
                    {.kind = Collective::Reduce,
                     .comm = comm,
                     .send = send,
                     .receive = receive,
                     .count = count,
                     .type = type,
                     .op = op,
                     .root = root},
                    stream);
}
ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return collective("ncclBroadcast",
                    {.kind = Collective::Broadcast,
                     .comm = comm,
                     .send = send,
                     .receive = receive,
                     .count = count,
                     .type = type,
                     .root = root},
                    stream);
}
ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type,
                       int root, ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
ncclResult_t ncclAllGather(const void *send, void *receive, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return collective("ncclAllGather",
                    {.kind = Collective::AllGather,
                     .comm = comm,
                     .send = send,
                     .receive = receive,
                     .count = count,
                     .type = type},
                    stream);
}
ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t count,
                               ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclReduceScatter",
                    {.kind = Collective::ReduceScatter,
                     .comm = comm,
                     .send = send,
                     .receive = receive,
                     .count = count,
                     .type = type,
                     .op = op},
                    stream);
}
ncclResult_t ncclAlltoAll(const void *send, void *receive, size_t count,
                          ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
  return collective("ncclAlltoAll",
                    {.kind = Collective::AllToAll,
                     .comm = comm,
                     .send = send,
                     .receive = receive,
                     .count = count,
                     .type = type},
                    stream);
}
ncclResult_t ncclGather(const void *send, void *receive, size_t count,
                        ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  return collective("ncclGather",
                    {.kind = Collective::Gather,
                     .comm = comm,
                     .send = send,
                     .receive = receive,
                     .count = count,
                     .type = type,
                     .root = root},
                    stream);
}
ncclResult_t ncclScatter(const void *send, void *receive, size_t count,
                         ncclDataType_t type, int root, ncclComm_t comm,
                         cudaStream_t stream) {
  return collective("ncclScatter",
                    {.kind = Collective::Scatter,
                     .comm = comm,
                     .send = send,
                     .receive = receive,
                     .count = count,
                     .type = type,
                     .root = root},
                    stream);
}

ncclResult_t ncclGroupStart() {
  return nccl("ncclGroupStart", [](World &, Lock &, Thread &) {
    ++group.depth;
    return ncclSuccess;
  });
}
ncclResult_t ncclGroupEnd() {
  return nccl(
      "ncclGroupEnd",
      [](World &world, Lock &lock, Thread &) {
        if (group.depth == 0)
          return refuse(ncclInvalidUsage, "ncclGroupEnd without a start");
        if (--group.depth > 0)
          return ncclSuccess;
        if (injectedNow) // the group is over, and nothing is launched
          group.error = ncclSystemError;
        return endGroup(world, lock);
      },
      kReleases);
}
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info) {
  return nccl("ncclGroupSimulateEnd", [&](World &, Lock &, Thread &) {
    if (group.depth == 0)
      return refuse(ncclInvalidUsage, "ncclGroupSimulateEnd without a start");
    if (--group.depth == 0) {
      const ncclResult_t error = group.error;
      const size_t n = group.calls.size();
      group.clear();
      if (info)
        info->estimatedTime = static_cast<float>(n);
      return error;
    }
    return ncclSuccess;
  });
}

} // extern "C"

//===----------------------------------------------------------------------===//
// Making communicators
//===----------------------------------------------------------------------===//

static std::string keyOf(const ncclUniqueId &id) {
  return {id.internal, id.internal + NCCL_UNIQUE_ID_BYTES};
}
static constexpr char kMagic[] = "penstock stand-in ";

/// True if the id is one of ncclGetUniqueId.
static bool isId(const ncclUniqueId &id) {
  return std::strncmp(id.internal, kMagic, sizeof(kMagic) - 1) == 0;
}

static ncclComm *makeComm(World &world, Thread &t, const ncclConfig_t *config) {
  auto *comm = new ncclComm;
  comm->device = t.device;
  comm->user = &t;
  comm->resource = std::make_shared<Resource>();
  if (config && config->blocking != NCCL_CONFIG_UNDEF_INT)
    comm->blocking = config->blocking != 0;
  if (config && config->splitShare != NCCL_CONFIG_UNDEF_INT)
    comm->splitShare = config->splitShare != 0;
  world.comms.insert(comm);
  return comm;
}
static void dropComm(World &world, ncclComm *comm) {
  if (!world.comms.erase(comm))
    return;
  // Peers that have not issued what meets it wait for ever.
  if (comm->clique)
    for (ncclComm *&rank : comm->clique->ranks)
      if (rank == comm)
        rank = nullptr;
  std::erase_if(world.cliques->registrations,
                [&](const auto &r) { return r.second.first == comm; });
  world.graveyard.push_back(std::shared_ptr<ncclComm>(comm));
  ++world.version;
}

/// All ranks have come.
static void completeClique(World &world, Clique &clique) {
  std::set<int> devices;
  for (ncclComm *comm : clique.ranks)
    if (comm && !devices.insert(comm->device).second &&
        !world.options.sharedDevices)
      clique.failure = ncclInvalidUsage;
  for (ncclComm *comm : clique.ranks) {
    if (!comm)
      continue;
    if (clique.failure != ncclSuccess)
      setAsyncError(world, comm, clique.failure);
    if (!comm->blocking && world.options.slowProgress) {
      ++comm->jobs;
      world.runLater(
          [&world, comm](Lock &) {
            --comm->jobs;
            ++world.version;
          },
          world.delay(~uint64_t(0), world.nextOp + comm->rank));
    }
  }
  ++world.version;
}

/// Tells the process that made the id that a rank has come. False: it has gone.
static bool comeTo(World &world, const Joining &j) {
  Network *network = world.network();
  const std::string id = j.id.c_str() + sizeof(kMagic) - 1;
  std::string bytes(1, Comes);
  pack(bytes, j.id);
  pack(bytes, j.size);
  pack(bytes, j.rank);
  pack(bytes, network->address());
  pack(bytes, hostName());
  pack(bytes, world.busOf(j.comm->device));
  return network->send(id.substr(0, id.find(' ')), bytes);
}

void World::hear(std::string_view bytes) {
  Lock lock(mutex);
  if (!cliques)
    cliques = std::make_shared<Cliques>();
  const auto kind = unpack<char>(bytes);
  const auto key = unpack<std::string>(bytes);
  auto takePlace = [&] {
    Place place;
    place.address = unpack<std::string>(bytes);
    place.host = unpack<std::string>(bytes);
    place.bus = unpack<int>(bytes);
    return place;
  };
  switch (kind) {
  case Comes: {
    Cliques::Arrivals &arrivals = cliques->arrivals[key];
    arrivals.size = unpack<int>(bytes);
    const auto rank = unpack<int>(bytes);
    arrivals.places[rank] = takePlace();
    if (arrivals.places.size() < static_cast<size_t>(arrivals.size))
      break;
    std::string all(1, AllAreHere);
    pack(all, key);
    std::set<std::string> processes;
    for (const auto &[number, place] : arrivals.places) {
      pack(all, place.address);
      pack(all, place.host);
      pack(all, place.bus);
      processes.insert(place.address);
    }
    cliques->arrivals.erase(key);
    for (const std::string &process : processes)
      network()->send(process, all);
    break;
  }
  case AllAreHere: {
    const auto found = cliques->byId.find(key);
    if (found == cliques->byId.end() || found->second->isComplete())
      break;
    Clique &clique = *found->second;
    clique.here = network()->address();
    std::set<std::pair<std::string, int>> devicesOfAll;
    while (!bytes.empty()) {
      const Place &place = clique.places.emplace_back(takePlace());
      if (!devicesOfAll.emplace(place.host, place.bus).second &&
          !options.sharedDevices)
        clique.failure = ncclInvalidUsage;
      // So that this process hears when that one goes.
      network()->send(place.address, {});
    }
    clique.joined = clique.size;
    completeClique(*this, clique);
    break;
  }
  case IsSent: {
    const auto source = unpack<int>(bytes), destination = unpack<int>(bytes);
    const auto number = unpack<uint64_t>(bytes);
    Cliques::Mail &mail = cliques->mail[{key, source, destination}][number];
    mail.count = unpack<size_t>(bytes);
    mail.type = unpack<ncclDataType_t>(bytes);
    mail.data = bytes;
    break;
  }
  case IsTaken: {
    const auto source = unpack<int>(bytes), destination = unpack<int>(bytes);
    if (const auto found = cliques->byId.find(key);
        found != cliques->byId.end())
      ++found->second->channels[{source, destination}].received;
    break;
  }
  }
  ++version;
  settle();
}

void World::peerIsGone(const std::string &address) {
  Lock lock(mutex);
  for (ncclComm *comm : comms)
    if (comm->clique &&
        std::any_of(
            comm->clique->places.begin(), comm->clique->places.end(),
            [&](const Place &place) { return place.address == address; }))
      setAsyncError(*this, comm, ncclRemoteError);
  settle();
}

static ncclResult_t join(World &world, Lock &lock,
                         const std::vector<Joining> &joins) {
  ncclResult_t result = ncclSuccess;
  bool blocks = false;
  std::vector<ncclComm *> comms;
  for (const Joining &j : joins) {
    std::shared_ptr<Clique> &clique = world.cliques->byId[j.id];
    if (!clique) {
      clique = std::make_shared<Clique>();
      clique->id = world.nextId++;
      clique->key = j.id;
      clique->size = j.size;
      clique->ranks.resize(static_cast<size_t>(j.size));
      world.cliques->all.push_back(clique);
    }
    ncclResult_t error = ncclSuccess;
    if (clique->isComplete())
      error = refuse(ncclSystemError, "the unique id is used up");
    else if (clique->size != j.size)
      error =
          refuse(ncclInternalError, "ranks disagree about the number of ranks");
    else if (clique->ranks[static_cast<size_t>(j.rank)])
      error = refuse(ncclInternalError, "a rank is there twice");
    if (error != ncclSuccess) {
      result = error;
      continue;
    }
    j.comm->clique = clique;
    j.comm->rank = j.rank;
    j.comm->size = j.size;
    clique->ranks[static_cast<size_t>(j.rank)] = j.comm;
    if (++clique->joined == clique->size)
      completeClique(world, *clique);
    else if (world.network() && !comeTo(world, j))
      result = refuse(ncclSystemError,
                      "the process that has made the unique id is gone");
    blocks |= j.comm->blocking;
    comms.push_back(j.comm);
    ++world.version;
  }
  if (result != ncclSuccess) {
    for (const Joining &j : joins)
      dropComm(world, j.comm);
    return result;
  }
  if (!blocks)
    return ncclInProgress;
  auto isComplete = [comms] {
    return std::all_of(comms.begin(), comms.end(), [](const ncclComm *comm) {
      return comm->clique->isComplete() || comm->aborted;
    });
  };
  bool ok;
  {
    Inside inside(comms);
    ok = world.wait(lock, "ncclCommInitRank", isComplete, {}, [comms] {
      std::vector<Thread *> users;
      for (ncclComm *comm : comms)
        for (Thread *user : usersOf(*comm->clique))
          if (user != comm->user)
            users.push_back(user);
      return users;
    });
  }
  if (!ok)
    return refuse(ncclInternalError, "not all ranks have come");
  for (ncclComm *comm : comms)
    if (comm->asyncError != ncclSuccess || comm->aborted)
      result = comm->aborted ? ncclInternalError : comm->asyncError;
  if (result != ncclSuccess) {
    refuse(result, "several ranks of a communicator use one device");
    for (ncclComm *comm : comms)
      dropComm(world, comm);
  }
  return result;
}

static ncclResult_t initRank(World &world, Lock &lock, Thread &t,
                             ncclComm_t *result, int size,
                             const ncclUniqueId &id, int rank,
                             const ncclConfig_t *config) {
  if (!result)
    return refuse(ncclInvalidArgument, "no place for the communicator");
  *result = nullptr;
  if (size < 1 || rank < 0 || rank >= size)
    return refuse(ncclInvalidArgument, "the rank is not below the number of "
                                       "ranks");
  if (!isId(id))
    return refuse(ncclInvalidArgument, "not an id of ncclGetUniqueId");
  if (config && config->magic != 0xcafebeef)
    return refuse(ncclInvalidArgument, "the configuration is not initialized");
  if (world.devices[t.device].broken != cudaSuccess)
    return refuse(ncclUnhandledCudaError, "the device has failed");
  ncclComm *comm = makeComm(world, t, config);
  comm->size = size;
  comm->rank = rank;
  *result = comm;
  group.joins.push_back({comm, keyOf(id), size, rank});
  if (group.depth > 0)
    return ncclSuccess;
  const ncclResult_t error = endGroup(world, lock);
  if (error != ncclSuccess && error != ncclInProgress)
    *result = nullptr;
  return error;
}

static ncclResult_t endSplits(World &world, Lock &lock,
                              const std::vector<Splitting> &splits) {
  bool blocks = false;
  std::vector<ncclComm *> parents;
  for (const Splitting &s : splits) {
    blocks |= s.parent->blocking;
    parents.push_back(s.parent);
    Clique::Split &split = *s.split;
    if (split.done ||
        split.entries.size() < static_cast<size_t>(s.parent->size))
      continue;
    // All ranks have come: one clique per colour, ordered by key.
    std::map<int, std::vector<Clique::Split::Entry>> colors;
    for (const Clique::Split::Entry &e : split.entries)
      if (e.color != NCCL_SPLIT_NOCOLOR)
        colors[e.color].push_back(e);
    for (auto &[color, entries] : colors) {
      std::stable_sort(
          entries.begin(), entries.end(), [](const auto &a, const auto &b) {
            return std::pair(a.key, a.rank) < std::pair(b.key, b.rank);
          });
      auto clique = std::make_shared<Clique>();
      clique->id = world.nextId++;
      clique->size = static_cast<int>(entries.size());
      world.cliques->all.push_back(clique);
      for (const Clique::Split::Entry &e : entries) {
        e.child->clique = clique;
        e.child->size = clique->size;
        e.child->rank = clique->joined++;
        if (e.child->splitShare)
          e.child->resource = e.parent->resource;
        clique->ranks.push_back(e.child);
      }
      completeClique(world, *clique);
    }
    for (const Clique::Split::Entry &e : split.entries)
      if (!e.parent->blocking)
        --e.parent->jobs;
    split.done = true;
    ++world.version;
  }
  if (!blocks)
    return ncclInProgress;
  Inside inside(parents);
  const bool ok = world.wait(
      lock, "ncclCommSplit",
      [splits] {
        return std::all_of(splits.begin(), splits.end(), [](const auto &s) {
          return s.split->done || s.parent->aborted;
        });
      },
      {},
      [splits] {
        std::vector<Thread *> users;
        for (const Splitting &s : splits)
          for (Thread *user : usersOf(*s.parent->clique))
            if (user != s.parent->user)
              users.push_back(user);
        return users;
      });
  return ok ? ncclSuccess
            : refuse(ncclInternalError, "not all ranks have split");
}

/// Tells a number of a communicator.
static ncclResult_t ask(const char *function, ncclComm *comm,
                        int ncclComm::*number, int *result) {
  return nccl(function, [&](World &world, Lock &, Thread &) {
    if (!isKnown(world, comm) || !result)
      return refuse(ncclInvalidArgument, "not a communicator");
    *result = comm->*number;
    return ncclSuccess;
  });
}

extern "C" {

ncclResult_t ncclGetVersion(int *version) {
  if (!version)
    return ncclInvalidArgument;
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  return nccl("ncclGetUniqueId", [&](World &world, Lock &, Thread &) {
    if (!id)
      return ncclInvalidArgument;
    std::memset(id, 0, sizeof(*id));
    std::string text = kMagic;
    if (Network *network = world.network()) {
      static uint64_t nextOfAll = 1; // others may still know the old ones
      text += network->address() + " " + std::to_string(nextOfAll++);
    } else {
      text += std::to_string(world.nextId++);
    }
    std::memcpy(id->internal, text.c_str(), text.size());
    return ncclSuccess;
  });
}
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id,
                              int rank) {
  return nccl("ncclCommInitRank", [&](World &world, Lock &lock, Thread &t) {
    return initRank(world, lock, t, comm, size, id, rank, nullptr);
  });
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id,
                                    int rank, ncclConfig_t *config) {
  return nccl("ncclCommInitRankConfig",
              [&](World &world, Lock &lock, Thread &t) {
                return initRank(world, lock, t, comm, size, id, rank, config);
              });
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int size, int rank,
                                      int n, ncclUniqueId *ids,
                                      ncclConfig_t *config) {
  return nccl(
      "ncclCommInitRankScalable", [&](World &world, Lock &lock, Thread &t) {
        if (n < 1 || !ids)
          return ncclInvalidArgument;
        return initRank(world, lock, t, comm, size, ids[0], rank, config);
      });
}
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices) {
  return nccl("ncclCommInitAll", [&](World &world, Lock &lock, Thread &t) {
    if (!comms || n < 1)
      return refuse(ncclInvalidArgument, "no communicators");
    if (n > world.options.devices && !world.options.sharedDevices)
      return refuse(ncclInvalidUsage, "more ranks than devices");
    std::set<int> used;
    for (int rank = 0; rank < n; ++rank) {
      const int device = devices ? devices[rank] : rank;
      if (device < 0 || device >= world.options.devices)
        return refuse(ncclUnhandledCudaError, "no such device");
      if (!used.insert(device).second && !world.options.sharedDevices)
        return refuse(ncclInvalidUsage, "a device is there twice");
    }
    const std::string id = "all " + std::to_string(world.nextId++);
    std::vector<Joining> joins;
    const int device = t.device;
    for (int rank = 0; rank < n; ++rank) {
      t.device = devices ? devices[rank] : rank;
      comms[rank] = makeComm(world, t, nullptr);
      joins.push_back({comms[rank], id, n, rank});
    }
    t.device = device;
    return join(world, lock, joins);
  });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                           ncclComm_t *result, ncclConfig_t *config) {
  return nccl("ncclCommSplit", [&](World &world, Lock &lock, Thread &t) {
    if (!result)
      return refuse(ncclInvalidArgument, "no place for the communicator");
    *result = nullptr;
    const bool revoked = isKnown(world, comm) && comm->revoked;
    if (!revoked)
      if (ncclResult_t error = checkComm(world, comm, t); error != ncclSuccess)
        return error;
    if (color < NCCL_SPLIT_NOCOLOR)
      return refuse(ncclInvalidArgument, "no such color");
    if (config && config->magic != 0xcafebeef)
      return refuse(ncclInvalidArgument,
                    "the configuration is not initialized");
    if (!comm->blocking)
      ++comm->jobs;
    std::shared_ptr<Clique::Split> &split =
        comm->clique->splits[comm->numSplits++];
    if (!split)
      split = std::make_shared<Clique::Split>();
    ncclComm *child = nullptr;
    if (color != NCCL_SPLIT_NOCOLOR) {
      const int device = t.device;
      t.device = comm->device;
      child = makeComm(world, t, config);
      t.device = device;
      if (!config) {
        child->blocking = comm->blocking;
        child->splitShare = comm->splitShare;
      }
      if (revoked)
        child->splitShare = false;
      *result = child;
    }
    split->entries.push_back({color, key, comm->rank, comm, child});
    group.splits.push_back({comm, split, result});
    return group.depth > 0 ? ncclSuccess : endGroup(world, lock);
  });
}

//===----------------------------------------------------------------------===//
// The end of communicators
//===----------------------------------------------------------------------===//

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return nccl("ncclCommFinalize", [&](World &world, Lock &lock, Thread &t) {
    if (ncclResult_t error = checkComm(world, comm, t); error != ncclSuccess)
      return error;
    comm->finalized = true;
    ++world.version;
    if (!comm->blocking)
      return ncclInProgress;
    Inside inside({comm});
    if (!world.wait(lock, "ncclCommFinalize",
                    [comm] { return comm->unfinished == 0 || comm->aborted; },
                    {comm->resource->last}))
      return ncclInternalError;
    return comm->asyncError;
  });
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return nccl(
      "ncclCommDestroy",
      [&](World &world, Lock &lock, Thread &t) {
        if (!isKnown(world, comm))
          return refuse(ncclInvalidArgument, "not a communicator");
        comm->user = &t;
        if (group.depth > 0)
          return refuse(ncclInvalidUsage, "ncclCommDestroy inside of a group");
        std::vector<OpRef> ops;
        if (comm->resource->last)
          ops.push_back(comm->resource->last);
        bool ok;
        {
          Inside inside({comm});
          ok = world.wait(
              lock, "ncclCommDestroy",
              [comm] {
                return (comm->unfinished == 0 && comm->jobs == 0) ||
                       comm->aborted;
              },
              ops);
        }
        dropComm(world, comm);
        return ok ? ncclSuccess : ncclInternalError;
      },
      kReleases);
}

/// Ends what runs on a communicator.
static void stop(World &world, ncclComm *comm) {
  world.cancelItems([&](const Item &item) { return item.comms.count(comm); });
  for (const auto &c : world.cliques->connecting)
    if (c->comms.count(comm))
      c->error = ncclInternalError;
  ++world.version;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return nccl(
      "ncclCommAbort",
      [&](World &world, Lock &lock, Thread &) {
        if (!isKnown(world, comm))
          return refuse(ncclInvalidArgument, "not a communicator");
        if (comm->blocking && comm->inside)
          world.find("ncclCommAbort is called while another thread waits in a "
                     "call with the communicator, which is safe only for "
                     "communicators that do not block");
        comm->aborted = true;
        stop(world, comm);
        if (world.options.abortIsSeen && comm->clique)
          for (ncclComm *peer : comm->clique->ranks)
            if (peer && peer != comm)
              setAsyncError(world, peer, ncclRemoteError);
        if (group.depth == 0)
          world.wait(lock, "ncclCommAbort",
                     [comm] { return comm->inside == 0 && comm->jobs == 0; });
        stop(world, comm); // what has found room in the launch queue since
        dropComm(world, comm);
        return ncclSuccess;
      },
      kReleases);
}
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  return nccl("ncclCommRevoke", [&](World &world, Lock &, Thread &t) {
    if (!isKnown(world, comm) || flags != NCCL_REVOKE_DEFAULT)
      return refuse(ncclInvalidArgument, "not a communicator, or flags");
    if (comm->finalized)
      return refuse(ncclInvalidUsage, "the communicator is finalized");
    comm->user = &t;
    comm->revoked = true;
    stop(world, comm);
    return comm->blocking ? ncclSuccess : ncclInProgress;
  });
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
  return nccl(
      "ncclCommGetAsyncError",
      [&](World &world, Lock &, Thread &t) {
        if (!isKnown(world, comm) || !error)
          return refuse(ncclInvalidArgument, "not a communicator");
        world.settle();
        if (comm->asyncError != ncclSuccess) {
          *error = comm->asyncError;
          return ncclSuccess;
        }
        const bool ends =
            (comm->finalized || comm->revoked) && comm->unfinished > 0;
        const bool inProgress = comm->jobs > 0 || !comm->clique ||
                                !comm->clique->isComplete() || ends;
        *error = inProgress ? ncclInProgress : ncclSuccess;
        if (inProgress)
          world.poll(t);
        return ncclSuccess;
      },
      kLooks);
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
  return ask("ncclCommCount", comm, &ncclComm::size, count);
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
  return ask("ncclCommUserRank", comm, &ncclComm::rank, rank);
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
  return ask("ncclCommCuDevice", comm, &ncclComm::device, device);
}

//===----------------------------------------------------------------------===//
// Memory and errors
//===----------------------------------------------------------------------===//

ncclResult_t ncclMemAlloc(void **p, size_t size) {
  return nccl("ncclMemAlloc", [&](World &world, Lock &, Thread &t) {
    if (!p)
      return refuse(ncclInvalidArgument, "no place for the pointer");
    Device &device = world.devices[t.device];
    if (device.broken != cudaSuccess ||
        world.forbidInCapture(t) != cudaSuccess ||
        size > world.options.deviceBytes - device.usedBytes)
      return refuse(ncclUnhandledCudaError, "no memory");
    device.usedBytes += size;
    *p = world.allocate(size, Allocation::DeviceMemory, t.device, true);
    return *p ? ncclSuccess : ncclSystemError;
  });
}
ncclResult_t ncclMemFree(void *p) {
  return nccl(
      "ncclMemFree",
      [&](World &world, Lock &, Thread &) {
        if (!p)
          return ncclSuccess;
        auto it = world.memory.find(reinterpret_cast<uintptr_t>(p));
        if (it == world.memory.end() || !it->second.isNccl || it->second.freed)
          return refuse(ncclInvalidArgument, "not memory of ncclMemAlloc");
        for (const auto &[handle, r] : world.cliques->registrations)
          if (r.second == it->first)
            world.find("ncclMemFree of memory that is still registered");
        world.release(it);
        return ncclSuccess;
      },
      kReleases);
}
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *p, size_t size,
                              void **handle) {
  return nccl("ncclCommRegister", [&](World &world, Lock &, Thread &t) {
    if (ncclResult_t error = checkComm(world, comm, t); error != ncclSuccess)
      return error;
    auto it = world.lookUp(p, size);
    if (!handle || size == 0 || it == world.memory.end() ||
        it->second.kind != Allocation::DeviceMemory)
      return refuse(ncclInvalidArgument, "not device memory");
    if (!it->second.isNccl)
      world.find("ncclCommRegister of memory that is not of ncclMemAlloc, "
                 "which NCCL does not register by default");
    *handle = reinterpret_cast<void *>(world.nextId++);
    world.cliques->registrations[*handle] = {comm, it->first};
    return ncclSuccess;
  });
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
  return nccl(
      "ncclCommDeregister",
      [&](World &world, Lock &, Thread &) {
        auto it = world.cliques->registrations.find(handle);
        if (it == world.cliques->registrations.end() ||
            it->second.first != comm)
          return refuse(ncclInvalidArgument, "not a registration");
        world.cliques->registrations.erase(it);
        return ncclSuccess;
      },
      kReleases);
}
const char *ncclGetErrorString(ncclResult_t result) {
  switch (result) {
  case ncclSuccess:
    return "no error";
  case ncclUnhandledCudaError:
    return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
  case ncclSystemError:
    return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
  case ncclInternalError:
    return "internal error - please report this issue to the NCCL developers";
  case ncclInvalidArgument:
    return "invalid argument (run with NCCL_DEBUG=WARN for details)";
  case ncclInvalidUsage:
    return "invalid usage (run with NCCL_DEBUG=WARN for details)";
  case ncclRemoteError:
    return "remote process exited or there was a network error";
  case ncclInProgress:
    return "NCCL operation in progress";
  default:
    return "unknown result code";
  }
}
const char *ncclGetLastError(ncclComm_t) { return lastErrorText.c_str(); }

// Not modelled.
static ncclResult_t notModelled(const char *function) {
  return nccl(function, [&](World &world, Lock &, Thread &) {
    world.find(std::string(function) + " is not modelled");
    return refuse(ncclInvalidUsage, "not modelled");
  });
}
ncclResult_t ncclCommShrink(ncclComm_t, int *, int, ncclComm_t *,
                            ncclConfig_t *, int) {
  return notModelled("ncclCommShrink");
}
ncclResult_t ncclCommWindowRegister(ncclComm_t, void *, size_t, ncclWindow_t *,
                                    int) {
  return notModelled("ncclCommWindowRegister");
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) {
  return notModelled("ncclCommWindowDeregister");
}
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *, void *, ncclDataType_t,
                                      ncclScalarResidence_t, ncclComm_t) {
  return notModelled("ncclRedOpCreatePreMulSum");
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) {
  return notModelled("ncclRedOpDestroy");
}

// The names for tools that intercept.
#define ALIAS(name) extern decltype(name) p##name __attribute__((alias(#name)))
ALIAS(ncclSend);
ALIAS(ncclRecv);
ALIAS(ncclAllReduce);
ALIAS(ncclReduce);
ALIAS(ncclBroadcast);
ALIAS(ncclBcast);
ALIAS(ncclAllGather);
ALIAS(ncclReduceScatter);
ALIAS(ncclAlltoAll);
ALIAS(ncclGather);
ALIAS(ncclScatter);
ALIAS(ncclGroupStart);
ALIAS(ncclGroupEnd);
ALIAS(ncclGroupSimulateEnd);
ALIAS(ncclGetVersion);
ALIAS(ncclGetUniqueId);
ALIAS(ncclCommInitRank);
ALIAS(ncclCommInitRankConfig);
ALIAS(ncclCommInitRankScalable);
ALIAS(ncclCommInitAll);
ALIAS(ncclCommSplit);
ALIAS(ncclCommFinalize);
ALIAS(ncclCommDestroy);
ALIAS(ncclCommAbort);
ALIAS(ncclCommRevoke);
ALIAS(ncclCommGetAsyncError);
ALIAS(ncclCommCount);
ALIAS(ncclCommUserRank);
ALIAS(ncclCommCuDevice);
ALIAS(ncclMemAlloc);
ALIAS(ncclMemFree);
ALIAS(ncclCommRegister);
ALIAS(ncclCommDeregister);
ALIAS(ncclGetErrorString);
ALIAS(ncclGetLastError);
ALIAS(ncclCommShrink);
ALIAS(ncclCommWindowRegister);
ALIAS(ncclCommWindowDeregister);
ALIAS(ncclRedOpCreatePreMulSum);
ALIAS(ncclRedOpDestroy);

} // extern "C"

void penstock::standin::breakComm(ncclComm_t comm, ncclResult_t error) {
  World &world = World::get();
  Lock lock = enterWorld(world);
  if (!isKnown(world, comm))
    return;
  comm->broken = true;
  setAsyncError(world, comm, error);
  world.settle();
}

void World::dropNccl() {
  for (ncclComm *comm : comms) {
    comm->aborted = true;
    graveyard.push_back(std::shared_ptr<ncclComm>(comm));
  }
  comms.clear();
  active.clear();
  if (cliques) {
    for (const auto &c : cliques->connecting)
      c->error = ncclInternalError;
    for (const auto &clique : cliques->all) {
      clique->channels.clear(); // items hold channels, and they items
      clique->meetings.clear();
    }
  }
  cliques = std::make_shared<Cliques>();
}
