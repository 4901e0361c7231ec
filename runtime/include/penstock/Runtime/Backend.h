//===- Backend.h - The devices and transports of a run ----------*- C++ -*-===//
//
// A back end makes the device and the transport of each rank that this process
// runs. `host` runs all ranks in one process: a queue is a thread, transfers
// are copies between the ranks' arenas under strict rendezvous. Those of a Job
// run one rank in each of several processes. `cuda` runs ranks on GPUs: a queue
// is a stream, transfers are NCCL's.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_BACKEND_H
#define PENSTOCK_RUNTIME_BACKEND_H

#include "penstock/Runtime/Device.h"
#include "penstock/Runtime/Transport.h"

#include <functional>
#include <limits>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

namespace penstock::runtime {

/// What the processes of one run tell each other beside its transfers: results,
/// faults, and that they are alive.
class Peers {
public:
  /// Whom to tell, from a thread of the peers.
  struct Listener {
    /// What each rank has posted for the next step, in the order of the ranks.
    /// All processes hear of the same steps in the same order.
    std::function<void(std::span<const double>)> onStep;
    /// A fault of another process.
    std::function<void(Error)> onError;
    /// Another process is at work.
    std::function<void()> onWork;
    /// Whether this process has been at work since the last question.
    std::function<bool()> isAtWork;
    /// The last thing that the rank of this process has ended, in words; empty:
    /// nothing yet. The others say it should this process be lost.
    std::function<std::string()> lastEnded;
    /// Where the rank of this process is, for askStates of another one.
    std::function<std::string()> state;
  };

  virtual ~Peers() = default;

  /// Begins a run in which each rank posts `numValues` values a step, and tells
  /// the others every `beat` seconds that this process lives, and whether it is
  /// at work.
  virtual Error listen(Listener listener, size_t numValues, double beat) = 0;
  /// What the rank of this process says about its next step.
  virtual void post(std::span<const double> values) = 0;
  /// Tells all other processes, without waiting for them.
  virtual void tell(const Error &error) = 0;
  /// The ranks of which nothing has been heard for so many seconds of the run.
  virtual std::vector<int32_t> silentRanks(double seconds) = 0;
  /// Listener::state of all other processes, by number; empty for this one and
  /// for those that do not answer within so many seconds.
  virtual std::vector<std::string> askStates(double seconds) = 0;
  /// After a fault, in all processes alike and before stop: tells the others
  /// Listener::state, and returns theirs as askStates does.
  virtual std::vector<std::string> shareStates(double seconds) = 0;
  /// Ends the run for the listener: when all has been heard of what was posted,
  /// or at once.
  virtual void stop(bool atOnce) = 0;

  /// The process that has gone although the run needs it; none: all are there.
  virtual Error lostPeer() = 0;

  /// Meets all processes; returns what each one has brought, by number, or
  /// nothing when they have not all come within so many seconds or one of them
  /// has gone. Not between listen and stop.
  virtual std::vector<std::string>
  gather(const std::string &own,
         double seconds = std::numeric_limits<double>::infinity()) = 0;
};

class Backend {
public:
  virtual ~Backend() = default;
  /// The calling thread is about to make the model of the rank, which may want
  /// memory of the rank's GPU: makes that the current one.
  virtual Status select(int32_t rank) {
    (void)rank;
    return success();
  }
  virtual Result<std::unique_ptr<Device>> makeDevice(int32_t rank) = 0;
  virtual Result<std::unique_ptr<Transport>> makeTransport(int32_t rank) = 0;
  /// The ranks of this process, ascending.
  virtual std::vector<int32_t> localRanks() const = 0;
  /// The other processes; null: all ranks are in this one.
  virtual Peers *peers() { return nullptr; }
};

/// Devices `host` and transports `loopback` for ranks 0 .. numRanks - 1 of this
/// process. Serves one run.
std::unique_ptr<Backend> makeHostBackend(int32_t numRanks);

/// All ranks meet: returns what each one has brought, by rank. Called alike by
/// all of them, at start-up and now and then; fails when `stop` is requested
/// before all have come.
using ExchangeFn = std::function<Result<std::vector<std::string>>(
    int32_t rank, const std::string &own, std::stop_token stop)>;

/// How the back end `cuda` runs. For one rank in each process of a job see
/// Job.h.
struct CudaOptions {
  /// The ranks of this process, ascending; the i-th is on GPU `firstGpu` + i of
  /// those that the process sees, modulo their number. Empty: all ranks.
  std::vector<int32_t> localRanks;
  int32_t firstGpu = 0;
  /// How ranks find each other; none: they are all in this process.
  ExchangeFn exchange;
  std::shared_ptr<Peers> peers; ///< the other processes, if there are any
  /// Seconds that NCCL may take to connect the ranks, or to part.
  double connectTimeout = 120;
  /// Arenas are memory of NCCL and are registered with it, so that transfers
  /// need no copy. A send is then a rendezvous even where it would not be.
  bool ncclMemory = false;
};

/// Devices `cuda` and transports `nccl`. Serves one run. Fails when this build
/// has no CUDA, or this machine no GPU.
Result<std::unique_ptr<Backend>>
makeCudaBackend(int32_t numRanks, const CudaOptions &options = {});

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_BACKEND_H
