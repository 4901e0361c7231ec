//===- NcclCases.cpp - What NCCL does, case by case -----------------------===//
//
//   NcclCases CASE...
//
// Runs small programs of NCCL as one process a rank, all of them on one GPU,
// and prints what has become of each: one line, `CASE: what happened`. They
// settle what is only known from NCCL's source (nccl.md, 13), so that no
// outcome is a fault, but for a wrong value or a process that does not end.
//
//   eager   the sizes at which a send ends before its receive is there
//   C01     both ranks send first, connected before; short and long messages
//   C03     the same as the first use of the pair
//   C23     a group whose second message to a peer waits for another peer
//   C24     one rank groups its two transfers and the other does not, in a
//           communicator of 9: NCCL's planner puts the two in different batches
//   kill    how soon a rank hears of a peer that was killed
//   graph   a group, captured and replayed
//
//===----------------------------------------------------------------------===//

#include <cuda_runtime.h>
#include <nccl.h>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

namespace {

constexpr int kMaxRanks = 16;
/// A transfer that has not ended after so long hangs.
constexpr auto kPatience = 3s;
/// What a case may take.
constexpr auto kLimit = 40s;

/// In memory that all processes share.
struct Shared {
  std::atomic<int> hasId, arrived;
  ncclUniqueId id;
  char text[kMaxRanks][200]; ///< what each rank has to say
};

/// Ends the process with what went wrong.
[[noreturn]] void fail(Shared &shared, int rank, const std::string &what) {
  std::snprintf(shared.text[rank], sizeof(shared.text[rank]), "%s",
                what.c_str());
  std::_Exit(0);
}

struct Member {
  bool sends;
  int peer;
  int slot; ///< of the memory
};
/// What a rank issues: groups, one after the other.
using Items = std::vector<std::vector<Member>>;

/// One rank, in a process of its own.
class Rank {
public:
  Rank(Shared &shared, int rank, int size, size_t bytes)
      : shared(shared), rank(rank), size(size), bytes(bytes) {
    check("cudaSetDevice", cudaSetDevice(0));
    check("cudaStreamCreateWithFlags",
          cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    void *made = nullptr;
    check("cudaMalloc", cudaMalloc(&made, kSlots * bytes));
    memory = static_cast<char *>(made);
    check("cudaMemset", cudaMemset(memory, 0, kSlots * bytes));
    check("cudaDeviceSynchronize", cudaDeviceSynchronize());
    if (rank == 0) {
      check("ncclGetUniqueId", ncclGetUniqueId(&shared.id));
      shared.hasId = 1;
    }
    while (!shared.hasId)
      std::this_thread::sleep_for(1ms);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    settle("ncclCommInitRankConfig",
           ncclCommInitRankConfig(&comm, size, shared.id, rank, &config));
  }

  /// All ranks meet, outside of NCCL.
  void meet() {
    const int round = shared.arrived.fetch_add(1) / size;
    while (shared.arrived < (round + 1) * size)
      std::this_thread::sleep_for(200us);
  }

  /// Exchanges a byte with each of these, on both sides alike.
  void connect(const std::vector<int> &peers) {
    std::vector<Member> members;
    for (int peer : peers)
      for (bool sends : {true, false})
        members.push_back({sends, peer, sends ? 0 : 1});
    if (!members.empty() && (!issue(members, 1) || !ends(30s)))
      fail(shared, rank, "the ranks could not be connected");
    meet();
  }

  /// Issues a group. False: NCCL holds the host for too long.
  bool issue(const std::vector<Member> &members, size_t count) {
    check("ncclGroupStart", ncclGroupStart());
    for (const Member &m : members) {
      char *const data = memory + m.slot * bytes;
      const ncclResult_t code =
          m.sends ? ncclSend(data, count, ncclInt8, m.peer, comm, stream)
                  : ncclRecv(data, count, ncclInt8, m.peer, comm, stream);
      if (code != ncclInProgress)
        check(m.sends ? "ncclSend" : "ncclRecv", code);
    }
    const ncclResult_t code = ncclGroupEnd();
    return settle("ncclGroupEnd", code, kPatience);
  }

  /// Whether what is on the stream ends within the time.
  bool ends(Clock::duration time) {
    const auto end = Clock::now() + time;
    while (true) {
      const cudaError_t code = cudaStreamQuery(stream);
      if (code == cudaSuccess)
        return true;
      if (code != cudaErrorNotReady)
        check("cudaStreamQuery", code);
      if (const ncclResult_t error = asyncError();
          error != ncclSuccess && error != ncclInProgress)
        check("a transfer", error);
      if (Clock::now() >= end)
        return false;
      std::this_thread::sleep_for(100us);
    }
  }

  ncclResult_t asyncError() {
    ncclResult_t state = ncclSuccess;
    check("ncclCommGetAsyncError", ncclCommGetAsyncError(comm, &state));
    return state;
  }

  /// What becomes of a program.
  std::string run(const Items &items) {
    for (const auto &item : items)
      if (!issue(item, bytes))
        return "the host is held";
    return ends(kPatience) ? "ends" : "hangs";
  }

  void set(int slot, char value) {
    check("cudaMemset", cudaMemset(memory + slot * bytes, value, bytes));
    check("cudaDeviceSynchronize", cudaDeviceSynchronize());
  }
  char get(int slot) {
    char value = 0;
    check("cudaMemcpy",
          cudaMemcpy(&value, memory + slot * bytes, 1, cudaMemcpyDeviceToHost));
    return value;
  }

  /// Says what has happened, when all have something to say, and ends.
  [[noreturn]] void finish(const std::string &text) {
    std::snprintf(shared.text[rank], sizeof(shared.text[rank]), "%s",
                  text.c_str());
    meet();
    ncclCommAbort(comm);
    cudaFree(memory);
    cudaStreamDestroy(stream);
    std::_Exit(0);
  }

  void check(const char *call, cudaError_t code) {
    if (code != cudaSuccess)
      fail(shared, rank, std::string(call) + ": " + cudaGetErrorString(code));
  }
  void check(const char *call, ncclResult_t code) {
    if (code != ncclSuccess)
      fail(shared, rank, std::string(call) + ": " + ncclGetErrorString(code));
  }
  bool settle(const char *call, ncclResult_t code, Clock::duration time = 30s) {
    const auto end = Clock::now() + time;
    for (; code == ncclInProgress; code = asyncError()) {
      if (Clock::now() >= end)
        return false;
      std::this_thread::sleep_for(100us);
    }
    check(call, code);
    for (; (code = asyncError()) == ncclInProgress;)
      if (Clock::now() >= end)
        return false;
    check(call, code);
    return true;
  }

  static constexpr size_t kSlots = 4;
  Shared &shared;
  const int rank, size;
  const size_t bytes;
  cudaStream_t stream = nullptr;
  ncclComm_t comm = nullptr;
  char *memory = nullptr;
};

//===----------------------------------------------------------------------===//
// The cases
//===----------------------------------------------------------------------===//

std::string inWords(size_t bytes) {
  return bytes >= 1 << 20   ? std::to_string(bytes >> 20) + " MiB"
         : bytes >= 1 << 10 ? std::to_string(bytes >> 10) + " KiB"
                            : std::to_string(bytes) + " bytes";
}

/// Runs one process for each rank; prints what they say. False: it did not end.
bool runCase(const std::string &name, int size, size_t bytes,
             const std::function<void(Rank &)> &body) {
  void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return false;
  auto &shared = *new (memory) Shared();
  const pid_t parent = getpid();
  std::vector<pid_t> processes;
  std::fflush(stdout);
  for (int r = 0; r < size; ++r) {
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent)
        _exit(1);
      setenv("NCCL_HOSTID", ("process" + std::to_string(r)).c_str(), 1);
      Rank rank(shared, r, size, bytes);
      body(rank);
      rank.finish("");
    }
    processes.push_back(pid);
  }
  const auto end = Clock::now() + kLimit;
  size_t left = processes.size();
  while (left > 0 && Clock::now() < end) {
    for (pid_t &pid : processes)
      if (pid != 0 && waitpid(pid, nullptr, WNOHANG) == pid) {
        pid = 0;
        --left;
      }
    std::this_thread::sleep_for(2ms);
    // One that has failed holds the others up where they meet.
    bool failed = false;
    for (int r = 0; r < size; ++r)
      failed |= processes[r] == 0 && std::strlen(shared.text[r]) > 0;
    if (failed && left > 0) {
      std::this_thread::sleep_for(500ms);
      break;
    }
  }
  std::string text;
  for (int r = 0; r < size; ++r) {
    if (processes[r] != 0) {
      kill(processes[r], SIGKILL);
      waitpid(processes[r], nullptr, 0);
    }
    if (std::strlen(shared.text[r]) > 0)
      text += (text.empty() ? "" : "; ") + ("rank " + std::to_string(r)) + " " +
              shared.text[r];
  }
  const bool ended = left == 0 || !text.empty();
  std::printf("%s: %s\n", name.c_str(), ended ? text.c_str() : "does not end");
  std::fflush(stdout);
  munmap(memory, sizeof(Shared));
  return ended;
}

bool runEager() {
  bool all = true;
  for (size_t bytes = 4096; bytes <= size_t(8) << 20; bytes *= 2)
    all &= runCase("eager " + inWords(bytes), 2, bytes, [](Rank &rank) {
      rank.connect({1 - rank.rank});
      rank.set(2, 7);
      std::string text;
      if (rank.rank == 0) {
        rank.issue({{true, 1, 2}}, rank.bytes);
        text = rank.ends(500ms) ? "does not wait for the receive"
                                : "waits for the receive";
      }
      rank.meet();
      if (rank.rank == 1)
        rank.issue({{false, 0, 3}}, rank.bytes);
      if (!rank.ends(10s))
        text = "hangs";
      else if (rank.rank == 1 && rank.get(3) != 7)
        text = "has received something else";
      rank.finish(text);
    });
  return all;
}

bool runCrossed(bool connected) {
  bool all = true;
  for (size_t bytes : {size_t(8), size_t(32) << 20})
    all &= runCase(
        (connected ? "C01 " : "C03 ") + inWords(bytes), 2, bytes,
        [=](Rank &rank) {
          const int other = 1 - rank.rank;
          if (connected)
            rank.connect({other});
          rank.finish(rank.run({{{true, other, 2}}, {{false, other, 3}}}));
        });
  return all;
}

bool runC23() {
  return runCase("C23", 3, 1 << 20, [](Rank &rank) {
    rank.connect(rank.rank == 0   ? std::vector<int>{1, 2}
                 : rank.rank == 1 ? std::vector<int>{0, 2}
                                  : std::vector<int>{0, 1});
    static const Items programs[] = {
        {{{true, 1, 0}, {true, 1, 1}, {false, 2, 2}}},
        {{{false, 0, 0}, {false, 0, 1}}, {{true, 2, 2}}},
        {{{false, 1, 0}}, {{true, 0, 1}}}};
    rank.finish(rank.run(programs[rank.rank]));
  });
}

bool runC24() {
  // Long, for else NCCL may send without waiting.
  return runCase("C24", 9, size_t(16) << 20, [](Rank &rank) {
    rank.connect(rank.rank < 2 ? std::vector<int>{1 - rank.rank}
                               : std::vector<int>());
    if (rank.rank == 0)
      rank.finish(rank.run({{{true, 1, 0}, {false, 1, 1}}}));
    if (rank.rank == 1)
      rank.finish(rank.run({{{true, 0, 0}}, {{false, 0, 1}}}));
    rank.finish("");
  });
}

bool runKill() {
  return runCase("kill", 2, 1 << 20, [](Rank &rank) {
    rank.connect({1 - rank.rank});
    if (rank.rank == 1) {
      std::this_thread::sleep_for(300ms);
      raise(SIGKILL);
    }
    rank.issue({{false, 1, 2}}, rank.bytes);
    const auto begin = Clock::now();
    ncclResult_t error = ncclSuccess;
    while (
        Clock::now() - begin < 10s &&
        ((error = rank.asyncError()) == ncclSuccess || error == ncclInProgress))
      std::this_thread::sleep_for(1ms);
    char text[160];
    if (error == ncclSuccess || error == ncclInProgress)
      std::snprintf(text, sizeof(text), "hears nothing within 10 s");
    else
      std::snprintf(
          text, sizeof(text), "hears '%s' after %.3f s",
          ncclGetErrorString(error),
          std::chrono::duration<double>(Clock::now() - begin - 300ms).count());
    const auto abort = Clock::now();
    ncclCommAbort(rank.comm);
    const bool idle = rank.stream && [&] {
      while (cudaStreamQuery(rank.stream) == cudaErrorNotReady)
        if (Clock::now() - abort > 10s)
          return false;
      return true;
    }();
    fail(rank.shared, rank.rank,
         std::string(text) +
             (idle ? ", and the abort ends the receive" : ", and hangs"));
  });
}

bool runGraph() {
  return runCase("graph", 2, 1 << 20, [](Rank &rank) {
    const int other = 1 - rank.rank;
    rank.connect({other});
    rank.set(2, static_cast<char>(10 + rank.rank));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    rank.check(
        "cudaStreamBeginCapture",
        cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal));
    const bool issued =
        rank.issue({{true, other, 2}, {false, other, 3}}, rank.bytes);
    rank.check("cudaStreamEndCapture",
               cudaStreamEndCapture(rank.stream, &graph));
    if (!issued)
      rank.finish("the host is held");
    rank.check("cudaGraphInstantiate", cudaGraphInstantiate(&ready, graph, 0));
    rank.meet();
    const auto begin = Clock::now();
    constexpr int kRounds = 100;
    for (int round = 0; round < kRounds; ++round)
      rank.check("cudaGraphLaunch", cudaGraphLaunch(ready, rank.stream));
    const bool ended = rank.ends(30s);
    char text[100];
    std::snprintf(
        text, sizeof(text), "replays it in %.3f ms a time",
        std::chrono::duration<double, std::milli>(Clock::now() - begin)
                .count() /
            kRounds);
    const bool right = ended && rank.get(3) == 10 + other;
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    rank.finish(!ended  ? "hangs"
                : right ? text
                        : "has received something else");
  });
}

} // namespace

int main(int argc, char **argv) {
  // nccl.md, 9.2.
  for (const auto &[name, value] : {std::pair("NCCL_SOCKET_IFNAME", "lo"),
                                    {"NCCL_NET", "Socket"},
                                    {"NCCL_IB_DISABLE", "1"},
                                    {"NCCL_MNNVL_ENABLE", "0"},
                                    {"NCCL_NVLS_ENABLE", "0"},
                                    {"NCCL_P2P_DISABLE", "1"},
                                    {"NCCL_SHM_DISABLE", "1"},
                                    {"NCCL_MAX_CTAS", "2"},
                                    {"NCCL_RAS_ENABLE", "0"},
                                    {"CUDA_MODULE_LOADING", "EAGER"}})
    setenv(name, value, 0);
  // A process that has used CUDA cannot be copied.
  if (const pid_t pid = fork(); pid == 0) {
    int count = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess || count == 0)
      std::fprintf(stderr, "no GPU (%s): skipped\n", cudaGetErrorString(code));
    std::_Exit(code == cudaSuccess && count > 0 ? 0 : 77);
  } else if (int status = 0; waitpid(pid, &status, 0) != pid ||
                             !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return 77;
  }
  bool all = argc > 1;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "eager")
      all &= runEager();
    else if (name == "C01" || name == "C03")
      all &= runCrossed(name == "C01");
    else if (name == "C23")
      all &= runC23();
    else if (name == "C24")
      all &= runC24();
    else if (name == "kill")
      all &= runKill();
    else if (name == "graph")
      all &= runGraph();
    else
      all = false;
  }
  if (argc < 2)
    std::fprintf(stderr,
                 "usage: NcclCases eager|C01|C03|C23|C24|kill|graph ...\n");
  return all ? 0 : 1;
}
