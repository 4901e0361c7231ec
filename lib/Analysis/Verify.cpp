//===- Verify.cpp - The five rules ----------------------------------------===//

#include "penstock/Analysis/Verify.h"

#include "Describe.h"
#include "HostOrder.h"
#include "Rules.h"

#include "penstock/Analysis/RunOrder.h"
#include "penstock/Program/Certificate.h"
#include "penstock/Program/File.h"

using namespace penstock;

std::string_view penstock::name(Rule rule) {
  switch (rule) {
  case Rule::Structure:
    return "structure";
  case Rule::Completeness:
    return "completeness";
  case Rule::DataFlow:
    return "data-flow";
  case Rule::Deadlock:
    return "deadlock";
  case Rule::Memory:
    return "memory";
  }
  return "unknown";
}

std::string penstock::name(const Semantics &semantics) {
  static constexpr const char *groups[] = {"closure", "documented", "layered"};
  std::string text = semantics.serialised ? "serialised " : "";
  text += groups[semantics.groups];
  if (semantics.groups != Semantics::Closure && semantics.capacity > 0)
    text += semantics.capacity == Semantics::kUnlimited
                ? " with unlimited capacity"
                : " with capacity " + std::to_string(semantics.capacity);
  return text + (semantics.firstUse ? ", first use" : "");
}

std::string_view penstock::name(Outcome outcome) {
  switch (outcome) {
  case Outcome::Ok:
    return "ok";
  case Outcome::Deadlock:
    return "deadlock";
  case Outcome::Error:
    return "error";
  }
  return "unknown";
}

/// What an order must not have: it says only who computes what when.
static void checkIsOrder(const Program &program, Findings &findings) {
  for (int32_t r = 0; r < program.problem.numRanks; ++r) {
    const RankProgram &rank = program.ranks[r];
    for (uint32_t i = 0; i < rank.instructions.size(); ++i)
      if (usesComm(rank.instructions[i].op) ||
          usesState(rank.instructions[i].op)) {
        findings.add({r, i}, "does not belong into an order, where transfers "
                             "are implied; remove it, or check the whole as a "
                             "program");
        break;
      }
    if (!rank.slotBytes.empty() || !rank.hostSlotBytes.empty())
      findings.add({r, kNoInstruction},
                   "has slots, which do not belong into an order; remove "
                   "them, or check the whole as a program");
  }
}

/// With one communicator, host issue order adds nothing (docs/semantics.md).
static bool usesOneComm(const Program &program, const Channels &channels) {
  std::optional<uint16_t> only;
  auto isOnly = [&](uint16_t comm) { return comm == only.value_or(comm); };
  for (const Channel &channel : channels.channels) {
    if (!isOnly(channel.comm))
      return false;
    only = channel.comm;
  }
  for (const Meeting &meeting : channels.meetings) {
    const Site site = channels.site(channels.member(meeting, 0));
    const Instruction &inst =
        program.ranks[site.rank].instructions[site.instruction];
    if (!isOnly(inst.comm))
      return false;
    only = inst.comm;
  }
  return true;
}

static void checkDeadlocks(const Program &program, const Channels &channels,
                           const VerifyOptions &options, Verdict &verdict) {
  if (runsInHostOrder(channels)) {
    // That implies every semantics (docs/semantics.md).
    verdict.deadlockFree = verdict.documentedOk = true;
    verdict.serialisedOk = true;
    verdict.minCapacity = 0;
    return;
  }
  const DeadlockResult closure =
      checkDeadlock(program, channels, Semantics::Closure);
  verdict.deadlockFree = closure.ok;
  if (closure.ok) {
    verdict.minCapacity = 0; // Closure implies documented.
  } else {
    CapacityNeed need = capacityNeed(program, channels, Semantics::Documented);
    verdict.findings.push_back(describeDeadlock(
        program, closure, Semantics::Closure, options.canGroup, need));
    verdict.minCapacity = need.least;
    verdict.buffers = std::move(need.channels);
  }
  verdict.documentedOk = verdict.minCapacity == 0;
  verdict.cycle = closure.cycle;

  const Semantics serialised(Semantics::Documented, 0, true);
  DeadlockResult inOrder;
  inOrder.ok = verdict.documentedOk;
  if (inOrder.ok && !usesOneComm(program, channels))
    inOrder = checkDeadlock(program, channels, serialised);
  verdict.serialisedOk = inOrder.ok;
  if (closure.ok && !inOrder.ok) {
    Finding warning =
        describeDeadlock(program, inOrder, serialised, options.canGroup);
    warning.message = "needs queues that really run side by side, which no "
                      "device promises: " +
                      warning.message;
    verdict.warnings.push_back(std::move(warning));
  }

  for (const Semantics &semantics : options.require) {
    if (semantics == Semantics::Closure)
      continue; // as above
    const DeadlockResult result = checkDeadlock(program, channels, semantics);
    if (!result.ok)
      verdict.findings.push_back(
          describeDeadlock(program, result, semantics, options.canGroup));
  }
}

static void checkTimes(const Program &program, Verdict &verdict) {
  const Status status = checkCertificate(program);
  if (status) {
    verdict.deadlockFree = verdict.documentedOk = true;
    verdict.minCapacity = 0;
    return;
  }
  const Failure &failure = status.failure();
  verdict.findings.push_back(
      {Rule::Deadlock, failure.site, failure.message, {}});
}

Verdict penstock::verify(const Program &program, const VerifyOptions &options) {
  Verdict verdict;
  auto collect = [&](Rule rule, auto &&check) {
    Findings findings(rule, options.maxFindings);
    check(findings);
    for (Finding &finding : findings.list)
      verdict.findings.push_back(std::move(finding));
    return findings.empty();
  };

  if (Status status = wellFormed(program); !status) {
    const Failure &failure = status.failure();
    verdict.findings.push_back(
        {Rule::Structure, failure.site, failure.message, {}});
    return verdict;
  }

  Findings warnings(Rule::Completeness, options.maxFindings);
  if (options.order) {
    bool isOrder = collect(Rule::Structure,
                           [&](Findings &f) { checkIsOrder(program, f); });
    bool complete = collect(Rule::Completeness, [&](Findings &f) {
      checkCompleteness(program, options.order, f, warnings);
    });
    if (complete)
      complete = collect(Rule::Completeness, [&](Findings &f) {
        if (Status status = checkMoves(program); !status)
          f.add(status.failure().site, status.failure().message);
      });
    if (isOrder && complete) {
      verdict.deadlockFree = verdict.documentedOk =
          collect(Rule::Deadlock, [&](Findings &f) {
            verdict.cycle = checkOrderRuns(program, f);
          });
      if (verdict.deadlockFree)
        verdict.minCapacity = 0;
    }
  } else {
    const Channels channels(program);
    collect(Rule::Structure,
            [&](Findings &f) { checkStructure(program, channels, f); });
    collect(Rule::Completeness, [&](Findings &f) {
      checkCompleteness(program, options.order, f, warnings);
    });
    if (program.isPlanned() || hasModestTables(program))
      collect(Rule::DataFlow, [&](Findings &f) { checkDataFlow(program, f); });
    if (options.useCertificate && options.require.empty() &&
        hasCertificate(program))
      checkTimes(program, verdict);
    else
      checkDeadlocks(program, channels, options, verdict);
  }
  collect(Rule::Memory,
          [&](Findings &f) { checkMemory(program, options.order, f); });
  std::move(warnings.list.begin(), warnings.list.end(),
            std::back_inserter(verdict.warnings));
  return verdict;
}
