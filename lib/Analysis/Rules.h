//===- Rules.h - One function per rule --------------------------*- C++ -*-===//
//
// What verify() puts together. Every rule is linear, stops after the number of
// findings asked for, and indexes only what wellFormed() promises.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_LIB_ANALYSIS_RULES_H
#define PENSTOCK_LIB_ANALYSIS_RULES_H

#include "Channels.h"

#include "penstock/Analysis/Verify.h"

namespace penstock {

/// Collects the findings of one rule.
class Findings {
public:
  Findings(Rule rule, unsigned limit) : rule(rule), limit(limit) {}

  bool full() const { return list.size() >= limit; }
  bool empty() const { return list.empty(); }
  void add(Site site, std::string message, std::vector<Note> notes = {}) {
    if (!full())
      list.push_back({rule, site, std::move(message), std::move(notes)});
  }
  std::vector<Finding> list;

private:
  const Rule rule;
  const unsigned limit;
};

void checkStructure(const Program &program, const Channels &channels,
                    Findings &findings);
/// An order has no transfers and sums of gradients yet.
void checkCompleteness(const Program &program, bool order, Findings &findings,
                       Findings &warnings);
/// Of a problem with post-validation, a part of checkCompleteness.
void checkPostValidation(const Program &program, bool order,
                         Findings &findings);
void checkDataFlow(const Program &program, Findings &findings);
void checkMemory(const Program &program, bool order, Findings &findings);
/// checkDeadlock, for those who have the channels already.
DeadlockResult checkDeadlock(const Program &program, const Channels &channels,
                             const Semantics &semantics);
/// capacityNeed, for those who have the channels already.
CapacityNeed capacityNeed(const Program &program, const Channels &channels,
                          const Semantics &semantics);
/// Of each rank and instruction, whether it has ended.
using Ended = std::vector<std::vector<uint8_t>>;
/// Runs on from what has ended (null: nothing) and explains what is left, with
/// all channels connected. `ended` receives what had ended when it stuck.
DeadlockResult runAndExplain(const Program &program, const Channels &channels,
                             const Semantics &semantics, const Ended *done,
                             Ended *ended = nullptr);
/// Whether all hosts get through the set-up of connections when there are none
/// at the start, or only those of what has ended.
DeadlockResult checkFirstUse(const Program &program, const Channels &channels,
                             const Ended *done);
/// That a complete order can run across ranks; returns the cycle if it cannot.
std::vector<Site> checkOrderRuns(const Program &program, Findings &findings);

/// Whether a table of all (stage, mb) is no larger than what a complete program
/// of this length needs, or small anyway.
inline bool hasModestTables(const Program &program) {
  const Problem &problem = program.problem;
  return static_cast<size_t>(problem.numStages()) *
             static_cast<size_t>(problem.numMicrobatches) <=
         std::max<size_t>(1 << 20, program.numInstructions());
}

} // namespace penstock

#endif // PENSTOCK_LIB_ANALYSIS_RULES_H
