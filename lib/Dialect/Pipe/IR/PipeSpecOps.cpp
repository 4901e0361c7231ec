//===- PipeSpecOps.cpp - Model, cluster, schedule, stage ------------------===//

#include "penstock/Dialect/Pipe/IR/PipeOps.h"

#include "penstock/Program/Text.h"

#include "Syntax.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace penstock;
using namespace penstock::pipe;

#define GET_OP_CLASSES
#include "penstock/Dialect/Pipe/IR/PipeSpecOps.cpp.inc"

namespace penstock::pipe {

using llvm::failure;
using llvm::success;

void PipeDialect::registerSpecOps() {
  addOperations<
#define GET_OP_LIST
#include "penstock/Dialect/Pipe/IR/PipeSpecOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Syntax
//===----------------------------------------------------------------------===//

LogicalResult rangeError(llvm::function_ref<InFlightDiagnostic()> emitError,
                         StringRef what, int64_t value, int64_t low,
                         int64_t high) {
  InFlightDiagnostic diag = emitError();
  if (high == kNoLimit)
    diag << what << " must be at least " << low << ", got " << value;
  else
    diag << what << " must be between " << low << " and " << high << ", got "
         << value;
  return diag;
}

/// Parses an integer. MLIR's own way goes through APInt, which is a third of
/// the time that a program takes to parse; dimension lists do without it.
static ParseResult parseInteger(AsmParser &parser, int64_t &value) {
  const char *text = parser.getCurrentLocation().getPointer();
  const char *end = text;
  while (llvm::isDigit(*end))
    ++end;
  if (end == text || end - text > 18 || *end == 'x')
    return parser.parseInteger(value);
  SmallVector<int64_t, 2> list;
  if (parser.parseDimensionList(list, /*allowDynamic=*/false,
                                /*withTrailingX=*/false))
    return failure();
  value = list.front();
  return success();
}

ParseResult parseInRange(AsmParser &parser, StringRef what, int64_t &value,
                         int64_t low, int64_t high) {
  SMLoc loc = parser.getCurrentLocation();
  if (parseInteger(parser, value))
    return failure();
  return checkRange([&] { return parser.emitError(loc); }, what, value, low,
                    high);
}

/// The identifier at `text` if a `(` follows it directly: what a clause looks
/// like, and the start of an op never.
static StringRef clauseAt(const char *text) {
  const char *end = text;
  while (llvm::isAlnum(*end) || *end == '_')
    ++end;
  return *end == '(' ? StringRef(text, end - text) : StringRef();
}

ParseResult parseClauses(OpAsmParser &parser, StringRef op,
                         ArrayRef<StringRef> known,
                         llvm::function_ref<ParseResult(unsigned)> parseValue,
                         unsigned numFlags) {
  unsigned seen = 0;
  while (true) {
    SMLoc loc = parser.getCurrentLocation();
    StringRef keyword;
    if (failed(parser.parseOptionalKeyword(&keyword, known))) {
      StringRef other = clauseAt(loc.getPointer());
      if (other.empty())
        return success();
      return parser.emitError(loc)
             << "unknown clause '" << other << "' of " << op
             << "; its clauses are " << llvm::join(known, ", ");
    }
    unsigned i = llvm::find(known, keyword) - known.begin();
    if (seen & (1u << i))
      return parser.emitError(loc)
             << "clause '" << keyword << "' is given twice";
    seen |= 1u << i;
    const bool isFlag = i + numFlags >= known.size();
    if ((!isFlag && parser.parseLParen()) || parseValue(i) ||
        (!isFlag && parser.parseRParen()))
      return failure();
  }
}

/// Parses `@name` into `result`.
static ParseResult parseReference(OpAsmParser &parser,
                                  FlatSymbolRefAttr &result) {
  StringAttr name;
  if (parser.parseSymbolName(name))
    return failure();
  result = FlatSymbolRefAttr::get(name);
  return success();
}

ParseResult parseBody(OpAsmParser &parser, OperationState &result,
                      bool optional) {
  Region *body = result.addRegion();
  if (optional) {
    OptionalParseResult parsed = parser.parseOptionalRegion(*body);
    if (parsed.has_value() && failed(*parsed))
      return failure();
  } else if (parser.parseRegion(*body)) {
    return failure();
  }
  if (body->empty())
    body->emplaceBlock();
  return success();
}

void printBody(OpAsmPrinter &printer, Region &body) {
  printer << ' ';
  printer.printRegion(body, /*printEntryBlockArgs=*/false);
}

static void printCostsAndBytes(OpAsmPrinter &printer, CostAttr costs,
                               BytesAttr bytes) {
  if (costs)
    printClause(printer, "costs", costs);
  if (bytes)
    printClause(printer, "bytes", bytes);
}

//===----------------------------------------------------------------------===//
// Model
//===----------------------------------------------------------------------===//

/// A name that text can refer to.
static LogicalResult verifyName(Operation *op, StringRef name) {
  if (!name.empty())
    return success();
  return error(op) << op->getName().getStringRef()
                   << " needs a name: write @name";
}

ParseResult ModelOp::parse(OpAsmParser &parser, OperationState &result) {
  auto &props = result.getOrAddProperties<Properties>();
  return failure(parser.parseSymbolName(props.sym_name) ||
                 parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
                 parseBody(parser, result));
}

void ModelOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getDiscardableAttrDictionary().getValue());
  printBody(printer, getBody());
}

LogicalResult ModelOp::verify() { return verifyName(*this, getSymName()); }

LogicalResult ModelOp::verifyRegions() {
  for (Operation &op : getBody().front())
    if (!isa<LayerOp>(op))
      return error(&op) << "a model holds only layers";
  if (getBody().front().empty())
    return error(*this) << "model @" << getSymName()
                        << " has no layer: add layer \"name\"";
  return success();
}

ParseResult LayerOp::parse(OpAsmParser &parser, OperationState &result) {
  auto &props = result.getOrAddProperties<Properties>();
  if (parser.parseString(&props.name))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("times")) &&
      parseInRange(parser, "times", props.times, 1, kMaxStages))
    return failure();
  auto parseValue = [&](unsigned i) {
    return i == 0 ? parseTyped(parser, "a #pipe.cost", props.costs)
                  : parseTyped(parser, "a #pipe.bytes", props.bytes);
  };
  return failure(
      parseClauses(parser, "a layer", {"costs", "bytes"}, parseValue) ||
      parser.parseOptionalAttrDict(result.attributes));
}

void LayerOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printString(getName());
  if (getTimes() != 1)
    printer << " times " << getTimes();
  printCostsAndBytes(printer, getCostsAttr(), getBytesAttr());
  printer.printOptionalAttrDict(
      (*this)->getDiscardableAttrDictionary().getValue());
}

/// A transfer time says something about the link, not about a stage.
static LogicalResult verifyNoTransfer(Operation *op, CostAttr costs) {
  if (costs && costs.getTransfer().has())
    return error(op) << "transfer is not a cost of a single stage or layer: "
                        "give it in the costs of the schedule, or as the "
                        "latency of a link";
  return success();
}

LogicalResult LayerOp::verify() {
  if (failed(checkRange([&] { return error(*this); }, "times", getTimes(), 1,
                        kMaxStages)))
    return failure();
  return verifyNoTransfer(*this, getCostsAttr());
}

//===----------------------------------------------------------------------===//
// Cluster
//===----------------------------------------------------------------------===//

ParseResult ClusterOp::parse(OpAsmParser &parser, OperationState &result) {
  auto &props = result.getOrAddProperties<Properties>();
  props.ranks = -1;
  auto parseValue = [&](unsigned i) -> ParseResult {
    switch (i) {
    case 0:
      return parseInRange(parser, "ranks", props.ranks, 1, kMaxRanks);
    case 1:
      return parseInRange(parser, "memory", props.memory, 0, kNoLimit);
    case 2:
      return parseTyped(parser, "a #pipe.link", props.link);
    default:
      return parseTyped(parser, "a #pipe.link", props.host_link);
    }
  };
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseSymbolName(props.sym_name) ||
      parseClauses(parser, "a cluster",
                   {"ranks", "memory", "link", "host_link"}, parseValue) ||
      parser.parseOptionalAttrDict(result.attributes))
    return failure();
  if (props.ranks < 0)
    return parser.emitError(loc) << "cluster @" << props.sym_name.getValue()
                                 << " has no ranks: add ranks(N)";
  return success();
}

void ClusterOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  printClause(printer, "ranks", getRanks());
  if (getMemory())
    printClause(printer, "memory", getMemory());
  if (getLinkAttr())
    printClause(printer, "link", getLinkAttr());
  if (getHostLinkAttr())
    printClause(printer, "host_link", getHostLinkAttr());
  printer.printOptionalAttrDict(
      (*this)->getDiscardableAttrDictionary().getValue());
}

LogicalResult ClusterOp::verify() {
  auto emit = [&] { return error(*this); };
  return success(
      succeeded(verifyName(*this, getSymName())) &&
      succeeded(checkRange(emit, "ranks", getRanks(), 1, kMaxRanks)) &&
      succeeded(checkRange(emit, "memory", getMemory(), 0, kNoLimit)));
}

//===----------------------------------------------------------------------===//
// Schedule
//===----------------------------------------------------------------------===//

static constexpr StringRef kScheduleClauses[] = {
    "model", "cluster", "ranks",     "microbatches",   "using",  "costs",
    "bytes", "memory",  "link",      "slices",         "chains", "weights",
    "tied",  "overlap", "host_link", "post_validation"};

/// Parses a number for which -1 stands for none: a written -1 is refused here,
/// other wrong ones by the verifier.
static ParseResult parseCount(OpAsmParser &parser, StringRef what,
                              int32_t &count) {
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseInteger(count))
    return failure();
  if (count == -1)
    return parser.emitError(loc) << what << " must be at least 1, got -1";
  return success();
}

/// Parses `[0, 7] bytes 4096`.
static ParseResult parseTied(OpAsmParser &parser,
                             ScheduleOp::Properties &props) {
  const size_t before = props.tied_stages.size();
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&] {
        return parseInRange(parser, "tied stage",
                            props.tied_stages.emplace_back(), 0,
                            kMaxStages - 1);
      }))
    return failure();
  props.tied_sizes.append({int64_t(props.tied_stages.size() - before), 0});
  if (failed(parser.parseOptionalKeyword("bytes")))
    return success();
  return parseInRange(parser, "bytes", props.tied_sizes.back(), 0, kNoLimit);
}

ParseResult ScheduleOp::parse(OpAsmParser &parser, OperationState &result) {
  auto &props = result.getOrAddProperties<Properties>();
  auto parseValue = [&](unsigned i) -> ParseResult {
    switch (i) {
    case 0:
      return parseReference(parser, props.model);
    case 1:
      return parseReference(parser, props.cluster);
    case 2:
      return parseCount(parser, "ranks", props.ranks);
    case 3:
      return parseCount(parser, "microbatches", props.microbatches);
    case 4:
      return parseTyped(parser, "a schedule family", props.family);
    case 5:
      return parseTyped(parser, "a #pipe.cost", props.costs);
    case 6:
      return parseTyped(parser, "a #pipe.bytes", props.bytes);
    case 7:
      return parseInRange(parser, "memory", props.memory, 0, kNoLimit);
    case 8:
      return parseTyped(parser, "a #pipe.link", props.link);
    case 9:
      return parseCount(parser, "slices", props.slices);
    case 10:
      return parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&] {
        return parseInRange(parser, "chain", props.chains.emplace_back(), 0,
                            255);
      });
    case 11: {
      SmallVector<double> weights;
      if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                         [&]() -> ParseResult {
                                           Number weight;
                                           if (parseNumber(parser, weight))
                                             return failure();
                                           weights.push_back(*weight);
                                           return success();
                                         }))
        return failure();
      props.weights = parser.getBuilder().getDenseF64ArrayAttr(weights);
      return success();
    }
    case 12:
      return parser.parseCommaSeparatedList(
          [&] { return parseTied(parser, props); });
    case 13: {
      Number overlap;
      if (parseNumber(parser, overlap))
        return failure();
      props.overlap = parser.getBuilder().getF64FloatAttr(*overlap);
      return success();
    }
    case 14:
      return parseTyped(parser, "a #pipe.link", props.host_link);
    default:
      props.post_validation = parser.getBuilder().getUnitAttr();
      return success();
    }
  };
  return failure(parser.parseSymbolName(props.sym_name) ||
                 parseClauses(parser, "a schedule", kScheduleClauses,
                              parseValue,
                              /*numFlags=*/1) ||
                 parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
                 parseBody(parser, result, /*optional=*/true));
}

void ScheduleOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  if (getModelAttr())
    printClause(printer, "model", getModelAttr());
  if (getClusterAttr())
    printClause(printer, "cluster", getClusterAttr());
  if (getRanks() != -1)
    printClause(printer, "ranks", getRanks());
  if (getMicrobatches() != -1)
    printClause(printer, "microbatches", getMicrobatches());
  if (getSlices() != -1)
    printClause(printer, "slices", getSlices());
  if (!getChains().empty()) {
    printer << " chains([";
    llvm::interleaveComma(getChains(), printer);
    printer << "])";
  }
  if (getWeightsAttr()) {
    printer << " weights([";
    llvm::interleaveComma(getWeightsAttr().asArrayRef(), printer,
                          [&](double w) { printer << formatNumber(w); });
    printer << "])";
  }
  if (!getTiedSizes().empty()) {
    StringRef separator = " tied(";
    forEachTied([&](ArrayRef<int32_t> stages, int64_t bytes) {
      printer << separator << '[';
      llvm::interleaveComma(stages, printer);
      printer << ']';
      if (bytes)
        printer << " bytes " << bytes;
      separator = ", ";
    });
    printer << ')';
  }
  if (getOverlapAttr())
    printClause(printer, "overlap",
                formatNumber(getOverlapAttr().getValueAsDouble()));
  if (getPostValidation())
    printer << " post_validation";
  if (getMemory() != -1)
    printClause(printer, "memory", getMemory());
  if (getLinkAttr())
    printClause(printer, "link", getLinkAttr());
  if (getHostLinkAttr())
    printClause(printer, "host_link", getHostLinkAttr());
  if (getFamilyAttr())
    printClause(printer, "using", Attribute(getFamilyAttr()));
  printCostsAndBytes(printer, getCostsAttr(), getBytesAttr());
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getDiscardableAttrDictionary().getValue());
  if (!getBody().front().empty())
    printBody(printer, getBody());
}

void ScheduleOp::build(OpBuilder &builder, OperationState &state,
                       StringRef name) {
  state.getOrAddProperties<Properties>().sym_name = builder.getStringAttr(name);
  state.addRegion()->emplaceBlock();
}

void ScheduleOp::forEachTied(
    llvm::function_ref<void(ArrayRef<int32_t>, int64_t)> fn) {
  ArrayRef<int32_t> stages = getTiedStages();
  ArrayRef<int64_t> sizes = getTiedSizes();
  for (; !sizes.empty(); sizes = sizes.drop_front(2)) {
    fn(stages.take_front(sizes[0]), sizes[1]);
    stages = stages.drop_front(sizes[0]);
  }
}

LogicalResult ScheduleOp::verify() {
  auto emit = [&] { return error(*this); };
  if (failed(verifyName(*this, getSymName())))
    return failure();
  if (getRanks() == 0)
    return emit()
           << "a schedule needs at least one rank; write ranks(N) with N >= 1";
  if (getMicrobatches() == 0)
    return emit() << "a schedule needs at least one micro-batch; write "
                     "microbatches(N) with N >= 1";
  if (getRanks() != -1 &&
      failed(checkRange(emit, "ranks", getRanks(), 1, kMaxRanks)))
    return failure();
  if (getMicrobatches() != -1 &&
      failed(checkRange(emit, "microbatches", getMicrobatches(), 1,
                        kMaxMicrobatches)))
    return failure();
  if (getSlices() != -1 &&
      failed(checkRange(emit, "slices", getSlices(), 1, kMaxMicrobatches)))
    return failure();
  if (failed(checkRange(emit, "memory", getMemory(), -1, kNoLimit)))
    return failure();
  if (getModelAttr() && (getCostsAttr() || getBytesAttr())) {
    // A transfer time says nothing about the stages.
    CostAttr costs = getCostsAttr();
    if (getBytesAttr() || costs.getForward().has() ||
        costs.getBackward().has() || costs.getInput().has() ||
        costs.getWeight().has() || costs.getRecompute().has())
      return emit() << "costs and sizes come from model @" << *getModel()
                    << ": drop costs(...) and bytes(...), or the model";
  }
  if (getCostsAttr() && getCostsAttr().getTransfer().has() && getLinkAttr() &&
      getLinkAttr().getLatency().has())
    return emit() << "the latency of the link is given twice: as transfer in "
                     "costs(...) and as latency in link(...)";
  if (!getChains().empty()) {
    if (getMicrobatches() != int64_t(getChains().size()))
      return emit() << "chains(...) has " << getChains().size()
                    << " entries: write microbatches(N) and one chain for each "
                       "micro-batch";
    for (int32_t chain : getChains())
      if (failed(checkRange(emit, "chain", chain, 0, 255)))
        return failure();
  }
  // What the sets hold is checked with the program.
  int64_t numTied = 0;
  for (size_t i = 0; i + 1 < getTiedSizes().size(); i += 2) {
    const int64_t left = int64_t(getTiedStages().size()) - numTied;
    if (failed(checkRange(emit, "the number of tied stages", getTiedSizes()[i],
                          0, left)))
      return failure();
    numTied += getTiedSizes()[i];
  }
  if (getTiedSizes().size() % 2 != 0 ||
      numTied != int64_t(getTiedStages().size()))
    return emit() << "tied_sizes must be pairs of a number of stages and a "
                     "number of bytes, for all of tied_stages";
  return success();
}

LogicalResult ScheduleOp::verifyRegions() {
  SmallVector<StageOp> stages;
  SmallVector<RankOp> ranks;
  for (Operation &op : getBody().front()) {
    if (auto stage = dyn_cast<StageOp>(op)) {
      if (!ranks.empty())
        return error(&op) << "stages stand before the first rank";
      stages.push_back(stage);
    } else if (auto rank = dyn_cast<RankOp>(op)) {
      ranks.push_back(rank);
    } else {
      return error(&op) << "a schedule holds only stage and rank ops";
    }
  }
  for (auto [i, stage] : llvm::enumerate(stages)) {
    if (stage.getStage() != int64_t(i))
      return error(stage) << "expected stage " << i << " here, got stage "
                          << stage.getStage()
                          << ": stages stand in ascending order, each once";
    if (stage.getPlacement().size() != stages[0].getPlacement().size())
      return error(stage) << "stage " << i << " has "
                          << stage.getPlacement().size()
                          << " chains, but stage 0 has "
                          << stages[0].getPlacement().size();
    if (getRanks() == -1)
      continue;
    for (int32_t rank : stage.getPlacement())
      if (rank >= getRanks())
        return error(stage) << "stage " << i << " is on rank " << rank
                            << ", but the schedule has " << getRanks()
                            << " ranks; place it on a rank below " << getRanks()
                            << ", or raise ranks(N)";
  }
  if (!stages.empty())
    for (auto [i, chain] : llvm::enumerate(getChains()))
      if (chain >= int64_t(stages[0].getPlacement().size()))
        return error(*this)
               << "micro-batch " << i << " is on chain " << chain
               << ", but stages have " << stages[0].getPlacement().size()
               << " chains: write stage S on (R0, R1)";

  llvm::SmallDenseMap<int32_t, RankOp> seen;
  for (RankOp rank : ranks) {
    if (getRanks() != -1 && rank.getRank() >= getRanks())
      return error(rank) << "rank " << rank.getRank()
                         << " is out of range: the schedule has " << getRanks()
                         << " ranks";
    auto [it, inserted] = seen.try_emplace(rank.getRank(), rank);
    if (inserted)
      continue;
    InFlightDiagnostic diag = error(rank)
                              << "rank " << rank.getRank() << " is there twice";
    diag.attachNote(it->second.getLoc()) << "the first one";
    return diag;
  }
  return success();
}

LogicalResult ScheduleOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  if (FlatSymbolRefAttr model = getModelAttr())
    if (!symbolTable.lookupNearestSymbolFrom<ModelOp>(*this, model))
      return error(*this) << "there is no pipe.model " << model
                          << "; define it, or drop the clause";
  if (FlatSymbolRefAttr cluster = getClusterAttr())
    if (!symbolTable.lookupNearestSymbolFrom<ClusterOp>(*this, cluster))
      return error(*this) << "there is no pipe.cluster " << cluster
                          << "; define it, or drop the clause";
  return success();
}

//===----------------------------------------------------------------------===//
// Stage
//===----------------------------------------------------------------------===//

ParseResult StageOp::parse(OpAsmParser &parser, OperationState &result) {
  auto &props = result.getOrAddProperties<Properties>();
  auto parseRank = [&] {
    return parseInRange(parser, "rank", props.placement.emplace_back(), 0,
                        kMaxRanks - 1);
  };
  if (parseInRange(parser, "stage", props.stage, 0, kMaxStages - 1) ||
      parser.parseKeyword("on"))
    return failure();
  if (succeeded(parser.parseOptionalLParen())) {
    if (parser.parseCommaSeparatedList(parseRank) || parser.parseRParen())
      return failure();
  } else if (parseRank()) {
    return failure();
  }
  auto parseValue = [&](unsigned i) -> ParseResult {
    switch (i) {
    case 0:
      return failure(parseInRange(parser, "first layer", props.first_layer, 0,
                                  INT32_MAX) ||
                     parser.parseComma() ||
                     parseInRange(parser, "number of layers", props.num_layers,
                                  1, INT32_MAX));
    case 1:
      return parseTyped(parser, "a #pipe.cost", props.costs);
    default:
      return parseTyped(parser, "a #pipe.bytes", props.bytes);
    }
  };
  return failure(parseClauses(parser, "a stage", {"layers", "costs", "bytes"},
                              parseValue) ||
                 parser.parseOptionalAttrDict(result.attributes));
}

void StageOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getStage() << " on ";
  if (getPlacement().size() == 1) {
    printer << getPlacement()[0];
  } else {
    printer << '(';
    llvm::interleaveComma(getPlacement(), printer);
    printer << ')';
  }
  if (getFirstLayer() != -1)
    printer << " layers(" << getFirstLayer() << ", " << getNumLayers() << ')';
  printCostsAndBytes(printer, getCostsAttr(), getBytesAttr());
  printer.printOptionalAttrDict(
      (*this)->getDiscardableAttrDictionary().getValue());
}

LogicalResult StageOp::verify() {
  auto emit = [&] { return error(*this); };
  if (failed(checkRange(emit, "stage", getStage(), 0, kMaxStages - 1)) ||
      failed(checkRange(emit, "first layer", getFirstLayer(), -1, INT32_MAX)) ||
      failed(
          checkRange(emit, "number of layers", getNumLayers(), 1, INT32_MAX)))
    return failure();
  if (getPlacement().empty())
    return emit() << "stage " << getStage() << " is on no rank";
  for (int32_t rank : getPlacement())
    if (failed(checkRange(emit, "rank", rank, 0, kMaxRanks - 1)))
      return failure();
  return verifyNoTransfer(*this, getCostsAttr());
}

} // namespace penstock::pipe
