//===- Messenger.h - Messages between the processes of a job ----*- C++ -*-===//
//
// Small messages from any process to any other, beside the transfers of a run.
// They belong to streams, so that what a late process still says about one run
// is not heard in the next. All that processes agree on is built on this; a
// connection between processes, MPI or sockets, only carries the messages.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_PROCESSES_MESSENGER_H
#define PENSTOCK_RUNTIME_PROCESSES_MESSENGER_H

#include "penstock/Runtime/Error.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace penstock::runtime {

using Clock = std::chrono::steady_clock;

/// So many seconds, or no end of time.
Clock::duration toDuration(double seconds);

/// How long to wait for other processes.
struct Patience {
  const std::atomic<bool> *aborted = nullptr; ///< until it is set
  Clock::time_point end = Clock::time_point::max();

  static Patience of(double seconds);
  bool ended() const {
    return (aborted && *aborted) ||
           (end != Clock::time_point::max() && Clock::now() >= end);
  }
};

/// How a process has gone.
struct Farewell {
  bool wasKilled = false; ///< it did not say so
  Error fault;            ///< why, if it said that
};

class Messenger {
public:
  using Stream = uint64_t;
  /// Called one at a time, from a thread of the messenger. May send, but must
  /// not wait.
  struct Listener {
    std::function<void(int from, std::string_view bytes)> onMessage;
    /// This process sends no more.
    std::function<void(int process, const Farewell &farewell)> onGone;
  };

  Messenger(int size, int number)
      : size(size), number(number), numHeard(size), gone(size) {}
  virtual ~Messenger() = default;

  const int size, number;

  /// Sends without waiting.
  virtual void send(int to, Stream stream, std::string bytes) = 0;
  void sendToAll(Stream stream, const std::string &bytes);

  /// A new stream; all processes open theirs in the same order. Hears what has
  /// come for it already, and who has gone.
  Stream open(Listener listener);
  /// From now on nobody listens; returns when no call is under way.
  void close(Stream stream);
  /// Returns when no call is under way that began before.
  void settle() { std::lock_guard lock(mutex); }

  /// Why this process will go, for its good-bye. The first fault counts.
  void setFault(const Error &error);

  /// For how many seconds a process for which others wait in a meeting may give
  /// no sign of life. Set before the first meeting.
  double longestSilence = std::numeric_limits<double>::infinity();
  /// Has a process give a sign of life: its messenger answers, whatever the
  /// process is doing.
  void askForSign(int process) { send(process, kSigns, "?"); }
  /// Messages that have come from a process.
  uint64_t heardFrom(int process) const { return numHeard[process].load(); }

protected:
  /// \name Of the thread that hears
  /// @{
  void hear(int from, Stream stream, std::string bytes);
  void leave(int process, Farewell farewell);
  /// @}
  /// What setFault has said.
  Error fault();

private:
  /// The stream of signs of life, which is always open.
  static constexpr Stream kSigns = ~Stream(0);

  std::vector<std::atomic<uint64_t>> numHeard;
  std::mutex mutex;
  std::vector<std::optional<Farewell>> gone;
  Stream numOpened = 0;
  std::map<Stream, Listener> listeners;
  /// What has come for streams that are not open yet.
  std::map<Stream, std::vector<std::pair<int, std::string>>> early;
  std::mutex faultMutex;
  Error ownFault;
};

/// Meetings of all processes, one after the other.
class Meetings {
public:
  explicit Meetings(Messenger &messenger);
  ~Meetings() { messenger.close(stream); }

  /// What each process has brought, by number; nothing if the patience ended
  /// before, or one that has not come has gone or is silent for too long.
  std::vector<std::string> gather(const std::string &own,
                                  const Patience &patience);
  /// Why not all can meet any more: the fault with which a process has gone, or
  /// that it gives no sign of life; none: all are there.
  Error lost();

private:
  Messenger &messenger;
  std::mutex mutex;
  std::condition_variable wake;
  uint64_t numHeld = 0;
  /// Of each process, what it has brought to the present and to later meetings.
  std::vector<std::map<uint64_t, std::string>> brought;
  std::vector<std::optional<Farewell>> gone;
  Error silent; ///< a process was, for too long
  Messenger::Stream stream;
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_PROCESSES_MESSENGER_H
