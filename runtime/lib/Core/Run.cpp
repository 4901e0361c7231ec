//===- Run.cpp - Runs all ranks of a program ------------------------------===//

#include "penstock/Runtime/Run.h"

#include "penstock/Analysis/Report.h"
#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"
#include "penstock/Runtime/Watchdog.h"

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <system_error>

namespace penstock::runtime {

/// Refuses what cannot run at all, and what the verifier refuses.
static Error checkProgram(const Program &program, bool force) {
  if (Status status = wellFormed(program); !status)
    return {ErrorKind::InvalidProgram, status.message(), status.failure().site};
  if (!program.isPlanned())
    return {ErrorKind::InvalidProgram,
            program.isOrder()
                ? "the program is only an order, without transfers and "
                  "buffers; compile it with penstock-opt --pipe-compile"
                : "the program has transfers but no planned buffers; compile "
                  "it with penstock-opt --pipe-compile, or plan those of a "
                  "hand-written one with --pipe-plan-buffers"};
  if (force)
    return {};
  VerifyOptions options;
  options.useCertificate = true;
  const Verdict verdict = verify(program, options);
  if (verdict.accepted())
    return {};
  Error error{ErrorKind::Refused, "the verifier refuses the program\n",
              verdict.findings.front().site};
  for (const Finding &finding : verdict.findings)
    error.message += render(program, finding);
  error.message.pop_back();
  return error;
}

double lossOfStep(const Problem &problem, std::span<const double> losses) {
  double sum = 0;
  for (size_t mb = 0; mb < losses.size(); ++mb)
    sum +=
        problem.weights.empty() ? losses[mb] : problem.weights[mb] * losses[mb];
  return problem.weights.empty() ? sum / problem.numMicrobatches : sum;
}

/// Why a loss that is not finite may be so.
static std::string describeLoss(const Program &program, int32_t rank,
                                int32_t mb, double loss) {
  const int32_t last = program.problem.numStages() - 1;
  for (const Instruction &inst : program.ranks[rank].instructions)
    if (inst.op == Op::Forward && inst.stage == last && inst.microbatch == mb)
      return "the loss of micro-batch " + std::to_string(mb) + " is " +
             (std::isnan(loss) ? "not a number" : "infinite") +
             "; lower the learning rate or check the input";
  return "there is no loss of micro-batch " + std::to_string(mb) +
         ", because no forward of it of the last stage, " +
         std::to_string(last) + ", is on this rank; add it to the program";
}

namespace {
/// Brings the results of the ranks together, step by step. Ranks may be some
/// steps apart.
class StepTotals {
public:
  StepTotals(const Program &program, const RunOptions &options,
             const RunControl &control, RunReport &report)
      : problem(program.problem), options(options), control(control),
        report(report), numRanks(program.ranks.size()) {
    for (Total &total : totals) {
      total.ranks.resize(numRanks);
      total.losses.resize(problem.numMicrobatches);
    }
    lastEnd = std::chrono::steady_clock::now();
  }

  /// Waits until the rank may begin the step without leaving the others too far
  /// behind; returns false when the run has failed.
  bool mayBegin(int64_t step) {
    std::unique_lock lock(mutex);
    wake.wait(lock, [&] {
      return step < report.steps + kWindow || control.failed();
    });
    return !control.failed();
  }

  /// The losses of the micro-batches of a step, for the ranks to write each its
  /// own, between mayBegin and add.
  std::span<double> lossesOf(int64_t step) {
    return totals[step % kWindow].losses;
  }

  /// Adds what a rank has to say about a step; returns the step's report when
  /// it was the last one to speak.
  std::optional<StepReport> add(int32_t rank, int64_t step,
                                const RankStep &timing) {
    std::lock_guard lock(mutex);
    Total &total = totals[step % kWindow];
    total.ranks[rank] = timing;
    if (++total.numRanks < numRanks)
      return std::nullopt;

    const auto now = std::chrono::steady_clock::now();
    const StepReport result{
        step, lossOfStep(problem, total.losses),
        std::chrono::duration<double>(now - lastEnd).count(),
        bubbleRate(total.ranks)};
    lastEnd = now;
    total.numRanks = 0;
    if (step == 0)
      report.firstLoss = result.loss;
    report.lastLoss = result.loss;
    report.seconds += result.seconds;
    // The first step warms up, unless it is the only one.
    if (step > 0 || options.steps == 1) {
      bubbles += result.bubbleRate;
      ++numBubbles;
      report.bubbleRate = bubbles / static_cast<double>(numBubbles);
    }
    ++report.steps;
    wake.notify_all();
    return result;
  }

  /// Lets go whoever waits in mayBegin, after a failure.
  void release() {
    { std::lock_guard lock(mutex); }
    wake.notify_all();
  }

private:
  /// Ranks are fewer than so many steps apart.
  static constexpr int64_t kWindow = 4;
  struct Total {
    size_t numRanks = 0;
    std::vector<double> losses;
    std::vector<RankStep> ranks;
  };

  const Problem &problem;
  const RunOptions &options;
  const RunControl &control;
  RunReport &report;
  const size_t numRanks;
  std::mutex mutex;
  std::condition_variable wake;
  std::array<Total, kWindow> totals;
  std::chrono::steady_clock::time_point lastEnd;
  double bubbles = 0;
  int64_t numBubbles = 0;
};
} // namespace

RunReport runProgram(const Program &program, const ModelFactory &makeModel,
                     const RunOptions &options) {
  RunReport report;
  if ((report.error = checkProgram(program, options.force)))
    return report;

  const auto numRanks = static_cast<int32_t>(program.ranks.size());
  std::unique_ptr<Backend> ownBackend;
  if (!options.backend)
    ownBackend = makeHostBackend(numRanks);
  Backend &backend = options.backend ? *options.backend : *ownBackend;
  std::optional<Recorder> ownRecorder;
  if (!options.recorder)
    ownRecorder.emplace(program);
  Recorder &recorder = options.recorder ? *options.recorder : *ownRecorder;

  // In the order in which they are needed: devices end before the models that
  // their queues call.
  RunControl control;
  std::vector<std::unique_ptr<Model>> models(numRanks);
  std::vector<std::unique_ptr<Device>> devices(numRanks);
  std::vector<std::unique_ptr<Transport>> transports(numRanks);
  std::vector<std::unique_ptr<Executor>> executors(numRanks);
  for (int32_t r = 0; r < numRanks; ++r) {
    auto fail = [&](ErrorKind kind, const std::string &message) {
      report.error = {kind, "rank " + std::to_string(r) + ": " + message, {r}};
      return report;
    };
    try {
      auto model = makeModel(program, r);
      if (!model)
        return fail(ErrorKind::BadModel, model.message());
      models[r] = std::move(*model);
    } catch (...) {
      return fail(ErrorKind::BadModel,
                  "making the model threw: " + describeCurrentException());
    }
    auto device = backend.makeDevice(r);
    if (!device)
      return fail(ErrorKind::DeviceError, device.message());
    devices[r] = std::move(*device);
    auto transport = backend.makeTransport(r);
    if (!transport)
      return fail(ErrorKind::DeviceError, transport.message());
    transports[r] = std::move(*transport);
    executors[r] = std::make_unique<Executor>(
        program, r, *devices[r], *transports[r], *models[r], recorder, control);
    if ((report.error = executors[r]->prepare(options.pace)))
      return report;
    control.devices.push_back(devices[r].get());
    control.transports.push_back(transports[r].get());
  }

  StepTotals totals(program, options, control, report);
  control.onError = [&](const Error &error) {
    totals.release();
    if (options.onError)
      options.onError(error);
  };
  const ProgramHash hash = hashProgram(program);
  {
    std::vector<const Executor *> watched;
    for (auto &executor : executors)
      watched.push_back(executor.get());
    Watchdog watchdog(program, std::move(watched), recorder, control,
                      options.timeout, options.callTimeout);
    std::stop_callback stop(options.stop, [&] {
      control.fail({ErrorKind::Aborted, "the run was stopped by its caller"});
    });

    std::vector<int64_t> numVoid(numRanks);
    auto runRank = [&](int32_t r) {
      const Problem &problem = program.problem;
      if (Error error = transports[r]->connect(hash)) {
        control.fail(std::move(error));
        return;
      }
      for (int64_t step = 0; step < options.steps;
           step += !executors[r]->wasVoid()) {
        if (!totals.mayBegin(step) || !executors[r]->runStep(step))
          return;
        if (executors[r]->wasVoid()) {
          numVoid[r] += 1;
          continue;
        }
        const std::span<double> losses = totals.lossesOf(step);
        auto fail = [&](ErrorKind kind, const std::string &why) {
          control.fail({kind,
                        "rank " + std::to_string(r) + ", step " +
                            std::to_string(step) + ": " + why,
                        {r}});
        };
        try {
          executors[r]->readLosses(losses);
        } catch (...) {
          return fail(ErrorKind::ModelError,
                      "the model threw in loss: " + describeCurrentException());
        }
        for (int32_t mb = 0; mb < problem.numMicrobatches; ++mb)
          if (problem.rankOf(problem.numStages() - 1, mb) == r &&
              !std::isfinite(losses[mb]))
            return fail(ErrorKind::NotFinite,
                        describeLoss(program, r, mb, losses[mb]));
        // The rank that completes a step takes part in the next one only after
        // the callback: this alone keeps the calls in order.
        auto stepReport = totals.add(
            r, step, recorder.endStep(r, step, step > 0 || options.steps == 1));
        if (stepReport && !std::isfinite(stepReport->loss))
          return fail(ErrorKind::NotFinite,
                      "the losses of all micro-batches, each finite, add up to "
                      "more than a number can be; lower their weights");
        if (stepReport && options.onStep) {
          watchdog.hostAtWork.fetch_add(1);
          options.onStep(*stepReport);
          watchdog.hostAtWork.fetch_sub(1);
        }
      }
      if (problem.postValidation)
        executors[r]->runValidation();
    };
    std::vector<std::thread> threads;
    try {
      for (int32_t r = 0; r < numRanks; ++r)
        threads.emplace_back(runRank, r);
    } catch (const std::system_error &error) {
      control.fail({ErrorKind::DeviceError,
                    std::string("cannot start the thread of a rank: ") +
                        error.what() + "; run fewer ranks in one process"});
    }
    for (std::thread &thread : threads)
      thread.join();
    report.voidSteps = numVoid.front();
  }

  if (control.failed()) {
    report.error = control.error();
  } else if (options.onFinished) {
    std::vector<const Model *> view;
    for (auto &model : models)
      view.push_back(model.get());
    options.onFinished(view);
  }
  return report;
}

} // namespace penstock::runtime
