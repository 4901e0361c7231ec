//===- PathChecks.h - What a critical path promises -------------*- C++ -*-===//
//
// Checks a critical path link by link, without what it was found with.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_TEST_UNIT_SUPPORT_PATHCHECKS_H
#define PENSTOCK_TEST_UNIT_SUPPORT_PATHCHECKS_H

#include "penstock/Analysis/CriticalPath.h"
#include "penstock/Analysis/RunOrder.h"
#include "penstock/Analysis/Verify.h"

#include <gtest/gtest.h>
#include <set>

namespace penstock::test {

class PathCheck {
public:
  PathCheck(const Program &program, const Timing &timing)
      : program(program), timing(timing),
        matching(timing.ofOrder ? Matching() : matchTransfers(program)) {}

  /// The path leads from 0 to the makespan without a gap, along dependencies.
  void expectRight(const std::vector<CriticalStep> &path) {
    if (timing.makespan == 0)
      return;
    ASSERT_FALSE(path.empty());
    EXPECT_EQ(path.front().start, 0);
    EXPECT_EQ(path.back().end, timing.makespan);
    EXPECT_TRUE(isAction(inst(path.back().site).op));
    double length = 0;
    for (size_t k = 0; k < path.size(); ++k) {
      length += path[k].end - path[k].start;
      if (k > 0) {
        EXPECT_EQ(path[k].start, path[k - 1].end);
        EXPECT_TRUE(timing.ofOrder ? needs(path, k)
                                   : comesAfter(path[k - 1], path[k]))
            << k;
      }
    }
    EXPECT_NEAR(length, timing.makespan, 1e-9 * timing.makespan);
    const PathSummary summary = summarize(program, path);
    double actions = 0, stages = 0, links = 0;
    for (double time : summary.actions)
      actions += time;
    for (const PathSummary::Actions &stage : summary.stages)
      for (double time : stage)
        stages += time;
    for (const PathSummary::LinkTime &link : summary.links)
      links += link.time;
    EXPECT_NEAR(actions + summary.copies + summary.transfers, length,
                1e-9 * length);
    EXPECT_NEAR(stages, actions, 1e-9 * length);
    EXPECT_NEAR(links, summary.transfers, 1e-9 * length);
  }

private:
  using Place = std::pair<int32_t, uint32_t>;

  const Instruction &inst(Site site) const {
    return program.ranks[site.rank].instructions[site.instruction];
  }
  uint32_t headOf(Place place) const {
    while (program.ranks[place.first].instructions[place.second].joined)
      --place.second;
    return place.second;
  }

  /// All instructions that run in one step with this one.
  std::set<Place> stepOf(Site site) const {
    std::vector<Place> list = {{site.rank, site.instruction}};
    std::set<Place> members;
    while (!list.empty()) {
      const Place place = list.back();
      list.pop_back();
      if (!members.insert(place).second)
        continue;
      const auto &insts = program.ranks[place.first].instructions;
      const uint32_t head = headOf(place);
      for (uint32_t i = head; i < itemEnd(insts, head); ++i)
        list.emplace_back(place.first, i);
      const Instruction &one = insts[place.second];
      if (isTransfer(one.op)) {
        list.emplace_back(one.peer,
                          matching.partner[place.first][place.second]);
      } else if (isCollective(one.op)) {
        for (size_t r = 0; r < program.ranks.size(); ++r)
          for (uint32_t i = 0; i < program.ranks[r].instructions.size(); ++i)
            if (program.ranks[r].instructions[i].op == one.op &&
                timing.start[r][i] == timing.start[place.first][place.second])
              list.emplace_back(static_cast<int32_t>(r), i);
      }
    }
    return members;
  }

  /// In a program: on some rank by queue, communicator or wait.
  bool comesAfter(const CriticalStep &before, const CriticalStep &step) const {
    const std::set<Place> early = stepOf(before.site), late = stepOf(step.site);
    for (const Place &x : early)
      for (const Place &y : late) {
        if (x.first != y.first || x.second >= y.second)
          continue;
        const RankProgram &rank = program.ranks[x.first];
        const Instruction &a = rank.instructions[x.second];
        const Instruction &b = rank.instructions[y.second];
        if (a.queue == b.queue ||
            (usesComm(a.op) && usesComm(b.op) && a.comm == b.comm))
          return true;
        for (uint32_t w = 0; w < b.numWaits; ++w)
          if (early.count({x.first, rank.waits[b.firstWait + w]}))
            return true;
      }
    return false;
  }

  /// In an order: the action, or move of a stash, before on the rank, or an
  /// action whose result it needs, with a transfer between them.
  bool needs(const std::vector<CriticalStep> &path, size_t k) const {
    auto handsOver = [&](const CriticalStep &step) {
      return step.isTransfer() && isAction(inst(step.site).op);
    };
    if (handsOver(path[k]))
      return k + 1 < path.size() && path[k + 1].site == path[k].site &&
             path[k].source == path[k - 1].site.rank &&
             path[k].destination == path[k].site.rank;
    const Site site = path[k].site;
    const auto &list = program.ranks[site.rank].instructions;
    const bool moved = handsOver(path[k - 1]);
    if (path[k].isTransfer()) {
      EXPECT_EQ(path[k].source + path[k].destination,
                site.rank + inst(site).peer);
    }
    if (moved && k < 2) // a transfer of what took no time
      return true;
    const Site before = path[moved ? k - 2 : k - 1].site;
    if (before.rank == site.rank)
      return before.instruction < site.instruction && !moved;
    const OrderIndex index(program.problem);
    bool found = false;
    for (uint32_t i = site.instruction; i < itemEnd(list, site.instruction);
         ++i)
      forEachPredecessor(index, list[i], [&](size_t needed, int32_t stage) {
        const auto &others = program.ranks[before.rank].instructions;
        for (uint32_t j = before.instruction;
             j < itemEnd(others, before.instruction); ++j)
          found |= index.of(others[j]) == needed &&
                   timing.end[before.rank][j] +
                           handOverTime(program.problem, stage, list[i]) ==
                       path[k].start;
      });
    return found;
  }

  const Program &program;
  const Timing &timing;
  const Matching matching;
};

/// Checks the critical path, and that busy and waiting times add up, which they
/// do where a rank runs one action at a time.
inline void expectTimeAddsUp(const Program &program, const Timing &timing,
                             bool oneAtATime = true) {
  PathCheck(program, timing).expectRight(criticalPath(program, timing));
  const std::vector<RankWaiting> waiting = waitingTimes(program, timing);
  ASSERT_EQ(waiting.size(), program.ranks.size());
  for (size_t r = 0; r < waiting.size(); ++r) {
    const RankWaiting &rank = waiting[r];
    EXPECT_GE(rank.first, 0);
    EXPECT_GE(rank.transfers, 0);
    EXPECT_GE(rank.others, -1e-9 * timing.makespan);
    EXPECT_GE(rank.end, 0);
    if (oneAtATime) {
      EXPECT_NEAR(timing.ranks[r].busy + rank.first + rank.transfers +
                      rank.others + rank.end,
                  timing.makespan, 1e-9 * timing.makespan)
          << r;
    }
  }
}

} // namespace penstock::test

#endif // PENSTOCK_TEST_UNIT_SUPPORT_PATHCHECKS_H
