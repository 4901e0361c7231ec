//===- TorchCells.cpp - Idle cells of torch's tables ----------------------===//
//
// torch.distributed.pipelining aligns the tables of its schedules with empty
// cells, by a rule of each schedule class. They have no meaning; who compares
// files with torch's needs them.
//
// p ranks, r the rank, v stages on it, m micro-batches, n = m v. In front of
// the first action of a row stand r cells, but for 1F1B (as it runs) and
// DualPipeV, which have none at all. Then
//
//   GPipe                  3 (p-1-r) in front of the first backward
//   LoopedBFS              2 (p-1-r) there
//   Interleaved1F1B        v p + 2 (p-1-r) - (w + r), if that is positive,
//   behind
//                          the w = min((v-1) q + 2 (p-1-r), n) forwards of the
//                          warm-up, and one in front of each of the last w
//                          backwards; q = m / max(1, m / p), rounded down twice
//   InterleavedZeroBubble  p-1-r behind w = min((v-1) q + p-1-r, n) forwards;
//   then
//                          step by step one in front of every forward whose
//                          activation was not made in an earlier step
//   ZBVZeroBubble          the table is that of 2p - 1 micro-batches at least;
//   the
//                          cells of those that there are not are empty
//
//===----------------------------------------------------------------------===//

#include "penstock/Schedule/Schedule.h"

#include <algorithm>

using namespace penstock;

namespace {

using Row = std::vector<uint32_t>;

/// Moves every forward of a table back to the first step in which its
/// activation is there.
void alignForwards(const Program &order, std::vector<Row> &cells) {
  const Problem &problem = order.problem;
  // The step in which each forward runs.
  constexpr int64_t kNotYet = INT64_MAX;
  std::vector<int64_t> ranAt(
      size_t(problem.numStages()) * problem.numMicrobatches, kNotYet);
  auto at = [&](int32_t stage, int32_t mb) -> int64_t & {
    return ranAt[size_t(stage) * problem.numMicrobatches + mb];
  };
  struct Cursor {
    uint32_t instruction = 0, idle = 0; ///< and idle cells passed before it
  };
  std::vector<Cursor> cursors(order.ranks.size());
  bool more = true;
  for (int64_t step = 0; more; ++step) {
    more = false;
    for (size_t r = 0; r < cursors.size(); ++r) {
      Cursor &cursor = cursors[r];
      const auto &list = order.ranks[r].instructions;
      if (cursor.instruction == list.size())
        continue;
      more = true;
      uint32_t &idle = cells[r][cursor.instruction];
      if (cursor.idle < idle) {
        ++cursor.idle;
        continue;
      }
      const Instruction &inst = list[cursor.instruction];
      const bool isForward = inst.op == Op::Forward;
      if (isForward && inst.stage > 0 &&
          at(inst.stage - 1, inst.microbatch) >= step) {
        ++cursor.idle;
        ++idle;
        continue;
      }
      if (isForward)
        at(inst.stage, inst.microbatch) = step;
      cursor = {cursor.instruction + 1, 0};
    }
  }
}

/// The order of torch's class; micro-batches pass the chunks in groups of q.
Result<Program> orderOf(const Problem &problem, TorchSchedule schedule,
                        int64_t q) {
  switch (schedule) {
  case TorchSchedule::GPipe:
    return gpipe(problem);
  case TorchSchedule::OneForwardOneBackward:
    return oneForwardOneBackward(problem);
  case TorchSchedule::LoopedBFS:
    return breadthFirst(problem);
  case TorchSchedule::Interleaved1F1B:
    return interleaved1F1B(problem, static_cast<int32_t>(q));
  case TorchSchedule::InterleavedZeroBubble:
    return interleavedZB(problem, static_cast<int32_t>(q));
  case TorchSchedule::ZBVZeroBubble:
    return zbV(problem);
  case TorchSchedule::DualPipeV:
    return dualPipeV(problem);
  }
  return Failure{"unknown schedule"};
}

/// Whether the two are equal but for steps.
Status compare(const Program &order, const Program &wanted,
               TorchSchedule schedule) {
  for (size_t r = 0; r < order.ranks.size(); ++r) {
    const auto &list = order.ranks[r].instructions;
    auto next = wanted.ranks[r].instructions.begin();
    const auto end = wanted.ranks[r].instructions.end();
    uint32_t i = 0;
    for (; i < list.size(); ++i)
      if (list[i].op != Op::Step && (next == end || list[i] != *next++))
        break;
    if (i < list.size() || next != end)
      return Failure{"the order is not that of torch's " +
                         std::string(name(schedule)) +
                         ", whose idle cells are asked for; leave them out",
                     {static_cast<int32_t>(r), i}};
  }
  return success();
}

} // namespace

std::string_view penstock::name(TorchSchedule schedule) {
  static constexpr std::string_view names[] = {"GPipe",
                                               "1F1B",
                                               "LoopedBFS",
                                               "Interleaved1F1B",
                                               "InterleavedZeroBubble",
                                               "ZBVZeroBubble",
                                               "DualPipeV"};
  return names[static_cast<size_t>(schedule)];
}

Result<std::vector<std::vector<uint32_t>>>
penstock::torchIdleCells(const Program &order, TorchSchedule schedule) {
  const Problem &problem = order.problem;
  const int64_t p = problem.numRanks, m = problem.numMicrobatches,
                v = problem.numStages() / p, n = m * v;
  const int64_t q = m / std::max<int64_t>(1, m / p);
  Result<Program> wanted = orderOf(problem, schedule, q);
  if (!wanted)
    return wanted.failure();
  if (Status status = compare(order, *wanted, schedule); !status)
    return status.failure();
  std::vector<Row> cells;
  for (const RankProgram &rank : order.ranks)
    cells.emplace_back(rank.instructions.size() + 1, 0);
  if (schedule == TorchSchedule::OneForwardOneBackward ||
      schedule == TorchSchedule::DualPipeV)
    return cells;

  for (int64_t r = 0; r < p; ++r) {
    const auto &list = order.ranks[r].instructions;
    auto isBackward = [](const Instruction &inst) {
      return inst.op == Op::Backward || inst.op == Op::BackwardInput;
    };
    const auto firstBackward =
        std::find_if(list.begin(), list.end(), isBackward) - list.begin();
    Row &row = cells[r];
    row[0] += r;
    switch (schedule) {
    case TorchSchedule::GPipe:
      row[firstBackward] += 3 * (p - 1 - r);
      break;
    case TorchSchedule::LoopedBFS:
      row[firstBackward] += 2 * (p - 1 - r);
      break;
    case TorchSchedule::Interleaved1F1B:
    case TorchSchedule::InterleavedZeroBubble: {
      const bool splits = schedule == TorchSchedule::InterleavedZeroBubble;
      const int64_t w =
          std::min((v - 1) * q + (splits ? 1 : 2) * (p - 1 - r), n);
      row[w] += splits
                    ? p - 1 - r
                    : std::max<int64_t>(0, v * p + 2 * (p - 1 - r) - (w + r));
      for (int64_t k = splits ? 2 * n : 2 * n - w; k < 2 * n; ++k)
        row[k] += isBackward(list[k]);
      break;
    }
    default:
      break;
    }
  }
  if (schedule == TorchSchedule::InterleavedZeroBubble)
    alignForwards(order, cells);
  if (schedule == TorchSchedule::ZBVZeroBubble && m < 2 * p - 1) {
    Problem larger = problem;
    larger.numMicrobatches = static_cast<int32_t>(2 * p - 1);
    larger.weights.clear();
    wanted = zbV(larger);
    for (size_t r = 0; r < cells.size(); ++r)
      for (uint32_t k = 0;
           const Instruction &inst : wanted->ranks[r].instructions)
        if (inst.microbatch >= m)
          ++cells[r][k];
        else
          ++k;
  }
  return cells;
}
