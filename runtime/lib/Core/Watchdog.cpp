//===- Watchdog.cpp - Turns a hang into an error --------------------------===//

#include "penstock/Runtime/Watchdog.h"

#include "penstock/Analysis/Report.h"
#include "penstock/Program/Text.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <system_error>
#include <utility>

namespace penstock::runtime {

using Clock = std::chrono::steady_clock;

//===----------------------------------------------------------------------===//
// What hangs
//===----------------------------------------------------------------------===//

namespace {
/// A look at the recorder: the step that hangs and what has ended in it.
struct Snapshot {
  int64_t step = 0;
  std::vector<std::vector<uint8_t>> done, started;
};
} // namespace

static Snapshot takeSnapshot(const Program &program, const Recorder &recorder,
                             const Matching &matching,
                             std::span<const int32_t> ranks) {
  const auto numRanks = static_cast<int32_t>(program.ranks.size());
  Snapshot snapshot;
  snapshot.done.resize(numRanks);
  snapshot.started.resize(numRanks);
  std::vector<int64_t> steps(numRanks);
  int64_t slowest = -1;
  for (int32_t r = 0; r < numRanks; ++r) {
    const size_t size = program.ranks[r].instructions.size();
    snapshot.done[r].resize(size);
    snapshot.started[r].resize(size);
  }
  for (int32_t r : ranks) {
    const size_t size = program.ranks[r].instructions.size();
    steps[r] = std::max<int64_t>(0, recorder.currentStep(r));
    bool all = true;
    for (uint32_t i = 0; i < size; ++i) {
      const Stamps &stamps = recorder.stamps(r, steps[r], i);
      snapshot.done[r][i] = stamps.ended.load(std::memory_order_acquire) != 0;
      snapshot.started[r][i] = stamps.started.load() != 0;
      all &= snapshot.done[r][i];
    }
    if (!all && (slowest < 0 || steps[r] < slowest))
      slowest = steps[r];
  }
  snapshot.step = std::max<int64_t>(0, slowest);

  // Ranks need not be in the same step; one that is ahead has ended this one.
  for (int32_t r = 0; r < numRanks; ++r)
    if (steps[r] > snapshot.step)
      std::fill(snapshot.done[r].begin(), snapshot.done[r].end(), 1);
  // A member of a group that hangs has still ended when its partner has.
  for (int32_t r = 0; r < numRanks; ++r)
    for (uint32_t i = 0; i < matching.partner[r].size(); ++i) {
      const uint32_t partner = matching.partner[r][i];
      if (partner != kNoInstruction &&
          snapshot.done[program.ranks[r].instructions[i].peer][partner])
        snapshot.done[r][i] = 1;
    }
  return snapshot;
}

/// Why the item of instruction `first`, the first of its queue that has not
/// ended, does not go on.
static std::string describeWait(const Program &program, int32_t rank,
                                uint32_t first, const Snapshot &snapshot,
                                const Matching &matching) {
  const RankProgram &own = program.ranks[rank];
  const Instruction &inst = own.instructions[first];
  const std::vector<uint8_t> &done = snapshot.done[rank];
  const std::string what = std::string("`").append(describe(inst)).append("`");

  if (snapshot.started[rank][first]) {
    if (isCollective(inst.op))
      return "waits in " + what + " for the other ranks of it";
    if (!isTransfer(inst.op))
      return "is inside " + what;
    const std::string peer = "rank " + std::to_string(inst.peer);
    const uint32_t partner = matching.partner[rank][first];
    if (partner == kNoInstruction)
      return "waits in " + what + " for " + peer + ", which has no " +
             (inst.op == Op::Send ? "receive" : "send") + " for it";
    return "waits in " + what + " for " + peer + "'s `" +
           describe(program.ranks[inst.peer].instructions[partner]) + "`";
  }

  uint32_t leader = first;
  while (own.instructions[leader].joined && leader > 0)
    --leader;
  const Instruction &head = own.instructions[leader];
  for (uint32_t w = 0; w < head.numWaits; ++w)
    if (uint32_t other = own.waits[head.firstWait + w]; !done[other])
      return "stands before " + what + ", which waits for `" +
             describe(own.instructions[other]) + "`";
  for (uint32_t other = leader; other-- > 0;)
    if (usesComm(inst.op) && usesComm(own.instructions[other].op) &&
        own.instructions[other].comm == inst.comm && !done[other])
      return "stands before " + what + ", behind `" +
             describe(own.instructions[other]) + "` on the same communicator";
  return "stands before " + what;
}

std::string describeHang(const Program &program, const Recorder &recorder,
                         std::span<const int32_t> ranks) {
  const Matching matching = matchTransfers(program);
  Snapshot snapshot = takeSnapshot(program, recorder, matching, ranks);
  std::string text = "in step " + std::to_string(snapshot.step) + ":\n";
  for (int32_t r : ranks) {
    const auto &instructions = program.ranks[r].instructions;
    std::array<bool, 256> seen = {};
    bool idle = true;
    for (uint32_t i = 0; i < instructions.size(); ++i) {
      if (snapshot.done[r][i] || seen[instructions[i].queue])
        continue;
      seen[instructions[i].queue] = true;
      idle = false;
      text += "  rank " + std::to_string(r) + ", queue " +
              std::to_string(instructions[i].queue) + ": " +
              describeWait(program, r, i, snapshot, matching) + "\n";
    }
    if (idle)
      text += "  rank " + std::to_string(r) + ": has ended the step\n";
  }

  // What has ended elsewhere is not known. But a program that hangs does so
  // each time, so the cycle is that of the program.
  if (ranks.size() < program.ranks.size())
    for (std::vector<uint8_t> &done : snapshot.done)
      std::fill(done.begin(), done.end(), 0);
  // The host transports let the members of a group progress independently.
  const DeadlockResult result =
      explainBlocked(program, Semantics::Documented, snapshot.done);
  if (!result.ok)
    text += render(program,
                   describeDeadlock(program, result, Semantics::Documented));
  text.pop_back(); // the last line ends without a newline
  return text;
}

//===----------------------------------------------------------------------===//
// The watch
//===----------------------------------------------------------------------===//

Watchdog::Watchdog(const Program &program,
                   std::vector<const Executor *> executors,
                   const Recorder &recorder, RunControl &control,
                   double timeout, double callTimeout, Others others)
    : program(program), executors(std::move(executors)), recorder(recorder),
      control(control), timeout(timeout), callTimeout(callTimeout),
      others(std::move(others)) {
  if (timeout <= 0 && callTimeout <= 0)
    return;
  try {
    thread = std::thread([this] { watch(); });
  } catch (const std::system_error &error) {
    control.fail({ErrorKind::DeviceError,
                  std::string("cannot start the thread of the watchdog: ") +
                      error.what() + "; run fewer ranks in one process"});
  }
}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  wake.notify_all();
  if (thread.joinable())
    thread.join();
}

static std::string formatSeconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g s", seconds);
  return text;
}

bool Watchdog::isAtWork(uint64_t &progress) const {
  const uint64_t before = std::exchange(progress, 0);
  bool working = hostAtWork.load() > 0;
  for (const Executor *executor : executors) {
    progress += executor->progress();
    working |= executor->working();
  }
  return working || progress != before;
}

std::string Watchdog::describeRanks() const {
  std::vector<int32_t> ranks =
      others.join ? others.join(kAnswerTime) : std::vector<int32_t>();
  for (const Executor *executor : executors)
    ranks.push_back(executor->rankNumber());
  std::sort(ranks.begin(), ranks.end());
  return describeHang(program, recorder, ranks);
}

Error Watchdog::describeTimeout() const {
  // Others say several times within the timeout that they are there.
  const auto silent = others.silentRanks ? others.silentRanks(timeout / 2)
                                         : std::vector<int32_t>();
  Error error{ErrorKind::Timeout, "no progress for " + formatSeconds(timeout) +
                                      " " + describeRanks()};
  if (silent.empty())
    return error;
  std::string names;
  for (int32_t rank : silent)
    names += (names.empty() ? "" : ", ") + std::to_string(rank);
  return {ErrorKind::LostPeer,
          (silent.size() == 1
               ? "rank " + names + " gives no sign of life; its process is "
               : "ranks " + names +
                     " give no sign of life; their processes "
                     "are ") +
              "frozen or lost\n" + error.message,
          {silent.front()}};
}

void Watchdog::watch() {
  const double shortest = timeout > 0 && callTimeout > 0
                              ? std::min(timeout, callTimeout)
                              : std::max(timeout, callTimeout);
  const auto period =
      std::chrono::duration<double>(std::clamp(shortest / 20, 0.002, 0.2));
  AwakeTime awake(Clock::now(),
                  std::chrono::duration_cast<Clock::duration>(2 * period));
  uint64_t lastProgress = 0, lastWork = 0;
  // When something last ended, and when something was last at work.
  Clock::duration lastEnd{0}, lastAlive{0};
  std::unique_lock lock(mutex);
  while (!wake.wait_for(lock, period, [&] { return stopping; }) &&
         !control.failed()) {
    uint64_t progress = 0;
    bool outstanding = false, working = false;
    for (const Executor *executor : executors) {
      progress += executor->progress();
      outstanding |= executor->stepping();
      working |= executor->working();
    }
    // Who is silent will not come, so that others wait for it.
    if (connecting.load() > 0 && others.silentRanks)
      outstanding |= !others.silentRanks(timeout / 4).empty();
    const Clock::duration now = awake.at(Clock::now());
    if (progress != lastProgress || !outstanding || hostAtWork.load() > 0)
      lastEnd = lastAlive = now;
    if (working || workOfOthers.load() != lastWork)
      lastAlive = now;
    lastWork = workOfOthers.load();
    lastProgress = progress;

    const std::chrono::duration<double> idle = now - lastAlive,
                                        noEnd = now - lastEnd;
    if (timeout > 0 && idle.count() >= timeout)
      control.fail(describeTimeout());
    else if (callTimeout > 0 && working && noEnd.count() >= callTimeout)
      control.fail({ErrorKind::Timeout, "a call of the model takes more than " +
                                            formatSeconds(callTimeout) + " " +
                                            describeRanks()});
  }
}

} // namespace penstock::runtime
