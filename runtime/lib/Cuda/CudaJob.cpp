//===- CudaJob.cpp - One rank on a GPU in each process of a job -----------===//
//
// Also where CUDA is not built in: then all processes say so.
//
//===----------------------------------------------------------------------===//

#include "penstock/Runtime/Job.h"

namespace penstock::runtime {

Result<std::unique_ptr<Backend>> makeCudaBackend(Job &job, int32_t numRanks,
                                                 CudaOptions options) {
  if (Status status = job.checkRanks(numRanks); !status)
    return status.failure();
  options.localRanks = {job.number()};
  options.firstGpu = job.localNumber();
  // Of a process that goes the peers hear first, for they say which it was.
  options.peers = job.makePeers();
  options.exchange = job.makeExchange();
  auto made = makeCudaBackend(numRanks, options);
  const std::vector<std::string> faults =
      job.gather(made ? std::string() : made.message());
  if (faults.empty())
    return Failure{job.lostPeer().message};
  for (size_t p = 0; p < faults.size(); ++p)
    if (!faults[p].empty())
      return Failure{(p > 0 ? "process " + std::to_string(p) + ": " : "") +
                     faults[p]};
  return made;
}

} // namespace penstock::runtime
