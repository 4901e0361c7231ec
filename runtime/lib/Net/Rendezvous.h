//===- Rendezvous.h - How processes find each other -------------*- C++ -*-===//
//
// Process 0 listens at a place that all know. The others come, say who they
// are, and get the addresses of all; then each connects to each. Nothing that a
// stranger sends, and nobody who stays away, can do more than take the time
// that is allowed: messages have fixed sizes, and all waits a deadline.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_NET_RENDEZVOUS_H
#define PENSTOCK_RUNTIME_NET_RENDEZVOUS_H

#include "Launch.h"

#include <vector>

namespace penstock::runtime {

struct Connections {
  std::vector<Socket> sockets; ///< to each process; none to this one
  std::string met;             ///< where, in words
};

/// Connects this process with all others of its job. `address` and `timeout`
/// as in Rendezvous.
Result<Connections> meetOthers(const Place &place, const std::string &address,
                               double timeout);

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_NET_RENDEZVOUS_H
