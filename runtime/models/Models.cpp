//===- Models.cpp - The models that come with Penstock --------------------===//

#include "penstock/Runtime/Models.h"

#include "ByteLm.h"
#include "penstock/Program/File.h"
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

/// Of each stage, for each of its ranks, the micro-batches in the order in
/// which their weight gradients are added: every one once, on one of the ranks,
/// whatever the instructions are.
static std::vector<std::vector<std::vector<int32_t>>>
ordersOf(const Program &program) {
  const Problem &problem = program.problem;
  const int32_t m = problem.numMicrobatches;
  std::vector<std::vector<int32_t>> ranksOf;
  std::vector<std::vector<std::vector<int32_t>>> orders;
  for (int32_t s = 0; s < problem.numStages(); ++s) {
    ranksOf.push_back(problem.ranksOf(s));
    orders.emplace_back(ranksOf.back().size());
  }
  std::vector<bool> seen(orders.size() * m);
  auto add = [&](int32_t stage, int32_t microbatch, int32_t rank) {
    const std::vector<int32_t> &ranks = ranksOf[stage];
    const auto copy = std::find(ranks.begin(), ranks.end(), rank);
    const size_t at = size_t(stage) * m + microbatch;
    if (copy == ranks.end() || seen[at])
      return;
    seen[at] = true;
    orders[stage][copy - ranks.begin()].push_back(microbatch);
  };
  for (size_t r = 0; r < program.ranks.size(); ++r)
    for (const Instruction &inst : program.ranks[r].instructions)
      if (inst.op == Op::Backward || inst.op == Op::BackwardWeight)
        add(inst.stage, inst.microbatch, static_cast<int32_t>(r));
  for (int32_t s = 0; s < problem.numStages(); ++s)
    for (int32_t mb = 0; mb < m; ++mb)
      add(s, mb, problem.rankOf(s, mb));
  return orders;
}

Result<Reference> Reference::make(std::string_view description,
                                  const std::string &textPath,
                                  const Problem &problem) {
  Program program;
  program.problem = problem;
  return make(description, textPath, program);
}

Result<Reference> Reference::make(std::string_view description,
                                  const std::string &textPath,
                                  const Program &program) {
  auto source = ByteLmSource::make(description, textPath);
  if (!source)
    return source.failure();
  const Problem &given = program.problem;
  Result<int32_t> numLayers = countLayers(given);
  if (!numLayers)
    return numLayers.failure();
  auto config = configOfSlice((*source)->config, given.slices);
  if (!config)
    return config.failure();

  Reference reference;
  Program layers;
  Problem &problem = layers.problem;
  problem.numRanks = 1;
  problem.numMicrobatches = given.numMicrobatches;
  problem.slices = given.slices;
  problem.weights = given.weights;
  for (int32_t l = 0; l < *numLayers; ++l) {
    Stage stage;
    stage.firstLayer = l;
    stage.numLayers = 1;
    stage.bytes = bytesOf(stage, *numLayers, *config);
    stage.bytes.output *= given.slices;
    stage.bytes.stash *= given.slices;
    problem.stages.push_back(stage);
  }
  problem.placement.assign(*numLayers, 0);
  layers.ranks.resize(1);

  const auto orders = ordersOf(program);
  reference.shares.resize(problem.numMicrobatches);
  size_t mostCopies = 1;
  for (int32_t s = 0; s < given.numStages(); ++s) {
    reference.firstLayers.push_back(given.stages[s].firstLayer);
    reference.numCopies.push_back(static_cast<int32_t>(orders[s].size()));
    mostCopies = std::max(mostCopies, orders[s].size());
    for (int32_t copy = 0; copy < reference.numCopies[s]; ++copy) {
      int32_t latest = 0;
      for (int32_t mb : orders[s][copy]) {
        latest = std::max(latest, mb);
        reference.shares[latest].push_back({s, copy, mb});
      }
    }
  }
  reference.firstLayers.push_back(*numLayers);

  for (size_t copy = 0; copy < mostCopies; ++copy) {
    auto model = makeByteLm(*source, layers, 0);
    if (!model)
      return model.failure();
    reference.copies.push_back(std::move(*model));
  }
  reference.copies[0]->captureGradients();
  reference.problem = std::move(problem);
  if (Status status = reference.allocate(); !status)
    return status.failure();
  return reference;
}

/// Micro-batches share memory when one is done before the other begins.
Status Reference::allocate() {
  size_t size = 0;
  auto place = [&](TensorKind kind, int32_t layer) {
    const size_t offset = size;
    const auto bytes = size_t(bytesOf(problem, {kind, layer, 0}));
    size += (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
    return offset;
  };
  const int32_t numLayers = problem.numStages();
  for (int32_t l = 0; l < numLayers; ++l) {
    const size_t output = place(TensorKind::Activation, l);
    // The gradient of what the layer puts out is as large.
    operands.push_back({output, place(TensorKind::Activation, l),
                        place(TensorKind::Stash, l)});
  }

  std::vector<size_t> numWaiting(shares.size(), firstLayers.size() - 1);
  std::vector<int32_t> idle;
  for (const std::vector<Share> &part : shares) {
    if (idle.empty()) {
      Bytes bytes(
          static_cast<std::byte *>(std::aligned_alloc(kSlotAlignment, size)),
          &std::free);
      if (!bytes)
        return Failure{
            "not enough memory for the unpipelined reference: what it keeps of "
            "a micro-batch takes " +
            std::to_string(size) + " bytes"};
      idle.push_back(static_cast<int32_t>(memory.size()));
      memory.push_back(std::move(bytes));
    }
    memoryOf.push_back(idle.back());
    idle.pop_back();
    for (const Share &share : part)
      if (--numWaiting[share.microbatch] == 0)
        idle.push_back(memoryOf[share.microbatch]);
  }
  return success();
}

/// That of a backward; a forward has `output` instead of `gradient`.
ActionContext Reference::contextOf(int32_t layer, int32_t microbatch) const {
  std::byte *const base = memory[memoryOf[microbatch]].get();
  ActionContext context;
  context.stage = layer;
  context.microbatch = microbatch;
  context.weight = problem.weightOf(microbatch);
  context.stash = base + operands[layer].stash;
  if (layer > 0) {
    context.input = base + operands[layer - 1].output;
    context.output = base + operands[layer - 1].gradient;
  }
  if (layer + 1 < problem.numStages())
    context.gradient = base + operands[layer].gradient;
  return context;
}

/// As the ranks add them in all_reduce: from zero, in the order of the ranks.
void Reference::addCopies() {
  for (size_t s = 0; s < numCopies.size(); ++s)
    for (int32_t l = firstLayers[s]; l < firstLayers[s + 1]; ++l) {
      std::vector<std::span<float>> gradients;
      for (auto &copy : copies)
        gradients.push_back(copy->gradients(l));
      const std::span<float> sums = gradients[0];
      for (size_t i = 0; i < sums.size() && numCopies[s] > 1; ++i) {
        float sum = 0;
        for (int32_t copy = 0; copy < numCopies[s]; ++copy)
          sum += gradients[copy][i];
        sums[i] = sum;
      }
      for (size_t copy = 1; copy < copies.size(); ++copy)
        std::ranges::copy(sums, gradients[copy].begin());
    }
}

double Reference::step() {
  for (auto &copy : copies)
    copy->beginStep(nextStep);
  ++nextStep;
  const int32_t numLayers = problem.numStages();
  std::vector<double> losses;
  for (int32_t mb = 0; mb < problem.numMicrobatches; ++mb) {
    for (int32_t l = 0; l < numLayers; ++l) {
      ActionContext context = contextOf(l, mb);
      context.gradient = nullptr;
      context.output = l + 1 < numLayers
                           ? memory[memoryOf[mb]].get() + operands[l].output
                           : nullptr;
      copies[0]->forward(context);
    }
    losses.push_back(copies[0]->loss(mb));
    for (int32_t l = numLayers; l-- > 0;)
      copies[0]->backwardInput(contextOf(l, mb));
    for (const Share &share : shares[mb])
      for (int32_t l = firstLayers[share.stage];
           l < firstLayers[share.stage + 1]; ++l) {
        ActionContext context = contextOf(l, share.microbatch);
        context.output = nullptr;
        copies[share.copy]->backwardWeight(context);
      }
  }
  addCopies();
  for (auto &copy : copies)
    copy->optimizerStep(-1);
  return lossOfStep(problem, losses);
}

void Reference::forEachParameter(
    const std::function<void(const Parameter &)> &fn) const {
  for (int32_t l = 0; l < problem.numStages(); ++l)
    copies[0]->forEachParameter(l, fn);
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
  reference.forEachParameter(
      [&](const Parameter &parameter) { expected.push_back(parameter); });

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
  report.check.exact = !makeGpu;
  std::string description(givenDescription);
  auto set = [](std::string &description, const std::string &entry) {
    description += (description.find(':') == description.npos ? ':' : ',');
    description += entry;
  };
  if (makeGpu)
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
  if (!factory) {
    report.error = {ErrorKind::BadModel, factory.message()};
    return report;
  }
  if (Status status = wellFormed(program); !status) {
    report.error = {ErrorKind::InvalidProgram, status.message(),
                    status.failure().site};
    return report;
  }
  auto reference = Reference::make(ofReference, textPath, program);
  if (!reference) {
    report.error = {ErrorKind::BadModel, reference.message()};
    return report;
  }
  run.onFinished = [&](std::span<const Model *const> models) {
    try {
      for (int64_t step = 0; step < run.steps; ++step)
        reference->step();
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
