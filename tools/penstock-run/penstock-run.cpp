//===- penstock-run.cpp - Trains a model with a program file --------------===//
//
// Loads a program, verifies it, and trains one of Penstock's models with it.
// Exit codes: 0 fine, 1 the program was refused or the run failed, 2 bad input.
//
//===----------------------------------------------------------------------===//

#include "penstock/Analysis/Simulate.h"
#include "penstock/Program/File.h"
#include "penstock/Runtime/Models.h"
#include "penstock/Runtime/Run.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <thread>

using namespace penstock;
using namespace penstock::runtime;

namespace {

enum ExitCode { Fine = 0, Failed = 1, BadInput = 2 };

struct Options {
  std::string file, backend = "host", model = "byte-lm", text, trace;
  int64_t steps = 100;
  unsigned traceSteps = 2;
  double timeout = 30, callTimeout = 600, pace = 0;
  std::optional<uint64_t> seed;
  std::optional<int32_t> printModel;
  bool checkGradients = false, force = false, json = false;
};

/// A printf to a std::string, for lines of output.
template <typename... Args>
std::string format(const char *text, Args... args) {
  char line[256];
  std::snprintf(line, sizeof(line), text, args...);
  return line;
}

/// Shows the loss while the model trains: one line that is written over on a
/// terminal, a line for every tenth of the steps elsewhere.
class Progress {
public:
  Progress(int64_t steps, bool hasLoss, bool silent)
      : steps(steps), every(std::max<int64_t>(1, steps / 10)),
        terminal(isatty(STDERR_FILENO)), hasLoss(hasLoss), silent(silent) {}

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

int fail(const std::string &message, ExitCode code) {
  std::cerr << "penstock-run: " << message << "\n";
  return code;
}

ExitCode exitCodeOf(ErrorKind kind) {
  return kind == ErrorKind::InvalidProgram || kind == ErrorKind::BadModel
             ? BadInput
             : Failed;
}

/// Ends the process if a call of the model keeps the run from ending.
void giveUpLater(const Error &error) {
  if (error.kind != ErrorKind::Timeout)
    return;
  std::thread([message = error.message] {
    std::this_thread::sleep_for(std::chrono::seconds(10));
    fail(message + "\nthe call does not return; giving up", Failed);
    std::_Exit(Failed);
  }).detach();
}

/// Prints the `pipe.model` that a spec for the model needs.
int print(const std::string &model, int32_t layers) {
  Result<std::string> text = printModel(model, layers);
  if (!text)
    return fail(text.message(), BadInput);
  std::cout << *text << "\n";
  return Fine;
}

int run(const Options &options) {
  if (options.printModel)
    return print(options.model, *options.printModel);
  if (options.file.empty())
    return fail("no program given; name a .psp file, from penstock-translate "
                "--pipe-to-program",
                BadInput);
  const bool none = options.model == "none";
  if (none && options.checkGradients)
    return fail("the model 'none' has no gradients to check", BadInput);
  if (options.text.empty() && !none)
    return fail("no text given; name a file to train on with --text=FILE",
                BadInput);
  if (options.backend != "host")
    return fail("back end '" + options.backend +
                    "' is not built in; this build has: host",
                BadInput);
  Result<Program> program = readProgramFile(options.file);
  if (!program)
    return fail(program.message(), BadInput);
  std::string description = options.model;
  if (options.seed && !none)
    description +=
        (description.find(':') == std::string::npos ? ":seed=" : ",seed=") +
        std::to_string(*options.seed);
  Result<ModelFactory> model =
      none ? makeNullModel() : runtime::makeModel(description, options.text);
  if (!model)
    return fail(model.message(), BadInput);
  std::ofstream trace;
  if (!options.trace.empty()) {
    trace.open(options.trace);
    if (!trace)
      return fail("cannot write the trace to '" + options.trace +
                      "'; name a file in a directory that exists",
                  BadInput);
  }
  auto say = [&](const std::string &line) {
    if (!options.json)
      std::cout << line << std::endl;
  };
  const Problem &problem = program->problem;
  say(format("program  %d ranks, %d stages, %d micro-batches, %zu instructions",
             problem.numRanks, problem.numStages(), problem.numMicrobatches,
             program->numInstructions()));

  nlohmann::ordered_json json;
  bool equal = true;
  if (options.checkGradients) {
    RunOptions run;
    run.steps = 2; // so that a step too few or too many shows
    run.force = options.force;
    run.timeout = options.timeout;
    run.callTimeout = options.callTimeout;
    run.onError = giveUpLater;
    const auto [error, check] =
        checkGradients(*program, description, options.text, run);
    if (error)
      return fail(error.message, exitCodeOf(error.kind));
    equal = check.equal();
    say("check    " + check.describe());
    json["gradients"] = {{"equal", equal},
                         {"values", check.numValues},
                         {"different", check.numDifferent},
                         {"text", check.describe()}};
    if (!equal && !options.json)
      return Failed;
  }

  Recorder recorder(*program, options.traceSteps);
  Progress progress(options.steps, !none, options.json);
  RunOptions run;
  run.steps = options.steps;
  run.force = options.force;
  run.timeout = options.timeout;
  run.callTimeout = options.callTimeout;
  run.pace = options.pace;
  run.recorder = &recorder;
  run.onStep = [&](const StepReport &report) { progress.show(report); };
  run.onError = giveUpLater;
  const RunReport report = runProgram(*program, *model, run);
  if (!report)
    progress.interrupt();

  // A trace of what hung or failed is worth as much as one of success.
  if (trace.is_open()) {
    recorder.writeTrace(trace);
    trace.close();
    if (!trace)
      return fail("cannot write the trace to '" + options.trace +
                      "'; is the disk full?",
                  Failed);
    json["trace"] = options.trace;
  }
  json["ok"] = report && equal;
  json["steps"] = report.steps;
  if (!report) {
    json["error"] = {{"kind", name(report.error.kind)},
                     {"message", report.error.message},
                     {"rank", report.error.site.rank}};
    if (options.json)
      std::cout << json.dump(2) << std::endl;
    return fail(report.error.message, exitCodeOf(report.error.kind));
  }

  const auto predicted = simulateProgram(*program);
  program->problem = recorder.measuredProblem();
  const auto fromMeasured = simulateProgram(*program);
  const double stepsPerSecond =
      static_cast<double>(report.steps) / report.seconds;
  if (!none)
    json["loss"] = {{"first", report.firstLoss}, {"last", report.lastLoss}};
  json["seconds"] = report.seconds;
  json["steps_per_second"] = stepsPerSecond;
  json["bubble_rate"]["measured"] = report.bubbleRate;
  if (predicted)
    json["bubble_rate"]["predicted"] = predicted->bubbleRate;
  if (fromMeasured)
    json["bubble_rate"]["predicted_from_measured"] = fromMeasured->bubbleRate;
  if (options.json) {
    std::cout << json.dump(2) << std::endl;
    return equal ? Fine : Failed;
  }
  say(format("trained  %lld steps in %.2f s, %.1f steps/s",
             static_cast<long long>(report.steps), report.seconds,
             stepsPerSecond));
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
  return Fine;
}

} // namespace

int main(int argc, char **argv) {
  Options options;
  CLI::App app("Trains a model with a compiled pipeline program (.psp).",
               "penstock-run");
  app.footer("Models:\n" + describeModels() +
             "\nnone: computes nothing; shows the timing of any program with "
             "--pace\n"
             "\nExit codes: 0 fine, 1 the program was refused or the run "
             "failed, 2 bad input.");
  const CLI::Validator seconds(
      [](std::string &text) {
        char *end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        return *end == 0 && value >= 0 && value <= 1e9
                   ? std::string()
                   : "'" + text + "' is not a number from 0 to 1e9";
      },
      "SECONDS");
  app.add_option("program", options.file,
                 "Program file, from penstock-translate "
                 "--pipe-to-program")
      ->type_name("FILE.psp");
  app.add_option("--backend", options.backend, "Where the ranks run: host")
      ->capture_default_str();
  app.add_option("--model", options.model, "Model and its keys, see below")
      ->capture_default_str();
  app.add_option("--text", options.text, "Text file to train on");
  app.add_option("--steps", options.steps, "Steps to train")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 40))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of the model's parameters");
  app.add_flag("--check-gradients", options.checkGradients,
               "Compare the gradients and parameters of two steps with the "
               "unpipelined model first");
  app.add_option("--trace", options.trace,
                 "Write the last steps as a Chrome trace, for "
                 "https://ui.perfetto.dev");
  app.add_option("--trace-steps", options.traceSteps, "Steps in the trace")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--pace", options.pace,
                 "Stretch every action and transfer to its cost times so many "
                 "seconds; 0: as fast as it goes")
      ->check(seconds)
      ->capture_default_str();
  app.add_option("--timeout", options.timeout,
                 "End with an error after so many seconds without progress; 0: "
                 "never")
      ->check(seconds)
      ->capture_default_str();
  app.add_option("--call-timeout", options.callTimeout,
                 "The same for a single call of the model")
      ->check(seconds)
      ->capture_default_str();
  app.add_option("--print-model", options.printModel,
                 "Print the model with so many layers as a pipe.model for a "
                 "spec, and end")
      ->type_name("LAYERS");
  app.add_flag("--force", options.force,
               "Run a program that the verifier refuses");
  app.add_flag("--json", options.json, "Print the results as JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? Fine : BadInput;
  }
  return run(options);
}
