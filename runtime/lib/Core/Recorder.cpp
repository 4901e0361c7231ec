//===- Recorder.cpp - When every instruction was issued and ran -----------===//

#include "penstock/Runtime/Recorder.h"

#include "Bytes.h"
#include "penstock/Analysis/ChromeTrace.h"
#include "penstock/Program/Text.h"
#include "penstock/Support/Json.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <ostream>

namespace penstock::runtime {

static constexpr unsigned kNumActions = 5;
/// Of an action, in Recorder::Rank::costs.
static size_t costIndex(const Instruction &inst) {
  return inst.stage * kNumActions + static_cast<unsigned>(inst.op);
}

static constexpr auto kRelaxed = std::memory_order_relaxed;

Recorder::Recorder(const Program &program, unsigned numSteps)
    : program(program), numSteps(std::max(numSteps, 1u)),
      ranks(program.ranks.size()) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto &instructions = program.ranks[r].instructions;
    Rank &rank = ranks[r];
    rank.leader.resize(instructions.size());
    for (uint32_t i = 0; i < instructions.size(); ++i)
      rank.leader[i] =
          i > 0 && instructions[i].joined && isTransfer(instructions[i].op)
              ? rank.leader[i - 1]
              : i;
    rank.rows.reserve(this->numSteps);
    for (int64_t row = 0; row < this->numSteps; ++row)
      rank.rows.emplace_back(instructions.size());
    rank.costs.resize(program.problem.stages.size() * kNumActions);
  }
}

/// What is in one row goes to another.
static void copy(const std::vector<Stamps> &from, std::vector<Stamps> &to) {
  for (size_t i = 0; i < from.size(); ++i) {
    to[i].enqueued.store(from[i].enqueued.load(kRelaxed), kRelaxed);
    to[i].started.store(from[i].started.load(kRelaxed), kRelaxed);
    to[i].ended.store(from[i].ended.load(kRelaxed), kRelaxed);
  }
}

void Recorder::keepInPlace(int32_t rank) {
  ranks[rank].present =
      std::vector<Stamps>(program.ranks[rank].instructions.size());
}

Stamps *Recorder::beginStep(int32_t r, int64_t step) {
  Rank &rank = ranks[r];
  const int64_t last = currentStep(r);
  const bool inPlace = !rank.present.empty();
  if (inPlace && last >= 0)
    copy(rank.present, rank.rows[last % numSteps]);
  std::vector<Stamps> &row =
      inPlace ? rank.present : rank.rows[step % numSteps];
  for (Stamps &stamps : row) {
    stamps.enqueued.store(0, kRelaxed);
    stamps.started.store(0, kRelaxed);
    stamps.ended.store(0, kRelaxed);
  }
  rank.step.store(step, std::memory_order_release);
  return row.data();
}

RankStep Recorder::endStep(int32_t r, int64_t step, bool measure) {
  Rank &rank = ranks[r];
  const auto &instructions = program.ranks[r].instructions;
  const std::vector<Stamps> &row = rowOf(r, step);
  int64_t first = std::numeric_limits<int64_t>::max(), last = 0, busy = 0;
  for (size_t i = 0; i < instructions.size(); ++i) {
    const Instruction &inst = instructions[i];
    if (!isAction(inst.op))
      continue;
    const int64_t start = row[i].started.load(kRelaxed);
    const int64_t end = row[i].ended.load(kRelaxed);
    first = std::min(first, start);
    last = std::max(last, end);
    busy += end - start;
    if (measure) {
      Cost &cost = rank.costs[costIndex(inst)];
      cost.sum += static_cast<double>(end - start) * 1e-9;
      ++cost.count;
    }
  }
  if (last == 0)
    return {};
  return {static_cast<double>(first) * 1e-9, static_cast<double>(last) * 1e-9,
          static_cast<double>(busy) * 1e-9};
}

int64_t Recorder::firstStep(int32_t rank) const {
  return std::max<int64_t>(0, currentStep(rank) - numSteps + 1);
}

std::string Recorder::lastEnded(int32_t r) const {
  const auto &instructions = program.ranks[r].instructions;
  int64_t latest = 0;
  std::string text;
  for (int64_t step = currentStep(r); step >= firstStep(r) && latest == 0;
       --step)
    for (uint32_t i = 0; i < instructions.size(); ++i)
      if (const int64_t ended = stamps(r, step, i).ended.load(kRelaxed);
          ended > latest) {
        latest = ended;
        text = quoted(instructions[i]) + " in step " + std::to_string(step);
      }
  return text;
}

static void append(std::string &bytes, const std::vector<Stamps> &row) {
  for (const Stamps &stamps : row)
    for (const auto *time : {&stamps.enqueued, &stamps.started, &stamps.ended})
      append(bytes, time->load(kRelaxed));
}

static size_t bytesOf(const std::vector<Stamps> &row) {
  return 3 * sizeof(int64_t) * row.size();
}

static void take(std::string_view &bytes, std::vector<Stamps> &row) {
  for (Stamps &stamps : row)
    for (auto *time : {&stamps.enqueued, &stamps.started, &stamps.ended})
      time->store(take<int64_t>(bytes), kRelaxed);
}

std::string Recorder::pack(int32_t r) const {
  const Rank &rank = ranks[r];
  std::string bytes;
  const int64_t step = currentStep(r);
  append(bytes, step);
  for (int64_t i = 0; i < numSteps; ++i)
    append(bytes, step % numSteps == i ? rowOf(r, step) : rank.rows[i]);
  for (const Cost &cost : rank.costs)
    append(bytes, cost);
  return bytes;
}

/// The step of a rank at the front of bytes that have `size` more; none if they
/// are not such bytes.
static std::optional<int64_t> takeStep(std::string_view &bytes, size_t size) {
  if (bytes.size() != sizeof(int64_t) + size)
    return std::nullopt;
  const auto step = take<int64_t>(bytes);
  return step < -1 ? std::nullopt : std::optional(step);
}

bool Recorder::unpack(int32_t r, std::string_view bytes) {
  Rank &rank = ranks[r];
  const auto step =
      takeStep(bytes, rank.rows.size() * bytesOf(rank.rows.front()) +
                          rank.costs.size() * sizeof(Cost));
  if (!step)
    return false;
  rank.step.store(*step);
  for (std::vector<Stamps> &row : rank.rows)
    take(bytes, row);
  for (Cost &cost : rank.costs)
    cost = take<Cost>(bytes);
  return true;
}

std::string Recorder::packStep(int32_t r) const {
  const int64_t step = currentStep(r);
  std::string bytes;
  append(bytes, step);
  append(bytes, rowOf(r, std::max<int64_t>(0, step)));
  return bytes;
}

bool Recorder::unpackStep(int32_t r, std::string_view bytes) {
  Rank &rank = ranks[r];
  const auto step = takeStep(bytes, bytesOf(rank.rows.front()));
  if (!step)
    return false;
  take(bytes, rank.rows[std::max<int64_t>(0, *step) % numSteps]);
  rank.step.store(*step);
  return true;
}

Problem Recorder::measuredProblem() const {
  Problem problem = program.problem;
  std::vector<Cost> costs(problem.stages.size() * kNumActions);
  for (const Rank &rank : ranks)
    for (size_t i = 0; i < costs.size(); ++i) {
      costs[i].sum += rank.costs[i].sum;
      costs[i].count += rank.costs[i].count;
    }
  for (size_t s = 0; s < problem.stages.size(); ++s) {
    auto mean = [&](Op op) {
      const Cost &cost = costs[s * kNumActions + static_cast<unsigned>(op)];
      // Of a whole micro-batch.
      return cost.count
                 ? cost.sum / static_cast<double>(cost.count) * problem.slices
                 : 0;
    };
    problem.stages[s].cost = {mean(Op::Forward), mean(Op::Backward),
                              mean(Op::BackwardInput), mean(Op::BackwardWeight),
                              mean(Op::Recompute)};
  }

  // The time from where both ends of a transfer were there to its end is the
  // shorter of the two durations.
  const Matching matching = matchTransfers(program);
  Cost link;
  for (int32_t r = 0; r < problem.numRanks; ++r) {
    const auto &instructions = program.ranks[r].instructions;
    for (uint32_t i = 0; i < instructions.size(); ++i) {
      const Instruction &inst = instructions[i];
      const uint32_t partner = matching.partner[r][i];
      if (inst.op != Op::Send || partner == kNoInstruction)
        continue;
      const int64_t last = std::min(currentStep(r), currentStep(inst.peer));
      for (int64_t step = std::max(firstStep(r), firstStep(inst.peer));
           step <= last; ++step) {
        const Stamps &send = stamps(r, step, i);
        const Stamps &recv = stamps(inst.peer, step, partner);
        if (!send.ended || !recv.ended)
          continue;
        link.sum +=
            1e-9 * static_cast<double>(std::min(send.ended - send.started,
                                                recv.ended - recv.started));
        ++link.count;
      }
    }
  }
  problem.link = {};
  if (link.count)
    problem.link.latency = link.sum / static_cast<double>(link.count);

  Cost copies; // to host memory and back
  for (int32_t r = 0; r < problem.numRanks; ++r)
    for (uint32_t i = 0; i < program.ranks[r].instructions.size(); ++i)
      for (int64_t step = firstStep(r);
           movesToHost(program.ranks[r].instructions[i]) &&
           step <= currentStep(r);
           ++step)
        if (const Stamps &time = stamps(r, step, i); time.ended) {
          copies.sum += 1e-9 * static_cast<double>(time.ended - time.started);
          ++copies.count;
        }
  problem.hostLink = {};
  if (copies.count)
    problem.hostLink.latency = copies.sum / static_cast<double>(copies.count);
  return problem;
}

double bubbleRate(const std::vector<RankStep> &ranks) {
  double span = 0, busy = 0;
  for (const RankStep &rank : ranks) {
    span = std::max(span, rank.end - rank.start);
    busy = std::max(busy, rank.busy);
  }
  return span > 0 ? (span - busy) / span : 0;
}

//===----------------------------------------------------------------------===//
// Chrome trace
//===----------------------------------------------------------------------===//

/// `"step": 3`.
static std::string stepMember(int64_t step) {
  std::string member = R"("step": )";
  appendJson(member, step);
  return member;
}

namespace {
/// What a step should have looked like.
struct Prediction {
  Timing timing;
  double unit = 0; ///< microseconds of one unit of its costs
  std::string from;
};
} // namespace

/// From the measured times, if all actions were measured. Else from the costs
/// of the program, in a unit by which the actions that have ended took as long
/// in sum. Nothing where there are none, or the program cannot run.
static std::optional<Prediction> predict(const Program &program,
                                         const Problem &measured,
                                         bool isMeasured,
                                         double secondsPerCost) {
  Prediction prediction;
  Program copy;
  if (isMeasured) {
    copy = program;
    copy.problem = measured;
  }
  prediction.unit = 1e6 * (isMeasured ? 1 : secondsPerCost);
  prediction.from = isMeasured ? " predicted from measured times"
                               : " predicted from the program's costs";
  auto timing = playProgram(isMeasured ? copy : program);
  if (!timing || !(prediction.unit > 0))
    return std::nullopt;
  prediction.timing = std::move(*timing);
  return prediction;
}

void Recorder::writeTrace(std::ostream &os) const {
  // Times in the trace count from the first enqueue that is kept.
  int64_t origin = std::numeric_limits<int64_t>::max();
  const auto numRanks = static_cast<int32_t>(ranks.size());
  bool isMeasured = true;
  double seconds = 0, costs = 0;
  std::map<int64_t, int64_t> starts; // of the steps
  for (int32_t r = 0; r < numRanks; ++r) {
    const auto &instructions = program.ranks[r].instructions;
    for (const Instruction &inst : instructions)
      isMeasured &=
          !isAction(inst.op) || ranks[r].costs[costIndex(inst)].count > 0;
    for (int64_t step = firstStep(r); step <= currentStep(r); ++step)
      for (uint32_t i = 0; i < instructions.size(); ++i) {
        const Stamps &time = stamps(r, step, i);
        if (time.enqueued)
          origin = std::min<int64_t>(origin, time.enqueued);
        if (!time.started)
          continue;
        int64_t &start = starts.try_emplace(step, time.started).first->second;
        start = std::min<int64_t>(start, time.started);
        if (isAction(instructions[i].op) && time.ended) {
          seconds += static_cast<double>(time.ended - time.started) * 1e-9;
          costs += durationOf(program.problem, instructions[i]);
        }
      }
  }
  auto us = [&](int64_t time) {
    return static_cast<double>(time - origin) / 1e3;
  };

  const auto predicted =
      predict(program, isMeasured ? measuredProblem() : Problem(), isMeasured,
              costs > 0 ? seconds / costs : 0);
  std::vector<std::string> timelines = {""};
  if (predicted)
    timelines.push_back(predicted->from);
  ChromeTrace trace(
      program, [&](std::string_view text) { os << text; }, timelines);
  for (int32_t r = 0; r < numRanks; ++r) {
    const auto &instructions = program.ranks[r].instructions;
    for (int64_t step = firstStep(r); step <= currentStep(r); ++step) {
      for (uint32_t i = 0; i < instructions.size(); ++i) {
        const Instruction &inst = instructions[i];
        const Stamps &time = stamps(r, step, i);
        if (!time.started)
          continue;
        const Site site{r, i};
        std::string args = stepMember(step) + R"(, "enqueued": )";
        appendJson(args, us(time.enqueued));
        if (!time.ended) {
          // What hangs is a slice without an end.
          trace.openSlice(site, us(time.started), args);
          continue;
        }
        trace.slice(site, us(time.started),
                    static_cast<double>(time.ended - time.started) / 1e3, args);
        const uint32_t partner = trace.matching().partner[r][i];
        if (inst.op != Op::Send || partner == kNoInstruction ||
            step > currentStep(inst.peer) || step < firstStep(inst.peer))
          continue;
        const Stamps &there = stamps(inst.peer, step, partner);
        if (!there.ended)
          continue;
        // The two ends overlap while the transfer runs.
        const double meet =
            (us(std::max<int64_t>(time.started, there.started)) +
             us(std::min<int64_t>(time.ended, there.ended))) /
            2;
        trace.arrow(site, meet, {inst.peer, partner}, meet);
      }
    }
  }
  if (!predicted)
    return;

  // Each step from where it began, but no rank before its last one has ended.
  trace.useTimeline(1);
  std::vector<double> ended(numRanks, -std::numeric_limits<double>::infinity());
  for (const auto &[step, time] : starts) {
    double start = us(time);
    auto forEachRank = [&](auto &&fn) {
      for (int32_t r = 0; r < numRanks; ++r)
        if (!program.ranks[r].instructions.empty())
          fn(r, std::ranges::min(predicted->timing.start[r]) * predicted->unit,
             std::ranges::max(predicted->timing.end[r]) * predicted->unit);
    };
    forEachRank([&](int32_t r, double first, double) {
      start = std::max(start, ended[r] - first);
    });
    forEachRank(
        [&](int32_t r, double, double last) { ended[r] = start + last; });
    trace.simulated(predicted->timing, start, predicted->unit,
                    stepMember(step));
  }
}

} // namespace penstock::runtime
