//===- Timeline.cpp - A schedule as text ----------------------------------===//

#include "penstock/Analysis/Timeline.h"

#include "penstock/Program/Text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

namespace penstock {

namespace {
/// An action or overlap. Times are those of the simulation divided by the
/// power of two that makes the makespan 1 to 2: no sum or quotient overflows.
struct Cell {
  double start, end;
  std::string label;   ///< "F3", or "F3B1" of an overlap
  std::string letters; ///< "F", "FB"
};
} // namespace

template <typename Fn>
static void forEachCell(const Program &program, const Timing &timing,
                        int exponent, size_t rank, Fn &&fn) {
  const auto &list = program.ranks[rank].instructions;
  for (uint32_t begin = 0, end = 0; begin < list.size(); begin = end) {
    end = itemEnd(list, begin);
    Cell cell{std::ldexp(timing.start[rank][begin], -exponent),
              std::ldexp(timing.end[rank][begin], -exponent),
              {},
              {}};
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
  return std::max(10 * power, least);
}

std::string renderTimeline(const Program &program, const Timing &timing,
                           unsigned maxColumns) {
  const size_t numRanks = program.ranks.size();
  const size_t margin =
      6 + std::to_string(numRanks > 0 ? numRanks - 1 : 0).size();
  const size_t columns = std::max(maxColumns, 40u) - margin;

  // The shortest action that matters gets its label, or else one column.
  if (!(timing.makespan > 0))
    return "nothing takes time\n";
  const int exponent = std::ilogb(timing.makespan);
  const double makespan = std::ldexp(timing.makespan, -exponent);
  double shortest = makespan, total = 0;
  size_t longestLabel = 1, count = 0;
  for (size_t rank = 0; rank < numRanks; ++rank)
    forEachCell(program, timing, exponent, rank, [&](const Cell &cell) {
      shortest = std::min(shortest, cell.end - cell.start);
      longestLabel = std::max(longestLabel, cell.label.size());
      total += cell.end - cell.start;
      ++count;
      return true;
    });
  if (count == 0)
    return "nothing takes time\n";
  constexpr double kLeastUnit = 1e-9; // of far more actions than columns
  const double unit =
      std::max({shortest, total / static_cast<double>(count) / 4, kLeastUnit});
  const auto width = static_cast<double>(columns);
  double scale = static_cast<double>(longestLabel) / unit;
  if (makespan * scale > width)
    scale = std::max(width / makespan, 1 / unit);
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
    forEachCell(program, timing, exponent, rank, [&](const Cell &cell) {
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
  const double step = roundStep(std::ldexp(10 / scale, exponent));
  for (int tick = 0;; ++tick) {
    const double time = tick > 0 ? tick * step : 0; // the step may be infinite
    const size_t column = columnOf(std::ldexp(time, -exponent));
    if (column >= end)
      break;
    axis.resize(std::max(axis.size(), margin + column), ' ');
    axis += '|' + formatTime(time);
  }
  if (axis.size() > margin + columns)
    axis.resize(axis.rfind('|'));
  axis.resize(axis.find_last_not_of(' ') + 1);
  text += axis + '\n';
  if (cut)
    text += "cut at time " + formatTime(std::ldexp(width / scale, exponent)) +
            " of " + formatTime(timing.makespan) + '\n';
  return text;
}

} // namespace penstock
