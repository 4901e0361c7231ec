//===- MessagePeers.h - What processes tell each other ----------*- C++ -*-===//
//
// The peers of a run over any messenger: results, faults, signs of life and
// where each rank is are messages to all. A thread sends the signs of life, and
// another one hands out results, so that a caller who takes his time with those
// is not taken for frozen.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_PROCESSES_MESSAGEPEERS_H
#define PENSTOCK_RUNTIME_PROCESSES_MESSAGEPEERS_H

#include "Messenger.h"
#include "penstock/Runtime/Backend.h"

#include <deque>
#include <thread>

namespace penstock::runtime {

class MessagePeers final : public Peers {
public:
  explicit MessagePeers(Messenger &messenger);
  ~MessagePeers() override;

  Error listen(Listener who, size_t values, double seconds) override;
  void post(std::span<const double> values) override;
  void tell(const Error &error) override;
  std::vector<int32_t> silentRanks(double seconds) override;
  std::vector<std::string> askStates(double seconds) override;
  std::vector<std::string> shareStates(double seconds) override;
  void stop(bool atOnce) override;
  Error lostPeer() override;
  std::vector<std::string> gather(const std::string &own,
                                  double seconds) override {
    return meetings.gather(own, Patience::of(seconds));
  }

private:
  /// The first byte of a message.
  enum Tag : char { IsHere, IsAtWork, HasStep, HasFailed, AsksState, HasState };
  struct Process {
    Clock::time_point lastHeard;
    std::string lastEnded; ///< in words
    uint64_t numSteps = 0; ///< that it has posted
    bool isGone = false;
    bool hasAnswered = false;
    std::string state;
  };
  struct Step {
    std::vector<double> all;
    int numHeard = 0;
  };

  void sendToAll(Tag tag, std::string_view bytes = {});
  void hear(int from, std::string_view bytes);
  void hearGone(int process, const Farewell &farewell);
  void addStep(int process, std::string_view bytes);
  Error describeLoss(int process, const Farewell &farewell) const;
  std::vector<std::string> awaitStates(double seconds, bool untilFault);
  void sendBeats();
  void handOutSteps();

  Messenger &messenger;
  Meetings meetings;
  Listener listener;
  size_t numValues = 0;
  Clock::duration beat{};

  std::mutex mutex; ///< of what follows
  std::condition_variable wake;
  bool listening = false, stopping = false;
  bool faultKnown = false; ///< then not all steps will end
  std::vector<Process> processes;
  std::deque<Step> steps; ///< not handed out yet
  uint64_t firstStep = 0; ///< number of the first of them
  std::vector<std::pair<int, std::string>> early; ///< before listen
  Error lost;
  std::vector<std::thread> threads;
  Messenger::Stream stream;
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_PROCESSES_MESSAGEPEERS_H
