//===- ExchangeTransport.cpp - Transfers between processes ----------------===//

#include "ExchangeTransport.h"

#include "penstock/Program/Text.h"

#include <algorithm>
#include <set>

namespace penstock::runtime {

Error compareLabels(const Instruction &send, const Message &own) {
  if (isTransfer(own.label.op))
    return compareEnds(send, own.label);
  if (send.bytes == own.bytes)
    return {};
  const auto numValues = [](int64_t bytes) {
    return std::to_string(bytes / int64_t(sizeof(float)));
  };
  return {ErrorKind::Mismatch, "an all_reduce of " + numValues(own.bytes) +
                                   " values meets one of " +
                                   numValues(send.bytes)};
}

//===----------------------------------------------------------------------===//
// Preparation
//===----------------------------------------------------------------------===//

Result<uint32_t>
ExchangeTransport::addGroup(std::span<const Transfer> members) {
  for (const Transfer &member : members)
    if (Status status = checkBytes(member.instruction->bytes); !status)
      return status.failure();
  Operation &operation = operations.emplace_back();
  operation.comm = members.front().instruction->comm;
  for (const Transfer &member : members) {
    const Instruction &inst = *member.instruction;
    operation.out.push_back(
        {inst.op == Op::Send, inst.peer, member.data, inst.bytes, 0, inst});
  }
  return static_cast<uint32_t>(operations.size() - 1);
}

Result<uint32_t>
ExchangeTransport::addCollective(const Instruction &inst,
                                 std::span<const int32_t> ranks,
                                 std::span<float> values) {
  if (!std::binary_search(ranks.begin(), ranks.end(), rank))
    return Failure{"rank " + std::to_string(rank) +
                   " is not in the rank set of its collective"};
  const auto bytes = static_cast<int64_t>(values.size_bytes());
  if (Status status = checkBytes(bytes); !status)
    return status.failure();
  Operation &operation = operations.emplace_back();
  operation.comm = inst.comm;
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
  auto add = [&](std::vector<Message> &messages, bool sends, int32_t peer,
                 void *data) {
    messages.push_back({sends, peer, data, bytes, 0, inst});
    messages.back().label.bytes = bytes;
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

std::string ExchangeTransport::nameOf(const Operation &operation) {
  return std::to_string(operation.comm)
      .append(" ")
      .append(operation.key)
      .append("\n");
}

/// Compares the programs; `all` is what each rank has registered.
Error ExchangeTransport::compare(const ProgramHash &hash,
                                 std::vector<std::string> &all) {
  std::string own = hash.str();
  const size_t prefix = own.size();
  std::set<std::string> mine;
  for (const Operation &operation : operations)
    mine.insert(nameOf(operation));
  for (const std::string &line : mine)
    own += line;
  all = meetings.gather(own, {&aborted});
  if (all.empty())
    return aborted ? Error{ErrorKind::Aborted, "the transport was aborted"}
                   : meetings.lost();
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

Error ExchangeTransport::connect(const ProgramHash &hash) {
  if (Error error = open(hash))
    return error;
  std::vector<std::string> all;
  if (Error error = compare(hash, all))
    return error;
  // The communicators and collectives of all ranks, numbered alike on all.
  std::map<std::string, uint32_t> channels;
  std::set<uint16_t> used;
  for (const std::string &text : all)
    for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
      end = text.find('\n', begin);
      channels.emplace(text.substr(begin, end + 1 - begin), 0);
      used.insert(static_cast<uint16_t>(std::stoul(text.substr(begin))));
    }
  uint32_t numChannels = 0;
  for (auto &[name, channel] : channels)
    channel = numChannels++;
  const std::vector<uint16_t> comms(used.begin(), used.end());
  if (Error error = join(comms, numChannels))
    return error;
  for (Operation &operation : operations) {
    std::vector<Message> *parts[] = {&operation.out, &operation.back};
    for (int part : {0, 1}) {
      if (parts[part]->empty())
        continue;
      for (Message &message : *parts[part])
        message.channel = channels.at(nameOf(operation));
      auto exchange = makeExchange(operation.comm, std::move(*parts[part]));
      if (!exchange)
        return {ErrorKind::DeviceError, exchange.message()};
      operation.exchanges[part] = std::move(*exchange);
    }
  }
  return {};
}

//===----------------------------------------------------------------------===//
// The step
//===----------------------------------------------------------------------===//

Error ExchangeTransport::run(uint32_t id, void *) {
  Operation &operation = operations[id];
  if (operation.exchanges[0])
    if (Error error = operation.exchanges[0]->run())
      return error;
  if (!operation.others.empty())
    for (size_t i = 0; i < operation.values.size(); ++i) {
      // As loopback adds them: from zero, in the order of the ranks.
      float sum = 0;
      sum += operation.values[i];
      for (const std::vector<float> &other : operation.others)
        sum += other[i];
      operation.values[i] = sum;
    }
  return operation.exchanges[1] ? operation.exchanges[1]->run() : Error();
}

} // namespace penstock::runtime
