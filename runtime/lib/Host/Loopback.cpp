//===- Loopback.cpp - All ranks in one process ----------------------------===//

#include "Loopback.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace penstock::runtime {

LoopbackTransport::LoopbackTransport(std::shared_ptr<LoopbackWorld> w,
                                     int32_t rank)
    : world(std::move(w)), rank(rank) {
  std::vector<int32_t> everyone(world->numRanks);
  std::iota(everyone.begin(), everyone.end(), 0);
  // No program has a barrier of a stage, so this meeting is connect's own.
  join(addOperation(), {Op::Barrier, 0, std::move(everyone), -2, -2});
}

LoopbackTransport::Operation &LoopbackTransport::addOperation() {
  std::lock_guard lock(world->mutex);
  Operation &operation = operations.emplace_back();
  operation.done = &world->counters.emplace_back();
  return operation;
}

Result<uint32_t>
LoopbackTransport::addGroup(std::span<const Transfer> members) {
  Operation &operation = addOperation();
  operation.posts.resize(members.size());
  std::lock_guard lock(world->mutex);
  for (size_t i = 0; i < members.size(); ++i) {
    const Instruction &inst = *members[i].instruction;
    const bool sends = inst.op == Op::Send;
    operation.posts[i] = {&inst, members[i].data,
                          &world->channels[{inst.comm, sends ? rank : inst.peer,
                                            sends ? inst.peer : rank}],
                          operation.done, nullptr};
  }
  return static_cast<uint32_t>(operations.size() - 1);
}

Result<uint32_t>
LoopbackTransport::addCollective(const Instruction &inst,
                                 std::span<const int32_t> ranks,
                                 std::span<float> values) {
  if (!std::binary_search(ranks.begin(), ranks.end(), rank))
    return Failure{"rank " + std::to_string(rank) +
                   " is not in the rank set of its collective"};
  Operation &operation = addOperation();
  operation.values = values;
  join(operation,
       {inst.op, inst.comm, std::vector<int32_t>(ranks.begin(), ranks.end()),
        inst.stage, inst.microbatch});
  return static_cast<uint32_t>(operations.size() - 1);
}

void LoopbackTransport::join(Operation &operation,
                             LoopbackWorld::MeetingKey key) {
  std::lock_guard lock(world->mutex);
  const std::vector<int32_t> &ranks = std::get<2>(key);
  operation.seat =
      std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin();
  const size_t numSeats = ranks.size();
  LoopbackWorld::Meeting &meeting = world->meetings[std::move(key)];
  meeting.here.resize(numSeats);
  meeting.values.resize(numSeats);
  operation.meeting = &meeting;
}

Error LoopbackTransport::connect(const ProgramHash &hash) {
  {
    std::lock_guard lock(world->mutex);
    if (world->firstRank < 0) {
      world->firstRank = rank;
      world->firstHash = hash;
    } else if (!(world->firstHash == hash)) {
      return {ErrorKind::Mismatch,
              "rank " + std::to_string(rank) + " has program " + hash.str() +
                  ", but rank " + std::to_string(world->firstRank) + " has " +
                  world->firstHash.str() + "; give the same file to all ranks",
              {rank}};
    }
  }
  return run(operations.front());
}

Error LoopbackTransport::run(uint32_t id, void *) {
  return run(operations[id]);
}

Error LoopbackTransport::run(Operation &operation) {
  if (operation.meeting) {
    operation.target += 1;
    if (Error error = meet(operation))
      return error;
  } else {
    operation.target += operation.posts.size();
    for (LoopbackWorld::Post &member : operation.posts)
      if (Error error = post(member))
        return error;
  }
  if (!operation.done->waitFor(operation.target))
    return {ErrorKind::Aborted, "the transport was aborted"};
  return {};
}

/// Meets the first waiting partner, or waits in the channel.
Error LoopbackTransport::post(LoopbackWorld::Post &own) {
  LoopbackWorld::Channel &channel = *own.channel;
  LoopbackWorld::Post *partner = nullptr;
  {
    std::lock_guard lock(channel.mutex);
    partner = channel.head;
    if (!partner || partner->instruction->op == own.instruction->op) {
      own.next = nullptr;
      (partner ? channel.tail->next : channel.head) = &own;
      channel.tail = &own;
      return {};
    }
    channel.head = partner->next;
  }

  const bool sends = own.instruction->op == Op::Send;
  const LoopbackWorld::Post &send = sends ? own : *partner;
  const LoopbackWorld::Post &recv = sends ? *partner : own;
  if (Error error = compareEnds(*send.instruction, *recv.instruction))
    return error;
  const int64_t bytes = send.instruction->bytes;
  if (bytes > 0)
    std::memcpy(recv.data, send.data, static_cast<size_t>(bytes));
  partner->done->advance();
  own.done->advance();
  return {};
}

/// Sits down; the one who comes last does the work of all and lets them go.
Error LoopbackTransport::meet(Operation &operation) {
  LoopbackWorld::Meeting &meeting = *operation.meeting;
  std::lock_guard lock(meeting.mutex);
  meeting.here[operation.seat] = operation.done;
  meeting.values[operation.seat] = operation.values;
  if (++meeting.numHere < meeting.here.size())
    return {};
  for (const std::span<float> &values : meeting.values)
    if (values.size() != operation.values.size())
      return {ErrorKind::Mismatch,
              "an all_reduce of " + std::to_string(operation.values.size()) +
                  " values meets one of " + std::to_string(values.size())};
  for (size_t i = 0; i < operation.values.size(); ++i) {
    float sum = 0;
    for (const std::span<float> &values : meeting.values)
      sum += values[i];
    for (const std::span<float> &values : meeting.values)
      values[i] = sum;
  }
  meeting.numHere = 0;
  for (Counter *&done : meeting.here)
    done->advance();
  return {};
}

void LoopbackTransport::abort() {
  for (Operation &operation : operations)
    operation.done->abort();
}

} // namespace penstock::runtime
