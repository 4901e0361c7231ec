//===- Plan.cpp - All families on one model and cluster -------------------===//

#include "penstock/Target/Plan.h"
#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"
#include "penstock/Schedule/Plan.h"

#include "mlir/AsmParser/AsmParser.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Parallel.h"

#include <array>

using namespace mlir;
namespace json = llvm::json;

namespace penstock::pipe {

using llvm::failure;
using llvm::success;
using Family = ScheduleFamilyAttrInterface;

//===----------------------------------------------------------------------===//
// Candidates
//===----------------------------------------------------------------------===//

/// The family that a text says, if it says one.
static Family tryFamily(MLIRContext *context, const std::string &text) {
  ScopedDiagnosticHandler quiet(context, [](Diagnostic &) {});
  return dyn_cast_if_present<Family>(mlir::parseAttribute(text, context));
}

/// All families of the dialect, each with all combinations of the values below
/// of the parameters that it has.
static llvm::SetVector<Family> allFamilies(MLIRContext *context,
                                           ArrayRef<int32_t> chunks) {
  struct Axis {
    const char *parameter;
    std::vector<std::string> values; ///< empty: left out
  };
  Axis axes[] = {{"chunks", {}},
                 {"waves", {}},
                 {"eager", {"", "true"}},
                 {"recompute", {"", "true"}},
                 {"split_backward", {"", "true"}}};
  for (int32_t number : chunks) {
    axes[0].values.push_back(std::to_string(number));
    if (number % 2 == 0) // a wave is two stages
      axes[1].values.push_back(std::to_string(number / 2));
  }
  llvm::SetVector<Family> families;
  for (StringRef name : PipeDialect::getFamilyNames()) {
    const std::string bare = ("#pipe." + name).str();
    std::vector<std::string> lists = {""};
    for (const Axis &axis : axes) {
      auto assign = [&](const std::string &value) {
        return axis.parameter + (" = " + value);
      };
      if (axis.values.empty() ||
          !tryFamily(context, bare + "<" + assign(axis.values.back()) + ">"))
        continue;
      std::vector<std::string> longer;
      for (const std::string &list : lists)
        for (const std::string &value : axis.values)
          longer.push_back(value.empty()  ? list
                           : list.empty() ? assign(value)
                                          : list + ", " + assign(value));
      lists = std::move(longer);
    }
    for (const std::string &list : lists)
      if (Family family =
              tryFamily(context, list.empty() ? bare : bare + "<" + list + ">"))
        families.insert(family);
  }
  return families;
}

static FailureOr<llvm::SetVector<Family>>
candidates(ScheduleOp op, const PlanOptions &options) {
  if (options.families.empty())
    return allFamilies(op.getContext(), options.chunks);
  llvm::SetVector<Family> families;
  for (const std::string &text : options.families) {
    FailureOr<Family> family = parseFamily(text, op.getLoc(), "family");
    if (failed(family))
      return failure();
    families.insert(*family);
  }
  return families;
}

/// "one_f_one_b<eager=true>": as the option schedule of pipe-compile takes it,
/// without spaces.
static std::string textOf(Family family) {
  std::string text;
  llvm::raw_string_ostream(text) << Attribute(family);
  if (text.starts_with("#pipe."))
    text.erase(0, 6);
  llvm::erase(text, ' ');
  return text;
}

/// The least m of equal stages of the same total cost, with free transfers.
static std::optional<int32_t> leastFor(const std::string &schedule,
                                       const Problem &of, Family family,
                                       double target) {
  Problem problem;
  problem.name = of.name;
  problem.numRanks = of.numRanks;
  problem.slices = of.slices;
  problem.overlap = of.overlap;
  Stage mean;
  for (auto part :
       {&StageCost::forward, &StageCost::backward, &StageCost::input,
        &StageCost::weight, &StageCost::recompute}) {
    double sum = 0;
    for (const Stage &stage : of.stages)
      sum += stage.cost.*part;
    mean.cost.*part = sum / of.numStages();
  }
  problem.stages.assign(of.stages.size(), mean);

  // Forms are for the default parameters.
  const StringRef text = schedule;
  std::optional<BubbleForm> form;
  if (!text.contains("split_backward") && !text.contains("group")) {
    Result<BubbleForm> found = bubbleForm(
        text.take_until([](char c) { return c == '<'; }).str(),
        {of.numRanks, family.getChunks(), mean.cost, of.overlap, of.slices});
    if (found) {
      form = *found;
      if (text.contains("recompute"))
        form->work += mean.cost.recompute;
    }
  }
  auto make = [&](Problem &trial) {
    trial.chains.clear();
    family.place(trial);
    return family.generate(trial);
  };
  return leastMicrobatches(std::move(problem), make, form, target);
}

//===----------------------------------------------------------------------===//
// The comparison
//===----------------------------------------------------------------------===//

/// The problem of a family, or why there is none, without the name of the
/// schedule in front.
static Result<Problem> problemOf(ScheduleOp op, Family family) {
  std::string message;
  ScopedDiagnosticHandler collect(op.getContext(), [&](Diagnostic &diag) {
    message += (message.empty() ? "" : "; ") + diag.str();
  });
  op.setFamilyAttr(family);
  FailureOr<Problem> problem = partitionLayers(op, /*placeAnew=*/true);
  if (succeeded(problem))
    return std::move(*problem);
  StringRef why = message;
  why.consume_front(("schedule @" + op.getSymName() + ": ").str());
  return Failure{why.str()};
}

/// Most actions of an order with one stage a rank that is estimated together
/// with others.
static constexpr int64_t kMaxTogether = 1 << 20;

FailureOr<Plan> makePlan(ScheduleOp op, const PlanOptions &options) {
  auto fail = [&] {
    return mlir::emitError(op.getLoc())
           << "schedule @" << op.getSymName() << ' ';
  };
  if (!op.getModelAttr())
    return fail() << "has no model, and what its stages cost says nothing "
                     "about families that cut it into others: add "
                     "model(@name) and a pipe.model",
           failure();
  Block &body = op.getBody().front();
  if (!body.getOps<StageOp>().empty())
    return fail() << "has stages of its own, which families with other stages "
                     "cannot use: remove the stage ops",
           failure();
  for (RankOp rank : llvm::make_early_inc_range(body.getOps<RankOp>()))
    rank.erase();
  // These belong to the spec's own family.
  op.setChains({});
  op.setSlices(-1);
  op.setFamilyAttr({});
  if (!op.getTiedStages().empty()) {
    emitWarning(op.getLoc())
        << "schedule @" << op.getSymName()
        << ": tied(...) numbers stages, which are others in every family, and "
           "is left out here; their sum takes no time in these figures";
    op.setTiedStages({});
    op.setTiedSizes({});
  }
  FailureOr<llvm::SetVector<Family>> families = candidates(op, options);
  // What is wrong without a family is wrong with each.
  if (failed(families) ||
      failed(overrideSpec(op, {{}, options.microbatches, options.ranks})))
    return failure();
  FailureOr<std::vector<Stage>> layers = extractLayers(op);
  if (failed(layers))
    return failure();
  // Without the model, for a cut into stages suits some families only.
  const FlatSymbolRefAttr model = op.getModelAttr();
  op.setModelAttr({});
  FailureOr<ExtractedProgram> spec = extractProgram(op);
  op.setModelAttr(model);
  if (failed(spec))
    return failure();

  Plan plan;
  const Problem &problem = spec->program.problem;
  const int64_t most = int64_t(kMaxProgramFileBytes) /
                       (2 * int64_t(sizeof(Instruction)) * problem.numRanks);
  if (problem.numMicrobatches > most)
    return fail() << "has more micro-batches, " << problem.numMicrobatches
                  << ", than a program on " << problem.numRanks
                  << " ranks can hold: give at most " << most,
           failure();
  plan.schedule = op.getSymName().str();
  plan.model = op.getModel()->str();
  plan.numLayers = static_cast<int32_t>(layers->size());
  plan.numRanks = problem.numRanks;
  plan.numMicrobatches = problem.numMicrobatches;
  plan.memory = problem.memory;
  plan.options = options;
  std::vector<Result<Problem>> problems;
  for (Family family : *families) {
    problems.push_back(problemOf(op, family));
    PlanRow &row = plan.rows.emplace_back();
    row.schedule = textOf(family);
  }
  op.setFamilyAttr({});
  auto estimateRow = [&](size_t i) {
    Result<Problem> &of = problems[i];
    PlanRow &row = plan.rows[i];
    if (of && options.targetBubble)
      row.leastMicrobatches =
          leastFor(row.schedule, *of, (*families)[i], *options.targetBubble);
    row.estimate = of ? estimate((*families)[i].generate(*of), options.lower)
                      : estimate(of.failure());
    of = Failure{}; // lets go of the problem
  };
  // Large ones one by one: each may take gigabytes.
  if (2 * int64_t(plan.numRanks) * plan.numMicrobatches > kMaxTogether)
    for (size_t i = 0; i < plan.rows.size(); ++i)
      estimateRow(i);
  else
    llvm::parallelFor(0, plan.rows.size(), estimateRow);
  llvm::stable_sort(plan.rows, [&](const PlanRow &a, const PlanRow &b) {
    return isBetter(a.estimate, b.estimate, options.key);
  });
  return plan;
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

/// "57.3 GiB", "12 B"
static std::string formatBytes(int64_t bytes) {
  static constexpr const char *kUnits[] = {"B",   "KiB", "MiB", "GiB",
                                           "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit)
    value /= 1024;
  const int digits = unit == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  std::string text;
  llvm::raw_string_ostream(text)
      << llvm::format("%.*f ", digits, value) << kUnits[unit];
  return text;
}

/// Stage activations of whole micro-batches: "8", "1.875".
static std::string formatActivations(const Estimate &e) {
  return e.peakActivations % e.slices == 0
             ? std::to_string(e.peakActivations / e.slices)
             : formatRounded(static_cast<double>(e.peakActivations) / e.slices);
}

/// Prints rows of cells, the first column to the left and the others to the
/// right.
static void printTable(raw_ostream &os,
                       ArrayRef<std::vector<std::string>> rows) {
  std::vector<size_t> width(rows.front().size(), 0);
  for (const auto &row : rows)
    for (auto [i, cell] : llvm::enumerate(row))
      width[i] = std::max(width[i], cell.size());
  for (const auto &row : rows) {
    os << llvm::left_justify(row[0], width[0]);
    for (size_t i = 1; i < row.size(); ++i)
      os << "  " << llvm::right_justify(row[i], width[i]);
    os << '\n';
  }
}

/// Where the memory of the ranks goes; neighbours that are equal share a row.
static void printMemory(raw_ostream &os, ArrayRef<RankMemory> memory) {
  const bool hasVersions = llvm::any_of(
      memory, [](const RankMemory &rank) { return rank.versions > 0; });
  std::vector<std::vector<std::string>> table = {
      {"rank", "parameters", "gradients", "optimizer"}};
  auto addCells = [&](const std::string &versions,
                      const std::string &activations,
                      const std::string &total) {
    if (hasVersions)
      table.back().push_back(versions);
    table.back().insert(table.back().end(), {activations, total});
  };
  addCells("old weights", "activations", "total");
  for (size_t first = 0, end; first < memory.size(); first = end) {
    const RankMemory &rank = memory[first];
    for (end = first + 1; end < memory.size() && memory[end] == rank; ++end)
      ;
    table.push_back(
        {std::to_string(first) +
             (end > first + 1 ? ".." + std::to_string(end - 1) : ""),
         formatBytes(rank.parameters), formatBytes(rank.gradients),
         formatBytes(rank.optimizer)});
    addCells(formatBytes(rank.versions), formatBytes(rank.activations),
             formatBytes(rank.total()));
  }
  printTable(os, table);
}

void printPlan(raw_ostream &os, const Plan &plan) {
  const std::optional<double> target = plan.options.targetBubble;
  os << formatSymbol(plan.schedule) << ": model " << formatSymbol(plan.model)
     << " with " << counted(plan.numLayers, "layer") << ", "
     << counted(plan.numRanks, "rank") << ", "
     << counted(plan.numMicrobatches, "micro-batch") << ", "
     << (plan.memory ? formatBytes(plan.memory) + " a rank"
                     : "no limit of memory")
     << "; figures of " << (plan.options.lower ? "programs" : "orders")
     << "\n\n";

  std::vector<std::vector<std::string>> table = {
      {"schedule", "makespan", "span", "bubble rate", "activations", "memory",
       "transfers", "moved", "link share"}};
  if (target)
    table[0].push_back("least m");
  for (const PlanRow &row : plan.rows) {
    const Estimate &e = row.estimate;
    if (!e.feasible())
      continue;
    auto &cells = table.emplace_back(std::vector<std::string>{
        row.schedule, formatRounded(e.makespan), formatRounded(e.span),
        llvm::formatv("{0:F4}", e.bubbleRate), formatActivations(e),
        formatBytes(e.peakBytes()), std::to_string(e.traffic.transfers),
        formatBytes(e.traffic.bytes), llvm::formatv("{0:F4}", e.linkShare)});
    if (target)
      cells.push_back(
          row.leastMicrobatches ? std::to_string(*row.leastMicrobatches) : "-");
  }
  if (table.size() > 1) {
    printTable(os, table);
    std::string asynchronous;
    for (const PlanRow &row : plan.rows)
      if (row.estimate.feasible() && row.estimate.asynchronous)
        asynchronous += (asynchronous.empty() ? "" : ", ") + row.schedule;
    if (!asynchronous.empty())
      os << "\nUpdate weights while micro-batches are in the pipe, which is "
            "another training than that of the others: "
         << asynchronous << '\n';
    os << "\nMemory of " << plan.rows.front().schedule << ":\n\n";
    printMemory(os, plan.rows.front().estimate.memory);
  }
  bool any = false;
  for (const PlanRow &row : plan.rows) {
    if (row.estimate.feasible())
      continue;
    os << (any                ? ""
           : table.size() > 1 ? "\nCannot be used:\n\n"
                              : "No schedule can be used:\n\n")
       << row.schedule << ": " << row.estimate.reason << '\n';
    any = true;
  }
}

//===----------------------------------------------------------------------===//
// JSON
//===----------------------------------------------------------------------===//

static StringRef nameOf(EstimateKey key) {
  return key == EstimateKey::Makespan ? "makespan"
         : key == EstimateKey::Span   ? "span"
                                      : "memory";
}

template <typename T>
static json::Value orNull(bool known, T value) {
  return known ? json::Value(std::move(value)) : json::Value(nullptr);
}

json::Value planToJson(const Plan &plan) {
  json::Array rows;
  for (const PlanRow &row : plan.rows) {
    const Estimate &e = row.estimate;
    json::Array memory;
    for (const RankMemory &rank : e.memory)
      memory.push_back(json::Object{{"parameters", rank.parameters},
                                    {"gradients", rank.gradients},
                                    {"optimizer", rank.optimizer},
                                    {"versions", rank.versions},
                                    {"activations", rank.activations}});
    rows.push_back(json::Object{
        {"schedule", row.schedule},
        {"feasible", e.feasible()},
        {"reason", orNull(!e.feasible(), e.reason)},
        {"stages", orNull(e.runs, e.numStages)},
        {"asynchronous", orNull(e.runs, e.asynchronous)},
        {"makespan", orNull(e.runs, e.makespan)},
        {"span", orNull(e.runs, e.span)},
        {"bubble_rate", orNull(e.runs, e.bubbleRate)},
        {"slices", orNull(e.runs, e.slices)},
        {"peak_activations", orNull(e.runs, e.peakActivations)},
        {"peak_bytes", orNull(e.runs, e.peakBytes())},
        {"fullest_rank", orNull(e.runs, e.fullest)},
        {"transfers", orNull(e.runs, e.traffic.transfers)},
        {"transfer_bytes", orNull(e.runs, e.traffic.bytes)},
        {"bytes_per_microbatch",
         orNull(e.runs,
                static_cast<double>(e.traffic.bytes) / plan.numMicrobatches)},
        {"link_share", orNull(e.runs, e.linkShare)},
        {"least_microbatches", orNull(row.leastMicrobatches.has_value(),
                                      row.leastMicrobatches.value_or(0))},
        {"rank_memory", orNull(e.runs, std::move(memory))}});
  }
  const std::optional<double> target = plan.options.targetBubble;
  return json::Object{
      {"schedule", plan.schedule},
      {"model", plan.model},
      {"layers", plan.numLayers},
      {"ranks", plan.numRanks},
      {"microbatches", plan.numMicrobatches},
      {"memory", orNull(plan.memory != 0, plan.memory)},
      {"figures", plan.options.lower ? "program" : "order"},
      {"sorted_by", nameOf(plan.options.key)},
      {"target_bubble", orNull(target.has_value(), target.value_or(0))},
      {"schedules", std::move(rows)}};
}

} // namespace penstock::pipe
