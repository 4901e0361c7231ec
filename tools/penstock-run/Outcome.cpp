//===- Outcome.cpp - How a run ends ---------------------------------------===//

#include "Outcome.h"

#include "Core/Bytes.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <mutex>

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

using namespace penstock;
using namespace penstock::run;
using namespace penstock::runtime;

Fault::Fault(const Error &error)
    : code(error.kind == ErrorKind::InvalidProgram ||
                   error.kind == ErrorKind::BadModel
               ? BadInput
               : Failed),
      kind(name(error.kind)), message(error.message), rank(error.site.rank) {}

Error Fault::forOthers(int32_t process) const {
  if (kind == name(ErrorKind::LostPeer))
    return {ErrorKind::LostPeer, message, {rank}};
  return {ErrorKind::Aborted,
          "process " + std::to_string(process) + ": " + message,
          {process}};
}

Fault run::agree(Job *job, const Fault &own) {
  if (!job)
    return own;
  std::string bytes;
  append(bytes, own.code);
  append(bytes, own.rank);
  appendText(bytes, own.kind);
  appendText(bytes, own.message);
  const auto all = job->gather(bytes);
  if (all.empty())
    return own.code == Fine ? Fault(job->lostPeer()) : own;
  for (size_t p = 0; p < all.size(); ++p) {
    std::string_view rest = all[p];
    Fault fault;
    fault.code = take<ExitCode>(rest);
    fault.rank = take<int32_t>(rest);
    fault.kind = takeText(rest);
    fault.message = takeText(rest);
    if (fault.code == Fine)
      continue;
    if (p > 0)
      fault.message = "process " + std::to_string(p) + ": " + fault.message;
    return fault;
  }
  return {};
}

JsonObject run::emptyReport() {
  JsonObject json;
  json.set("ok", false);
  json.set("steps", 0);
  return json;
}

int run::finish(const Options &options, JsonObject json, const Fault &fault,
                bool speaks) {
  json.set("ok", fault.code == Fine);
  if (fault.code != Fine) {
    JsonObject &error = json.object("error");
    error.set("kind", fault.kind);
    error.set("message", fault.message);
    error.set("rank", fault.rank);
  }
  if (options.json && speaks)
    std::cout << json.str() << std::endl;
  // In one piece: mpirun mixes what processes write.
  if (fault.code != Fine)
    std::cerr << "penstock-run: " + fault.message + "\n" << std::flush;
  return fault.code;
}

void run::endJob(Job &job, const Options &options, const JsonObject &json,
                 const Fault &fault, std::stop_token stop) {
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

void LastResort::operator()(const Error &error) {
  if (error.kind != ErrorKind::Timeout)
    return;
  try {
    thread = std::jthread([this,
                           error = Error(error)](std::stop_token stop) mutable {
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable_any wake;
      wake.wait_for(lock, stop, std::chrono::seconds(10), [] { return false; });
      if (stop.stop_requested())
        return;
      error.message += "\nthe call does not return; giving up";
      finish(error);
    });
  } catch (const std::system_error &) {
    // Then the run ends when the call does.
  }
}

std::stop_token run::stopBySignals() {
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
