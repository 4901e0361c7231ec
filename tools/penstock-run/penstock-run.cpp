//===- penstock-run.cpp - Trains a model with a program file --------------===//
//
// Loads a program, verifies it, and trains one of Penstock's models with it.
// Exit codes: 0 fine, 1 the program was refused or the run failed, 2 bad input.
//
//===----------------------------------------------------------------------===//

#include "penstock/Analysis/Simulate.h"
#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"
#include "penstock/Runtime/Job.h"
#include "penstock/Runtime/Models.h"
#include "penstock/Runtime/Run.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

using namespace penstock;
using namespace penstock::runtime;

namespace {

enum ExitCode { Fine = 0, Failed = 1, BadInput = 2 };

struct Options {
  std::string file, backend = "host", model = "byte-lm", text, trace, profile;
  int64_t steps = 100;
  unsigned traceSteps = 2;
  double timeout = 30, callTimeout = 600, pace = 0;
  std::optional<uint64_t> seed;
  std::optional<int32_t> printModel;
  bool checkGradients = false, force = false, json = false;
  /// Of ranks in several processes; without `where`: all in this one, or MPI.
  Rendezvous rendezvous;
  bool replay = false, ncclMemory = false;
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

/// Why there is no result; none with code Fine.
struct Fault {
  ExitCode code = Fine;
  std::string kind, message;
  int32_t rank = -1;

  Fault() = default;
  Fault(ExitCode code, std::string kind, std::string message)
      : code(code), kind(std::move(kind)), message(std::move(message)) {}
  Fault(const Error &error)
      : code(error.kind == ErrorKind::InvalidProgram ||
                     error.kind == ErrorKind::BadModel
                 ? BadInput
                 : Failed),
        kind(name(error.kind)), message(error.message), rank(error.site.rank) {}

  /// What processes that have not heard of it are told.
  Error forOthers(int32_t process) const {
    if (kind == name(ErrorKind::LostPeer))
      return {ErrorKind::LostPeer, message, {rank}};
    return {ErrorKind::Aborted,
            "process " + std::to_string(process) + ": " + message,
            {process}};
  }
};

Fault badInput(const std::string &message) {
  return {BadInput, "bad-input", message};
}

/// The first fault of all processes, which all of them get.
Fault agree(Job *job, const Fault &own) {
  if (!job)
    return own;
  const nlohmann::json text = {own.code, own.kind, own.message, own.rank};
  const auto all = job->gather(
      text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  if (all.empty())
    return own.code == Fine ? Fault(job->lostPeer()) : own;
  for (size_t p = 0; p < all.size(); ++p) {
    const auto json = nlohmann::json::parse(all[p]);
    Fault fault(json[0].get<ExitCode>(), json[1], json[2]);
    fault.rank = json[3];
    if (fault.code == Fine)
      continue;
    if (p > 0)
      fault.message = "process " + std::to_string(p) + ": " + fault.message;
    return fault;
  }
  return {};
}

/// Of several processes the first one speaks for all.
bool speaks(const Job *job) { return !job || job->number() == 0; }

/// What makes the processes train the same, as the command line says it.
Fault compareSettings(Job *job, const Options &options,
                      const std::string &model) {
  if (!job)
    return {};
  XXH64_hash_t text = 0;
  std::ifstream in(options.text, std::ios::binary);
  for (char buffer[1 << 16]; in.read(buffer, sizeof(buffer)), in.gcount() > 0;)
    text = XXH3_64bits_withSeed(buffer, in.gcount(), text);
  using Settings = std::vector<std::pair<std::string, std::string>>;
  const Settings own = {
      {"--model=", model},
      {"--text with hash ", format("%016llx", (unsigned long long)(text))},
      {"--steps=", std::to_string(options.steps)},
      {"--check-gradients=", options.checkGradients ? "true" : "false"}};
  std::vector<Settings> all;
  for (const std::string &bytes : job->gather(nlohmann::json(own).dump()))
    all.push_back(nlohmann::json::parse(bytes).get<Settings>());
  if (all.empty())
    return job->lostPeer();
  for (size_t p = 1; p < all.size(); ++p)
    for (size_t i = 0; i < own.size(); ++i)
      if (all[p][i] != all[0][i])
        return badInput(
            "process " + std::to_string(p) + " has " + all[p][i].first +
            all[p][i].second + ", but process 0 has " + all[0][i].first +
            all[0][i].second + "; start all processes with the same options");
  return {};
}

/// The one way out: the results, the fault, and the exit code.
int finish(const Options &options, nlohmann::ordered_json json,
           const Fault &fault, bool speaks = true) {
  json["ok"] = fault.code == Fine;
  if (fault.code != Fine)
    json["error"] = {
        {"kind", fault.kind}, {"message", fault.message}, {"rank", fault.rank}};
  if (options.json && speaks)
    std::cout << json.dump(2, ' ', false,
                           nlohmann::json::error_handler_t::replace)
              << std::endl;
  // In one piece: mpirun mixes what processes write.
  if (fault.code != Fine)
    std::cerr << "penstock-run: " + fault.message + "\n" << std::flush;
  return fault.code;
}

/// The file of --trace or --profile. It is replaced only by a complete one.
class OutputFile {
public:
  /// Finds out early whether it can be written; what is there stays. `what` is
  /// "trace" or "profile".
  static Result<OutputFile> make(const std::string &what,
                                 const std::string &path,
                                 const Options &options) {
    OutputFile file;
    file.what = what;
    file.path = path;
    std::error_code error;
    for (const std::string &input : {options.file, options.text})
      if (!input.empty() && std::filesystem::equivalent(path, input, error))
        return Failure{"the " + what + " would overwrite '" + input +
                       "'; name another file with --" + what + "=FILE"};
    file.target = std::filesystem::weakly_canonical(path, error);
    file.temporary = file.target;
    // A device or a pipe has nothing to lose and must not be replaced.
    const auto status = std::filesystem::status(file.target, error);
    if (!exists(status) || is_regular_file(status))
      file.temporary += "." + std::to_string(getpid()) + ".tmp";
    if (file.temporary == file.target ? !is_directory(status)
                                      : file.isWritable())
      return file;
    return Failure{"cannot write the " + what + " to '" + path +
                   "'; name a file in a directory that exists"};
  }

  /// `print(std::ostream &)` writes it; `json` says so.
  template <typename Print>
  Fault write(nlohmann::ordered_json &json, Print &&print) const {
    std::ofstream out(temporary);
    print(out);
    out.close();
    std::error_code error;
    if (out && temporary != target)
      std::filesystem::rename(temporary, target, error);
    if (!out || error) {
      removeTemporary();
      return {Failed, "bad-output",
              "cannot write the " + what + " to '" + path +
                  "'; is the disk full?"};
    }
    json[what] = path;
    return {};
  }

private:
  bool isWritable() const {
    const bool writable = std::ofstream(temporary).is_open();
    removeTemporary();
    return writable;
  }
  void removeTemporary() const {
    std::error_code error;
    if (temporary != target)
      std::filesystem::remove(temporary, error);
  }

  std::string what, path;
  std::filesystem::path target, temporary;
};

/// Writes the trace of a run that began. One of what hung or failed is worth as
/// much as one of success.
Fault writeTrace(const std::optional<OutputFile> &trace,
                 const Recorder &recorder, int32_t numRanks,
                 nlohmann::ordered_json &json) {
  bool began = false;
  for (int32_t r = 0; r < numRanks; ++r)
    began |= recorder.currentStep(r) >= 0;
  if (!trace || !began)
    return {};
  return trace->write(json, [&](std::ostream &os) { recorder.writeTrace(os); });
}

/// The way out of a job that has failed: tells the fault and ends. Where one
/// process can end all, those that know of the fault take turns, from process 0
/// on, for some may be stuck; one that others took for lost leaves it to them.
/// After a stop they end themselves. Elsewhere each says what it knows, for
/// nobody else may see its output.
[[noreturn]] void endJob(Job &job, const Options &options,
                         const nlohmann::ordered_json &json, const Fault &fault,
                         std::stop_token stop) {
  const bool someoneIsLost = fault.kind == name(ErrorKind::LostPeer);
  const bool skipsLost = someoneIsLost && fault.rank < job.number();
  const bool wasLost = someoneIsLost && fault.rank == job.number();
  const int turn = job.number() - (skipsLost ? 1 : 0);
  if ((turn > 0 || wasLost) && job.endsTogether()) {
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::seconds(5 + turn);
    while (std::chrono::steady_clock::now() < end && !stop.stop_requested())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (stop.stop_requested())
      std::_Exit(fault.code);
  }
  const int code = finish(options, json, fault, turn <= 0);
  job.fail(code, fault.forOthers(job.number()));
  std::_Exit(code);
}

/// Ends the process if a call of the model keeps a run from ending.
class LastResort {
public:
  /// Calls `finish`, which does not return, after a while.
  explicit LastResort(std::function<void(const Error &)> finish)
      : finish(std::move(finish)) {}

  void operator()(const Error &error) {
    if (error.kind != ErrorKind::Timeout)
      return;
    try {
      thread = std::jthread(
          [this, error = Error(error)](std::stop_token stop) mutable {
            std::mutex mutex;
            std::unique_lock lock(mutex);
            std::condition_variable_any wake;
            wake.wait_for(lock, stop, std::chrono::seconds(10),
                          [] { return false; });
            if (stop.stop_requested())
              return;
            error.message += "\nthe call does not return; giving up";
            finish(error);
          });
    } catch (const std::system_error &) {
      // Then the run ends when the call does.
    }
  }

private:
  const std::function<void(const Error &)> finish;
  std::jthread thread; ///< ends with this object
};

/// From now on the first SIGINT or SIGTERM asks for a stop, and the second one
/// ends the process. What comes within a moment after the first is the same
/// request: timeout(1), mpirun and batch systems signal the process and its
/// group. Call it before any thread starts. A signal that is ignored stays so.
std::stop_token stopBySignals() {
  sigset_t signals;
  sigemptyset(&signals);
  bool any = false;
  for (int number : {SIGINT, SIGTERM}) {
    struct sigaction action;
    if (sigaction(number, nullptr, &action) == 0 &&
        action.sa_handler != SIG_IGN) {
      sigaddset(&signals, number);
      any = true;
    }
  }
  std::stop_source source;
  if (!any)
    return source.get_token();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  try {
    std::thread([source, signals]() mutable {
      int number;
      sigwait(&signals, &number);
      source.request_stop();
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      const timespec now = {};
      while (sigtimedwait(&signals, nullptr, &now) > 0)
        ;
      pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
      while (true)
        pause();
    }).detach();
  } catch (const std::system_error &) {
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  }
  return source.get_token();
}

/// What the files and names of the command line stand for.
struct Inputs {
  Program program;
  std::string description;
  ModelFactory model;
  std::optional<OutputFile> trace, profile;
};

Fault load(const Options &options, const Job *job, Inputs &inputs) {
  if (options.file.empty())
    return badInput("no program given; name a .psp file, from "
                    "penstock-translate --pipe-to-program");
  const bool none = options.model == "none";
  if (none && options.checkGradients)
    return badInput("the model 'none' has no gradients to check");
  if (options.text.empty() && !none)
    return badInput("no text given; name a file to train on with --text=FILE");
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
      none ? makeNullModel() : runtime::makeModel(description, options.text);
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
  return open("profile", options.profile, inputs.profile);
}

Fault train(const Options &options, std::stop_token stop, Job *job,
            nlohmann::ordered_json &json) {
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
    json["start"] = job->describe();
  }
  say(format("program  %d ranks, %d stages, %s, %zu instructions", numRanks,
             problem.numStages(), countedMicrobatches(problem).c_str(),
             program.numInstructions()));

  RunOptions run;
  run.force = options.force;
  run.timeout = options.timeout;
  run.callTimeout = options.callTimeout;
  run.replay = options.replay;
  run.stop = stop;
  // Runs, and keeps the trace if there is an error.
  auto supervise = [&](Recorder &recorder, auto &&start) -> Fault {
    std::unique_ptr<Backend> backend;
    const bool isCuda = options.backend == "cuda";
    if (job || isCuda) {
      const Status status = job ? job->checkRanks(numRanks) : success();
      CudaOptions cuda;
      cuda.ncclMemory = options.ncclMemory;
      auto made = !status   ? status.failure()
                  : !isCuda ? job->makeBackend(numRanks)
                  : job     ? makeCudaBackend(*job, numRanks, cuda)
                            : makeCudaBackend(numRanks, cuda);
      if (!made) {
        const Error lost = job ? job->lostPeer() : Error();
        return lost && lost.message == made.message() ? Fault(lost)
               : status ? Error{ErrorKind::DeviceError, made.message()}
                        : badInput(made.message());
      }
      backend = std::move(*made);
      run.backend = backend.get();
    }
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
          checkGradients(program, inputs.description, options.text, run);
      check = std::move(report.check);
      return report.error;
    });
    if (fault.code != Fine)
      return fault;
    json["gradients"] = {{"equal", check.equal()},
                         {"agree", check.agrees()},
                         {"values", check.numValues},
                         {"different", check.numDifferent},
                         {"text", check.describe()}};
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
  json["steps"] = report.steps;
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
  if (!none)
    json["loss"] = {{"first", report.firstLoss}, {"last", report.lastLoss}};
  if (validates)
    json["void_steps"] = report.voidSteps;
  if (options.replay)
    json["graph"] = {{"replayed", report.replayFault.empty()},
                     {"fault", report.replayFault}};
  json["seconds"] = report.seconds;
  json["steps_per_second"] = stepsPerSecond;
  json["bubble_rate"]["measured"] = report.bubbleRate;
  if (predicted)
    json["bubble_rate"]["predicted"] = predicted->bubbleRate;
  if (fromMeasured)
    json["bubble_rate"]["predicted_from_measured"] = fromMeasured->bubbleRate;
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

/// Meets the other processes, if the command line speaks of any.
Fault startJob(const Options &options, std::unique_ptr<Job> &job) {
  const std::string &where = options.rendezvous.where;
  const bool isMpi = options.backend == "mpi";
  if (!isMpi && options.backend != "cuda" && options.backend != "host")
    return badInput("back end '" + options.backend +
                    "' is unknown; there are: host, mpi, cuda");
  if (isMpi && !where.empty() && where != "mpi")
    return badInput("the processes of --backend=mpi meet through MPI, not by "
                    "--rendezvous=" +
                    where + "; take --backend=host for sockets");
  if (where.empty() && (options.rendezvous.number || options.rendezvous.size))
    return badInput("--rank and --world-size are for ranks in several "
                    "processes; say where they meet with --rendezvous");
  if (!isMpi && where.empty())
    return {};
  Result<std::unique_ptr<Job>> started =
      isMpi || where == "mpi" ? makeMpiJob()
                              : makeSocketJob(options.rendezvous);
  if (!started)
    return badInput(started.message());
  job = std::move(*started);
  return {};
}

int run(const Options &options) {
  nlohmann::ordered_json json = {{"ok", false}, {"steps", 0}};
  if (options.printModel) {
    Result<std::string> text = printModel(options.model, *options.printModel);
    if (!text)
      return finish(options, json, badInput(text.message()));
    std::cout << *text << "\n";
    return Fine;
  }
  const std::stop_token stop = stopBySignals();
  std::unique_ptr<Job> job;
  Fault fault;
  bool alone = true; // only this process knows of the fault
  try {
    {
      // Others may be waited for. Nothing has begun yet that must be ended.
      std::stop_callback quit(stop, [&] {
        std::_Exit(finish(options, json,
                          {Failed, std::string(name(ErrorKind::Aborted)),
                           "the run was stopped by its caller"}));
      });
      fault = startJob(options, job);
    }
    if (fault.code == Fine) {
      fault = train(options, stop, job.get(), json);
      alone = false;
    }
  } catch (const std::bad_alloc &) {
    fault = {Failed, "out-of-memory", "out of memory"};
  } catch (const std::exception &error) {
    fault = {Failed, "internal", error.what()};
  }
  if (!job)
    return finish(options, json, fault);
  if (fault.code != Fine && !alone)
    endJob(*job, options, json, fault, stop);
  const int code = alone || speaks(job.get())
                       ? finish(options, json, fault, speaks(job.get()))
                       : int(Fine);
  if (code != Fine) {
    job->fail(code, fault.forOthers(job->number()));
    std::_Exit(code);
  }
  return code;
}

} // namespace

/// Reads the command line and does what it says.
static int runTool(int argc, char **argv) {
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
  app.add_option("--backend", options.backend,
                 "Where the ranks run: host, on the threads of this "
                 "process or, with --rendezvous, in a process each, connected "
                 "by sockets; mpi, in a process each, started by mpirun; or "
                 "cuda, on a GPU each, with NCCL, in this process or, with "
                 "--rendezvous, in one each")
      ->capture_default_str();
  Rendezvous &rendezvous = options.rendezvous;
  rendezvous.where.clear();
  app.add_option("--rendezvous", rendezvous.where,
                 "Run one rank in each of several processes, which meet where "
                 "MASTER_ADDR and MASTER_PORT say (env), where process 0 "
                 "listens (tcp), at a file that it writes (file), or through "
                 "MPI")
      ->type_name("env|tcp://HOST:PORT|file://PATH|mpi");
  app.add_option("--rank", rendezvous.number,
                 "Number of this process; else that of torchrun (RANK), Open "
                 "MPI or Slurm")
      ->type_name("N");
  app.add_option(
         "--world-size", rendezvous.size,
         "Number of processes; else that of torchrun (WORLD_SIZE), Open "
         "MPI or Slurm")
      ->type_name("N");
  app.add_option("--run-id", rendezvous.runId,
                 "Processes with another one are refused; else that of "
                 "torchrun or Slurm")
      ->type_name("TEXT");
  app.add_option("--rendezvous-address", rendezvous.address,
                 "With file://: the address of this machine for the others")
      ->type_name("HOST")
      ->capture_default_str();
  app.add_option("--rendezvous-timeout", rendezvous.timeout,
                 "End with an error when processes are missing after so many "
                 "seconds")
      ->check(seconds)
      ->capture_default_str();
  app.add_option("--model", options.model, "Model and its keys, see below")
      ->capture_default_str();
  app.add_option("--text", options.text, "Text file to train on");
  app.add_option("--steps", options.steps, "Steps to train")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 40))
      ->capture_default_str();
  // CLI11 would take -1 for the largest number.
  app.add_option("--seed", options.seed, "Seed of the model's parameters")
      ->check([](const std::string &text) {
        uint64_t value = 0;
        const char *end = text.data() + text.size();
        const auto [rest, error] = std::from_chars(text.data(), end, value);
        return error == std::errc() && rest == end
                   ? std::string()
                   : "'" + text + "' is not a number from 0 to 2^64 - 1";
      });
  app.add_flag("--check-gradients", options.checkGradients,
               "Compare the gradients and parameters of two steps with the "
               "unpipelined model first");
  app.add_option("--trace", options.trace,
                 "Write the last steps as a Chrome trace, for "
                 "https://ui.perfetto.dev");
  app.add_option("--trace-steps", options.traceSteps, "Steps in the trace")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--profile", options.profile,
                 "Write a model and a cluster with the measured times, to "
                 "compile with");
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
  app.add_flag("--graph", options.replay,
               "Capture a step as a CUDA graph and replay it, if device and "
               "model can");
  app.add_flag("--nccl-memory", options.ncclMemory,
               "With cuda: buffers are memory of NCCL and registered with it");
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

int main(int argc, char **argv) {
  const int code = runTool(argc, argv);
  if (std::cout.flush())
    return code;
  std::cerr << "penstock-run: cannot write the output; is the disk full?\n";
  return code == Fine ? int(Failed) : code;
}
