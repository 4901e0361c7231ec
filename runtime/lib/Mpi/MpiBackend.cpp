//===- MpiBackend.cpp - One rank in each process of a job -----------------===//

#include "../Host/HostDevice.h"
#include "MpiTransport.h"
#include "World.h"
#include "penstock/Program/Text.h"
#include "penstock/Runtime/Backend.h"

#include <cmath>
#include <cstdlib>
#include <deque>
#include <list>
#include <system_error>
#include <thread>

namespace penstock::runtime {

namespace {

using Clock = Patience::Clock;

Clock::duration toDuration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(seconds));
}

//===----------------------------------------------------------------------===//
// Peers
//===----------------------------------------------------------------------===//

/// A thread listens to the other processes. Results go through an allgather a
/// step, which costs no rank any time; faults and signs of life are small
/// messages.
class MpiPeers final : public Peers {
public:
  MpiPeers(MPI_Comm results, MPI_Comm control, MPI_Comm meeting)
      : results(results), control(control), meeting(meeting) {
    std::lock_guard lock(mpiMutex());
    MPI_Comm_size(control, &size);
    MPI_Comm_rank(control, &number);
    lastHeard.assign(size, Clock::now());
  }
  ~MpiPeers() override { stop(true); }

  Error listen(Listener who, size_t values, double seconds) override;
  void post(std::span<const double> values) override;
  void tell(const Error &error) override;
  std::vector<int32_t> silentRanks(double seconds) override;
  void stop(bool atOnce) override;
  std::vector<std::string> gather(const std::string &own,
                                  double seconds) override {
    std::vector<std::string> all;
    Patience patience;
    if (std::isfinite(seconds))
      patience.end = Clock::now() + toDuration(seconds);
    if (gatherBytes(meeting, own, patience, all))
      all.clear();
    return all;
  }

private:
  enum Tag { IsHere, IsAtWork, HasFailed };
  /// The longest message; a longer text is cut.
  static constexpr size_t kMaxBytes = 60'000;
  struct Step {
    std::vector<double> own, all;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  struct Sent {
    std::string bytes;
    std::vector<MPI_Request> requests;
  };

  void sendToAll(Tag tag, std::string bytes);
  void hear();
  bool hearStep();
  bool hearMessage();

  /// Apart, for a failed run may leave an allgather of results unfinished.
  const MPI_Comm results, control, meeting;
  int size = 0, number = 0;
  Listener listener;
  size_t numValues = 0;
  std::deque<Step> steps; ///< posted, not heard of; under the lock of MPI
  std::list<Sent> sent;   ///< likewise, not yet gone
  std::vector<Clock::time_point> lastHeard; ///< of each process; likewise
  std::vector<char> buffer;
  MPI_Request incoming = MPI_REQUEST_NULL;
  Clock::duration beat{};
  std::atomic<bool> faultKnown = false; ///< then not all steps will end
  std::atomic<bool> stopping = false, stoppingAtOnce = false;
  std::thread thread;
};

Error MpiPeers::listen(Listener who, size_t values, double seconds) {
  listener = std::move(who);
  numValues = values;
  beat = toDuration(seconds);
  buffer.resize(kMaxBytes);
  {
    std::lock_guard lock(mpiMutex());
    lastHeard.assign(size, Clock::now());
    if (Error error = mpiError(
            MPI_Irecv(buffer.data(), static_cast<int>(buffer.size()), MPI_BYTE,
                      MPI_ANY_SOURCE, MPI_ANY_TAG, control, &incoming)))
      return error;
  }
  try {
    thread = std::thread([this] { hear(); });
  } catch (const std::system_error &error) {
    return {ErrorKind::DeviceError,
            std::string("cannot start the thread that hears the other "
                        "processes: ") +
                error.what()};
  }
  return {};
}

void MpiPeers::post(std::span<const double> values) {
  std::lock_guard lock(mpiMutex());
  Step &step = steps.emplace_back();
  step.own.assign(values.begin(), values.end());
  step.all.resize(numValues * size);
  MPI_Iallgather(step.own.data(), static_cast<int>(numValues), MPI_DOUBLE,
                 step.all.data(), static_cast<int>(numValues), MPI_DOUBLE,
                 results, &step.request);
}

void MpiPeers::sendToAll(Tag tag, std::string bytes) {
  std::lock_guard lock(mpiMutex());
  Sent &message = sent.emplace_back();
  message.bytes = std::move(bytes);
  for (int p = 0; p < size; ++p)
    if (p != number)
      MPI_Isend(message.bytes.data(), static_cast<int>(message.bytes.size()),
                MPI_BYTE, p, tag, control,
                &message.requests.emplace_back(MPI_REQUEST_NULL));
}

void MpiPeers::tell(const Error &error) {
  faultKnown = true;
  sendToAll(HasFailed, pack(error).substr(0, kMaxBytes));
}

std::vector<int32_t> MpiPeers::silentRanks(double seconds) {
  std::vector<int32_t> silent;
  std::lock_guard lock(mpiMutex());
  for (int p = 0; p < size; ++p)
    if (p != number && Clock::now() - lastHeard[p] > toDuration(seconds))
      silent.push_back(p);
  return silent;
}

/// Whether the oldest step has been heard of from all.
bool MpiPeers::hearStep() {
  Step step;
  {
    std::lock_guard lock(mpiMutex());
    int done = 0;
    if (steps.empty() ||
        MPI_Test(&steps.front().request, &done, MPI_STATUS_IGNORE) !=
            MPI_SUCCESS ||
        !done)
      return false;
    step = std::move(steps.front());
    steps.pop_front();
  }
  listener.onStep(step.all);
  return true;
}

bool MpiPeers::hearMessage() {
  Error error;
  int tag = IsHere;
  {
    std::lock_guard lock(mpiMutex());
    int done = 0;
    MPI_Status status;
    if (MPI_Test(&incoming, &done, &status) != MPI_SUCCESS || !done)
      return false;
    lastHeard[status.MPI_SOURCE] = Clock::now();
    tag = status.MPI_TAG;
    if (tag == HasFailed) {
      int length = 0;
      MPI_Get_count(&status, MPI_BYTE, &length);
      error = unpackError({buffer.data(), static_cast<size_t>(length)});
      faultKnown = true;
    }
    MPI_Irecv(buffer.data(), static_cast<int>(buffer.size()), MPI_BYTE,
              MPI_ANY_SOURCE, MPI_ANY_TAG, control, &incoming);
  }
  if (tag == IsAtWork)
    listener.onWork();
  else if (tag == HasFailed)
    listener.onError(std::move(error));
  return true;
}

void MpiPeers::hear() {
  auto lastBeat = Clock::now();
  unsigned round = 0;
  while (true) {
    const bool ends = stopping;
    bool heard = hearMessage();
    heard |= hearStep();
    if (stoppingAtOnce)
      return;
    const auto now = Clock::now();
    {
      std::lock_guard lock(mpiMutex());
      if (ends && (steps.empty() || faultKnown))
        return;
      for (auto message = sent.begin(); message != sent.end();) {
        int done = 0;
        MPI_Testall(static_cast<int>(message->requests.size()),
                    message->requests.data(), &done, MPI_STATUSES_IGNORE);
        message = done ? sent.erase(message) : std::next(message);
      }
    }
    if (now - lastBeat >= beat) {
      lastBeat = now;
      sendToAll(listener.isAtWork() ? IsAtWork : IsHere, std::string());
    }
    // Nothing here is urgent: the ranks need the core more.
    round = heard ? 0 : round + 20;
    backOff(round);
  }
}

void MpiPeers::stop(bool atOnce) {
  if (atOnce)
    stoppingAtOnce = true;
  stopping = true;
  if (thread.joinable())
    thread.join();
  std::lock_guard lock(mpiMutex());
  if (incoming != MPI_REQUEST_NULL) {
    MPI_Cancel(&incoming);
    MPI_Request_free(&incoming);
  }
}

//===----------------------------------------------------------------------===//
// Back end and job
//===----------------------------------------------------------------------===//

class MpiBackend final : public Backend {
public:
  MpiBackend(int32_t rank, MPI_Comm base, MPI_Comm results, MPI_Comm control,
             MPI_Comm meeting)
      : rank(rank), base(base), others(results, control, meeting) {}

  Result<std::unique_ptr<Device>> makeDevice(int32_t) override {
    return std::unique_ptr<Device>(std::make_unique<HostDevice>());
  }
  Result<std::unique_ptr<Transport>> makeTransport(int32_t) override {
    return std::unique_ptr<Transport>(
        std::make_unique<MpiTransport>(base, rank));
  }
  std::vector<int32_t> localRanks() const override { return {rank}; }
  Peers *peers() override { return &others; }

private:
  const int32_t rank;
  const MPI_Comm base;
  MpiPeers others;
};

class MpiProcesses final : public MpiJob {
public:
  MpiProcesses() {
    // It is asked for errors without a communicator too.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_size(MPI_COMM_WORLD, &numProcesses);
    MPI_Comm_rank(MPI_COMM_WORLD, &own);
  }
  ~MpiProcesses() override { MPI_Finalize(); }
  int32_t size() const override { return numProcesses; }
  int32_t number() const override { return own; }
  std::vector<std::string> gather(const std::string &text) override {
    std::vector<std::string> all;
    (void)gatherBytes(MPI_COMM_WORLD, text, {}, all);
    return all;
  }
  void linger(std::chrono::seconds time, std::stop_token stop) override {
    // Looking for messages also moves those on that go out.
    for (const auto end = Clock::now() + time;
         Clock::now() < end && !stop.stop_requested();) {
      {
        std::lock_guard lock(mpiMutex());
        int found = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &found,
                   MPI_STATUS_IGNORE);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  void abort(int code) override {
    std::lock_guard lock(mpiMutex());
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }

private:
  int numProcesses = 0, own = 0;
};

} // namespace

Result<std::unique_ptr<MpiJob>> startMpi() {
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) !=
          MPI_SUCCESS ||
      provided < MPI_THREAD_SERIALIZED)
    return Failure{"this MPI cannot be called from several threads in turns "
                   "(MPI_THREAD_SERIALIZED); use one that can"};
  return std::unique_ptr<MpiJob>(std::make_unique<MpiProcesses>());
}

Result<std::unique_ptr<Backend>> makeMpiBackend(MpiJob &job, int32_t numRanks) {
  // All processes find the same fault, even if they have different programs.
  for (const std::string &text : job.gather(std::to_string(numRanks)))
    if (const int number = std::stoi(text); number != job.size())
      return Failure{"the program has " + counted(number, "rank") +
                     ", but mpirun has started " + std::to_string(job.size()) +
                     (job.size() == 1 ? " process" : " processes") +
                     "; start it with mpirun -n " + std::to_string(number)};
  MPI_Comm base, results, control, meeting;
  for (MPI_Comm *comm : {&base, &results, &control, &meeting})
    if (Error error = copyComm(MPI_COMM_WORLD, {}, *comm))
      return Failure{error.message};
  return std::unique_ptr<Backend>(std::make_unique<MpiBackend>(
      job.number(), base, results, control, meeting));
}

} // namespace penstock::runtime
