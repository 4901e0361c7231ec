//===- Timeline.cpp - A schedule as text ----------------------------------===//

#include "penstock/Analysis/Timeline.h"

#include "Cells.h"
#include "penstock/Program/Text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace penstock {

std::string describeTiming(const Program &program, const Timing &timing) {
  char bubble[32];
  char *end = std::to_chars(bubble, std::end(bubble), timing.bubbleRate,
                            std::chars_format::fixed, 4)
                  .ptr;
  const Problem &problem = program.problem;
  const std::string slices =
      problem.slices > 1 ? " of " + counted(problem.slices, "slice") : "";
  return "p = " + std::to_string(problem.numRanks) +
         ", m = " + std::to_string(problem.numWholeMicrobatches()) + slices +
         ", makespan " + formatRounded(timing.makespan) + ", bubble rate " +
         std::string(bubble, end);
}

/// "F3", or "F3b1" of an overlap; without micro-batches "F" and "Fb".
static std::string labelOf(const RankProgram &rank, const Parts &parts,
                           const Cell &cell, bool microbatches) {
  std::string label;
  for (uint32_t i = cell.begin; i < cell.end; ++i) {
    const char capital = letter(rank.instructions[i].op);
    const bool isSmall = parts.of(rank.instructions[i]) % 2 != 0;
    label += static_cast<char>(isSmall ? capital - 'A' + 'a' : capital);
    if (microbatches)
      label += std::to_string(rank.instructions[i].microbatch);
  }
  return label;
}

std::string renderTimeline(const Program &program, const Timing &timing,
                           unsigned maxColumns) {
  const size_t numRanks = program.ranks.size();
  const size_t margin =
      6 + std::to_string(numRanks > 0 ? numRanks - 1 : 0).size();
  const size_t columns = std::max(maxColumns, 40u) - margin;

  const CellTimes times = measureCells(program, timing);
  const double makespan = times.makespan;
  if (makespan == 0)
    return "nothing takes time\n";
  const Parts parts(program.problem);
  // The shortest action that matters gets its label, or else one column.
  size_t longestLabel = 1;
  for (size_t rank = 0; rank < numRanks; ++rank)
    forEachCell(program, timing, times.exponent, rank, [&](const Cell &cell) {
      longestLabel = std::max(
          longestLabel, labelOf(program.ranks[rank], parts, cell, true).size());
      return true;
    });
  const auto width = static_cast<double>(columns);
  double scale = static_cast<double>(longestLabel) / times.unit;
  if (makespan * scale > width)
    scale = std::max(width / makespan, 1 / times.unit);
  const bool cut = makespan * scale > width + 0.5;
  const double last = std::min(std::floor(makespan * scale + 0.5), width);
  auto columnOf = [&](double time) {
    return static_cast<size_t>(
        std::clamp(std::floor(time * scale + 0.5), 0.0, last));
  };
  const size_t end = columnOf(makespan);

  std::string text;
  for (size_t rank = 0; rank < numRanks; ++rank) {
    std::string name = "rank " + std::to_string(rank);
    name.resize(margin, ' ');
    std::string row(end, '.');
    forEachCell(program, timing, times.exponent, rank, [&](const Cell &cell) {
      const size_t from = columnOf(cell.start), to = columnOf(cell.finish);
      std::string drawn = labelOf(program.ranks[rank], parts, cell, true);
      if (drawn.size() > to - from)
        drawn = labelOf(program.ranks[rank], parts, cell, false);
      drawn.resize(to - from, '-');
      row.replace(from, to - from, drawn);
      return from < end;
    });
    text += name + row + '\n';
  }

  std::string axis = "time";
  axis.resize(margin, ' ');
  const double step = roundStep(times.toUser(10 / scale));
  for (int tick = 0;; ++tick) {
    const double time = tick > 0 ? tick * step : 0; // the step may be infinite
    const size_t column = columnOf(times.fromUser(time));
    if (column >= end)
      break;
    axis.resize(std::max(axis.size(), margin + column), ' ');
    axis += '|' + formatMark(time);
  }
  if (axis.size() > margin + columns)
    axis.resize(axis.rfind('|'));
  axis.resize(axis.find_last_not_of(' ') + 1);
  text += axis + '\n';
  if (cut)
    text += "cut at time " + formatMark(times.toUser(width / scale)) + " of " +
            formatMark(timing.makespan) + '\n';
  return text;
}

/// "forward 0 mb 1 with backward 0 mb 0"
static std::string whatRuns(const Program &program, const CriticalStep &step) {
  const auto &list = program.ranks[step.site.rank].instructions;
  const uint32_t begin = step.site.instruction;
  std::string text = describe(list[begin]);
  if (step.isTransfer()) // of an order the site may be what it is for
    return isAction(list[begin].op) ? "transfer for " + text : text;
  for (uint32_t i = begin + 1; i < itemEnd(list, begin); ++i)
    text += " with " + describe(list[i]);
  return text;
}

std::string describePath(const Program &program,
                         const std::vector<CriticalStep> &path) {
  const PathSummary summary = summarize(program, path);
  std::string text;
  auto add = [&](const std::string &name, double time) {
    if (time > 0)
      text += (text.empty() ? "" : ", ") + name + ' ' + formatRounded(time);
  };
  for (size_t op = 0; op < summary.actions.size(); ++op)
    add(std::string(1, letter(static_cast<Op>(op))), summary.actions[op]);
  add("copies", summary.copies);
  add("transfers", summary.transfers);
  return text.empty() ? "nothing takes time" : text;
}

std::string renderCriticalPath(const Program &program,
                               const std::vector<CriticalStep> &path) {
  std::string text = "critical path: " + describePath(program, path) + '\n';
  auto takesTime = [](const CriticalStep &step) {
    return step.end > step.start;
  };
  auto placeOf = [](const CriticalStep &step) {
    return step.isTransfer() ? "rank " + std::to_string(step.source) + " to " +
                                   std::to_string(step.destination)
                             : "rank " + std::to_string(step.site.rank);
  };
  size_t timeWidth = 0, placeWidth = 0;
  for (const CriticalStep &step : path)
    if (takesTime(step)) {
      timeWidth = std::max(timeWidth, formatRounded(step.start).size());
      placeWidth = std::max(placeWidth, placeOf(step).size());
    }
  for (const CriticalStep &step : path) {
    if (!takesTime(step))
      continue;
    std::string time = formatRounded(step.start), place = placeOf(step);
    time.resize(timeWidth + 2, ' ');
    place.resize(placeWidth + 2, ' ');
    text += time + place + whatRuns(program, step) + '\n';
  }
  return text;
}

} // namespace penstock
