//===- Backend.h - The devices and transports of a run ----------*- C++ -*-===//
//
// A back end makes the device and the transport of each rank that this process
// runs. `host` runs all ranks in one process: a queue is a thread, transfers
// are copies between the ranks' arenas under strict rendezvous.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_BACKEND_H
#define PENSTOCK_RUNTIME_BACKEND_H

#include "penstock/Runtime/Device.h"
#include "penstock/Runtime/Transport.h"

#include <memory>

namespace penstock::runtime {

class Backend {
public:
  virtual ~Backend() = default;
  virtual Result<std::unique_ptr<Device>> makeDevice(int32_t rank) = 0;
  virtual Result<std::unique_ptr<Transport>> makeTransport(int32_t rank) = 0;
};

/// Devices `host` and transports `loopback` for ranks 0 .. numRanks - 1 of this
/// process. Serves one run.
std::unique_ptr<Backend> makeHostBackend(int32_t numRanks);

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_BACKEND_H
