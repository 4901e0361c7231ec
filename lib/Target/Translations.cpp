//===- Translations.cpp - In and out of the compiler ----------------------===//

#include "penstock/Target/Translations.h"
#include "penstock/Analysis/Certify.h"
#include "penstock/Analysis/ChromeTrace.h"
#include "penstock/Analysis/Html.h"
#include "penstock/Analysis/Timeline.h"
#include "penstock/Analysis/Verify.h"
#include "penstock/Dialect/Pipe/IR/Convert.h"
#include "penstock/Import/TorchCsv.h"
#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"
#include "penstock/Schedule/Schedule.h"
#include "penstock/Target/Report.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Tools/mlir-translate/Translation.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/SourceMgr.h"

using namespace mlir;

namespace penstock::pipe {

using llvm::failure;
using llvm::success;

namespace {
/// The command line of the translations.
struct CommandLine {
  llvm::cl::opt<std::string> schedule{
      "schedule",
      llvm::cl::desc("Schedule to translate, when the input has several"),
      llvm::cl::value_desc("name")};
  llvm::cl::opt<unsigned> columns{
      "columns", llvm::cl::desc("Longest line of --pipe-to-text"),
      llvm::cl::init(160)};
  llvm::cl::opt<bool> criticalPath{
      "critical-path", llvm::cl::desc("List the critical path below the "
                                      "timeline of --pipe-to-text")};
  llvm::cl::opt<bool> reportMemory{
      "report-memory", llvm::cl::desc("Write what every rank holds over time "
                                      "into --pipe-to-report")};
  llvm::cl::opt<unsigned> svgWidth{
      "svg-width",
      llvm::cl::desc("Largest width of the picture of --pipe-to-svg and "
                     "--pipe-to-html in pixels, at least 320"),
      llvm::cl::init(SvgOptions().width)};
  llvm::cl::opt<bool> svgTransfers{
      "svg-transfers",
      llvm::cl::desc("Draw an arrow for each transfer in --pipe-to-svg and "
                     "--pipe-to-html")};
  llvm::cl::opt<Fifo> fifo{
      "fifo", llvm::cl::desc("What the transfers of --torch-csv-to-pipe share"),
      llvm::cl::values(
          clEnumValN(Fifo::Rank, "rank", "one FIFO per rank (default)"),
          clEnumValN(Fifo::Pair, "pair", "one FIFO per pair of ranks"),
          clEnumValN(Fifo::Edge, "edge", "one FIFO per directed edge")),
      llvm::cl::init(Fifo::Rank)};
  llvm::cl::opt<bool> torchBlanks{
      "torch-blanks", llvm::cl::desc("Write torch's idle cells into an order, "
                                     "with --pipe-to-torch-csv")};
  llvm::cl::opt<unsigned> torchActiveStages{
      "torch-active-stages",
      llvm::cl::desc("Stages that a rank keeps unsharded in the program of "
                     "--pipe-to-torch-csv (torch's max_active_stages)"),
      llvm::cl::init(TorchCsvOptions().activeStages)};
  llvm::cl::opt<std::string> torchLookahead{
      "torch-unshard-lookahead",
      llvm::cl::desc("How many of them are unsharded ahead: full, auto or a "
                     "number"),
      llvm::cl::init("full")};
};
} // namespace

/// Made when the translations are registered, and not in tools without them.
static CommandLine &commandLine() {
  static CommandLine options;
  return options;
}

/// The order or program of the module.
static FailureOr<ExtractedProgram> extract(Operation *module) {
  FailureOr<ScheduleOp> schedule = findSchedule(module, commandLine().schedule);
  if (failed(schedule))
    return failure();
  FailureOr<ExtractedProgram> extracted = extractProgram(*schedule);
  if (failed(extracted))
    return failure();
  if (extracted->program.numInstructions() == 0)
    return emitError(schedule->getLoc())
               << "schedule @" << schedule->getSymName()
               << " is a spec; run penstock-opt --pipe-compile first",
           failure();
  return extracted;
}

static LogicalResult toProgram(Operation *module, raw_ostream &os) {
  FailureOr<ExtractedProgram> extracted = extract(module);
  if (failed(extracted))
    return failure();
  if (!extracted->program.isPlanned())
    return emitError(extracted->schedule.getLoc())
           << "schedule @" << extracted->schedule.getSymName()
           << (extracted->program.isOrder() ? " is an order"
                                            : " has no slots and waits yet")
           << "; run penstock-opt --pipe-compile first";
  // A program that deadlocks is written too, without a certificate.
  certify(extracted->program);
  std::vector<uint8_t> bytes = serialize(extracted->program);
  os.write(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  return success();
}

static LogicalResult toReport(Operation *module, raw_ostream &os) {
  FailureOr<ExtractedProgram> extracted = extract(module);
  if (failed(extracted))
    return failure();
  ReportOptions options;
  options.memory = commandLine().reportMemory;
  os << llvm::formatv(
      "{0:2}\n",
      reportOf(extracted->program, extracted->schedule.getSymName(), options));
  return success();
}

/// When everything happens: of an order in the literature's model, of a program
/// as it stands.
static FailureOr<Timing> simulate(const ExtractedProgram &extracted) {
  const Program &program = extracted.program;
  std::optional<Timing> timing =
      program.isOrder() ? simulateOrder(program) : simulateProgram(program);
  ScheduleOp op = extracted.schedule;
  if (!timing)
    return emitError(op.getLoc())
               << "schedule @" << op.getSymName()
               << " cannot run to its end; penstock-opt --pipe-verify says why",
           failure();
  return std::move(*timing);
}

/// The name of the schedule, and of its family.
static std::string titleOf(ScheduleOp op) {
  std::string title = op.getSymName().str();
  if (ScheduleFamilyAttrInterface family = op.getFamilyAttr())
    llvm::raw_string_ostream(title) << ' ' << family;
  return title;
}

static LogicalResult toText(Operation *module, raw_ostream &os) {
  FailureOr<ExtractedProgram> extracted = extract(module);
  if (failed(extracted))
    return failure();
  FailureOr<Timing> timing = simulate(*extracted);
  if (failed(timing))
    return failure();
  const Program &program = extracted->program;
  os << titleOf(extracted->schedule) << ": " << describeTiming(program, *timing)
     << '\n'
     << renderTimeline(program, *timing, commandLine().columns);
  if (commandLine().criticalPath)
    os << renderCriticalPath(program, criticalPath(program, *timing));
  return success();
}

static LogicalResult toChromeTrace(Operation *module, raw_ostream &os) {
  FailureOr<ExtractedProgram> extracted = extract(module);
  if (failed(extracted))
    return failure();
  FailureOr<Timing> timing = simulate(*extracted);
  if (failed(timing))
    return failure();
  writeChromeTrace(extracted->program, *timing,
                   [&](std::string_view text) { os << text; });
  return success();
}

/// What draws a picture, by itself or on a page.
using Render = Result<std::string>(const Program &, const Timing &,
                                   const SvgOptions &);

template <Render *render>
static LogicalResult toPicture(Operation *module, raw_ostream &os) {
  FailureOr<ExtractedProgram> extracted = extract(module);
  if (failed(extracted))
    return failure();
  FailureOr<Timing> timing = simulate(*extracted);
  if (failed(timing))
    return failure();
  ScheduleOp op = extracted->schedule;
  SvgOptions options;
  options.title = titleOf(op);
  options.transfers = commandLine().svgTransfers;
  options.width = commandLine().svgWidth;
  Result<std::string> text = render(extracted->program, *timing, options);
  if (!text)
    return emitError(op.getLoc())
           << "schedule @" << op.getSymName() << ": " << text.message();
  os << *text;
  return success();
}

/// Whether torch comes to the end of a file with communication, with an eager
/// communicator.
static bool endsInTorch(StringRef text) {
  Result<TorchTable> table = readTorchCsv({text.data(), text.size()});
  return table && setFifos(table->program, Fifo::Rank) &&
         checkDeadlock(table->program, Semantics::Closure).ok;
}

/// torch's class of a family, if it has one.
static std::optional<TorchSchedule>
torchScheduleOf(ScheduleFamilyAttrInterface family) {
  return llvm::TypeSwitch<Attribute, std::optional<TorchSchedule>>(family)
      .Case([](GPipeAttr) { return TorchSchedule::GPipe; })
      .Case([](OneFOneBAttr) { return TorchSchedule::OneForwardOneBackward; })
      .Case([](BreadthFirstAttr) { return TorchSchedule::LoopedBFS; })
      .Case([](Interleaved1F1BAttr) { return TorchSchedule::Interleaved1F1B; })
      .Case([](InterleavedZBAttr) {
        return TorchSchedule::InterleavedZeroBubble;
      })
      .Case([](ZBVAttr) { return TorchSchedule::ZBVZeroBubble; })
      .Case([](DualPipeVAttr) { return TorchSchedule::DualPipeV; })
      .Default(std::nullopt);
}

/// What the command line says about torch's files.
static FailureOr<TorchCsvOptions>
torchOptions(const ExtractedProgram &extracted) {
  ScheduleOp schedule = extracted.schedule;
  auto fail = [&]() {
    return emitError(schedule.getLoc())
           << "schedule @" << schedule.getSymName() << ": ";
  };
  TorchCsvOptions options;
  if (commandLine().torchActiveStages < 1 ||
      commandLine().torchActiveStages > unsigned(kMaxStages))
    return fail() << "--torch-active-stages must be 1 to " << kMaxStages
                  << ", got " << commandLine().torchActiveStages.getValue(),
           failure();
  options.activeStages = static_cast<int32_t>(commandLine().torchActiveStages);
  const StringRef lookahead = commandLine().torchLookahead.getValue();
  if (lookahead == "auto")
    options.lookahead = TorchCsvOptions::kByRank;
  else if (lookahead != "full" &&
           (lookahead.getAsInteger(10, options.lookahead) ||
            options.lookahead < 1))
    return fail() << "--torch-unshard-lookahead must be full, auto or a number "
                     "from 1 on, got '"
                  << lookahead << "'",
           failure();
  if (!commandLine().torchBlanks)
    return options;
  if (!extracted.program.isOrder())
    return fail() << "--torch-blanks: only orders have idle cells in torch's "
                     "format; take the order (pipe-generate-order), or drop "
                     "the option",
           failure();
  std::optional<TorchSchedule> known;
  if (ScheduleFamilyAttrInterface family = schedule.getFamilyAttr())
    known = torchScheduleOf(family);
  if (!known)
    return fail() << "--torch-blanks: torch has no schedule like it; name a "
                     "family that it has with using(...), or drop the option",
           failure();
  auto idle = torchIdleCells(extracted.program, *known);
  if (!idle)
    return emitAt(extracted, idle.failure().site)
               << "--torch-blanks: " << idle.message(),
           failure();
  options.idleCells = std::move(*idle);
  return options;
}

static LogicalResult toTorchCsv(Operation *module, raw_ostream &os) {
  FailureOr<ExtractedProgram> extracted = extract(module);
  if (failed(extracted))
    return failure();
  FailureOr<TorchCsvOptions> options = torchOptions(*extracted);
  if (failed(options))
    return failure();
  Result<std::string> text = writeTorchCsv(extracted->program, *options);
  if (!text)
    return emitAt(*extracted, text.failure().site) << text.message();
  if (!extracted->program.isOrder() && !endsInTorch(*text))
    emitWarning(extracted->schedule.getLoc())
        << "schedule @" << extracted->schedule.getSymName()
        << " deadlocks in torch with one communicator per rank; "
           "penstock-check says why";
  os << *text;
  return success();
}

/// The text of a file that is no MLIR, and where errors stand that concern it.
static std::pair<StringRef, Location> readSource(llvm::SourceMgr &sources,
                                                 MLIRContext *context) {
  context->loadDialect<PipeDialect>();
  const llvm::MemoryBuffer *buffer =
      sources.getMemoryBuffer(sources.getMainFileID());
  return {buffer->getBuffer(),
          FileLineColLoc::get(context, buffer->getBufferIdentifier(), 0, 0)};
}

static OwningOpRef<Operation *> fromTorchCsv(llvm::SourceMgr &sources,
                                             MLIRContext *context) {
  const auto [source, loc] = readSource(sources, context);
  auto fail = [loc = loc](const std::string &why) {
    emitError(loc) << why;
    return OwningOpRef<Operation *>();
  };
  Result<TorchTable> table = readTorchCsv({source.data(), source.size()});
  if (!table)
    return fail(table.message());
  Program &program = table->program;
  Status status = wellFormed(program);
  if (!status)
    return fail(describeCell(*table, status.failure().site) + ": " +
                status.message());
  if (table->format == TorchFormat::ComputeComms)
    if (status = setFifos(program, commandLine().fifo); !status)
      return fail(describeCell(*table, status.failure().site) + ": " +
                  status.message());
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());
  if (failed(createSchedule(builder, loc, program)))
    return {};
  return OwningOpRef<Operation *>(module.release());
}

static OwningOpRef<Operation *> fromProgram(llvm::SourceMgr &sources,
                                            MLIRContext *context) {
  const auto [source, loc] = readSource(sources, context);
  Result<Program> program = deserialize(
      {reinterpret_cast<const uint8_t *>(source.data()), source.size()});
  if (!program)
    return emitError(loc) << "not a program file: " << program.message(),
           OwningOpRef<Operation *>();
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());
  if (failed(createSchedule(builder, loc, *program)))
    return {};
  return OwningOpRef<Operation *>(module.release());
}

} // namespace penstock::pipe

void penstock::registerTranslations() {
  using namespace pipe;
  commandLine();
  auto dialects = [](DialectRegistry &registry) {
    registry.insert<PipeDialect>();
  };
  TranslateFromMLIRRegistration(
      "pipe-to-program", "Write a planned program as a program file (.psp)",
      toProgram, dialects);
  TranslateFromMLIRRegistration("pipe-to-text",
                                "Draw a simulated timeline as plain text",
                                toText, dialects);
  TranslateFromMLIRRegistration("pipe-to-svg",
                                "Draw a simulated timeline as a picture (SVG)",
                                toPicture<renderSvg>, dialects);
  TranslateFromMLIRRegistration(
      "pipe-to-html",
      "Write a page with picture, ranks, memory, critical path and verdict",
      toPicture<renderHtml>, dialects);
  TranslateFromMLIRRegistration(
      "pipe-to-chrome-trace",
      "Write a simulated timeline for chrome://tracing and Perfetto (JSON)",
      toChromeTrace, dialects);
  TranslateFromMLIRRegistration("pipe-to-report",
                                "Write time, memory and verdicts as JSON",
                                toReport, dialects);
  TranslateFromMLIRRegistration(
      "pipe-to-torch-csv",
      "Write an order (compute_only) or a program (compute_comms) for "
      "torch.distributed.pipelining",
      toTorchCsv, dialects);
  TranslateToMLIRRegistration(
      "torch-csv-to-pipe", "Read a schedule of torch.distributed.pipelining",
      TranslateRawSourceMgrToMLIRFunction(fromTorchCsv), dialects);
  TranslateToMLIRRegistration("program-to-pipe", "Read a program file (.psp)",
                              TranslateRawSourceMgrToMLIRFunction(fromProgram),
                              dialects);
}
