//===- TorchCsv.cpp - Reads schedules of torch.distributed.pipelining -----===//
//
// torch's own parser matches a prefix of a cell and so reads `0F0xyz` as `0F0`
// and the `2BW0` of old files as `2B` without a micro-batch. This one takes
// exactly the grammar and names every deviation.
//
//===----------------------------------------------------------------------===//

#include "penstock/Import/TorchCsv.h"

#include "penstock/Program/Text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <sstream>

using namespace penstock;

namespace {

/// How torch names an op.
struct TorchOp {
  std::string_view word;
  Op op;
  Payload payload = Payload::None;
};
constexpr TorchOp kOps[] = {
    {"F", Op::Forward},
    {"B", Op::Backward},
    {"I", Op::BackwardInput},
    {"W", Op::BackwardWeight},
    {"SEND_F", Op::Send, Payload::Activation},
    {"RECV_F", Op::Recv, Payload::Activation},
    {"SEND_B", Op::Send, Payload::Gradient},
    {"RECV_B", Op::Recv, Payload::Gradient},
    {"UNSHARD", Op::Unshard},
    {"RESHARD", Op::Reshard},
    {"REDUCE_GRAD", Op::ReduceGrad},
};
constexpr std::string_view kOverlap = "OVERLAP_F_B";
/// Actions of one container. A cell waits for at most two receives of each.
constexpr size_t kMaxParts = 1024;

bool hasMicrobatch(Op op) { return isAction(op) || isTransfer(op); }

/// torch names a transfer by the stage at this end, Penstock by the stage that
/// produced the tensor: of a receive, the stage before or after.
int32_t producerOf(const TorchOp &op, int32_t localStage) {
  if (op.op != Op::Recv)
    return localStage;
  return op.payload == Payload::Activation ? localStage - 1 : localStage + 1;
}
int32_t localStageOf(const Instruction &inst) {
  if (inst.op != Op::Recv)
    return inst.stage;
  return inst.payload == Payload::Activation ? inst.stage + 1 : inst.stage - 1;
}
/// Stage at the other end of a transfer.
int32_t otherStageOf(const Instruction &inst) {
  const bool forward = inst.payload == Payload::Activation;
  if (inst.op == Op::Recv)
    return inst.stage;
  return forward ? inst.stage + 1 : inst.stage - 1;
}

bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isBlank(char c) { return c == ' ' || c == '\t' || c == '\v' || c == '\f'; }

std::string_view strip(std::string_view text) {
  while (!text.empty() && isBlank(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && isBlank(text.back()))
    text.remove_suffix(1);
  return text;
}

/// Takes the digits off the front of the text.
std::string_view takeDigits(std::string_view &text) {
  const size_t n =
      std::find_if_not(text.begin(), text.end(), isDigit) - text.begin();
  const std::string_view digits = text.substr(0, n);
  text.remove_prefix(n);
  return digits;
}

/// The number, or nothing where it is not below the limit.
std::optional<int32_t> numberBelow(std::string_view digits, int32_t limit) {
  int32_t value = 0;
  auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || value >= limit)
    return std::nullopt;
  return value;
}

/// The text as it can stand in a message: in back quotes, printable, not long.
std::string shown(std::string_view text) {
  static constexpr char digits[] = "0123456789ABCDEF";
  static constexpr size_t kMax = 40;
  std::string out = "`";
  for (unsigned char c : text.substr(0, kMax))
    if (c >= ' ' && c < 0x7f)
      out += static_cast<char>(c);
    else
      out += {'\\', 'x', digits[c >> 4], digits[c & 15]};
  return out + (text.size() > kMax ? "...`" : "`");
}

class Reader {
public:
  Reader(std::string_view text, TorchPlacement placement)
      : text(text), placement(placement) {}

  Result<TorchTable> read() {
    if (!readRows() || !place() || !findPeers())
      return Failure{fault, faultSite};
    return std::move(table);
  }

private:
  /// Sets the message; `cell` and `place` (a position in the text) as far as
  /// they are known.
  bool fail(std::string why) {
    fault = std::move(why);
    return false;
  }
  bool failAtLine(size_t line, std::string why) {
    return fail("line " + std::to_string(line) + ": " + std::move(why));
  }
  /// At the cell that is being read.
  bool failHere(const std::string &why) {
    return failAt(rank(), cell, cellText, why);
  }
  bool failAt(int32_t rank, uint32_t cell, std::string_view what,
              const std::string &why);
  bool failAt(Site site, const std::string &why) {
    faultSite = site;
    return failAt(
        site.rank, table.cells[site.rank][site.instruction],
        torchText(program().ranks[site.rank].instructions[site.instruction]),
        why);
  }

  bool readRows();
  bool readRow(std::string_view line);
  bool readCell();
  bool readContainer();
  bool readSimple(std::string_view text, bool inContainer);
  bool place();
  bool findPeers();

  Program &program() { return table.program; }
  int32_t rank() const {
    return static_cast<int32_t>(table.program.ranks.size()) - 1;
  }

  const std::string_view text;
  const TorchPlacement placement;
  TorchTable table;
  std::string fault;
  Site faultSite;

  uint32_t cell = 0;         ///< being read, its position in the row
  std::string_view cellText; ///< and what it holds
  std::optional<Site> idle;  ///< the first idle cell of the file; its
                             ///< `instruction` is a cell
};

} // namespace

/// "line 2, column 5 (rank 1, cell 1): `2BW0` ...". Lines and columns count
/// from 1 as in an editor, ranks and cells from 0 as in torch.
bool Reader::failAt(int32_t rank, uint32_t cell, std::string_view what,
                    const std::string &why) {
  size_t begin = 0;
  for (int32_t r = 0; r < rank; ++r)
    begin = text.find('\n', begin) + 1;
  // Cells hold no commas: the first one that does is an error.
  size_t position = begin;
  for (uint32_t c = 0; c < cell; ++c)
    position = text.find(',', position) + 1;
  return fail("line " + std::to_string(rank + 1) + ", column " +
              std::to_string(position - begin + 1) + " (rank " +
              std::to_string(rank) + ", cell " + std::to_string(cell) +
              "): " + (what.empty() ? "" : shown(what) + ' ') + why);
}

bool Reader::readRows() {
  if (text.starts_with("\xef\xbb\xbf"))
    return failAtLine(1, "the file begins with a byte-order mark, which torch "
                         "takes for a part of the first cell; save it as UTF-8 "
                         "without one");
  if (std::all_of(text.begin(), text.end(),
                  [](char c) { return isBlank(c) || c == '\n' || c == '\r'; }))
    return fail("the file is empty; write one line for each rank, such as "
                "0F0,0F1,0B0,0B1");

  std::string_view rest = text;
  for (size_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r'))
      line.remove_suffix(1);
    if (line.find('\r') != line.npos)
      return failAtLine(number, "has a carriage return that no line feed "
                                "follows; end lines with \\n or \\r\\n");
    if (strip(line).empty()) {
      const bool trailing = std::all_of(rest.begin(), rest.end(), [](char c) {
        return isBlank(c) || c == '\n' || c == '\r';
      });
      return failAtLine(
          number,
          std::string(trailing ? "is a trailing blank line" : "is blank") +
              ", which torch counts as one more rank; delete it" +
              (trailing ? "" : ", or write \"\" for an idle rank"));
    }
    if (number > kMaxRanks)
      return failAtLine(number, "there are more than " +
                                    std::to_string(kMaxRanks) +
                                    " ranks; write one line for each rank");
    program().ranks.emplace_back();
    table.cells.emplace_back();
    if (!readRow(line))
      return false;
  }
  program().problem.numRanks = rank() + 1;

  if (program().numInstructions() == 0)
    return fail("no cell has an action; write one line for each rank, such as "
                "0F0,0F1,0B0,0B1");
  if (table.format == TorchFormat::ComputeComms && idle)
    return failAt(idle->rank, idle->instruction, "",
                  "is an idle cell; a schedule with communication has none, "
                  "and torch cannot run one. Delete it (a comma at the end of "
                  "a line makes one too)");
  return true;
}

bool Reader::readRow(std::string_view line) {
  for (cell = 0;; ++cell) {
    size_t end;
    if (line.starts_with('"')) {
      // Python's writer quotes the one idle cell of an idle rank.
      end = line.find('"', 1);
      cellText = line;
      if (end == line.npos)
        return failHere("opens a quote and does not close it; no action needs "
                        "quotes");
      cellText = line.substr(1, end - 1);
      if (++end < line.size() && line[end] != ',') {
        cellText = line.substr(0, std::min(line.find(','), line.size()));
        return failHere("has text behind its quotes; no action needs quotes");
      }
    } else {
      end = std::min(line.find(','), line.size());
      cellText = line.substr(0, end);
    }
    cellText = strip(cellText);
    if (!readCell())
      return false;
    if (end == line.size())
      return true;
    line.remove_prefix(end + 1);
  }
}

bool Reader::readCell() {
  if (cellText.empty()) {
    if (!idle)
      idle = Site{rank(), cell};
    return true;
  }
  return cellText.front() == '(' ? readContainer()
                                 : readSimple(cellText, false);
}

bool Reader::readContainer() {
  const size_t close = cellText.find(')');
  if (close == cellText.npos)
    return failHere("opens a parenthesis and does not close it; write "
                    "(0F1;1B0)OVERLAP_F_B");
  const std::string_view type = cellText.substr(close + 1);
  if (cellText.find('(', 1) != cellText.npos)
    return failHere("has a container inside a container; torch has none, join "
                    "them into one");
  if (type != kOverlap)
    return failHere("has " + (type.empty() ? "nothing" : shown(type)) +
                    " behind the parenthesis; the only container is "
                    "(0F1;1B0)OVERLAP_F_B, without a blank");
  const size_t first = program().ranks.back().instructions.size();
  std::string_view rest = cellText.substr(1, close - 1);
  for (bool more = true; more;) {
    const size_t end = rest.find(';');
    more = end != rest.npos;
    const std::string_view part = strip(rest.substr(0, end));
    if (part.empty())
      return failHere("has an empty part; write its actions with one `;` "
                      "between two, as in (0F1;1B0)OVERLAP_F_B");
    if (!readSimple(part, true))
      return false;
    if (program().ranks.back().instructions.size() - first > kMaxParts)
      return failHere("has more than " + std::to_string(kMaxParts) +
                      " parts; torch makes containers of two");
    if (more)
      rest.remove_prefix(end + 1);
  }
  auto &insts = program().ranks.back().instructions;
  for (size_t i = first + 1; i < insts.size(); ++i)
    insts[i].joined = true;
  return true;
}

bool Reader::readSimple(std::string_view action, bool inContainer) {
  const std::string example =
      "; write stage, action and micro-batch, as in 0F3";
  const std::string part =
      inContainer ? "has the part " + shown(action) + ", which " : "";
  auto fail = [&](const std::string &why) { return failHere(part + why); };

  std::string_view rest = action;
  if (rest.starts_with('-'))
    return fail("has a negative stage; stages count from 0");
  const std::string_view stageDigits = takeDigits(rest);
  if (stageDigits.empty())
    return fail("does not begin with a stage" + example);
  const std::optional<int32_t> stage = numberBelow(stageDigits, kMaxStages);
  if (!stage)
    return fail("names stage " + std::string(stageDigits.substr(0, 20)) +
                "; the largest that can be is " +
                std::to_string(kMaxStages - 1));

  const std::string_view word =
      rest.substr(0, std::find_if_not(rest.begin(), rest.end(), [](char c) {
                       return (c >= 'A' && c <= 'Z') || c == '_';
                     }) - rest.begin());
  rest.remove_prefix(word.size());
  const TorchOp *op =
      std::find_if(std::begin(kOps), std::end(kOps),
                   [&](const TorchOp &op) { return op.word == word; });
  if (op == std::end(kOps)) {
    if (word == "BW")
      return fail("is the full backward of files from 2024, which torch now "
                  "reads as a B without a micro-batch. In such a file rename B "
                  "to I, then BW to B");
    if (word == kOverlap)
      return fail("is an overlap of nothing; write (0F1;1B0)OVERLAP_F_B");
    if (word == "WAIT_SEND_F" || word == "WAIT_SEND_B")
      return fail("is proposed for torch and not in it; delete it");
    return fail("has no action that torch knows" +
                std::string(word.empty() ? "" : ": " + shown(word)) +
                "; there are F, I, W, B, SEND_F, RECV_F, SEND_B, RECV_B, "
                "UNSHARD, RESHARD, REDUCE_GRAD");
  }
  if (inContainer && !isAction(op->op))
    return fail("does not compute; an overlap joins F, I, W and B");

  const std::string_view mbDigits = takeDigits(rest);
  const bool wantsMb = hasMicrobatch(op->op);
  if (wantsMb && mbDigits.empty())
    return rest.starts_with('-')
               ? fail("has a negative micro-batch; they count from 0")
               : fail("has no micro-batch" + example);
  if (!rest.empty())
    return fail("has " + shown(rest) + " behind the action " +
                shown(action.substr(0, action.size() - rest.size())) +
                ", which torch ignores; delete it");
  if (!wantsMb && !mbDigits.empty())
    return fail("has a micro-batch, but it is for all of them; write " +
                std::string(stageDigits) + std::string(word));
  const std::optional<int32_t> mb =
      wantsMb ? numberBelow(mbDigits, kMaxMicrobatches) : -1;
  if (!mb)
    return fail("names micro-batch " + std::string(mbDigits.substr(0, 20)) +
                "; the largest that can be is " +
                std::to_string(kMaxMicrobatches - 1));

  if (!isAction(op->op))
    table.format = TorchFormat::ComputeComms;
  Instruction inst;
  inst.op = op->op;
  inst.payload = op->payload;
  inst.stage = producerOf(*op, *stage);
  inst.microbatch = *mb;
  program().ranks.back().instructions.push_back(inst);
  table.cells.back().push_back(cell);
  return true;
}

/// Counts stages and micro-batches and gives each stage its rank.
bool Reader::place() {
  // The first cell of each stage. A stage as large as the number of cells means
  // that a smaller one is missing.
  std::vector<Site> first(program().numInstructions());
  Site beyond;
  int32_t numStages = 0, ofStage0 = -1, ofAll = -1;
  for (int32_t r = 0; r <= rank(); ++r) {
    const auto &insts = program().ranks[r].instructions;
    for (uint32_t i = 0; i < insts.size(); ++i) {
      const int32_t s = localStageOf(insts[i]);
      numStages = std::max(numStages, s + 1);
      Site &site = size_t(s) < first.size() ? first[s] : beyond;
      if (site.rank < 0)
        site = {r, i};
      ofAll = std::max(ofAll, insts[i].microbatch);
      if (insts[i].op == Op::Forward && s == 0)
        ofStage0 = std::max(ofStage0, insts[i].microbatch);
    }
  }
  const int32_t numRanks = program().problem.numRanks;
  for (size_t s = 0; s < std::min<size_t>(numStages, first.size()); ++s)
    if (first[s].rank < 0) {
      auto next = std::find_if(first.begin() + s, first.end(),
                               [](Site site) { return site.rank >= 0; });
      return failAt(next == first.end() ? beyond : *next,
                    "leaves a gap: no row has stage " + std::to_string(s) +
                        "; number stages from 0 on");
    }
  if (placement == TorchPlacement::V && numStages % numRanks != 0)
    return fail("placement v needs a multiple of " + std::to_string(numRanks) +
                " stages, the number of ranks; the rows have " +
                std::to_string(numStages));

  Problem &problem = program().problem;
  problem.name = "schedule";
  problem.numMicrobatches = std::max((ofStage0 >= 0 ? ofStage0 : ofAll) + 1, 1);
  problem.stages.resize(numStages);
  problem.placement.resize(numStages);
  for (int32_t s = 0; s < numStages; ++s) {
    problem.stages[s].firstLayer = s;
    const int32_t turn = s / numRanks, r = s % numRanks;
    switch (placement) {
    case TorchPlacement::Rows:
      problem.placement[s] = first[s].rank;
      break;
    case TorchPlacement::Loop:
      problem.placement[s] = r;
      break;
    case TorchPlacement::V:
      problem.placement[s] = turn % 2 == 0 ? r : numRanks - 1 - r;
      break;
    }
  }
  return true;
}

/// The other end of each transfer.
bool Reader::findPeers() {
  const Problem &problem = program().problem;
  for (int32_t r = 0; r < problem.numRanks; ++r) {
    auto &insts = program().ranks[r].instructions;
    for (uint32_t i = 0; i < insts.size(); ++i) {
      Instruction &inst = insts[i];
      if (!isTransfer(inst.op))
        continue;
      const int32_t other = otherStageOf(inst);
      if (other < 0)
        return failAt({r, i}, "is a transfer with the stage before stage 0, "
                              "which there is not; delete it");
      if (other >= problem.numStages())
        return failAt({r, i}, "is a transfer with the stage after the last "
                              "one, stage " +
                                  std::to_string(problem.numStages() - 1) +
                                  "; delete it");
      inst.peer = problem.placement[other];
    }
  }
  return true;
}

std::string_view penstock::name(TorchFormat format) {
  return format == TorchFormat::ComputeOnly ? "compute_only" : "compute_comms";
}

std::string_view penstock::name(Fifo fifo) {
  switch (fifo) {
  case Fifo::Rank:
    return "rank";
  case Fifo::Pair:
    return "pair";
  case Fifo::Edge:
    break;
  }
  return "edge";
}

Result<TorchTable> penstock::readTorchCsv(std::string_view text,
                                          TorchPlacement placement) {
  return Reader(text, placement).read();
}

std::string penstock::torchText(const Instruction &inst) {
  const TorchOp *op =
      std::find_if(std::begin(kOps), std::end(kOps), [&](const TorchOp &op) {
        return op.op == inst.op && op.payload == inst.payload;
      });
  if (op == std::end(kOps))
    return "";
  std::string text = std::to_string(localStageOf(inst));
  text += op->word;
  return hasMicrobatch(inst.op) ? text + std::to_string(inst.microbatch) : text;
}

/// Reads what describe() has written; nothing if it is something else.
static std::optional<Instruction> parseInstruction(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::string word;
  words >> word;
  Instruction inst;
  unsigned op = 0;
  while (op < kNumOps && mnemonic(static_cast<Op>(op)) != word)
    ++op;
  if (op == kNumOps)
    return std::nullopt;
  inst.op = static_cast<Op>(op);
  if (isTransfer(inst.op)) {
    words >> word;
    inst.payload = word == "activation" ? Payload::Activation
                   : word == "stash"    ? Payload::Stash
                                        : Payload::Gradient;
  }
  words >> inst.stage;
  if (words >> word && word == "mb")
    words >> inst.microbatch;
  return inst;
}

std::string penstock::inTorchWords(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t open = std::min(text.find('`', at), text.size());
    const size_t close = std::min(text.find('`', open + 1), text.size());
    out += text.substr(at, open - at);
    if (open == text.size())
      break;
    const std::string_view quoted = text.substr(open + 1, close - open - 1);
    const std::optional<Instruction> inst = parseInstruction(quoted);
    const std::string word = inst ? torchText(*inst) : "";
    out += '`' + (word.empty() ? std::string(quoted) : word) + '`';
    at = close + 1;
  }
  return out;
}

static uint32_t itemBegin(const std::vector<Instruction> &insts, uint32_t i) {
  while (insts[i].joined)
    --i;
  return i;
}

std::string penstock::torchCell(const Program &program, Site site) {
  const auto &insts = program.ranks[site.rank].instructions;
  const uint32_t begin = itemBegin(insts, site.instruction);
  const uint32_t end = itemEnd(insts, begin);
  std::string text = torchText(insts[begin]);
  if (end == begin + 1 || !isAction(insts[begin].op))
    return text;
  for (uint32_t i = begin + 1; i < end; ++i)
    text += ';' + torchText(insts[i]);
  return '(' + text + ')' + std::string(kOverlap);
}

std::string penstock::describeCell(const TorchTable &table, Site site) {
  const std::string rank = "rank " + std::to_string(site.rank);
  if (site.instruction == kNoInstruction)
    return rank;
  return rank + ", cell " +
         std::to_string(table.cells[site.rank][site.instruction]) + " (" +
         torchCell(table.program, site) + ')';
}

//===----------------------------------------------------------------------===//
// What a table means when it runs
//===----------------------------------------------------------------------===//

namespace {

/// Numbers the FIFOs of a program: queues on each rank, communicators over all.
class FifoNumbers {
public:
  FifoNumbers(int32_t numRanks, Fifo fifo)
      : fifo(fifo), local(fifo == Fifo::Rank ? 0 : 2 * size_t(numRanks), -1) {}

  void beginRank(int32_t r) {
    rank = r;
    for (size_t edge : touched)
      local[edge] = -1;
    touched.clear();
    comms.clear();
  }
  /// False when there are too many.
  bool number(Instruction &inst) {
    if (fifo == Fifo::Rank) {
      inst.queue = 1;
      return true;
    }
    const bool isSend = inst.op == Op::Send;
    const size_t edge = 2 * size_t(inst.peer) + (fifo == Fifo::Edge && isSend);
    if (local[edge] < 0) {
      local[edge] = static_cast<int32_t>(touched.size());
      touched.push_back(edge);
      int32_t from = isSend ? rank : inst.peer, to = isSend ? inst.peer : rank;
      if (fifo == Fifo::Pair && from > to)
        std::swap(from, to);
      const size_t next = numbers.size();
      comms.push_back(numbers.try_emplace({from, to}, next).first->second);
    }
    if (touched.size() > UINT8_MAX || numbers.size() > UINT16_MAX + size_t(1))
      return false;
    inst.queue = static_cast<uint8_t>(local[edge] + 1);
    inst.comm = static_cast<uint16_t>(comms[local[edge]]);
    return true;
  }

private:
  const Fifo fifo;
  int32_t rank = -1;
  std::vector<int32_t> local; ///< FIFO of this rank, by peer and direction
  std::vector<size_t> touched, comms; ///< by FIFO of this rank
  std::map<std::pair<int32_t, int32_t>, size_t> numbers; ///< communicators
};

/// Gives the instructions of a rank their waits.
class Waits {
public:
  explicit Waits(const Problem &problem) : numStages(problem.numStages()) {}

  void set(RankProgram &rank) {
    auto &insts = rank.instructions;
    received.clear();
    for (uint32_t i = 0; i < insts.size(); ++i)
      if (insts[i].op == Op::Recv)
        received.push_back({keyOf(insts[i].payload == Payload::Gradient,
                                  insts[i].stage, insts[i].microbatch),
                            i});
    std::sort(received.begin(), received.end());

    rank.waits.clear();
    uint32_t lastAction = kNoInstruction;
    for (uint32_t begin = 0, end; begin < insts.size(); begin = end) {
      end = itemEnd(insts, begin);
      const size_t firstWait = rank.waits.size();
      for (uint32_t i = begin; i < end; ++i) {
        if (isTransfer(insts[i].op) && lastAction != kNoInstruction &&
            i == begin)
          rank.waits.push_back(lastAction);
        else if (isAction(insts[i].op))
          forEachAccess(insts[i], numStages, [&](const Access &access) {
            addReceive(rank.waits, begin, access);
          });
      }
      if (isAction(insts[begin].op))
        lastAction = end - 1;
      insts[begin].numWaits =
          static_cast<uint16_t>(rank.waits.size() - firstWait);
      insts[begin].firstWait =
          insts[begin].numWaits ? static_cast<uint32_t>(firstWait) : 0;
    }
  }

private:
  using Key = std::array<int32_t, 3>;
  static Key keyOf(bool gradient, int32_t stage, int32_t mb) {
    return {gradient, stage, mb};
  }

  /// Waits for the last receive of a tensor before `begin`, if there is one.
  void addReceive(std::vector<uint32_t> &waits, uint32_t begin,
                  const Access &access) {
    if (access.mode == Access::Write || access.tensor.kind == TensorKind::Stash)
      return;
    const std::pair limit(keyOf(access.tensor.kind == TensorKind::Gradient,
                                access.tensor.stage, access.tensor.microbatch),
                          begin);
    auto next = std::lower_bound(received.begin(), received.end(), limit);
    if (next != received.begin() && (--next)->first == limit.first)
      waits.push_back(next->second);
  }

  const int32_t numStages;
  std::vector<std::pair<Key, uint32_t>> received;
};

} // namespace

Status penstock::setFifos(Program &program, Fifo fifo) {
  FifoNumbers numbers(program.problem.numRanks, fifo);
  Waits waits(program.problem);
  for (int32_t r = 0; r < program.problem.numRanks; ++r) {
    numbers.beginRank(r);
    for (Instruction &inst : program.ranks[r].instructions) {
      inst.queue = 0;
      inst.comm = 0;
      if (isTransfer(inst.op) && !numbers.number(inst))
        return Failure{"has more FIFOs than the " + std::to_string(UINT8_MAX) +
                           " of a rank or the " +
                           std::to_string(UINT16_MAX + 1) +
                           " communicators of a program that can be numbered; "
                           "check it with one FIFO per rank",
                       {r, kNoInstruction}};
    }
    waits.set(program.ranks[r]);
  }
  return success();
}

std::vector<Finding> penstock::torchWarnings(const TorchTable &table) {
  bool reduces = table.format == TorchFormat::ComputeOnly;
  for (const RankProgram &rank : table.program.ranks)
    reduces |= std::any_of(
        rank.instructions.begin(), rank.instructions.end(),
        [](const Instruction &inst) { return inst.op == Op::ReduceGrad; });
  if (reduces)
    return {};
  return {{Rule::Completeness,
           {},
           "no cell is a REDUCE_GRAD: torch then neither scales the gradients "
           "nor reduces them with FSDP. Put one after the last backward of "
           "each stage",
           {}}};
}
