//===- NcclTransport.cpp - Transfers between GPUs -------------------------===//

#include "NcclTransport.h"

#include "../Core/BackOff.h"
#include "../Core/Bytes.h"
#include "penstock/Program/Text.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace penstock::runtime {

/// NCCL starts a group as one kernel as long as its plan has room; else it
/// splits it, on each rank as it sees fit, and the ranks may wait for each
/// other for ever (nccl.md 1.4). With 32 channels a peer there is room for 7
/// messages to it.
static constexpr size_t kMaxGroup = 100, kMaxPerPeer = 7;
/// Of the groups that connect and those of collectives, in messages each way.
static constexpr size_t kMaxPeers = 32;
/// How long to wait for word of a process that NCCL misses.
static constexpr auto kHearsayTime = std::chrono::seconds(1);

NcclTransport::NcclTransport(std::shared_ptr<CudaRank> shared, int32_t number,
                             int32_t numRanks, const CudaOptions &options)
    : gpu(std::move(shared)), rank(number), numRanks(numRanks),
      options(options) {
  gpu->join(this);
}

NcclTransport::~NcclTransport() {
  gpu->leave(this);
  abort();
  (void)gpu->bind();
  if (stream)
    cudaStreamDestroy(stream);
  if (spare)
    cudaFree(spare);
  for (Operation &operation : operations) {
    if (operation.device)
      cudaFree(operation.device);
    if (operation.host)
      cudaFreeHost(operation.host);
  }
}

//===----------------------------------------------------------------------===//
// Preparation
//===----------------------------------------------------------------------===//

NcclTransport::Message &
NcclTransport::addMessage(std::vector<Message> &messages, const CommKey &key,
                          const Instruction &inst, bool sends, int32_t other,
                          int64_t bytes) {
  Instruction &end =
      ends[{key, sends ? rank : other, sends ? other : rank}].emplace_back(
          inst);
  end.bytes = bytes;
  return messages.emplace_back(Message{&comms[key], sends, other, 0, nullptr,
                                       std::max<size_t>(bytes, 1)});
}

Result<uint32_t> NcclTransport::addGroup(std::span<const Transfer> members) {
  if (members.size() > kMaxGroup)
    return Failure{
        "a group of " + std::to_string(members.size()) +
        " transfers is too large for NCCL, which may split one of more than " +
        std::to_string(kMaxGroup) +
        " differently on each rank, and then hang; make smaller groups, alike "
        "on all ranks"};
  std::map<std::tuple<uint16_t, Op, int32_t>, size_t> perPeer;
  for (const Transfer &member : members) {
    const Instruction &inst = *member.instruction;
    if (++perPeer[{inst.comm, inst.op, inst.peer}] > kMaxPerPeer)
      return Failure{"a group with more than " + std::to_string(kMaxPerPeer) +
                     (inst.op == Op::Send ? " sends to" : " receives from") +
                     " one rank is too large for NCCL, which may split it "
                     "differently on the two ranks, and then hang; make "
                     "smaller groups, alike on both"};
  }
  // NCCL launches a kernel for each communicator, in the order of their first
  // use, one behind the other on the stream: all ranks take the same order.
  std::vector<Transfer> sorted(members.begin(), members.end());
  std::ranges::stable_sort(sorted, {}, [](const Transfer &member) {
    return member.instruction->comm;
  });
  Operation &operation = operations.emplace_back();
  for (const Transfer &member : sorted) {
    const Instruction &inst = *member.instruction;
    Message &message = addMessage(operation.messages, {inst.comm, false}, inst,
                                  inst.op == Op::Send, inst.peer, inst.bytes);
    if (inst.bytes > 0)
      message.data = member.data;
  }
  return static_cast<uint32_t>(operations.size() - 1);
}

Result<uint32_t> NcclTransport::addCollective(const Instruction &inst,
                                              std::span<const int32_t> ranks,
                                              std::span<float> values) {
  if (!std::binary_search(ranks.begin(), ranks.end(), rank))
    return Failure{"rank " + std::to_string(rank) +
                   " is not in the rank set of its collective"};
  Operation &operation = operations.emplace_back();
  operation.values = values;
  operation.numRanks = values.empty() ? 0 : ranks.size();
  operation.isFirst = rank == ranks.front();
  const CommKey key{inst.comm, true};
  const auto bytes = static_cast<int64_t>(values.size_bytes());
  for (int32_t other : ranks)
    if (operation.isFirst ? other != rank : other == ranks.front()) {
      addMessage(operation.messages, key, inst, !operation.isFirst, other,
                 bytes);
      addMessage(operation.back, key, inst, operation.isFirst, other, bytes);
    }
  return static_cast<uint32_t>(operations.size() - 1);
}

//===----------------------------------------------------------------------===//
// What the ranks tell each other before
//===----------------------------------------------------------------------===//

namespace {
/// What a rank says about a channel.
struct ChannelDigest {
  uint16_t comm = 0, isCollective = 0;
  int32_t source = 0, destination = 0;
  uint32_t unused = 0;
  uint64_t size = 0, digest = 0;
};
} // namespace

/// Of the ends of a channel; equal for both sides if they belong together.
static uint64_t digestOf(const std::vector<Instruction> &ends) {
  uint64_t hash = 14695981039346656037u; // FNV-1a, by words
  for (const Instruction &end : ends)
    for (uint64_t word : {uint64_t(isTransfer(end.op) ? Op::Send : end.op),
                          uint64_t(end.payload), uint64_t(end.stage),
                          uint64_t(end.microbatch), uint64_t(end.bytes)})
      hash = (hash ^ word) * 1099511628211u;
  return hash;
}

/// The same as compareEnds, for collectives too.
static Error compareAny(const Instruction &from, int32_t source,
                        const Instruction &to, int32_t destination) {
  if (isTransfer(from.op) && isTransfer(to.op))
    return compareEnds(from, to);
  if (from.op == to.op && from.stage == to.stage &&
      from.microbatch == to.microbatch) {
    if (from.bytes == to.bytes)
      return {};
    const auto numValues = [](int64_t bytes) {
      return std::to_string(bytes / int64_t(sizeof(float)));
    };
    return {ErrorKind::Mismatch, "an all_reduce of " + numValues(to.bytes) +
                                     " values meets one of " +
                                     numValues(from.bytes)};
  }
  return {ErrorKind::Mismatch, "rank " + std::to_string(source) + "'s " +
                                   quoted(from) + " meets rank " +
                                   std::to_string(destination) + "'s " +
                                   quoted(to)};
}

Result<std::vector<std::string>>
NcclTransport::exchange(const std::string &own) {
  return options.exchange(rank, own, stop.get_token());
}

/// Keeps what is wrong with a communicator. Where a process has gone, or has
/// failed and parted, NCCL knows only that something is wrong: it is the peers
/// who say who and why, and abort this transport with it.
Error NcclTransport::fail(std::string_view call, ncclResult_t code,
                          ncclComm_t comm) {
  fault = ncclError(call, code, comm);
  const bool mayBeOthers = code == ncclRemoteError || code == ncclSystemError ||
                           code == ncclInternalError;
  if (options.peers && mayBeOthers)
    for (const auto end = Clock::now() + kHearsayTime;
         !aborted && Clock::now() < end;)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return fault;
}

std::string NcclTransport::agree(const std::string &text) {
  auto all = exchange(text);
  if (!all)
    return all.message();
  for (const std::string &one : *all)
    if (!one.empty())
      return one;
  return {};
}

/// Compares the programs, and the two ends of each channel; `all` gets the
/// channels of all ranks.
Error NcclTransport::compare(const ProgramHash &hash, ChannelSet &all) {
  std::string own;
  append(own, hash);
  for (const auto &[key, list] : ends)
    append(own, ChannelDigest{key.comm.first, key.comm.second, key.source,
                              key.destination, 0, list.size(), digestOf(list)});
  auto said = exchange(own);
  if (!said)
    return {ErrorKind::Aborted, said.message()};

  ProgramHash first;
  std::map<ChannelKey, std::pair<uint64_t, uint64_t>> seen;
  std::vector<ChannelKey> suspects;
  for (int32_t r = 0; r < numRanks; ++r) {
    std::string_view bytes = (*said)[r];
    const auto other = take<ProgramHash>(bytes);
    if (r == 0)
      first = other;
    else if (!(other == first))
      return {ErrorKind::Mismatch,
              "rank " + std::to_string(r) + " has program " + other.str() +
                  ", but rank 0 has " + first.str() +
                  "; give the same file to all ranks",
              {r}};
    while (!bytes.empty()) {
      const auto channel = take<ChannelDigest>(bytes);
      const ChannelKey key{{channel.comm, channel.isCollective != 0},
                           channel.source,
                           channel.destination};
      all.insert(key);
      const std::pair<uint64_t, uint64_t> digest(channel.size, channel.digest);
      const auto [known, isNew] = seen.emplace(key, digest);
      if (!isNew && known->second != digest)
        suspects.push_back(key);
    }
  }
  std::sort(suspects.begin(), suspects.end());
  return suspects.empty() ? Error() : compareAll(suspects);
}

/// Finds the first ends that do not belong together. That one side has more of
/// them is no fault yet: the program hangs, and the watchdog says where.
Error NcclTransport::compareAll(const std::vector<ChannelKey> &suspects) {
  std::string own;
  for (const ChannelKey &key : suspects)
    if (const auto found = ends.find(key); found != ends.end()) {
      append(own, found->second.size());
      for (const Instruction &end : found->second)
        append(own, end);
    }
  auto said = exchange(own);
  if (!said)
    return {ErrorKind::Aborted, said.message()};
  std::vector<std::string_view> rest(said->begin(), said->end());
  for (const ChannelKey &key : suspects) {
    std::array<std::vector<Instruction>, 2> sides;
    for (size_t side : {0, 1}) {
      std::string_view &bytes = rest[side ? key.destination : key.source];
      sides[side].resize(
          std::min(take<size_t>(bytes), bytes.size() / sizeof(Instruction)));
      for (Instruction &end : sides[side])
        end = take<Instruction>(bytes);
    }
    for (size_t i = 0; i < std::min(sides[0].size(), sides[1].size()); ++i)
      if (Error error =
              compareAny(sides[0][i], key.source, sides[1][i], key.destination))
        return error;
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Connecting
//===----------------------------------------------------------------------===//

/// Calls what uses NCCL, under the lock, unless the transport is aborted.
template <typename Fn>
Error NcclTransport::alone(Fn &&fn) {
  Error error;
  {
    std::lock_guard lock(gpu->inside);
    if (aborted)
      error = fault ? fault
                    : Error{ErrorKind::Aborted, "the transport was aborted"};
    else
      error = fn();
  }
  // Who has aborted it meanwhile could not get in.
  if (aborted)
    abort();
  return error;
}

/// Whether to wait any longer.
Error NcclTransport::goesOn() const {
  if (aborted)
    return {ErrorKind::Aborted, "the transport was aborted"};
  if (Clock::now() < deadline)
    return {};
  return {ErrorKind::Timeout,
          "rank " + std::to_string(rank) +
              " waits for NCCL to connect to, or "
              "part from, rank(s) " +
              others + " for more than " +
              formatRounded(options.connectTimeout) +
              " s; see whether they run, and what NCCL_DEBUG=INFO says",
          {rank}};
}

/// Waits while a communicator is in progress with a call that has returned
/// `code`.
Error NcclTransport::settle(ncclComm_t comm, std::string_view call,
                            ncclResult_t code) {
  for (unsigned round = 0;; ++round) {
    if (code != ncclSuccess && code != ncclInProgress)
      return fail(call, code, comm);
    if (const ncclResult_t asked = ncclCommGetAsyncError(comm, &code);
        asked != ncclSuccess)
      return fail("ncclCommGetAsyncError", asked, comm);
    if (code == ncclSuccess)
      return {};
    if (code != ncclInProgress)
      continue;
    if (Error error = goesOn())
      return error;
    backOff(round);
  }
}

Error NcclTransport::connect(const ProgramHash &hash) {
  return alone([&]() -> Error {
    ChannelSet all;
    if (Error error = compare(hash, all))
      return error;
    deadline = Clock::now() +
               std::chrono::duration_cast<Clock::duration>(
                   std::chrono::duration<double>(options.connectTimeout));
    if (Error error = allocate())
      return error;
    if (Error error = makeComms(all))
      return error;
    for (auto &[key, comm] : comms)
      if (Error error = connectPairs(comm, key, all))
        return error;
    deadline = Clock::time_point::max();
    return {};
  });
}

Error NcclTransport::allocate() {
  auto make = [](auto *&memory, size_t bytes, bool onHost) -> Error {
    void *made = nullptr;
    const cudaError_t code =
        onHost ? cudaMallocHost(&made, bytes) : cudaMalloc(&made, bytes);
    if (code != cudaSuccess)
      return cudaError(onHost ? "cudaMallocHost" : "cudaMalloc", code);
    memory = static_cast<std::remove_reference_t<decltype(memory)>>(made);
    return {};
  };
  if (const cudaError_t code = gpu->bind(); code != cudaSuccess)
    return cudaError("cudaSetDevice", code);
  if (const cudaError_t code =
          cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      code != cudaSuccess)
    return cudaError("cudaStreamCreateWithFlags", code);

  size_t numSpare = 0;
  std::vector<Message *> empty;
  for (Operation &operation : operations) {
    const size_t size = operation.values.size_bytes();
    if (operation.numRanks > 0) {
      if (Error error =
              make(operation.device,
                   operation.isFirst ? size * (operation.numRanks - 1) : size,
                   false))
        return error;
      cudaPointerAttributes where;
      if (const cudaError_t code =
              cudaPointerGetAttributes(&where, operation.values.data());
          code != cudaSuccess)
        return cudaError("cudaPointerGetAttributes", code);
      operation.onHost = where.type == cudaMemoryTypeUnregistered;
      if (operation.isFirst || operation.onHost)
        if (Error error = make(
                operation.host,
                operation.isFirst ? size * operation.numRanks : size, true))
          return error;
      for (size_t i = 0; i < operation.messages.size(); ++i) {
        operation.messages[i].data = operation.device + i * size;
        operation.back[i].data = operation.device;
      }
    }
    for (auto *messages : {&operation.messages, &operation.back})
      for (Message &message : *messages)
        if (!message.data)
          empty.push_back(&message);
  }
  if (Error error = make(spare, empty.size() + numRanks + 1, false))
    return error;
  for (Message *message : empty)
    message->data = spare + numRanks + 1 + numSpare++;
  return {};
}

/// Of the channels that all ranks have, so that all of them make the same.
Error NcclTransport::makeComms(const ChannelSet &all) {
  std::map<CommKey, std::set<int32_t>> members;
  for (const ChannelKey &channel : all)
    members[channel.comm].insert({channel.source, channel.destination});
  if (members.empty())
    return {};
  // The first rank of each communicator makes its name.
  std::string own;
  for (const auto &[key, ranks] : members)
    if (*ranks.begin() == rank) {
      ncclUniqueId id;
      if (const ncclResult_t code = ncclGetUniqueId(&id); code != ncclSuccess)
        return ncclError("ncclGetUniqueId", code, nullptr);
      append(own, id);
    }
  auto said = exchange(own);
  if (!said)
    return {ErrorKind::Aborted, said.message()};
  std::vector<std::string_view> rest(said->begin(), said->end());
  for (const auto &[key, ranks] : members) {
    const auto id = take<ncclUniqueId>(rest[*ranks.begin()]);
    // Those of channels of which only the other side knows, too.
    if (!ranks.contains(rank))
      continue;
    Comm &comm = comms[key];
    comm.ranks.assign(ranks.begin(), ranks.end());
    others.clear();
    for (int32_t other : comm.ranks)
      if (other != rank)
        others += (others.empty() ? "" : ", ") + std::to_string(other);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t code = ncclCommInitRankConfig(
        &comm.handle, static_cast<int>(comm.ranks.size()), id, comm.peer(rank),
        &config);
    if (Error error = settle(comm.handle, "ncclCommInitRankConfig", code))
      return error;
    if (gpu->registered)
      if (Error error = settle(comm.handle, "ncclCommRegister",
                               ncclCommRegister(comm.handle, gpu->registered,
                                                gpu->registeredBytes,
                                                &comm.registration)))
        return error;
  }
  for (Operation &operation : operations)
    for (auto *messages : {&operation.messages, &operation.back})
      for (Message &message : *messages)
        message.peer = message.comm->peer(message.rank);
  return {};
}

int NcclTransport::Comm::peer(int32_t rank) const {
  return static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank) -
                          ranks.begin());
}

/// NCCL connects two ranks when they first meet, and holds their hosts until
/// then. So all that ever meet do so now, in both directions, in groups that
/// are the same on both sides. Where a rank has many peers there are several
/// groups, which all ranks form alike: the pairs are dealt in their order, and
/// a rank's next group begins when one is full.
Error NcclTransport::connectPairs(Comm &comm, const CommKey &key,
                                  const ChannelSet &all) {
  std::set<std::pair<int32_t, int32_t>> pairs;
  for (const ChannelKey &channel : all)
    if (channel.comm == key)
      pairs.emplace(std::minmax(channel.source, channel.destination));
  struct Round {
    size_t number = 0, size = 0;
  };
  std::map<int32_t, Round> last;
  std::map<size_t, std::vector<int32_t>> own; ///< peers, by round
  for (const auto &[a, b] : pairs) {
    size_t number = std::max(last[a].number, last[b].number);
    for (int32_t r : {a, b})
      if (last[r].number == number && last[r].size == kMaxPeers) {
        ++number;
        break;
      }
    for (int32_t r : {a, b}) {
      if (last[r].number < number)
        last[r] = {number, 0};
      ++last[r].size;
    }
    if (a == rank || b == rank)
      own[number].push_back(a == rank ? b : a);
  }
  for (const auto &[number, peers] : own) {
    others.clear();
    std::vector<Message> messages;
    for (int32_t peer : peers) {
      others += (others.empty() ? "" : ", ") + std::to_string(peer);
      messages.push_back(
          {&comm, true, peer, comm.peer(peer), spare + numRanks, 1});
      messages.push_back(
          {&comm, false, peer, comm.peer(peer), spare + peer, 1});
    }
    if (Error error = runGroup(messages, stream))
      return error;
    for (unsigned round = 0;; ++round) {
      const cudaError_t code = cudaStreamQuery(stream);
      if (code == cudaSuccess)
        break;
      if (code != cudaErrorNotReady)
        return cudaError("cudaStreamQuery", code);
      cudaGetLastError();
      if (Error error =
              settle(comm.handle, "connecting the ranks", ncclSuccess))
        return error;
      if (Error error = goesOn())
        return error;
      backOff(round);
    }
  }
  return {};
}

//===----------------------------------------------------------------------===//
// The step
//===----------------------------------------------------------------------===//

Error NcclTransport::run(uint32_t id, void *nativeQueue) {
  return alone([&] {
    Operation &operation = operations[id];
    const auto queue = static_cast<cudaStream_t>(nativeQueue);
    return operation.back.empty() ? runGroup(operation.messages, queue)
                                  : runCollective(operation, queue);
  });
}

Error NcclTransport::runGroup(std::span<const Message> messages,
                              cudaStream_t queue) {
  if (messages.empty())
    return {};
  ncclResult_t code = ncclGroupStart();
  std::string_view call = "ncclGroupStart";
  if (code != ncclSuccess)
    return fail(call, code, messages.front().comm->handle);
  ncclComm_t comm = nullptr;
  for (const Message &message : messages) {
    comm = message.comm->handle;
    call = message.sends ? "ncclSend" : "ncclRecv";
    code = message.sends ? ncclSend(message.data, message.bytes, ncclInt8,
                                    message.peer, comm, queue)
                         : ncclRecv(message.data, message.bytes, ncclInt8,
                                    message.peer, comm, queue);
    if (code != ncclSuccess && code != ncclInProgress)
      break;
  }
  // A group that is open must be closed in any case.
  const ncclResult_t end = ncclGroupEnd();
  if (code == ncclSuccess || code == ncclInProgress) {
    code = end;
    call = "ncclGroupEnd";
  }
  if (code != ncclSuccess && code != ncclInProgress)
    return fail(call, code, comm);
  // Nothing may come onto the stream before NCCL has put the group there.
  const Comm *settled = nullptr;
  for (const Message &message : messages) {
    if (message.comm == settled)
      continue;
    settled = message.comm;
    if (Error error = settle(settled->handle, call, code))
      return error;
  }
  return {};
}

/// Adds as the host does: from zero, in the order of the ranks.
void NcclTransport::addValues(void *data) {
  const Operation &operation = *static_cast<const Operation *>(data);
  const size_t size = operation.values.size();
  for (size_t i = 0; i < size; ++i) {
    float sum = 0;
    for (size_t r = 0; r < operation.numRanks; ++r)
      sum += operation.host[r * size + i];
    operation.host[i] = sum;
  }
}

void NcclTransport::takeValues(void *data) {
  const Operation &operation = *static_cast<const Operation *>(data);
  std::memcpy(operation.host, operation.values.data(),
              operation.values.size_bytes());
}

void NcclTransport::giveValues(void *data) {
  const Operation &operation = *static_cast<const Operation *>(data);
  std::memcpy(operation.values.data(), operation.host,
              operation.values.size_bytes());
}

/// NCCL's own all_reduce adds in an order of its own. So values go to the first
/// rank, are added by a host function, and the sums come back. The values may
/// be in any memory; only `device` meets NCCL. A copy from or to memory that is
/// not pinned would hold the host up, so a host function makes it.
Error NcclTransport::runCollective(Operation &operation, cudaStream_t queue) {
  Error error; // the first; then nothing more is done
  auto exchangeAll = [&](std::span<const Message> messages) {
    for (size_t i = 0; i < messages.size() && !error; i += kMaxPeers)
      error = runGroup(
          messages.subspan(i, std::min(kMaxPeers, messages.size() - i)), queue);
  };
  auto copy = [&](void *to, const void *from, size_t bytes) {
    if (error || bytes == 0)
      return;
    const cudaError_t code =
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue);
    if (code != cudaSuccess)
      error = cudaError("cudaMemcpyAsync", code);
  };
  auto call = [&](cudaHostFn_t function) {
    if (error)
      return;
    const cudaError_t code = cudaLaunchHostFunc(queue, function, &operation);
    if (code != cudaSuccess)
      error = cudaError("cudaLaunchHostFunc", code);
  };
  const bool adds = operation.numRanks > 0, isFirst = operation.isFirst;
  float *const host = operation.host;
  std::byte *const device = operation.device;
  const size_t size = operation.values.size_bytes();
  if (adds && operation.onHost)
    call(takeValues);
  else if (adds && isFirst)
    copy(host, operation.values.data(), size);
  if (adds && !isFirst)
    copy(device, operation.onHost ? host : operation.values.data(), size);
  exchangeAll(operation.messages);
  if (adds && isFirst) {
    copy(host + operation.values.size(), device,
         size * (operation.numRanks - 1));
    call(addValues);
    copy(device, host, size);
  }
  exchangeAll(operation.back);
  if (adds && operation.onHost) {
    if (!isFirst)
      copy(host, device, size);
    call(giveValues);
  } else if (adds) {
    copy(operation.values.data(), device, size);
  }
  return error;
}

Error NcclTransport::check() {
  return alone([&]() -> Error {
    for (auto &[key, comm] : comms) {
      ncclResult_t state = ncclSuccess;
      if (!comm.handle)
        continue;
      ncclResult_t code = ncclCommGetAsyncError(comm.handle, &state);
      if (code == ncclSuccess)
        code = state;
      if (code != ncclSuccess && code != ncclInProgress)
        return fault ? fault : fail("a transfer", code, comm.handle);
    }
    return fault;
  });
}

//===----------------------------------------------------------------------===//
// The end
//===----------------------------------------------------------------------===//

Error NcclTransport::disconnect() {
  return alone([&]() -> Error {
    gpu->dropGraph();
    deadline = Clock::now() +
               std::chrono::duration_cast<Clock::duration>(
                   std::chrono::duration<double>(options.connectTimeout));
    for (auto &[key, comm] : comms) {
      if (!comm.handle)
        continue;
      if (comm.registration)
        if (Error error = settle(
                comm.handle, "ncclCommDeregister",
                ncclCommDeregister(comm.handle,
                                   std::exchange(comm.registration, nullptr))))
          return error;
      if (Error error = settle(comm.handle, "ncclCommFinalize",
                               ncclCommFinalize(comm.handle)))
        return error;
      if (const ncclResult_t code =
              ncclCommDestroy(std::exchange(comm.handle, nullptr));
          code != ncclSuccess)
        return ncclError("ncclCommDestroy", code, nullptr);
    }
    return {};
  });
}

void NcclTransport::abort() {
  aborted = true;
  stop.request_stop();
  if (std::unique_lock lock(gpu->inside, std::try_to_lock); lock)
    abortComms();
}

void NcclTransport::abortComms() {
  gpu->dropGraph();
  for (auto &[key, comm] : comms)
    if (comm.handle)
      ncclCommAbort(std::exchange(comm.handle, nullptr));
}

} // namespace penstock::runtime
