//===- penstock-run.cpp - Trains a model with a program file --------------===//
//
// Loads a program, verifies it, and trains one of Penstock's models with it.
// Exit codes: 0 fine, 1 the program was refused or the run failed, 2 bad input.
//
//===----------------------------------------------------------------------===//

#include "Train.h"

#include "penstock/Runtime/Models.h"

#include <iostream>
#include <stop_token>

#include <fcntl.h>
#include <unistd.h>

using namespace penstock;
using namespace penstock::run;
using namespace penstock::runtime;

/// Meets the other processes, if the command line speaks of any.
static Fault startJob(const Options &options, std::unique_ptr<Job> &job) {
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
      isMpi || where == "mpi" ? makeMpiJob(options.rendezvous.timeout)
                              : makeSocketJob(options.rendezvous);
  if (!started)
    return badInput(started.message());
  job = std::move(*started);
  return {};
}

static int runJob(const Options &options) {
  JsonObject json = emptyReport();
  if (options.printModel) {
    Result<std::string> text = printModel(options.model, *options.printModel);
    if (!text)
      return finish(options, json, badInput(text.message()));
    if (options.json) {
      json.set("model", *text);
      return finish(options, json, {});
    }
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
        leaveMeetings();
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

/// No file or socket may get the number of a standard stream that is closed:
/// what is written to that would go there. Writing still fails, as it should.
static void occupyStandardStreams() {
  for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) == -1)
      (void)!open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv) {
  occupyStandardStreams();
  Options options;
  const std::optional<int> ended = parseOptions(argc, argv, options);
  const int code = ended ? *ended : runJob(options);
  if (std::cout.flush())
    return code;
  std::cerr << "penstock-run: cannot write the output; is the disk full?\n";
  return code == Fine ? int(Failed) : code;
}
