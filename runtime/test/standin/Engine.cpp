//===- Engine.cpp - Operations, threads, deadlocks ------------------------===//
//
// Runs the operations of all devices, lets host threads wait, and finds out
// when nothing can happen any more.
//
//===----------------------------------------------------------------------===//

#include "Nccl.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/syscall.h>
#include <unistd.h>

using namespace penstock::standin;

static long systemId() { return syscall(SYS_gettid); }

/// Threads that were there before main, other than the one that runs it: of a
/// sanitizer.
static std::set<long> threadsOfProcess() {
  std::set<long> ids;
  std::error_code error;
  for (const auto &entry :
       std::filesystem::directory_iterator("/proc/self/task", error))
    ids.insert(std::atol(entry.path().filename().c_str()));
  return ids;
}

Options penstock::standin::parseOptions(std::string_view text) {
  Options options;
  std::istringstream in{std::string(text)};
  for (std::string word; std::getline(in, word, ',');) {
    const size_t equal = word.find('=');
    const std::string name = word.substr(0, equal);
    const auto number = static_cast<unsigned>(
        equal == word.npos ? 0 : std::atoll(word.c_str() + equal + 1));
    if (name == "processes")
      options.processes = true;
    else if (name == "shared")
      options.sharedDevices = true;
    else if (name == "hang")
      options.onDeadlock = OnDeadlock::Hang;
    else if (name == "devices")
      options.devices = static_cast<int>(number);
    else if (name == "capacity")
      options.capacity = number;
    else if (name == "launchQueue")
      options.launchQueue = number;
    else if (name == "seed")
      options.seed = number;
    else if (name == "maxDelay")
      options.maxDelay = number;
    else {
      std::fprintf(stderr, "PENSTOCK_STANDIN: '%s' is unknown\n", name.c_str());
      std::_Exit(2);
    }
  }
  return options;
}

/// At the end of a process with PENSTOCK_STANDIN.
static void judge() {
  const std::string faults = findings() + leaks();
  if (faults.empty())
    return;
  std::fprintf(stderr, "stand-in: %s", faults.c_str());
  std::_Exit(70);
}

World &World::get() {
  static World *world = new World; // outlives every thread
  return *world;
}

World::World() {
  serviceThreads = threadsOfProcess();
  serviceThreads.erase(systemId());
  if (const char *text = std::getenv("PENSTOCK_STANDIN")) {
    options = parseOptions(text);
    if (const char *list = std::getenv("CUDA_VISIBLE_DEVICES")) {
      // As CUDA reads it: up to the first that is not there.
      std::istringstream in(list);
      for (std::string number; std::getline(in, number, ',');) {
        const int device = number.empty() ? -1 : std::atoi(number.c_str());
        if (device < 0 || device >= options.devices)
          break;
        visible.push_back(device);
      }
      options.devices = static_cast<int>(visible.size());
    }
    std::atexit(judge);
  }
  devices.resize(std::max(options.devices, 1)); // threads always have one
}
/// Made before main, while no other thread is there.
[[maybe_unused]] static World &madeEarly = World::get();

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

namespace {

/// Tells the world that the thread has ended.
struct Holder {
  ThreadRef thread;
  ~Holder() {
    if (!thread || thread->isWorker)
      return;
    World &world = World::get();
    Lock lock = enterWorld(world);
    world.threadEnds(*thread);
  }
};
thread_local Holder holder;

} // namespace

Thread &World::thread(bool participates) {
  if (!holder.thread) {
    holder.thread = std::make_shared<Thread>();
    holder.thread->id = systemId();
    holder.thread->generation = 0;
  }
  Thread &t = *holder.thread;
  if (t.generation != generation) {
    t.generation = generation;
    t.state = Thread::Running;
    t.polls = 0;
    t.device = 0;
    t.isParticipant = false;
    t.perThread = nullptr;
    t.lastError = cudaSuccess;
    if (t.name.empty())
      t.name = "thread " + std::to_string(t.id);
    threads.push_back(holder.thread);
  }
  t.isParticipant |= participates;
  return t;
}

void World::threadEnds(Thread &t) {
  t.state = Thread::Ended;
  settle();
}

void World::poll(Thread &t) {
  if (t.seenVersion == version) {
    ++t.polls;
    return;
  }
  t.seenVersion = version;
  t.polls = 1;
}

static void letGo(World &world, Thread &t, bool failed) {
  t.state = Thread::Running;
  t.failed = failed;
  t.polls = 0;
  if (t.isWorker)
    ++world.tasks;
  t.wake.notify_one();
}

bool World::wait(Lock &lock, std::string what, std::function<bool()> until,
                 std::vector<OpRef> waitsFor,
                 std::function<std::vector<Thread *>()> waitsForThreads) {
  Thread &t = thread(true);
  settle();
  if (until())
    return true;
  t.what = std::move(what);
  t.until = std::move(until);
  t.waitsFor = std::move(waitsFor);
  t.waitsForThreads = std::move(waitsForThreads);
  t.state = Thread::Waiting;
  t.failed = false;
  if (t.isWorker)
    --tasks;
  lookForDeadlock();
  t.wake.wait(lock, [&] { return t.state == Thread::Running; });
  t.until = nullptr;
  t.waitsFor.clear();
  t.waitsForThreads = nullptr;
  return !t.failed;
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

/// A well-mixed function of its arguments (splitmix64).
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t World::delay(uint64_t stream, uint64_t number) {
  if (options.maxDelay == 0)
    return 0;
  return mix(mix(mix(options.seed) + stream) + number) %
         (uint64_t(options.maxDelay) + 1);
}

void World::addFollower(const OpRef &op, const OpRef &before) {
  if (!before || before->done)
    return;
  before->followers.push_back(op);
  op->after.push_back(before);
  ++op->unmet;
}

OpRef World::submit(std::span<CUstream_st *const> on, int device,
                    const OpSpec &spec, std::vector<OpRef> more, ItemRef item) {
  auto op = std::make_shared<Op>();
  op->number = nextOp++;
  op->what = spec.what;
  op->device = device;
  op->isLaunch = spec.isLaunch;
  op->isHostFunction = spec.isHostFunction;
  op->work = spec.work;
  op->item = std::move(item);
  if (op->item)
    op->item->owner = op;
  pending[op->number] = op;
  Device &dev = devices[device];
  if (op->isLaunch)
    ++dev.pendingLaunches;
  op->unmet = 1; // until all are known
  for (const OpRef &before : more)
    addFollower(op, before);
  for (CUstream_st *stream : on) {
    addFollower(op, stream->last);
    // What CUDA's legacy default stream promises.
    if (stream == dev.nullStream) {
      for (CUstream_st *other : streams)
        if (other->device == device && !(other->flags & cudaStreamNonBlocking))
          addFollower(op, other->last);
    } else if (!(stream->flags & cudaStreamNonBlocking) && dev.nullStream) {
      addFollower(op, dev.nullStream->last);
    }
    if (options.queues == Queues::Shared) {
      OpRef &last = dev.hardwareQueues[stream->queue];
      if (last != op) {
        addFollower(op, last);
        last = op;
      }
    }
    stream->last = op;
    op->delay = std::max(op->delay, delay(stream->number, stream->numOps++));
  }
  if (--op->unmet == 0)
    startable.push_back(op);
  ++version;
  return op;
}

void World::start(const OpRef &op) {
  op->after.clear();
  if (op->done)
    return;
  if (devices[op->device].broken != cudaSuccess) {
    if (op->item)
      kill(*op->item);
    complete(op);
    return;
  }
  if (op->delay == 0)
    return begin(op);
  runLater([this, op](Lock &) { begin(op); }, op->delay);
}

void World::begin(const OpRef &op) {
  if (op->done)
    return;
  op->started = true;
  if (op->item) {
    if (op->item->dead) {
      op->item->done = true;
      return complete(op);
    }
    active.push_back(op->item);
    op->item->op = op;
    op->item->ready = true;
    return;
  }
  if (!op->work)
    return complete(op);
  if (op->isHostFunction && options.serialHostFunctions) {
    Device &device = devices[op->device];
    if (device.runningHostFunctions) {
      device.waitingHostFunctions.push_back(op);
      return;
    }
    ++device.runningHostFunctions;
  }
  runCode(op);
}

void World::runCode(const OpRef &op) {
  runLater(
      [this, op](Lock &lock) {
        cudaError_t error = cudaSuccess;
        if (!op->done) {
          auto work = std::move(op->work);
          lock.unlock();
          error = work();
          work = nullptr;
          lock.lock();
        }
        Device &device = devices[op->device];
        if (op->isHostFunction && options.serialHostFunctions) {
          --device.runningHostFunctions;
          if (!device.waitingHostFunctions.empty()) {
            OpRef next = device.waitingHostFunctions.front();
            device.waitingHostFunctions.pop_front();
            ++device.runningHostFunctions;
            runCode(next);
          }
        }
        if (error != cudaSuccess)
          failDevice(op->device, error);
        complete(op);
      },
      0);
}

void World::complete(const OpRef &op) {
  if (op->done)
    return;
  op->done = true;
  op->endTime = std::chrono::duration<double, std::milli>(
                    std::chrono::steady_clock::now().time_since_epoch())
                    .count();
  ++version;
  pending.erase(op->number);
  if (op->isLaunch)
    --devices[op->device].pendingLaunches;
  for (const OpRef &follower : op->followers)
    if (--follower->unmet == 0)
      startable.push_back(follower);
  op->followers.clear();
  op->after.clear();
  op->item = nullptr;
}

void World::failDevice(int device, cudaError_t error) {
  Device &dev = devices[device];
  if (dev.broken == cudaSuccess)
    dev.broken = error;
  cancelItems([&](const Item &item) { return item.device == device; });
  ++version;
}

void World::settle() {
  if (settling)
    return;
  settling = true;
  do
    while (!startable.empty()) {
      OpRef op = std::move(startable.front());
      startable.pop_front();
      start(op);
    }
  while (progressItems());
  for (const ThreadRef &t : threads)
    if (t->state == Thread::Waiting && t->until())
      letGo(*this, *t, false);
  settling = false;
  lookForDeadlock();
}

//===----------------------------------------------------------------------===//
// Threads of the stand-in
//===----------------------------------------------------------------------===//

void World::runLater(std::function<void(Lock &)> code, uint64_t delay) {
  ++tasks;
  taskQueue.push_back({std::move(code), std::chrono::steady_clock::now() +
                                            std::chrono::microseconds(delay)});
  if (idleWorkers >= taskQueue.size()) {
    taskWake.notify_one();
    return;
  }
  std::thread([this] { worker(); }).detach();
  ++idleWorkers;
}

void World::worker() {
  Lock lock(mutex);
  serviceThreads.insert(systemId());
  for (;;) {
    taskWake.wait(lock, [&] { return !taskQueue.empty(); });
    --idleWorkers;
    Task task = std::move(taskQueue.front());
    taskQueue.pop_front();
    if (std::chrono::steady_clock::now() < task.notBefore) {
      lock.unlock();
      std::this_thread::sleep_until(task.notBefore);
      lock.lock();
    }
    Thread &t = thread(false);
    t.isWorker = true;
    t.name = "a thread of the stand-in";
    task.code(lock);
    task.code = nullptr;
    --tasks;
    ++idleWorkers;
    settle();
    if (tasks == 0)
      tasksDone.notify_all();
  }
}

Network *World::network() {
  if (options.processes && !ownNetwork)
    ownNetwork = new Network({
        [this] {
          Lock lock(mutex);
          serviceThreads.insert(systemId());
        },
        [this](std::string_view bytes) { hear(bytes); },
        [this](const std::string &address) { peerIsGone(address); },
    });
  return options.processes ? ownNetwork : nullptr;
}

//===----------------------------------------------------------------------===//
// Deadlocks
//===----------------------------------------------------------------------===//

static bool isPolling(const World &world, const Thread &t) {
  return t.state == Thread::Running && t.polls >= world.options.pollLimit &&
         t.seenVersion == world.version;
}

void World::lookForDeadlock() {
  if (settling || options.processes || !mayBeDeadlocked())
    return;
  const unsigned expected = numKnown ? numKnown : options.hostThreads;
  if (expected == 0) {
    // Only /proc can tell what the others do, and not at once.
    if (!hasMonitor) {
      hasMonitor = true;
      std::thread([this] { monitor(); }).detach();
    }
    if (!monitorWanted) {
      monitorWanted = true;
      monitorWake.notify_one();
    }
    return;
  }
  size_t known = 0;
  for (const ThreadRef &t : threads) {
    if (t->isWorker || !t->isParticipant)
      continue;
    known += !t->isController;
    if (t->state == Thread::Running && t->idle == 0 && !isPolling(*this, *t) &&
        !t->isController)
      return;
  }
  if (known >= expected)
    declareDeadlock();
}

/// Nothing runs, and somebody waits.
bool World::mayBeDeadlocked() const {
  if (tasks > 0 || !startable.empty() || reportedVersion == version)
    return false;
  for (const ThreadRef &t : threads)
    if (t->state == Thread::Waiting || isPolling(*this, *t))
      return true;
  return false;
}

/// True if each thread outside the stand-in waits on a futex without a time
/// limit, and has not run since the first look.
bool World::otherThreadsSleep() {
  std::set<long> known = serviceThreads;
  for (const ThreadRef &t : threads)
    if (t->state != Thread::Running || t->idle || isPolling(*this, *t))
      known.insert(t->id);
  auto look = [&](std::string &seen) {
    for (long id : threadsOfProcess()) {
      if (known.count(id))
        continue;
      const std::string task = "/proc/self/task/" + std::to_string(id);
      std::ifstream file(task + "/syscall");
      unsigned long number = 0, address = 0, op = 0, value = 0, timeout = 1;
      file >> number;
#ifdef __SANITIZE_THREAD__
      // Its own thread, which does not use the library's call.
      if (number == SYS_nanosleep)
        continue;
#endif
      if (!(file >> std::hex >> address >> op >> value >> timeout) ||
          number != SYS_futex || timeout != 0)
        return false;
      const unsigned long kind = op & 127; // FUTEX_WAIT, FUTEX_WAIT_BITSET
      if (kind != 0 && kind != 9)
        return false;
      std::ifstream status(task + "/status");
      seen += std::to_string(id);
      for (std::string line; std::getline(status, line);)
        if (line.find("ctxt_switches") != line.npos)
          seen += line;
    }
    return true;
  };
  std::string first, second;
  return look(first) && atTheDoor == 0 && look(second) && first == second &&
         atTheDoor == 0;
}

void World::monitor() {
  Lock lock(mutex);
  serviceThreads.insert(systemId());
  for (;;) {
    monitorWake.wait(lock, [&] { return monitorWanted; });
    for (auto pause = std::chrono::milliseconds(1);;
         pause = std::min(2 * pause, std::chrono::milliseconds(16))) {
      if (!mayBeDeadlocked() || numKnown || options.hostThreads)
        break;
      if (otherThreadsSleep()) {
        declareDeadlock();
        break;
      }
      lock.unlock();
      std::this_thread::sleep_for(pause);
      lock.lock();
    }
    monitorWanted = false;
  }
}

void World::declareDeadlock() {
  if (!deadlocked)
    deadlockReport = describeWaits();
  deadlocked = true;
  reportedVersion = version;
  if (options.onDeadlock == OnDeadlock::Hang)
    return;
  failComms();
  for (const auto &[number, op] : pending)
    if (devices[op->device].broken == cudaSuccess)
      devices[op->device].broken = cudaErrorUnknown;
  cancelItems([](const Item &) { return true; });
  while (!pending.empty()) {
    OpRef op = pending.begin()->second;
    complete(op);
  }
  startable.clear();
  ++version;
  for (const ThreadRef &t : threads)
    if (t->state == Thread::Waiting)
      letGo(*this, *t, !t->until());
}

//===----------------------------------------------------------------------===//
// Reports
//===----------------------------------------------------------------------===//

namespace {

/// Who waits for whom. Nodes are operations and threads.
class Waits {
public:
  explicit Waits(World &world) : world(world) {}

  std::string describe() {
    std::string text;
    for (const ThreadRef &t : world.threads)
      if (t->state == Thread::Waiting && !t->isWorker)
        text += name(t.get()) + " waits in " + t->what + forWhat(*t) + "\n";
      else if (isPolling(world, *t))
        text += name(t.get()) + " polls\n";
    for (const auto &[number, op] : world.pending)
      if (op->item && op->started) {
        std::vector<OpRef> ops;
        std::vector<Thread *> hosts;
        world.waitsOf(*op->item, ops, hosts, &text);
      }
    for (const auto &[number, op] : world.pending)
      if (findCycle(op.get()))
        return text + cycle;
    for (const ThreadRef &t : world.threads)
      if (findCycle(t.get()))
        return text + cycle;
    return text;
  }

private:
  using Key = const void *;

  std::string name(const Thread *t) const { return t->name; }
  std::string forWhat(const Thread &t) const {
    for (const OpRef &op : t.waitsFor)
      if (!op->done)
        return " for " + op->what;
    return "";
  }

  void successors(Key key, std::vector<Key> &next) {
    for (const ThreadRef &t : world.threads)
      if (t.get() == key) {
        if (t->state != Thread::Waiting)
          return;
        for (const OpRef &op : t->waitsFor)
          if (!op->done)
            next.push_back(op.get());
        if (t->waitsForThreads)
          for (Thread *other : t->waitsForThreads())
            next.push_back(other);
        return;
      }
    const Op *op = static_cast<const Op *>(key);
    for (const OpRef &before : op->after)
      if (!before->done)
        next.push_back(before.get());
    if (op->item && op->started) {
      std::vector<OpRef> ops;
      std::vector<Thread *> hosts;
      world.waitsOf(*op->item, ops, hosts, nullptr);
      for (const OpRef &other : ops)
        if (other.get() != op)
          next.push_back(other.get());
      for (Thread *host : hosts)
        next.push_back(host);
    }
  }
  std::string describe(Key key) {
    for (const ThreadRef &t : world.threads)
      if (t.get() == key)
        return name(t.get()) +
               (t->state == Thread::Waiting ? " in " + t->what : "");
    return static_cast<const Op *>(key)->what;
  }

  /// Depth first; leaves the text of a cycle.
  bool findCycle(Key start) {
    if (seen.count(start))
      return false;
    struct Frame {
      Key key;
      std::vector<Key> next;
      size_t at = 0;
    };
    std::vector<Frame> stack;
    auto enter = [&](Key key) {
      seen.insert(key);
      onStack.insert(key);
      stack.push_back({key, {}, 0});
      successors(key, stack.back().next);
    };
    enter(start);
    while (!stack.empty()) {
      Frame &frame = stack.back();
      if (frame.at == frame.next.size()) {
        onStack.erase(frame.key);
        stack.pop_back();
        continue;
      }
      Key next = frame.next[frame.at++];
      if (onStack.count(next)) {
        size_t from = 0;
        while (stack[from].key != next)
          ++from;
        cycle = "cycle of waits:\n";
        for (size_t i = from; i < stack.size(); ++i)
          cycle += "  " + describe(stack[i].key) + "\n    waits for\n";
        cycle += "  " + describe(next) + "\n";
        return true;
      }
      if (!seen.count(next))
        enter(next);
    }
    return false;
  }

  World &world;
  std::set<Key> seen, onStack;
  std::string cycle;
};

} // namespace

std::string World::describeWaits() { return Waits(*this).describe(); }

void World::find(std::string finding) {
  if (foundOutOnce.insert(finding).second)
    foundOut.push_back(std::move(finding));
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

std::optional<int> World::enter(const char *function, Library library) {
  ++callCount;
  ++callCounts[function];
  std::optional<int> result;
  for (size_t i = 0; i < injections.size();) {
    Injection &injection = injections[i];
    if ((!injection.function.empty() && injection.function != function) ||
        --injection.left > 0) {
      ++i;
      continue;
    }
    result = library == Library::Nccl     ? injection.nccl
             : library == Library::Cublas ? injection.cublas
                                          : injection.cuda;
    injected = true;
    injections.erase(injections.begin() + static_cast<ptrdiff_t>(i));
  }
  return result;
}

Lock penstock::standin::enterWorld(World &world) {
  ++world.atTheDoor;
  Lock lock(world.mutex);
  --world.atTheDoor;
  return lock;
}

Call::Call(const char *function, Library library, Kind kind)
    : world(World::get()), lock(enterWorld(world)),
      thread(world.thread(kind == Acts)) {
  if (kind == Acts)
    thread.polls = 0;
  injected = world.enter(function, library);
}

Call::~Call() { world.settle(); }

//===----------------------------------------------------------------------===//
// What tests call
//===----------------------------------------------------------------------===//

void World::reset(const Options &newOptions) {
  Lock lock = enterWorld(*this);
  // Whatever is still queued ends without running.
  for (Device &device : devices)
    device.broken = cudaErrorUnknown;
  dropNccl();
  while (!pending.empty()) {
    OpRef op = pending.begin()->second;
    complete(op);
  }
  startable.clear();
  for (const ThreadRef &t : threads)
    if (t->state == Thread::Waiting)
      letGo(*this, *t, true);
  tasksDone.wait(lock, [&] { return tasks == 0; });
  dropNccl();
  dropCuda();
  releaseAll();
  pending.clear();
  startable.clear();
  threads.clear();
  foundOut.clear();
  foundOutOnce.clear();
  deadlocked = false;
  deadlockReport.clear();
  reportedVersion = 0;
  injections.clear();
  injected = false;
  callCounts.clear();
  callCount = 0;
  numKnown = 0;
  nextOp = nextId = nextCapture = 1;
  ++generation;
  ++version;
  options = newOptions;
  devices.clear();
  devices.resize(std::max(options.devices, 1)); // threads always have one
  for (Device &device : devices)
    if (options.queues == Queues::Shared)
      device.hardwareQueues.resize(std::max(options.connections, 1u));
  for (const ThreadRef &t : threads)
    t->isController = false;
  thread(false).isController = true;
}

namespace penstock::standin {

void reset(const Options &options) { World::get().reset(options); }

bool isDeadlocked() {
  World &world = World::get();
  Lock lock = enterWorld(world);
  return world.deadlocked;
}

std::string report() {
  World &world = World::get();
  Lock lock = enterWorld(world);
  return world.deadlocked ? world.deadlockReport : world.describeWaits();
}

std::string findings() {
  World &world = World::get();
  Lock lock = enterWorld(world);
  world.checkMemory();
  std::string text;
  for (const std::string &line : world.foundOut)
    text += line + "\n";
  return text;
}

uint64_t numCalls(std::string_view function) {
  World &world = World::get();
  Lock lock = enterWorld(world);
  if (function.empty())
    return world.callCount;
  auto it = world.callCounts.find(function);
  return it == world.callCounts.end() ? 0 : it->second;
}

std::string calls() {
  World &world = World::get();
  Lock lock = enterWorld(world);
  std::string text;
  for (const auto &[function, count] : world.callCounts)
    text += function + " " + std::to_string(count) + "\n";
  return text;
}

void inject(std::string_view function, uint64_t n, int cuda, int nccl,
            int cublas) {
  World &world = World::get();
  Lock lock = enterWorld(world);
  world.injections.push_back({std::string(function), n, cuda, nccl, cublas});
}
void fail(std::string_view function, uint64_t n, cudaError_t error) {
  inject(function, n, error, ncclUnhandledCudaError);
}
void fail(std::string_view function, uint64_t n, ncclResult_t error) {
  inject(function, n, cudaErrorUnknown, error);
}
void failAny(uint64_t n, cudaError_t cuda, ncclResult_t nccl) {
  inject({}, n, cuda, nccl);
}
bool hasFailed() {
  World &world = World::get();
  Lock lock = enterWorld(world);
  return world.injected;
}
void breakDevice(int device, cudaError_t error) {
  World &world = World::get();
  Lock lock = enterWorld(world);
  world.failDevice(device, error);
  world.settle();
}

void runThreads(int n, const std::function<void(int)> &fn) {
  World &world = World::get();
  std::vector<ThreadRef> known;
  {
    Lock lock = enterWorld(world);
    for (int i = 0; i < n; ++i) {
      auto t = std::make_shared<Thread>();
      t->name = "thread of rank " + std::to_string(i);
      t->generation = world.generation;
      t->isParticipant = true;
      world.threads.push_back(t);
      known.push_back(t);
    }
    world.numKnown = static_cast<unsigned>(n);
  }
  {
    Idle idle;
    std::vector<std::thread> threads;
    for (int i = 0; i < n; ++i)
      threads.emplace_back([&, i] {
        {
          Lock lock = enterWorld(world);
          known[i]->id = systemId();
          holder.thread = known[i];
        }
        fn(i);
      });
    for (std::thread &t : threads)
      t.join();
  }
  Lock lock = enterWorld(world);
  world.numKnown = 0;
}

Idle::Idle() {
  World &world = World::get();
  Lock lock = enterWorld(world);
  ++world.thread(false).idle;
  world.settle();
}
Idle::~Idle() {
  World &world = World::get();
  Lock lock = enterWorld(world);
  --world.thread(false).idle;
}

void nameThread(std::string name) {
  World &world = World::get();
  Lock lock = enterWorld(world);
  world.thread(false).name = std::move(name);
}

} // namespace penstock::standin
