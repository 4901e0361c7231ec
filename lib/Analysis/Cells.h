//===- Cells.h - What a timeline draws --------------------------*- C++ -*-===//
//
// The boxes of a timeline and its scale of time, shared by all ways to draw
// one.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_LIB_ANALYSIS_CELLS_H
#define PENSTOCK_LIB_ANALYSIS_CELLS_H

#include "penstock/Analysis/Simulate.h"

#include <cmath>
#include <string>

namespace penstock {

/// An item of actions that takes time: one action, or an overlap. Times are
/// those of the simulation divided by the power of two that makes the makespan
/// 1 to 2: no sum or quotient overflows.
struct Cell {
  uint32_t begin, end; ///< its instructions
  double start, finish;
};

/// The times of all cells.
struct CellTimes {
  int exponent = 0;         ///< of the power of two
  double makespan = 0;      ///< 0 when no cell takes time
  double unit = 1;          ///< the shortest cell that matters
  size_t actions = 0;       ///< in cells
  size_t timeless = 0;      ///< actions that take no time: in no cell
  uint32_t largestCell = 0; ///< most actions of one cell

  double fromUser(double time) const { return std::ldexp(time, -exponent); }
  double toUser(double time) const { return std::ldexp(time, exponent); }
};

CellTimes measureCells(const Program &program, const Timing &timing);

/// Calls `fn(const Cell &)` for the cells of a rank in host order, until it
/// returns false.
template <typename Fn>
void forEachCell(const Program &program, const Timing &timing, int exponent,
                 size_t rank, Fn &&fn) {
  const auto &list = program.ranks[rank].instructions;
  for (uint32_t begin = 0, end = 0; begin < list.size(); begin = end) {
    end = itemEnd(list, begin);
    const Cell cell{begin, end,
                    std::ldexp(timing.start[rank][begin], -exponent),
                    std::ldexp(timing.end[rank][begin], -exponent)};
    if (isAction(list[begin].op) && cell.finish > cell.start && !fn(cell))
      return;
  }
}

/// The parts that a rank plays: its stages on the first chain, in ascending
/// order, then those on the next.
class Parts {
public:
  explicit Parts(const Problem &problem);

  /// The part to which an action belongs, from 0.
  int32_t of(const Instruction &action) const {
    return parts[static_cast<size_t>(problem.chainOf(action.microbatch)) *
                     problem.stages.size() +
                 action.stage];
  }
  /// "chunk 1", "chain 0, chunk 1"; empty where there is only one part.
  std::vector<std::string> names;

private:
  const Problem &problem;
  std::vector<int32_t> parts; ///< of each entry of the placement
};

/// The least of 1, 2, 5, 10, 20, ... that is at least `least`: the time from
/// one mark of an axis to the next.
double roundStep(double least);
/// The number at such a mark: "0", "2.5", "1e+20".
std::string formatMark(double time);

} // namespace penstock

#endif // PENSTOCK_LIB_ANALYSIS_CELLS_H
