//===- Options.cpp - The command line of penstock-run ---------------------===//

#include "Options.h"
#include "CommandLine.h"
#include "Outcome.h"

#include "penstock/Runtime/Models.h"

#include <iostream>
#include <limits>

using namespace penstock;
using namespace penstock::run;

std::optional<int> run::parseOptions(int argc, char **argv, Options &options) {
  runtime::Rendezvous &rendezvous = options.rendezvous;
  constexpr int32_t kAnyNumber = std::numeric_limits<int32_t>::max();
  CommandLine line;
  line.argument("FILE.psp", options.file,
                "Program file, from penstock-translate --pipe-to-program");
  line.text("backend", "NAME", options.backend,
            "Where the ranks run: host, on the threads of this process or, "
            "with --rendezvous, in a process each, connected by sockets; mpi, "
            "in a process each, started by mpirun; or cuda, on a GPU each, "
            "with NCCL, in this process or, with --rendezvous, in one each");
  line.text("rendezvous", "env|tcp://HOST:PORT|file://PATH|mpi",
            rendezvous.where,
            "Run one rank in each of several processes, which meet where "
            "MASTER_ADDR and MASTER_PORT say (env), where process 0 listens "
            "(tcp), at a file that it writes (file), or through MPI");
  line.integer("rank", "N", rendezvous.number, -kAnyNumber, kAnyNumber,
               "Number of this process; else that of torchrun (RANK), Open MPI "
               "or Slurm");
  line.integer("world-size", "N", rendezvous.size, -kAnyNumber, kAnyNumber,
               "Number of processes; else that of torchrun (WORLD_SIZE), Open "
               "MPI or Slurm");
  line.text("run-id", "TEXT", rendezvous.runId,
            "Processes with another one are refused; else that of torchrun or "
            "Slurm");
  line.text("rendezvous-address", "HOST", rendezvous.address,
            "With file://: the address of this machine for the others");
  line.seconds("rendezvous-timeout", rendezvous.timeout,
               "End with an error when processes are missing after so many "
               "seconds");
  line.text("model", "MODEL", options.model, "Model and its keys, see below");
  line.text("text", "FILE", options.text, "Text file to train on");
  line.integer("steps", "N", options.steps, int64_t(1), int64_t(1) << 40,
               "Steps to train");
  line.integer("seed", "N", options.seed, uint64_t(0),
               std::numeric_limits<uint64_t>::max(),
               "Seed of the model's parameters");
  line.flag("check-gradients", options.checkGradients,
            "Compare the gradients and parameters of two steps with the "
            "unpipelined model first");
  line.flag("check-finite", options.checkFinite,
            "End with the first forward or backward that computes what is not "
            "finite, rather than when the loss is not");
  line.text("trace", "FILE", options.trace,
            "Write the last steps as a Chrome trace, for "
            "https://ui.perfetto.dev");
  line.integer("trace-steps", "N", options.traceSteps, int64_t(1),
               int64_t(1000), "Steps in the trace");
  line.text("profile", "FILE", options.profile,
            "Write a model and a cluster with the measured times, to compile "
            "with");
  line.seconds("pace", options.pace,
               "Stretch every action and transfer to its cost times so many "
               "seconds; 0: as fast as it goes");
  line.seconds("timeout", options.timeout,
               "End with an error after so many seconds without progress; 0: "
               "never");
  line.seconds("call-timeout", options.callTimeout,
               "The same for a single call of the model");
  line.integer("print-model", "LAYERS", options.printModel, -kAnyNumber,
               kAnyNumber,
               "Print the model with so many layers as a pipe.model for a "
               "spec, and end");
  line.flag("graph", options.replay,
            "Capture a step as a CUDA graph and replay it, if device and model "
            "can");
  line.flag("nccl-memory", options.ncclMemory,
            "With cuda: buffers are memory of NCCL and registered with it");
  line.flag("force", options.force, "Run a program that the verifier refuses");
  line.flag("json", options.json, "Print the results as JSON");
  if (Status status =
          line.parse(std::vector<std::string>(argv + 1, argv + argc));
      !status) {
    std::cerr << "penstock-run: " + status.message() + "\n";
    return BadInput;
  }
  if (!line.helpAsked())
    return std::nullopt;
  std::cout << "Trains a model with a compiled pipeline program (.psp).\n\n"
            << line.describe("penstock-run") << "\nModels:\n"
            << runtime::describeModels()
            << "\nnone: computes nothing; shows the timing of any program with "
               "--pace\n\nExit codes: 0 fine, 1 the program was refused or the "
               "run failed, 2 bad input.\n";
  return Fine;
}
