//===- MpiTransport.cpp - Transfers between processes ---------------------===//

#include "MpiTransport.h"

#include "penstock/Program/Text.h"

#include <algorithm>
#include <limits>
#include <set>

namespace penstock::runtime {

/// Tags on the copy of a program's communicator: transfers have the first two,
/// and each collective two more.
static constexpr int kTransferTag = 0;
static int collectiveTag(size_t number) {
  return static_cast<int>(2 + 2 * number);
}

/// MPI counts with an int.
static constexpr int64_t kMaxBytes = std::numeric_limits<int>::max();

static Failure tooLong(int64_t bytes) {
  return Failure{"a message of " + std::to_string(bytes) +
                 " bytes is too long for MPI, which takes up to " +
                 std::to_string(kMaxBytes) +
                 "; use smaller micro-batches or stages"};
}

//===----------------------------------------------------------------------===//
// Preparation
//===----------------------------------------------------------------------===//

Result<uint32_t> MpiTransport::addGroup(std::span<const Transfer> members) {
  for (const Transfer &member : members)
    if (member.instruction->bytes > kMaxBytes)
      return tooLong(member.instruction->bytes);
  Operation &operation = operations.emplace_back();
  operation.comm = members.front().instruction->comm;
  for (const Transfer &member : members) {
    const Instruction &inst = *member.instruction;
    operation.out.messages.push_back({&inst, inst.op == Op::Send, inst.peer,
                                      member.data, inst.bytes, kTransferTag,
                                      inst});
  }
  return static_cast<uint32_t>(operations.size() - 1);
}

Result<uint32_t> MpiTransport::addCollective(const Instruction &inst,
                                             std::span<const int32_t> ranks,
                                             std::span<float> values) {
  if (!std::binary_search(ranks.begin(), ranks.end(), rank))
    return Failure{"rank " + std::to_string(rank) +
                   " is not in the rank set of its collective"};
  const auto bytes = static_cast<int64_t>(values.size_bytes());
  if (bytes > kMaxBytes)
    return tooLong(bytes);
  Operation &operation = operations.emplace_back();
  operation.comm = inst.comm;
  operation.isCollective = true;
  operation.values = values;
  operation.key = mnemonic(inst.op);
  auto append = [&](int32_t number) {
    operation.key.append(" ").append(std::to_string(number));
  };
  append(inst.stage);
  append(inst.microbatch);
  for (int32_t member : ranks)
    append(member);

  const int32_t root = ranks.front();
  const int64_t numOthers = static_cast<int64_t>(ranks.size()) - 1;
  if (rank == root)
    operation.others.assign(numOthers, std::vector<float>(values.size()));
  auto add = [&](Exchange &exchange, bool sends, int32_t peer, void *data) {
    Message &message = exchange.messages.emplace_back();
    message = {&inst, sends, peer, data, bytes, 0, inst};
    message.label.bytes = bytes;
  };
  for (int64_t i = 0; i < numOthers; ++i) {
    const int32_t other = ranks[i + 1];
    if (rank == root) {
      add(operation.out, false, other, operation.others[i].data());
      add(operation.back, true, other, values.data());
    } else if (rank == other) {
      add(operation.out, true, root, values.data());
      add(operation.back, false, root, values.data());
    }
  }
  return static_cast<uint32_t>(operations.size() - 1);
}

/// Compares the programs; `all` is what each rank has registered.
Error MpiTransport::compare(const ProgramHash &hash,
                            std::vector<std::string> &all) {
  std::string own = hash.str();
  const size_t prefix = own.size();
  std::set<std::string> mine;
  for (const Operation &operation : operations)
    mine.insert(std::to_string(operation.comm)
                    .append(" ")
                    .append(operation.key)
                    .append("\n"));
  for (const std::string &line : mine)
    own += line;
  if (Error error = gatherBytes(base, own, {&aborted}, all))
    return error;
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r].compare(0, prefix, all[0], 0, prefix) != 0)
      return {ErrorKind::Mismatch,
              "rank " + std::to_string(r) + " has program " +
                  all[r].substr(0, prefix) + ", but rank 0 has " +
                  all[0].substr(0, prefix) +
                  "; give the same file to all ranks",
              {static_cast<int32_t>(r)}};
  for (std::string &text : all)
    text.erase(0, prefix);
  return {};
}

Error MpiTransport::connect(const ProgramHash &hash) {
  std::vector<std::string> all;
  if (Error error = compare(hash, all))
    return error;
  // The communicators and collectives of all ranks, numbered alike on all.
  std::map<std::string, size_t> keys;
  std::set<uint16_t> used;
  for (const std::string &text : all)
    for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
      end = text.find('\n', begin);
      keys.emplace(text.substr(begin, end - begin), 0);
      used.insert(static_cast<uint16_t>(std::stoul(text.substr(begin))));
    }
  size_t number = 0;
  for (auto &[key, index] : keys)
    index = number++;
  int *largest = nullptr, found = 0;
  {
    std::lock_guard lock(mpiMutex());
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest, &found);
  }
  if (found && collectiveTag(number) > *largest)
    return {ErrorKind::NotSupported,
            "the program has " + std::to_string(number) +
                " different collectives, more than MPI has tags for"};
  for (uint16_t comm : used)
    if (Error error = copyComm(base, {&aborted}, comms[comm]))
      return error;
  for (Operation &operation : operations) {
    if (operation.isCollective)
      for (Exchange *exchange : {&operation.out, &operation.back})
        for (Message &message : exchange->messages)
          message.tag = collectiveTag(keys.at(std::to_string(operation.comm)
                                                  .append(" ")
                                                  .append(operation.key)));
    for (Exchange *exchange : {&operation.out, &operation.back})
      if (Error error = makeRequests(operation, *exchange))
        return error;
  }
  return {};
}

Error MpiTransport::makeRequests(Operation &operation, Exchange &exchange) {
  const MPI_Comm comm = comms.at(operation.comm);
  exchange.requests.assign(2 * exchange.messages.size(), MPI_REQUEST_NULL);
  std::lock_guard lock(mpiMutex());
  for (size_t i = 0; i < exchange.messages.size(); ++i) {
    Message &message = exchange.messages[i];
    const int bytes = static_cast<int>(message.bytes);
    MPI_Request *label = &exchange.requests[2 * i], *data = label + 1;
    int code = 0;
    if (message.sends) {
      code = MPI_Send_init(&message.label, sizeof(Instruction), MPI_BYTE,
                           message.peer, message.tag, comm, label);
      if (code == MPI_SUCCESS)
        code = MPI_Ssend_init(message.data, bytes, MPI_BYTE, message.peer,
                              message.tag + 1, comm, data);
    } else {
      code = MPI_Recv_init(&message.label, sizeof(Instruction), MPI_BYTE,
                           message.peer, message.tag, comm, label);
      if (code == MPI_SUCCESS)
        code = MPI_Recv_init(message.data, bytes, MPI_BYTE, message.peer,
                             message.tag + 1, comm, data);
    }
    if (Error error = mpiError(code))
      return error;
  }
  return {};
}

MpiTransport::~MpiTransport() {
  std::lock_guard lock(mpiMutex());
  for (Operation &operation : operations)
    for (Exchange *exchange : {&operation.out, &operation.back})
      for (MPI_Request &request : exchange->requests)
        if (request != MPI_REQUEST_NULL) {
          int idle = 0;
          MPI_Request_get_status(request, &idle, MPI_STATUS_IGNORE);
          if (!idle)
            MPI_Cancel(&request);
          MPI_Request_free(&request);
        }
}

//===----------------------------------------------------------------------===//
// The step
//===----------------------------------------------------------------------===//

Error MpiTransport::run(uint32_t id, void *) {
  Operation &operation = operations[id];
  if (Error error = run(operation, operation.out))
    return error;
  if (!operation.isCollective)
    return {};
  for (size_t i = 0; i < operation.values.size() && !operation.others.empty();
       ++i) {
    // As loopback adds them: from zero, in the order of the ranks.
    float sum = 0;
    sum += operation.values[i];
    for (const std::vector<float> &other : operation.others)
      sum += other[i];
    operation.values[i] = sum;
  }
  return run(operation, operation.back);
}

Error MpiTransport::run(Operation &operation, Exchange &exchange) {
  {
    // In order: the i-th send of a channel meets the i-th receive.
    std::lock_guard lock(mpiMutex());
    for (MPI_Request &request : exchange.requests)
      if (Error error = mpiError(MPI_Start(&request)))
        return error;
  }
  // Labels first: they tell why data is too long for its receive.
  size_t numUnchecked = 0;
  for (Message &message : exchange.messages)
    numUnchecked += message.unchecked = !message.sends;
  for (unsigned round = 0; numUnchecked > 0; ++round) {
    for (size_t i = 0; i < exchange.messages.size(); ++i) {
      Message &message = exchange.messages[i];
      if (!message.unchecked)
        continue;
      int done = 0;
      {
        std::lock_guard lock(mpiMutex());
        if (Error error = mpiError(
                MPI_Test(&exchange.requests[2 * i], &done, MPI_STATUS_IGNORE)))
          return error;
      }
      if (!done)
        continue;
      if (Error error = checkLabel(operation, message))
        return error;
      message.unchecked = false;
      --numUnchecked;
      round = 0;
    }
    if (aborted)
      return {ErrorKind::Aborted, "the transport was aborted"};
    if (numUnchecked > 0)
      backOff(round);
  }
  return waitAll(exchange.requests, {&aborted});
}

/// Compares the label of a message that has come with what was expected.
Error MpiTransport::checkLabel(const Operation &operation,
                               const Message &message) const {
  const Instruction &from = message.label, &to = *message.instruction;
  if (operation.isCollective) {
    if (from.bytes == message.bytes)
      return {};
    const auto numValues = [](int64_t bytes) {
      return std::to_string(bytes / int64_t(sizeof(float)));
    };
    return {ErrorKind::Mismatch,
            "an all_reduce of " + numValues(message.bytes) +
                " values meets one of " + numValues(from.bytes)};
  }
  return compareEnds(from, to);
}

} // namespace penstock::runtime
