//===- StandIn.h - CUDA runtime and NCCL on the CPU, for tests --*- C++ -*-===//
//
// The library PenstockStandIn implements the functions of cuda_runtime.h and
// nccl.h without a GPU. Code compiled against these headers is linked with it
// instead of libcudart and libnccl; objects that nvcc made work as well. It
// models when things happen and who waits for whom, under rules that a test
// chooses, and it looks for what code on a GPU gets away with for a while:
// programs that need luck to end, memory that is used too late, calls whose
// errors nobody looks at. README.md lists what is modelled and what is not.
//
// This header is for tests only: the options, reports, kernels and faults.
//
//   standin::Options options;
//   options.groups = standin::Groups::Closure;
//   standin::reset(options);
//   standin::runThreads(2, [&](int rank) { ... code that uses CUDA ... });
//   EXPECT_FALSE(standin::isDeadlocked()) << standin::report();
//   EXPECT_EQ(standin::findings(), "");
//
// Everything is simulated centrally, under one lock; kernels, host functions
// and copies run outside it, on threads of the stand-in's own.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_TEST_STANDIN_STANDIN_H
#define PENSTOCK_RUNTIME_TEST_STANDIN_STANDIN_H

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace penstock::standin {

/// Which streams of a device run side by side.
enum class Queues : uint8_t {
  Independent, ///< `indep`: all of them
  Shared       ///< `maxconn=k`: the i-th stream of a device uses the hardware
               ///< queue i modulo k, and what is in a hardware queue runs
               ///< strictly one after the other. k = 1 is `inorder`
};

/// How a group of sends and receives progresses (nccl.md 1.4 and 2).
enum class Groups : uint8_t {
  Documented, ///< members progress independently, first to first per peer
  Layered,    ///< the k-th transfer to a peer starts when the layers before it
              ///< have ended
  Closure,    ///< a group runs together with all groups that it matches
  Plan        ///< a reconstruction of the planner of NCCL 2.28: batches of at
              ///< most 8 rounds, one after the other, as if every message used
              ///< every channel of NCCL's
};

/// What happens when everybody waits.
enum class OnDeadlock : uint8_t {
  Fail, ///< what waits ends with an error: cudaErrorUnknown on the devices,
        ///< ncclInternalError on the communicators
  Hang  ///< it is reported, and goes on waiting until somebody aborts
};

struct Options {
  int devices = 8;
  size_t deviceBytes = size_t(4) << 30; ///< memory of a device

  Queues queues = Queues::Independent;
  unsigned connections = 1; ///< hardware queues of a device, if Shared
  /// `launchq=n`: a host that launches onto a device blocks while n launches
  /// are pending there; 0: no bound.
  unsigned launchQueue = 0;
  /// Host functions of one device run one at a time, as CUDA may do.
  bool serialHostFunctions = false;
  /// cudaMalloc waits for the device to be idle, as CUDA may do. cudaFree
  /// always does.
  bool mallocSynchronizes = false;
  /// Lazy module loading: the first launch of a kernel on a device waits for
  /// the device to be idle, unless cudaFuncGetAttributes has loaded it before.
  bool lazyLoading = false;

  Groups groups = Groups::Documented;
  /// `cap=k`: messages a channel that a send may run ahead; 0: strict
  /// rendezvous. Not under Closure.
  size_t capacity = 0;
  /// Transfers in graphs, and sends from registered buffers, are a rendezvous
  /// whatever the capacity (NCCL_GRAPH_REGISTER).
  bool registeredIsRendezvous = true;
  /// `first-use`: the host blocks in a group until the peers of its new
  /// connections have reached theirs.
  bool firstUse = false;
  /// Two ranks must present the same new connections to each other. True: any
  /// two; false: only where NCCL sends both records as one (nccl.md 1.3).
  bool mirrorAlways = true;
  /// A group with several communicators is a kernel for each, in the order of
  /// their first use in the group, as NCCL launches it: on one stream they run
  /// one after the other. False: they run as one, as the verifier's model has
  /// it.
  bool kernelPerComm = true;
  /// More transfers of one direction to one peer in a group are a finding: NCCL
  /// would split the group (nccl.md 1.4). 0: none.
  unsigned planLimit = 7;
  /// Both ends of a pair must have the same count and type; else it is a
  /// finding, and an error of both communicators. NCCL does not check: false
  /// moves as much as fits.
  bool checkPairs = true;
  /// Buffers must be device memory or registered; else ncclInvalidArgument.
  bool checkPointers = true;
  /// Communicators may have ranks in other processes that run the stand-in.
  /// Then transfers follow Groups::Documented, or Layered or Plan, first use
  /// is not modelled between processes, and no deadlock is found: nobody knows
  /// what the others do.
  bool processes = false;
  /// Several ranks of a communicator on one device. NCCL 2.28 refuses it.
  bool sharedDevices = false;
  /// Aborting a communicator gives its peers ncclRemoteError.
  bool abortIsSeen = false;
  /// Calls on communicators that do not block really are in progress for a
  /// while. False: they end at once, and still say that they are in progress.
  bool slowProgress = true;

  /// Every operation is delayed by up to maxDelay microseconds before it runs,
  /// and so is what communicators that do not block do. How long depends on
  /// the seed, the stream and the number of the operation.
  uint64_t seed = 1;
  unsigned maxDelay = 0;

  OnDeadlock onDeadlock = OnDeadlock::Fail;
  /// Host threads, without the one that calls reset(): a deadlock is sought
  /// once so many have made a call, and when all of them wait, poll or have
  /// ended. 0: when all threads of the process wait (see isDeadlocked()).
  unsigned hostThreads = 0;
  /// A thread that asks so many times for the state of a stream, an event or a
  /// communicator while nothing changes, and does nothing else, waits.
  unsigned pollLimit = 100;
};

/// Starts anew: all handles and memory become invalid, all counters 0. What is
/// still queued does not run. No other thread may be in a call. The kernels
/// stay.
void reset(const Options &options = {});

/// The options of a program that does not know of the stand-in, from text such
/// as "processes,devices=1,capacity=2,hang". Words: processes, shared
/// (devices), hang; numbers: devices, capacity, launchQueue, seed, maxDelay.
/// Where the variable PENSTOCK_STANDIN is set, a process starts with its
/// options, sees the devices in CUDA_VISIBLE_DEVICES, and ends with exit code
/// 70 where it would have ended with 0 and there are findings or leaks.
Options parseOptions(std::string_view text);

/// \name What happened
/// @{

/// True once everybody has waited for somebody else: no operation can run, and
/// every host thread
///   - waits in a call of CUDA or NCCL,
///   - or polls (Options::pollLimit),
///   - or has ended,
///   - or, with hostThreads = 0, sleeps without a time limit elsewhere, as in
///     std::thread::join or std::condition_variable::wait (which /proc tells).
/// With hostThreads = 0 a thread that sleeps for a time, such as a watchdog's,
/// counts as running.
bool isDeadlocked();
/// Who waits for whom, now or, after a deadlock, then: a line for each thread,
/// operation and communicator that waits, and the cycle.
std::string report();
/// What is wrong although it may have worked, a line each: guard zones written,
/// memory used after its release, sizes that do not match, missing kernels,
/// streams used while a communicator is in progress. Empty if nothing is.
/// Looks at all guard zones and at all released memory.
std::string findings();
/// What has not been released, a line each: memory, streams, events, graphs,
/// communicators, registrations.
std::string leaks();
/// @}

/// \name Calls and injected errors
/// For cuBLAS see Cublas.h.
/// @{

/// Calls of a function by name, of all functions without one.
uint64_t numCalls(std::string_view function = {});
/// Functions called so far, "name count" in each line, sorted.
std::string calls();
/// The n-th call of the function from now on, 1 the next, returns this error.
/// It does nothing else, except that functions that release something still
/// release it. An empty name means any function: then the error is
/// `cuda` or `nccl`, whichever fits.
void fail(std::string_view function, uint64_t n, cudaError_t error);
void fail(std::string_view function, uint64_t n, ncclResult_t error);
void failAny(uint64_t n, cudaError_t cuda = cudaErrorUnknown,
             ncclResult_t nccl = ncclSystemError);
/// Whether an injected error was returned.
bool hasFailed();
/// As if the network failed: what `comm` runs never completes, and its
/// asynchronous error is this one.
void breakComm(ncclComm_t comm, ncclResult_t error);
/// As if a kernel failed: every call on the device returns the error from now
/// on, and nothing runs there.
void breakDevice(int device, cudaError_t error);
/// @}

/// A collective that NCCL does not have: these ranks of the communicator, and
/// only these, meet those that give the same tag and ranks as often.
ncclResult_t meet(ncclComm_t comm, std::string tag, std::vector<int> ranks,
                  cudaStream_t stream);

/// \name Threads
/// @{

/// Runs fn(0) .. fn(n - 1) in threads of their own, all known from the start,
/// and waits for them; the caller does not count as running meanwhile.
void runThreads(int n, const std::function<void(int)> &fn);
/// While it lives, the calling thread counts as waiting: it is about to wait
/// for something that only other threads can bring about.
class Idle {
public:
  Idle();
  ~Idle();
  Idle(const Idle &) = delete;
  Idle &operator=(const Idle &) = delete;
};
/// Names the calling thread in reports.
void nameThread(std::string name);
/// @}

/// \name Kernels
/// @{

/// How a kernel was launched.
struct Launch {
  dim3 grid, block;
  size_t sharedBytes = 0;
  cudaStream_t stream = nullptr;
};
/// Calls fn(blockIndex, threadIndex) for every thread, one after the other.
template <typename Fn>
void forEachThread(const Launch &launch, Fn &&fn) {
  for (unsigned bz = 0; bz < launch.grid.z; ++bz)
    for (unsigned by = 0; by < launch.grid.y; ++by)
      for (unsigned bx = 0; bx < launch.grid.x; ++bx)
        for (unsigned tz = 0; tz < launch.block.z; ++tz)
          for (unsigned ty = 0; ty < launch.block.y; ++ty)
            for (unsigned tx = 0; tx < launch.block.x; ++tx)
              fn(dim3(bx, by, bz), dim3(tx, ty, tz));
}

namespace detail {
/// From the arguments as cudaLaunchKernel gets them, which live no longer than
/// that call, to what runs later.
using Binder = std::function<std::function<void(const Launch &)>(void **)>;
void addKernel(std::string name, const void *function, Binder binder);

template <typename>
struct Signature;
template <typename... Args>
struct Signature<void(Args...)> {
  template <typename Body>
  static Binder bind(Body body) {
    return [body](void **args) {
      return bindTo(body, args, std::index_sequence_for<Args...>());
    };
  }
  template <typename Body, size_t... I>
  static std::function<void(const Launch &)>
  bindTo(Body body, [[maybe_unused]] void **args, std::index_sequence<I...>) {
    auto values =
        std::make_shared<std::tuple<Args...>>(*static_cast<Args *>(args[I])...);
    return [body, values](const Launch &launch) {
      std::apply([&](Args &...a) { body(launch, a...); }, *values);
    };
  }
};
} // namespace detail

/// What runs on the CPU for the kernel with this mangled name: `body` gets the
/// launch and the arguments, and does the work of the whole grid. The signature
/// is that of the kernel, as in
///   registerKernel<void(float *, int)>("_Z5scalePfi", body);
/// The stand-in cannot check it: the ABI does not pass the sizes.
template <typename Fn, typename Body>
void registerKernel(const char *name, Body body) {
  detail::addKernel(name, nullptr,
                    detail::Signature<Fn>::bind(std::move(body)));
}
/// The same for the kernel that is launched by this pointer: what the host
/// calls it, in the file that defines it. Serves template kernels, and plain
/// functions that code which is not compiled by nvcc gives to
/// cudaLaunchKernel.
template <typename Fn, typename Body>
void registerKernel(const void *function, Body body) {
  detail::addKernel({}, function, detail::Signature<Fn>::bind(std::move(body)));
}
/// @}

} // namespace penstock::standin

#endif // PENSTOCK_RUNTIME_TEST_STANDIN_STANDIN_H
