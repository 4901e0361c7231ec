//===- WriteTorchCsv.cpp - Writes schedules for torch ---------------------===//
//
// torch has no groups: it issues the cells of a row one after the other. A
// group becomes its members by (source, destination), which both sides agree
// on. The groups that run as one step under closure then run as a sequence of
// transfers in one order, so that what closure accepts ends in torch too.
//
//===----------------------------------------------------------------------===//

#include "penstock/Import/TorchCsv.h"

#include "penstock/Program/Text.h"

#include <algorithm>
#include <numeric>

using namespace penstock;

namespace {

class Writer {
public:
  Writer(const Program &program, const TorchCsvOptions &options)
      : program(program), problem(program.problem), options(options),
        isOrder(program.isOrder()) {}

  Result<std::string> write() {
    if (Status status = check(); !status)
      return status.failure();
    for (int32_t r = 0; r < problem.numRanks; ++r)
      writeRank(r);
    return std::move(out);
  }

private:
  Status check();
  void writeRank(int32_t r);
  void writeItem(int32_t r, uint32_t begin, uint32_t end);
  void writeIdle(int32_t r, size_t i) {
    if (!options.idleCells.empty())
      for (uint32_t k = 0; k < options.idleCells[r][i]; ++k)
        writeCell("");
  }
  void writeCell(const std::string &cell) {
    if (!rowIsEmpty)
      out += ',';
    rowIsEmpty = false;
    out += cell;
  }
  void writeSharding(int32_t stage, Op op) {
    Instruction inst;
    inst.op = op;
    inst.stage = stage;
    writeCell(torchText(inst));
  }
  void findUses(int32_t r);
  uint32_t use(int32_t stage, uint32_t next);
  void gather(uint32_t begin, uint32_t end);
  void reduce();

  const Program &program;
  const Problem &problem;
  const TorchCsvOptions &options;
  const bool isOrder;
  /// Whether the program has none of these, so that they must be added.
  bool addsSharding = false, addsReduce = false;

  std::string out;
  bool rowIsEmpty = true;
  /// Of the row that is being written: the next use of each stage, in order;
  /// of each action, the next one of its stage; the stages that are gathered;
  /// the backwards of each stage still to come.
  struct Use {
    uint32_t instruction;
    int32_t stage;
    auto operator<=>(const Use &) const = default;
  };
  std::vector<Use> upcoming;
  std::vector<uint32_t> nextUse;
  std::vector<int32_t> active, backwardsLeft;
  /// Stages whose last backward is written.
  std::vector<int32_t> complete;
  int32_t rank = -1;
};

} // namespace

Status Writer::check() {
  if (problem.numChains() > 1)
    return Failure{"has " + std::to_string(problem.numChains()) +
                   " chains; torch places every stage on one rank, so choose a "
                   "schedule with one chain"};
  if (problem.slices > 1)
    return Failure{"cuts micro-batches into " + std::to_string(problem.slices) +
                   " slices; torch knows whole micro-batches only, so choose "
                   "another schedule"};
  if (!problem.weights.empty())
    return Failure{"has weights of micro-batches; torch scales all alike, so "
                   "weigh the losses in your loss function and leave "
                   "weights(...) out"};
  if (!problem.tied.empty())
    return Failure{"has tied stages, of which torch's schedules know nothing; "
                   "add up their gradients behind the schedule and leave "
                   "tied(...) out"};
  if (problem.postValidation)
    return Failure{"has post-validation, of which torch's schedules know "
                   "nothing; leave post_validation out"};
  addsSharding = addsReduce = !isOrder;
  for (int32_t r = 0; r < problem.numRanks; ++r) {
    const auto &insts = program.ranks[r].instructions;
    for (uint32_t i = 0; i < insts.size(); ++i) {
      const Op op = insts[i].op;
      if (movesToRank(insts[i]) || insts[i].payload == Payload::Stash)
        return Failure{"moves a stash between ranks; torch keeps it where it "
                       "is, so choose a schedule that does, such as "
                       "one_f_one_b",
                       {r, i}};
      if (op != Op::Step && torchText(insts[i]).empty())
        return Failure{"has no form in torch's schedules; leave it out",
                       {r, i}};
      if ((op == Op::ReduceGrad || op == Op::Unshard || op == Op::Reshard ||
           op == Op::Step) &&
          insts[i].microbatch >= 0)
        return Failure{"is for one micro-batch; torch has it for all of them "
                       "only, so leave the micro-batch out",
                       {r, i}};
      addsReduce &= op != Op::ReduceGrad;
      addsSharding &= op != Op::Unshard && op != Op::Reshard;
    }
  }
  return success();
}

void Writer::writeRank(int32_t r) {
  rank = r;
  const auto &insts = program.ranks[r].instructions;
  rowIsEmpty = true;
  active.clear();
  if (addsSharding)
    findUses(r);
  if (addsReduce) {
    backwardsLeft.assign(problem.numStages(), 0);
    for (const Instruction &inst : insts)
      if (inst.op == Op::Backward || inst.op == Op::BackwardWeight)
        ++backwardsLeft[inst.stage];
  }
  for (uint32_t begin = 0, end; begin < insts.size(); begin = end) {
    end = itemEnd(insts, begin);
    writeIdle(r, begin);
    writeItem(r, begin, end);
  }
  writeIdle(r, options.idleCells.empty() ? 0 : options.idleCells[r].size() - 1);
  reduce();
  for (int32_t stage : active)
    writeSharding(stage, Op::Reshard);
  // Python's writer marks the row of an idle rank so.
  out += rowIsEmpty ? "\"\"\n" : "\n";
}

void Writer::writeItem(int32_t r, uint32_t begin, uint32_t end) {
  const auto &insts = program.ranks[r].instructions;
  const Instruction &head = insts[begin];
  if (isTransfer(head.op)) {
    std::vector<uint32_t> members(end - begin);
    std::iota(members.begin(), members.end(), begin);
    auto edge = [&](uint32_t i) {
      return insts[i].op == Op::Send ? std::pair(r, insts[i].peer)
                                     : std::pair(insts[i].peer, r);
    };
    std::stable_sort(members.begin(), members.end(),
                     [&](uint32_t a, uint32_t b) { return edge(a) < edge(b); });
    for (uint32_t i : members)
      writeCell(torchText(insts[i]));
    return;
  }
  if (!isAction(head.op)) {
    // torch adds the others to an order itself.
    if (head.op != Op::Step && !isOrder)
      writeCell(torchText(head));
    return;
  }
  reduce();
  if (addsSharding)
    gather(begin, end);
  writeCell(torchCell(program, {r, begin}));
  for (uint32_t i = begin; addsReduce && i < end; ++i)
    if ((insts[i].op == Op::Backward || insts[i].op == Op::BackwardWeight) &&
        --backwardsLeft[insts[i].stage] == 0)
      complete.push_back(insts[i].stage);
}

/// Lists the stages of a row by their first use, and for each action where its
/// stage is used next.
void Writer::findUses(int32_t r) {
  const auto &insts = program.ranks[r].instructions;
  upcoming.clear();
  nextUse.assign(insts.size(), kNoInstruction);
  for (uint32_t i = static_cast<uint32_t>(insts.size()); i-- > 0;)
    if (isAction(insts[i].op))
      nextUse[i] = use(insts[i].stage, i);
}

/// Moves the stage to its place by the use `next`; returns the old one.
uint32_t Writer::use(int32_t stage, uint32_t next) {
  auto place = std::find_if(upcoming.begin(), upcoming.end(),
                            [&](const Use &u) { return u.stage == stage; });
  const uint32_t old =
      place == upcoming.end() ? kNoInstruction : place->instruction;
  if (place != upcoming.end())
    upcoming.erase(place);
  const Use moved = {next, stage};
  upcoming.insert(std::lower_bound(upcoming.begin(), upcoming.end(), moved),
                  moved);
  return old;
}

/// torch's rule: before an item the first few stages that are used from there
/// on are gathered, and the others dropped.
void Writer::gather(uint32_t begin, uint32_t end) {
  size_t window = 0;
  while (window < upcoming.size() &&
         upcoming[window].instruction != kNoInstruction &&
         (window < static_cast<size_t>(options.activeStages) ||
          upcoming[window].instruction < end))
    ++window;
  const int32_t ahead =
      options.lookahead == TorchCsvOptions::kAll      ? options.activeStages
      : options.lookahead == TorchCsvOptions::kByRank ? rank + 2
                                                      : options.lookahead;
  auto inWindow = [&](int32_t stage) {
    return std::any_of(upcoming.begin(), upcoming.begin() + window,
                       [&](const Use &u) { return u.stage == stage; });
  };
  auto keep = std::stable_partition(active.begin(), active.end(), inWindow);
  for (auto it = keep; it != active.end(); ++it)
    writeSharding(*it, Op::Reshard);
  active.erase(keep, active.end());
  for (size_t k = 0; k < window; ++k)
    if (const int32_t stage = upcoming[k].stage;
        (k < static_cast<size_t>(ahead) || upcoming[k].instruction < end) &&
        std::find(active.begin(), active.end(), stage) == active.end()) {
      writeSharding(stage, Op::Unshard);
      active.push_back(stage);
    }
  for (uint32_t i = begin; i < end; ++i)
    use(program.ranks[rank].instructions[i].stage, nextUse[i]);
}

/// After the last backward of a stage and the send of its gradient.
void Writer::reduce() {
  for (int32_t stage : complete)
    writeSharding(stage, Op::ReduceGrad);
  complete.clear();
}

Result<std::string> penstock::writeTorchCsv(const Program &program,
                                            const TorchCsvOptions &options) {
  return Writer(program, options).write();
}

Result<std::string> penstock::writeTorchCsv(const Program &program) {
  return writeTorchCsv(program, {});
}
