//===- MutationTest.cpp - Right programs, broken in each way --------------===//
//
// Takes programs of every family, lowered in every way, and changes one thing
// in each way. The verifier must refuse the mutant if, and only if, the oracle
// finds something wrong with it: a mutant that it accepts and the oracle does
// not has survived. The score is printed.
//
// PENSTOCK_MUTANTS=100000 makes so many; PENSTOCK_SEED chooses others.
//
//===----------------------------------------------------------------------===//

#include "../Support/FamilyChecks.h"
#include "Testing/Oracle.h"

#include "penstock/Analysis/Verify.h"
#include "penstock/Lowering/Lowering.h"
#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"
#include "penstock/Schedule/Schedule.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <map>
#include <random>
#include <utility>

using namespace penstock;
using namespace penstock::test;

namespace {

class Random {
public:
  explicit Random(uint64_t seed) : engine(seed) {}
  /// 0 .. n-1
  uint32_t below(size_t n) { return static_cast<uint32_t>(engine() % n); }
  bool chance(size_t n) { return below(n) == 0; }

private:
  std::mt19937_64 engine;
};

//===----------------------------------------------------------------------===//
// Lists in a form that is easy to change
//===----------------------------------------------------------------------===//

/// One instruction and the ones it waits for, by their number before the
/// change.
struct Line {
  Instruction inst;
  uint32_t id;
  std::vector<uint32_t> waits;
};
using Lines = std::vector<Line>;

Lines linesOf(const RankProgram &rank) {
  Lines lines;
  for (const Instruction &inst : rank.instructions) {
    const auto first = rank.waits.begin() + inst.firstWait;
    lines.push_back({inst,
                     static_cast<uint32_t>(lines.size()),
                     {first, first + inst.numWaits}});
  }
  return lines;
}

/// Writes lines back. Waits for what is gone or comes later now are dropped.
void assign(RankProgram &rank, const Lines &lines) {
  rank.instructions.clear();
  rank.waits.clear();
  std::map<uint32_t, uint32_t> indexOf;
  for (const Line &line : lines) {
    const auto i = static_cast<uint32_t>(rank.instructions.size());
    Instruction inst = line.inst;
    inst.joined &= i > 0;
    inst.firstWait = inst.numWaits = 0;
    for (uint32_t id : line.waits)
      if (auto found = indexOf.find(id);
          found != indexOf.end() && !inst.joined) {
        if (inst.numWaits++ == 0)
          inst.firstWait = static_cast<uint32_t>(rank.waits.size());
        rank.waits.push_back(found->second);
      }
    indexOf.emplace(line.id, i);
    rank.instructions.push_back(inst);
  }
}

/// The first lines of all items, and the end.
std::vector<size_t> headsOf(const Lines &lines) {
  std::vector<size_t> heads;
  for (size_t i = 0; i < lines.size(); ++i)
    if (!lines[i].inst.joined)
      heads.push_back(i);
  heads.push_back(lines.size());
  return heads;
}

//===----------------------------------------------------------------------===//
// Programs to break
//===----------------------------------------------------------------------===//

Result<Program> interleaved(const Problem &problem) {
  return interleaved1F1B(problem);
}
Result<Program> zeroBubbleInterleaved(const Problem &problem) {
  return interleavedZB(problem);
}
Result<Program> shortWarmUp(const Problem &problem) { return gis(problem); }
Result<Program> allForwardFirst(const Problem &problem) {
  return gpipe(problem);
}
Result<Program> oneByOne(const Problem &problem) {
  return oneForwardOneBackward(problem);
}

Result<Program> doubleBuffered(const Problem &problem) {
  return pipeDream2BW(problem);
}

enum class Placement { One, Sliced, Loop, Snake, BothWays };
struct Source {
  const char *name;
  Result<Program> (*generate)(const Problem &);
  Placement placement;
};
constexpr Source kSources[] = {
    {"naive", naive, Placement::One},
    {"naive in a V", naive, Placement::Snake},
    {"naive both ways", naive, Placement::BothWays},
    {"gpipe", allForwardFirst, Placement::One},
    {"one_f_one_b", oneByOne, Placement::One},
    {"bpipe", bPipe, Placement::One},
    {"pipedream", pipeDream, Placement::One},
    {"pipedream_2bw", doubleBuffered, Placement::One},
    {"seq_1f1b", seq1F1B, Placement::Sliced},
    {"zb_h1", zbH1, Placement::One},
    {"zb_h2", zbH2, Placement::One},
    {"interleaved_1f1b", interleaved, Placement::Loop},
    {"breadth_first", breadthFirst, Placement::Loop},
    {"interleaved_zb", zeroBubbleInterleaved, Placement::Loop},
    {"gis", shortWarmUp, Placement::Loop},
    {"zb_v", zbV, Placement::Snake},
    {"dualpipe_v", dualPipeV, Placement::Snake},
    {"dualpipe", dualPipe, Placement::BothWays},
    {"chimera", chimera, Placement::BothWays},
};

Problem problemOf(Placement placement, int32_t p, int32_t m) {
  Problem problem = placement == Placement::One        ? pipeline(p, m)
                    : placement == Placement::Loop     ? loopedPipeline(p, 2, m)
                    : placement == Placement::Snake    ? snake(p, 2, m)
                    : placement == Placement::BothWays ? bothWays(p, m)
                                                       : pipeline(p, m);
  if (placement == Placement::Sliced)
    setSlices(problem, 2);
  for (int32_t s = 0; s < problem.numStages(); ++s)
    problem.stages[s].bytes = {s % 3 == 2 ? 8 : 16, s % 2 ? 64 : 32, 10, 10, 0};
  return problem;
}

/// R before every B, or I; the stash of F is not kept.
void recompute(Program &order) {
  for (RankProgram &rank : order.ranks) {
    Lines lines;
    for (const Line &line : linesOf(rank)) {
      const Op op = line.inst.op;
      if ((op == Op::Backward || op == Op::BackwardInput) &&
          !line.inst.joined) {
        lines.push_back(line);
        lines.back().inst.op = Op::Recompute;
      }
      lines.push_back(line);
    }
    assign(rank, lines);
  }
}

/// Every stage is gathered first and dropped last, its gradients are reduced
/// before the step, and all ranks meet.
void shardStages(Program &program) {
  for (int32_t r = 0; r < program.problem.numRanks; ++r) {
    auto &list = program.ranks[r].instructions;
    std::vector<Instruction> first, last;
    for (int32_t s = 0; s < program.problem.numStages(); ++s) {
      const auto &placement = program.problem.placement;
      bool isHere = false;
      for (size_t k = s; k < placement.size(); k += program.problem.numStages())
        isHere |= placement[k] == r;
      if (!isHere)
        continue;
      Instruction inst;
      inst.stage = s;
      inst.op = Op::Unshard;
      first.push_back(inst);
      inst.op = Op::ReduceGrad;
      last.push_back(inst);
      inst.op = Op::Reshard;
      last.push_back(inst);
    }
    Instruction barrier;
    barrier.op = Op::Barrier;
    barrier.comm = 2;
    last.push_back(barrier);
    list.insert(list.begin(), first.begin(), first.end());
    auto step =
        std::find_if(list.begin(), list.end(), [](const Instruction &i) {
          return i.op == Op::Step || i.op == Op::ReduceState;
        });
    if (movesState(*std::prev(step)))
      --step;
    list.insert(step, last.begin(), last.end());
  }
}

/// Every second stash spends the time between F and B, or I, in host memory.
void offloadStashes(Program &program) {
  for (RankProgram &rank : program.ranks) {
    Lines lines;
    for (const Line &line : linesOf(rank)) {
      Line moved = line;
      const Op op = line.inst.op;
      const bool moves = line.inst.microbatch % 2 == 0 && isAction(op);
      if (moves && (op == Op::Backward || op == Op::BackwardInput) &&
          !line.inst.joined) {
        moved.inst.op = Op::Reload;
        lines.push_back(moved);
        lines.push_back(line);
        continue;
      }
      lines.push_back(line);
    }
    // Behind the item of F.
    const std::vector<size_t> heads = headsOf(lines);
    Lines all;
    for (size_t k = 0; k + 1 < heads.size(); ++k) {
      all.insert(all.end(), lines.begin() + heads[k],
                 lines.begin() + heads[k + 1]);
      for (size_t i = heads[k]; i < heads[k + 1]; ++i) {
        Line moved = lines[i];
        moved.inst.op = Op::Offload;
        moved.inst.joined = false;
        const bool reloads =
            std::any_of(lines.begin(), lines.end(), [&](const Line &line) {
              return line.inst.op == Op::Reload &&
                     line.inst.stage == moved.inst.stage &&
                     line.inst.microbatch == moved.inst.microbatch;
            });
        if (lines[i].inst.op == Op::Forward && reloads)
          all.push_back(moved);
      }
    }
    assign(rank, all);
  }
}

/// Gradients on a communicator, and if alone in their item a queue, of their
/// own.
void spreadTransfers(Program &program) {
  for (RankProgram &rank : program.ranks)
    for (uint32_t i = 0; i < rank.instructions.size(); ++i) {
      Instruction &inst = rank.instructions[i];
      if (!isTransfer(inst.op) || inst.payload != Payload::Gradient)
        continue;
      inst.comm = 1;
      if (!inst.joined && itemEnd(rank.instructions, i) == i + 1)
        inst.queue = 2;
    }
}

struct Base {
  std::string name;
  Program program;
};

Base makeBase(Random &random) {
  for (;;) {
    const Source &source = kSources[random.below(std::size(kSources))];
    // Fewer ranks or micro-batches move no stash.
    const bool movesStashes = source.generate == bPipe;
    const auto p = static_cast<int32_t>((movesStashes ? 4 : 2) +
                                        random.below(movesStashes ? 2 : 3));
    const auto m =
        static_cast<int32_t>((movesStashes ? 4 : 1) + random.below(5));
    Problem problem = problemOf(source.placement, p, m);
    // Its sum is for the whole batch: no step on the way.
    const bool isTied = random.chance(3) && source.generate != pipeDream &&
                        source.generate != doubleBuffered;
    if (isTied)
      problem.tied = {{{0, problem.numStages() - 1}, 24}};
    problem.postValidation = random.chance(3) && source.generate != pipeDream &&
                             source.generate != doubleBuffered;
    Result<Program> made = source.generate(problem);
    if (!made)
      continue; // too few micro-batches, an odd number of ranks
    Base base{std::string(source.name) + (isTied ? ", tied" : "") +
                  (problem.postValidation ? ", validated" : ""),
              std::move(*made)};
    Program &program = base.program;
    base.name += ", p " + std::to_string(p) + ", m " + std::to_string(m);
    auto variant = [&](bool on, const char *name) {
      if (on)
        base.name += std::string(", ") + name;
      return on;
    };
    if (variant(random.chance(3), "split"))
      splitBackward(program);
    if (variant(random.chance(5), "recompute"))
      recompute(program);
    appendSteps(program);
    TransferOptions transfers;
    transfers.group = !variant(random.chance(3), "ungrouped");
    EXPECT_TRUE(insertTransfers(program, transfers)) << base.name;
    const bool stepsOnTheWay = std::any_of(
        program.ranks[0].instructions.begin(),
        program.ranks[0].instructions.end(), [](const Instruction &inst) {
          return inst.op == Op::Step && inst.microbatch >= 0;
        });
    if (!stepsOnTheWay && variant(random.chance(4), "sharded"))
      shardStages(program);
    const bool planned = variant(!random.chance(4), "planned");
    if (!movesStashes && variant(random.chance(3), "offloaded"))
      offloadStashes(program);
    if (!planned)
      return base;
    if (variant(random.chance(2), "several queues"))
      spreadTransfers(program);
    if (variant(random.chance(3), "W beside"))
      for (RankProgram &rank : program.ranks)
        for (uint32_t i = 0; i < rank.instructions.size(); ++i)
          if (rank.instructions[i].op == Op::BackwardWeight &&
              !rank.instructions[i].joined &&
              itemEnd(rank.instructions, i) == i + 1)
            rank.instructions[i].queue = 3;
    BufferOptions buffers;
    if (variant(random.chance(4), "one queue"))
      buffers.transferQueue = 0;
    EXPECT_TRUE(planBuffers(program, buffers)) << base.name;
    // As much memory as the fullest rank needs.
    if (const auto timing = simulateProgram(program))
      for (const RankTiming &rank : timing->ranks)
        program.problem.memory =
            std::max(program.problem.memory, rank.peakBytes);
    return base;
  }
}

//===----------------------------------------------------------------------===//
// Ways to break them
//===----------------------------------------------------------------------===//

/// What a mutation works on: a rank, an instruction of it, and chance.
struct Target {
  Program &program;
  RankProgram &rank;
  uint32_t i;
  Random &random;

  Instruction &inst() const { return rank.instructions[i]; }
  /// The line at `i`, with all others, to be changed and written back.
  template <typename Fn>
  bool change(Fn &&fn) const {
    Lines lines = linesOf(rank);
    if (!fn(lines))
      return false;
    assign(rank, lines);
    return true;
  }
  /// Another value than `old` of 0 .. n-1, where there is one.
  int32_t other(int32_t old, int32_t n) const {
    return n < 2 ? old
                 : static_cast<int32_t>((old + 1 + random.below(n - 1)) % n);
  }
};

struct Mutation {
  const char *name;
  bool (*apply)(const Target &);
  /// Lowered programs may survive all of these: their groups have one transfer
  /// a direction, and they run in host order, so that waits do no harm.
  bool isHarmless = false;
};

constexpr Mutation kMutations[] = {
    {"drop",
     [](const Target &t) {
       return t.change([&](Lines &lines) {
         if (t.i + 1 < lines.size() && lines[t.i + 1].inst.joined &&
             !lines[t.i].inst.joined) { // The next one begins the item.
           lines[t.i + 1].inst.joined = false;
           lines[t.i + 1].waits = lines[t.i].waits;
         }
         lines.erase(lines.begin() + t.i);
         return true;
       });
     }},
    {"duplicate",
     [](const Target &t) {
       return t.change([&](Lines &lines) {
         Line copy = lines[t.i];
         copy.inst.joined |=
             t.i + 1 < lines.size() && lines[t.i + 1].inst.joined;
         lines.insert(lines.begin() + t.i + 1, copy);
         return true;
       });
     }},
    {"swap neighbours",
     [](const Target &t) {
       return t.change([&](Lines &lines) {
         const std::vector<size_t> heads = headsOf(lines);
         if (heads.size() < 3)
           return false;
         const size_t k = t.random.below(heads.size() - 2);
         std::rotate(lines.begin() + heads[k], lines.begin() + heads[k + 1],
                     lines.begin() + heads[k + 2]);
         return true;
       });
     }},
    {"swap in a group",
     [](const Target &t) {
       if (!t.inst().joined)
         return false;
       std::swap(t.rank.instructions[t.i - 1], t.inst());
       std::swap(t.rank.instructions[t.i - 1].joined, t.inst().joined);
       std::swap(t.rank.instructions[t.i - 1].numWaits, t.inst().numWaits);
       std::swap(t.rank.instructions[t.i - 1].firstWait, t.inst().firstWait);
       return true;
     },
     true},
    {"move an item",
     [](const Target &t) {
       return t.change([&](Lines &lines) {
         const std::vector<size_t> heads = headsOf(lines);
         const size_t from = t.random.below(heads.size() - 1);
         const size_t to = t.random.below(heads.size() - 1);
         const auto at = [&](size_t k) { return lines.begin() + heads[k]; };
         if (from < to)
           std::rotate(at(from), at(from + 1), at(to + 1));
         else
           std::rotate(at(to), at(from), at(from + 1));
         return true;
       });
     }},
    {"retarget",
     [](const Target &t) {
       if (!usesComm(t.inst().op))
         return false;
       const bool isSet = isCollective(t.inst().op);
       const auto n = static_cast<int32_t>(isSet ? t.program.rankSets.size() + 1
                                                 : t.program.ranks.size());
       t.inst().peer = t.other(t.inst().peer + isSet, n) - isSet;
       return true;
     }},
    {"change stage",
     [](const Target &t) {
       if (t.inst().stage < 0)
         return false;
       t.inst().stage = t.other(t.inst().stage, t.program.problem.numStages());
       return true;
     }},
    {"change micro-batch",
     [](const Target &t) {
       if (t.inst().microbatch < 0)
         return false;
       t.inst().microbatch =
           t.other(t.inst().microbatch, t.program.problem.numMicrobatches);
       return true;
     }},
    {"change op",
     [](const Target &t) {
       Instruction &inst = t.inst();
       const int32_t op = isTransfer(inst.op)
                              ? (inst.op == Op::Send ? 6 : 5)
                              : t.other(static_cast<int32_t>(inst.op), kNumOps);
       inst.op = static_cast<Op>(op);
       return true;
     }},
    {"change payload",
     [](const Target &t) {
       if (!isTransfer(t.inst().op))
         return false;
       t.inst().payload = static_cast<Payload>(
           1 + t.other(static_cast<int32_t>(t.inst().payload) - 1,
                       kNumPayloads - 1));
       return true;
     }},
    {"change bytes",
     [](const Target &t) {
       t.inst().bytes += t.random.chance(2) ? 8 : -8;
       return usesComm(t.inst().op);
     }},
    {"split a group",
     [](const Target &t) { return std::exchange(t.inst().joined, false); }},
    {"join neighbours",
     [](const Target &t) {
       return t.change([&](Lines &lines) {
         Line &line = lines[t.i];
         if (t.i == 0 || std::exchange(line.inst.joined, true) ||
             line.inst.queue != lines[t.i - 1].inst.queue)
           return false;
         size_t head = t.i - 1;
         while (lines[head].inst.joined)
           --head;
         for (uint32_t wait : line.waits)
           if (wait < head)
             lines[head].waits.push_back(wait);
         return true;
       });
     }},
    {"remove a wait",
     [](const Target &t) {
       return t.change([&](Lines &lines) {
         auto &waits = lines[t.i].waits;
         if (waits.empty())
           return false;
         waits.erase(waits.begin() + t.random.below(waits.size()));
         return true;
       });
     }},
    {"add a wait",
     [](const Target &t) {
       return t.change([&](Lines &lines) {
         if (t.i == 0 || lines[t.i].inst.joined)
           return false;
         lines[t.i].waits.push_back(t.random.below(t.i));
         return true;
       });
     },
     true},
    {"reuse a slot",
     [](const Target &t) {
       int32_t &slot = t.inst().slots[t.random.below(4)];
       if (slot == kNoSlot)
         return false;
       const bool inHost =
           movesToHost(t.inst()) && &slot == &t.inst().slots[Host];
       slot = t.other(slot,
                      static_cast<int32_t>(inHost ? t.rank.hostSlotBytes.size()
                                                  : t.rank.slotBytes.size()));
       return true;
     }},
    {"take a slot away",
     [](const Target &t) {
       return std::exchange(t.inst().slots[t.random.below(4)], kNoSlot) !=
              kNoSlot;
     }},
    {"change queue",
     [](const Target &t) {
       if (t.inst().joined)
         return false;
       const auto queue = static_cast<uint8_t>(t.other(t.inst().queue, 5));
       const uint32_t end = itemEnd(t.rank.instructions, t.i);
       for (uint32_t k = t.i; k < end; ++k)
         t.rank.instructions[k].queue = queue;
       return true;
     }},
    {"change comm",
     [](const Target &t) {
       t.inst().comm = static_cast<uint16_t>(t.other(t.inst().comm, 4));
       return usesComm(t.inst().op);
     }},
    {"change slot size",
     [](const Target &t) {
       const bool inHost = t.random.chance(2) && !t.rank.hostSlotBytes.empty();
       std::vector<int64_t> &sizes =
           inHost ? t.rank.hostSlotBytes : t.rank.slotBytes;
       if (sizes.empty())
         return false;
       int64_t &bytes = sizes[t.random.below(sizes.size())];
       constexpr int64_t kChanges[] = {-1, 1, 256, -32};
       bytes = std::max<int64_t>(0, bytes + kChanges[t.random.below(4)]);
       return true;
     }},
};

/// All collectives name a rank set that there is.
bool haveSets(const Program &program) {
  const auto numSets = static_cast<int32_t>(program.rankSets.size());
  for (const RankProgram &rank : program.ranks)
    for (const Instruction &inst : rank.instructions)
      if (isCollective(inst.op) && (inst.peer < -1 || inst.peer >= numSets))
        return false;
  return true;
}

struct Score {
  size_t killed = 0, equivalent = 0, survived = 0, wronglyRefused = 0;
};

size_t numberFrom(const char *variable, size_t byDefault) {
  const char *text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : byDefault;
}

TEST(Mutation, RefusedOrRightAsWell) {
  const size_t count = numberFrom("PENSTOCK_MUTANTS", 4000);
  const size_t seed = numberFrom("PENSTOCK_SEED", 1);
  constexpr size_t kPerBase = 40;
  constexpr size_t kNumKinds = std::size(kMutations);
  Random random(seed);
  std::array<Score, kNumKinds> scores;
  Base base;
  for (size_t made = 0, tries = 0; made < count; ++tries) {
    if (tries % kPerBase == 0) {
      base = makeBase(random);
      const Verdict verdict = verify(base.program);
      ASSERT_TRUE(verdict.accepted())
          << base.name << ": " << verdict.findings[0].message;
      ASSERT_TRUE(isRight(base.program)) << base.name;
    }
    const size_t kind = tries % kNumKinds;
    Program mutant = base.program;
    const auto r = static_cast<int32_t>(random.below(mutant.ranks.size()));
    const uint32_t i = random.below(mutant.ranks[r].instructions.size());
    if (!kMutations[kind].apply({mutant, mutant.ranks[r], i, random}))
      continue;
    if (!mutant.rankSets.empty() && haveSets(mutant))
      numberRankSets(mutant);
    if (mutant == base.program)
      continue;
    ++made;
    const Verdict verdict = verify(mutant);
    const bool right = isRight(mutant);
    Score &score = scores[kind];
    ++(verdict.accepted() ? right ? score.equivalent : score.survived
       : right            ? score.wronglyRefused
                          : score.killed);
    EXPECT_EQ(verdict.accepted(), right)
        << base.name << ": " << kMutations[kind].name << " at "
        << describe(base.program, {r, i}) << ", mutant " << made << "\n"
        << (verdict.accepted() ? "accepted" : verdict.findings[0].message)
        << '\n'
        << dump(mutant);
    if (HasFailure() && score.survived + score.wronglyRefused > 3)
      FAIL() << "see above";
  }

  std::cout << std::left << std::setw(20) << "mutation" << std::right
            << std::setw(9) << "killed" << std::setw(12) << "equivalent"
            << std::setw(10) << "survived" << std::setw(17) << "wrongly refused"
            << '\n';
  auto print = [](const char *name, const Score &score) {
    std::cout << std::left << std::setw(20) << name << std::right
              << std::setw(9) << score.killed << std::setw(12)
              << score.equivalent << std::setw(10) << score.survived
              << std::setw(17) << score.wronglyRefused << '\n';
  };
  Score sum;
  for (size_t k = 0; k < kNumKinds; ++k) {
    const Score &score = scores[k];
    print(kMutations[k].name, score);
    sum.killed += score.killed;
    sum.equivalent += score.equivalent;
    sum.survived += score.survived;
    sum.wronglyRefused += score.wronglyRefused;
    EXPECT_TRUE(score.killed > 0 || count < 1000 || kMutations[k].isHarmless)
        << kMutations[k].name << " never breaks anything";
  }
  print("all", sum);
  std::cout << "seed " << seed << '\n';
  EXPECT_EQ(sum.survived, 0u);
  EXPECT_EQ(sum.wronglyRefused, 0u);
}

} // namespace
