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
  return "p = " + std::to_string(program.problem.numRanks) +
         ", m = " + std::to_string(program.problem.numWholeMicrobatches()) +
         ", makespan " + formatRounded(timing.makespan) + ", bubble rate " +
         std::string(bubble, end);
}

/// "F3", or "F3B1" of an overlap; without micro-batches "F" and "FB".
static std::string labelOf(const RankProgram &rank, const Cell &cell,
                           bool microbatches) {
  std::string label;
  for (uint32_t i = cell.begin; i < cell.end; ++i) {
    label += letter(rank.instructions[i].op);
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
  // The shortest action that matters gets its label, or else one column.
  size_t longestLabel = 1;
  for (size_t rank = 0; rank < numRanks; ++rank)
    forEachCell(program, timing, times.exponent, rank, [&](const Cell &cell) {
      longestLabel = std::max(longestLabel,
                              labelOf(program.ranks[rank], cell, true).size());
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
      std::string drawn = labelOf(program.ranks[rank], cell, true);
      if (drawn.size() > to - from)
        drawn = labelOf(program.ranks[rank], cell, false);
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

} // namespace penstock
