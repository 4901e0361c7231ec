//===- MessagePeers.cpp - What processes tell each other ------------------===//

#include "MessagePeers.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <system_error>

namespace penstock::runtime {

MessagePeers::MessagePeers(Messenger &messenger)
    : messenger(messenger), meetings(messenger), processes(messenger.size) {
  stream = messenger.open(
      {[this](int from, std::string_view bytes) { hear(from, bytes); },
       [this](int process, const Farewell &farewell) {
         hearGone(process, farewell);
       }});
}

MessagePeers::~MessagePeers() {
  stop(true);
  messenger.close(stream);
}

void MessagePeers::sendToAll(Tag tag, std::string_view bytes) {
  messenger.sendToAll(stream, std::string(1, tag).append(bytes));
}

//===----------------------------------------------------------------------===//
// Of the run
//===----------------------------------------------------------------------===//

Error MessagePeers::listen(Listener who, size_t values, double seconds) {
  std::vector<std::pair<int, std::string>> waiting;
  Error error;
  {
    std::lock_guard lock(mutex);
    listener = std::move(who);
    numValues = values;
    beat = toDuration(seconds);
    listening = true;
    for (Process &process : processes)
      process.lastHeard = Clock::now();
    waiting.swap(early);
    error = lost;
  }
  for (const auto &[from, bytes] : waiting)
    hear(from, bytes);
  if (error)
    return error;
  try {
    threads.emplace_back([this] { sendBeats(); });
    threads.emplace_back([this] { handOutSteps(); });
  } catch (const std::system_error &failure) {
    return {ErrorKind::DeviceError,
            std::string("cannot start a thread that speaks with the other "
                        "processes: ") +
                failure.what()};
  }
  return {};
}

void MessagePeers::post(std::span<const double> values) {
  const std::string_view bytes(reinterpret_cast<const char *>(values.data()),
                               values.size_bytes());
  sendToAll(HasStep, bytes);
  addStep(messenger.number, bytes);
}

void MessagePeers::tell(const Error &error) {
  {
    std::lock_guard lock(mutex);
    faultKnown = true;
  }
  wake.notify_all();
  messenger.setFault(error);
  sendToAll(HasFailed, pack(error));
}

void MessagePeers::stop(bool atOnce) {
  {
    std::unique_lock lock(mutex);
    wake.wait(lock, [&] {
      return atOnce || faultKnown || steps.empty() || threads.size() < 2;
    });
    stopping = true;
  }
  wake.notify_all();
  for (std::thread &thread : threads)
    thread.join();
  threads.clear();
  {
    std::lock_guard lock(mutex);
    listening = false;
  }
  messenger.settle();
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

void MessagePeers::hear(int from, std::string_view bytes) {
  if (bytes.empty())
    return;
  const std::string_view rest = bytes.substr(1);
  {
    std::lock_guard lock(mutex);
    if (!listening) {
      if (!stopping)
        early.emplace_back(from, bytes);
      return;
    }
    Process &process = processes[from];
    process.lastHeard = Clock::now();
    switch (bytes.front()) {
    case IsHere:
    case IsAtWork:
      process.lastEnded = rest;
      break;
    case HasFailed:
      faultKnown = true;
      break;
    case HasState:
      process.hasAnswered = true;
      process.state = rest;
      break;
    }
  }
  switch (bytes.front()) {
  case IsAtWork:
    listener.onWork();
    break;
  case HasStep:
    addStep(from, rest);
    break;
  case HasFailed: {
    wake.notify_all();
    Error error = unpackError(rest);
    messenger.setFault(error);
    listener.onError(std::move(error));
    break;
  }
  case AsksState:
    messenger.send(from, stream,
                   std::string(1, HasState).append(listener.state()));
    break;
  case HasState:
    wake.notify_all();
    break;
  }
}

void MessagePeers::addStep(int process, std::string_view bytes) {
  {
    std::lock_guard lock(mutex);
    const uint64_t index = processes[process].numSteps++ - firstStep;
    if (bytes.size() != numValues * sizeof(double))
      return;
    while (steps.size() <= index)
      steps.emplace_back().all.resize(numValues * messenger.size);
    std::memcpy(&steps[index].all[process * numValues], bytes.data(),
                bytes.size());
    ++steps[index].numHeard;
  }
  wake.notify_all();
}

void MessagePeers::handOutSteps() {
  std::unique_lock lock(mutex);
  while (true) {
    const auto isComplete = [&] {
      return !steps.empty() && steps.front().numHeard == messenger.size;
    };
    wake.wait(lock, [&] { return stopping || isComplete(); });
    if (stopping)
      return;
    const std::vector<double> all = std::move(steps.front().all);
    lock.unlock();
    listener.onStep(all);
    lock.lock();
    steps.pop_front();
    ++firstStep;
    wake.notify_all();
  }
}

void MessagePeers::sendBeats() {
  std::unique_lock lock(mutex);
  while (!wake.wait_for(lock, beat, [&] { return stopping; })) {
    lock.unlock();
    const Tag tag = listener.isAtWork() ? IsAtWork : IsHere;
    sendToAll(tag, listener.lastEnded());
    lock.lock();
  }
}

//===----------------------------------------------------------------------===//
// Who does not speak
//===----------------------------------------------------------------------===//

void MessagePeers::hearGone(int process, const Farewell &farewell) {
  Error error;
  {
    std::lock_guard lock(mutex);
    processes[process].isGone = true;
    // Who has failed, or has ended the run, may go.
    if (faultKnown || lost || (!farewell.wasKilled && !listening))
      return;
    error = lost = describeLoss(process, farewell);
    if (!listening)
      return;
    faultKnown = true;
  }
  wake.notify_all();
  // Perhaps only the connection to this process has broken.
  messenger.setFault(error);
  sendToAll(HasFailed, pack(error));
  listener.onError(std::move(error));
}

Error MessagePeers::describeLoss(int process, const Farewell &farewell) const {
  if (farewell.fault)
    return farewell.fault;
  const Process &gone = processes[process];
  std::string message = "rank " + std::to_string(process) + " is lost: ";
  message += farewell.wasKilled
                 ? "its process was killed, has crashed or cannot be "
                   "reached any more"
                 : "its process has left the run";
  message +=
      gone.lastEnded.empty()
          ? "; it is not known to have ended anything"
          : "; the last that it is known to have ended is " + gone.lastEnded;
  return {ErrorKind::LostPeer, std::move(message), {process}};
}

Error MessagePeers::lostPeer() {
  std::lock_guard lock(mutex);
  return lost ? lost : meetings.lost();
}

std::vector<int32_t> MessagePeers::silentRanks(double seconds) {
  std::vector<int32_t> silent;
  std::lock_guard lock(mutex);
  for (int p = 0; p < messenger.size; ++p)
    if (p != messenger.number &&
        Clock::now() - processes[p].lastHeard > toDuration(seconds))
      silent.push_back(p);
  return silent;
}

std::vector<std::string> MessagePeers::askStates(double seconds) {
  {
    std::lock_guard lock(mutex);
    for (Process &process : processes)
      process.hasAnswered = false;
  }
  sendToAll(AsksState);
  return awaitStates(seconds, /*untilFault=*/true);
}

std::vector<std::string> MessagePeers::shareStates(double seconds) {
  sendToAll(HasState, listener.state());
  return awaitStates(seconds, /*untilFault=*/false);
}

/// The states of those who have answered, within so many seconds.
std::vector<std::string> MessagePeers::awaitStates(double seconds,
                                                   bool untilFault) {
  // Who has been silent for some beats will not answer either.
  const auto now = Clock::now();
  const auto done = [&](const Process &process) {
    return process.hasAnswered || process.isGone ||
           &process == &processes[messenger.number] ||
           now - process.lastHeard > 4 * beat;
  };
  std::unique_lock lock(mutex);
  wake.wait_for(lock, toDuration(seconds), [&] {
    return (untilFault && faultKnown) ||
           std::all_of(processes.begin(), processes.end(), done);
  });
  std::vector<std::string> states;
  for (Process &process : processes)
    states.push_back(process.hasAnswered ? process.state : std::string());
  return states;
}

} // namespace penstock::runtime
