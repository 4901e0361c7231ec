//===- Train.cpp - What penstock-run does with its program ----------------===//

#include "Train.h"

#include "OutputFile.h"

#include "Core/Bytes.h"
#include "penstock/Analysis/Simulate.h"
#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"
#include "penstock/Runtime/Models.h"
#include "penstock/Runtime/Run.h"
#include "penstock/Support/Hash.h"

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>

#include <unistd.h>

using namespace penstock;
using namespace penstock::run;
using namespace penstock::runtime;

/// A printf to a std::string, for lines of output.
template <typename... Args>
static std::string format(const char *text, Args... args) {
  char line[256];
  std::snprintf(line, sizeof(line), text, args...);
  return line;
}

namespace {

/// Shows the loss while the model trains: one line that is written over on a
/// terminal, a line for every tenth of the steps elsewhere.
class Progress {
public:
  Progress(int64_t steps, bool hasLoss, bool silent, bool speaks)
      : steps(steps), every(std::max<int64_t>(1, steps / 10)),
        terminal(speaks && isatty(STDERR_FILENO)), hasLoss(hasLoss),
        silent(silent || !speaks) {}

  void show(const StepReport &report) {
    const auto now = std::chrono::steady_clock::now();
    const int64_t step = report.step + 1;
    const bool last = step == steps;
    seconds += report.seconds;
    if (terminal) {
      if (!last && now - shown < std::chrono::milliseconds(100))
        return;
      shown = now;
      std::cerr << '\r' << line(report) << "\033[K" << (last ? "\n" : "")
                << std::flush;
    } else if (!silent && (step == 1 || step % every == 0 || last)) {
      std::cout << line(report) << std::endl;
    }
  }
  /// Leaves the line that is written over.
  void interrupt() {
    if (terminal)
      std::cerr << "\r\033[K";
  }

private:
  std::string line(const StepReport &report) const {
    return format("step %lld/%lld  ", static_cast<long long>(report.step + 1),
                  static_cast<long long>(steps)) +
           (hasLoss ? format("loss %.4f  ", report.loss) : "") +
           format("%.1f steps/s",
                  static_cast<double>(report.step + 1) / seconds);
  }

  const int64_t steps, every;
  const bool terminal, hasLoss, silent;
  double seconds = 0;
  std::chrono::steady_clock::time_point shown;
};

/// What the files and names of the command line stand for.
struct Inputs {
  Program program;
  std::string description;
  ModelFactory model;
  std::optional<OutputFile> trace, profile;
};

} // namespace

/// What makes the processes train the same, as the command line says it.
static Fault compareSettings(Job *job, const Options &options,
                             const std::string &model) {
  if (!job)
    return {};
  Hasher hasher;
  std::ifstream in(options.text, std::ios::binary);
  for (char buffer[1 << 16];
       in.read(buffer, sizeof(buffer)), in.gcount() > 0;) {
    hasher.add(in.gcount());
    hasher.add(buffer, in.gcount());
  }
  auto flag = [](const char *option, bool value) {
    return std::string(option) + (value ? "true" : "false");
  };
  const std::string own[] = {
      "--backend=" + options.backend,
      "--model=" + model,
      "--text with hash " + format("%016llx", static_cast<unsigned long long>(
                                                  hasher.finish().low)),
      "--steps=" + std::to_string(options.steps),
      "--trace-steps=" + std::to_string(options.traceSteps),
      flag("--check-gradients=", options.checkGradients),
      flag("--graph=", options.replay)};
  std::string bytes;
  for (const std::string &setting : own)
    appendText(bytes, setting);
  const std::vector<std::string> all = job->gather(bytes);
  if (all.empty())
    return job->lostPeer();
  for (size_t p = 1; p < all.size(); ++p) {
    std::string_view first = all[0], other = all[p];
    for (size_t i = 0; i < std::size(own); ++i) {
      const std::string expected = takeText(first), setting = takeText(other);
      if (setting != expected)
        return badInput("process " + std::to_string(p) + " has " + setting +
                        ", but process 0 has " + expected +
                        "; start all processes with the same options");
    }
  }
  return {};
}

static Fault load(const Options &options, const Job *job, Inputs &inputs) {
  if (options.file.empty())
    return badInput("no program given; name a .psp file, from "
                    "penstock-translate --pipe-to-program");
  const bool none = options.model == "none";
  if (none && options.checkGradients)
    return badInput("the model 'none' has no gradients to check");
  Result<Program> program = readProgramFile(options.file);
  if (!program)
    return badInput(program.message());
  inputs.program = std::move(*program);
  std::string &description = inputs.description;
  description = options.model;
  if (options.seed && !none)
    description +=
        (description.find(':') == std::string::npos ? ":seed=" : ",seed=") +
        std::to_string(*options.seed);
  Result<ModelFactory> model =
      none ? makeNullModel()
      : options.backend == "cuda"
          ? makeGpuModel(description, options.text)
          : runtime::makeModel(description, options.text);
  if (!model && model.message().starts_with("unknown model "))
    return badInput(model.message() + ", none");
  if (!model && options.text.empty())
    return badInput("no text given; name a file to train on with --text=FILE");
  if (!model)
    return badInput(model.message());
  inputs.model = std::move(*model);
  auto open = [&](const std::string &what, const std::string &path,
                  std::optional<OutputFile> &output) -> Fault {
    if (path.empty() || !speaks(job))
      return {};
    Result<OutputFile> file = OutputFile::make(what, path, options);
    if (!file)
      return badInput(file.message());
    output = std::move(*file);
    return {};
  };
  if (Fault fault = open("trace", options.trace, inputs.trace);
      fault.code != Fine)
    return fault;
  if (Fault fault = open("profile", options.profile, inputs.profile);
      fault.code != Fine)
    return fault;
  if (inputs.trace && inputs.profile && inputs.profile->replaces(*inputs.trace))
    return badInput("the profile would overwrite the trace, '" + options.trace +
                    "'; name another file with --profile=FILE");
  return {};
}

/// The fault, unless it only says that a process of the job is lost.
static Fault lostOr(Job *job, Fault fault) {
  const Error lost = job ? job->lostPeer() : Error();
  return lost && lost.message == fault.message ? Fault(lost) : fault;
}

/// The back end of one run; null: that of threads.
static Fault makeBackend(const Options &options, Job *job, int32_t numRanks,
                         std::unique_ptr<Backend> &backend) {
  const bool isCuda = options.backend == "cuda";
  if (!job && !isCuda)
    return {};
  const Status status = job ? job->checkRanks(numRanks) : success();
  if (!status)
    return lostOr(job, badInput(status.message()));
  CudaOptions cuda;
  cuda.ncclMemory = options.ncclMemory;
  auto made = !isCuda ? job->makeBackend(numRanks)
              : job   ? makeCudaBackend(*job, numRanks, cuda)
                      : makeCudaBackend(numRanks, cuda);
  if (!made)
    return lostOr(job,
                  isCuda ? Fault(Error{ErrorKind::DeviceError, made.message()})
                         : badInput(made.message()));
  backend = std::move(*made);
  return {};
}

Fault run::train(const Options &options, std::stop_token stop, Job *job,
                 JsonObject &json) {
  // Until the run begins others may be waited for, and nothing must be ended.
  std::optional<std::stop_callback<std::function<void()>>> quit;
  if (job)
    quit.emplace(stop, [&] {
      const Fault stopped(Failed, std::string(name(ErrorKind::Aborted)),
                          "the run was stopped by its caller");
      // mpirun sends a signal to all: because of one, or of a process that has
      // ended the job and said why.
      const int code =
          speaks(job) || !job->endsTogether()
              ? finish(options, emptyReport(), stopped, speaks(job))
              : stopped.code;
      job->fail(code, stopped.forOthers(job->number()));
      std::_Exit(code);
    });
  Inputs inputs;
  if (Fault fault = agree(job, load(options, job, inputs)); fault.code != Fine)
    return fault;
  if (Fault fault = compareSettings(job, options, inputs.description);
      fault.code != Fine)
    return fault;
  Program &program = inputs.program;
  const std::optional<OutputFile> &trace = inputs.trace;
  const bool none = options.model == "none";
  auto say = [&](const std::string &line) {
    if (!options.json && speaks(job))
      std::cout << line << std::endl;
  };
  const Problem &problem = program.problem;
  const int32_t numRanks = problem.numRanks;
  if (job) {
    say("start    " + job->describe());
    json.set("start", job->describe());
  }
  say(format("program  %d ranks, %d stages, %s, %zu instructions", numRanks,
             problem.numStages(), countedMicrobatches(problem).c_str(),
             program.numInstructions()));

  RunOptions run;
  run.force = options.force;
  run.timeout = options.timeout;
  run.callTimeout = options.callTimeout;
  run.replay = options.replay;
  run.checkFinite = options.checkFinite;
  run.stop = stop;
  // Runs, and keeps the trace if there is an error.
  auto supervise = [&](Recorder &recorder, auto &&start) -> Fault {
    std::unique_ptr<Backend> backend;
    if (Fault fault = makeBackend(options, job, numRanks, backend);
        fault.code != Fine)
      return fault;
    run.backend = backend.get();
    quit.reset();
    Error error;
    {
      LastResort lastResort([&](const Error &error) {
        (void)writeTrace(trace, recorder, numRanks, json);
        if (job)
          endJob(*job, options, json, error, stop);
        std::_Exit(finish(options, json, error));
      });
      run.recorder = &recorder;
      run.onError = std::ref(lastResort);
      error = start();
    }
    if (!error)
      return {};
    Fault lost = writeTrace(trace, recorder, numRanks, json);
    Fault fault = error;
    if (lost.code != Fine)
      fault.message += "\n" + lost.message;
    return fault;
  };

  if (options.checkGradients) {
    GradientCheck check;
    Recorder recorder(program, options.traceSteps);
    run.steps = 2; // so that a step too few or too many shows
    Fault fault = supervise(recorder, [&] {
      auto report =
          checkGradients(program, inputs.description, options.text, run,
                         options.backend == "cuda" ? makeGpuModel : nullptr);
      check = std::move(report.check);
      return report.error;
    });
    if (fault.code != Fine)
      return fault;
    JsonObject &gradients = json.object("gradients");
    gradients.set("equal", check.equal());
    gradients.set("agree", check.agrees());
    gradients.set("values", check.numValues);
    gradients.set("different", check.numDifferent);
    gradients.set("text", check.describe());
    if (!check.agrees())
      return {Failed, "gradients-differ", check.describe()};
    say("check    " + check.describe());
  }

  Recorder recorder(program, options.traceSteps);
  Progress progress(options.steps, !none, options.json, speaks(job));
  RunReport report;
  run.steps = options.steps;
  run.pace = options.pace;
  run.onStep = [&](const StepReport &report) { progress.show(report); };
  Fault fault = supervise(recorder, [&] {
    report = runProgram(program, inputs.model, run);
    return report.error;
  });
  json.set("steps", report.steps);
  if (fault.code != Fine) {
    progress.interrupt();
    return fault;
  }
  fault = writeTrace(trace, recorder, numRanks, json);
  if (fault.code != Fine)
    return fault;

  const bool validates = program.problem.postValidation;
  const auto predicted = simulateProgram(program);
  program.problem = recorder.measuredProblem();
  if (inputs.profile) {
    fault = inputs.profile->write(
        json, [&](std::ostream &os) { writeProfile(os, program.problem); });
    if (fault.code != Fine)
      return fault;
  }
  const auto fromMeasured = simulateProgram(program);
  const double stepsPerSecond =
      static_cast<double>(report.steps) / report.seconds;
  if (!none) {
    json.object("loss").set("first", report.firstLoss);
    json.object("loss").set("last", report.lastLoss);
  }
  if (validates)
    json.set("void_steps", report.voidSteps);
  if (options.replay) {
    json.object("graph").set("replayed", report.replayFault.empty());
    json.object("graph").set("fault", report.replayFault);
  }
  json.set("seconds", report.seconds);
  json.set("steps_per_second", stepsPerSecond);
  JsonObject &bubbleRate = json.object("bubble_rate");
  bubbleRate.set("measured", report.bubbleRate);
  if (predicted)
    bubbleRate.set("predicted", predicted->bubbleRate);
  if (fromMeasured)
    bubbleRate.set("predicted_from_measured", fromMeasured->bubbleRate);
  say(format("trained  %lld steps in %.2f s, %.1f steps/s",
             static_cast<long long>(report.steps), report.seconds,
             stepsPerSecond));
  if (options.replay)
    say("graph    " + (report.replayFault.empty()
                           ? std::string("steps were captured and replayed")
                           : "not used: " + report.replayFault));
  if (validates)
    say(format("void     %lld times a step ran again, because the one before "
               "was amended",
               static_cast<long long>(report.voidSteps)));
  if (!none)
    say(format("loss     %.4f in the first step, %.4f in the last (nats per "
               "byte)",
               report.firstLoss, report.lastLoss));
  auto percent = [](const auto &timing) {
    return timing ? format("%.1f %%", 100 * timing->bubbleRate)
                  : std::string("none");
  };
  say("bubble   predicted " + percent(predicted) +
      " from the costs of the program, " + percent(fromMeasured) +
      " from measured action times; " +
      format("measured %.1f %%", 100 * report.bubbleRate));
  if (!options.trace.empty())
    say("trace    " + options.trace);
  if (!options.profile.empty())
    say("profile  " + options.profile);
  return {};
}
