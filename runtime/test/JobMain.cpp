//===- JobMain.cpp - The main function of tests in several processes ------===//
//
// All processes run each test alike, each with its rank. For MPI mpirun has
// started them; for sockets the first process starts them itself.
//
//===----------------------------------------------------------------------===//

#include "conformance/TestBackend.h"

#include <gtest/gtest.h>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

using namespace penstock;
using namespace penstock::runtime;

static std::unique_ptr<Job> job;

Job &test::testJob() { return *job; }

std::unique_ptr<Backend> test::makeTestBackend(int32_t numRanks) {
#ifdef PENSTOCK_TEST_CUDA
  auto backend = makeCudaBackend(*job, numRanks);
#else
  auto backend = job->makeBackend(numRanks);
#endif
  if (!backend) {
    std::cerr << backend.message() << "\n";
    std::_Exit(1);
  }
  return std::move(*backend);
}

#ifndef PENSTOCK_TEST_MPI
/// Starts this program once for each process, none of which outlives this one;
/// returns an exit code.
static int startAll(char **argv) {
  const pid_t parent = getpid();
  const std::string place =
      "file://" + testing::TempDir() + "penstock-job-" + std::to_string(parent);
  setenv("PENSTOCK_TEST_PLACE", place.c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(PENSTOCK_TEST_PROCESSES).c_str(), 1);
  for (int p = 0; p < PENSTOCK_TEST_PROCESSES; ++p) {
    if (fork() != 0)
      continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
      _exit(1);
    setenv("RANK", std::to_string(p).c_str(), 1);
#ifdef PENSTOCK_TEST_CUDA
    // All may have one GPU, if NCCL takes them for several machines.
    setenv("NCCL_HOSTID", ("process" + std::to_string(p)).c_str(), 1);
    for (const auto &[name, value] : {std::pair("NCCL_SOCKET_IFNAME", "lo"),
                                      {"NCCL_NET", "Socket"},
                                      {"NCCL_P2P_DISABLE", "1"},
                                      {"NCCL_SHM_DISABLE", "1"},
                                      {"NCCL_MAX_CTAS", "2"},
                                      {"NCCL_RAS_ENABLE", "0"}})
      setenv(name, value, 0);
#endif
    execv("/proc/self/exe", argv);
    _exit(1);
  }
  int code = 0, status = 0;
  while (wait(&status) > 0)
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
      code = std::max(code, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  return code;
}

static Result<std::unique_ptr<Job>> meet() {
  Rendezvous rendezvous;
  rendezvous.where = std::getenv("PENSTOCK_TEST_PLACE");
  return makeSocketJob(rendezvous);
}
#endif

int main(int argc, char **argv) {
#ifdef PENSTOCK_TEST_MPI
  const auto meet = [] { return makeMpiJob(); };
#else
  if (!std::getenv("PENSTOCK_TEST_PLACE"))
    return startAll(argv);
#endif
#ifdef PENSTOCK_TEST_GPU
  int numGpus = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&numGpus);
      code != cudaSuccess || numGpus == 0) {
    std::cerr << "no GPU (" << cudaGetErrorString(code) << "): skipped\n";
    return 77;
  }
#endif
  testing::InitGoogleTest(&argc, argv);
  auto started = meet();
  if (!started || (*started)->size() != PENSTOCK_TEST_PROCESSES) {
    std::cerr << (started ? "" : started.message() + "\n")
              << "these tests run as " << PENSTOCK_TEST_PROCESSES
              << " processes\n";
    return 1;
  }
  job = std::move(*started);
  const int code = RUN_ALL_TESTS();
  job.reset();
  return code;
}
