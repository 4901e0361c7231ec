//===- TorchRules.h - torch's passes over schedules, for tests --*- C++ -*-===//
//
// How torch puts sends and receives into an order, and how it defers receives,
// written down from its rules, so that Penstock can judge what torch makes.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_TEST_UNIT_IMPORT_TORCHRULES_H
#define PENSTOCK_TEST_UNIT_IMPORT_TORCHRULES_H

#include "penstock/Import/TorchCsv.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

namespace penstock {

/// Rows of cells, each with what it is made of.
struct TorchCell {
  std::string text;
  std::vector<Instruction> parts;
};
using TorchRows = std::vector<std::vector<TorchCell>>;

inline std::string textOf(const TorchRows &rows) {
  std::string text;
  for (const auto &row : rows)
    for (size_t i = 0; i < row.size(); ++i)
      text += row[i].text + (i + 1 < row.size() ? ',' : '\n');
  return text;
}

/// Unshards the next `window` stages of a row before each cell and reshards the
/// others; reduces after the last weight gradient of a stage.
inline TorchRows insertShardingAsTorch(const Program &order,
                                       size_t window = 3) {
  TorchRows rows(order.problem.numRanks);
  for (int32_t r = 0; r < order.problem.numRanks; ++r) {
    const auto &insts = order.ranks[r].instructions;
    std::vector<int32_t> active, left(order.problem.numStages(), 0);
    auto emit = [&](int32_t stage, Op op) {
      Instruction inst;
      inst.op = op;
      inst.stage = stage;
      rows[r].push_back({torchText(inst), {inst}});
    };
    auto isIn = [](const std::vector<int32_t> &list, int32_t stage) {
      return std::find(list.begin(), list.end(), stage) != list.end();
    };
    auto countsWeights = [](const Instruction &inst) {
      return inst.op == Op::Backward || inst.op == Op::BackwardWeight;
    };
    for (const Instruction &inst : insts)
      left[inst.stage] += countsWeights(inst);
    for (uint32_t begin = 0, end; begin < insts.size(); begin = end) {
      end = itemEnd(insts, begin);
      std::vector<int32_t> next;
      for (uint32_t i = begin, e; i < insts.size() && next.size() < window;
           i = e) {
        e = itemEnd(insts, i);
        for (uint32_t k = i; k < e; ++k)
          if (!isIn(next, insts[k].stage))
            next.push_back(insts[k].stage);
      }
      for (int32_t stage : std::vector<int32_t>(active))
        if (!isIn(next, stage)) {
          emit(stage, Op::Reshard);
          std::erase(active, stage);
        }
      for (int32_t stage : next)
        if (!isIn(active, stage)) {
          emit(stage, Op::Unshard);
          active.push_back(stage);
        }
      rows[r].push_back({torchCell(order, {r, begin}),
                         {insts.begin() + begin, insts.begin() + end}});
      for (uint32_t i = begin; i < end; ++i)
        if (countsWeights(insts[i]) && --left[insts[i].stage] == 0)
          emit(insts[i].stage, Op::ReduceGrad);
    }
    for (int32_t stage : active)
      emit(stage, Op::Reshard);
  }
  return rows;
}

/// In rounds, each rank emits its next cell when its inputs are there; a cell
/// with a consumer on another rank is followed by a send, and the receive is
/// put into the other list at once.
inline TorchRows insertTransfersAsTorch(const TorchRows &cells,
                                        const Problem &problem) {
  const int32_t last = problem.numStages() - 1;
  TorchRows rows(problem.numRanks);
  std::vector<std::set<std::string>> emitted(problem.numRanks);
  std::vector<uint32_t> head(problem.numRanks, 0);
  auto name = [](int32_t stage, const char *op, int32_t mb) {
    return std::to_string(stage) + op + std::to_string(mb);
  };
  auto isReady = [&](const Instruction &inst,
                     const std::set<std::string> &has) {
    const int32_t s = inst.stage, mb = inst.microbatch;
    if (inst.op == Op::Forward)
      return s == 0 || has.contains(name(s, "RECV_F", mb)) ||
             has.contains(name(s - 1, "F", mb));
    if (inst.op != Op::Backward && inst.op != Op::BackwardInput)
      return true;
    return s == last || has.contains(name(s, "RECV_B", mb)) ||
           has.contains(name(s + 1, "B", mb)) ||
           has.contains(name(s + 1, "I", mb));
  };
  auto emit = [&](int32_t rank, TorchCell cell) {
    for (const Instruction &inst : cell.parts)
      emitted[rank].insert(torchText(inst));
    rows[rank].push_back(std::move(cell));
  };
  auto transfer = [&](int32_t from, int32_t to, const Instruction &producer) {
    Instruction inst;
    inst.op = Op::Send;
    inst.payload =
        producer.op == Op::Forward ? Payload::Activation : Payload::Gradient;
    inst.stage = producer.stage;
    inst.microbatch = producer.microbatch;
    inst.peer = to;
    emit(from, {torchText(inst), {inst}});
    inst.op = Op::Recv;
    inst.peer = from;
    emit(to, {torchText(inst), {inst}});
  };
  for (bool progress = true; progress;) {
    progress = false;
    for (int32_t r = 0; r < problem.numRanks; ++r) {
      if (head[r] == cells[r].size())
        continue;
      const TorchCell &cell = cells[r][head[r]];
      bool ready = true;
      for (const Instruction &inst : cell.parts)
        ready &= isReady(inst, emitted[r]);
      if (!ready)
        continue;
      emit(r, cell);
      ++head[r];
      progress = true;
      for (const Instruction &inst : cell.parts) {
        const bool forward = inst.op == Op::Forward;
        const int32_t to = inst.stage + (forward ? 1 : -1);
        if ((!forward && inst.op != Op::Backward &&
             inst.op != Op::BackwardInput) ||
            to < 0 || to > last)
          continue;
        if (const int32_t peer = problem.placement[to]; peer != r)
          transfer(r, peer, inst);
      }
    }
  }
  for (int32_t r = 0; r < problem.numRanks; ++r)
    EXPECT_EQ(head[r], cells[r].size());
  return rows;
}

/// The order with sends and receives only.
inline TorchRows insertTransfersAsTorch(const Program &order) {
  TorchRows cells(order.problem.numRanks);
  for (int32_t r = 0; r < order.problem.numRanks; ++r) {
    const auto &insts = order.ranks[r].instructions;
    for (uint32_t i = 0, end; i < insts.size(); i = end) {
      end = itemEnd(insts, i);
      cells[r].push_back(
          {torchCell(order, {r, i}), {insts.begin() + i, insts.begin() + end}});
    }
  }
  return insertTransfersAsTorch(cells, order.problem);
}
/// All that torch does to an order before it runs.
inline TorchRows lowerAsTorch(const Program &order) {
  return insertTransfersAsTorch(insertShardingAsTorch(order), order.problem);
}

/// Holds every receive back until just before its consumer, or until a send to
/// the same peer, if that has the higher rank (pytorch/pytorch#178815).
inline TorchRows deferReceivesAsTorch(const TorchRows &rows) {
  TorchRows result(rows.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    std::vector<TorchCell> held;
    auto release = [&](auto &&which) {
      std::vector<TorchCell> rest;
      for (TorchCell &cell : held)
        (which(cell.parts[0]) ? result[r] : rest).push_back(cell);
      held = std::move(rest);
    };
    for (const TorchCell &cell : rows[r]) {
      const Instruction &first = cell.parts[0];
      if (first.op == Op::Recv) {
        held.push_back(cell);
        continue;
      }
      if (first.op == Op::Send && int32_t(r) < first.peer)
        release(
            [&](const Instruction &recv) { return recv.peer == first.peer; });
      for (const Instruction &inst : cell.parts) {
        if (!isAction(inst.op) || inst.op == Op::BackwardWeight)
          continue;
        const bool forward = inst.op == Op::Forward;
        release([&](const Instruction &recv) {
          return recv.microbatch == inst.microbatch &&
                 recv.payload ==
                     (forward ? Payload::Activation : Payload::Gradient) &&
                 recv.stage == inst.stage + (forward ? -1 : 1);
        });
      }
      result[r].push_back(cell);
    }
  }
  return result;
}

} // namespace penstock

#endif // PENSTOCK_TEST_UNIT_IMPORT_TORCHRULES_H
