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

/// A message names at most this many kinds of tensors.
static constexpr size_t kMaxKinds = 4;

/// "2 stashes of stage 0 (16 bytes), 1 activation of stage 3 (8 bytes) and 5
/// more tensors (12 bytes)": what is alive at an instruction, most bytes first.
static std::string describeAlive(const Problem &problem,
                                 const std::vector<LiveRange> &ranges,
                                 bool onlyStashes, uint32_t instruction) {
  std::vector<Kind> kinds;
  for (const LiveRange &range : ranges)
    if (range.first <= instruction && instruction < range.end &&
        (!onlyStashes || range.kind == TensorKind::Stash))
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

  static constexpr std::string_view kNames[] = {"activation", "gradient",
                                                "stash"};
  std::string text;
  Kind rest = {};
  for (size_t k = 0; k < kinds.size(); ++k) {
    const Kind &kind = kinds[k];
    if (k >= kMaxKinds) {
      rest.count += kind.count;
      rest.bytes += kind.bytes;
      continue;
    }
    text += (k ? ", " : "") +
            counted(kind.count, kNames[static_cast<size_t>(kind.kind)]) +
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
  LiveRangeFinder finder(problem);
  for (int32_t r = 0; r < problem.numRanks && !findings.full(); ++r) {
    const int64_t arena = planned ? slotOffsets(program.ranks[r]).back() : 0;
    const int64_t left = problem.memory - persistent[r];
    if (planned && arena <= left)
      continue;
    const auto &list = program.ranks[r].instructions;
    const std::vector<LiveRange> ranges =
        finder.run(list, [](uint32_t, const Access &, int32_t) {});
    const Peak peak = peakOf(problem, list.size(), ranges, order);
    const int64_t needed = planned ? arena : peak.bytes;
    if (needed <= left)
      continue;

    const Site site = {r, peak.instruction};
    const bool isAnyAlive = peak.bytes > 0;
    std::string text = "needs " + std::to_string(persistent[r]) +
                       " bytes for the parameters, gradients and optimizer "
                       "state of its stages and " +
                       std::to_string(needed) +
                       (planned ? " for its slots"
                        : order ? " for the stashes alive at once"
                                : " for the tensors alive at once") +
                       ", more than the limit of " +
                       std::to_string(problem.memory) + "; ";
    if (isAnyAlive)
      text += "most " +
              (planned ? "of it, " + std::to_string(peak.bytes) + " bytes, "
                       : std::string()) +
              "is alive at " + quoted(program, site) + ": " +
              describeAlive(problem, ranges, order, peak.instruction) + "; ";
    text += "use more ranks, a schedule with fewer activations alive, or "
            "recompute";
    findings.add({r, kNoInstruction}, text,
                 isAnyAlive ? std::vector<Note>{{site, "most is alive here"}}
                            : std::vector<Note>());
  }
}
