//===- World.h - MPI for the threads of one process -------------*- C++ -*-===//
//
// One discipline for all that speaks MPI here: every call is made under one
// lock and returns at once, and whoever waits tests its requests in turns with
// the others. So MPI_THREAD_SERIALIZED is enough, a wait ends when the run is
// aborted, and any wait moves all messages on.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_MPI_WORLD_H
#define PENSTOCK_RUNTIME_MPI_WORLD_H

#include "../Core/BackOff.h"
#include "../Processes/Messenger.h"

#include <mpi.h>

#include <mutex>
#include <span>
#include <vector>

namespace penstock::runtime {

/// The lock of all MPI calls of this process.
std::mutex &mpiMutex();

/// What MPI says about an error code, as an error of the run; none for
/// MPI_SUCCESS.
Error mpiError(int code);

/// Waits until all requests have ended; ends with Aborted when the patience
/// does. Without the lock.
Error waitAll(std::span<MPI_Request> requests, const Patience &patience);

/// Makes a communicator with all processes, whose errors return; waits for
/// them. It lives until MPI_Finalize: to free it would be to meet them again,
/// and after a failure they need not come.
Error copyComm(const Patience &patience, MPI_Comm &copy);

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_MPI_WORLD_H
