//===- World.h - Inside the stand-in for CUDA and NCCL ----------*- C++ -*-===//
//
// The state of all devices and communicators, under one lock. Everything that
// runs is an *operation* with the operations that must end before it: those
// before it on its streams, on the hardware queue and on the communicator, and
// those of the events it waits for. An operation whose predecessors have ended
// starts; it ends at once, or when a thread of the stand-in has run its code,
// or, for what NCCL runs, when the rule of the group semantics says so. So
// nothing here ever blocks but host threads, and whether anything can still
// happen is known at every moment.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_TEST_STANDIN_WORLD_H
#define PENSTOCK_RUNTIME_TEST_STANDIN_WORLD_H

#include "Network.h"
#include "StandIn.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>

struct ncclComm;

namespace penstock::standin {

struct Item;
struct Op;
struct Capture;
struct Resource;
using OpRef = std::shared_ptr<Op>;
using ItemRef = std::shared_ptr<Item>;
using Lock = std::unique_lock<std::mutex>;

/// Whose function is called: that decides what its errors are.
enum class Library : uint8_t { Cuda, Nccl, Cublas };

/// Something that runs.
struct Op {
  std::string what; ///< for reports
  uint64_t number = 0;
  int device = 0;
  bool isLaunch = false; ///< takes room in the launch queue
  bool isHostFunction = false;
  bool started = false, done = false;
  size_t unmet = 0;             ///< predecessors that have not ended
  std::vector<OpRef> after;     ///< predecessors, until it starts
  std::vector<OpRef> followers; ///< until it ends
  /// Run outside the lock; an error fails the device.
  std::function<cudaError_t()> work;
  ItemRef item;       ///< of NCCL
  uint64_t delay = 0; ///< microseconds before it begins
  double endTime = 0; ///< milliseconds
};

/// What makes a new operation, or a node of a graph.
struct OpSpec {
  std::string what = {};
  std::function<cudaError_t()> work = nullptr;
  /// Makes the item for one execution, under the lock.
  std::function<ItemRef(bool inGraph)> makeItem = nullptr;
  std::vector<Resource *> resources = {}; ///< that keep host order
  bool isLaunch = true;
  bool isHostFunction = false;
};

struct Device {
  cudaError_t broken = cudaSuccess;
  unsigned pendingLaunches = 0;
  size_t usedBytes = 0;
  unsigned numStreams = 0;
  CUstream_st *nullStream = nullptr;
  std::vector<OpRef> hardwareQueues; ///< their last operations
  std::set<const void *> loaded;     ///< kernels
  unsigned runningHostFunctions = 0;
  std::deque<OpRef> waitingHostFunctions;
};

/// A host thread that has made a call.
struct Thread {
  enum State : uint8_t { Running, Waiting, Ended };
  std::string name;
  uint64_t generation = 0; ///< of the world that it belongs to
  long id = 0;
  State state = Running;
  bool isWorker = false, isController = false;
  bool isParticipant = false; ///< has done more than look
  unsigned idle = 0;          ///< nested Idle objects
  unsigned polls = 0;
  uint64_t seenVersion = 0;
  int device = 0;
  cudaError_t lastError = cudaSuccess;
  cudaStreamCaptureMode captureMode = cudaStreamCaptureModeGlobal;
  CUstream_st *perThread = nullptr;

  // While it waits.
  std::condition_variable wake;
  std::function<bool()> until;
  bool failed = false;
  std::string what;
  std::vector<OpRef> waitsFor;
  std::function<std::vector<Thread *>()> waitsForThreads;
};
using ThreadRef = std::shared_ptr<Thread>;

struct Allocation {
  enum Kind : uint8_t { DeviceMemory, Host, Registered } kind = DeviceMemory;
  size_t size = 0;
  int device = 0;
  bool isNccl = false;
  std::byte *block = nullptr; ///< with the guard zones; null if registered
  size_t blockSize = 0;
  bool freed = false;
};

/// A node of a captured graph.
struct Node {
  OpSpec spec;
  int device = 0;
  CUevent_st *record = nullptr, *wait = nullptr; ///< external
  std::vector<size_t> after;
};

class World {
public:
  static World &get();

  std::mutex mutex;
  Options options;
  uint64_t generation = 1; ///< counts reset()
  uint64_t version = 1;    ///< counts what happens

  // --- Engine.cpp ---------------------------------------------------------

  /// The calling thread, registered unless it only looks.
  Thread &thread(bool participates);
  /// Gives an operation to streams that do not capture. `more` must end before
  /// it, too.
  OpRef submit(std::span<CUstream_st *const> streams, int device,
               const OpSpec &spec, std::vector<OpRef> more, ItemRef item);
  void addFollower(const OpRef &op, const OpRef &before);
  /// Runs what can run, wakes who can go on, and looks for a deadlock.
  void settle();
  /// Waits until the condition holds. False: it never will, or the world was
  /// reset.
  bool wait(Lock &lock, std::string what, std::function<bool()> until,
            std::vector<OpRef> waitsFor = {},
            std::function<std::vector<Thread *>()> waitsForThreads = nullptr);
  /// Runs code on a thread of the stand-in, after a delay.
  void runLater(std::function<void(Lock &)> code, uint64_t delay);
  uint64_t delay(uint64_t stream, uint64_t number);
  void complete(const OpRef &op);
  void failDevice(int device, cudaError_t error);
  void find(std::string finding);
  /// Counts a call. The error to return, if one was injected.
  std::optional<int> enter(const char *function, Library library);
  /// A thread asked for a state and learned nothing.
  void poll(Thread &thread);
  void reset(const Options &options);
  void threadEnds(Thread &thread);
  std::string describeWaits();

  std::vector<Device> devices;
  std::map<uint64_t, OpRef> pending; ///< operations that have not ended
  std::vector<ThreadRef> threads;
  std::vector<std::string> foundOut;
  std::set<std::string> foundOutOnce;
  bool deadlocked = false;
  uint64_t reportedVersion = 0; ///< of the last deadlock
  unsigned numKnown = 0;        ///< threads of runThreads(), while it runs
  std::string deadlockReport;
  uint64_t tasks = 0; ///< pieces of code that run or wait for their delay
  uint64_t nextOp = 1;
  std::deque<OpRef> startable; ///< their predecessors have ended
  std::atomic<int> atTheDoor{0};

  struct Injection {
    std::string function;
    uint64_t left;
    int cuda, nccl, cublas;
  };
  std::vector<Injection> injections;
  bool injected = false;
  std::map<std::string, uint64_t, std::less<>> callCounts;
  uint64_t callCount = 0;

  // --- Memory.cpp ---------------------------------------------------------

  std::map<uintptr_t, Allocation> memory;
  void *allocate(size_t size, Allocation::Kind kind, int device, bool isNccl);
  void release(std::map<uintptr_t, Allocation>::iterator it);
  /// The allocation with all of these bytes; end() if there is none.
  std::map<uintptr_t, Allocation>::iterator lookUp(const void *p, size_t size);
  /// A finding if the bytes are in memory that is released, or go over its end.
  bool checkRange(const void *p, size_t size, const std::string &what);
  void checkMemory();
  void releaseAll();
  std::deque<uintptr_t> quarantine;
  size_t quarantined = 0; ///< bytes

  // --- Cuda.cpp -----------------------------------------------------------

  std::set<CUstream_st *> streams;
  std::set<CUevent_st *> events;
  std::set<CUgraph_st *> graphs;
  std::set<CUgraphExec_st *> execs;
  std::vector<std::shared_ptr<void>> graveyard; ///< handles that were released
  std::set<std::shared_ptr<Capture>> captures;  ///< that have not ended
  uint64_t nextCapture = 1;

  CUstream_st *stream(cudaStream_t handle, Thread &thread);
  /// Gives an operation to streams, or adds it to the graph that they capture.
  cudaError_t enqueue(Lock &lock, std::span<CUstream_st *const> streams,
                      const OpSpec &spec, OpRef *made = nullptr);
  /// Waits for room in the launch queue.
  bool waitForRoom(Lock &lock, int device);
  /// An error if a call that CUDA forbids during captures is made; the captures
  /// that it concerns are invalid then.
  cudaError_t forbidInCapture(Thread &thread);
  std::vector<OpRef> lastOps(int device, bool onlyBlocking);

  // --- Graph.cpp ----------------------------------------------------------

  void addNode(Capture &capture, std::span<CUstream_st *const> streams,
               Node node);
  /// A stream is destroyed: the capture is invalid, and over if it is the one
  /// that began it.
  void leaveCapture(CUstream_st *stream);
  cudaError_t useOfLegacyStream(int device);
  cudaError_t useOfCapturedEvent(CUevent_st *event);
  cudaError_t waitInCapture(CUstream_st *stream, CUevent_st *event,
                            unsigned flags);
  void dropCuda();

  // --- Cublas.cpp ---------------------------------------------------------

  std::map<const void *, std::shared_ptr<void>> blasHandles;

  // --- Nccl.cpp -----------------------------------------------------------

  std::vector<ItemRef> active; ///< items that have started and not ended
  std::set<ncclComm *> comms;
  uint64_t nextId = 1;
  struct Cliques;
  std::shared_ptr<Cliques> cliques; ///< communicators that are being made
  OpRef &lastOf(Resource *resource);
  size_t numRegistrations() const;
  /// To the other processes, made when first needed; null: there are none.
  Network *network();
  /// From a thread of the network.
  void hear(std::string_view bytes);
  void peerIsGone(const std::string &address);
  /// What tells devices apart, with the name of the machine.
  int busOf(int device) const {
    return visible.empty() ? device : visible[static_cast<size_t>(device)];
  }
  bool progressItems();
  std::string describeItem(const Item &item);
  /// Operations and threads that an item waits for.
  void waitsOf(const Item &item, std::vector<OpRef> &ops,
               std::vector<Thread *> &hosts, std::string *text);
  /// It does nothing any more, and ends when its turn comes.
  void kill(Item &item);
  void cancelItems(const std::function<bool(const Item &)> &which);
  void failComms();
  void dropNccl();

private:
  World();
  void start(const OpRef &op);
  void begin(const OpRef &op);
  void runCode(const OpRef &op);
  void worker();
  void lookForDeadlock();
  bool mayBeDeadlocked() const;
  bool otherThreadsSleep();
  void declareDeadlock();
  void monitor();

  struct Task {
    std::function<void(Lock &)> code;
    std::chrono::steady_clock::time_point notBefore;
  };
  std::deque<Task> taskQueue;
  std::condition_variable taskWake, monitorWake, tasksDone;
  size_t idleWorkers = 0;
  std::set<long> serviceThreads; ///< system ids, of the stand-in's and others
  std::vector<int> visible;      ///< of CUDA_VISIBLE_DEVICES
  Network *ownNetwork = nullptr; ///< outlives every thread
  bool hasMonitor = false, monitorWanted = false;
  bool settling = false;
};

/// Takes the lock. Whoever waits for it does not wait for ever, which the
/// search for deadlocks has to know: threads of tests and of the code under
/// test use nothing else.
Lock enterWorld(World &world);

/// See fail(). For cuBLAS an internal error, unless it says another one.
void inject(std::string_view function, uint64_t n, int cuda, int nccl,
            int cublas = 14);

/// One call: holds the lock, counts, and on its end lets run what can.
class Call {
public:
  enum Kind : uint8_t { Acts, Looks };
  Call(const char *function, Library library, Kind kind = Acts);
  ~Call();
  World &world;
  Lock lock;
  Thread &thread;
  std::optional<int> injected;
};

} // namespace penstock::standin

struct CUstream_st {
  uint64_t number = 0;
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  unsigned queue = 0; ///< hardware queue, if shared
  penstock::standin::OpRef last;
  uint64_t numOps = 0;
  std::shared_ptr<penstock::standin::Capture> capture;
  std::vector<size_t> tail;       ///< nodes that the next one comes after
  ncclComm *inProgress = nullptr; ///< that is about to use it
};

struct CUevent_st {
  unsigned flags = 0;
  int device = 0;
  penstock::standin::OpRef recorded;                   ///< null: never
  std::shared_ptr<penstock::standin::Capture> capture; ///< recorded in one
  std::vector<size_t> nodes;
};

struct CUgraph_st {
  std::vector<penstock::standin::Node> nodes;
};

struct CUgraphExec_st {
  std::vector<penstock::standin::Node> nodes;
  penstock::standin::OpRef last;
};

namespace penstock::standin {

/// A capture in progress.
struct Capture {
  uint64_t id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  Thread *owner = nullptr;
  CUstream_st *origin = nullptr;
  std::unique_ptr<CUgraph_st> building;
  CUgraph_st *graph = nullptr; ///< the same
  bool invalid = false;
  std::set<CUstream_st *> members;
  std::map<Resource *, size_t> lastOf; ///< nodes of communicators
};

} // namespace penstock::standin

#endif // PENSTOCK_RUNTIME_TEST_STANDIN_WORLD_H
