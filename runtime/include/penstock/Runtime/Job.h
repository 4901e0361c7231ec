//===- Job.h - The processes of one run -------------------------*- C++ -*-===//
//
// How processes that a launcher has started find each other, and what they do
// together before and beside a run: exchange a few bytes, and make the back end
// in which each of them runs one rank. The launcher is mpirun, torchrun, srun
// or a shell; the processes meet through MPI or over sockets.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_JOB_H
#define PENSTOCK_RUNTIME_JOB_H

#include "penstock/Runtime/Backend.h"

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>

namespace penstock::runtime {

/// All processes of a job make the same calls of it, in the same order.
class Job {
public:
  /// Says good-bye to the others.
  virtual ~Job() = default;
  virtual int32_t size() const = 0;
  virtual int32_t number() const = 0; ///< of this process, from 0
  /// The number of this process among those of its machine, from 0: which of
  /// the machine's GPUs is its own.
  virtual int32_t localNumber() const = 0;
  /// How the processes were started and met, in words.
  virtual std::string describe() const = 0;
  /// As Peers::gather, before any run.
  virtual std::vector<std::string>
  gather(const std::string &own,
         double seconds = std::numeric_limits<double>::infinity()) = 0;
  /// As Peers::lostPeer: why gather has returned nothing.
  virtual Error lostPeer() = 0;
  /// Bytes that process `from` has, for all; none as with gather.
  std::optional<std::string> broadcast(const std::string &bytes, int32_t from);

  /// Fails, in all processes alike, when one of them has not as many ranks as
  /// there are processes.
  virtual Status checkRanks(int32_t numRanks) = 0;
  /// For the back end of one run.
  virtual std::unique_ptr<Peers> makePeers() = 0;
  /// Meetings of one run, apart from all others; rank r is process r. Not to be
  /// called when the job has ended.
  virtual ExchangeFn makeExchange() = 0;
  /// Devices `host`, and transfers by what connects the processes: rank r is
  /// process r. Serves one run. Fails when the numbers of ranks and processes
  /// differ.
  virtual Result<std::unique_ptr<Backend>> makeBackend(int32_t numRanks) = 0;

  /// Whether fail() ends all processes.
  virtual bool endsTogether() const = 0;
  /// Comes before this process ends with this exit code because of a fault:
  /// what it has said leaves, and the others end too, if that is possible, or
  /// else hear of the fault. Any thread may call it while others still use the
  /// job.
  virtual void fail(int code, const Error &fault) = 0;
};

/// Devices `cuda` and transports `nccl` of one rank in each process of the job,
/// on the GPU whose number is that of the process on its machine, modulo those
/// that it sees. `options` says the rest. Serves one run, and ends before the
/// job does. Fails in all processes alike, when the numbers of ranks and
/// processes differ or one of them cannot have the back end.
Result<std::unique_ptr<Backend>> makeCudaBackend(Job &job, int32_t numRanks,
                                                 CudaOptions options = {});

/// The processes that mpirun has started. Starts MPI, once in a process and
/// before its threads, and speaks in MPI_COMM_WORLD. `timeout`: seconds for
/// which a process may give no sign of life when the others wait for it and no
/// run watches it; but MPI itself waits for all to start, without a limit.
/// Fails when this build has no MPI.
Result<std::unique_ptr<Job>> makeMpiJob(double timeout = 60);

/// Where and as what a process meets the others over sockets.
struct Rendezvous {
  /// env: where MASTER_ADDR and MASTER_PORT, or Slurm's variables, say;
  /// tcp://HOST:PORT: process 0 listens there; file://PATH: process 0 writes
  /// there where it listens.
  std::string where = "env";
  /// Of this process, and how many there are; else from the environment: RANK
  /// and WORLD_SIZE of torchrun, or the variables of Open MPI or Slurm.
  std::optional<int32_t> number, size;
  /// Processes of other runs are refused; empty: the launcher's.
  std::string runId;
  /// With file://: an address of this machine that the others can reach.
  std::string address = "127.0.0.1";
  /// Seconds until all must have come, and for which a process may give no sign
  /// of life later on, when the others wait for it and no run watches it.
  double timeout = 60;
};

/// Meets the others as `rendezvous` says, and connects each process with each.
/// Fails in time, for each process that is missing with its number.
Result<std::unique_ptr<Job>> makeSocketJob(const Rendezvous &rendezvous);

/// For a process that is about to end while a thread of it may be inside
/// makeSocketJob: removes the file that process 0 has written there. From then
/// on none is written. Any thread may call it.
void leaveMeetings();

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_JOB_H
