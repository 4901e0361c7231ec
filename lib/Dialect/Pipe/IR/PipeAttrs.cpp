//===- PipeAttrs.cpp - The pipe dialect and its attributes ----------------===//

#include "penstock/Dialect/Pipe/IR/PipeDialect.h"

#include "penstock/Program/Text.h"

#include "Syntax.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace penstock;
using namespace penstock::pipe;

#include "penstock/Dialect/Pipe/IR/PipeAttrInterfaces.cpp.inc"
#include "penstock/Dialect/Pipe/IR/PipeDialect.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "penstock/Dialect/Pipe/IR/PipeAttrs.cpp.inc"

namespace penstock::pipe {

using llvm::failure;
using llvm::success;

//===----------------------------------------------------------------------===//
// Fields: <name = value, ...>
//===----------------------------------------------------------------------===//

/// Parses `name = value` pairs, in any order and each at most once, up to the
/// closing `>`. `parseValue(i)` parses the value of field `names[i]`.
static ParseResult
parseFields(AsmParser &parser, StringRef attr, ArrayRef<StringRef> names,
            llvm::function_ref<ParseResult(unsigned)> parseValue) {
  unsigned seen = 0;
  auto parseField = [&]() -> ParseResult {
    SMLoc loc = parser.getCurrentLocation();
    StringRef name;
    if (parser.parseKeyword(&name))
      return failure();
    const auto *field = llvm::find(names, name);
    if (field == names.end())
      return parser.emitError(loc)
             << "unknown field '" << name << "' of #pipe." << attr
             << (names.empty() ? "; it has none" : "; its fields are ")
             << llvm::join(names, ", ");
    unsigned i = field - names.begin();
    if (seen & (1u << i))
      return parser.emitError(loc) << "field '" << name << "' is given twice";
    seen |= 1u << i;
    return failure(parser.parseEqual() || parseValue(i));
  };
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::LessGreater,
                                        parseField);
}

ParseResult parseNumber(AsmParser &parser, Number &number) {
  SMLoc loc = parser.getCurrentLocation();
  StringRef keyword;
  if (succeeded(parser.parseOptionalKeyword(&keyword)))
    return parser.emitError(loc)
           << "expected a finite number, got '" << keyword << "'";
  bool negative = succeeded(parser.parseOptionalMinus());
  const char *text = parser.getCurrentLocation().getPointer();
  const char *end = text;
  while (*end >= '0' && *end <= '9')
    ++end;
  if (end == text + 1 && *text == '0' && *end == 'x')
    return parser.emitError(loc) << "expected a decimal number";
  if (end != text && (*end == 'e' || *end == 'E'))
    return parser.emitError(loc)
           << "a number with an exponent needs a point: write "
           << StringRef(text, end - text) << ".0e...";
  double value;
  int64_t integer = 0;
  OptionalParseResult result = parser.parseOptionalInteger(integer);
  if (result.has_value()) {
    if (failed(*result))
      return failure();
    value = static_cast<double>(integer);
  } else if (parser.parseFloat(value)) {
    return failure();
  }
  number = Number(negative ? -value : value);
  return success();
}

/// Prints "<name = value, ...>" for the fields that were given.
class FieldPrinter {
public:
  FieldPrinter(AsmPrinter &printer) : os(printer.getStream()) { os << '<'; }
  ~FieldPrinter() { os << '>'; }
  void operator()(StringRef name, Number number) {
    if (number.has())
      start(name) << formatNumber(*number);
  }
  void operator()(StringRef name, std::optional<int64_t> number) {
    if (number)
      start(name) << *number;
  }

private:
  raw_ostream &start(StringRef name) {
    os << separator << name << " = ";
    separator = ", ";
    return os;
  }
  raw_ostream &os;
  const char *separator = "";
};

static LogicalResult
verifyNumber(llvm::function_ref<InFlightDiagnostic()> emitError, StringRef name,
             Number number) {
  if (!number.has() || (std::isfinite(*number) && *number >= 0))
    return success();
  return emitError() << name << " must be finite and not negative, got "
                     << formatNumber(*number);
}

static LogicalResult
verifySize(llvm::function_ref<InFlightDiagnostic()> emitError, StringRef name,
           std::optional<int64_t> size) {
  return size ? checkRange(emitError, name, *size, 0, kMaxBytes) : success();
}

//===----------------------------------------------------------------------===//
// Cost
//===----------------------------------------------------------------------===//

static constexpr StringRef kCostFields[] = {"forward", "backward",  "input",
                                            "weight",  "recompute", "transfer"};

Attribute CostAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  Number n[std::size(kCostFields)];
  if (parseFields(parser, "cost", kCostFields,
                  [&](unsigned i) { return parseNumber(parser, n[i]); }))
    return {};
  return parser.getChecked<CostAttr>(loc, parser.getContext(), n[0], n[1], n[2],
                                     n[3], n[4], n[5]);
}

void CostAttr::print(AsmPrinter &printer) const {
  FieldPrinter print(printer);
  print("forward", getForward());
  print("backward", getBackward());
  print("input", getInput());
  print("weight", getWeight());
  print("recompute", getRecompute());
  print("transfer", getTransfer());
}

LogicalResult
CostAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                 Number forward, Number backward, Number input, Number weight,
                 Number recompute, Number transfer) {
  return success(succeeded(verifyNumber(emitError, "forward", forward)) &&
                 succeeded(verifyNumber(emitError, "backward", backward)) &&
                 succeeded(verifyNumber(emitError, "input", input)) &&
                 succeeded(verifyNumber(emitError, "weight", weight)) &&
                 succeeded(verifyNumber(emitError, "recompute", recompute)) &&
                 succeeded(verifyNumber(emitError, "transfer", transfer)));
}

StageCost CostAttr::resolve() const {
  bool half = getBackward().has() && !getInput().has() && !getWeight().has();
  double part = half ? *getBackward() / 2 : 1;
  StageCost cost;
  cost.forward = getForward().valueOr(1);
  cost.input = getInput().valueOr(part);
  cost.weight = getWeight().valueOr(part);
  cost.backward = getBackward().valueOr(cost.input + cost.weight);
  cost.recompute = getRecompute().valueOr(cost.forward);
  return cost;
}

//===----------------------------------------------------------------------===//
// Bytes
//===----------------------------------------------------------------------===//

static constexpr StringRef kBytesFields[] = {"output", "stash", "parameters",
                                             "gradients", "optimizer"};

Attribute BytesAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  std::optional<int64_t> n[std::size(kBytesFields)];
  if (parseFields(parser, "bytes", kBytesFields, [&](unsigned i) {
        return parser.parseInteger(n[i].emplace());
      }))
    return {};
  return parser.getChecked<BytesAttr>(loc, parser.getContext(), n[0], n[1],
                                      n[2], n[3], n[4]);
}

void BytesAttr::print(AsmPrinter &printer) const {
  FieldPrinter print(printer);
  print("output", getOutput());
  print("stash", getStash());
  print("parameters", getParameters());
  print("gradients", getGradients());
  print("optimizer", getOptimizer());
}

LogicalResult
BytesAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                  std::optional<int64_t> output, std::optional<int64_t> stash,
                  std::optional<int64_t> parameters,
                  std::optional<int64_t> gradients,
                  std::optional<int64_t> optimizer) {
  return success(succeeded(verifySize(emitError, "output", output)) &&
                 succeeded(verifySize(emitError, "stash", stash)) &&
                 succeeded(verifySize(emitError, "parameters", parameters)) &&
                 succeeded(verifySize(emitError, "gradients", gradients)) &&
                 succeeded(verifySize(emitError, "optimizer", optimizer)));
}

StageBytes BytesAttr::resolve() const {
  StageBytes bytes;
  bytes.output = getOutput().value_or(0);
  bytes.stash = getStash().value_or(0);
  bytes.parameters = getParameters().value_or(0);
  bytes.gradients = getGradients().value_or(0);
  bytes.optimizer = getOptimizer().value_or(0);
  return bytes;
}

//===----------------------------------------------------------------------===//
// Link
//===----------------------------------------------------------------------===//

static constexpr StringRef kLinkFields[] = {"latency", "bytes_per_time"};

Attribute LinkAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  Number n[std::size(kLinkFields)];
  if (parseFields(parser, "link", kLinkFields,
                  [&](unsigned i) { return parseNumber(parser, n[i]); }))
    return {};
  return parser.getChecked<LinkAttr>(loc, parser.getContext(), n[0], n[1]);
}

void LinkAttr::print(AsmPrinter &printer) const {
  FieldPrinter print(printer);
  print("latency", getLatency());
  print("bytes_per_time", getBytesPerTime());
}

LogicalResult
LinkAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                 Number latency, Number bytesPerTime) {
  return success(
      succeeded(verifyNumber(emitError, "latency", latency)) &&
      succeeded(verifyNumber(emitError, "bytes_per_time", bytesPerTime)));
}

Link LinkAttr::resolve() const {
  return Link{getLatency().valueOr(0), getBytesPerTime().valueOr(0)};
}

//===----------------------------------------------------------------------===//
// Schedule families
//===----------------------------------------------------------------------===//

namespace {
/// A parameter of a family to parse: a flag, or a number of 1 to `most`.
struct Parameter {
  Parameter(StringRef name, bool &flag) : name(name), flag(&flag) {}
  Parameter(StringRef name, int32_t &number, int32_t most)
      : name(name), number(&number), most(most) {}
  StringRef name;
  bool *flag = nullptr;
  int32_t *number = nullptr;
  int32_t most = 0;
};

/// Prints "<name = value, ...>" for the parameters that are not the default.
class ParameterPrinter {
public:
  ParameterPrinter(AsmPrinter &printer) : os(printer.getStream()) {}
  ~ParameterPrinter() { os << (any ? ">" : ""); }
  ParameterPrinter &flag(StringRef name, bool value) {
    return value ? print(name, "true") : *this;
  }
  ParameterPrinter &number(StringRef name, int32_t value) {
    return value != 0 ? print(name, value) : *this;
  }

private:
  template <typename T>
  ParameterPrinter &print(StringRef name, T value) {
    os << (any ? ", " : "<") << name << " = " << value;
    any = true;
    return *this;
  }
  raw_ostream &os;
  bool any = false;
};
} // namespace

static ParseResult parseParameter(AsmParser &parser, const Parameter &to) {
  SMLoc loc = parser.getCurrentLocation();
  if (to.number) {
    if (parser.parseInteger(*to.number))
      return failure();
    return checkRange([&] { return parser.emitError(loc); }, to.name,
                      *to.number, 1, to.most);
  }
  StringRef keyword;
  if (failed(parser.parseOptionalKeyword(&keyword, {"true", "false"})))
    return parser.emitError(loc, "expected true or false");
  *to.flag = keyword == "true";
  return success();
}

static ParseResult parseParameters(AsmParser &parser, StringRef family,
                                   ArrayRef<Parameter> parameters) {
  // The `<` belongs to parseFields, which must not be called without it.
  if (*parser.getCurrentLocation().getPointer() != '<')
    return success();
  SmallVector<StringRef> names;
  for (const Parameter &parameter : parameters)
    names.push_back(parameter.name);
  return parseFields(parser, family, names, [&](unsigned i) {
    return parseParameter(parser, parameters[i]);
  });
}

/// The order of a family, with its backwards cut in two if it wants that.
static Result<Program> splitIf(bool split, Result<Program> order) {
  if (order && split)
    splitBackward(*order);
  return order;
}

/// Calls `generate()` if there are as many stages as a looped family wants.
template <typename Family, typename Generate>
static Result<Program> looped(Family family, const Problem &problem,
                              Generate &&generate) {
  const int64_t stages = int64_t(family.getChunks()) * problem.numRanks;
  if (stages != problem.numStages() && problem.numRanks > 0)
    return Failure{
        (Family::getMnemonic() + ": " + Twine(family.getChunks()) +
         " chunks on " + Twine(problem.numRanks) + " ranks are " +
         Twine(stages) + " stages, but there are " +
         Twine(problem.numStages()) + "; make it " + Twine(stages) + " stages" +
         (problem.numStages() % problem.numRanks == 0
              ? " or chunks = " + Twine(problem.numStages() / problem.numRanks)
              : Twine()))
            .str()};
  return generate();
}

Attribute NaiveAttr::parse(AsmParser &parser, Type) {
  bool split = false;
  if (parseParameters(parser, getMnemonic(), {{"split_backward", split}}))
    return {};
  return get(parser.getContext(), split);
}
void NaiveAttr::print(AsmPrinter &printer) const {
  ParameterPrinter(printer).flag("split_backward", getSplitBackward());
}
Result<Program> NaiveAttr::generate(const Problem &problem) const {
  return splitIf(getSplitBackward(), naive(problem));
}

Attribute GPipeAttr::parse(AsmParser &parser, Type) {
  bool descending = false, recompute = false, split = false;
  if (parseParameters(parser, getMnemonic(),
                      {{"descending", descending},
                       {"recompute", recompute},
                       {"split_backward", split}}))
    return {};
  return get(parser.getContext(), descending, recompute, split);
}
void GPipeAttr::print(AsmPrinter &printer) const {
  ParameterPrinter(printer)
      .flag("descending", getDescending())
      .flag("recompute", getRecompute())
      .flag("split_backward", getSplitBackward());
}
Result<Program> GPipeAttr::generate(const Problem &problem) const {
  return splitIf(getSplitBackward(),
                 gpipe(problem, {getDescending(), getRecompute()}));
}

Attribute OneFOneBAttr::parse(AsmParser &parser, Type) {
  bool eager = false, split = false;
  if (parseParameters(parser, getMnemonic(),
                      {{"eager", eager}, {"split_backward", split}}))
    return {};
  return get(parser.getContext(), eager, split);
}
void OneFOneBAttr::print(AsmPrinter &printer) const {
  ParameterPrinter(printer)
      .flag("eager", getEager())
      .flag("split_backward", getSplitBackward());
}
Result<Program> OneFOneBAttr::generate(const Problem &problem) const {
  return splitIf(getSplitBackward(), getEager()
                                         ? eagerOneForwardOneBackward(problem)
                                         : oneForwardOneBackward(problem));
}

Attribute BPipeAttr::parse(AsmParser &parser, Type) {
  bool split = false;
  if (parseParameters(parser, getMnemonic(), {{"split_backward", split}}))
    return {};
  return get(parser.getContext(), split);
}
void BPipeAttr::print(AsmPrinter &printer) const {
  ParameterPrinter(printer).flag("split_backward", getSplitBackward());
}
Result<Program> BPipeAttr::generate(const Problem &problem) const {
  return splitIf(getSplitBackward(), bPipe(problem));
}

Attribute PipeDreamAttr::parse(AsmParser &parser, Type) {
  bool split = false;
  if (parseParameters(parser, getMnemonic(), {{"split_backward", split}}))
    return {};
  return get(parser.getContext(), split);
}
void PipeDreamAttr::print(AsmPrinter &printer) const {
  ParameterPrinter(printer).flag("split_backward", getSplitBackward());
}
Result<Program> PipeDreamAttr::generate(const Problem &problem) const {
  return splitIf(getSplitBackward(), pipeDream(problem));
}

Attribute PipeDream2BWAttr::parse(AsmParser &parser, Type) {
  int32_t group = 0;
  bool split = false;
  if (parseParameters(
          parser, getMnemonic(),
          {{"group", group, kMaxMicrobatches}, {"split_backward", split}}))
    return {};
  return get(parser.getContext(), group, split);
}
void PipeDream2BWAttr::print(AsmPrinter &printer) const {
  ParameterPrinter(printer)
      .number("group", getGroup())
      .flag("split_backward", getSplitBackward());
}
Result<Program> PipeDream2BWAttr::generate(const Problem &problem) const {
  return splitIf(getSplitBackward(), pipeDream2BW(problem, getGroup()));
}

Attribute Seq1F1BAttr::parse(AsmParser &parser, Type) {
  int32_t slices = 2;
  bool split = false;
  if (parseParameters(
          parser, getMnemonic(),
          {{"slices", slices, kMaxMicrobatches}, {"split_backward", split}}))
    return {};
  return get(parser.getContext(), slices, split);
}
void Seq1F1BAttr::print(AsmPrinter &printer) const {
  ParameterPrinter(printer)
      .number("slices", getSlices())
      .flag("split_backward", getSplitBackward());
}
Result<Program> Seq1F1BAttr::generate(const Problem &problem) const {
  return splitIf(getSplitBackward(), seq1F1B(problem));
}

Attribute Interleaved1F1BAttr::parse(AsmParser &parser, Type) {
  int32_t chunks = 2, group = 0;
  bool split = false;
  if (parseParameters(parser, getMnemonic(),
                      {{"chunks", chunks, kMaxStages},
                       {"group", group, kMaxMicrobatches},
                       {"split_backward", split}}))
    return {};
  return get(parser.getContext(), chunks, group, split);
}
void Interleaved1F1BAttr::print(AsmPrinter &printer) const {
  ParameterPrinter(printer)
      .number("chunks", getChunks())
      .number("group", getGroup())
      .flag("split_backward", getSplitBackward());
}
Result<Program> Interleaved1F1BAttr::generate(const Problem &problem) const {
  return looped(*this, problem, [&] {
    return splitIf(getSplitBackward(), interleaved1F1B(problem, getGroup()));
  });
}

Attribute BreadthFirstAttr::parse(AsmParser &parser, Type) {
  int32_t chunks = 2;
  bool split = false;
  if (parseParameters(
          parser, getMnemonic(),
          {{"chunks", chunks, kMaxStages}, {"split_backward", split}}))
    return {};
  return get(parser.getContext(), chunks, split);
}
void BreadthFirstAttr::print(AsmPrinter &printer) const {
  ParameterPrinter(printer)
      .number("chunks", getChunks())
      .flag("split_backward", getSplitBackward());
}
Result<Program> BreadthFirstAttr::generate(const Problem &problem) const {
  return looped(*this, problem, [&] {
    return splitIf(getSplitBackward(), breadthFirst(problem));
  });
}

/// Families with chunks and a group and nothing else.
template <typename Family>
static Attribute parseGrouped(AsmParser &parser) {
  int32_t chunks = 2, group = 0;
  if (parseParameters(
          parser, Family::getMnemonic(),
          {{"chunks", chunks, kMaxStages}, {"group", group, kMaxMicrobatches}}))
    return {};
  return Family::get(parser.getContext(), chunks, group);
}
template <typename Family>
static void printGrouped(AsmPrinter &printer, Family family) {
  ParameterPrinter(printer)
      .number("chunks", family.getChunks())
      .number("group", family.getGroup());
}

Attribute InterleavedZBAttr::parse(AsmParser &parser, Type) {
  return parseGrouped<InterleavedZBAttr>(parser);
}
void InterleavedZBAttr::print(AsmPrinter &printer) const {
  printGrouped(printer, *this);
}
Result<Program> InterleavedZBAttr::generate(const Problem &problem) const {
  return looped(*this, problem,
                [&] { return interleavedZB(problem, getGroup()); });
}

Attribute GISAttr::parse(AsmParser &parser, Type) {
  return parseGrouped<GISAttr>(parser);
}
void GISAttr::print(AsmPrinter &printer) const { printGrouped(printer, *this); }
Result<Program> GISAttr::generate(const Problem &problem) const {
  return looped(*this, problem, [&] { return gis(problem, getGroup()); });
}

/// Families without parameters.
#define PENSTOCK_BARE_FAMILY(Attr, generator)                                  \
  Attribute Attr::parse(AsmParser &parser, Type) {                             \
    if (parseParameters(parser, getMnemonic(), {}))                            \
      return {};                                                               \
    return get(parser.getContext());                                           \
  }                                                                            \
  void Attr::print(AsmPrinter &) const {}                                      \
  Result<Program> Attr::generate(const Problem &problem) const {               \
    return generator(problem);                                                 \
  }

PENSTOCK_BARE_FAMILY(ZBH1Attr, zbH1)
PENSTOCK_BARE_FAMILY(ZBH2Attr, zbH2)
PENSTOCK_BARE_FAMILY(ZBVAttr, zbV)
PENSTOCK_BARE_FAMILY(VHalfAttr, vHalf)
PENSTOCK_BARE_FAMILY(VMinAttr, vMin)
PENSTOCK_BARE_FAMILY(DualPipeVAttr, dualPipeV)
PENSTOCK_BARE_FAMILY(DualPipeAttr, dualPipe)
#undef PENSTOCK_BARE_FAMILY

Attribute HanayoAttr::parse(AsmParser &parser, Type) {
  int32_t waves = 1;
  bool split = false;
  if (parseParameters(
          parser, getMnemonic(),
          {{"waves", waves, kMaxStages / 2}, {"split_backward", split}}))
    return {};
  return get(parser.getContext(), waves, split);
}
void HanayoAttr::print(AsmPrinter &printer) const {
  ParameterPrinter(printer)
      .number("waves", getWaves())
      .flag("split_backward", getSplitBackward());
}
Result<Program> HanayoAttr::generate(const Problem &problem) const {
  return splitIf(getSplitBackward(), hanayo(problem, getWaves()));
}

Attribute ChimeraAttr::parse(AsmParser &parser, Type) {
  bool split = false;
  if (parseParameters(parser, getMnemonic(), {{"split_backward", split}}))
    return {};
  return get(parser.getContext(), split);
}
void ChimeraAttr::print(AsmPrinter &printer) const {
  ParameterPrinter(printer).flag("split_backward", getSplitBackward());
}
Result<Program> ChimeraAttr::generate(const Problem &problem) const {
  return splitIf(getSplitBackward(), chimera(problem));
}

//===----------------------------------------------------------------------===//
// Dialect
//===----------------------------------------------------------------------===//

/// The mnemonics of the attributes that are, or are not, schedule families.
template <typename... Attrs>
static std::vector<StringRef> mnemonics(bool families) {
  std::vector<StringRef> names;
  auto add = [&](StringRef mnemonic, bool isFamily) {
    if (isFamily == families)
      names.push_back(mnemonic);
  };
  (add(Attrs::getMnemonic(),
       std::is_base_of_v<ScheduleFamilyAttrInterface::Trait<Attrs>, Attrs>),
   ...);
  return names;
}

static std::vector<StringRef> namesOf(bool families) {
  return mnemonics<
#define GET_ATTRDEF_LIST
#include "penstock/Dialect/Pipe/IR/PipeAttrs.cpp.inc"
      >(families);
}

std::vector<StringRef> PipeDialect::getFamilyNames() {
  return namesOf(/*families=*/true);
}

Attribute PipeDialect::parseAttribute(DialectAsmParser &parser,
                                      Type type) const {
  SMLoc loc = parser.getCurrentLocation();
  StringRef mnemonic;
  Attribute attr;
  OptionalParseResult result =
      generatedAttributeParser(parser, &mnemonic, type, attr);
  if (result.has_value())
    return attr;
  parser.emitError(loc) << "unknown attribute '#pipe." << mnemonic
                        << "'; the schedule families are "
                        << llvm::join(namesOf(/*families=*/true), ", ")
                        << "; the other attributes are "
                        << llvm::join(namesOf(/*families=*/false), ", ");
  return {};
}

void PipeDialect::printAttribute(Attribute attr,
                                 DialectAsmPrinter &printer) const {
  (void)generatedAttributePrinter(attr, printer);
}

void PipeDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "penstock/Dialect/Pipe/IR/PipeAttrs.cpp.inc"
      >();
}

void PipeDialect::initialize() {
  registerAttributes();
  registerSpecOps();
  registerProgramOps();
}

} // namespace penstock::pipe
