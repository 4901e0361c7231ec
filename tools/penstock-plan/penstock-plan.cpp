//===- penstock-plan.cpp - Which schedule for this model? -----------------===//
//
// Compares all schedule families for the model and the cluster of a spec, by
// time, bubble, memory and transfers. Exit status: 0 a schedule can be used, 1
// none can, 2 the spec or the command line is wrong.
//
//===----------------------------------------------------------------------===//

#include "penstock/Dialect/Pipe/IR/PipeDialect.h"
#include "penstock/Schedule/Plan.h"
#include "penstock/Target/Plan.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ToolOutputFile.h"

namespace cl = llvm::cl;
using namespace penstock;
using namespace penstock::pipe;

namespace {

enum ExitStatus { Usable = 0, NoneUsable = 1, Wrong = 2 };

cl::OptionCategory category("Options");

cl::opt<std::string> input(cl::Positional, cl::Required,
                           cl::desc("SPEC.mlir (- for standard input)"),
                           cl::cat(category));
cl::opt<std::string> output("o", cl::desc("Write to this file"),
                            cl::value_desc("file"), cl::init("-"),
                            cl::cat(category));
cl::opt<bool> asJson("json", cl::desc("Print one JSON object"),
                     cl::cat(category));
cl::opt<std::string> schedule("schedule",
                              cl::desc("Schedule to plan for, when the spec "
                                       "has several"),
                              cl::value_desc("name"), cl::cat(category));
cl::opt<int64_t> microbatches("microbatches",
                              cl::desc("Number of micro-batches instead of the "
                                       "schedule's own"),
                              cl::value_desc("m"), cl::cat(category));
cl::opt<int64_t> ranks("ranks",
                       cl::desc("Number of ranks instead of the schedule's or "
                                "cluster's own"),
                       cl::value_desc("p"), cl::cat(category));
cl::opt<int64_t> globalBatch("global-batch",
                             cl::desc("Sequences of a step; gives the number "
                                      "of micro-batches"),
                             cl::value_desc("n"), cl::cat(category));
cl::opt<int64_t> dataParallel("data-parallel",
                              cl::desc("Copies of the pipeline that share the "
                                       "global batch (default 1)"),
                              cl::value_desc("n"), cl::init(1),
                              cl::cat(category));
cl::opt<int64_t> microbatchSize("microbatch-size",
                                cl::desc("Sequences of a micro-batch of the "
                                         "global batch (default 1)"),
                                cl::value_desc("n"), cl::init(1),
                                cl::cat(category));
cl::list<std::string> families("family",
                               cl::desc("Compare this schedule only, as in "
                                        "zb_v or interleaved_1f1b<chunks=3>; "
                                        "may be repeated"),
                               cl::value_desc("family"), cl::cat(category));
cl::list<int32_t> chunks("chunks",
                         cl::desc("Stages on every rank, of the families that "
                                  "take any number (default 2,4)"),
                         cl::value_desc("v,..."), cl::CommaSeparated,
                         cl::cat(category));
cl::opt<double> targetBubble("target-bubble",
                             cl::desc("Tell the least m for which the closed "
                                      "form of a family keeps the bubble rate "
                                      "at this"),
                             cl::value_desc("rate"), cl::cat(category));
cl::opt<bool> lower("lower",
                    cl::desc("Figures of the programs, with transfers that "
                             "occupy queues and planned buffers, instead of "
                             "the orders; slower"),
                    cl::cat(category));
cl::opt<EstimateKey> sortBy(
    "sort", cl::desc("What comes first"),
    cl::values(clEnumValN(EstimateKey::Makespan, "makespan",
                          "the shortest step with a barrier (default)"),
               clEnumValN(EstimateKey::Span, "span",
                          "the shortest of steps that follow each other"),
               clEnumValN(EstimateKey::Memory, "memory",
                          "the least memory on the fullest rank")),
    cl::init(EstimateKey::Makespan), cl::cat(category));

int fail(const llvm::Twine &why) {
  llvm::errs() << "penstock-plan: " << why << '\n';
  return Wrong;
}

int plan() {
  PlanOptions options;
  if (microbatches.getNumOccurrences())
    options.microbatches = microbatches;
  if (ranks.getNumOccurrences())
    options.ranks = ranks;
  options.families = families;
  options.lower = lower;
  options.key = sortBy;
  if (targetBubble.getNumOccurrences()) {
    if (!(targetBubble >= 0 && targetBubble < 1))
      return fail("--target-bubble must be a rate from 0 to below 1");
    options.targetBubble = targetBubble;
  }
  if (!chunks.empty()) {
    options.chunks.assign(chunks.begin(), chunks.end());
    for (int32_t number : options.chunks)
      if (number < 1 || number > kMaxStages)
        return fail("--chunks=" + llvm::Twine(number) +
                    ": a rank needs at least one stage, and has at most " +
                    llvm::Twine(kMaxStages));
  }
  if (microbatches.getNumOccurrences() && globalBatch.getNumOccurrences())
    return fail("--microbatches and --global-batch both say how many "
                "micro-batches there are; drop one of them");
  if (globalBatch.getNumOccurrences()) {
    Result<int32_t> m =
        microbatchesOf(globalBatch, dataParallel, microbatchSize);
    if (!m)
      return fail(m.message());
    options.microbatches = *m;
  } else if (dataParallel.getNumOccurrences() ||
             microbatchSize.getNumOccurrences()) {
    return fail("--data-parallel and --microbatch-size share out the global "
                "batch; give --global-batch too");
  }

  std::string message;
  std::unique_ptr<llvm::MemoryBuffer> file =
      mlir::openInputFile(input, &message);
  if (!file)
    return fail(message);
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(file), llvm::SMLoc());
  mlir::DialectRegistry registry;
  registry.insert<PipeDialect>();
  mlir::MLIRContext context(registry);
  context.loadAllAvailableDialects();
  mlir::SourceMgrDiagnosticHandler diagnostics(sources, &context);
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::parseSourceFile<mlir::ModuleOp>(sources, &context);
  if (!module)
    return Wrong;
  llvm::FailureOr<ScheduleOp> op = findSchedule(*module, schedule);
  if (failed(op))
    return Wrong;
  llvm::FailureOr<Plan> plan = makePlan(*op, options);
  if (failed(plan))
    return Wrong;

  std::unique_ptr<llvm::ToolOutputFile> out =
      mlir::openOutputFile(output, &message);
  if (!out)
    return fail(message);
  if (asJson)
    out->os() << llvm::formatv("{0:2}\n", planToJson(*plan));
  else
    printPlan(out->os(), *plan);
  out->os().flush();
  if (out->os().has_error()) {
    out->os().clear_error();
    return fail("cannot write the output; is the disk full?");
  }
  out->keep();
  return plan->rows.empty() || !plan->rows.front().estimate.feasible()
             ? NoneUsable
             : Usable;
}

} // namespace

int main(int argc, char **argv) {
  cl::HideUnrelatedOptions(category);
  if (!cl::ParseCommandLineOptions(
          argc, argv,
          "Compares the schedule families for the model and the cluster of a "
          "spec.\nExit status: 0 a schedule can be used, 1 none can, 2 the "
          "spec or the\ncommand line is wrong.\n",
          &llvm::errs()))
    return Wrong;
  return plan();
}
