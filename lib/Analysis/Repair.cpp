//===- Repair.cpp - How to mend a deadlock --------------------------------===//
//
// A cycle of waits goes back in the list of a rank where an instruction that
// somebody waits for (`late`) stands behind one that is stuck (`early`). Taking
// away one of these places, or uniting both ends of all of them in groups,
// removes the cycle. What may change place is decided by what touches the same
// tensors, slots and channels; whether it helps, by the verifier.
//
//===----------------------------------------------------------------------===//

#include "penstock/Analysis/Repair.h"

#include "Describe.h"
#include "Rewrite.h"
#include "Rules.h"

#include <algorithm>
#include <numeric>

using namespace penstock;

namespace {

/// Larger items stay where they are: no transport takes such a group anyway.
constexpr uint32_t kMaxMoved = 128;
/// Changes to check for one cycle: fewer in a large program, so that a refusal
/// is explained quickly.
constexpr size_t kMaxChecks = 12, kMinChecks = 3,
                 kCheckedInstructions = 3000000;
/// Ranks to name in one repair.
constexpr size_t kRanksInText = 4;

struct Span {
  uint32_t begin, end;
};

/// The item of an instruction.
Span itemOf(const std::vector<Instruction> &list, uint32_t instruction) {
  uint32_t begin = instruction;
  while (list[begin].joined)
    --begin;
  return {begin, itemEnd(list, begin)};
}

bool onOneChannel(const Instruction &a, const Instruction &b) {
  return isTransfer(a.op) && a.op == b.op && a.comm == b.comm &&
         a.peer == b.peer;
}

/// Whether two instructions of a rank must keep their order: they touch one
/// tensor or slot, one of them writing; they match first to first; they have to
/// do with the state of a batch; or they have to do with the parameters,
/// gradients or stashes of one stage.
bool dependent(const Problem &problem, const Instruction &a,
               const Instruction &b) {
  if (onOneChannel(a, b))
    return true;
  auto hasState = [](const Instruction &inst) {
    return usesState(inst.op) || movesState(inst) || inst.op == Op::Step;
  };
  if (hasState(a) && hasState(b))
    return true;
  auto movesData = [](const Instruction &inst) {
    return isAction(inst.op) || isTransfer(inst.op);
  };
  if (!movesData(a) || !movesData(b)) {
    if (a.op == Op::Barrier || b.op == Op::Barrier)
      return a.op == b.op && a.comm == b.comm;
    const bool oneStage = a.stage < 0 || b.stage < 0 || a.stage == b.stage ||
                          a.op == Op::ReduceTied || b.op == Op::ReduceTied;
    if (!isTransfer(a.op) && !isTransfer(b.op))
      return oneStage;
    return oneStage && a.microbatch >= 0 && a.microbatch == b.microbatch;
  }
  bool found = false;
  forEachAccess(a, problem.numStages(), [&](const Access &x) {
    forEachAccess(b, problem.numStages(), [&](const Access &y) {
      if (x.mode == Access::Read && y.mode == Access::Read)
        return;
      const int32_t slot = a.slots[x.role];
      found |=
          x.tensor == y.tensor || (slot != kNoSlot && slot == b.slots[y.role]);
    });
  });
  return found;
}

size_t numEnded(const DeadlockResult &result) {
  return std::accumulate(
      result.progress.begin(), result.progress.end(), size_t(0),
      [](size_t sum, const auto &rank) { return sum + rank.ended; });
}

class Proposer {
public:
  Proposer(const Program &program, const DeadlockResult &result,
           const Semantics &semantics, bool canGroup)
      : program(program), result(result), semantics(semantics),
        canGroup(canGroup), before(numEnded(result)),
        oldCycle(namesOf(program, result.cycle)), copy(program),
        maxChecks(
            std::clamp(kCheckedInstructions / (program.numInstructions() + 1),
                       kMinChecks, kMaxChecks)) {}

  std::optional<Repair> run();

private:
  /// A place at which the cycle goes back in a rank's list, or goes from one
  /// member of a group to another.
  struct Place {
    int32_t rank;
    uint32_t early, late;
  };

  void findPlaces();
  bool isMovable(int32_t rank, Span moving, Span crossed) const;
  bool isGroupable(const Place &place, Span early, Span late) const;
  std::optional<Edit> group(const Place &place) const;
  std::optional<Edit> moveEarly(const Place &place) const;
  std::optional<Edit> moveLate(const Place &place) const;
  std::optional<Edit> split(const Place &place) const;
  bool accept(std::vector<Edit> edits);
  bool keepsData() const;
  std::string textOf(const std::vector<Edit> &edits) const;

  const std::vector<Instruction> &listOf(int32_t rank) const {
    return program.ranks[rank].instructions;
  }
  /// The cycle by content, to recognise it when its instructions have moved.
  static std::vector<std::string> namesOf(const Program &program,
                                          const std::vector<Site> &cycle) {
    std::vector<std::string> names;
    for (Site site : cycle)
      names.push_back(std::to_string(site.rank) + quoted(program, site));
    std::sort(names.begin(), names.end());
    return names;
  }

  const Program &program;
  const DeadlockResult &result;
  const Semantics semantics;
  const bool canGroup;
  const size_t before; ///< instructions that end without a repair
  const std::vector<std::string> oldCycle;
  Program copy;
  const size_t maxChecks;
  std::vector<Place> backs, joints;
  size_t checks = 0;
  std::optional<Repair> best;
};

} // namespace

void Proposer::findPlaces() {
  for (size_t k = 0; k < result.cycle.size(); ++k) {
    const Site from = result.cycle[k],
               to = result.cycle[(k + 1) % result.cycle.size()];
    if (from.rank != to.rank || from == to)
      continue;
    const auto &list = listOf(from.rank);
    if (itemOf(list, from.instruction).begin ==
        itemOf(list, to.instruction).begin)
      joints.push_back({from.rank, from.instruction, to.instruction});
    else if (to.instruction < from.instruction)
      backs.push_back({from.rank, to.instruction, from.instruction});
  }
}

/// Whether the item `moving` may change places with the ones in `crossed`: all
/// of them transfers or collectives, or actions that it does not depend on.
bool Proposer::isMovable(int32_t rank, Span moving, Span crossed) const {
  const RankProgram &list = program.ranks[rank];
  const auto &insts = list.instructions;
  if (!usesComm(insts[moving.begin].op) ||
      moving.end - moving.begin > kMaxMoved)
    return false;
  auto waitsFor = [&](uint32_t head, Span target) {
    const Instruction &inst = insts[head];
    return std::any_of(list.waits.begin() + inst.firstWait,
                       list.waits.begin() + inst.firstWait + inst.numWaits,
                       [&](uint32_t wait) {
                         return target.begin <= wait && wait < target.end;
                       });
  };
  if (waitsFor(moving.begin, crossed))
    return false;
  for (uint32_t i = crossed.begin; i < crossed.end; ++i) {
    if (waitsFor(i, moving))
      return false;
    for (uint32_t m = moving.begin; m < moving.end; ++m)
      if (dependent(program.problem, insts[i], insts[m]))
        return false;
  }
  return true;
}

/// Whether two items may be one group, wherever they stand.
bool Proposer::isGroupable(const Place &place, Span early, Span late) const {
  const auto &list = listOf(place.rank);
  return isTransfer(list[early.begin].op) && isTransfer(list[late.begin].op) &&
         list[early.begin].queue == list[late.begin].queue &&
         isMovable(place.rank, late, early);
}

std::optional<Edit> Proposer::group(const Place &place) const {
  const auto &list = listOf(place.rank);
  const Span early = itemOf(list, place.early), late = itemOf(list, place.late);
  if (!isGroupable(place, early, late))
    return std::nullopt;
  const Span between = {early.end, late.begin};
  for (auto [kind, moving] :
       {std::pair(Edit::GroupEarly, late), std::pair(Edit::GroupLate, early)})
    if (isMovable(place.rank, moving, between))
      return Edit{kind, place.rank, place.early, place.late};
  return std::nullopt;
}

std::optional<Edit> Proposer::moveEarly(const Place &place) const {
  const auto &list = listOf(place.rank);
  const Span early = itemOf(list, place.early), late = itemOf(list, place.late);
  if (!isMovable(place.rank, late, {early.begin, late.begin}))
    return std::nullopt;
  return Edit{Edit::MoveEarly, place.rank, place.early, place.late};
}

std::optional<Edit> Proposer::moveLate(const Place &place) const {
  const auto &list = listOf(place.rank);
  const Span early = itemOf(list, place.early), late = itemOf(list, place.late);
  if (!isMovable(place.rank, early, {early.end, late.end}))
    return std::nullopt;
  return Edit{Edit::MoveLate, place.rank, place.early, place.late};
}

/// `late` may stand behind the others of its group if none of these comes after
/// it on its channel.
std::optional<Edit> Proposer::split(const Place &place) const {
  const auto &list = listOf(place.rank);
  const Span item = itemOf(list, place.late);
  for (uint32_t i = place.late + 1; i < item.end; ++i)
    if (onOneChannel(list[i], list[place.late]))
      return std::nullopt;
  return Edit{Edit::Split, place.rank, place.early, place.late};
}

/// Changes one rank's list. What was ordered by way of an item that has moved
/// stays ordered: who waits for the moved one waits for what was before it too.
static void applyEdit(RankProgram &rank, const Edit &edit) {
  const auto &list = rank.instructions;
  RankRewrite change;
  change.list.reserve(list.size());
  auto keep = [&](uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i)
      change.list.push_back({i, list[i].joined});
  };
  const Span early = itemOf(list, edit.early), late = itemOf(list, edit.late);
  const auto size = static_cast<uint32_t>(list.size());
  keep(0, early.begin);
  switch (edit.kind) {
  case Edit::GroupEarly:
    keep(early.begin, early.end);
    keep(late.begin, late.end);
    change.list[early.end].joined = true;
    keep(early.end, late.begin);
    break;
  case Edit::GroupLate:
    keep(early.end, late.begin);
    keep(early.begin, early.end);
    keep(late.begin, late.end);
    change.list[late.begin].joined = true;
    break;
  case Edit::MoveEarly:
    keep(late.begin, late.end);
    keep(early.begin, late.begin);
    break;
  case Edit::MoveLate:
    keep(early.end, late.end);
    keep(early.begin, early.end);
    break;
  case Edit::Split:
    keep(early.begin, edit.late);
    keep(edit.late + 1, early.end);
    change.list[early.begin].joined = false;
    change.list.push_back({edit.late, false});
    break;
  }
  keep(late.end, size);

  if (!rank.waits.empty() &&
      (edit.kind == Edit::GroupEarly || edit.kind == Edit::MoveEarly)) {
    // What the moved item was behind, and its own waiters still have to be.
    uint32_t previous = kNoInstruction;
    for (uint32_t i = edit.kind == Edit::MoveEarly ? early.begin : early.end;
         i < late.begin; ++i)
      if (list[i].queue == list[late.begin].queue)
        previous = i;
    if (previous != kNoInstruction)
      for (uint32_t i = late.end; i < size; ++i) {
        const Instruction &inst = list[i];
        for (uint32_t w = 0; w < inst.numWaits; ++w) {
          const uint32_t wait = rank.waits[inst.firstWait + w];
          if (late.begin <= wait && wait < late.end) {
            change.waits.push_back({i, previous});
            break;
          }
        }
      }
    if (edit.kind == Edit::MoveEarly)
      for (uint32_t w = 0; w < list[early.begin].numWaits; ++w)
        change.waits.insert(
            change.waits.begin() + w,
            {late.begin, rank.waits[list[early.begin].firstWait + w]});
  }
  rewrite(rank, change);
}

void penstock::apply(Program &program, const Repair &repair) {
  for (const Edit &edit : repair.edits)
    applyEdit(program.ranks[edit.rank], edit);
  if (!repair.edits.empty())
    numberRankSets(program);
}

/// On one queue what has changed places has been compared directly. With
/// several queues and waits, order by way of others may have been lost.
bool Proposer::keepsData() const {
  if (std::all_of(program.ranks.begin(), program.ranks.end(),
                  [](const RankProgram &r) { return r.waits.empty(); }))
    return true;
  constexpr unsigned kLimit = 64;
  auto faults = [](const Program &program) {
    Findings findings(Rule::DataFlow, kLimit);
    checkDataFlow(program, findings);
    std::vector<std::string> texts;
    for (const Finding &finding : findings.list)
      texts.push_back(std::to_string(finding.site.rank) +
                      quoted(program, finding.site) + finding.message);
    std::sort(texts.begin(), texts.end());
    return texts;
  };
  const std::vector<std::string> now = faults(copy);
  if (now.empty())
    return true;
  const std::vector<std::string> then = faults(program);
  return now.size() < kLimit &&
         std::includes(then.begin(), then.end(), now.begin(), now.end());
}

/// Checks a change on the copy and remembers it if it is the best so far. True
/// when there is nothing better to look for.
bool Proposer::accept(std::vector<Edit> edits) {
  if (checks++ >= maxChecks)
    return true;
  Repair repair;
  repair.edits = std::move(edits);
  apply(copy, repair);
  const DeadlockResult after = checkDeadlock(copy, semantics);
  const size_t ended = numEnded(after);
  const bool better = after.ok || ended > before;
  const bool gone = better || (!best && ended == before &&
                               namesOf(copy, after.cycle) != oldCycle);
  const bool accepted = gone && keepsData();
  for (const Edit &edit : repair.edits)
    copy.ranks[edit.rank] = program.ranks[edit.rank];
  copy.rankSets = program.rankSets;
  if (!accepted)
    return false;
  repair.ends = after.ok;
  repair.text = textOf(repair.edits);
  best = std::move(repair);
  return better;
}

std::string Proposer::textOf(const std::vector<Edit> &edits) const {
  std::string text;
  for (size_t k = 0; k < edits.size(); ++k) {
    const Edit &edit = edits[k];
    if (k == kRanksInText && edits.size() > kRanksInText + 1)
      return text + ", and likewise on " + std::to_string(edits.size() - k) +
             " more ranks";
    const auto &list = listOf(edit.rank);
    const Span earlyItem = itemOf(list, edit.early),
               lateItem = itemOf(list, edit.late);
    auto nameOf = [&](uint32_t instruction, Span item) {
      return (item.end - item.begin > 1 ? "the group of " : "") +
             quoted(list[instruction]);
    };
    const std::string early = nameOf(edit.early, earlyItem),
                      late = nameOf(edit.late, lateItem);
    const bool adjacent = earlyItem.end == lateItem.begin;
    if (k > 0)
      text += ", and ";
    switch (edit.kind) {
    case Edit::GroupEarly:
    case Edit::GroupLate:
      text += k == 0 ? "group " : "";
      if (adjacent)
        text += early + " and " + late;
      else if (edit.kind == Edit::GroupEarly)
        text += late + " with the earlier " + early;
      else
        text += early + " with the later " + late;
      break;
    case Edit::MoveEarly:
      text += "issue " + late + " before " + early;
      break;
    case Edit::MoveLate:
      text += "issue " + early + " after " + late;
      break;
    case Edit::Split:
      text += "take " + quoted(list[edit.late]) + " out of its group with " +
              quoted(list[edit.early]) + " and issue it next";
      break;
    }
    text += " on rank " + std::to_string(edit.rank);
  }
  return text;
}

std::optional<Repair> Proposer::run() {
  findPlaces();
  // An exchange: unite the ends of all places.
  std::vector<Edit> groups;
  std::vector<int32_t> ranks;
  for (const Place &place : backs)
    if (std::optional<Edit> edit = canGroup ? group(place) : std::nullopt) {
      groups.push_back(*edit);
      ranks.push_back(place.rank);
    }
  std::sort(ranks.begin(), ranks.end());
  if (!groups.empty() && groups.size() == backs.size() &&
      std::unique(ranks.begin(), ranks.end()) == ranks.end() && accept(groups))
    return best;

  // One place: first receives, which no data hold back.
  auto isRecv = [&](const Place &place, uint32_t instruction) {
    return listOf(place.rank)[instruction].op == Op::Recv;
  };
  for (bool recv : {true, false}) {
    for (const Place &place : backs)
      if (isRecv(place, place.late) == recv)
        if (std::optional<Edit> edit = moveEarly(place);
            edit && accept({*edit}))
          return best;
    for (const Place &place : backs)
      if (isRecv(place, place.early) == recv)
        if (std::optional<Edit> edit = moveLate(place); edit && accept({*edit}))
          return best;
  }
  for (const Place &place : joints)
    if (std::optional<Edit> edit = split(place); edit && accept({*edit}))
      return best;
  return best;
}

std::optional<Repair> penstock::proposeRepair(const Program &program,
                                              const DeadlockResult &result,
                                              const Semantics &semantics,
                                              bool canGroup) {
  if (result.ok || result.cycle.empty())
    return std::nullopt;
  if (std::optional<Repair> repair =
          Proposer(program, result, semantics, canGroup).run())
    return repair;
  const std::optional<int64_t> capacity = minCapacity(program, semantics);
  if (!capacity || *capacity == 0)
    return std::nullopt;
  for (Site site : result.cycle) {
    const Instruction &inst =
        program.ranks[site.rank].instructions[site.instruction];
    if (inst.op != Op::Send)
      continue;
    Repair repair;
    repair.capacity = *capacity;
    repair.ends = true;
    repair.text = "let sends run " + counted(*capacity, "message") +
                  " ahead, on the channel from rank " +
                  std::to_string(site.rank) + " to rank " +
                  std::to_string(inst.peer) + " on communicator " +
                  std::to_string(inst.comm) + " first of all";
    return repair;
  }
  return std::nullopt;
}

RepairOutcome penstock::repairDeadlocks(Program &program,
                                        const Semantics &semantics) {
  RepairOutcome outcome;
  // A repair may leave another cycle at the same place, but not for ever.
  const size_t patience = 4 * program.ranks.size() + 16;
  size_t ended = 0, rounds = 0;
  for (;; ++rounds) {
    const DeadlockResult result = checkDeadlock(program, semantics);
    if (result.ok)
      return outcome;
    if (numEnded(result) > ended) {
      ended = numEnded(result);
      rounds = 0;
    }
    std::optional<Repair> repair;
    if (rounds < patience)
      repair = proposeRepair(program, result, semantics);
    if (!repair || repair->edits.empty()) {
      outcome.left = describeDeadlock(program, result, semantics);
      return outcome;
    }
    apply(program, *repair);
    outcome.applied.push_back(std::move(repair->text));
  }
}
