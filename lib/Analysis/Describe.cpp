//===- Describe.cpp - Deadlocks in words ----------------------------------===//

#include "Describe.h"

#include "Channels.h"

#include <utility>

using namespace penstock;

static const Instruction &at(const Program &program, Site site) {
  return program.ranks[site.rank].instructions[site.instruction];
}

std::string penstock::quoted(const Program &program, Site site) {
  return quoted(at(program, site));
}

static std::string rankName(int32_t rank) {
  return "rank " + std::to_string(rank);
}

/// Both on one rank and issued together.
static bool inOneItem(const Program &program, Site a, Site b) {
  if (a.rank != b.rank)
    return false;
  const auto &insts = program.ranks[a.rank].instructions;
  auto [first, last] = std::minmax(a.instruction, b.instruction);
  return std::all_of(insts.begin() + first + 1, insts.begin() + last + 1,
                     [](const Instruction &inst) { return inst.joined; });
}

/// How an entry of a cycle waits for the next one.
static std::string relation(const Program &program, Site from, Site to) {
  if (from.rank != to.rank)
    return "waits for " + rankName(to.rank) + "'s ";
  if (inOneItem(program, from, to))
    return isTransfer(at(program, from).op) ? "is in one group with "
                                            : "is issued together with ";
  return to.instruction < from.instruction ? "stands behind " : "waits for ";
}

/// A message names at most this many places; the notes name all.
static constexpr size_t kPlacesInMessage = 8;

std::string penstock::describeCycle(const Program &program,
                                    const std::vector<Site> &cycle) {
  const size_t size = cycle.size();
  std::string text =
      rankName(cycle[0].rank) + " waits in " + quoted(program, cycle[0]);
  for (size_t k = 0; k < size; ++k) {
    const Site from = cycle[k], to = cycle[(k + 1) % size];
    if (k == kPlacesInMessage && size > kPlacesInMessage + 1)
      return text + ", and so on through " + std::to_string(size) +
             " places, the last of which stands behind the first";
    text += ", which ";
    text += relation(program, from, to) + quoted(program, to);
  }
  return text;
}

std::vector<Note> penstock::notesOfCycle(const Program &program,
                                         const std::vector<Site> &cycle) {
  std::vector<Note> notes;
  for (size_t k = 0; k < cycle.size(); ++k) {
    const Site from = cycle[k], to = cycle[(k + 1) % cycle.size()];
    notes.push_back({from, quoted(program, from) + " " +
                               relation(program, from, to) +
                               quoted(program, to)});
  }
  return notes;
}

/// What to change, for the two cycles that people write: two ranks that each do
/// one half of an exchange first, and an exchange grouped on one side only.
/// Else the general repair: issue the instruction that others wait for earlier.
static std::string repair(const Program &program,
                          const std::vector<Site> &cycle) {
  // The places at which the cycle goes back in a rank's list.
  struct Step {
    Site late, early;
  };
  std::vector<Step> steps;
  for (size_t k = 0; k < cycle.size(); ++k) {
    Step step = {cycle[k], cycle[(k + 1) % cycle.size()]};
    if (step.late.rank == step.early.rank &&
        !inOneItem(program, step.late, step.early))
      steps.push_back(step);
  }
  if (steps.empty())
    return "";
  // Opposite transfers with one peer, with nothing but each other between them.
  auto isExchange = [&](const Step &step) {
    const Instruction &late = at(program, step.late),
                      &early = at(program, step.early);
    const auto &insts = program.ranks[step.late.rank].instructions;
    return isTransfer(late.op) && isTransfer(early.op) && late.op != early.op &&
           late.peer == early.peer && late.queue == early.queue &&
           std::all_of(insts.begin() + step.early.instruction + 1,
                       insts.begin() + step.late.instruction,
                       [](const Instruction &inst) { return inst.joined; });
  };
  auto group = [&](const Step &step) {
    return quoted(program, step.early) + " with " + quoted(program, step.late) +
           " on " + rankName(step.late.rank);
  };
  if (steps.size() == 2 && isExchange(steps[0]) && isExchange(steps[1]))
    return "Group " + group(steps[0]) + ", and " + group(steps[1]) + ".";
  if (steps.size() == 1 && cycle.size() > 2 && isExchange(steps[0]))
    return "Group " + group(steps[0]) + ", as the other side does.";
  return "Issue " + quoted(program, steps[0].late) + " before " +
         quoted(program, steps[0].early) + " on " +
         rankName(steps[0].late.rank) + ".";
}

static std::string describeUnmatched(const Program &program, Site site) {
  const Instruction &inst = at(program, site);
  std::string text = rankName(site.rank) + " waits in " +
                     quoted(program, site) + " for ever: ";
  if (isTransfer(inst.op))
    return text + rankName(inst.peer) + " has no " +
           (inst.op == Op::Send ? "receive" : "send") + " that matches it";
  return text + "not every rank of its set reaches it";
}

/// The demand without which the program would end.
static std::string describeDemand(const Program &program, Semantics semantics,
                                  std::optional<int64_t> capacity) {
  auto endsWithout = [&](bool &demand) {
    return std::exchange(demand, false) && checkDeadlock(program, semantics).ok;
  };
  if (endsWithout(semantics.firstUse))
    return " It ends when all channels are connected beforehand.";
  if (endsWithout(semantics.serialised))
    return " It ends where queues run side by side, which no device promises.";
  if (!capacity)
    return " No buffering of messages would help.";
  if (*capacity == 0)
    return " The documented semantics of groups let it end; NCCL does not keep "
           "that promise in all cases.";
  return " It ends only where " + std::to_string(*capacity) +
         (*capacity == 1 ? " message" : " messages") +
         " of a channel may be buffered, which NCCL does not promise.";
}

Finding penstock::describeDeadlock(const Program &program,
                                   const DeadlockResult &result,
                                   const Semantics &semantics) {
  return describeDeadlock(program, result, semantics,
                          minCapacity(program, semantics));
}

Finding penstock::describeDeadlock(const Program &program,
                                   const DeadlockResult &result,
                                   const Semantics &semantics,
                                   std::optional<int64_t> capacity) {
  Finding finding;
  finding.rule = Rule::Deadlock;
  finding.message = std::string(name(result.outcome())) + " under " +
                    name(semantics) + " semantics: ";
  if (!result.cycle.empty()) {
    finding.site = result.cycle[0];
    finding.message += describeCycle(program, result.cycle) + ". " +
                       repair(program, result.cycle);
    finding.notes = notesOfCycle(program, result.cycle);
  } else if (!result.unmatched.empty()) {
    finding.site = result.unmatched[0];
    finding.message += describeUnmatched(program, finding.site) +
                       ". Add the missing part or remove this one.";
  } else if (!result.conflict.empty()) {
    const Site a = result.conflict[0], b = result.conflict[1];
    finding.site = a;
    finding.message +=
        rankName(a.rank) + " connects to " + rankName(b.rank) + " in " +
        quoted(program, a) + " while " + rankName(b.rank) + " connects to " +
        rankName(a.rank) + " in " + quoted(program, b) +
        ", which mixes up their connections: an error inside NCCL. Group the "
        "same transfers at both ends.";
    finding.notes.push_back({b, "the other item that connects"});
  }
  for (Site site : result.unmatched)
    if (!(site == finding.site))
      finding.notes.push_back({site, describeUnmatched(program, site)});
  finding.message += describeDemand(program, semantics, capacity);
  return finding;
}
