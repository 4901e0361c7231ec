//===- Launch.h - What the launcher says about a process --------*- C++ -*-===//
//
// The number of this process and of all, and where they meet, from explicit
// options and from the variables of torchrun, Open MPI and Slurm. Sources that
// contradict each other are refused: half of such a job would wait for ever.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_NET_LAUNCH_H
#define PENSTOCK_RUNTIME_NET_LAUNCH_H

#include "Socket.h"
#include "penstock/Runtime/Job.h"

namespace penstock::runtime {

/// The value of an environment variable; null: it is not set. Empty counts as
/// not set.
using Environment = std::function<const char *(const char *name)>;

struct Place {
  int32_t number = 0, size = 1;
  std::optional<int32_t> localNumber;
  std::string source; ///< who says so
  /// Where process 0 listens, or a path; of `file` only the path is set.
  Address address;
  std::string path;
  std::string where; ///< who says where, or the address itself
  std::string runId;
};

/// Fails with what is missing, malformed or contradictory, and a way out.
Result<Place> findPlace(const Rendezvous &rendezvous,
                        const Environment &environment);

/// The first host of a Slurm node list such as `a[01-03,7],b`.
std::string firstHost(std::string_view nodeList);

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_NET_LAUNCH_H
