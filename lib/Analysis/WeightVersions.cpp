//===- WeightVersions.cpp - Which weights an action uses ------------------===//

#include "penstock/Analysis/WeightVersions.h"

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
    std::vector<VersionRange> versions; ///< the last is the newest
    std::unordered_map<int32_t, int32_t> ofMicrobatch;
  };
  std::vector<StageState> stages;
  std::unordered_map<int32_t, size_t> numbers;
  auto stateOf = [&](int32_t stage) -> StageState & {
    auto [it, isNew] = numbers.try_emplace(stage, stages.size());
    if (isNew)
      stages.push_back({stage, {{stage, 0, 0, 0}}, {}});
    return stages[it->second];
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
    if (inst.op == Op::Forward)
      state.ofMicrobatch[inst.microbatch] = state.versions.back().version;
    const auto it = state.ofMicrobatch.find(inst.microbatch);
    if (it == state.ofMicrobatch.end())
      continue;
    result.used[i] = it->second;
    state.versions[it->second].end = i + 1;
    if (inst.op == Op::Backward || inst.op == Op::BackwardWeight)
      state.ofMicrobatch.erase(it);
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
  // Ends before begins: a step takes the place of a version that nobody needs.
  std::vector<std::pair<uint32_t, int32_t>> changes;
  for (const VersionRange &range : ranges) {
    changes.emplace_back(range.first, 1);
    changes.emplace_back(range.end, -1);
  }
  std::sort(changes.begin(), changes.end());
  int32_t alive = 0, most = 0;
  for (const auto &[instruction, change] : changes)
    most = std::max(most, alive += change);
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
