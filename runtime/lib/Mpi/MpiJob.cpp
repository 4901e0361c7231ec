//===- MpiJob.cpp - Processes that mpirun has started ---------------------===//

#include "../Processes/ProcessBackend.h"
#include "MpiTransport.h"
#include "World.h"

#include <cstring>
#include <list>
#include <thread>

namespace penstock::runtime {

namespace {

/// A message is its stream and its bytes. A thread looks for those of others
/// and sees to it that the own ones leave. Ends MPI when it ends.
///
/// It needs no communicator of its own: to make one is to meet all others
/// without knowing who is missing.
class MpiMessenger final : public Messenger {
public:
  MpiMessenger(int size, int number)
      : Messenger(size, number), thread([this] { hearAll(); }) {}
  ~MpiMessenger() override {
    stopping = true;
    thread.join();
    MPI_Finalize();
  }
  void send(int to, Stream stream, std::string bytes) override;

private:
  struct Sent {
    std::string bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void hearAll();
  bool hearOne();

  const MPI_Comm comm = MPI_COMM_WORLD;
  std::list<Sent> sent; ///< not gone yet; under the lock of MPI
  std::atomic<bool> stopping = false;
  std::thread thread;
};

void MpiMessenger::send(int to, Stream stream, std::string bytes) {
  std::string message(sizeof(stream), '\0');
  std::memcpy(message.data(), &stream, sizeof(stream));
  message += bytes;
  std::lock_guard lock(mpiMutex());
  Sent &own = sent.emplace_back();
  own.bytes = std::move(message);
  MPI_Isend(own.bytes.data(), static_cast<int>(own.bytes.size()), MPI_BYTE, to,
            0, comm, &own.request);
}

bool MpiMessenger::hearOne() {
  MPI_Status status;
  std::string bytes;
  {
    std::lock_guard lock(mpiMutex());
    int found = 0, length = 0;
    MPI_Message message;
    if (MPI_Improbe(MPI_ANY_SOURCE, 0, comm, &found, &message, &status) !=
            MPI_SUCCESS ||
        !found)
      return false;
    MPI_Get_count(&status, MPI_BYTE, &length);
    bytes.resize(length);
    MPI_Mrecv(bytes.data(), length, MPI_BYTE, &message, MPI_STATUS_IGNORE);
  }
  Stream stream = 0;
  std::memcpy(&stream, bytes.data(), sizeof(stream));
  hear(status.MPI_SOURCE, stream, bytes.substr(sizeof(stream)));
  return true;
}

void MpiMessenger::hearAll() {
  for (unsigned round = 0;;) {
    const bool ends = stopping;
    const bool heard = hearOne();
    {
      std::lock_guard lock(mpiMutex());
      for (auto message = sent.begin(); message != sent.end();) {
        int done = 0;
        MPI_Test(&message->request, &done, MPI_STATUS_IGNORE);
        message = done ? sent.erase(message) : std::next(message);
      }
      if (ends && sent.empty())
        return;
    }
    // Nothing here is urgent: the ranks need the core more.
    round = heard ? 0 : round + 20;
    backOff(round);
  }
}

class MpiJob final : public MessageJob {
public:
  MpiJob(std::unique_ptr<Messenger> owned, double timeout)
      : MessageJob(std::move(owned)) {
    messenger().longestSilence = std::max(timeout, 1.0);
    findNeighbours();
  }
  ~MpiJob() override {
    // Nobody leaves before all that was sent has been heard; and MPI_Finalize
    // would wait for who is frozen without a limit.
    if (gather("", std::numeric_limits<double>::infinity()).empty())
      fail(1, lostPeer());
  }
  std::string describe() const override {
    return "process " + std::to_string(number()) + " of " +
           std::to_string(size()) + ", as mpirun says; they meet through MPI";
  }
  Status checkRanks(int32_t numRanks) override {
    return MessageJob::checkRanks(numRanks, "mpirun", "mpirun -n ");
  }
  Result<std::unique_ptr<Backend>> makeBackend(int32_t numRanks) override {
    if (Status status = checkRanks(numRanks); !status)
      return status.failure();
    return makeProcessBackend([rank = number()](Meetings &meetings) {
      return std::make_unique<MpiTransport>(rank, meetings);
    });
  }
  bool endsTogether() const override { return true; }
  void fail(int code, const Error &) override {
    std::lock_guard lock(mpiMutex());
    MPI_Abort(MPI_COMM_WORLD, code);
  }
};

} // namespace

Result<std::unique_ptr<Job>> makeMpiJob(double timeout) {
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) !=
          MPI_SUCCESS ||
      provided < MPI_THREAD_SERIALIZED)
    return Failure{"this MPI cannot be called from several threads in turns "
                   "(MPI_THREAD_SERIALIZED); use one that can"};
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int size = 0, number = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &number);
  return std::unique_ptr<Job>(std::make_unique<MpiJob>(
      std::make_unique<MpiMessenger>(size, number), timeout));
}

} // namespace penstock::runtime
