//===- Timeline.cpp - A schedule as text ----------------------------------===//

#include "penstock/Analysis/Timeline.h"

#include "penstock/Analysis/LiveRanges.h"
#include "penstock/Program/Text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

namespace penstock {

namespace {
/// An action or overlap.
struct Cell {
  double start, end;
  std::string label;   ///< "F3", or "F3B1" of an overlap
  std::string letters; ///< "F", "FB"
};
} // namespace

template <typename Fn>
static void forEachCell(const Program &program, const Timing &timing,
                        size_t rank, Fn &&fn) {
  const auto &list = program.ranks[rank].instructions;
  for (uint32_t begin = 0, end = 0; begin < list.size(); begin = end) {
    end = itemEnd(list, begin);
    Cell cell{timing.start[rank][begin], timing.end[rank][begin], {}, {}};
    if (!isAction(list[begin].op) || cell.end <= cell.start)
      continue;
    for (uint32_t i = begin; i < end; ++i) {
      cell.letters += letter(list[i].op);
      cell.label += letter(list[i].op);
      cell.label += std::to_string(list[i].microbatch);
    }
    if (!fn(cell))
      return;
  }
}

static std::string formatTime(double time) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.6g", time);
  return buffer;
}

/// The least of 1, 2, 5, 10, 20, ... that is at least `least`.
static double roundStep(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least)
      return factor * power;
  return 10 * power;
}

std::string renderTimeline(const Program &program, const Timing &timing,
                           unsigned maxColumns) {
  const size_t numRanks = program.ranks.size();
  const size_t margin =
      6 + std::to_string(numRanks > 0 ? numRanks - 1 : 0).size();
  const size_t columns = std::max(maxColumns, 40u) - margin;

  // The shortest action that matters gets its label, or else one column.
  double shortest = timing.makespan, total = 0;
  size_t longestLabel = 1, count = 0;
  for (size_t rank = 0; rank < numRanks; ++rank)
    forEachCell(program, timing, rank, [&](const Cell &cell) {
      shortest = std::min(shortest, cell.end - cell.start);
      longestLabel = std::max(longestLabel, cell.label.size());
      total += cell.end - cell.start;
      ++count;
      return true;
    });
  if (count == 0)
    return "nothing takes time\n";
  const double unit =
      std::max(shortest, total / static_cast<double>(count) / 4);
  const auto width = static_cast<double>(columns);
  double scale = static_cast<double>(longestLabel) / unit;
  if (timing.makespan * scale > width)
    scale = std::max(width / timing.makespan, 1 / unit);
  const bool cut = timing.makespan * scale > width + 0.5;
  auto columnOf = [&](double time) {
    return static_cast<size_t>(std::min(std::floor(time * scale + 0.5), width));
  };
  const size_t end = columnOf(timing.makespan);

  std::string text;
  for (size_t rank = 0; rank < numRanks; ++rank) {
    std::string name = "rank " + std::to_string(rank);
    name.resize(margin, ' ');
    std::string row(end, '.');
    forEachCell(program, timing, rank, [&](const Cell &cell) {
      const size_t from = columnOf(cell.start), to = columnOf(cell.end);
      std::string drawn =
          cell.label.size() <= to - from ? cell.label : cell.letters;
      drawn.resize(to - from, '-');
      row.replace(from, to - from, drawn);
      return from < end;
    });
    text += name + row + '\n';
  }

  std::string axis = "time";
  axis.resize(margin, ' ');
  const double step = roundStep(10 / scale);
  for (int tick = 0; columnOf(tick * step) < end; ++tick) {
    const size_t column = margin + columnOf(tick * step);
    axis.resize(std::max(axis.size(), column), ' ');
    axis += '|' + formatTime(tick * step);
  }
  if (axis.size() > margin + columns)
    axis.resize(axis.rfind('|'));
  axis.resize(axis.find_last_not_of(' ') + 1);
  text += axis + '\n';
  if (cut)
    text += "cut at time " + formatTime(width / scale) + " of " +
            formatTime(timing.makespan) + '\n';
  return text;
}

} // namespace penstock
