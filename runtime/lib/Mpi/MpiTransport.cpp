//===- MpiTransport.cpp - Transfers over MPI ------------------------------===//

#include "MpiTransport.h"

#include <limits>

namespace penstock::runtime {

/// The tag of a message's label; that of its data follows.
static int64_t tagOf(uint32_t channel) { return 2 * int64_t(channel); }

/// MPI counts with an int.
static constexpr int64_t kMaxBytes = std::numeric_limits<int>::max();

Status MpiTransport::checkBytes(int64_t bytes) const {
  if (bytes <= kMaxBytes)
    return success();
  return Failure{"a message of " + std::to_string(bytes) +
                 " bytes is too long for MPI, which takes up to " +
                 std::to_string(kMaxBytes) +
                 "; use smaller micro-batches or stages"};
}

Error MpiTransport::join(std::span<const uint16_t> comms,
                         uint32_t numChannels) {
  int *largest = nullptr, found = 0;
  {
    std::lock_guard lock(mpiMutex());
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest, &found);
  }
  if (found && tagOf(numChannels) > *largest)
    return {ErrorKind::NotSupported,
            "the program has " + std::to_string(numChannels) +
                " different collectives, more than MPI has tags for"};
  for (uint16_t comm : comms)
    if (Error error = copyComm({&aborted}, copies[comm]))
      return error;
  return {};
}

namespace {
/// Persistent requests: 2 i and 2 i + 1 are of message i: its label, its data.
class MpiExchange final : public Exchange {
public:
  MpiExchange(std::vector<Message> messages, const std::atomic<bool> &aborted)
      : messages(std::move(messages)),
        requests(2 * this->messages.size(), MPI_REQUEST_NULL),
        labels(this->messages.size()), unchecked(this->messages.size()),
        aborted(aborted) {}
  ~MpiExchange() override;
  Error prepare(MPI_Comm comm);
  Error run() override;

private:
  const std::vector<Message> messages;
  std::vector<MPI_Request> requests;
  std::vector<Instruction> labels; ///< that have come, or are sent
  std::vector<bool> unchecked;     ///< the label is to come
  const std::atomic<bool> &aborted;
};
} // namespace

Error MpiExchange::prepare(MPI_Comm comm) {
  std::lock_guard lock(mpiMutex());
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message &message = messages[i];
    const int bytes = static_cast<int>(message.bytes);
    const int tag = static_cast<int>(tagOf(message.channel));
    labels[i] = message.label;
    MPI_Request *label = &requests[2 * i], *data = label + 1;
    int code = 0;
    if (message.sends) {
      code = MPI_Send_init(&labels[i], sizeof(Instruction), MPI_BYTE,
                           message.peer, tag, comm, label);
      if (code == MPI_SUCCESS)
        code = MPI_Ssend_init(message.data, bytes, MPI_BYTE, message.peer,
                              tag + 1, comm, data);
    } else {
      code = MPI_Recv_init(&labels[i], sizeof(Instruction), MPI_BYTE,
                           message.peer, tag, comm, label);
      if (code == MPI_SUCCESS)
        code = MPI_Recv_init(message.data, bytes, MPI_BYTE, message.peer,
                             tag + 1, comm, data);
    }
    if (Error error = mpiError(code))
      return error;
  }
  return {};
}

MpiExchange::~MpiExchange() {
  std::lock_guard lock(mpiMutex());
  for (MPI_Request &request : requests)
    if (request != MPI_REQUEST_NULL) {
      int idle = 0;
      MPI_Request_get_status(request, &idle, MPI_STATUS_IGNORE);
      if (!idle)
        MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
}

Error MpiExchange::run() {
  {
    // In order: the i-th send of a channel meets the i-th receive.
    std::lock_guard lock(mpiMutex());
    for (MPI_Request &request : requests)
      if (Error error = mpiError(MPI_Start(&request)))
        return error;
  }
  // Labels first: they tell why data is too long for its receive.
  size_t numUnchecked = 0;
  for (size_t i = 0; i < messages.size(); ++i)
    numUnchecked += unchecked[i] = !messages[i].sends;
  for (unsigned round = 0; numUnchecked > 0; ++round) {
    for (size_t i = 0; i < messages.size(); ++i) {
      if (!unchecked[i])
        continue;
      int done = 0;
      {
        std::lock_guard lock(mpiMutex());
        if (Error error =
                mpiError(MPI_Test(&requests[2 * i], &done, MPI_STATUS_IGNORE)))
          return error;
      }
      if (!done)
        continue;
      if (Error error = compareLabels(labels[i], messages[i]))
        return error;
      unchecked[i] = false;
      --numUnchecked;
      round = 0;
    }
    if (aborted)
      return {ErrorKind::Aborted, "the transport was aborted"};
    if (numUnchecked > 0)
      backOff(round);
  }
  return waitAll(requests, {&aborted});
}

Result<std::unique_ptr<Exchange>>
MpiTransport::makeExchange(uint16_t comm, std::vector<Message> messages) {
  auto exchange = std::make_unique<MpiExchange>(std::move(messages), aborted);
  if (Error error = exchange->prepare(copies.at(comm)))
    return Failure{error.message};
  return std::unique_ptr<Exchange>(std::move(exchange));
}

} // namespace penstock::runtime
