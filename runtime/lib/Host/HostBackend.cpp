//===- HostBackend.cpp - All ranks on threads of one process --------------===//

#include "HostDevice.h"
#include "Loopback.h"
#include "penstock/Runtime/Backend.h"

#include <numeric>

namespace penstock::runtime {

namespace {
class HostBackend final : public Backend {
public:
  explicit HostBackend(int32_t numRanks)
      : numRanks(numRanks), world(std::make_shared<LoopbackWorld>(numRanks)) {}

  Result<std::unique_ptr<Device>> makeDevice(int32_t) override {
    return std::unique_ptr<Device>(std::make_unique<HostDevice>());
  }
  Result<std::unique_ptr<Transport>> makeTransport(int32_t rank) override {
    return std::unique_ptr<Transport>(
        std::make_unique<LoopbackTransport>(world, rank));
  }
  std::vector<int32_t> localRanks() const override {
    std::vector<int32_t> ranks(numRanks);
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

private:
  const int32_t numRanks;
  std::shared_ptr<LoopbackWorld> world;
};
} // namespace

std::unique_ptr<Backend> makeHostBackend(int32_t numRanks) {
  return std::make_unique<HostBackend>(numRanks);
}

} // namespace penstock::runtime
