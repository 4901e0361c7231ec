//===- Describe.cpp - Deadlocks in words ----------------------------------===//

#include "Describe.h"

#include "Channels.h"

#include "penstock/Analysis/Repair.h"

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
/// Of how many ranks the notes say how far they come.
static constexpr size_t kRanksInNotes = 8;

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

/// The repair that has been checked, if there is one.
static std::string describeRepair(const Program &program,
                                  const DeadlockResult &result,
                                  const Semantics &semantics, bool canGroup) {
  const std::optional<Repair> repair =
      proposeRepair(program, result, semantics, canGroup);
  if (!repair)
    return "No repair is known that leaves the data in place.";
  if (repair->edits.empty())
    return "No repair is known that leaves the data in place; " + repair->text +
           ".";
  return "Repair, checked: " + repair->text +
         (repair->ends ? "; with it the program ends."
                       : "; with it this cycle is gone and another one is "
                         "left.");
}

/// How far the ranks of the cycle come, and in short the others.
static void addProgress(const Program &program, const DeadlockResult &result,
                        std::vector<Note> &notes) {
  std::vector<int32_t> ranks;
  for (const std::vector<Site> *sites : {&result.cycle, &result.unmatched})
    for (Site site : *sites)
      ranks.push_back(site.rank);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  if (ranks.size() > kRanksInNotes)
    ranks.resize(kRanksInNotes);

  size_t ended = 0, stuck = 0;
  auto named = ranks.begin();
  for (int32_t r = 0; r < static_cast<int32_t>(result.progress.size()); ++r) {
    const DeadlockResult::Progress &progress = result.progress[r];
    if (named == ranks.end() || *named != r) {
      ++(progress.stopsAt == kNoInstruction ? ended : stuck);
      continue;
    }
    ++named;
    notes.push_back({{r, progress.stopsAt},
                     "rank " + std::to_string(r) + " stops here: " +
                         std::to_string(progress.ended) + " of its " +
                         std::to_string(program.ranks[r].instructions.size()) +
                         " instructions have ended"});
  }
  if (ended + stuck > 0)
    notes.push_back({{},
                     "other ranks that end: " + std::to_string(ended) +
                         ", that stop too: " + std::to_string(stuck)});
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

/// The most bytes of so many messages of a channel in a row.
static int64_t mostBytes(const Program &program, const ChannelNeed &need) {
  std::vector<int64_t> sums = {0};
  int64_t most = 0;
  for (const Instruction &inst : program.ranks[need.source].instructions) {
    if (inst.op != Op::Send || inst.peer != need.destination ||
        inst.comm != need.comm)
      continue;
    sums.push_back(sums.back() + inst.bytes);
    const size_t first =
        sums.size() - 1 - std::min<size_t>(sums.size() - 1, need.messages);
    most = std::max(most, sums.back() - sums[first]);
  }
  return most;
}

/// "2 messages (up to 512 bytes) from rank 0 to rank 1, and some on 3 other
/// channels, are": the channel that must buffer most is named.
static std::string describeNeed(const Program &program,
                                const std::vector<ChannelNeed> &channels) {
  const ChannelNeed &most =
      *std::max_element(channels.begin(), channels.end(),
                        [](const ChannelNeed &a, const ChannelNeed &b) {
                          return a.messages < b.messages;
                        });
  std::string text = counted(most.messages, "message");
  if (const int64_t bytes = mostBytes(program, most); bytes > 0)
    text += " (up to " + counted(bytes, "byte") + ")";
  text += " from rank " + std::to_string(most.source) + " to rank " +
          std::to_string(most.destination);
  if (most.comm > 0)
    text += " on communicator " + std::to_string(most.comm);
  if (const size_t others = channels.size() - 1; others > 0)
    return text + ", and some on " +
           counted(static_cast<int64_t>(others), "other channel") + ", are";
  return text + (most.messages == 1 ? " is" : " are");
}

/// The demand without which the program would end.
static std::string describeDemand(const Program &program, Semantics semantics,
                                  const CapacityNeed &need) {
  auto endsWithout = [&](bool &demand) {
    return std::exchange(demand, false) && checkDeadlock(program, semantics).ok;
  };
  if (endsWithout(semantics.firstUse))
    return " As it stands, it ends when all channels are connected beforehand.";
  if (endsWithout(semantics.serialised))
    return " As it stands, it ends where queues run side by side, which no "
           "device promises.";
  if (!need.least)
    return " As it stands, no buffering of messages would help.";
  if (*need.least == 0)
    return " As it stands, the documented semantics of groups let it end; NCCL "
           "does not keep that promise in all cases.";
  return " As it stands, it ends where " +
         describeNeed(program, need.channels) +
         " buffered, which NCCL does not promise.";
}

Finding penstock::describeDeadlock(const Program &program,
                                   const DeadlockResult &result,
                                   const Semantics &semantics, bool canGroup) {
  return describeDeadlock(program, result, semantics, canGroup,
                          capacityNeed(program, semantics));
}

Finding penstock::describeDeadlock(const Program &program,
                                   const DeadlockResult &result,
                                   const Semantics &semantics, bool canGroup,
                                   const CapacityNeed &need) {
  Finding finding;
  finding.rule = Rule::Deadlock;
  finding.message = "under " + name(semantics) + " semantics ";
  if (!result.cycle.empty()) {
    finding.site = result.cycle[0];
    finding.message += describeCycle(program, result.cycle) + ". " +
                       describeRepair(program, result, semantics, canGroup);
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
  addProgress(program, result, finding.notes);
  finding.message += describeDemand(program, semantics, need);
  return finding;
}
