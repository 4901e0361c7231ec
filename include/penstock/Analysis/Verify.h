//===- Verify.h - Proves a program right, or says why not -------*- C++ -*-===//
//
// The verifier takes any program from any source and trusts no pass. It proves
// five rules (docs/semantics.md defines them and what each does not promise):
//
//   structure     indices in range, every transfer has both ends, bytes and
//                 kinds agree, first to first
//   completeness  every (stage, mb) has its F and its B or I + W exactly once,
//                 on the rank that owns it
//   data flow     symbolic execution over slots: every action reads exactly the
//                 tensors it needs, nothing is overwritten while in use, on any
//                 queue; every weight gradient is counted once
//   deadlock      the programs terminate under the chosen semantics
//   memory        planned peak per rank, at most the limit
//
// All are linear in the number of instructions.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_ANALYSIS_VERIFY_H
#define PENSTOCK_ANALYSIS_VERIFY_H

#include "penstock/Program/Program.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

enum class Rule : uint8_t {
  Structure,
  Completeness,
  DataFlow,
  Deadlock,
  Memory
};
/// "structure", "completeness", "data-flow", "deadlock", "memory".
std::string_view name(Rule rule);

/// What the transport and the device promise; docs/semantics.md defines each
/// model as a rule of steps. The default, closure, is what acceptance means.
struct Semantics {
  /// How a group progresses; from strict to lax.
  enum Groups : uint8_t {
    Closure,    ///< a group runs with all groups it matches, as one step
    Documented, ///< members progress independently, first to first per peer
    Layered     ///< documented, but the k-th transfer to a peer starts only
                ///< after all transfers of the layers before it in its group
  };
  static constexpr int64_t kUnlimited = INT64_MAX;

  Groups groups = Closure;
  /// A send may run this many messages ahead of its receive; 0: rendezvous,
  /// kUnlimited: "buffered". Closure knows no capacity and ignores it.
  int64_t capacity = 0;
  /// Queues give no independence: a rank runs strictly in host issue order.
  bool serialised = false;
  /// No channel is connected yet: the host blocks in every item until both
  /// ends of its new channels are reached.
  bool firstUse = false;

  constexpr Semantics(Groups groups = Closure, int64_t capacity = 0,
                      bool serialised = false, bool firstUse = false)
      : groups(groups), capacity(capacity), serialised(serialised),
        firstUse(firstUse) {}
  bool operator==(const Semantics &) const = default;
};
/// "closure", "documented", "serialised layered with capacity 2, first use".
std::string name(const Semantics &semantics);

/// One more place that explains a finding.
struct Note {
  Site site;
  std::string text;
};

/// One fault. `message` and the notes are complete sentences without the
/// location; describe(program, site) gives that.
struct Finding {
  Rule rule = Rule::Structure;
  Site site;
  std::string message;
  std::vector<Note> notes;
};

/// Index of the partner of every transfer: partner[rank][i] is the instruction
/// index on the peer that instruction i of `rank` matches first to first on its
/// channel, or kNoInstruction.
struct Matching {
  std::vector<std::vector<uint32_t>> partner;
};
/// Pairs the i-th send with the i-th receive of each channel (communicator,
/// source, destination). The program must be well-formed (wellFormed()).
Matching matchTransfers(const Program &program);

/// How an execution ends. Error: the two sides of a pair of ranks present
/// different new connections on first use.
enum class Outcome : uint8_t { Ok, Deadlock, Error };
/// "ok", "deadlock", "error".
std::string_view name(Outcome outcome);

/// Outcome of the deadlock check under one semantics.
struct DeadlockResult {
  bool ok = false;
  /// When not ok: a cycle of waits; entry k waits for entry k + 1, the last
  /// for the first. From one rank to another an entry waits for its other end;
  /// on one rank it stands behind the next entry, or is in one group with it
  /// (closure, layered). Empty when there is no cycle; then `unmatched` is not.
  std::vector<Site> cycle;
  /// Transfers and collectives that their rank has reached and whose partners
  /// do not exist.
  std::vector<Site> unmatched;
  /// When not ok, how far each rank comes.
  struct Progress {
    uint32_t ended = 0;                ///< instructions
    uint32_t stopsAt = kNoInstruction; ///< the first that does not end
  };
  std::vector<Progress> progress;

  /// Not empty, and the only thing that is not, for an error on first use: of
  /// two items, in which two ranks connect to each other, a transfer each. The
  /// first is one that the other item does not answer.
  std::vector<Site> conflict;

  Outcome outcome() const {
    if (ok)
      return Outcome::Ok;
    return conflict.empty() ? Outcome::Deadlock : Outcome::Error;
  }
};
/// The program must be well-formed. Linear, under every semantics.
///
/// A verdict of one communication program under all models is
///   checkDeadlock(p, {groups, capacity, serialised, firstUse}).outcome()
///     documented           {Documented}
///     buffered             {Documented, kUnlimited}
///     layered              {Layered}
///     closure              {Closure}
///     first use            {Documented, 0, false, true}
///     serialised           {Documented, 0, true}
///     serialised, buffered {Documented, kUnlimited, true}
/// with `cycle` and `unmatched` from documented, minCapacity(p), and for
/// mismatched messages matchTransfers(p).
DeadlockResult checkDeadlock(const Program &program,
                             const Semantics &semantics);

/// Why an execution that has ended the instructions `done[rank][i] != 0` and
/// cannot go on is stuck: the shortest cycle of waits among the others. With
/// nothing done it explains the whole program.
DeadlockResult explainBlocked(const Program &program,
                              const Semantics &semantics,
                              const std::vector<std::vector<uint8_t>> &done);

/// The finding that describes a deadlock in words: "rank 0 waits in `send
/// activation 0 mb 1 to 1` for rank 1's `recv ...`, which stands behind ...",
/// with a repair (Repair.h); one note per entry, and how far the ranks come.
/// The runtime's watchdog uses the same words.
Finding describeDeadlock(const Program &program, const DeadlockResult &result,
                         const Semantics &semantics, bool canGroup = true);

/// Smallest k such that the program terminates when a send may run k messages
/// ahead of its receive; 0: rendezvous suffices; nullopt: no k suffices. The
/// semantics are documented or layered, its capacity does not matter. A
/// diagnosis, never a licence.
std::optional<int64_t>
minCapacity(const Program &program,
            const Semantics &semantics = Semantics::Documented);

/// What one channel must buffer.
struct ChannelNeed {
  uint16_t comm = 0;
  int32_t source = -1, destination = -1;
  int64_t messages = 0;
  /// The first send that runs so many messages ahead, itself counted, and the
  /// bytes of all of these.
  Site message;
  int64_t bytes = 0;
};
/// The buffers that a program relies on.
struct CapacityNeed {
  /// minCapacity(): the largest need of a channel.
  std::optional<int64_t> least;
  /// The channels that must buffer something, by communicator, source and
  /// destination. With room for these messages and no others the program
  /// terminates. Where two channels can stand in for each other, only one of
  /// them is here.
  std::vector<ChannelNeed> channels;
  /// No entry can be less while the others stay. False for programs so large
  /// that trying would take too long.
  bool minimal = true;
};
CapacityNeed capacityNeed(const Program &program,
                          const Semantics &semantics = Semantics::Documented);

struct VerifyOptions {
  /// Check an order: transfers are implied, slots do not exist.
  bool order = false;
  /// Where the program has a certificate, check that (Certificate.h) instead of
  /// searching for a deadlock. One that does not hold is a finding.
  bool useCertificate = false;
  /// Whether those who issue the program can issue transfers as a group. If
  /// not, repairs do without.
  bool canGroup = true;
  /// Findings to collect per rule before giving up on it.
  unsigned maxFindings = 16;
  /// Under these the program must end as well as under closure.
  std::vector<Semantics> require = {};
};

/// What the verifier found out.
struct Verdict {
  std::vector<Finding> findings; ///< empty: accepted
  /// What is right here, but goes wrong elsewhere; refuses nothing.
  std::vector<Finding> warnings;
  bool deadlockFree = false; ///< closure
  bool documentedOk = false;
  std::vector<Site> cycle; ///< closure's cycle, when there is one
  std::optional<int64_t> minCapacity;
  std::vector<ChannelNeed> buffers; ///< that are enough: capacityNeed()
  /// Whether the program ends, under documented semantics, where queues are no
  /// more than the host's issue order. If not while it is deadlock-free, it
  /// needs queues that really run side by side, which is a warning. Not set
  /// for orders.
  std::optional<bool> serialisedOk;
  bool accepted() const { return findings.empty(); }
};
Verdict verify(const Program &program, const VerifyOptions &options = {});

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_VERIFY_H
