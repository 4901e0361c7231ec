//===- FaultRun.cpp - Kills, stops and ends ranks, many times -------------===//
//
// Runs penstock-run as eight processes that meet over sockets, does something
// to one of them at a random moment, and measures how long it takes until every
// other one has said what it should. Prints a line a promise; exit code 1 if
// one was broken. The promises: nccl.md, 11.2, P1 to P4. With --backend=cuda
// the processes may have one GPU in common, or the stand-in for it.
//
//===----------------------------------------------------------------------===//

#include "../Crew.h"
#include "../TestPrograms.h"

#include "penstock/Program/File.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>

using namespace penstock;
using namespace penstock::runtime;
using namespace penstock::runtime::test;

namespace {

struct Options {
  int kills = 200, stops = 20, terms = 20, mismatches = 20;
  int processes = 8;
  unsigned seed = 1;
  std::string run = PENSTOCK_RUN, backend = "host";
  /// Of all limits: on a busy or instrumented machine.
  double patience = 1;
};

/// One promise, over many tries.
struct Promise {
  const char *name;
  double limit; ///< seconds
  std::vector<double> times;
  std::vector<std::string> faults;

  int print(int tries) {
    std::sort(times.begin(), times.end());
    std::printf("%-10s %3zu of %3d, ", name, tries - faults.size(), tries);
    if (!times.empty())
      std::printf("median %.3f s, worst %.3f s, ", times[times.size() / 2],
                  times.back());
    std::printf("limit %.3g s\n", limit);
    for (const std::string &fault : faults)
      std::printf("%s\n", fault.c_str());
    std::fflush(stdout);
    return faults.empty() ? 0 : 1;
  }
};

class Faults {
public:
  explicit Faults(const Options &options)
      : options(options), random(options.seed),
        directory(std::filesystem::temp_directory_path() /
                  ("penstock-faults-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(directory);
    for (int m : {4, 5}) {
      const Status status =
          writeProgramFile(makeGPipe(options.processes, m), program(m));
      if (!status)
        std::fprintf(stderr, "%s\n", status.message().c_str());
    }
  }
  ~Faults() { std::filesystem::remove_all(directory); }

  /// Does `act` to a random process at a random moment of the run; every other
  /// one must say `expected` within the limit, and end. `%` stands for the
  /// number of the process.
  int measure(Promise promise, int tries, const std::string &expected,
              const std::vector<std::string> &arguments, int number) {
    promise.limit *= options.patience;
    for (int i = 0; i < tries; ++i) {
      const int victim = int(random() % options.processes);
      Crew crew;
      start(crew, arguments);
      // A process that is stopped before all are connected is waited for.
      const char *const sign = number == SIGSTOP ? "step 1/" : "\n";
      if (!crew.waitUntil(
              [&] {
                return crew[0].output.find(sign) != std::string::npos ||
                       crew[0].code >= 0;
              },
              60)) {
        promise.faults.push_back("try " + std::to_string(i) +
                                 ": the processes did not start");
        continue;
      }
      const double delay = std::uniform_real_distribution(0.0, 0.5)(random);
      crew.waitUntil([] { return false; }, delay);
      const auto begin = Crew::Clock::now();
      crew.signal(victim, number);
      check(crew, victim, begin, expected, promise, i,
            /*all=*/number == SIGTERM);
    }
    return promise.print(tries);
  }

  /// One process has another program: all refuse it.
  int measureMismatches(int tries) {
    Promise promise{"mismatch", 10, {}, {}};
    promise.limit *= options.patience;
    for (int i = 0; i < tries; ++i) {
      const int victim = int(random() % options.processes);
      Crew crew;
      const auto begin = Crew::Clock::now();
      start(crew, {}, victim);
      check(crew, -1, begin,
            "rank " + std::to_string(victim > 0 ? victim : 1) + " has program",
            promise, i, true);
    }
    return promise.print(tries);
  }

private:
  std::string program(int m) const {
    return directory / (std::to_string(m) + ".psp");
  }

  void start(Crew &crew, const std::vector<std::string> &arguments,
             int other = -1) {
    const std::string place = "--rendezvous=file://" +
                              (directory / "meet").string() +
                              std::to_string(numStarts++);
    for (int p = 0; p < options.processes; ++p) {
      std::vector<std::string> command = {
          options.run,    program(p == other ? 5 : 4),
          "--model=none", "--steps=1000000",
          "--pace=0.001", place,
          "--rank",       std::to_string(p),
          "--world-size", std::to_string(options.processes),
          "--backend",    options.backend};
      command.insert(command.end(), arguments.begin(), arguments.end());
      // NCCL takes processes on one GPU for those of several machines.
      crew.start(command, {{"NCCL_HOSTID", "process" + std::to_string(p)}});
    }
  }

  void check(Crew &crew, int victim, Crew::Clock::time_point begin,
             std::string expected, Promise &promise, int i, bool all) {
    if (const size_t mark = expected.find('%'); mark != std::string::npos)
      expected.replace(mark, 1, std::to_string(victim));
    std::vector<double> times(crew.size(), -1);
    const auto isDone = [&] {
      bool done = true;
      for (int p = 0; p < int(crew.size()); ++p) {
        if (p == victim && !all)
          continue;
        if (times[p] < 0 && crew[p].output.find(expected) != std::string::npos)
          times[p] =
              std::chrono::duration<double>(Crew::Clock::now() - begin).count();
        done &= crew[p].code >= 0 && crew[p].fd < 0;
      }
      return done;
    };
    const bool ended = crew.waitUntil(isDone, promise.limit + 20);
    isDone();
    double worst = 0;
    std::string fault;
    for (int p = 0; p < int(crew.size()); ++p) {
      if (p == victim && !all)
        continue;
      worst = std::max(worst, times[p]);
      const bool isClean =
          crew[p].output.find("Sanitizer") == std::string::npos &&
          crew[p].output.find("runtime error") == std::string::npos;
      if (times[p] >= 0 && times[p] <= promise.limit && crew[p].code > 0 &&
          isClean)
        continue;
      fault += "  process " + std::to_string(p) + ", exit code " +
               std::to_string(crew[p].code) + ", " + std::to_string(times[p]) +
               " s:\n" + crew[p].output;
    }
    if (!ended)
      fault += "  not all have ended\n";
    promise.times.push_back(worst);
    if (!fault.empty())
      promise.faults.push_back("try " + std::to_string(i) + ", process " +
                               std::to_string(victim) + ":\n" + fault);
  }

  const Options options;
  std::mt19937 random;
  const std::filesystem::path directory;
  int numStarts = 0;
};

} // namespace

int main(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const size_t equal = text.find('=');
    const std::string name = text.substr(0, equal);
    const double value =
        equal == text.npos ? 0 : std::atof(text.c_str() + equal + 1);
    if (name == "--kills")
      options.kills = int(value);
    else if (name == "--stops")
      options.stops = int(value);
    else if (name == "--terms")
      options.terms = int(value);
    else if (name == "--mismatches")
      options.mismatches = int(value);
    else if (name == "--processes")
      options.processes = int(value);
    else if (name == "--run")
      options.run = text.substr(equal + 1);
    else if (name == "--backend")
      options.backend = text.substr(equal + 1);
    else if (name == "--seed")
      options.seed = unsigned(value);
    else if (name == "--patience")
      options.patience = value;
    else {
      std::fprintf(stderr, "usage: FaultRun [--kills=N] [--stops=N] "
                           "[--terms=N] [--mismatches=N] [--processes=N] "
                           "[--seed=N] [--patience=FACTOR] [--run=FILE] "
                           "[--backend=host|cuda]\n");
      return 2;
    }
  }
  std::printf("%d processes, seed %u\n", options.processes, options.seed);
  Faults faults(options);
  int code = 0;
  // P1 to P4.
  code |= faults.measure({"kill -9", 2, {}, {}}, options.kills,
                         "rank % is lost", {}, SIGKILL);
  code |=
      faults.measure({"SIGSTOP", 1.5, {}, {}}, options.stops,
                     "rank % gives no sign of life", {"--timeout=1"}, SIGSTOP);
  code |= faults.measure({"SIGTERM", 0.5, {}, {}}, options.terms,
                         "the run was stopped by its caller", {}, SIGTERM);
  code |= faults.measureMismatches(options.mismatches);
  return code;
}
