//===- SocketJob.cpp - Processes connected by sockets ---------------------===//

#include "../Processes/ProcessBackend.h"
#include "Rendezvous.h"
#include "SocketTransport.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>

namespace penstock::runtime {

namespace {
class SocketJob final : public MessageJob {
public:
  SocketJob(std::unique_ptr<Mesh> owned, const Place &place,
            const std::string &met, double timeout)
      : MessageJob(std::move(owned)),
        description("process " + std::to_string(place.number) + " of " +
                    std::to_string(place.size) + ", as " + place.source +
                    " say; they met at " + met + " (" + place.where + ")") {
    messenger().longestSilence = std::max(timeout, 1.0);
    findNeighbours(place.localNumber);
  }
  std::string describe() const override { return description; }
  Status checkRanks(int32_t numRanks) override {
    return MessageJob::checkRanks(numRanks, "the launcher", "--world-size=");
  }
  Result<std::unique_ptr<Backend>> makeBackend(int32_t numRanks) override {
    if (Status status = checkRanks(numRanks); !status)
      return status.failure();
    return makeProcessBackend([this, run = numRuns++](Meetings &meetings) {
      return std::make_unique<SocketTransport>(static_cast<Mesh &>(messenger()),
                                               run, meetings);
    });
  }
  bool endsTogether() const override { return false; }
  void fail(int, const Error &fault) override {
    messenger().setFault(fault);
    static_cast<Mesh &>(messenger()).close();
  }

private:
  const std::string description;
  uint64_t numRuns = 0;
};
} // namespace

Result<std::unique_ptr<Job>> makeSocketJob(const Rendezvous &rendezvous) {
  Result<Place> place =
      findPlace(rendezvous, [](const char *name) { return std::getenv(name); });
  if (!place)
    return place.failure();
  Result<Connections> connections =
      meetOthers(*place, rendezvous.address, rendezvous.timeout);
  if (!connections)
    return connections.failure();
  try {
    return std::unique_ptr<Job>(std::make_unique<SocketJob>(
        std::make_unique<Mesh>(std::move(connections->sockets), place->number),
        *place, connections->met, rendezvous.timeout));
  } catch (const std::system_error &error) {
    return Failure{std::string("cannot start the thread that hears the other "
                               "processes: ") +
                   error.what()};
  }
}

} // namespace penstock::runtime
