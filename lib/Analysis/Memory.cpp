//===- Memory.cpp - What a rank holds at its fullest ----------------------===//
//
// Adds up what a rank holds whatever runs and what its tensors need, and says
// where most of them are alive when that is more than the limit. A planned
// program needs its arena of slots. Before that the tensors alive at once count
// (of an order only the stashes, for it has no transfers yet): a plan can only
// need more.
//
//===----------------------------------------------------------------------===//

#include "Describe.h"
#include "Rules.h"

#include "penstock/Analysis/LiveRanges.h"
#include "penstock/Analysis/Simulate.h"

#include <algorithm>
#include <tuple>

using namespace penstock;

namespace {

/// Tensors of one kind and stage.
struct Kind {
  TensorKind kind;
  int32_t stage;
  int64_t count, bytes;
};

} // namespace

/// Weights, where the other kinds are of tensors.
static constexpr auto kWeights = static_cast<TensorKind>(3);
/// A message names at most this many kinds of tensors.
static constexpr size_t kMaxKinds = 4;

/// "2 stashes of stage 0 (16 bytes), 1 activation of stage 3 (8 bytes) and 5
/// more tensors (12 bytes)": what is alive at an instruction, most bytes first.
static std::string describeAlive(const Problem &problem,
                                 const std::vector<LiveRange> &ranges,
                                 const std::vector<VersionRange> &versions,
                                 uint32_t instruction) {
  // Of the versions of a stage's weights one is not counted here.
  std::vector<Kind> kinds;
  for (const VersionRange &range : versions)
    if (instruction < range.end && range.first <= instruction) {
      const int64_t bytes = problem.stages[range.stage].bytes.parameters;
      if (kinds.empty() || kinds.back().stage != range.stage)
        kinds.push_back({kWeights, range.stage, -1, -bytes});
      ++kinds.back().count;
      kinds.back().bytes += bytes;
    }
  std::erase_if(kinds, [](const Kind &kind) { return kind.count <= 0; });
  for (const LiveRange &range : ranges)
    if (range.first <= instruction && instruction < range.end)
      kinds.push_back({range.kind, range.stage, 1,
                       bytesOf(problem, {range.kind, range.stage, 0})});
  auto byName = [](const Kind &kind) {
    return std::tuple(kind.kind, kind.stage);
  };
  std::sort(kinds.begin(), kinds.end(), [&](const Kind &a, const Kind &b) {
    return byName(a) < byName(b);
  });
  size_t last = 0;
  for (size_t k = 1; k < kinds.size(); ++k)
    if (byName(kinds[k]) == byName(kinds[last])) {
      ++kinds[last].count;
      kinds[last].bytes += kinds[k].bytes;
    } else {
      kinds[++last] = kinds[k];
    }
  kinds.resize(std::min(kinds.size(), last + 1));
  std::stable_sort(
      kinds.begin(), kinds.end(),
      [](const Kind &a, const Kind &b) { return a.bytes > b.bytes; });

  static constexpr std::string_view kNames[] = {
      "activation", "gradient", "stash", "further version of the weights"};
  std::string text;
  Kind rest = {};
  for (size_t k = 0; k < kinds.size(); ++k) {
    const Kind &kind = kinds[k];
    if (k >= kMaxKinds) {
      rest.count += kind.count;
      rest.bytes += kind.bytes;
      continue;
    }
    text +=
        (k ? ", " : "") +
        (kind.kind == kWeights && kind.count > 1
             ? std::to_string(kind.count) + " further versions of the weights"
             : counted(kind.count, kNames[static_cast<size_t>(kind.kind)])) +
        " of stage " + std::to_string(kind.stage) + " (" +
        std::to_string(kind.bytes) + " bytes)";
  }
  if (rest.count > 0)
    text += " and " + std::to_string(rest.count) + " more (" +
            std::to_string(rest.bytes) + " bytes)";
  return text;
}

void penstock::checkMemory(const Program &program, bool order,
                           Findings &findings) {
  const Problem &problem = program.problem;
  if (problem.memory == 0)
    return;
  const std::vector<int64_t> persistent = persistentBytes(problem);
  const bool planned = !order && program.isPlanned();
  LiveRangeFinder finder(problem, order ? LiveRangeFinder::Stashes
                                        : LiveRangeFinder::All);
  for (int32_t r = 0; r < problem.numRanks && !findings.full(); ++r) {
    const int64_t arena = planned ? slotOffsets(program.ranks[r]).back() : 0;
    const auto &list = program.ranks[r].instructions;
    const WeightVersions versions = weightVersions(program, r);
    // Of a plan all slots are there all the time.
    const int64_t further =
        planned ? peakOf(problem, list.size(), {}, versions.ranges).bytes : 0;
    const int64_t left = problem.memory - persistent[r] - further;
    if (planned && arena <= left)
      continue;
    const std::vector<LiveRange> &ranges =
        finder.run(list, [](uint32_t, const Access &, int32_t) {});
    const Peak peak = peakOf(problem, list.size(), ranges, versions.ranges);
    const int64_t needed = planned ? arena : peak.bytes;
    if (needed <= left)
      continue;

    const Site site = {r, peak.instruction};
    const bool isAnyAlive = peak.bytes > 0;
    std::string text =
        "needs " + std::to_string(persistent[r]) +
        " bytes for the parameters, gradients and optimizer "
        "state of its stages and " +
        std::to_string(needed) +
        (planned ? " for its slots"
         : order ? " for the stashes alive at once"
                 : " for the tensors alive at once") +
        (further > 0 ? " and " + std::to_string(further) +
                           " for further versions of weights"
         : versions.peak() > 1 ? " and further versions of weights"
                               : "") +
        ", more than the limit of " + std::to_string(problem.memory) + "; ";
    if (isAnyAlive)
      text +=
          "most " +
          (planned ? "of it, " + std::to_string(peak.bytes) + " bytes, "
                   : std::string()) +
          "is alive at " + quoted(program, site) + ": " +
          describeAlive(problem, ranges, versions.ranges, peak.instruction) +
          "; ";
    text += "use more ranks, a schedule with fewer activations alive, or "
            "recompute";
    findings.add({r, kNoInstruction}, text,
                 isAnyAlive ? std::vector<Note>{{site, "most is alive here"}}
                            : std::vector<Note>());
  }
}
