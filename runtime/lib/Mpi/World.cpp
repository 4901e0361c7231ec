//===- World.cpp - MPI for the threads of one process ---------------------===//

#include "World.h"

namespace penstock::runtime {

std::mutex &mpiMutex() {
  static std::mutex mutex;
  return mutex;
}

Error mpiError(int code) {
  if (code == MPI_SUCCESS)
    return {};
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {ErrorKind::DeviceError, "MPI: " + std::string(text, length)};
}

Error waitAll(std::span<MPI_Request> requests, const Patience &patience) {
  for (unsigned round = 0;; ++round) {
    {
      std::lock_guard lock(mpiMutex());
      int done = 0;
      const int code = MPI_Testall(static_cast<int>(requests.size()),
                                   requests.data(), &done, MPI_STATUSES_IGNORE);
      if (Error error = mpiError(code))
        return error;
      if (done)
        return {};
    }
    if (patience.ended())
      return {ErrorKind::Aborted, "the transport was aborted"};
    backOff(round);
  }
}

Error copyComm(const Patience &patience, MPI_Comm &copy) {
  MPI_Request request = MPI_REQUEST_NULL;
  {
    std::lock_guard lock(mpiMutex());
    if (Error error = mpiError(MPI_Comm_idup(MPI_COMM_WORLD, &copy, &request)))
      return error;
  }
  if (Error error = waitAll({&request, 1}, patience))
    return error;
  std::lock_guard lock(mpiMutex());
  return mpiError(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
}

} // namespace penstock::runtime
