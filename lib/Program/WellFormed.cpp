//===- WellFormed.cpp - What every program fulfils ------------------------===//

#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>
#include <tuple>
#include <utility>

using namespace penstock;

namespace {

/// Faults are texts; an empty one is no fault.
template <typename... Parts>
std::string text(const Parts &...parts) {
  std::ostringstream os;
  (os << ... << parts);
  return os.str();
}

template <typename T>
std::string checkRange(std::string_view what, T value, T min, T max) {
  if (min <= value && value <= max)
    return {};
  return text(what, " is ", value, "; it must be ", min, " to ", max);
}

std::string checkNumber(std::string_view what, double value) {
  if (std::isfinite(value) && !std::signbit(value))
    return {};
  return text(what, " is ", value, "; it must be finite and not negative");
}

std::string checkBytes(std::string_view what, int64_t bytes) {
  return checkRange<int64_t>(what, bytes, 0, kMaxBytes);
}

using NamedCost = std::pair<std::string_view, double>;
std::array<NamedCost, 5> costsOf(const Stage &stage) {
  const StageCost &cost = stage.cost;
  return {{{"the forward cost", cost.forward},
           {"the backward cost", cost.backward},
           {"the input-gradient cost", cost.input},
           {"the weight-gradient cost", cost.weight},
           {"the recompute cost", cost.recompute}}};
}

std::string checkStage(const Stage &stage) {
  const StageBytes &bytes = stage.bytes;
  std::string fault =
      checkRange<int64_t>("the first layer", stage.firstLayer, 0, INT32_MAX);
  if (fault.empty())
    fault = checkRange<int64_t>("the number of layers", stage.numLayers, 1,
                                INT32_MAX - stage.firstLayer);
  for (auto [what, value] : costsOf(stage))
    if (fault.empty())
      fault = checkNumber(what, value);
  for (auto [what, value] :
       {std::pair("the size of the output", bytes.output),
        std::pair("the size of the stash", bytes.stash),
        std::pair("the size of the parameters", bytes.parameters),
        std::pair("the size of the gradients", bytes.gradients),
        std::pair("the size of the optimizer state", bytes.optimizer)})
    if (fault.empty())
      fault = checkBytes(what, value);
  return fault;
}

/// All costs and the times of the largest transfers, added up. Whatever a
/// program makes of them, it cannot reach the largest double from here.
std::string checkTotalTime(const Problem &problem) {
  constexpr double kMaxTotalTime = 1e300;
  const double transfer = problem.link.time(kMaxBytes);
  const double copy = problem.hostLink.time(kMaxBytes);
  double total = 0;
  NamedCost largest = {"the time of a transfer of 1 TiB over the link",
                       transfer};
  if (copy > transfer)
    largest = {"the time of a copy of 1 TiB to host memory", copy};
  std::string ofStage;
  for (size_t s = 0; s < problem.stages.size(); ++s) {
    for (NamedCost cost : costsOf(problem.stages[s])) {
      total += cost.second;
      if (cost.second > largest.second) {
        largest = cost;
        ofStage = text(" of stage ", s);
      }
    }
    total += 2 * (transfer + copy);
  }
  if (total * problem.numMicrobatches < kMaxTotalTime)
    return {};
  return text(largest.first, ofStage, " is ", largest.second,
              "; times that add up to ", kMaxTotalTime,
              " or more cannot be computed with, choose a larger unit of time");
}

/// What a rank may hold of all micro-batches on all stages, added up: a stash,
/// a version of the weights, and activations and gradients that come and go.
/// With what it holds in any case, 64 bits have room for it.
std::string checkTotalBytes(const Problem &problem) {
  constexpr double kMaxTotalBytes = int64_t(1) << 62;
  double each = 0;
  for (const Stage &stage : problem.stages)
    each += static_cast<double>(stage.bytes.stash) +
            static_cast<double>(stage.bytes.parameters) +
            4 * static_cast<double>(stage.bytes.output);
  const double total = each * problem.numWholeMicrobatches();
  if (total < kMaxTotalBytes)
    return {};
  return text("the stashes, weights and outputs of a micro-batch, ", each,
              " bytes on all stages, are ", total, " bytes for all ",
              problem.numWholeMicrobatches(), "; sums of ", kMaxTotalBytes,
              " or more cannot be computed with, give fewer micro-batches or "
              "smaller sizes");
}

std::string checkWeights(const Problem &problem) {
  if (!problem.weights.empty() && problem.slices > 1)
    return text("micro-batches that are cut into slices have no weights; drop "
                "the ",
                problem.slices, " slices or the weights");
  if (!problem.weights.empty() &&
      problem.weights.size() != static_cast<size_t>(problem.numMicrobatches))
    return text("there are weights for ", problem.weights.size(), " of ",
                problem.numMicrobatches,
                " micro-batches; give one for each, or none");
  for (size_t mb = 0; mb < problem.weights.size(); ++mb)
    if (std::string fault = checkNumber("its weight", problem.weights[mb]);
        !fault.empty())
      return text("micro-batch ", mb, ": ", fault);
  if (!problem.weights.empty() &&
      std::all_of(problem.weights.begin(), problem.weights.end(),
                  [](double weight) { return weight == 0; }))
    return "the weights of all micro-batches are 0, so that nothing would be "
           "learnt; give one a weight, or drop them";
  return {};
}

std::string checkTied(const Problem &problem) {
  std::vector<uint8_t> isTied(problem.stages.size());
  for (int32_t first = -1; const TiedStages &set : problem.tied) {
    if (set.stages.size() < 2)
      return text("a set of tied stages has ", set.stages.size(),
                  "; name at least two, or drop it");
    int32_t before = std::exchange(first, set.stages.front());
    for (int32_t stage : set.stages) {
      if (std::string fault =
              checkRange("a tied stage", stage, 0, problem.numStages() - 1);
          !fault.empty())
        return fault;
      if (std::exchange(isTied[stage], 1))
        return text("stage ", stage,
                    " is tied twice; name it in one set, once");
      if (stage < before)
        return text("tied stage ", stage, " stands after ", before,
                    "; sort each set, and the sets by their first stages");
      before = stage;
    }
    if (std::string fault = checkBytes("the size of what is tied", set.bytes);
        !fault.empty())
      return text("tied stage ", first, ": ", fault);
  }
  return {};
}

std::string checkSlices(const Problem &problem) {
  if (problem.slices == 1)
    return checkRange("the number of micro-batches", problem.numMicrobatches, 1,
                      kMaxMicrobatches);
  if (std::string fault = checkRange("the number of slices of a micro-batch",
                                     problem.slices, 1, kMaxMicrobatches);
      !fault.empty())
    return fault;
  if (problem.numMicrobatches > kMaxMicrobatches)
    return text("micro-batches of ", problem.slices, " slices are more than ",
                kMaxMicrobatches,
                " slices in all; give fewer micro-batches or slices");
  if (problem.numMicrobatches < 1 ||
      problem.numMicrobatches % problem.slices != 0)
    return text("the number of slices in all is ", problem.numMicrobatches,
                "; it must be a multiple of the ", problem.slices,
                " slices of a micro-batch");
  return {};
}

std::string checkProblem(const Problem &problem) {
  std::string fault =
      checkRange("the number of ranks", problem.numRanks, 1, kMaxRanks);
  if (fault.empty())
    fault = checkSlices(problem);
  if (fault.empty())
    fault = checkRange<size_t>("the number of stages", problem.stages.size(), 1,
                               kMaxStages);
  if (!fault.empty())
    return fault;

  const int32_t numStages = problem.numStages();
  for (int32_t s = 0; s < numStages; ++s)
    if (fault = checkStage(problem.stages[s]); !fault.empty())
      return text("stage ", s, ": ", fault);

  const size_t numPlaces = problem.placement.size();
  if (numPlaces == 0 || numPlaces % numStages != 0)
    return text("the placement has ", numPlaces, " entries for ", numStages,
                " stages; give every stage one rank per chain");
  if (fault = checkRange<size_t>("the number of chains", numPlaces / numStages,
                                 1, kMaxChains);
      !fault.empty())
    return fault;
  for (size_t i = 0; i < numPlaces; ++i)
    if (fault = checkRange("its rank", problem.placement[i], 0,
                           problem.numRanks - 1);
        !fault.empty())
      return text("stage ", i % numStages, " on chain ", i / numStages, ": ",
                  fault);

  if (problem.slices > 1 &&
      (!problem.chains.empty() || problem.numChains() > 1))
    return text("micro-batches that are cut into slices have one chain; drop "
                "the ",
                problem.slices, " slices or the chains");
  if (!problem.chains.empty() &&
      problem.chains.size() != static_cast<size_t>(problem.numMicrobatches))
    return text("there are chains for ", problem.chains.size(), " of ",
                problem.numMicrobatches,
                " micro-batches; give one for each, or none");
  for (size_t mb = 0; mb < problem.chains.size() && problem.numChains() == 1;
       ++mb)
    if (problem.chains[mb] != 0)
      return text("micro-batch ", mb, " is on chain ", int(problem.chains[mb]),
                  ", but there is one chain, as every stage is on one rank; "
                  "drop the chains, or use a family with two, as dualpipe and "
                  "chimera are");
  for (size_t mb = 0; mb < problem.chains.size(); ++mb)
    if (fault = checkRange("its chain", int(problem.chains[mb]), 0,
                           problem.numChains() - 1);
        !fault.empty())
      return text("micro-batch ", mb, ": ", fault);

  if (fault = checkWeights(problem); !fault.empty())
    return fault;
  if (fault = checkTied(problem); !fault.empty())
    return fault;
  if (!(problem.overlap >= 0 && problem.overlap <= 1))
    return text("the overlap is ", problem.overlap,
                "; it must be 0 to 1, the part of the shorter actions that "
                "running together hides");

  fault = checkNumber("the latency of the link", problem.link.latency);
  if (fault.empty())
    fault = checkNumber("the bandwidth of the link (bytes per time)",
                        problem.link.bytesPerTime);
  if (fault.empty())
    fault = checkNumber("the latency of the link to host memory",
                        problem.hostLink.latency);
  if (fault.empty())
    fault = checkNumber("the bandwidth of the link to host memory (bytes per "
                        "time)",
                        problem.hostLink.bytesPerTime);
  if (fault.empty())
    fault = checkTotalTime(problem);
  if (fault.empty())
    fault = checkTotalBytes(problem);
  if (fault.empty())
    fault = checkRange<int64_t>("the memory of a rank", problem.memory, 0,
                                INT64_MAX);
  return fault;
}

std::string checkRankSets(const Program &program) {
  const auto &sets = program.rankSets;
  for (size_t i = 0; i < sets.size(); ++i) {
    if (sets[i].empty())
      return text("rank set ", i, " is empty; a collective needs a rank");
    for (size_t k = 0; k < sets[i].size(); ++k) {
      if (std::string fault = checkRange("a member", sets[i][k], 0,
                                         program.problem.numRanks - 1);
          !fault.empty())
        return text("rank set ", i, ": ", fault);
      if (k > 0 && sets[i][k - 1] >= sets[i][k])
        return text("rank set ", i, " has ", sets[i][k], " after ",
                    sets[i][k - 1], "; sort the ranks and name each once");
    }
  }
  std::vector<size_t> order(sets.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(sets[a], a) < std::tie(sets[b], b);
  });
  for (size_t i = 1; i < order.size(); ++i)
    if (sets[order[i - 1]] == sets[order[i]])
      return text("rank sets ", order[i - 1], " and ", order[i],
                  " are equal; use the first for both");
  return {};
}

/// Which of the fields an op has.
enum class Has : uint8_t { No, Maybe, Yes };
struct Fields {
  Has stage, microbatch;
};
Fields fieldsOf(const Instruction &inst) {
  if (movesState(inst))
    return {Has::No, Has::No};
  switch (inst.op) {
  case Op::AllReduce:
  case Op::ReduceGrad:
  case Op::Unshard:
  case Op::Reshard:
    return {Has::Yes, Has::Maybe};
  case Op::Barrier:
  case Op::ReduceState:
  case Op::Validate:
    return {Has::No, Has::No};
  case Op::ReduceTied:
    return {Has::Yes, Has::No};
  case Op::Step:
    return {Has::Maybe, Has::Maybe};
  default:
    return {Has::Yes, Has::Yes};
  }
}

/// Checks the instructions of one rank after the other. A check that fails
/// leaves the reason in `fault`.
class RankChecker {
public:
  explicit RankChecker(const Program &program)
      : program(program), numStages(program.problem.numStages()) {}

  Status run(int32_t index) {
    rank = index;
    const RankProgram &r = program.ranks[index];
    if (!checkSlots("slot", r.slotBytes) ||
        !checkSlots("host slot", r.hostSlotBytes))
      return Failure{fault, {index, kNoInstruction}};
    if (!r.times.empty() && r.times.size() != r.instructions.size())
      return Failure{text("has ", r.times.size(), " times for ",
                          r.instructions.size(), " instructions; certify the ",
                          "program anew, or drop the times"),
                     {index, kNoInstruction}};
    nextWait = 0;
    for (uint32_t i = 0; i < r.instructions.size(); ++i)
      if (!checkInstruction(r, i))
        return Failure{fault, {index, i}};
    if (nextWait != r.waits.size())
      return Failure{text("has ", r.waits.size(), " waits, of which the ",
                          "instructions use ", nextWait, "; drop the others"),
                     {index, kNoInstruction}};
    return success();
  }

  uint32_t numSetsUsed() const { return nextSet; }

private:
  bool fail(std::string why) {
    fault = std::move(why);
    return false;
  }

  bool checkSlots(std::string_view what,
                  const std::vector<int64_t> &slotBytes) {
    if (slotBytes.size() > INT32_MAX)
      return fail(text("has ", slotBytes.size(), ' ', what, "s; at most ",
                       INT32_MAX, " can be numbered"));
    int64_t arena = 0;
    for (size_t i = 0; i < slotBytes.size(); ++i) {
      if (std::string why = checkBytes("its size", slotBytes[i]); !why.empty())
        return fail(text(what, ' ', i, ": ", why));
      arena += slotBytes[i] + kSlotAlignment;
      if (arena > (int64_t(1) << 62))
        return fail(text("the ", what,
                         "s need more than 2^62 bytes; make them smaller"));
    }
    return true;
  }

  bool checkInstruction(const RankProgram &r, uint32_t i) {
    const Instruction &inst = r.instructions[i];
    if (static_cast<unsigned>(inst.op) >= kNumOps)
      return fail(text("the op is ", unsigned(inst.op), "; it must be 0 to ",
                       kNumOps - 1));
    return checkNames(inst) && checkOperands(r, inst) &&
           (!inst.joined ||
            checkJoined(i ? &r.instructions[i - 1] : nullptr, inst)) &&
           checkWaits(r, inst, i);
  }

  bool checkIndex(std::string_view what, Has has, int32_t value,
                  int32_t count) {
    if (has == Has::No ? value == -1
                       : (value >= 0 && value < count) ||
                             (has == Has::Maybe && value == -1))
      return true;
    if (has == Has::No)
      return fail(text("has ", what, " ", value,
                       ", which the op does not take; set it to -1"));
    return fail(
        text("the ", what, " is ", value, "; it must be 0 to ", count - 1));
  }

  /// Stage, micro-batch, payload and peer.
  bool checkNames(const Instruction &inst) {
    const Fields fields = fieldsOf(inst);
    if (!checkIndex("stage", fields.stage, inst.stage, numStages) ||
        !checkIndex("micro-batch", fields.microbatch, inst.microbatch,
                    program.problem.numMicrobatches))
      return false;
    if (inst.op == Op::ReduceTied && !program.problem.tiedAt(inst.stage))
      return fail(text("no set of tied stages begins with stage ", inst.stage,
                       "; name the first stage of one, or tie the stages"));
    if (inst.microbatch >= 0 && inst.stage < 0)
      return fail(text("has micro-batch ", inst.microbatch,
                       " and no stage; name the stage too"));

    if ((usesState(inst.op) || movesState(inst)) &&
        !program.problem.postValidation)
      return fail("is there for post-validation, which the schedule does not "
                  "have; add post_validation to it, or remove this");
    if (isTransfer(inst.op)) {
      if (inst.payload == Payload::None ||
          static_cast<unsigned>(inst.payload) >= kNumPayloads)
        return fail(text("the payload is ", unsigned(inst.payload),
                         "; a transfer moves an activation (1), a gradient "
                         "(2), a stash (3) or a state (4)"));
      if (inst.peer == rank)
        return fail("is a transfer of the rank with itself; use the tensor "
                    "where it is");
      return checkIndex("peer", Has::Yes, inst.peer, program.problem.numRanks);
    }
    if (inst.payload != Payload::None)
      return fail(text("has payload ", unsigned(inst.payload),
                       "; only transfers have one"));
    if (inst.op == Op::Offload || inst.op == Op::Reload) {
      if (inst.peer == rank)
        return fail("moves a stash to the rank on which it is; name another "
                    "rank, or none for host memory");
      return checkIndex("rank of the stash", Has::Maybe, inst.peer,
                        program.problem.numRanks);
    }
    if (!isCollective(inst.op))
      return checkIndex("peer", Has::No, inst.peer, 0);
    const int32_t numSets = static_cast<int32_t>(program.rankSets.size());
    if (inst.peer < -1 || inst.peer >= numSets)
      return fail(text("the rank set is ", inst.peer, "; there are ", numSets,
                       ", and -1 means all ranks"));
    if (inst.peer > static_cast<int32_t>(nextSet))
      return fail(text("uses rank set ", inst.peer, " before ", nextSet,
                       "; number rank sets by first use"));
    if (inst.peer == static_cast<int32_t>(nextSet))
      ++nextSet;
    return true;
  }

  /// Communicator, bytes and slots.
  bool checkOperands(const RankProgram &r, const Instruction &inst) {
    if (usesComm(inst.op)) {
      if (inst.bytes < 0 || inst.bytes > kMaxBytes)
        return fail(checkBytes("the number of bytes", inst.bytes));
    } else if (inst.bytes != 0 || inst.comm != 0) {
      return fail(text("has ", inst.bytes, " bytes and communicator ",
                       inst.comm,
                       "; only transfers and collectives have these"));
    }
    const unsigned numRoles = isAction(inst.op)                          ? 4
                              : isTransfer(inst.op) && !movesState(inst) ? 1
                              : movesToHost(inst)                        ? 2
                                                                         : 0;
    for (unsigned role = 0; role < inst.slots.size(); ++role) {
      const int32_t slot = inst.slots[role];
      if (slot == kNoSlot)
        continue;
      if (role >= numRoles)
        return fail(text("has slot ", slot, " as operand ", role,
                         ", which the op does not take; set it to -1"));
      const bool inHost = movesToHost(inst) && role == Host;
      const auto numSlots = static_cast<int64_t>(inHost ? r.hostSlotBytes.size()
                                                        : r.slotBytes.size());
      if (slot < 0 || slot >= numSlots)
        return fail(text(inHost ? "host slot " : "slot ", slot,
                         " does not exist; the rank has ", numSlots));
    }
    return true;
  }

  /// An instruction that belongs to the one before it.
  bool checkJoined(const Instruction *before, const Instruction &inst) {
    if (!before)
      return fail("is joined to the instruction before it, but is the first of "
                  "the rank; clear the flag");
    const bool transfers = isTransfer(before->op) && isTransfer(inst.op);
    const bool actions = isAction(before->op) && isAction(inst.op);
    if (!transfers && !actions)
      return fail(text("is joined to `", describe(*before),
                       "`; only transfers form a group and only actions an "
                       "overlap"));
    if (before->queue != inst.queue)
      return fail(text("is on queue ", unsigned(inst.queue), " and joined to `",
                       describe(*before), "` on queue ",
                       unsigned(before->queue), "; an item has one queue"));
    if (inst.numWaits != 0)
      return fail("is joined to the instruction before it and has waits; give "
                  "them to the first instruction of the item");
    return true;
  }

  bool checkWaits(const RankProgram &r, const Instruction &inst, uint32_t i) {
    const uint64_t first = inst.numWaits ? nextWait : 0;
    if (inst.firstWait != first)
      return fail(text("its waits begin at ", inst.firstWait,
                       "; they must begin at ", first,
                       ", where the ones before end (0 where there is none)"));
    if (nextWait + inst.numWaits > r.waits.size())
      return fail(text("has ", inst.numWaits, " waits from ", first,
                       " on, but the rank has only ", r.waits.size()));
    for (uint64_t k = 0; k < inst.numWaits; ++k)
      if (r.waits[first + k] >= i)
        return fail(text("waits for instruction ", r.waits[first + k],
                         "; only earlier ones of the same rank can be waited "
                         "for"));
    nextWait += inst.numWaits;
    return true;
  }

  const Program &program;
  const int32_t numStages;
  int32_t rank = 0;
  uint64_t nextWait = 0;
  uint32_t nextSet = 0;
  std::string fault;
};

} // namespace

Status penstock::wellFormed(const Program &program, size_t maxFileBytes) {
  if (std::string fault = checkProblem(program.problem); !fault.empty())
    return Failure{fault, {}};
  const int32_t numRanks = program.problem.numRanks;
  if (program.ranks.size() != static_cast<size_t>(numRanks))
    return Failure{text("there are instructions for ", program.ranks.size(),
                        " of ", numRanks,
                        " ranks; give every rank a list, an empty one too"),
                   {}};
  if (std::string fault = checkRankSets(program); !fault.empty())
    return Failure{fault, {}};
  if (size_t bytes = estimateFileBytes(program); bytes > maxFileBytes)
    return Failure{text("the program needs ", bytes,
                        " bytes, but a program file holds at most ",
                        maxFileBytes, "; use fewer micro-batches"),
                   {}};
  RankChecker checker(program);
  for (int32_t rank = 0; rank < numRanks; ++rank)
    if (Status status = checker.run(rank); !status)
      return status;
  if (checker.numSetsUsed() != program.rankSets.size())
    return Failure{text("no collective uses rank set ", checker.numSetsUsed(),
                        "; drop it"),
                   {}};
  return success();
}
