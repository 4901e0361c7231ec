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

enum class Rule : uint8_t { Structure, Completeness, DataFlow, Deadlock, Memory };
/// "structure", "completeness", "data-flow", "deadlock", "memory".
std::string_view name(Rule rule);

/// How a group progresses; from strict to lax. See docs/semantics.md.
enum class Semantics : uint8_t {
  Closure,   ///< a group runs with all groups it matches, as one step
  Documented ///< members progress independently, first to first per peer
};
std::string_view name(Semantics semantics);

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

/// Outcome of the deadlock check under one semantics.
struct DeadlockResult {
  bool ok = false;
  /// When not ok: a cycle of waits; entry k waits for entry k + 1, the last
  /// for the first. From one rank to another an entry waits for its other end;
  /// on one rank it stands behind the next entry, or under closure is in one
  /// group with it. Empty when there is no cycle; then `unmatched` is not.
  std::vector<Site> cycle;
  /// Transfers and collectives that their rank has reached and whose partners
  /// do not exist.
  std::vector<Site> unmatched;
};
/// The program must be well-formed. Linear.
DeadlockResult checkDeadlock(const Program &program, Semantics semantics);

/// Why an execution that has ended the instructions `done[rank][i] != 0` and
/// cannot go on is stuck: the shortest cycle of waits among the others. With
/// nothing done it explains the whole program.
DeadlockResult explainBlocked(const Program &program, Semantics semantics,
                              const std::vector<std::vector<uint8_t>> &done);

/// The finding that describes a deadlock in words: "rank 0 waits in `send
/// activation 0 mb 1 to 1` for rank 1's `recv ...`, which stands behind ...",
/// one note per entry. The runtime's watchdog uses the same words.
Finding describeDeadlock(const Program &program, const DeadlockResult &result,
                         Semantics semantics);

/// Smallest k such that the program terminates under documented semantics when
/// a send may run k messages ahead of its receive; 0: rendezvous suffices;
/// nullopt: no k suffices. A diagnosis, never a licence.
std::optional<int64_t> minCapacity(const Program &program);

struct VerifyOptions {
  /// Check an order: transfers are implied, slots do not exist.
  bool order = false;
  /// Findings to collect per rule before giving up on it.
  unsigned maxFindings = 16;
};

/// What the verifier found out.
struct Verdict {
  std::vector<Finding> findings; ///< empty: accepted
  bool deadlockFree = false;     ///< closure
  bool documentedOk = false;
  std::vector<Site> cycle; ///< closure's cycle, when there is one
  std::optional<int64_t> minCapacity;
  bool accepted() const { return findings.empty(); }
};
Verdict verify(const Program &program, const VerifyOptions &options = {});

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_VERIFY_H
