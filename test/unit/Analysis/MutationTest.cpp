//===- MutationTest.cpp - Right programs, broken in each way --------------===//
//
// Every single change of a right 1F1B program must be refused, or leave a
// program that is right as well. What "right as well" means is decided here
// without the verifier: by running the program and following its tensors.
//
//===----------------------------------------------------------------------===//

#include "Build.h"

#include "penstock/Analysis/Interpret.h"
#include "penstock/Analysis/Verify.h"
#include "penstock/Program/Text.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

using namespace penstock;
using namespace penstock::test;

namespace {

struct Mutation {
  const char *name;
  /// Changes the program at the site; false if it does not apply there.
  std::function<bool(Program &, Site)> apply;
  /// Whether it may leave a right program.
  bool mayBeRight = false;
};

std::vector<Instruction> &instructions(Program &program, Site site) {
  return program.ranks[site.rank].instructions;
}

/// Gives every instruction its waits again, in canonical form, after
/// instructions have moved: `from[i]` is the old index of the new i.
void renumber(RankProgram &rank, const RankProgram &old,
              const std::vector<uint32_t> &from) {
  std::vector<uint32_t> to(old.instructions.size(), kNoInstruction);
  for (uint32_t i = 0; i < from.size(); ++i)
    if (to[from[i]] == kNoInstruction)
      to[from[i]] = i;
  rank.waits.clear();
  rank.instructions.clear();
  for (uint32_t i = 0; i < from.size(); ++i) {
    Instruction inst = old.instructions[from[i]];
    const uint32_t first = inst.firstWait, count = inst.numWaits;
    inst.firstWait = inst.numWaits = 0;
    for (uint32_t w = 0; w < count && !inst.joined; ++w) {
      const uint32_t target = to[old.waits[first + w]];
      if (target >= i)
        continue; // gone, or later now
      if (inst.numWaits++ == 0)
        inst.firstWait = static_cast<uint32_t>(rank.waits.size());
      rank.waits.push_back(target);
    }
    rank.instructions.push_back(inst);
  }
}

const Mutation kMutations[] = {
    {"drop",
     [](Program &program, Site site) {
       RankProgram &rank = program.ranks[site.rank];
       const RankProgram old = rank;
       if (old.instructions[site.instruction].op == Op::Step)
         return false;
       std::vector<uint32_t> from;
       for (uint32_t i = 0; i < old.instructions.size(); ++i)
         if (i != site.instruction)
           from.push_back(i);
       renumber(rank, old, from);
       if (site.instruction < rank.instructions.size() &&
           rank.instructions[site.instruction].joined &&
           !old.instructions[site.instruction].joined)
         rank.instructions[site.instruction].joined = false;
       return true;
     }},
    {"duplicate",
     [](Program &program, Site site) {
       RankProgram &rank = program.ranks[site.rank];
       const RankProgram old = rank;
       if (old.instructions[site.instruction].op == Op::Step)
         return false;
       std::vector<uint32_t> from;
       for (uint32_t i = 0; i < old.instructions.size(); ++i)
         from.insert(from.end(), i == site.instruction ? 2 : 1, i);
       renumber(rank, old, from);
       return true;
     }},
    {"swap neighbours",
     [](Program &program, Site site) {
       RankProgram &rank = program.ranks[site.rank];
       const RankProgram old = rank;
       const uint32_t i = site.instruction;
       if (i + 1 == old.instructions.size())
         return false;
       std::vector<uint32_t> from(old.instructions.size());
       for (uint32_t k = 0; k < from.size(); ++k)
         from[k] = k;
       std::swap(from[i], from[i + 1]);
       for (uint32_t k : {i, i + 1}) // whole items only
         if (old.instructions[k].joined ||
             (k + 1 < from.size() && old.instructions[k + 1].joined))
           return false;
       renumber(rank, old, from);
       return true;
     },
     true},
    {"retarget",
     [](Program &program, Site site) {
       Instruction &inst = instructions(program, site)[site.instruction];
       if (!isTransfer(inst.op))
         return false;
       do
         inst.peer = (inst.peer + 1) % program.problem.numRanks;
       while (inst.peer == site.rank);
       return true;
     }},
    {"change micro-batch",
     [](Program &program, Site site) {
       Instruction &inst = instructions(program, site)[site.instruction];
       if (inst.microbatch < 0)
         return false;
       inst.microbatch =
           (inst.microbatch + 1) % program.problem.numMicrobatches;
       return true;
     }},
    {"change payload",
     [](Program &program, Site site) {
       Instruction &inst = instructions(program, site)[site.instruction];
       if (!isTransfer(inst.op))
         return false;
       inst.payload = inst.payload == Payload::Activation ? Payload::Gradient
                                                          : Payload::Activation;
       return true;
     }},
    {"change bytes",
     [](Program &program, Site site) {
       Instruction &inst = instructions(program, site)[site.instruction];
       inst.bytes += 8;
       return isTransfer(inst.op);
     }},
    {"split a group",
     [](Program &program, Site site) {
       return std::exchange(
           instructions(program, site)[site.instruction].joined, false);
     }},
    {"remove a wait",
     [](Program &program, Site site) {
       RankProgram &rank = program.ranks[site.rank];
       if (rank.instructions[site.instruction].numWaits == 0)
         return false;
       const RankProgram old = rank;
       std::vector<uint32_t> from(old.instructions.size());
       for (uint32_t k = 0; k < from.size(); ++k)
         from[k] = k;
       RankProgram less = old;
       --less.instructions[site.instruction].numWaits;
       renumber(rank, less, from);
       return true;
     },
     true},
    {"reuse a slot",
     [](Program &program, Site site) {
       Instruction &inst = instructions(program, site)[site.instruction];
       RankProgram &rank = program.ranks[site.rank];
       for (int32_t &slot : inst.slots)
         if (slot != kNoSlot && rank.slotBytes.size() > 1) {
           slot = (slot + 1) % static_cast<int32_t>(rank.slotBytes.size());
           return true;
         }
       return false;
     },
     true},
    {"another slot of the same size",
     [](Program &program, Site site) {
       Instruction &inst = instructions(program, site)[site.instruction];
       if (inst.slots[Stash] == kNoSlot)
         return false;
       inst.slots[Stash] -= 1;
       return inst.slots[Stash] >= 0;
     },
     true},
};

//===----------------------------------------------------------------------===//
// An oracle of data flow: all pairs of instructions of a rank, by definition
//===----------------------------------------------------------------------===//

/// before[a][b]: a has ended when b starts.
std::vector<std::vector<bool>> happensBefore(const RankProgram &rank) {
  const auto &insts = rank.instructions;
  const size_t n = insts.size();
  std::vector<size_t> head(n);
  for (size_t i = 0; i < n; ++i)
    head[i] = insts[i].joined ? head[i - 1] : i;
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n));
  auto direct = [&](size_t a, size_t b) {
    if (insts[a].queue == insts[b].queue)
      return true;
    if (usesComm(insts[a].op) && usesComm(insts[b].op) &&
        insts[a].comm == insts[b].comm)
      return true;
    const Instruction &first = insts[head[b]];
    for (size_t w = 0; w < first.numWaits; ++w)
      if (head[rank.waits[first.firstWait + w]] == head[a])
        return true;
    return false;
  };
  for (size_t b = 0; b < n; ++b)
    for (size_t a = head[b]; a-- > 0;) {
      bool ordered = false;
      for (size_t x = 0; x < n && !ordered; ++x) // any member of either item
        ordered = head[x] == head[a] && direct(x, b);
      for (size_t y = head[b]; y < n && head[y] == head[b] && !ordered; ++y)
        ordered = direct(a, y);
      for (size_t c = a + 1; c < head[b] && !ordered; ++c)
        ordered = before[a][c] && before[c][b];
      before[a][b] = ordered;
    }
  return before;
}

/// Every read finds its tensor and nothing touches a slot at the same time.
bool flowsRight(const Program &program) {
  for (const RankProgram &rank : program.ranks) {
    const auto before = happensBefore(rank);
    struct Touch {
      size_t inst;
      Access access;
      int32_t slot;
    };
    std::vector<Touch> touches;
    for (size_t i = 0; i < rank.instructions.size(); ++i)
      forEachAccess(rank.instructions[i], program.problem.numStages(),
                    [&](const Access &access) {
                      touches.push_back(
                          {i, access, rank.instructions[i].slots[access.role]});
                    });
    for (size_t t = 0; t < touches.size(); ++t) {
      const Touch &own = touches[t];
      const Touch *last = nullptr; // the last write before
      for (size_t u = 0; u < t; ++u) {
        const Touch &other = touches[u];
        if (other.slot != own.slot)
          continue;
        if (other.access.mode == Access::Read &&
            own.access.mode == Access::Read)
          continue;
        if (!before[other.inst][own.inst])
          return false;
        if (other.access.mode != Access::Read)
          last = &other;
      }
      if (own.access.mode != Access::Write &&
          (!last || !(last->access.tensor == own.access.tensor)))
        return false;
      if (own.access.mode != Access::Read &&
          rank.slotBytes[own.slot] <
              bytesOf(program.problem, own.access.tensor))
        return false;
    }
    for (size_t i = 0; i < rank.instructions.size(); ++i) // before the step
      for (size_t k = 0; k < rank.instructions.size(); ++k)
        if (rank.instructions[k].op == Op::Step &&
            rank.instructions[i].op == Op::Backward && !before[i][k])
          return false;
  }
  return true;
}

bool endsMatch(const Program &program) {
  const Matching matching = matchTransfers(program);
  for (size_t r = 0; r < program.ranks.size(); ++r)
    for (size_t i = 0; i < program.ranks[r].instructions.size(); ++i) {
      const Instruction &a = program.ranks[r].instructions[i];
      if (!isTransfer(a.op))
        continue;
      if (matching.partner[r][i] == kNoInstruction)
        return false;
      const Instruction &b =
          program.ranks[a.peer].instructions[matching.partner[r][i]];
      if (a.payload != b.payload || a.stage != b.stage ||
          a.microbatch != b.microbatch || a.bytes != b.bytes)
        return false;
    }
  return true;
}

TEST(Mutation, RefusedOrRightAsWell) {
  const Program right = oneForwardOneBackward(3, 4, true);
  ASSERT_TRUE(verify(right).accepted());
  ASSERT_TRUE(flowsRight(right) && endsMatch(right));
  for (const Mutation &mutation : kMutations) {
    size_t applied = 0, refused = 0;
    for (int32_t r = 0; r < 3; ++r)
      for (uint32_t i = 0; i < right.ranks[r].instructions.size(); ++i) {
        Program broken = right;
        if (!mutation.apply(broken, {r, i}) || broken == right)
          continue;
        ++applied;
        const Verdict verdict = verify(broken);
        const bool isRight = mutation.mayBeRight && endsMatch(broken) &&
                             interpret(broken, Semantics::Closure).finished &&
                             flowsRight(broken);
        EXPECT_EQ(verdict.accepted(), isRight)
            << mutation.name << " at " << describe(right, {r, i}) << "\n"
            << (verdict.accepted() ? "" : verdict.findings[0].message);
        EXPECT_EQ(verdict.deadlockFree,
                  interpret(broken, Semantics::Closure).finished);
        refused += !verdict.accepted();
      }
    EXPECT_GT(applied, 0u) << mutation.name;
    EXPECT_GT(refused, 0u) << mutation.name;
    EXPECT_TRUE(mutation.mayBeRight || applied == refused) << mutation.name;
  }
}

} // namespace
