//===- Torch.cpp - Checks schedules of torch.distributed.pipelining -------===//
//
// compute_only is checked as an order. compute_comms is a program whose queues
// depend on the communicators that torch makes, so it is verified for each of
// the three ways, one of which decides.
//
//===----------------------------------------------------------------------===//

#include "Check.h"

#include "penstock/Import/TextFile.h"
#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"

#include <iostream>
#include <optional>

using namespace penstock;
using namespace penstock::check;

namespace {

/// Under one arrangement of communicators.
struct FifoVerdict {
  Fifo fifo;
  Verdict verdict;
};

std::string inWords(Fifo fifo) {
  switch (fifo) {
  case Fifo::Rank:
    return "one FIFO per rank";
  case Fifo::Pair:
    return "one FIFO per pair of ranks";
  case Fifo::Edge:
    break;
  }
  return "one FIFO per directed edge";
}

/// What the line of an arrangement says.
std::string inWords(const Verdict &verdict, bool deadlock) {
  if (verdict.accepted())
    return "accepted";
  if (verdict.deadlockFree)
    return "refused, but it ends";
  return deadlock ? "deadlock; " + diagnosis(verdict) : "refused";
}

/// torch has no groups in a file, and other names for what runs.
Verdict verifyForTorch(const Program &program, bool order) {
  VerifyOptions options;
  options.order = order;
  options.canGroup = false;
  Verdict verdict = verify(program, options);
  for (auto *findings : {&verdict.findings, &verdict.warnings})
    for (Finding &finding : *findings) {
      finding.message = inTorchWords(finding.message);
      for (Note &note : finding.notes)
        note.text = inTorchWords(note.text);
    }
  return verdict;
}

} // namespace

ExitStatus check::checkTorchFile(const Options &options) {
  const std::string &path = options.path;
  auto fail = [&](const std::string &why) {
    return notReadable(options, options.path + ": " + why);
  };
  const Result<std::string> text = readTextFile(path);
  if (!text)
    return fail(text.message());
  Result<TorchTable> table = readTorchCsv(*text, options.placement);
  if (!table)
    return fail(table.message());
  Program &program = table->program;
  const bool isOrder = table->format == TorchFormat::ComputeOnly;
  if (options.order && !isOrder)
    return fail("has sends and receives (compute_comms), so that it is "
                "no order; check it without --order");
  // Cells that name what there is not: verify() says so, and how.
  const bool isProgram = !isOrder && wellFormed(program);

  if (options.dump) {
    if (const Status status = wellFormed(program); !status)
      return fail(describeCell(*table, status.failure().site) + ": " +
                  status.message());
    if (isProgram)
      if (const Status status = setFifos(program, options.fifo); !status)
        return fail(describe(program, status.failure().site) + ": " +
                    status.message());
    dump(program, std::cout);
    return Accepted;
  }

  std::vector<FifoVerdict> verdicts;
  std::optional<Verdict> deciding;
  if (!isProgram) {
    deciding = verifyForTorch(program, isOrder);
  } else {
    for (Fifo fifo : {Fifo::Rank, Fifo::Pair, Fifo::Edge}) {
      if (const Status status = setFifos(program, fifo); !status) {
        if (fifo == options.fifo)
          return fail(describe(program, status.failure().site) + ": " +
                      status.message());
        continue; // only very wide schedules have too many
      }
      verdicts.push_back({fifo, verifyForTorch(program, false)});
      if (fifo == options.fifo)
        deciding = verdicts.back().verdict;
    }
  }

  for (Finding &warning : torchWarnings(*table))
    deciding->warnings.push_back(std::move(warning));
  const Report report{path, program, *deciding, &*table};
  if (options.json) {
    Json json = toJson(report);
    json["format"] = name(table->format);
    json["fifo"] = isOrder ? Json(nullptr) : Json(name(options.fifo));
    json["fifos"] = Json::object();
    for (const FifoVerdict &v : verdicts) {
      const Report ofFifo{path, program, v.verdict, &*table};
      Json item = toJson(ofFifo);
      Json &entry = json["fifos"][std::string(name(v.fifo))];
      for (const char *key :
           {"accepted", "deadlock", "rule", "cycle", "min_capacity"})
        entry[key] = std::move(item[key]);
    }
    print(json);
  } else {
    const Problem &problem = program.problem;
    printFindings(report, std::string(name(table->format)) + ", " +
                              counted(problem.numRanks, "rank") + ", " +
                              counted(problem.stages.size(), "stage") + ", " +
                              countedMicrobatches(problem) + ", " +
                              counted(program.numInstructions(), "action"));
    for (const FifoVerdict &v : verdicts)
      std::cout << inWords(v.fifo)
                << (v.fifo == options.fifo ? " (decides): " : ": ")
                << inWords(v.verdict,
                           Report{path, program, v.verdict}.deadlock())
                << '\n';
    printAssumptions();
  }
  return deciding->accepted() ? Accepted : Refused;
}
