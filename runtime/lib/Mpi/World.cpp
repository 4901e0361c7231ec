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

/// The same for one.
static Error wait(MPI_Request &request, const Patience &patience) {
  return waitAll({&request, 1}, patience);
}

Error copyComm(MPI_Comm comm, const Patience &patience, MPI_Comm &copy) {
  MPI_Request request = MPI_REQUEST_NULL;
  {
    std::lock_guard lock(mpiMutex());
    if (Error error = mpiError(MPI_Comm_idup(comm, &copy, &request)))
      return error;
  }
  if (Error error = wait(request, patience))
    return error;
  std::lock_guard lock(mpiMutex());
  return mpiError(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
}

Error gatherBytes(MPI_Comm comm, const std::string &own,
                  const Patience &patience, std::vector<std::string> &all) {
  MPI_Request request = MPI_REQUEST_NULL;
  int size = 0;
  const int length = static_cast<int>(own.size());
  std::vector<int> lengths;
  {
    std::lock_guard lock(mpiMutex());
    MPI_Comm_size(comm, &size);
    lengths.resize(size);
    if (Error error = mpiError(MPI_Iallgather(
            &length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm, &request)))
      return error;
  }
  if (Error error = wait(request, patience))
    return error;
  std::vector<int> begins(size, 0);
  for (int p = 1; p < size; ++p)
    begins[p] = begins[p - 1] + lengths[p - 1];
  std::string bytes(size ? begins.back() + lengths.back() : 0, '\0');
  {
    std::lock_guard lock(mpiMutex());
    if (Error error = mpiError(MPI_Iallgatherv(
            own.data(), length, MPI_BYTE, bytes.data(), lengths.data(),
            begins.data(), MPI_BYTE, comm, &request)))
      return error;
  }
  if (Error error = wait(request, patience))
    return error;
  all.clear();
  for (int p = 0; p < size; ++p)
    all.push_back(bytes.substr(begins[p], lengths[p]));
  return {};
}

} // namespace penstock::runtime
