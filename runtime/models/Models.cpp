//===- Models.cpp - The models that come with Penstock --------------------===//

#include "penstock/Runtime/Models.h"

#include "ByteLm.h"
#include "penstock/Program/Text.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace penstock::runtime {

std::string describeModels() { return describeByteLm() + '\n'; }

Result<ModelFactory> makeModel(std::string_view description,
                               const std::string &textPath) {
  auto source = ByteLmSource::make(description, textPath);
  if (!source)
    return source.failure();
  return ModelFactory(
      [source = *source](const Program &program,
                         int32_t rank) -> Result<std::unique_ptr<Model>> {
        auto model = makeByteLm(source, program, rank);
        if (!model)
          return model.failure();
        return std::unique_ptr<Model>(std::move(*model));
      });
}

//===----------------------------------------------------------------------===//
// As text
//===----------------------------------------------------------------------===//

static void printLayer(std::ostream &os, std::string_view name, int32_t times,
                       LayerKind kind, const ByteLmConfig &config) {
  os << "  layer \"" << name << '"';
  if (times > 1)
    os << " times " << times;

  // Four digits are more than such an estimate is worth.
  auto cost = [](double value) {
    return formatNumber(std::round(value * 1e4) / 1e4);
  };
  const StageCost costs = costOf(kind, config);
  os << " costs(#pipe.cost<forward = " << cost(costs.forward)
     << ", input = " << cost(costs.input) << ", weight = " << cost(costs.weight)
     << ">)";

  const StageBytes bytes = bytesOf(kind, config);
  os << " bytes(#pipe.bytes<";
  if (bytes.output)
    os << "output = " << bytes.output << ", ";
  os << "stash = " << bytes.stash << ", parameters = " << bytes.parameters
     << ", gradients = " << bytes.gradients;
  if (bytes.optimizer)
    os << ", optimizer = " << bytes.optimizer;
  os << ">)\n";
}

Result<std::string> printModel(std::string_view description,
                               int32_t numLayers) {
  Result<ByteLmConfig> config = ByteLmConfig::parse(description);
  if (!config)
    return config.failure();
  if (numLayers < 2 || numLayers > kMaxStages)
    return Failure{"byte-lm has from 2 to " + std::to_string(kMaxStages) +
                   " layers, the embedding and the head among them, not " +
                   std::to_string(numLayers)};
  std::ostringstream os;
  os << "// " << config->str() << "\npipe.model @byte_lm {\n";
  printLayer(os, "embedding", 1, LayerKind::Embedding, *config);
  if (numLayers > 2)
    printLayer(os, "block", numLayers - 2, LayerKind::Block, *config);
  printLayer(os, "head", 1, LayerKind::Head, *config);
  os << "}\n";
  return os.str();
}

//===----------------------------------------------------------------------===//
// Reference
//===----------------------------------------------------------------------===//

Reference::Reference(std::unique_ptr<InspectableModel> model, Stash stash,
                     Problem problem)
    : state(std::move(model)), stash(std::move(stash)),
      problem(std::move(problem)) {}

Result<Reference> Reference::make(std::string_view description,
                                  const std::string &textPath,
                                  const Problem &problem) {
  auto source = ByteLmSource::make(description, textPath);
  if (!source)
    return source.failure();
  Result<int32_t> numLayers = countLayers(problem);
  if (!numLayers)
    return numLayers.failure();

  Program program;
  Problem &single = program.problem;
  single.numRanks = 1;
  single.numMicrobatches = problem.numWholeMicrobatches();
  single.weights = problem.weights;
  Stage stage;
  stage.numLayers = *numLayers;
  stage.bytes = bytesOf(stage, *numLayers, (*source)->config);
  single.stages = {stage};
  single.placement = {0};
  program.ranks.resize(1);
  auto model = makeByteLm(*source, program, 0);
  if (!model)
    return model.failure();
  (*model)->captureGradients();

  // Stash sizes are multiples of 64, and so of the alignment.
  Stash stash(static_cast<std::byte *>(
                  std::aligned_alloc(64, size_t(stage.bytes.stash))),
              &std::free);
  if (!stash)
    return Failure{"not enough memory for the unpipelined reference: its stash "
                   "takes " +
                   std::to_string(stage.bytes.stash) + " bytes"};
  return Reference(std::move(*model), std::move(stash), std::move(single));
}

double Reference::step() {
  state->beginStep(nextStep++);
  ActionContext context;
  context.stage = 0;
  context.stash = stash.get();
  std::vector<double> losses;
  for (int32_t mb = 0; mb < problem.numMicrobatches; ++mb) {
    context.microbatch = mb;
    context.weight = problem.weightOf(mb);
    state->forward(context);
    state->backward(context);
    losses.push_back(state->loss(mb));
  }
  state->optimizerStep(0);
  return lossOfStep(problem, losses);
}

//===----------------------------------------------------------------------===//
// Comparison
//===----------------------------------------------------------------------===//

/// A number that is none is the largest.
static double largerOf(double a, double b) {
  return std::isnan(a) || a >= b ? a : b;
}

/// Adds the values or the gradient of one parameter to the check.
static void compare(const Parameter &expected, const Parameter &actual,
                    bool inGradient, GradientCheck &check) {
  const auto field = inGradient ? &Parameter::gradient : &Parameter::value;
  double largest = 0, difference = 0, squares = 0, squaresOfDifference = 0;
  for (size_t i = 0; i < (expected.*field).size(); ++i) {
    const float a = (actual.*field)[i], e = (expected.*field)[i];
    largest = std::max(largest, std::abs(double(e)));
    squares += double(e) * double(e);
    ++check.numValues;
    if (std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(e))
      continue;
    if (check.numDifferent++ == 0) {
      check.layer = expected.layer;
      check.parameter = expected.name;
      check.inGradient = inGradient;
      check.index = i;
      check.value = a;
      check.expected = e;
    }
    const double d = std::abs(double(a) - double(e));
    difference = largerOf(difference, d);
    squaresOfDifference += d * d;
  }
  if (difference == 0)
    return;
  check.maxRelativeDifference =
      largerOf(check.maxRelativeDifference, difference / largest);
  check.maxNormDifference = largerOf(check.maxNormDifference,
                                     std::sqrt(squaresOfDifference / squares));
}

Result<GradientCheck> compareGradients(const Problem &problem,
                                       std::span<const Model *const> ranks,
                                       const Reference &reference,
                                       std::span<const int32_t> here) {
  std::vector<Parameter> expected;
  reference.model().forEachParameter(
      0, [&](const Parameter &parameter) { expected.push_back(parameter); });

  GradientCheck check;
  check.steps = reference.numSteps();
  size_t first = 0; // parameter of the stage
  for (int32_t s = 0; s < problem.numStages(); ++s) {
    const Stage &stage = problem.stages[s];
    const int32_t end = stage.firstLayer + stage.numLayers;
    size_t next = first;
    while (next < expected.size() && expected[next].layer < end)
      ++next;
    const size_t last = next;
    for (int32_t rank : problem.ranksOf(s)) {
      if (!here.empty() &&
          std::find(here.begin(), here.end(), rank) == here.end())
        continue;
      const auto *model =
          size_t(rank) < ranks.size()
              ? dynamic_cast<const InspectableModel *>(ranks[rank])
              : nullptr;
      if (!model)
        return Failure{"stage " + std::to_string(s) +
                       ": there is no model on rank " + std::to_string(rank) +
                       " that shows its gradients"};
      bool same = true;
      next = first;
      model->forEachParameter(s, [&](const Parameter &actual) {
        same = same && next < expected.size() &&
               actual.layer == expected[next].layer &&
               actual.name == expected[next].name &&
               actual.gradient.size() == expected[next].gradient.size();
        if (!same)
          return;
        compare(expected[next], actual, true, check);
        compare(expected[next++], actual, false, check);
      });
      // All layers of the stage must have been visited, and no others.
      if (!same || next != last)
        return Failure{"stage " + std::to_string(s) + ": the model on rank " +
                       std::to_string(rank) +
                       " does not have the parameters of the reference; give "
                       "both the same description"};
    }
    first = last;
  }
  return check;
}

bool sumsInOrder(const Program &program) {
  const Problem &problem = program.problem;
  for (int32_t s = 0; s < problem.numStages() && problem.numChains() > 1; ++s)
    if (problem.ranksOf(s).size() > 1)
      return false;
  std::vector<int32_t> latest(problem.stages.size(), -1);
  for (const RankProgram &rank : program.ranks)
    for (const Instruction &inst : rank.instructions) {
      if (inst.op != Op::Backward && inst.op != Op::BackwardWeight)
        continue;
      if (inst.microbatch < latest[inst.stage])
        return false;
      latest[inst.stage] = inst.microbatch;
    }
  return true;
}

void GradientCheck::add(const GradientCheck &other) {
  numValues += other.numValues;
  if (numDifferent == 0 && other.numDifferent > 0) {
    const GradientCheck own = *this;
    *this = other;
    numValues = own.numValues;
    numDifferent = 0;
  }
  numDifferent += other.numDifferent;
  maxRelativeDifference =
      largerOf(maxRelativeDifference, other.maxRelativeDifference);
  maxNormDifference = largerOf(maxNormDifference, other.maxNormDifference);
}

/// Gives the checks of all processes, or the first error, to all.
static void shareCheck(Peers &peers, GradientCheckReport &report) {
  struct Numbers {
    size_t numValues, numDifferent, index;
    double maxRelativeDifference, maxNormDifference;
    int32_t layer;
    bool inGradient;
    float value, expected;
  };
  GradientCheck &check = report.check;
  const Numbers own = {check.numValues,
                       check.numDifferent,
                       check.index,
                       check.maxRelativeDifference,
                       check.maxNormDifference,
                       check.layer,
                       check.inGradient,
                       check.value,
                       check.expected};
  std::string bytes(sizeof(own), '\0');
  std::memcpy(bytes.data(), &own, sizeof(own));
  const auto errors = peers.gather(pack(report.error));
  const auto checks = peers.gather(bytes + check.parameter);
  for (size_t p = errors.size(); p-- > 0;)
    if (Error error = unpackError(errors[p]))
      report.error = std::move(error);
  GradientCheck sum;
  sum.steps = check.steps;
  sum.exact = check.exact;
  sum.rounding = check.rounding;
  sum.byNorm = check.byNorm;
  for (const std::string &part : checks) {
    Numbers n;
    std::memcpy(&n, part.data(), sizeof(n));
    GradientCheck other = sum;
    other.numValues = n.numValues;
    other.numDifferent = n.numDifferent;
    other.index = n.index;
    other.maxRelativeDifference = n.maxRelativeDifference;
    other.maxNormDifference = n.maxNormDifference;
    other.layer = n.layer;
    other.inGradient = n.inGradient;
    other.value = n.value;
    other.expected = n.expected;
    other.parameter = part.substr(sizeof(n));
    sum.add(other);
  }
  check = std::move(sum);
}

GradientCheckReport checkGradients(const Program &program,
                                   std::string_view givenDescription,
                                   const std::string &textPath, RunOptions run,
                                   MakeModel *makeGpu) {
  GradientCheckReport report;
  report.check.exact = !makeGpu && sumsInOrder(program);
  std::string description(givenDescription);
  auto set = [](std::string &description, const std::string &entry) {
    description += (description.find(':') == description.npos ? ':' : ',');
    description += entry;
  };
  if (!report.check.exact)
    set(description, "optimizer=sgd");
  std::string ofReference = description;
  if (makeGpu) {
    const auto config = ByteLmConfig::parse(description);
    report.check.byNorm = config && config->type == ElementType::BFloat16;
    report.check.rounding = GradientCheck::kGpuRounding;
    if (const auto numLayers = countLayers(program.problem);
        numLayers && report.check.byNorm)
      report.check.rounding =
          GradientCheck::kBFloat16Rounding * std::sqrt(*numLayers);
    set(ofReference, "type=fp32");
  }
  for (const RankProgram &rank : program.ranks)
    for (const Instruction &inst : rank.instructions)
      if (inst.op == Op::Step && inst.microbatch >= 0) {
        report.error = {ErrorKind::NotSupported,
                        "the program updates while micro-batches are in the "
                        "pipe (`" +
                            describe(inst) +
                            "`), which no unpipelined model does; check the "
                            "gradients of a schedule with a flush"};
        return report;
      }
  if (auto config = ByteLmConfig::parse(description);
      config && config->clip > 0) {
    report.error = {ErrorKind::NotSupported,
                    "the model clips its gradients by their norm, which the "
                    "unpipelined model adds up in another order; check the "
                    "gradients without clip"};
    return report;
  }
  auto factory = (makeGpu ? makeGpu : makeModel)(description, textPath);
  auto reference = Reference::make(ofReference, textPath, program.problem);
  for (const Failure *failure : {factory ? nullptr : &factory.failure(),
                                 reference ? nullptr : &reference.failure()})
    if (failure) {
      report.error = {ErrorKind::BadModel, failure->message};
      return report;
    }
  run.onFinished = [&](std::span<const Model *const> models) {
    for (int64_t step = 0; step < run.steps; ++step)
      reference->step();
    try {
      auto check = compareGradients(program.problem, models, *reference,
                                    run.backend ? run.backend->localRanks()
                                                : std::vector<int32_t>());
      if (check) {
        check->exact = report.check.exact;
        check->rounding = report.check.rounding;
        check->byNorm = report.check.byNorm;
        report.check = std::move(*check);
      } else {
        report.error = {ErrorKind::BadModel, check.message()};
      }
    } catch (...) {
      report.error =
          currentException(ErrorKind::ModelError, "the model threw: ");
    }
  };
  const ModelFactory capturing = [&](const Program &p, int32_t rank) {
    auto model = (*factory)(p, rank);
    if (model)
      dynamic_cast<InspectableModel &>(**model).captureGradients();
    return model;
  };
  if (RunReport ended = runProgram(program, capturing, run); !ended)
    report.error = std::move(ended.error);
  else if (Peers *peers = run.backend ? run.backend->peers() : nullptr)
    shareCheck(*peers, report);
  return report;
}

std::string GradientCheck::describe() const {
  std::ostringstream os;
  if (equal()) {
    os << "all " << numValues
       << " gradients and parameters are bitwise equal to the unpipelined "
          "model's after "
       << counted(steps, "step");
    return os.str();
  }
  if (agrees()) {
    os.precision(2);
    os << "all " << numValues
       << " gradients and parameters are the unpipelined model's after "
       << counted(steps, "step") << " of sgd, up to rounding: " << numDifferent
       << " differ, by at most " << difference()
       << (byNorm ? " of the norm of their parameter, as bfloat16 does"
                  : " of the largest of their parameter, as sums in another "
                    "order do");
    return os.str();
  }
  os.precision(9);
  os << numDifferent << " of " << numValues
     << " gradients and parameters differ after " << counted(steps, "step")
     << "; the first is layer " << layer
     << (inGradient ? ", gradient of " : ", ") << parameter << '[' << index
     << "]: " << value << ", expected " << expected;
  os.precision(2);
  os << "; largest relative difference " << difference();
  return os.str();
}

} // namespace penstock::runtime
