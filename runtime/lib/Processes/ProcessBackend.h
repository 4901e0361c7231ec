//===- ProcessBackend.h - One rank in each process of a job -----*- C++ -*-===//
//
// The back end and the job that MPI and sockets share: a job over a messenger,
// and the device `host` with a transport of the job.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_PROCESSES_PROCESSBACKEND_H
#define PENSTOCK_RUNTIME_PROCESSES_PROCESSBACKEND_H

#include "Messenger.h"
#include "penstock/Runtime/Job.h"

namespace penstock::runtime {

/// Makes the transport of this process, which meets those of the others in
/// these meetings.
using TransportMaker = std::function<std::unique_ptr<Transport>(Meetings &)>;

/// A job whose processes speak through `messenger`.
class MessageJob : public Job {
public:
  explicit MessageJob(std::unique_ptr<Messenger> messenger)
      : messages(std::move(messenger)), meetings(*messages) {}
  int32_t size() const override { return messages->size; }
  int32_t number() const override { return messages->number; }
  int32_t localNumber() const override { return local; }
  std::vector<std::string> gather(const std::string &own,
                                  double seconds) override {
    return meetings.gather(own, Patience::of(seconds));
  }
  Error lostPeer() override { return meetings.lost(); }
  std::unique_ptr<Peers> makePeers() override;
  ExchangeFn makeExchange() override;

protected:
  Messenger &messenger() { return *messages; }
  /// Finds the local number from the names of all machines, unless the launcher
  /// has said it.
  void findNeighbours(std::optional<int32_t> said = {});
  /// As Job::checkRanks; `launcher` has started the processes, and `option`
  /// tells it how many to start.
  Status checkRanks(int32_t numRanks, const std::string &launcher,
                    const std::string &option);
  std::unique_ptr<Backend> makeProcessBackend(TransportMaker maker);

private:
  const std::unique_ptr<Messenger> messages;
  Meetings meetings;
  int32_t local = 0;
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_PROCESSES_PROCESSBACKEND_H
