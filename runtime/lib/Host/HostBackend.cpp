//===- HostBackend.cpp - All ranks on threads of one process --------------===//

#include "HostDevice.h"
#include "Loopback.h"
#include "penstock/Runtime/Backend.h"

namespace penstock::runtime {

namespace {
class HostBackend final : public Backend {
public:
  explicit HostBackend(int32_t numRanks)
      : world(std::make_shared<LoopbackWorld>(numRanks)) {}

  Result<std::unique_ptr<Device>> makeDevice(int32_t) override {
    return std::unique_ptr<Device>(std::make_unique<HostDevice>());
  }
  Result<std::unique_ptr<Transport>> makeTransport(int32_t rank) override {
    return std::unique_ptr<Transport>(
        std::make_unique<LoopbackTransport>(world, rank));
  }

private:
  std::shared_ptr<LoopbackWorld> world;
};
} // namespace

std::unique_ptr<Backend> makeHostBackend(int32_t numRanks) {
  return std::make_unique<HostBackend>(numRanks);
}

} // namespace penstock::runtime
