//===- Messenger.cpp - Messages between the processes of a job ------------===//

#include "Messenger.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

namespace penstock::runtime {

Clock::duration toDuration(double seconds) {
  // Beyond this lies the end of the clock.
  constexpr double longest = 1e9;
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(seconds, longest)));
}

Patience Patience::of(double seconds) {
  Patience patience;
  if (std::isfinite(seconds))
    patience.end = Clock::now() + toDuration(seconds);
  return patience;
}

void Messenger::sendToAll(Stream stream, const std::string &bytes) {
  for (int p = 0; p < size; ++p)
    if (p != number)
      send(p, stream, bytes);
}

Messenger::Stream Messenger::open(Listener listener) {
  std::lock_guard lock(mutex);
  const Stream stream = numOpened++;
  const Listener &present =
      listeners.emplace(stream, std::move(listener)).first->second;
  if (auto waiting = early.extract(stream))
    for (const auto &[from, bytes] : waiting.mapped())
      present.onMessage(from, bytes);
  for (int p = 0; p < size; ++p)
    if (gone[p])
      present.onGone(p, *gone[p]);
  return stream;
}

void Messenger::close(Stream stream) {
  std::lock_guard lock(mutex);
  listeners.erase(stream);
}

void Messenger::hear(int from, Stream stream, std::string bytes) {
  ++numHeard[from];
  if (stream == kSigns) {
    if (!bytes.empty())
      send(from, kSigns, "");
    return;
  }
  std::lock_guard lock(mutex);
  if (const auto found = listeners.find(stream); found != listeners.end())
    found->second.onMessage(from, bytes);
  else if (stream >= numOpened)
    early[stream].emplace_back(from, std::move(bytes));
}

void Messenger::leave(int process, Farewell farewell) {
  std::lock_guard lock(mutex);
  if (gone[process])
    return;
  gone[process] = std::move(farewell);
  for (const auto &[stream, listener] : listeners)
    listener.onGone(process, *gone[process]);
}

void Messenger::setFault(const Error &error) {
  std::lock_guard lock(faultMutex);
  if (!ownFault)
    ownFault = error;
}

Error Messenger::fault() {
  std::lock_guard lock(faultMutex);
  return ownFault;
}

//===----------------------------------------------------------------------===//
// Meetings
//===----------------------------------------------------------------------===//

Meetings::Meetings(Messenger &messenger)
    : messenger(messenger), brought(messenger.size), gone(messenger.size) {
  Messenger::Listener listener;
  listener.onMessage = [this](int from, std::string_view bytes) {
    uint64_t meeting = 0;
    if (bytes.size() < sizeof(meeting))
      return;
    std::memcpy(&meeting, bytes.data(), sizeof(meeting));
    std::lock_guard lock(mutex);
    if (meeting >= numHeld)
      brought[from][meeting] = bytes.substr(sizeof(meeting));
    wake.notify_all();
  };
  listener.onGone = [this](int process, const Farewell &farewell) {
    std::lock_guard lock(mutex);
    gone[process] = farewell;
    wake.notify_all();
  };
  stream = messenger.open(std::move(listener));
}

namespace {
/// How long a process has given no sign of life, from when somebody waits for
/// it. Time in which this process itself was suspended does not count.
class Silence {
public:
  Silence(Messenger &messenger, int process)
      : messenger(messenger), process(process),
        numHeard(messenger.heardFrom(process)) {}

  /// Looks again, and asks now and then.
  bool isTooLong() {
    const auto now = Clock::now();
    if (const uint64_t count = messenger.heardFrom(process);
        count != std::exchange(numHeard, count))
      length = {};
    const Clock::duration longestLook = std::chrono::milliseconds(100);
    length += std::min(now - std::exchange(last, now), longestLook);
    const double longest = messenger.longestSilence;
    if (now >= nextQuestion) {
      messenger.askForSign(process);
      nextQuestion = now + toDuration(std::min(longest / 8, 1.0));
    }
    return length > toDuration(longest);
  }

private:
  Messenger &messenger;
  const int process;
  uint64_t numHeard;
  Clock::duration length{};
  Clock::time_point last = Clock::now(), nextQuestion = last;
};
} // namespace

Error Meetings::lost() {
  std::lock_guard lock(mutex);
  // Who was killed, or why somebody left, says more than that somebody left.
  Error result;
  for (int p = 0; p < messenger.size; ++p) {
    if (!gone[p] || (result && !gone[p]->wasKilled && !gone[p]->fault))
      continue;
    if (gone[p]->fault)
      return gone[p]->fault;
    result = {ErrorKind::LostPeer,
              "rank " + std::to_string(p) +
                  " is lost: its process has ended while others waited for it; "
                  "look for what it says itself",
              {p}};
  }
  return result ? result : silent;
}

std::vector<std::string> Meetings::gather(const std::string &own,
                                          const Patience &patience) {
  const uint64_t meeting = numHeld;
  std::string bytes(sizeof(meeting), '\0');
  std::memcpy(bytes.data(), &meeting, sizeof(meeting));
  messenger.sendToAll(stream, bytes + own);
  std::unique_lock lock(mutex);
  brought[messenger.number][meeting] = own;
  std::vector<std::string> all(messenger.size);
  for (int p = 0; p < messenger.size && !all.empty(); ++p) {
    Silence silence(messenger, p);
    while (true) {
      if (auto present = brought[p].extract(meeting)) {
        all[p] = std::move(present.mapped());
        break;
      }
      if (!silent && silence.isTooLong()) {
        char seconds[32];
        std::snprintf(seconds, sizeof(seconds), "%.3g s",
                      messenger.longestSilence);
        silent = {ErrorKind::LostPeer,
                  "rank " + std::to_string(p) +
                      " gives no sign of life while the others wait for it, "
                      "for " +
                      seconds + "; its process is frozen or lost",
                  {p}};
      }
      if (gone[p] || silent || patience.ended()) {
        all.clear();
        break;
      }
      // Nobody wakes whoever is aborted or has waited long enough.
      wake.wait_for(lock, std::chrono::milliseconds(5));
    }
  }
  ++numHeld;
  for (auto &waiting : brought)
    waiting.erase(meeting);
  return all;
}

} // namespace penstock::runtime
