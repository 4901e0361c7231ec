//===- ProcessBackend.cpp - One rank in each process of a job -------------===//

#include "ProcessBackend.h"

#include "../Host/HostDevice.h"
#include "MessagePeers.h"
#include "penstock/Program/Text.h"

#include <unistd.h>

#include <fstream>

namespace penstock::runtime {

namespace {
class ProcessBackend final : public Backend {
public:
  ProcessBackend(Messenger &messenger, TransportMaker maker)
      : rank(messenger.number), others(messenger), meetings(messenger),
        maker(std::move(maker)) {}

  Result<std::unique_ptr<Device>> makeDevice(int32_t) override {
    return std::unique_ptr<Device>(std::make_unique<HostDevice>());
  }
  Result<std::unique_ptr<Transport>> makeTransport(int32_t) override {
    return maker(meetings);
  }
  std::vector<int32_t> localRanks() const override { return {rank}; }
  Peers *peers() override { return &others; }

private:
  const int32_t rank;
  MessagePeers others;
  Meetings meetings; ///< of the transport
  const TransportMaker maker;
};
} // namespace

std::optional<std::string> Job::broadcast(const std::string &bytes,
                                          int32_t from) {
  std::vector<std::string> all =
      gather(number() == from ? bytes : std::string());
  if (all.empty())
    return std::nullopt;
  return std::move(all[from]);
}

std::unique_ptr<Peers> MessageJob::makePeers() {
  return std::make_unique<MessagePeers>(*messages);
}

ExchangeFn MessageJob::makeExchange() {
  return [own = std::make_shared<Meetings>(*messages)](
             int32_t, const std::string &bytes,
             std::stop_token stop) -> Result<std::vector<std::string>> {
    std::atomic<bool> aborted = false;
    std::stop_callback callback(stop, [&] { aborted = true; });
    auto all = own->gather(bytes, {&aborted});
    if (!all.empty())
      return all;
    return Failure{aborted ? "not all ranks have come" : own->lost().message};
  };
}

void MessageJob::findNeighbours(std::optional<int32_t> said) {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  // Containers may share a name.
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  const std::vector<std::string> all = gather(
      std::string(host) + " " + boot, std::numeric_limits<double>::infinity());
  for (int32_t p = 0; p < number() && !all.empty(); ++p)
    local += all[p] == all[number()];
  local = said.value_or(local);
}

Status MessageJob::checkRanks(int32_t numRanks, const std::string &launcher,
                              const std::string &option) {
  // All processes find the same fault, even if they have different programs.
  const auto all =
      gather(std::to_string(numRanks), std::numeric_limits<double>::infinity());
  if (all.empty())
    return Failure{meetings.lost().message};
  for (const std::string &text : all)
    if (const int number = std::stoi(text); number != size())
      return Failure{"the program has " + counted(number, "rank") + ", but " +
                     launcher + " has started " + std::to_string(size()) +
                     (size() == 1 ? " process" : " processes") +
                     "; start it with " + option + std::to_string(number)};
  return success();
}

std::unique_ptr<Backend> MessageJob::makeProcessBackend(TransportMaker maker) {
  return std::make_unique<ProcessBackend>(*messages, std::move(maker));
}

} // namespace penstock::runtime
