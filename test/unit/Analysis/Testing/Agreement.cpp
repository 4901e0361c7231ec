//===- Agreement.cpp - The verifier against the interpreter ---------------===//

#include "Agreement.h"

#include "penstock/Analysis/Interpret.h"
#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"

#include <algorithm>
#include <set>

using namespace penstock;
using namespace penstock::test;

const std::vector<Semantics> &penstock::test::allModels() {
  static const std::vector<Semantics> models = [] {
    std::vector<Semantics> list;
    for (bool firstUse : {false, true})
      for (bool serialised : {false, true}) {
        list.push_back({Semantics::Closure, 0, serialised, firstUse});
        for (Semantics::Groups groups :
             {Semantics::Documented, Semantics::Layered})
          for (int64_t capacity :
               {int64_t(0), int64_t(1), int64_t(2), Semantics::kUnlimited})
            list.push_back({groups, capacity, serialised, firstUse});
      }
    return list;
  }();
  return models;
}

namespace {

/// The largest capacity that a program of this size can need, and more.
constexpr int64_t kEnough = 24;

class Comparison {
public:
  Comparison(const Program &program, Tally &tally)
      : program(program), tally(tally) {}

  std::string run() {
    for (const Semantics &semantics : allModels())
      compareOne(semantics);
    compareModels();
    for (bool serialised : {false, true}) {
      compareCapacity({Semantics::Documented, 0, serialised});
      compareCapacity({Semantics::Layered, 0, serialised});
    }
    return problem;
  }

private:
  template <typename... Parts>
  void expect(bool holds, const Semantics &semantics, Parts &&...parts) {
    if (holds || !problem.empty())
      return;
    problem = name(semantics) + ": ";
    ((problem += parts), ...);
  }

  const Instruction &at(Site s) const {
    return program.ranks[s.rank].instructions[s.instruction];
  }
  Site headOf(Site s) const {
    while (at(s).joined)
      --s.instruction;
    return s;
  }
  bool isInItem(uint32_t instruction, Site head) const {
    return headOf({head.rank, instruction}) == head;
  }

  /// Whether the item `late` directly stands behind `early`, by definition.
  bool precedes(Site early, Site late, const Semantics &semantics) const {
    if (early.rank != late.rank || early.instruction >= late.instruction)
      return false;
    if (semantics.serialised || at(early).queue == at(late).queue)
      return true;
    const RankProgram &rank = program.ranks[late.rank];
    for (uint32_t w = 0; w < at(late).numWaits; ++w)
      if (isInItem(rank.waits[at(late).firstWait + w], early))
        return true;
    for (uint32_t i = early.instruction;
         i < itemEnd(rank.instructions, early.instruction); ++i)
      for (uint32_t j = late.instruction;
           j < itemEnd(rank.instructions, late.instruction); ++j)
        if (usesComm(rank.instructions[i].op) &&
            usesComm(rank.instructions[j].op) &&
            rank.instructions[i].comm == rank.instructions[j].comm)
          return true;
    return false;
  }
  /// The same, or through items between them.
  bool standsBehind(Site late, Site early, const Semantics &semantics) const {
    std::vector<Site> reached = {late};
    for (size_t next = 0; next < reached.size(); ++next)
      for (uint32_t i = 0; i < reached[next].instruction; ++i) {
        const Site head = headOf({late.rank, i});
        if (head.instruction != i || !precedes(head, reached[next], semantics))
          continue;
        if (head == early)
          return true;
        if (std::find(reached.begin(), reached.end(), head) == reached.end())
          reached.push_back(head);
      }
    return false;
  }

  /// How many transfers at the same channel end come before this one; with
  /// `inItem` those of its group.
  int64_t number(Site s, bool inItem = false) const {
    int64_t n = 0;
    for (uint32_t i = inItem ? headOf(s).instruction : 0; i < s.instruction;
         ++i) {
      const Instruction &other = at({s.rank, i});
      n += other.op == at(s).op && other.comm == at(s).comm &&
           other.peer == at(s).peer;
    }
    return n;
  }
  /// Whether `from` needs `to`, of another rank, before it can end.
  bool meets(Site from, Site to, const Semantics &semantics) const {
    const Instruction &a = at(from), &b = at(to);
    if (a.comm != b.comm)
      return false;
    if (!isTransfer(a.op))
      return a.op == b.op && a.stage == b.stage && a.microbatch == b.microbatch;
    if (!isTransfer(b.op) || a.op == b.op || a.peer != to.rank ||
        b.peer != from.rank)
      return false;
    if (semantics.firstUse) // the first of the channel
      return number(from) == 0 && number(to) == 0;
    const bool ahead =
        a.op == Op::Send && semantics.groups != Semantics::Closure;
    return number(to) == number(from) - (ahead ? semantics.capacity : 0);
  }

  /// Every entry of a cycle must wait for the next one, by the definitions.
  /// Returns how often the cycle goes back on a rank.
  size_t checkCycle(const std::vector<Site> &cycle, const Semantics &semantics,
                    const Execution &stuck) {
    size_t goesBack = 0;
    for (size_t k = 0; k < cycle.size(); ++k) {
      const Site from = cycle[k], to = cycle[(k + 1) % cycle.size()];
      bool waits =
          semantics.firstUse || !stuck.done[from.rank][from.instruction];
      if (from.rank != to.rank) {
        waits &= meets(from, to, semantics);
      } else if (headOf(from) == headOf(to)) {
        const bool together =
            semantics.groups == Semantics::Closure || semantics.firstUse;
        const bool layers = semantics.groups == Semantics::Layered &&
                            number(from, true) > number(to, true);
        goesBack += layers;
        waits &= together || layers;
      } else {
        waits &= standsBehind(headOf(from), headOf(to), semantics);
        ++goesBack;
      }
      expect(waits, semantics, "entry ", std::to_string(k),
             " of the cycle does not wait for the next");
    }
    expect(goesBack > 0, semantics, "the cycle never goes back");
    ++tally.cycles;
    return goesBack;
  }

  bool isDone(Site head, const Execution &stuck) const {
    const auto &insts = program.ranks[head.rank].instructions;
    const auto done = stuck.done[head.rank].begin();
    return std::all_of(done + head.instruction,
                       done + itemEnd(insts, head.instruction),
                       [](uint8_t d) { return d != 0; });
  }
  /// Calls `fn(Site)` for what meets one of `members`; under closure also for
  /// what meets those items, and so on.
  template <typename Fn>
  void forEachMet(std::vector<Site> members, const Semantics &semantics,
                  Fn &&fn) const {
    std::vector<Site> items;
    for (size_t next = 0; next < members.size(); ++next) {
      const Site from = members[next];
      for (int32_t r = 0; r < program.problem.numRanks; ++r)
        for (uint32_t j = 0; j < program.ranks[r].instructions.size(); ++j) {
          const Site to = {r, j};
          if (r == from.rank || !usesComm(at(from).op) ||
              !meetsExactly(from, to, semantics))
            continue;
          fn(to);
          const Site head = headOf(to);
          if (semantics.groups != Semantics::Closure ||
              std::find(items.begin(), items.end(), head) != items.end())
            continue;
          items.push_back(head);
          for (uint32_t i = head.instruction;
               i < itemEnd(program.ranks[r].instructions, head.instruction);
               ++i)
            members.push_back({r, i});
        }
    }
  }

  /// Fewest items in a cycle of waits, 0 if there is none: an item at the front
  /// of its rank waits for another one if what it meets stands behind that.
  size_t fewestWaits(const Semantics &semantics, const Execution &stuck) const {
    const bool isLayered = semantics.groups == Semantics::Layered;
    std::vector<Site> front;
    std::vector<int64_t> layers; // which each has posted
    for (int32_t r = 0; r < program.problem.numRanks; ++r)
      for (uint32_t i = 0; i < stuck.done[r].size(); ++i) {
        const Site head = {r, i};
        if (at(head).joined || isDone(head, stuck))
          continue;
        bool ready = true;
        for (uint32_t j = 0; j < i; ++j)
          ready &= at({r, j}).joined || isDone({r, j}, stuck) ||
                   !precedes({r, j}, head, semantics);
        if (!ready)
          continue;
        front.push_back(head);
        layers.push_back(kEnough);
        for (uint32_t k = i; k < itemEnd(program.ranks[r].instructions, i); ++k)
          if (!stuck.done[r][k] && isLayered)
            layers.back() = std::min(layers.back(), number({r, k}, true));
      }
    const size_t n = front.size(), kFar = 1000;
    std::vector<std::vector<size_t>> far(n, std::vector<size_t>(n, kFar));
    for (size_t f = 0; f < n; ++f) {
      const auto &[rank, head] = front[f];
      std::vector<Site> posted;
      for (uint32_t i = head;
           i < itemEnd(program.ranks[rank].instructions, head); ++i)
        if (!stuck.done[rank][i] &&
            (!isLayered || number({rank, i}, true) == layers[f]))
          posted.push_back({rank, i});
      forEachMet(posted, semantics, [&](Site to) {
        for (size_t g = 0; g < n; ++g)
          if (to.rank == front[g].rank &&
              (standsBehind(headOf(to), front[g], semantics) ||
               (isLayered && headOf(to) == front[g] &&
                number(to, true) > layers[g])))
            far[f][g] = 1;
      });
    }
    for (size_t k = 0; k < n; ++k)
      for (size_t f = 0; f < n; ++f)
        for (size_t g = 0; g < n; ++g)
          far[f][g] = std::min(far[f][g], far[f][k] + far[k][g]);
    size_t fewest = kFar;
    for (size_t f = 0; f < n; ++f)
      fewest = std::min(fewest, far[f][f]);
    return fewest == kFar ? 0 : fewest;
  }
  /// meets(), and collectives are of one occurrence and one set.
  bool meetsExactly(Site from, Site to, const Semantics &semantics) const {
    if (!meets(from, to, semantics))
      return false;
    if (isTransfer(at(from).op))
      return true;
    auto occurrence = [&](Site s) {
      size_t n = 0;
      for (uint32_t i = 0; i < s.instruction; ++i)
        n += sameCollective(at({s.rank, i}), at(s));
      return n;
    };
    return sameCollective(at(from), at(to)) &&
           occurrence(from) == occurrence(to);
  }
  bool sameCollective(const Instruction &a, const Instruction &b) const {
    auto size = [&](const Instruction &inst) {
      return inst.peer < 0 ? program.ranks.size()
                           : program.rankSets[inst.peer].size();
    };
    return a.op == b.op && a.comm == b.comm && a.stage == b.stage &&
           a.microbatch == b.microbatch && size(a) == size(b) &&
           (size(a) == program.ranks.size() ||
            program.rankSets[a.peer] == program.rankSets[b.peer]);
  }

  void compareOne(const Semantics &semantics) {
    const Execution execution = interpret(program, semantics);
    const DeadlockResult result = checkDeadlock(program, semantics);
    const Outcome outcome = result.outcome();
    outcomes[name(semantics)] = outcome;
    Tally::Count &count = tally.models[name(semantics)];
    ++(outcome == Outcome::Ok      ? count.accepted
       : outcome == Outcome::Error ? count.errors
                                   : count.refused);
    expect(outcome == execution.outcome, semantics, "verifier says ",
           std::string(name(outcome)), ", interpreter ",
           std::string(name(execution.outcome)));
    expect(result.ok == (result.cycle.empty() && result.unmatched.empty() &&
                         result.conflict.empty()),
           semantics, "a refusal, or an acceptance, without its reason");
    if (semantics.firstUse) {
      // Of the hosts, or of the devices when all hosts get through.
      Semantics connected = semantics;
      connected.firstUse = false;
      const Outcome device = outcomes[name(connected)];
      expect(!result.ok || device == Outcome::Ok, semantics,
             "ends on first use only");
      if (!result.cycle.empty() && number(result.cycle[0]) == 0 &&
          device == Outcome::Ok)
        checkCycle(result.cycle, {Semantics::Closure, 0, true, true},
                   execution);
      return;
    }
    for (Site site : result.unmatched)
      expect(!execution.done[site.rank][site.instruction], semantics,
             "an unmatched entry has ended");
    if (!result.ok) {
      const size_t waits = result.cycle.empty()
                               ? 0
                               : checkCycle(result.cycle, semantics, execution);
      const size_t fewest = fewestWaits(semantics, execution);
      expect(waits == fewest, semantics, "a cycle of ", std::to_string(waits),
             " waits, the shortest has ", std::to_string(fewest));
      // But for the way through a step under closure, two entries each.
      expect(semantics.groups == Semantics::Closure ||
                 result.cycle.size() == 2 * waits,
             semantics, "entries that are no wait");
      ++tally.shortest;
    }
    // The same explanation from where the interpreter stuck.
    const DeadlockResult again =
        explainBlocked(program, semantics, execution.done);
    expect(again.ok == result.ok && again.cycle == result.cycle &&
               again.unmatched == result.unmatched,
           semantics, "another explanation from where it stuck");
  }

  bool ok(const Semantics &semantics) const {
    return outcomes.at(name(semantics)) == Outcome::Ok;
  }
  void implies(const Semantics &a, const Semantics &b) {
    expect(!ok(a) || ok(b), a, "ends, but not under ", name(b));
  }
  /// The implications of docs/semantics.md.
  void compareModels() {
    std::set<uint16_t> comms;
    bool oneQueue = true;
    for (const RankProgram &rank : program.ranks)
      for (const Instruction &inst : rank.instructions) {
        if (usesComm(inst.op))
          comms.insert(inst.comm);
        oneQueue &= inst.queue == rank.instructions[0].queue;
      }
    for (const Semantics &a : allModels()) {
      Semantics b = a;
      if (a.groups == Semantics::Closure) {
        b.groups = Semantics::Layered;
        implies(a, b);
      }
      b = a;
      if (a.groups == Semantics::Layered) {
        b.groups = Semantics::Documented;
        implies(a, b);
      }
      b = a;
      if (a.groups != Semantics::Closure && a.capacity < 2) {
        ++b.capacity;
        implies(a, b);
        b.capacity = Semantics::kUnlimited;
        implies(a, b);
      }
      b = a;
      b.serialised = b.firstUse = false;
      implies(a, b);
      b.serialised = true;
      if (a.groups == Semantics::Closure && !a.firstUse &&
          (a.serialised || oneQueue)) {
        b.firstUse = true;
        implies(a, b); // closure in host order
      }
      b = a;
      b.serialised = true;
      if (comms.size() <= 1)
        implies(a, b);
    }
    const Semantics closure, documented = Semantics::Documented;
    tally.onlyClosure += ok(documented) && !ok(closure);
  }

  void compareCapacity(const Semantics &semantics) {
    std::optional<int64_t> least;
    for (int64_t k = 0; k < kEnough; ++k) {
      const bool ends =
          interpret(program, {semantics.groups, k, semantics.serialised})
              .finished;
      expect(ends || !least, semantics, "ends with capacity ",
             std::to_string(least.value_or(0)), " but not with ",
             std::to_string(k));
      if (ends && !least)
        least = k;
    }
    const CapacityNeed need = capacityNeed(program, semantics);
    expect(minCapacity(program, semantics) == least && need.least == least,
           semantics, "the least capacity is ",
           std::to_string(least.value_or(-1)), ", not ",
           std::to_string(need.least.value_or(-1)));
    ++tally.capacities[least.value_or(-1)];
    expect(need.minimal, semantics, "no least set of buffers");
    if (!least || *least == 0) {
      expect(need.channels.empty(), semantics, "buffers that are not needed");
      return;
    }
    ++tally.needs;
    std::vector<ChannelNeed> buffers = need.channels;
    auto ends = [&] { return interpret(program, semantics, buffers).finished; };
    expect(ends(), semantics, "the buffers do not suffice");
    int64_t most = 0;
    for (ChannelNeed &buffer : buffers) {
      most = std::max(most, buffer.messages);
      --buffer.messages;
      expect(!ends(), semantics, "a buffer is larger than it must be");
      ++buffer.messages;
      const Instruction &send = at(buffer.message);
      expect(send.op == Op::Send && buffer.message.rank == buffer.source &&
                 send.peer == buffer.destination && send.comm == buffer.comm &&
                 number(buffer.message) + 1 >= buffer.messages,
             semantics, "a buffer names a wrong message");
    }
    expect(most == *least, semantics, "no buffer as large as the capacity");
  }

  const Program &program;
  Tally &tally;
  std::string problem;
  std::map<std::string, Outcome> outcomes;
};

} // namespace

std::string penstock::test::compare(const Program &program, Tally &tally) {
  if (Status status = wellFormed(program); !status)
    return "not well-formed: " + status.failure().message;
  return Comparison(program, tally).run();
}
