//===- MemoryOverTime.cpp - What is held when -----------------------------===//

#include "penstock/Analysis/MemoryOverTime.h"

#include "penstock/Analysis/LiveRanges.h"

#include <algorithm>

namespace penstock {

/// What changes at a time.
using Changes = std::vector<MemoryStep>;

static void add(Changes &changes, double from, double to, int64_t activations,
                int64_t bytes) {
  if (!(from < to))
    return;
  changes.push_back({from, activations, bytes});
  changes.push_back({to, -activations, -bytes});
}

/// When an instruction gives back the room of a stash. In an order one that
/// moves to another rank counts as simulateOrder() says.
static double endOf(const Program &program, size_t r, uint32_t i,
                    const Timing &timing) {
  return movesToRank(program.ranks[r].instructions[i]) ? timing.start[r][i]
                                                       : timing.end[r][i];
}

/// An activation is alive from the start of its F to the end of its B or W, on
/// the rank where its stash is; where it is computed again, during its F and
/// from the start of its R. Of an order the bytes of a stash that another
/// rank holds are counted there too.
static void addActivations(const Program &program, size_t r,
                           const Timing &timing,
                           std::vector<Changes> &changes) {
  const auto &list = program.ranks[r].instructions;
  const std::vector<uint8_t> dropped = droppedStashes(program.problem, list);
  for (uint32_t i = 0; i < list.size(); ++i) {
    const Instruction &inst = list[i];
    const double start = timing.start[r][i], end = timing.end[r][i];
    if (bringsStash(inst))
      changes[r].push_back({start, 1, 0});
    else if (takesStash(inst))
      changes[r].push_back({endOf(program, r, i, timing), -1, 0});
    if (!dropped.empty() && dropped[i])
      changes[r].push_back({end, -1, 0});
    if (movesToRank(inst)) {
      const int64_t sign = inst.op == Op::Offload ? 1 : -1;
      const Tensor stash = {TensorKind::Stash, inst.stage, inst.microbatch};
      changes[inst.peer].push_back({sign > 0 ? start : end, sign,
                                    sign * bytesOf(program.problem, stash)});
    }
  }
}

static void addVersions(const Problem &problem, const WeightVersions &versions,
                        std::span<const double> start,
                        std::span<const double> end, Changes &changes) {
  const auto &ranges = versions.ranges;
  for (size_t k = 0; k < ranges.size(); ++k) {
    const VersionRange &range = ranges[k];
    const int64_t bytes = problem.stages[range.stage].bytes.parameters;
    // One is there in any case.
    changes.push_back({range.version == 0 ? 0 : start[range.first], 0,
                       range.version == 0 ? 0 : bytes});
    // The newest one stays. One that is replaced is there until then.
    if (k + 1 == ranges.size() || ranges[k + 1].stage != range.stage)
      continue;
    const bool replaced = ranges[k + 1].first == range.end;
    changes.push_back(
        {replaced ? start[range.end] : end[range.end - 1], 0, -bytes});
  }
}

/// Adds the changes up.
static std::vector<MemoryStep> accumulate(Changes &changes, int64_t bytes) {
  std::sort(
      changes.begin(), changes.end(),
      [](const MemoryStep &a, const MemoryStep &b) { return a.time < b.time; });
  std::vector<MemoryStep> steps;
  MemoryStep now = {0, 0, bytes};
  for (size_t k = 0; k < changes.size();) {
    if (changes[k].time > 0 &&
        (steps.empty() || steps.back().activations != now.activations ||
         steps.back().bytes != now.bytes))
      steps.push_back(now);
    for (now.time = changes[k].time;
         k < changes.size() && changes[k].time == now.time; ++k) {
      now.activations += changes[k].activations;
      now.bytes += changes[k].bytes;
    }
  }
  if (steps.empty() || steps.back().activations != now.activations ||
      steps.back().bytes != now.bytes)
    steps.push_back(now);
  return steps;
}

std::vector<std::vector<MemoryStep>> memoryOverTime(const Program &program,
                                                    const Timing &timing) {
  const Problem &problem = program.problem;
  const std::vector<int64_t> persistent = persistentBytes(problem);
  LiveRangeFinder finder(problem, timing.ofOrder ? LiveRangeFinder::Stashes
                                                 : LiveRangeFinder::All);
  std::vector<Changes> changes(program.ranks.size());
  for (size_t r = 0; r < program.ranks.size(); ++r) {
    const std::span start = timing.start[r], end = timing.end[r];
    // On several queues the last one in host order need not end last.
    std::vector<double> ends;
    const std::vector<LiveRange> &ranges =
        finder.run(program.ranks[r].instructions,
                   [&](uint32_t i, const Access &, int32_t range) {
                     if (range == kNoSlot)
                       return;
                     if (static_cast<size_t>(range) >= ends.size())
                       ends.resize(range + 1, 0);
                     ends[range] =
                         std::max(ends[range], endOf(program, r, i, timing));
                   });
    for (size_t k = 0; k < ranges.size(); ++k)
      add(changes[r], start[ranges[k].first],
          k < ends.size() && ends[k] > 0 ? ends[k] : end[ranges[k].last], 0,
          bytesOf(problem, {ranges[k].kind, ranges[k].stage, 0}));
    addActivations(program, r, timing, changes);
    addVersions(problem, weightVersions(program, static_cast<int32_t>(r)),
                start, end, changes[r]);
  }
  std::vector<std::vector<MemoryStep>> result;
  for (size_t r = 0; r < program.ranks.size(); ++r)
    result.push_back(accumulate(changes[r], persistent[r]));
  return result;
}

} // namespace penstock
