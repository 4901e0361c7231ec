//===- Cells.cpp - What a timeline draws ----------------------------------===//

#include "Cells.h"

#include <algorithm>
#include <charconv>

namespace penstock {

CellTimes measureCells(const Program &program, const Timing &timing) {
  CellTimes times;
  if (!(timing.makespan > 0))
    return times;
  times.exponent = std::ilogb(timing.makespan);
  const double makespan = times.fromUser(timing.makespan);
  double shortest = makespan, total = 0;
  size_t numCells = 0;
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    for (const Instruction &inst : program.ranks[rank].instructions)
      times.timeless += isAction(inst.op);
    forEachCell(program, timing, times.exponent, rank, [&](const Cell &cell) {
      shortest = std::min(shortest, cell.finish - cell.start);
      total += cell.finish - cell.start;
      ++numCells;
      times.actions += cell.end - cell.begin;
      times.largestCell = std::max(times.largestCell, cell.end - cell.begin);
      return true;
    });
  }
  times.timeless -= times.actions;
  if (numCells == 0)
    return times;
  times.makespan = makespan;
  constexpr double kLeastUnit = 1e-9; // of far more actions than fit
  times.unit = std::max(
      {shortest, total / static_cast<double>(numCells) / 4, kLeastUnit});
  return times;
}

Parts::Parts(const Problem &problem)
    : problem(problem), parts(problem.placement.size()) {
  const int32_t stages = problem.numStages(), chains = problem.numChains();
  std::vector<int32_t> next(problem.numRanks);
  for (int32_t chain = 0, first = 0; chain < chains; ++chain) {
    std::fill(next.begin(), next.end(), first);
    for (int32_t s = 0; s < stages; ++s) {
      const size_t at = static_cast<size_t>(chain) * stages + s;
      parts[at] = next[problem.placement[at]]++;
    }
    const int32_t end = *std::max_element(next.begin(), next.end());
    for (int32_t part = first; part < end; ++part) {
      std::string name =
          chains > 1 ? "chain " + std::to_string(chain) : std::string();
      if (end - first > 1)
        name +=
            (chains > 1 ? ", chunk " : "chunk ") + std::to_string(part - first);
      names.push_back(std::move(name));
    }
    first = end;
  }
}

double roundStep(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least)
      return factor * power;
  return std::max(10 * power, least);
}

std::string formatMark(double time) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, std::end(buffer), time,
                                std::chars_format::general, 6)
                      .ptr};
}

} // namespace penstock
