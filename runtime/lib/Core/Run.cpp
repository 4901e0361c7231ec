//===- Run.cpp - Runs all ranks of a program ------------------------------===//

#include "penstock/Runtime/Run.h"

#include "penstock/Analysis/Report.h"
#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"
#include "penstock/Runtime/Watchdog.h"

#include <algorithm>
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

/// Brings the errors of all processes together: the first that is not a mere
/// consequence. That of this process, if the others do not come in time.
static Error agree(Peers *peers, Error own,
                   double seconds = std::numeric_limits<double>::infinity()) {
  if (!peers)
    return own;
  const std::vector<std::string> all = peers->gather(pack(own), seconds);
  if (all.empty())
    return own ? own : peers->lostPeer();
  Error result;
  for (const std::string &bytes : all) {
    Error error = unpackError(bytes);
    if (error && (!result || (result.kind == ErrorKind::Aborted &&
                              error.kind != ErrorKind::Aborted)))
      result = std::move(error);
  }
  return result;
}

namespace {
/// What one rank of this process runs with, in the order in which it is
/// needed: a device ends before the model that its queues call.
struct LocalRank {
  int32_t number = 0;
  std::unique_ptr<Model> model;
  std::unique_ptr<Device> device;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Executor> executor;
};
} // namespace

static Error prepareRank(LocalRank &rank, const Program &program,
                         const ModelFactory &makeModel, Backend &backend,
                         const RunOptions &options, Recorder &recorder,
                         RunControl &control) {
  const int32_t r = rank.number;
  auto fail = [&](ErrorKind kind, const std::string &message) {
    return Error{kind, "rank " + std::to_string(r) + ": " + message, {r}};
  };
  if (Status status = backend.select(r); !status)
    return fail(ErrorKind::DeviceError, status.message());
  try {
    auto model = makeModel(program, r);
    if (!model)
      return fail(ErrorKind::BadModel, model.message());
    rank.model = std::move(*model);
  } catch (...) {
    const Error error =
        currentException(ErrorKind::BadModel, "making the model threw: ");
    return fail(error.kind, error.message);
  }
  auto device = backend.makeDevice(r);
  if (!device)
    return fail(ErrorKind::DeviceError, device.message());
  rank.device = std::move(*device);
  auto transport = backend.makeTransport(r);
  if (!transport)
    return fail(ErrorKind::DeviceError, transport.message());
  rank.transport = std::move(*transport);
  rank.executor =
      std::make_unique<Executor>(program, r, *rank.device, *rank.transport,
                                 *rank.model, recorder, control);
  if (Error error = rank.executor->prepare(options.pace, options.replay,
                                           options.checkFinite))
    return error;
  control.devices.push_back(rank.device.get());
  control.transports.push_back(rank.transport.get());
  return {};
}

/// How long the processes of a failed run wait for each other, in seconds: one
/// of them may be stuck.
static constexpr double kMeetingTime = 5;

/// Brings the states of other processes into the recorder; returns the ranks
/// that have one.
static std::vector<int32_t> join(Recorder &recorder,
                                 const std::vector<std::string> &states) {
  std::vector<int32_t> joined;
  for (size_t r = 0; r < states.size(); ++r)
    if (recorder.unpackStep(static_cast<int32_t>(r), states[r]))
      joined.push_back(static_cast<int32_t>(r));
  return joined;
}

/// How often the processes of a run tell that they are alive, in seconds.
static double beatOf(double timeout) {
  return timeout > 0 ? std::clamp(timeout / 8, 0.005, 1.0) : 1;
}

RunReport runProgram(const Program &program, const ModelFactory &makeModel,
                     const RunOptions &options) {
  RunReport report;
  const auto numRanks = static_cast<int32_t>(program.ranks.size());
  std::unique_ptr<Backend> ownBackend;
  if (!options.backend)
    ownBackend = makeHostBackend(numRanks);
  Backend &backend = options.backend ? *options.backend : *ownBackend;
  Peers *const peers = backend.peers();
  report.error = checkProgram(program, options.force);
  if (!peers && report.error)
    return report;
  std::optional<Recorder> ownRecorder;
  if (!options.recorder)
    ownRecorder.emplace(program);
  Recorder &recorder = options.recorder ? *options.recorder : *ownRecorder;

  RunControl control;
  std::vector<LocalRank> ranks;
  for (int32_t r : backend.localRanks())
    ranks.emplace_back().number = r;
  for (LocalRank &rank : ranks)
    if (!report.error)
      report.error = prepareRank(rank, program, makeModel, backend, options,
                                 recorder, control);
  if ((report.error = agree(peers, std::move(report.error))))
    return report;

  StepTotals totals(program, options, control, report);
  std::atomic<bool> heard = false; // the error is known elsewhere
  control.onError = [&](const Error &error) {
    totals.release();
    if (peers && !heard)
      peers->tell(error);
    if (options.onError)
      options.onError(error);
  };
  const ProgramHash hash = hashProgram(program);
  const Problem &problem = program.problem;
  const int32_t lastStage = problem.numStages() - 1;
  {
    Watchdog::Others others;
    if (peers) {
      others.silentRanks = [=](double seconds) {
        return peers->silentRanks(seconds);
      };
      others.join = [&recorder, peers](double seconds) {
        return join(recorder, peers->askStates(seconds));
      };
    }
    std::vector<const Executor *> watched;
    for (LocalRank &rank : ranks)
      watched.push_back(rank.executor.get());
    Watchdog watchdog(program, std::move(watched), recorder, control,
                      options.timeout, options.callTimeout, std::move(others));
    std::stop_callback stop(options.stop, [&] {
      control.fail({ErrorKind::Aborted, "the run was stopped by its caller"});
    });

    // The rank that completes a step takes part in the next one only after the
    // callback: this alone keeps the calls in order.
    auto add = [&](int32_t r, int64_t step, const RankStep &timing) {
      const auto stepReport = totals.add(r, step, timing);
      if (stepReport && !std::isfinite(stepReport->loss))
        control.fail({ErrorKind::NotFinite,
                      "step " + std::to_string(step) +
                          ": the losses of all micro-batches, each finite, add "
                          "up to more than a number can be; lower their "
                          "weights"});
      else if (stepReport && options.onStep) {
        watchdog.hostAtWork.fetch_add(1);
        options.onStep(*stepReport);
        watchdog.hostAtWork.fetch_sub(1);
      }
    };

    // What a rank tells the other processes: the losses of all micro-batches,
    // of which its own count, and its times.
    const size_t numLosses = problem.numMicrobatches;
    const size_t numValues = numLosses + 3;
    int64_t heardSteps = 0;
    uint64_t told = 0;
    if (peers) {
      Peers::Listener listener;
      listener.onStep = [&](std::span<const double> all) {
        const int64_t step = heardSteps++;
        const std::span<double> losses = totals.lossesOf(step);
        for (int32_t mb = 0; mb < problem.numMicrobatches; ++mb)
          losses[mb] = all[problem.rankOf(lastStage, mb) * numValues + mb];
        for (int32_t r = 0; r < numRanks; ++r) {
          const double *times = &all[r * numValues + numLosses];
          add(r, step, {times[0], times[1], times[2]});
        }
      };
      listener.onError = [&](Error error) {
        heard = true;
        control.fail(std::move(error));
      };
      listener.onWork = [&] { watchdog.workOfOthers.fetch_add(1); };
      listener.isAtWork = [&] { return watchdog.isAtWork(told); };
      const int32_t own = ranks.front().number;
      listener.lastEnded = [&, own] { return recorder.lastEnded(own); };
      listener.state = [&, own] { return recorder.packStep(own); };
      if (Error error = peers->listen(std::move(listener), numValues,
                                      beatOf(options.timeout)))
        control.fail(std::move(error));
    }

    std::vector<int64_t> numVoid(numRanks);
    auto runRank = [&](LocalRank &rank) {
      const int32_t r = rank.number;
      watchdog.connecting.fetch_add(1);
      if (Error error = rank.transport->connect(hash)) {
        control.fail(std::move(error));
        return;
      }
      watchdog.connecting.fetch_sub(1);
      std::vector<double> values(peers ? numValues : 0);
      for (int64_t step = 0; step < options.steps;
           step += !rank.executor->wasVoid()) {
        if (!totals.mayBegin(step) || !rank.executor->runStep(step))
          return;
        if (rank.executor->wasVoid()) {
          numVoid[r] += 1;
          continue;
        }
        const std::span<double> losses =
            peers ? std::span(values).first(numLosses) : totals.lossesOf(step);
        auto fail = [&](ErrorKind kind, const std::string &why) {
          control.fail({kind,
                        "rank " + std::to_string(r) + ", step " +
                            std::to_string(step) + ": " + why,
                        {r}});
        };
        try {
          rank.executor->readLosses(losses);
        } catch (...) {
          return fail(ErrorKind::ModelError,
                      "the model threw in loss: " + describeCurrentException());
        }
        for (int32_t mb = 0; mb < problem.numMicrobatches; ++mb)
          if (problem.rankOf(lastStage, mb) == r && !std::isfinite(losses[mb]))
            return fail(ErrorKind::NotFinite,
                        describeLoss(program, r, mb, losses[mb]));
        const RankStep timing =
            recorder.endStep(r, step, step > 0 || options.steps == 1);
        if (peers) {
          values[numLosses] = timing.start;
          values[numLosses + 1] = timing.end;
          values[numLosses + 2] = timing.busy;
          peers->post(values);
        } else {
          add(r, step, timing);
        }
      }
      if (problem.postValidation && !rank.executor->runValidation())
        return;
      if (Error error = rank.transport->disconnect())
        control.fail(std::move(error));
    };
    std::vector<std::thread> threads;
    try {
      for (LocalRank &rank : ranks)
        threads.emplace_back(runRank, std::ref(rank));
    } catch (const std::system_error &error) {
      control.fail({ErrorKind::DeviceError,
                    std::string("cannot start the thread of a rank: ") +
                        error.what() + "; run fewer ranks in one process"});
    }
    for (std::thread &thread : threads)
      thread.join();
    // All ranks count the same.
    report.voidSteps = numVoid[ranks.front().number];
    report.replayFault = ranks.front().executor->replayFault();
    // Of a failed run the first process records the last step of all ranks that
    // answer; the others need not wait.
    if (peers && control.failed())
      (void)join(recorder, peers->shareStates(ranks.front().number == 0
                                                  ? Watchdog::kAnswerTime
                                                  : 0));
    if (peers)
      peers->stop(control.failed());
  }

  if (control.failed())
    report.error = control.error();
  // Who has lost a peer cannot wait for it.
  if (report.error.kind != ErrorKind::LostPeer)
    report.error = agree(
        peers, report.error,
        report.error ? kMeetingTime : std::numeric_limits<double>::infinity());
  if (peers && !report.error) {
    std::string own;
    for (LocalRank &rank : ranks)
      own += recorder.pack(rank.number);
    const std::vector<std::string> all = peers->gather(own);
    if (all.empty())
      report.error = peers->lostPeer();
    for (size_t r = 0; r < all.size(); ++r)
      if (!recorder.unpack(static_cast<int32_t>(r), all[r]))
        report.error = {ErrorKind::Mismatch,
                        "rank " + std::to_string(r) +
                            " has recorded other steps than this one; use the "
                            "same build everywhere, and recorders of as many "
                            "steps",
                        {static_cast<int32_t>(r)}};
  }
  if (report.error)
    return report;
  if (options.onFinished) {
    std::vector<const Model *> view(numRanks);
    for (LocalRank &rank : ranks)
      view[rank.number] = rank.model.get();
    options.onFinished(view);
  }
  return report;
}

} // namespace penstock::runtime
