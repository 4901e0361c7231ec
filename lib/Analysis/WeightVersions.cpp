//===- WeightVersions.cpp - Which weights an action uses ------------------===//

#include "penstock/Analysis/WeightVersions.h"

#include "penstock/Support/MicrobatchTable.h"

#include <algorithm>
#include <span>
#include <unordered_map>

namespace penstock {

static bool stepsOnTheWay(std::span<const Instruction> list) {
  return std::any_of(list.begin(), list.end(), [](const Instruction &inst) {
    return inst.op == Op::Step && inst.microbatch >= 0;
  });
}

WeightVersions weightVersions(const Program &program, int32_t rank) {
  WeightVersions result;
  const auto &list = program.ranks[rank].instructions;
  if (!stepsOnTheWay(list))
    return result;
  result.used.assign(list.size(), -1);

  struct StageState {
    int32_t stage;
    int64_t row;                        ///< in `ofMicrobatch`
    std::vector<VersionRange> versions; ///< the last is the newest
  };
  std::vector<StageState> stages;
  std::unordered_map<int32_t, size_t> numbers;
  MicrobatchTable ofMicrobatch(program.problem.numMicrobatches);
  ofMicrobatch.clear(list.size());
  size_t number = 0; // of the stage before: mostly the same
  auto stateOf = [&](int32_t stage) -> StageState & {
    if (!stages.empty() && stages[number].stage == stage)
      return stages[number];
    auto [it, isNew] = numbers.try_emplace(stage, stages.size());
    if (isNew)
      stages.push_back({stage, ofMicrobatch.addRow(), {{stage, 0, 0, 0}}});
    number = it->second;
    return stages[number];
  };
  auto step = [](StageState &state, uint32_t i) {
    const VersionRange &newest = state.versions.back();
    state.versions.push_back({newest.stage, newest.version + 1, i, i});
  };
  for (uint32_t i = 0; i < list.size(); ++i) {
    const Instruction &inst = list[i];
    if (inst.op == Op::Step) {
      if (inst.stage >= 0)
        step(stateOf(inst.stage), i);
      else
        for (StageState &state : stages)
          step(state, i);
    }
    if (!isAction(inst.op))
      continue;
    StageState &state = stateOf(inst.stage);
    int32_t &version = ofMicrobatch.at(state.row, inst.microbatch);
    if (inst.op == Op::Forward)
      version = state.versions.back().version;
    if (version == MicrobatchTable::kNone)
      continue;
    result.used[i] = version;
    state.versions[version].end = i + 1;
    if (inst.op == Op::Backward || inst.op == Op::BackwardWeight)
      version = MicrobatchTable::kNone;
  }

  for (StageState &state : stages) {
    // Until the step that replaces it a version is the newest one.
    for (size_t v = 0; v + 1 < state.versions.size(); ++v)
      state.versions[v].end =
          std::max(state.versions[v].end, state.versions[v + 1].first);
    state.versions.back().end = static_cast<uint32_t>(list.size());
    result.ranges.insert(result.ranges.end(), state.versions.begin(),
                         state.versions.end());
  }
  return result;
}

/// Of the ranges of one stage.
static int32_t peakOf(std::span<const VersionRange> ranges) {
  std::vector<uint32_t> ends;
  for (const VersionRange &range : ranges)
    ends.push_back(range.end);
  if (!std::is_sorted(ends.begin(), ends.end()))
    std::sort(ends.begin(), ends.end());
  // Ends before begins: a step takes the place of a version that nobody needs.
  int32_t alive = 0, most = 0;
  auto ended = ends.begin();
  for (const VersionRange &range : ranges) {
    for (; ended != ends.end() && *ended <= range.first; ++ended)
      --alive;
    most = std::max(most, ++alive);
  }
  return most;
}

/// The ranges of the stage to which the first belongs.
static std::span<const VersionRange>
stageOf(std::span<const VersionRange> ranges) {
  size_t size = 1;
  while (size < ranges.size() && ranges[size].stage == ranges[0].stage)
    ++size;
  return ranges.first(size);
}

int32_t WeightVersions::peak(int32_t stage) const {
  for (size_t k = 0; k < ranges.size(); ++k)
    if (ranges[k].stage == stage)
      return peakOf(stageOf(std::span(ranges).subspan(k)));
  return 0;
}

int32_t WeightVersions::peak() const {
  int32_t most = 1;
  for (size_t k = 0; k < ranges.size();) {
    const auto stage = stageOf(std::span(ranges).subspan(k));
    most = std::max(most, peakOf(stage));
    k += stage.size();
  }
  return most;
}

} // namespace penstock
