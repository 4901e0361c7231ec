//===- PostValidation.cpp - Optimizer steps are validated -----------------===//
//
// Part of the rule of completeness, where a problem has post-validation: the
// state of a batch goes from the first rank to the last behind the gradients,
// and back in the next batch, where every rank validates its step before it
// loses the gradients of that.
//
//===----------------------------------------------------------------------===//

#include "Describe.h"
#include "Rules.h"

#include "penstock/Program/Text.h"

#include <array>

using namespace penstock;

namespace {

/// What a rank does with states, in this order.
enum Role : unsigned {
  RecvWhole,
  Validates,
  SendWhole,
  RecvPart,
  Reduces,
  SendPart,
  kNumRoles,
};

class RankStates {
public:
  RankStates(const Program &program, int32_t rank, Findings &findings)
      : program(program), list(program.ranks[rank].instructions), rank(rank),
        findings(findings) {
    places.fill(kNoInstruction);
  }

  void run() {
    for (uint32_t i = 0; i < list.size(); ++i)
      if (const unsigned role = roleOf(list[i]); role < kNumRoles)
        enter(i, role);
    checkChain();
    checkPlaces();
  }

private:
  bool isThere(unsigned role) const { return places[role] != kNoInstruction; }
  Site site(uint32_t i) const { return {rank, i}; }

  /// kNumRoles: none. Transfers to other ranks than the neighbours have no
  /// right structure.
  unsigned roleOf(const Instruction &inst) const {
    if (inst.op == Op::Validate)
      return Validates;
    if (inst.op == Op::ReduceState)
      return Reduces;
    if (!movesState(inst))
      return kNumRoles;
    if (inst.peer == rank + 1)
      return inst.op == Op::Send ? SendPart : RecvWhole;
    if (inst.peer == rank - 1)
      return inst.op == Op::Send ? SendWhole : RecvPart;
    return kNumRoles;
  }

  void enter(uint32_t i, unsigned role) {
    if (isThere(role))
      findings.add(site(i), "is here a second time; remove one",
                   {{site(places[role]), "the first time is here"}});
    else
      places[role] = i;
  }

  /// The instruction of a role, to name it where it is missing.
  Instruction exampleOf(unsigned role) const {
    Instruction inst;
    inst.op = role == Validates                       ? Op::Validate
              : role == Reduces                       ? Op::ReduceState
              : role == SendWhole || role == SendPart ? Op::Send
                                                      : Op::Recv;
    if (isTransfer(inst.op)) {
      inst.payload = Payload::State;
      inst.peer = role == RecvWhole || role == SendPart ? rank + 1 : rank - 1;
    }
    return inst;
  }

  void checkChain() {
    const bool first = rank == 0, last = rank + 1 == program.problem.numRanks;
    unsigned before = kNumRoles;
    for (unsigned role = 0; role < kNumRoles; ++role) {
      if ((first && (role == SendWhole || role == RecvPart)) ||
          (last && (role == RecvWhole || role == SendPart)))
        continue;
      if (!isThere(role)) {
        static constexpr std::array<const char *, kNumRoles> why = {
            "the state of the batch before comes from the last rank",
            "the rank has to look whether its step of the batch before was "
            "right",
            "the state of the batch before goes on to the first rank",
            "the state of the batch comes from the first rank",
            "the rank has to add its gradients to the state of the batch",
            "the state of the batch goes on to the last rank"};
        findings.add({rank, kNoInstruction},
                     quoted(exampleOf(role)) + " is missing on rank " +
                         std::to_string(rank) + ": " + why[role] + "; add it");
        continue;
      }
      if (before < kNumRoles && places[role] < places[before])
        findings.add(
            site(places[role]),
            "stands before " + quoted(program, site(places[before])) +
                "; a rank receives the state of the batch before from the "
                "next rank, validates its step, sends it to the previous "
                "rank, receives that of the batch from there, adds to it and "
                "sends it to the next rank, in this order, so put it after "
                "that",
            {{site(places[before]), "this comes first"}});
      before = role;
    }
  }

  /// Where the gradients of the batch before are still there, and where those
  /// of the batch are complete.
  void checkPlaces() {
    int32_t firstStage = -1;
    uint32_t lastGradient = kNoInstruction;
    for (uint32_t i = 0; i < list.size(); ++i) {
      const Op op = list[i].op;
      if (isAction(op) && firstStage < 0)
        firstStage = list[i].stage;
      if (isAction(op) && isThere(Validates) && !isLate &&
          i < places[Validates] &&
          (op != Op::Forward || list[i].stage != firstStage)) {
        isLate = true;
        findings.add(site(places[Validates]),
                     "stands after " + quoted(program, site(i)) +
                         "; before it there may be only forwards of stage " +
                         std::to_string(firstStage) +
                         ", with which the rank begins, so put it before that",
                     {{site(i), "it has to come before this"}});
      }
      if (op == Op::Backward || op == Op::BackwardWeight ||
          op == Op::AllReduce || op == Op::ReduceTied || op == Op::ReduceGrad)
        lastGradient = i;
      if (op == Op::Step && list[i].microbatch < 0 && isThere(Reduces) &&
          i < places[Reduces])
        findings.add(site(i),
                     "stands before " + quoted(program, site(places[Reduces])) +
                         ", which tells it whether it may change the "
                         "parameters; put it after that",
                     {{site(places[Reduces]), "what it needs is here"}});
    }
    if (isThere(Reduces) && lastGradient != kNoInstruction &&
        lastGradient > places[Reduces])
      findings.add(site(places[Reduces]),
                   "stands before " + quoted(program, site(lastGradient)) +
                       ", which changes the gradients that it looks at; put "
                       "it after that",
                   {{site(lastGradient), "they change here"}});
  }

  const Program &program;
  const std::vector<Instruction> &list;
  const int32_t rank;
  Findings &findings;
  std::array<uint32_t, kNumRoles> places; ///< instruction of each role
  bool isLate = false;
};

/// There is one step, at the end of the batch.
void checkSteps(const Program &program, Findings &findings) {
  bool steps = false, trains = false;
  for (int32_t r = 0; r < program.problem.numRanks; ++r) {
    const auto &list = program.ranks[r].instructions;
    for (uint32_t i = 0; i < list.size(); ++i) {
      trains |= isAction(list[i].op);
      if (list[i].op != Op::Step)
        continue;
      steps = true;
      if (list[i].microbatch >= 0) {
        findings.add({r, i},
                     "is for one micro-batch, but post-validation is of one "
                     "step for the whole batch; choose a schedule with a "
                     "flush, or drop post_validation");
        return;
      }
    }
  }
  if (trains && !steps)
    findings.add({}, "there is no `step` that post-validation could be of; add "
                     "steps, or drop post_validation");
}

} // namespace

void penstock::checkPostValidation(const Program &program, bool order,
                                   Findings &findings) {
  checkSteps(program, findings);
  for (int32_t r = 0; r < program.problem.numRanks && !order; ++r) {
    if (findings.full())
      return;
    RankStates(program, r, findings).run();
  }
}
