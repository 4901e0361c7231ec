//===- MpiTransport.h - Transfers over MPI ----------------------*- C++ -*-===//
//
// The transport `mpi`. A send is synchronous and so ends only when its receive
// is there, as in `loopback`: nothing relies on buffering. In front of each
// message goes its instruction, so that the receiver notices what does not
// belong together.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_MPI_MPITRANSPORT_H
#define PENSTOCK_RUNTIME_MPI_MPITRANSPORT_H

#include "../Processes/ExchangeTransport.h"
#include "World.h"

namespace penstock::runtime {

class MpiTransport final : public ExchangeTransport {
public:
  /// A communicator of the program gets a copy of MPI_COMM_WORLD when the ranks
  /// connect.
  MpiTransport(int32_t rank, Meetings &meetings)
      : ExchangeTransport(rank, meetings) {}

private:
  Error join(std::span<const uint16_t> comms, uint32_t numChannels) override;
  Result<std::unique_ptr<Exchange>>
  makeExchange(uint16_t comm, std::vector<Message> messages) override;
  Status checkBytes(int64_t bytes) const override;

  std::map<uint16_t, MPI_Comm> copies; ///< of the program's communicators
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_MPI_MPITRANSPORT_H
