//===- Executor.h - Runs the program of one rank ----------------*- C++ -*-===//
//
// The executor turns the instructions of one rank into work for its queues. All
// that can be resolved is resolved once: pointers into the arena, events, which
// waits are needed. A step is then one pass over a flat list, without look-ups
// or allocations.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_EXECUTOR_H
#define PENSTOCK_RUNTIME_EXECUTOR_H

#include "penstock/Runtime/Device.h"
#include "penstock/Runtime/Model.h"
#include "penstock/Runtime/Recorder.h"
#include "penstock/Runtime/Transport.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace penstock::runtime {

/// What the ranks of a run share: the first error, and who must hear of it.
class RunControl {
public:
  /// Told of the first error, before the threads of the run have ended.
  std::function<void(const Error &)> onError;
  /// What must be aborted then. Filled before the first step.
  std::vector<Device *> devices;
  std::vector<Transport *> transports;

  /// Keeps the first error and aborts all ranks. From any thread.
  void fail(Error error);
  bool failed() const { return stopped.load(); }
  /// The first error. When the threads of the run have ended.
  const Error &error() const { return first; }

  /// Sleeps until then or until the run fails.
  void sleepUntil(std::chrono::steady_clock::time_point time);

private:
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<bool> stopped = false;
  Error first;
};

class Executor {
public:
  /// `program`, and all that is passed by reference, outlives the executor.
  Executor(const Program &program, int32_t rank, Device &device,
           Transport &transport, Model &model, Recorder &recorder,
           RunControl &control);

  /// Resolves the program: queues, arena, operands, events, transfers. The
  /// program must be well-formed. `pace` stretches every action and transfer to
  /// its cost times so many seconds; 0: as fast as it goes. `replays`: captures
  /// the second step, if that is possible, and replays it from then on.
  /// `checksFinite`: see RunOptions.
  Error prepare(double pace, bool replays = false, bool checksFinite = false);

  /// Issues one step and waits for its end. False when the run has failed.
  bool runStep(int64_t step);

  /// Whether the step that has ended was void: it began with parameters that
  /// the validation in it has amended, its gradients are dropped, and the same
  /// step must run again. All ranks say the same of a step. Only with
  /// post-validation.
  bool wasVoid() const { return isVoid; }
  /// Behind the last step: what the next one would do to validate it, with the
  /// transfers of that. False when the run has failed.
  bool runValidation();
  /// Why steps are not replayed; empty: they are, or nobody asked.
  const std::string &replayFault() const { return fault; }

  /// Model::loss, of the step that has ended, for each micro-batch whose last
  /// stage is on this rank; `losses` has a place for every one. May throw.
  void readLosses(std::span<double> losses);

  int32_t rankNumber() const { return rank; }
  /// Instructions or groups that have ended since the beginning, by the stamps
  /// of the device.
  uint64_t progress() const { return callsEnded.load() + othersEnded.load(); }
  /// True when some queue of this rank works, rather than waits: it is inside a
  /// call of the model, or in what that has issued, or paces.
  bool working() const {
    const uint64_t numEnded = callsEnded.load(); // before what has started
    return workers.load() != 0 || callsStarted.load() != numEnded;
  }
  /// True during runStep.
  bool stepping() const { return inStep.load(); }

private:
  /// Instructions that are issued together; see Instruction::joined.
  struct Item {
    enum Kind : uint8_t { Calls, Transfers, Copies, Nothing } kind = Nothing;
    bool validates = false; ///< see runValidation
    uint8_t queue = 0;      ///< of the device
    bool records = false;
    uint32_t first = 0, count = 0; ///< instructions
    uint32_t transport = 0;        ///< what Transport::run gets; of `copies`
    Event event = 0;               ///< that `records`
    uint32_t firstWait = 0, numWaits = 0;
    std::chrono::nanoseconds pace{0}; ///< of a transfer or copy
    double share = 1; ///< of its own time that each action of an overlap takes
  };
  /// To host memory or back.
  struct Copy {
    std::byte *to;
    const std::byte *from;
    size_t bytes;
  };
  struct Working;
  struct Range;

  Error checkPlace(uint32_t index) const;
  Error resolveAction(uint32_t index);
  Error resolveTransport(Item &item);
  Error resolveCopy(Item &item);
  double shareOf(const Item &item) const;
  Result<std::byte *> slot(uint32_t index, unsigned role, int64_t bytes);
  void resolveWaits();
  Error addQueues();

  Error checkDevice() const;
  void issueItems();
  void capture();
  bool endStep(int64_t step);
  void runItem(const Item &item, void *nativeQueue);
  void fail(Error error);
  void call(const Instruction &inst, const ActionContext &context);
  Error checkOutput(uint32_t index) const;
  Error prepareValidation();
  void reduceState();
  void tryStep(int32_t stage);
  void validate();
  Error at(uint32_t index, ErrorKind kind, const std::string &message) const;

  const Program &program;
  const int32_t rank;
  const std::vector<Instruction> &instructions;
  Device &device;
  Transport &transport;
  Model &model;
  Recorder &recorder;
  RunControl &control;

  double pace = 0;
  enum { Issues, WillCapture, MayCapture, Captures, Replays } mode = Issues;
  std::string fault; ///< see replayFault
  std::vector<Item> items;
  std::vector<uint32_t> waits;         ///< items, per item
  std::vector<ActionContext> contexts; ///< per instruction
  std::vector<int64_t> checkedBytes;   ///< of outputs; empty: not checked
  std::vector<int64_t> offsets;        ///< of slots
  std::byte *arena = nullptr;
  std::vector<int64_t> hostOffsets; ///< of slots in host memory
  std::byte *hostArena = nullptr;
  std::vector<Copy> copies;
  Stamps *row = nullptr; ///< of the present step

  /// What ranks tell each other about a batch: kStateBytes.
  struct BatchState {
    double squares = 0; ///< of all gradients; not finite: they overflow
    bool isVoid = true; ///< or there is none
    bool steps = false; ///< the first rank has stepped, others may have
    uint8_t unused[6] = {};
  };
  static_assert(sizeof(BatchState) == kStateBytes);
  BatchState state;            ///< in host memory
  std::vector<int32_t> stages; ///< of the rank, ascending
  /// Those whose gradients it adds: a stage with copies counts on the first of
  /// their ranks.
  std::vector<int32_t> countedStages;
  bool mayStep = false;    ///< the state allows it, as far as it is known
  bool hasStepped = false; ///< and the step is not validated yet
  bool isVoid = false;     ///< the present step
  std::vector<Stamps> validationRow;
  /// Of items, where a profiler may want them.
  std::vector<std::string> names;
  /// When each item began to be paced, on a device that issues.
  std::vector<std::atomic<int64_t>> pausedSince;
  /// Of calls of the model, and of all else.
  std::atomic<uint64_t> callsStarted = 0, callsEnded = 0;
  std::atomic<uint64_t> othersStarted = 0, othersEnded = 0;
  std::atomic<uint32_t> workers = 0;
  std::atomic<bool> inStep = false;
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_EXECUTOR_H
