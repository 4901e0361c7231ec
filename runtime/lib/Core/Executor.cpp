//===- Executor.cpp - Runs the program of one rank ------------------------===//

#include "penstock/Runtime/Executor.h"

#include "penstock/Program/Text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>

namespace penstock::runtime {

using Clock = std::chrono::steady_clock;

/// At most some thirty years, which every clock can add.
static std::chrono::nanoseconds toNanoseconds(double seconds) {
  return std::chrono::nanoseconds(
      static_cast<int64_t>(std::min(seconds, 1e9) * 1e9));
}

//===----------------------------------------------------------------------===//
// RunControl
//===----------------------------------------------------------------------===//

void RunControl::fail(Error error) {
  {
    std::lock_guard lock(mutex);
    if (stopped.exchange(true))
      return;
    first = std::move(error);
  }
  wake.notify_all();
  for (Device *device : devices)
    device->abort();
  for (Transport *transport : transports)
    transport->abort();
  if (onError)
    onError(first);
}

void RunControl::sleepUntil(Clock::time_point time) {
  std::unique_lock lock(mutex);
  wake.wait_until(lock, time, [&] { return stopped.load(); });
}

//===----------------------------------------------------------------------===//
// Preparation
//===----------------------------------------------------------------------===//

Executor::Executor(const Program &program, int32_t rank, Device &device,
                   Transport &transport, Model &model, Recorder &recorder,
                   RunControl &control)
    : program(program), rank(rank),
      instructions(program.ranks[rank].instructions), device(device),
      transport(transport), model(model), recorder(recorder), control(control) {
}

Error Executor::at(uint32_t index, ErrorKind kind,
                   const std::string &message) const {
  const Site site{rank, index};
  return {kind, describe(program, site) + ": " + message, site};
}

/// The memory of a slot that holds at least `bytes`.
Result<std::byte *> Executor::slot(uint32_t index, unsigned role,
                                   int64_t bytes) {
  const RankProgram &own = program.ranks[rank];
  const int32_t number = instructions[index].slots[role];
  const bool inHost = movesToHost(instructions[index]) && role == Host;
  const std::vector<int64_t> &slotBytes =
      inHost ? own.hostSlotBytes : own.slotBytes;
  if (number == kNoSlot && bytes == 0)
    return nullptr;
  if (number < 0 || static_cast<size_t>(number) >= slotBytes.size())
    return Failure{"an operand of " + std::to_string(bytes) +
                   " bytes has no slot; plan the buffers with penstock-opt "
                   "--pipe-compile"};
  if (slotBytes[number] < bytes)
    return Failure{(inHost ? "host slot " : "slot ") + std::to_string(number) +
                   " of " + std::to_string(slotBytes[number]) +
                   " bytes is too small for an operand of " +
                   std::to_string(bytes) + " bytes"};
  return inHost ? hostArena + hostOffsets[number] : arena + offsets[number];
}

/// The model of this rank has only the stages that are placed on it. The
/// verifier refuses such a program, but may be overruled.
Error Executor::checkPlace(uint32_t index) const {
  const Instruction &inst = instructions[index];
  const Problem &problem = program.problem;
  int32_t owner = rank;
  if (inst.op == Op::ReduceTied) {
    const std::vector<int32_t> ranks =
        problem.ranksOf(*problem.tiedAt(inst.stage));
    if (!std::binary_search(ranks.begin(), ranks.end(), rank))
      owner = problem.placement[inst.stage];
  } else if (isAction(inst.op)) {
    owner = problem.rankOf(inst.stage, inst.microbatch);
  } else if (!isTransfer(inst.op) && inst.stage >= 0) {
    owner = problem.placement[inst.stage];
    for (int32_t c = 1; c < problem.numChains(); ++c)
      if (problem.placement[size_t(c) * problem.numStages() + inst.stage] ==
          rank)
        owner = rank;
  }
  if (owner == rank)
    return {};
  return at(index, ErrorKind::InvalidProgram,
            "is on the wrong rank: stage " + std::to_string(inst.stage) +
                " is on rank " + std::to_string(owner) + "; move it there");
}

Error Executor::resolveAction(uint32_t index) {
  const Instruction &inst = instructions[index];
  ActionContext &context = contexts[index];
  context.stage = inst.stage;
  context.microbatch = inst.microbatch;
  context.weight = program.problem.weightOf(inst.microbatch);
  Error error;
  forEachAccess(inst, program.problem.numStages(), [&](const Access &access) {
    auto memory =
        slot(index, access.role, bytesOf(program.problem, access.tensor));
    if (!memory) {
      error = at(index, ErrorKind::InvalidProgram, memory.message());
      return;
    }
    switch (access.role) {
    case Input:
      context.input = *memory;
      return;
    case Gradient:
      context.gradient = *memory;
      return;
    case Output:
      context.output = *memory;
      if (!checkedBytes.empty())
        checkedBytes[index] = bytesOf(program.problem, access.tensor);
      return;
    default:
      context.stash = *memory;
      return;
    }
  });
  return error;
}

Error Executor::resolveTransport(Item &item) {
  const Instruction &inst = instructions[item.first];
  Result<uint32_t> id = 0u;
  double time = 0;
  if (isCollective(inst.op)) {
    std::vector<int32_t> everyone;
    if (inst.peer < 0) {
      everyone.resize(program.problem.numRanks);
      std::iota(everyone.begin(), everyone.end(), 0);
    }
    const std::vector<int32_t> &set =
        inst.peer < 0 ? everyone : program.rankSets[inst.peer];
    std::span<float> values;
    if (inst.op != Op::Barrier && set.size() > 1) {
      const bool isTied = inst.op == Op::ReduceTied;
      values = isTied ? model.tiedGradients(inst.stage)
                      : model.gradients(inst.stage);
      if (values.empty())
        return at(item.first, ErrorKind::NotSupported,
                  std::string("the model does not show the ") +
                      (isTied ? "tied " : "") + "gradients of stage " +
                      std::to_string(inst.stage) +
                      ", so they cannot be reduced; implement Model::" +
                      (isTied ? "tiedGradients" : "gradients"));
    }
    id = transport.addCollective(inst, set, values);
  } else {
    std::vector<Transfer> members;
    for (uint32_t i = item.first; i < item.first + item.count; ++i) {
      time = std::max(time, durationOf(program.problem, instructions[i]));
      if (movesState(instructions[i])) {
        if (instructions[i].bytes != kStateBytes)
          return at(i, ErrorKind::InvalidProgram,
                    "moves " + std::to_string(instructions[i].bytes) +
                        " bytes, but a state has " +
                        std::to_string(kStateBytes) + "; make them equal");
        members.push_back(
            {&instructions[i], reinterpret_cast<std::byte *>(&state)});
        continue;
      }
      auto memory = slot(i, Slot, instructions[i].bytes);
      if (!memory)
        return at(i, ErrorKind::InvalidProgram, memory.message());
      members.push_back({&instructions[i], *memory});
    }
    id = transport.addGroup(members);
  }
  if (!id)
    return at(item.first, ErrorKind::InvalidProgram, id.message());
  item.transport = *id;
  item.pace = toNanoseconds(time * pace);
  return {};
}

Error Executor::resolveCopy(Item &item) {
  const Instruction &inst = instructions[item.first];
  if (movesToRank(inst))
    return at(item.first, ErrorKind::InvalidProgram,
              "belongs into an order; compile it with penstock-opt "
              "--pipe-compile");
  const int64_t bytes = bytesOf(
      program.problem, {TensorKind::Stash, inst.stage, inst.microbatch});
  auto here = slot(item.first, Slot, bytes),
       there = slot(item.first, Host, bytes);
  if (!here || !there)
    return at(item.first, ErrorKind::InvalidProgram,
              here ? there.message() : here.message());
  item.transport = static_cast<uint32_t>(copies.size());
  item.pace = toNanoseconds(durationOf(program.problem, inst) * pace);
  const bool goes = inst.op == Op::Offload;
  copies.push_back({goes ? *there : *here, goes ? *here : *there,
                    static_cast<size_t>(bytes)});
  return {};
}

/// Actions that run together are paced so that all of them take the time that
/// the problem gives an overlap.
double Executor::shareOf(const Item &item) const {
  const auto actions = std::span(instructions).subspan(item.first, item.count);
  double sum = 0;
  for (const Instruction &action : actions)
    sum += durationOf(program.problem, action);
  return sum > 0 ? durationOfItem(program.problem, actions) / sum : 1;
}

/// Which items each item waits for: those of its own waits, and the last one
/// that shares a communicator with it. A queue runs in order, so the latest
/// item of each other queue stands for all, and none is waited for twice by the
/// same queue.
void Executor::resolveWaits() {
  const RankProgram &own = program.ranks[rank];
  std::vector<uint32_t> itemOf(instructions.size());
  unsigned numComms = 0, numQueues = 0;
  for (uint32_t i = 0; i < items.size(); ++i) {
    std::fill_n(itemOf.begin() + items[i].first, items[i].count, i);
    numQueues = std::max(numQueues, items[i].queue + 1u);
  }
  for (const Instruction &inst : instructions)
    numComms = std::max(numComms, inst.comm + 1u);

  std::vector<uint32_t> lastOfComm(numComms, kNoInstruction);
  // latest[a * numQueues + b]: 1 + the last item of queue b that queue a has
  // waited for.
  std::vector<uint32_t> latest(size_t(numQueues) * numQueues, 0);
  for (uint32_t i = 0; i < items.size(); ++i) {
    Item &item = items[i];
    item.firstWait = static_cast<uint32_t>(waits.size());
    const auto row = latest.begin() + size_t(item.queue) * numQueues;
    auto waitFor = [&](uint32_t other) {
      const unsigned queue = items[other].queue;
      if (queue == item.queue || row[queue] > other)
        return;
      row[queue] = other + 1;
      auto known = std::find_if(
          waits.begin() + item.firstWait, waits.end(),
          [&](uint32_t wait) { return items[wait].queue == queue; });
      if (known == waits.end())
        waits.push_back(other);
      else
        *known = other;
    };
    for (uint32_t m = item.first; m < item.first + item.count; ++m) {
      const Instruction &inst = instructions[m];
      for (uint32_t w = 0; w < inst.numWaits; ++w)
        waitFor(itemOf[own.waits[inst.firstWait + w]]);
      if (!usesComm(inst.op))
        continue;
      if (lastOfComm[inst.comm] != kNoInstruction)
        waitFor(lastOfComm[inst.comm]);
      lastOfComm[inst.comm] = i;
    }
    item.numWaits = static_cast<uint32_t>(waits.size()) - item.firstWait;
  }
  for (uint32_t wait : waits)
    if (!std::exchange(items[wait].records, true))
      items[wait].event = device.addEvent();
}

Error Executor::addQueues() {
  std::vector<unsigned> depth(1, 1); // Model::beginStep
  for (const Item &item : items) {
    depth.resize(std::max<size_t>(depth.size(), item.queue + 1u));
    depth[item.queue] += 1 + item.numWaits;
  }
  for (unsigned entries : depth)
    if (auto queue = device.addQueue(entries); !queue)
      return {ErrorKind::DeviceError,
              "rank " + std::to_string(rank) + ": " + queue.message(),
              {rank}};
  return {};
}

/// What needs host work on the queues.
Error Executor::checkDevice() const {
  auto refuse = [&](const std::string &why) {
    return Error{ErrorKind::NotSupported,
                 "rank " + std::to_string(rank) + ": " + why,
                 {rank}};
  };
  if (!device.issuesWork())
    return model.needsQueue()
               ? refuse("the model gives its work to a native queue, which "
                        "this device does not have; take a model of the host, "
                        "or a back end with devices 'cuda'")
               : Error();
  if (!model.issues())
    return refuse("the model computes on the host, but this device needs one "
                  "that gives its work to a native queue; take another model, "
                  "or a back end with devices 'host'");
  if (program.problem.postValidation)
    return refuse("the program has post-validation, which this device does not "
                  "support: the state of a batch is in host memory; compile "
                  "without post_validation");
  if (!checkedBytes.empty())
    return refuse("what this device computes is not in host memory and cannot "
                  "be checked; leave the check for finite values away, or take "
                  "a back end with devices 'host'");
  return {};
}

Error Executor::prepare(double secondsPerUnit, bool replays,
                        bool checksFinite) {
  pace = secondsPerUnit;
  if (checksFinite)
    checkedBytes.resize(instructions.size());
  if (Error error = checkDevice())
    return error;
  if (replays) {
    mode = WillCapture;
    recorder.keepInPlace(rank); // stamps that are replayed go there
  }
  offsets = slotOffsets(program.ranks[rank]);
  auto memory = device.allocateArena(offsets.back());
  if (!memory)
    return {ErrorKind::DeviceError,
            "rank " + std::to_string(rank) + ": " + memory.message(),
            {rank}};
  arena = *memory;
  hostOffsets = slotOffsets(program.ranks[rank].hostSlotBytes);
  if (hostOffsets.back() > 0) {
    auto host = device.allocateHostArena(hostOffsets.back());
    if (!host)
      return {ErrorKind::DeviceError,
              "rank " + std::to_string(rank) + ": " + host.message(),
              {rank}};
    hostArena = *host;
  }
  contexts.resize(instructions.size());

  // The device numbers its queues without gaps; 0 is there in any case.
  std::array<bool, 256> used = {true};
  for (const Instruction &inst : instructions)
    used[inst.queue] = true;
  std::array<uint8_t, 256> queueOf = {};
  for (unsigned q = 1; q < 256; ++q)
    queueOf[q] = static_cast<uint8_t>(queueOf[q - 1] + used[q]);

  for (uint32_t i = 0; i < instructions.size(); ++i) {
    const Instruction &inst = instructions[i];
    if (inst.joined && !items.empty()) {
      ++items.back().count;
    } else {
      Item &item = items.emplace_back();
      item.first = i;
      item.count = 1;
      item.queue = queueOf[inst.queue];
      item.kind =
          usesComm(inst.op) ? Item::Transfers
          : isAction(inst.op) || inst.op == Op::Step || usesState(inst.op)
              ? Item::Calls
          : inst.op == Op::Offload || inst.op == Op::Reload ? Item::Copies
                                                            : Item::Nothing;
    }
    // The state goes from the last rank to the first.
    items.back().validates |=
        inst.op == Op::Validate ||
        (movesState(inst) && (inst.op == Op::Send) == (inst.peer < rank));
    if (items.back().kind == Item::Calls && inst.queue != 0)
      return at(i, ErrorKind::NotSupported,
                "the model is called on queue 0 only, not on queue " +
                    std::to_string(inst.queue) + "; remove queue(...)");
    if (Error error = checkPlace(i))
      return error;
    if (isAction(inst.op))
      if (Error error = resolveAction(i))
        return error;
  }
  for (Item &item : items) {
    if (item.kind == Item::Calls && item.count > 1)
      item.share = shareOf(item);
    if (item.kind == Item::Transfers)
      if (Error error = resolveTransport(item))
        return error;
    if (item.kind == Item::Copies)
      if (Error error = resolveCopy(item))
        return error;
  }
  if (device.showsRanges())
    for (const Item &item : items)
      names.push_back(describe(instructions[item.first]) +
                      (item.count > 1
                           ? " and " + std::to_string(item.count - 1) + " more"
                           : std::string()));
  if (pace > 0)
    pausedSince = std::vector<std::atomic<int64_t>>(items.size());
  resolveWaits();
  if (Error error = prepareValidation())
    return error;
  return addQueues();
}

Error Executor::prepareValidation() {
  if (!program.problem.postValidation)
    return {};
  if (!model.canValidate())
    return {ErrorKind::NotSupported,
            "rank " + std::to_string(rank) +
                ": the program has post-validation, but the model cannot undo "
                "its optimizer steps; implement Model::canValidate and what "
                "belongs to it, or compile without post_validation",
            {rank}};
  for (const Item &item : items)
    if (item.validates && item.count > 1)
      return at(item.first, ErrorKind::NotSupported,
                "is in a group with a state, but states travel alone where the "
                "last step is validated; take it out");
  for (int32_t s = 0; s < program.problem.numStages(); ++s)
    if (const auto ranks = program.problem.ranksOf(s);
        std::binary_search(ranks.begin(), ranks.end(), rank)) {
      stages.push_back(s);
      if (ranks.front() == rank)
        countedStages.push_back(s);
    }
  validationRow = std::vector<Stamps>(instructions.size());
  return {};
}

//===----------------------------------------------------------------------===//
// The step
//===----------------------------------------------------------------------===//

static int64_t now() {
  return Clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

/// Tells the watchdog that a queue is at work, while it lives.
struct Executor::Working {
  explicit Working(Executor &executor) : executor(executor) {
    executor.workers.fetch_add(1);
  }
  ~Working() { executor.workers.fetch_sub(1); }
  Executor &executor;
};

/// A range of a profiler, while it lives; null: none.
struct Executor::Range {
  Range(Device *device, const char *name) : device(device) {
    if (device)
      device->beginRange(name);
  }
  ~Range() {
    if (device)
      device->endRange();
  }
  Device *const device;
};

bool Executor::runStep(int64_t step) {
  char name[32] = {};
  if (!names.empty())
    std::snprintf(name, sizeof(name), "step %lld",
                  static_cast<long long>(step));
  const Range range(names.empty() ? nullptr : &device, name);
  inStep = true;
  row = recorder.beginStep(rank, step);
  device.enqueue(0, [this, step](void *) {
    Working working(*this);
    try {
      model.beginStep(step);
    } catch (...) {
      control.fail(
          {ErrorKind::ModelError,
           "rank " + std::to_string(rank) + ", step " + std::to_string(step) +
               ": the model threw in beginStep: " + describeCurrentException(),
           {rank}});
    }
  });
  // The first step warms up what makes itself when it is first used, which a
  // capture may not allow.
  if (mode == MayCapture) {
    capture();
  } else if (mode == WillCapture) {
    mode = MayCapture;
    fault = "the second step is captured, and there was only one";
  }
  if (mode == Replays) {
    const int64_t time = now();
    for (size_t i = 0; i < instructions.size(); ++i)
      row[i].enqueued.store(time, std::memory_order_relaxed);
    device.replay();
  } else {
    issueItems();
  }
  return endStep(step);
}

void Executor::issueItems() {
  for (const Item &item : items) {
    for (uint32_t w = 0; w < item.numWaits; ++w)
      device.wait(item.queue, items[waits[item.firstWait + w]].event);
    const int64_t time = now();
    for (uint32_t i = item.first; i < item.first + item.count; ++i)
      row[i].enqueued.store(time, std::memory_order_relaxed);
    {
      const size_t number = &item - items.data();
      const Range range(names.empty() ? nullptr : &device,
                        names.empty() ? nullptr : names[number].c_str());
      device.enqueue(item.queue, [this, &item](void *nativeQueue) {
        runItem(item, nativeQueue);
      });
    }
    if (item.records)
      device.record(item.queue, item.event);
  }
}

/// Captures a step; the mode says what has become of it. Both ends of a
/// transfer must be captured, or neither.
void Executor::capture() {
  std::string own;
  fault.clear(); // runItem's next
  if (!model.canReplay()) {
    own = "the calls of the model cannot be replayed";
  } else {
    Working working(*this);
    mode = Captures;
    Status status = device.capture([this] { issueItems(); });
    own = !fault.empty() ? fault : status ? "" : status.message();
  }
  if (!own.empty())
    own = "rank " + std::to_string(rank) + ": " + own;
  fault = transport.agree(own);
  mode = fault.empty() ? Replays : Issues;
}

/// Waits for the end of what was issued; `step` is negative behind the last.
bool Executor::endStep(int64_t step) {
  auto fail = [&](ErrorKind kind, const std::string &message) {
    control.fail({kind,
                  "rank " + std::to_string(rank) +
                      (step < 0 ? ", validation of the last step"
                                : ", step " + std::to_string(step)) +
                      ": " + message,
                  {rank}});
  };
  if (Status idle = device.synchronize(); idle) {
    Working working(*this);
    try {
      model.endStep();
    } catch (...) {
      const Error error =
          currentException(ErrorKind::ModelError, "the model threw: ");
      fail(error.kind, error.message);
    }
  } else if (!control.failed()) {
    Error error = transport.check();
    if (!error || error.kind == ErrorKind::Aborted)
      error = {ErrorKind::DeviceError, idle.message()};
    fail(error.kind, error.message);
  }
  inStep = false;
  return !control.failed();
}

bool Executor::runValidation() {
  inStep = true;
  row = validationRow.data();
  // One after the other: what they wait for in a step does not run here.
  for (const Item &item : items) {
    if (!item.validates)
      continue;
    device.enqueue(item.queue, [this, &item](void *nativeQueue) {
      runItem(item, nativeQueue);
    });
    if (!endStep(-1))
      break;
    inStep = true;
  }
  inStep = false;
  return !control.failed();
}

//===----------------------------------------------------------------------===//
// Post-validation
//===----------------------------------------------------------------------===//

/// Adds the gradients of the rank to those of the ranks before it.
void Executor::reduceState() {
  if (rank == 0)
    state = {0, isVoid, false, {}};
  if (!isVoid)
    for (int32_t s : countedStages)
      state.squares += model.squaredGradients(s);
  mayStep = !state.isVoid && std::isfinite(state.squares) &&
            std::sqrt(state.squares) <= model.largestNorm();
  if (rank == 0)
    state.steps = mayStep;
}

void Executor::tryStep(int32_t stage) {
  if (!mayStep)
    return;
  hasStepped = true;
  if (stage >= 0)
    return model.tryStep(stage);
  for (int32_t s : stages)
    model.tryStep(s);
}

/// With the state of the step before, as all ranks have it.
void Executor::validate() {
  isVoid = false;
  const double norm = std::sqrt(state.squares);
  const bool overflows = !std::isfinite(state.squares);
  const bool clips = !state.isVoid && !overflows && norm > model.largestNorm();
  if (!state.isVoid && (overflows || clips)) {
    for (int32_t s : stages)
      if (hasStepped)
        model.undoStep(s);
    isVoid = clips || state.steps;
  }
  for (int32_t s : stages) {
    if (clips) {
      model.scaleGradients(s, model.largestNorm() / norm);
      model.tryStep(s);
    }
    model.clearGradients(s);
  }
  hasStepped = false;
}

void Executor::readLosses(std::span<double> losses) {
  Working working(*this);
  const Problem &problem = program.problem;
  for (int32_t mb = 0; mb < problem.numMicrobatches; ++mb)
    if (problem.rankOf(problem.numStages() - 1, mb) == rank)
      losses[mb] = model.loss(mb);
}

/// Ends the run, or the capture.
void Executor::fail(Error error) {
  if (mode != Captures)
    control.fail(std::move(error));
  else if (fault.empty())
    fault = std::move(error.message);
}

void Executor::runItem(const Item &item, void *nativeQueue) {
  switch (item.kind) {
  case Item::Calls:
    for (uint32_t i = item.first; i < item.first + item.count; ++i) {
      const Instruction &inst = instructions[i];
      device.stamp(nativeQueue, row[i].started, callsStarted);
      const auto start = Clock::now();
      ActionContext context = contexts[i];
      context.queue = nativeQueue;
      try {
        call(inst, context);
      } catch (...) {
        const Error error =
            currentException(ErrorKind::ModelError, "the model threw: ");
        return fail(at(i, error.kind, error.message));
      }
      if (!checkedBytes.empty())
        if (Error error = checkOutput(i))
          return fail(std::move(error));
      if (pace > 0 && isAction(inst.op)) {
        const auto time = toNanoseconds(durationOf(program.problem, inst) *
                                        item.share * pace);
        if (device.issuesWork())
          device.pause(nativeQueue, row[i].started, time);
        else
          control.sleepUntil(start + time);
      }
      device.stamp(nativeQueue, row[i].ended, callsEnded);
    }
    break;
  case Item::Transfers:
    device.stamp(nativeQueue, row[item.first].started, othersStarted);
    if (Error error = transport.run(item.transport, nativeQueue))
      return fail(at(item.first, error.kind, error.message));
    if (item.pace.count() > 0 && device.issuesWork()) {
      // Counted as calls are, for it is no wait for another rank.
      std::atomic<int64_t> &since = pausedSince[&item - items.data()];
      device.stamp(nativeQueue, since, callsStarted);
      device.pause(nativeQueue, since, item.pace);
      device.stamp(nativeQueue, since, callsEnded);
    } else if (item.pace.count() > 0) {
      Working working(*this);
      control.sleepUntil(Clock::now() + item.pace);
    }
    device.stamp(nativeQueue, row[item.first].ended, othersEnded);
    break;
  case Item::Copies: {
    // Counted as calls are, for it is no wait for another rank.
    Stamps &times = row[item.first];
    device.stamp(nativeQueue, times.started, callsStarted);
    const auto start = Clock::now();
    const Copy &copy = copies[item.transport];
    device.copy(nativeQueue, copy.to, copy.from, copy.bytes);
    if (item.pace.count() > 0 && device.issuesWork())
      device.pause(nativeQueue, times.started, item.pace);
    else if (item.pace.count() > 0)
      control.sleepUntil(start + item.pace);
    device.stamp(nativeQueue, times.ended, callsEnded);
    break;
  }
  case Item::Nothing:
    device.stamp(nativeQueue, row[item.first].started, othersStarted);
    device.stamp(nativeQueue, row[item.first].ended, othersEnded);
    break;
  }
}

/// Whether what an action has left for the next stage is finite.
Error Executor::checkOutput(uint32_t index) const {
  const std::byte *output = contexts[index].output;
  const int64_t numValues =
      output ? checkedBytes[index] / int64_t(sizeof(float)) : 0;
  for (int64_t k = 0; k < numValues; ++k) {
    float value;
    std::memcpy(&value, output + k * sizeof(value), sizeof(value));
    if (!std::isfinite(value))
      return at(index, ErrorKind::NotFinite,
                "value " + std::to_string(k) + " of what it has computed is " +
                    (std::isnan(value) ? "not a number" : "infinite") +
                    ", in step " + std::to_string(recorder.currentStep(rank)) +
                    "; lower the learning rate or check the input");
  }
  return {};
}

void Executor::call(const Instruction &inst, const ActionContext &context) {
  switch (inst.op) {
  case Op::Forward:
    return model.forward(context);
  case Op::Backward:
    return model.backward(context);
  case Op::BackwardInput:
    return model.backwardInput(context);
  case Op::BackwardWeight:
    return model.backwardWeight(context);
  case Op::Recompute:
    return model.recompute(context);
  case Op::ReduceState:
    return reduceState();
  case Op::Validate:
    return validate();
  default:
    return program.problem.postValidation
               ? tryStep(inst.stage)
               : model.issueStep(inst.stage, context.queue);
  }
}

} // namespace penstock::runtime
