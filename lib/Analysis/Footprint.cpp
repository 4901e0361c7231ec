//===- Footprint.cpp - What a schedule holds and moves --------------------===//

#include "penstock/Analysis/Footprint.h"

#include "penstock/Analysis/LiveRanges.h"

#include <algorithm>

namespace penstock {

std::vector<RankMemory> persistentMemory(const Problem &problem) {
  std::vector<RankMemory> memory(problem.numRanks);
  const int32_t numStages = problem.numStages();
  for (int32_t chain = 0; chain < problem.numChains(); ++chain)
    for (int32_t s = 0; s < numStages; ++s) {
      const int32_t rank = problem.placement[chain * numStages + s];
      bool counted = false;
      for (int32_t before = 0; before < chain; ++before)
        counted |= problem.placement[before * numStages + s] == rank;
      const StageBytes &size = problem.stages[s].bytes;
      if (counted)
        continue;
      memory[rank].parameters += size.parameters;
      memory[rank].gradients += size.gradients;
      memory[rank].optimizer += size.optimizer;
      if (problem.postValidation) // to undo a step
        memory[rank].optimizer += size.parameters + size.optimizer;
    }
  return memory;
}

std::vector<int64_t> persistentBytes(const Problem &problem) {
  std::vector<int64_t> bytes;
  for (const RankMemory &rank : persistentMemory(problem))
    bytes.push_back(rank.persistent());
  return bytes;
}

std::vector<RankMemory> memoryOf(const Problem &problem, const Timing &timing) {
  std::vector<RankMemory> memory = persistentMemory(problem);
  for (size_t r = 0; r < memory.size(); ++r) {
    memory[r].versions = timing.ranks[r].versionBytes;
    memory[r].activations = timing.ranks[r].peakBytes - memory[r].total();
  }
  return memory;
}

std::vector<int64_t> stashesAlive(const Program &program) {
  const Problem &problem = program.problem;
  std::vector<int64_t> most(problem.stages.size(), 0), now(most.size());
  LiveRangeFinder finder(problem, LiveRangeFinder::Stashes);
  std::vector<std::pair<uint32_t, int32_t>> ends; // and the stage
  for (const RankProgram &rank : program.ranks) {
    now.assign(now.size(), 0);
    ends.clear();
    const std::vector<LiveRange> &ranges =
        finder.run(rank.instructions, [](uint32_t, const Access &, int32_t) {});
    for (const LiveRange &range : ranges)
      if (range.kind == TensorKind::Stash)
        ends.emplace_back(range.end, range.stage);
    std::sort(ends.begin(), ends.end());
    auto ended = ends.begin();
    for (const LiveRange &range : ranges) {
      if (range.kind != TensorKind::Stash)
        continue;
      for (; ended->first <= range.first; ++ended)
        --now[ended->second];
      most[range.stage] = std::max(most[range.stage], ++now[range.stage]);
    }
  }
  return most;
}

std::vector<RankTraffic> trafficOf(const Problem &problem) {
  std::vector<int64_t> microbatches(problem.numChains(), 0);
  for (int32_t mb = 0; mb < problem.numMicrobatches; ++mb)
    ++microbatches[problem.chainOf(mb)];
  std::vector<RankTraffic> traffic(problem.numRanks);
  const int32_t numStages = problem.numStages();
  for (int32_t chain = 0; chain < problem.numChains(); ++chain)
    for (int32_t s = 0; s + 1 < numStages; ++s) {
      const int32_t *rankOf = &problem.placement[chain * numStages + s];
      if (rankOf[0] == rankOf[1])
        continue;
      const int64_t bytes = bytesOf(problem, {TensorKind::Activation, s, 0});
      for (int32_t rank : {rankOf[0], rankOf[1]}) {
        const int64_t count = microbatches[chain];
        traffic[rank].transfers += count;
        traffic[rank].bytes += count * bytes;
        traffic[rank].time +=
            static_cast<double>(count) * problem.link.time(bytes);
      }
    }
  return traffic;
}

std::vector<RankTraffic> trafficOf(const Program &program) {
  std::vector<RankTraffic> traffic = trafficOf(program.problem);
  for (size_t r = 0; r < program.ranks.size(); ++r)
    for (const Instruction &inst : program.ranks[r].instructions) {
      const bool sends = inst.op == Op::Send && inst.payload == Payload::Stash;
      if (!sends && !movesToRank(inst))
        continue;
      RankTraffic &rank = traffic[inst.op == Op::Reload ? inst.peer : r];
      const int64_t bytes = bytesOf(
          program.problem, {TensorKind::Stash, inst.stage, inst.microbatch});
      ++rank.transfers;
      rank.bytes += bytes;
      rank.time += program.problem.link.time(bytes);
    }
  return traffic;
}

} // namespace penstock
