//===- PipeProgramOps.cpp - Ranks and instructions ------------------------===//

#include "penstock/Dialect/Pipe/IR/PipeOps.h"

#include "penstock/Program/Text.h"

#include "Syntax.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"

#include <charconv>

using namespace mlir;
using namespace penstock;
using namespace penstock::pipe;

#include "penstock/Dialect/Pipe/IR/PipeOpInterfaces.cpp.inc"

namespace penstock::pipe {

using llvm::failure;
using llvm::success;

//===----------------------------------------------------------------------===//
// Between an instruction op and an Instruction
//===----------------------------------------------------------------------===//

/// The kind of instruction that an op class is.
template <typename OpTy>
static constexpr penstock::Op kOp = [] {
  using enum penstock::Op;
  if constexpr (std::is_same_v<OpTy, ForwardOp>)
    return Forward;
  else if constexpr (std::is_same_v<OpTy, BackwardOp>)
    return Backward;
  else if constexpr (std::is_same_v<OpTy, BackwardInputOp>)
    return BackwardInput;
  else if constexpr (std::is_same_v<OpTy, BackwardWeightOp>)
    return BackwardWeight;
  else if constexpr (std::is_same_v<OpTy, RecomputeOp>)
    return Recompute;
  else if constexpr (std::is_same_v<OpTy, SendOp>)
    return Send;
  else if constexpr (std::is_same_v<OpTy, RecvOp>)
    return Recv;
  else if constexpr (std::is_same_v<OpTy, AllReduceOp>)
    return AllReduce;
  else if constexpr (std::is_same_v<OpTy, BarrierOp>)
    return Barrier;
  else if constexpr (std::is_same_v<OpTy, ReduceGradOp>)
    return ReduceGrad;
  else if constexpr (std::is_same_v<OpTy, UnshardOp>)
    return Unshard;
  else if constexpr (std::is_same_v<OpTy, ReshardOp>)
    return Reshard;
  else if constexpr (std::is_same_v<OpTy, OffloadOp>)
    return Offload;
  else if constexpr (std::is_same_v<OpTy, ReloadOp>)
    return Reload;
  else if constexpr (std::is_same_v<OpTy, StepOp>)
    return Step;
  else if constexpr (std::is_same_v<OpTy, ReduceTiedOp>)
    return ReduceTied;
  else if constexpr (std::is_same_v<OpTy, ReduceStateOp>)
    return ReduceState;
  else if constexpr (std::is_same_v<OpTy, ValidateOp>)
    return Validate;
}();

/// Calls `visit(property, field)` for every property of an instruction op that
/// has a field in Instruction: the one place that pairs them.
template <typename Properties, typename Inst, typename Visit>
static void zipFields(Properties &props, Inst &inst, Visit visit) {
  visit(props.queue, inst.queue);
  if constexpr (requires { props.payload; })
    visit(props.payload, inst.payload);
  if constexpr (requires { props.stage; })
    visit(props.stage, inst.stage);
  if constexpr (requires { props.microbatch; })
    visit(props.microbatch, inst.microbatch);
  if constexpr (requires { props.peer; })
    visit(props.peer, inst.peer);
  if constexpr (requires { props.slot; })
    visit(props.slot, inst.slots[Slot]);
  if constexpr (requires { props.host; })
    visit(props.host, inst.slots[Host]);
  if constexpr (requires { props.comm; }) {
    visit(props.comm, inst.comm);
    visit(props.bytes, inst.bytes);
  }
  if constexpr (requires { props.stash; }) {
    visit(props.in, inst.slots[Input]);
    visit(props.grad, inst.slots[Gradient]);
    visit(props.out, inst.slots[Output]);
    visit(props.stash, inst.slots[Stash]);
  }
}

template <typename OpTy>
static Instruction toInstruction(OpTy op) {
  Instruction inst;
  inst.op = kOp<OpTy>;
  zipFields(op.getProperties(), inst,
            [](const auto &property, auto &field) { field = property; });
  return inst;
}

template <typename Properties>
static void setProperties(Properties &props, const Instruction &inst,
                          ArrayRef<InstructionRef> after,
                          ArrayRef<int32_t> ranks) {
  zipFields(props, inst,
            [](auto &property, const auto &field) { property = field; });
  props.after.assign(after.begin(), after.end());
  if constexpr (requires { props.ranks; })
    props.ranks.assign(ranks.begin(), ranks.end());
}

//===----------------------------------------------------------------------===//
// Syntax of instructions
//===----------------------------------------------------------------------===//

namespace {
enum class Need : uint8_t { None, Optional, Required };

/// What the text of an instruction consists of.
struct Format {
  Need stage = Need::Required;
  Need microbatch = Need::Required;
  ArrayRef<StringRef> clauses;
  Need peer = Need::None; ///< "to 1" or "from 1"
};

/// An instruction as parsed.
struct ParsedInstruction {
  Instruction inst;
  Waits after;
  SmallVector<int32_t> ranks;
};
} // namespace

// In the order in which they are printed.
static constexpr StringRef kActionClauses[] = {"in",    "grad",  "out",
                                               "stash", "queue", "after"};
static constexpr StringRef kTransferClauses[] = {"slot", "bytes", "comm",
                                                 "queue", "after"};
static constexpr StringRef kCopyClauses[] = {"slot", "host", "queue", "after"};
static constexpr StringRef kCollectiveClauses[] = {"ranks", "bytes", "comm",
                                                   "queue", "after"};
static constexpr StringRef kQueueClauses[] = {"queue", "after"};

static Format formatOf(penstock::Op op, Payload payload = Payload::None) {
  if (isAction(op))
    return {Need::Required, Need::Required, kActionClauses};
  if (isTransfer(op) && payload == Payload::State)
    return {Need::None, Need::None,
            ArrayRef<StringRef>(kTransferClauses).drop_front(), // no slot
            Need::Required};
  if (isTransfer(op))
    return {Need::Required, Need::Required, kTransferClauses, Need::Required};
  switch (op) {
  case Op::AllReduce:
    return {Need::Required, Need::Optional, kCollectiveClauses};
  case Op::ReduceTied:
    return {Need::Required, Need::None, kCollectiveClauses};
  case Op::Barrier:
    return {Need::None, Need::None, kCollectiveClauses};
  case Op::ReduceState:
  case Op::Validate:
    return {Need::None, Need::None, kQueueClauses};
  case Op::Offload:
  case Op::Reload:
    return {Need::Required, Need::Required, kCopyClauses, Need::Optional};
  case Op::Step:
    return {Need::Optional, Need::Optional, kQueueClauses};
  default:
    return {Need::Required, Need::Optional, kQueueClauses};
  }
}

/// What stands before the other rank.
static StringRef preposition(penstock::Op op) {
  return op == Op::Send || op == Op::Offload ? "to" : "from";
}

/// Parses what an instruction is, after its mnemonic: "activation 0 mb 1 to 1".
static ParseResult parseHead(OpAsmParser &parser, InstructionRef &head) {
  if (isTransfer(head.op)) {
    SMLoc loc = parser.getCurrentLocation();
    StringRef payload;
    if (failed(parser.parseOptionalKeyword(
            &payload, {"activation", "gradient", "stash", "state"})))
      return parser.emitError(loc,
                              "expected activation, gradient, stash or state");
    for (unsigned k = 1; k < kNumPayloads; ++k)
      if (StringRef(name(static_cast<Payload>(k))) == payload)
        head.payload = static_cast<Payload>(k);
  }
  const Format format = formatOf(head.op, head.payload);
  auto checkStage = [&](SMLoc loc) {
    return checkRange([&] { return parser.emitError(loc); }, "stage",
                      head.stage, 0, kMaxStages - 1);
  };
  SMLoc loc = parser.getCurrentLocation();
  if (format.stage == Need::Required) {
    if (parseInRange(parser, "stage", head.stage, 0, kMaxStages - 1))
      return failure();
  } else if (format.stage == Need::Optional) {
    OptionalParseResult stage = parser.parseOptionalInteger(head.stage);
    if (stage.has_value() && (failed(*stage) || failed(checkStage(loc))))
      return failure();
  }
  if (format.microbatch == Need::Required && parser.parseKeyword("mb"))
    return failure();
  const bool hasMicrobatch = format.microbatch == Need::Required ||
                             (format.microbatch == Need::Optional &&
                              succeeded(parser.parseOptionalKeyword("mb")));
  if (hasMicrobatch && parseInRange(parser, "micro-batch", head.microbatch, 0,
                                    kMaxMicrobatches - 1))
    return failure();
  if (format.peer == Need::None ||
      (format.peer == Need::Optional &&
       failed(parser.parseOptionalKeyword(preposition(head.op)))))
    return success();
  return failure((format.peer == Need::Required &&
                  parser.parseKeyword(preposition(head.op))) ||
                 parseInRange(parser, "rank", head.peer, 0, kMaxRanks - 1));
}

/// Parses the head of the instruction in a wait, mnemonic included.
static ParseResult parseRef(OpAsmParser &parser, InstructionRef &ref) {
  SMLoc loc = parser.getCurrentLocation();
  StringRef keyword;
  if (parser.parseKeyword(&keyword))
    return failure();
  for (unsigned op = 0; op < kNumOps; ++op) {
    if (StringRef(mnemonic(static_cast<Op>(op))) != keyword)
      continue;
    ref.op = static_cast<Op>(op);
    return parseHead(parser, ref);
  }
  return parser.emitError(loc)
         << "'" << keyword << "' is no instruction to wait for";
}

static ParseResult parseAfter(OpAsmParser &parser, Waits &after) {
  return parser.parseCommaSeparatedList(
      [&] { return parseRef(parser, after.emplace_back()); });
}

static ParseResult parseQueue(OpAsmParser &parser, uint8_t &queue) {
  return parseInRange(parser, "queue", queue, 0, UINT8_MAX);
}

static ParseResult parseSlot(OpAsmParser &parser, int32_t &slot) {
  return parseInRange(parser, "slot", slot, 0, INT32_MAX);
}

static ParseResult parseInstruction(OpAsmParser &parser,
                                    ParsedInstruction &parsed) {
  Instruction &inst = parsed.inst;
  InstructionRef head(inst);
  if (parseHead(parser, head))
    return failure();
  const Format format = formatOf(inst.op, head.payload);
  inst.payload = head.payload;
  inst.stage = head.stage;
  inst.microbatch = head.microbatch;
  inst.peer = head.peer;

  auto parseValue = [&](unsigned i) -> ParseResult {
    StringRef clause = format.clauses[i];
    switch (clause.front()) {
    case 'a':
      return parseAfter(parser, parsed.after);
    case 'b':
      return parseInRange(parser, "bytes", inst.bytes, 0, kNoLimit);
    case 'c':
      return parseInRange(parser, "communicator", inst.comm, 0, UINT16_MAX);
    case 'g':
      return parseSlot(parser, inst.slots[Gradient]);
    case 'h':
      return parseSlot(parser, inst.slots[Host]);
    case 'i':
      return parseSlot(parser, inst.slots[Input]);
    case 'o':
      return parseSlot(parser, inst.slots[Output]);
    case 'q':
      return parseQueue(parser, inst.queue);
    case 'r':
      return parser.parseCommaSeparatedList([&] {
        return parseInRange(parser, "rank", parsed.ranks.emplace_back(), 0,
                            kMaxRanks - 1);
      });
    default: // slot, stash
      return parseSlot(parser, inst.slots[clause == "slot" ? Slot : Stash]);
    }
  };
  return parseClauses(parser, mnemonic(inst.op), format.clauses, parseValue);
}

template <typename OpTy>
static ParseResult parseInstruction(OpAsmParser &parser,
                                    OperationState &result) {
  ParsedInstruction parsed;
  parsed.inst.op = kOp<OpTy>;
  if (parseInstruction(parser, parsed))
    return failure();
  setProperties(result.getOrAddProperties<typename OpTy::Properties>(),
                parsed.inst, parsed.after, parsed.ranks);
  return parser.parseOptionalAttrDict(result.attributes);
}

namespace {
/// Gathers what an op prints: one write to the stream instead of thirty.
class Line {
public:
  explicit Line(OpAsmPrinter &printer) : printer(printer) {}
  ~Line() { printer.getStream() << text; }

  Line &operator<<(StringRef string) {
    text += string;
    return *this;
  }
  Line &operator<<(int64_t value) {
    char digits[24];
    const char *end = std::to_chars(digits, std::end(digits), value).ptr;
    text += StringRef(digits, end - digits);
    return *this;
  }

private:
  OpAsmPrinter &printer;
  llvm::SmallString<256> text;
};
} // namespace

/// Prints what an instruction is, after its mnemonic, as parseHead reads it.
static void printHead(Line &line, const InstructionRef &head) {
  if (isTransfer(head.op))
    line << " " << name(head.payload);
  if (head.stage >= 0)
    line << " " << head.stage;
  if (head.microbatch >= 0)
    line << " mb " << head.microbatch;
  if (formatOf(head.op).peer != Need::None && head.peer >= 0)
    line << " " << preposition(head.op) << " " << head.peer;
}

static void printQueueAndAfter(Line &line, uint8_t queue,
                               ArrayRef<InstructionRef> after) {
  if (queue)
    line << " queue(" << queue << ")";
  if (after.empty())
    return;
  StringRef separator = " after(";
  for (const InstructionRef &ref : after) {
    line << separator << mnemonic(ref.op);
    printHead(line, ref);
    separator = ", ";
  }
  line << ")";
}

static void printInstruction(OpAsmPrinter &printer, InstructionOpInterface op) {
  {
    Line line(printer);
    const Instruction inst = op.getInstruction();
    printHead(line, InstructionRef(inst));
    auto printSlot = [&](StringRef clause, unsigned role) {
      if (inst.slots[role] != kNoSlot)
        line << clause << inst.slots[role] << ")";
    };
    if (isAction(inst.op)) {
      printSlot(" in(", Input);
      printSlot(" grad(", Gradient);
      printSlot(" out(", Output);
      printSlot(" stash(", Stash);
    } else if (isTransfer(inst.op) || movesToHost(inst)) {
      printSlot(" slot(", Slot);
      printSlot(" host(", Host); // no transfer has one
    } else if (!op.getRanks().empty()) {
      StringRef separator = " ranks(";
      for (int32_t rank : op.getRanks()) {
        line << separator << rank;
        separator = ", ";
      }
      line << ")";
    }
    if (inst.bytes)
      line << " bytes(" << inst.bytes << ")";
    if (inst.comm)
      line << " comm(" << inst.comm << ")";
    printQueueAndAfter(line, inst.queue, op.getAfter());
  }
  printer.printOptionalAttrDict(op->getDiscardableAttrDictionary().getValue());
}

//===----------------------------------------------------------------------===//
// Verification of instructions
//===----------------------------------------------------------------------===//

static LogicalResult verifyAfter(Operation *op,
                                 ArrayRef<InstructionRef> after) {
  if (after.size() > UINT16_MAX)
    return error(op) << "after(...) names " << after.size()
                     << " instructions, 65535 at most";
  return success();
}

static LogicalResult verifyInstruction(InstructionOpInterface op) {
  auto emit = [&] { return error(op); };
  const Instruction inst = op.getInstruction();
  const Format format = formatOf(inst.op, inst.payload);
  auto lowest = [](Need need) { return need == Need::Required ? 0 : -1; };
  if (failed(checkRange(emit, "stage", inst.stage, lowest(format.stage),
                        kMaxStages - 1)) ||
      failed(checkRange(emit, "micro-batch", inst.microbatch,
                        lowest(format.microbatch), kMaxMicrobatches - 1)) ||
      failed(checkRange(emit, "bytes", inst.bytes, 0, kNoLimit)))
    return failure();
  if (format.peer != Need::None &&
      failed(checkRange(emit, "rank", inst.peer, lowest(format.peer),
                        kMaxRanks - 1)))
    return failure();
  if (movesState(inst) &&
      (inst.stage >= 0 || inst.microbatch >= 0 || inst.slots[Slot] != kNoSlot))
    return emit() << "a state is of no stage or micro-batch and in no slot: "
                     "leave them out";
  for (int32_t slot : inst.slots)
    if (failed(checkRange(emit, "slot", slot, kNoSlot, INT32_MAX)))
      return failure();

  int64_t last = -1;
  for (int32_t rank : op.getRanks()) {
    if (failed(checkRange(emit, "rank", rank, 0, kMaxRanks - 1)))
      return failure();
    if (rank <= last)
      return emit() << "ranks(...) must ascend, but " << rank << " follows "
                    << last;
    last = rank;
  }

  if (!isa<RankOp>(op->getParentOp()) && (inst.queue || !op.getAfter().empty()))
    return emit() << "queue(...) and after(...) belong to the whole "
                  << op->getParentOp()->getName().stripDialect()
                  << ": write them there";
  return verifyAfter(op, op.getAfter());
}

} // namespace penstock::pipe

#define GET_OP_CLASSES
#include "penstock/Dialect/Pipe/IR/PipeProgramOps.cpp.inc"

namespace penstock::pipe {

void PipeDialect::registerProgramOps() {
  addOperations<
#define GET_OP_LIST
#include "penstock/Dialect/Pipe/IR/PipeProgramOps.cpp.inc"
      >();
}

template <typename OpTy>
static Operation *create(Location loc, const Instruction &inst,
                         ArrayRef<InstructionRef> after,
                         ArrayRef<int32_t> ranks) {
  typename OpTy::Properties props;
  setProperties(props, inst, after, ranks);
  auto name =
      *RegisteredOperationName::lookup(TypeID::get<OpTy>(), loc.getContext());
  return Operation::create(loc, name, TypeRange(), ValueRange(),
                           DictionaryAttr::get(loc.getContext()),
                           OpaqueProperties(&props), BlockRange(),
                           /*numRegions=*/0);
}

Operation *createInstruction(Location loc, const Instruction &inst,
                             ArrayRef<InstructionRef> after,
                             ArrayRef<int32_t> ranks) {
  switch (inst.op) {
  case Op::Forward:
    return create<ForwardOp>(loc, inst, after, ranks);
  case Op::Backward:
    return create<BackwardOp>(loc, inst, after, ranks);
  case Op::BackwardInput:
    return create<BackwardInputOp>(loc, inst, after, ranks);
  case Op::BackwardWeight:
    return create<BackwardWeightOp>(loc, inst, after, ranks);
  case Op::Recompute:
    return create<RecomputeOp>(loc, inst, after, ranks);
  case Op::Send:
    return create<SendOp>(loc, inst, after, ranks);
  case Op::Recv:
    return create<RecvOp>(loc, inst, after, ranks);
  case Op::AllReduce:
    return create<AllReduceOp>(loc, inst, after, ranks);
  case Op::Barrier:
    return create<BarrierOp>(loc, inst, after, ranks);
  case Op::ReduceGrad:
    return create<ReduceGradOp>(loc, inst, after, ranks);
  case Op::Unshard:
    return create<UnshardOp>(loc, inst, after, ranks);
  case Op::Reshard:
    return create<ReshardOp>(loc, inst, after, ranks);
  case Op::Offload:
    return create<OffloadOp>(loc, inst, after, ranks);
  case Op::Reload:
    return create<ReloadOp>(loc, inst, after, ranks);
  case Op::Step:
    return create<StepOp>(loc, inst, after, ranks);
  case Op::ReduceTied:
    return create<ReduceTiedOp>(loc, inst, after, ranks);
  case Op::ReduceState:
    return create<ReduceStateOp>(loc, inst, after, ranks);
  case Op::Validate:
    return create<ValidateOp>(loc, inst, after, ranks);
  }
  llvm_unreachable("unknown instruction");
}

//===----------------------------------------------------------------------===//
// Rank
//===----------------------------------------------------------------------===//

/// More slots than any rank needs, and few enough to be laid out in memory
/// before anything is checked against them.
static constexpr int64_t kMaxSlots = 1 << 24;

ParseResult RankOp::parse(OpAsmParser &parser, OperationState &result) {
  auto &props = result.getOrAddProperties<Properties>();
  // "3 x 16384" happens to be a dimension list.
  auto parseRun = [&](auto &slots) -> ParseResult {
    SMLoc loc = parser.getCurrentLocation();
    SmallVector<int64_t, 2> run;
    if (parser.parseDimensionList(run, /*allowDynamic=*/false,
                                  /*withTrailingX=*/false))
      return failure();
    if (run.size() != 2)
      return parser.emitError(loc, "expected slots as `count x bytes`");
    slots.append(run);
    return success();
  };
  return failure(parseInRange(parser, "rank", props.rank, 0, kMaxRanks - 1) ||
                 parseClauses(parser, "a rank", {"slots", "host_slots"},
                              [&](unsigned i) {
                                return parser.parseCommaSeparatedList([&] {
                                  return parseRun(i ? props.host_slots
                                                    : props.slots);
                                });
                              }) ||
                 parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
                 parseBody(parser, result));
}

void RankOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getRank();
  auto printSlots = [&](StringRef separator, ArrayRef<int64_t> slots) {
    for (size_t i = 0; i + 1 < slots.size(); i += 2) {
      printer << separator << slots[i] << " x " << slots[i + 1];
      separator = ", ";
    }
    if (!slots.empty())
      printer << ')';
  };
  printSlots(" slots(", getSlots());
  printSlots(" host_slots(", getHostSlots());
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getDiscardableAttrDictionary().getValue());
  printBody(printer, getBody());
}

int64_t RankOp::getNumSlots() {
  int64_t count = 0;
  for (size_t i = 0; i + 1 < getSlots().size(); i += 2)
    count += getSlots()[i];
  return count;
}

static LogicalResult verifySlots(llvm::function_ref<InFlightDiagnostic()> emit,
                                 ArrayRef<int64_t> slots) {
  if (slots.size() % 2 != 0)
    return emit() << "slots are pairs of a count and a size, got "
                  << slots.size() << " numbers";
  int64_t total = 0;
  for (size_t i = 0; i < slots.size(); i += 2) {
    if (failed(checkRange(emit, "number of slots", slots[i], 1, kMaxSlots)) ||
        failed(checkRange(emit, "bytes", slots[i + 1], 0, kNoLimit)))
      return failure();
    total += slots[i];
    if (failed(checkRange(emit, "number of slots", total, 1, kMaxSlots)))
      return failure();
  }
  return success();
}

LogicalResult RankOp::verify() {
  auto emit = [&] { return error(*this); };
  return success(
      succeeded(checkRange(emit, "rank", getRank(), 0, kMaxRanks - 1)) &&
      succeeded(verifySlots(emit, getSlots())) &&
      succeeded(verifySlots(emit, getHostSlots())));
}

LogicalResult RankOp::verifyRegions() {
  for (Operation &op : getBody().front())
    if (!isa<InstructionOpInterface, GroupOp, OverlapOp>(op))
      return error(&op)
             << "a rank holds only instructions, groups and overlaps";
  return success();
}

//===----------------------------------------------------------------------===//
// Group and overlap
//===----------------------------------------------------------------------===//

template <typename ItemOp>
static ParseResult parseItem(OpAsmParser &parser, OperationState &result) {
  auto &props = result.getOrAddProperties<typename ItemOp::Properties>();
  auto parseValue = [&](unsigned i) {
    return i == 0 ? parseQueue(parser, props.queue)
                  : parseAfter(parser, props.after);
  };
  return failure(parseClauses(parser, ItemOp::getOperationName().drop_front(5),
                              kQueueClauses, parseValue) ||
                 parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
                 parseBody(parser, result));
}

template <typename ItemOp>
static void printItem(OpAsmPrinter &printer, ItemOp op) {
  {
    Line line(printer);
    printQueueAndAfter(line, op.getQueue(), op.getAfter());
  }
  printer.printOptionalAttrDictWithKeyword(
      op->getDiscardableAttrDictionary().getValue());
  printBody(printer, op.getBody());
}

/// Checks that the members are of the right kind. `kind` names it in plural.
template <typename... Members>
static LogicalResult verifyMembers(Operation *op, StringRef kind) {
  Block &body = op->getRegion(0).front();
  StringRef item = op->getName().stripDialect();
  if (body.empty())
    return error(op) << "empty " << item << ": remove it or add " << kind;
  for (Operation &member : body)
    if (!isa<Members...>(member))
      return error(&member) << item << " holds only " << kind << ", got "
                            << member.getName().stripDialect();
  return success();
}

ParseResult GroupOp::parse(OpAsmParser &parser, OperationState &result) {
  return parseItem<GroupOp>(parser, result);
}
void GroupOp::print(OpAsmPrinter &printer) { printItem(printer, *this); }
LogicalResult GroupOp::verify() { return verifyAfter(*this, getAfter()); }
LogicalResult GroupOp::verifyRegions() {
  return verifyMembers<SendOp, RecvOp>(*this, "transfers");
}

ParseResult OverlapOp::parse(OpAsmParser &parser, OperationState &result) {
  return parseItem<OverlapOp>(parser, result);
}
void OverlapOp::print(OpAsmPrinter &printer) { printItem(printer, *this); }
LogicalResult OverlapOp::verify() { return verifyAfter(*this, getAfter()); }
LogicalResult OverlapOp::verifyRegions() {
  return verifyMembers<ForwardOp, BackwardOp, BackwardInputOp, BackwardWeightOp,
                       RecomputeOp>(*this, "actions");
}

} // namespace penstock::pipe
