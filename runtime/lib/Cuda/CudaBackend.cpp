//===- CudaBackend.cpp - Ranks on GPUs ------------------------------------===//

#include "CudaDevice.h"
#include "NcclTransport.h"
#include "penstock/Runtime/Backend.h"

#include <condition_variable>
#include <cstdlib>
#include <numeric>

namespace penstock::runtime {

namespace {

/// An exchange between the threads of one process.
class Meeting {
public:
  explicit Meeting(int32_t numRanks) : brought(numRanks) {}

  Result<std::vector<std::string>>
  exchange(int32_t rank, const std::string &own, std::stop_token stop) {
    std::unique_lock lock(mutex);
    brought[rank] = own;
    const uint64_t round = numRounds;
    if (++numHere == brought.size()) {
      // Nobody comes back before all have taken this, so it may stay there.
      taken = brought;
      numHere = 0;
      ++numRounds;
      wake.notify_all();
    }
    if (!wake.wait(lock, stop, [&] { return numRounds != round; }))
      return Failure{"not all ranks have come"};
    return taken;
  }

private:
  std::mutex mutex;
  std::condition_variable_any wake;
  std::vector<std::string> brought, taken;
  size_t numHere = 0;
  uint64_t numRounds = 0;
};

class CudaBackend final : public Backend {
public:
  CudaBackend(int32_t numRanks, CudaOptions o, int numGpus)
      : numRanks(numRanks), options(std::move(o)) {
    if (options.localRanks.empty()) {
      options.localRanks.resize(numRanks);
      std::iota(options.localRanks.begin(), options.localRanks.end(), 0);
    }
    if (!options.exchange)
      options.exchange = [meeting = std::make_shared<Meeting>(numRanks)](
                             int32_t rank, const std::string &own,
                             std::stop_token stop) {
        return meeting->exchange(rank, own, std::move(stop));
      };
    gpus.resize(numRanks);
    for (size_t i = 0; i < options.localRanks.size(); ++i)
      gpus[options.localRanks[i]] = std::make_shared<CudaRank>(
          static_cast<int>((options.firstGpu + i) % numGpus));
  }

  Status select(int32_t rank) override {
    if (const cudaError_t code = gpus[rank]->bind(); code != cudaSuccess)
      return Failure{cudaError("cudaSetDevice", code).message};
    return success();
  }
  Result<std::unique_ptr<Device>> makeDevice(int32_t rank) override {
    return std::unique_ptr<Device>(
        std::make_unique<CudaDevice>(gpus[rank], options.ncclMemory));
  }
  Result<std::unique_ptr<Transport>> makeTransport(int32_t rank) override {
    return std::unique_ptr<Transport>(
        std::make_unique<NcclTransport>(gpus[rank], rank, numRanks, options));
  }
  std::vector<int32_t> localRanks() const override {
    return options.localRanks;
  }
  Peers *peers() override { return options.peers.get(); }

private:
  const int32_t numRanks;
  CudaOptions options;
  std::vector<std::shared_ptr<CudaRank>> gpus; ///< null: of other processes
};

} // namespace

Result<std::unique_ptr<Backend>> makeCudaBackend(int32_t numRanks,
                                                 const CudaOptions &options) {
  // A kernel that is loaded when it is first launched waits for an idle GPU,
  // and holds CUDA's lock meanwhile. But the GPU is not idle while a transfer
  // on another stream waits for a rank, which may wait for that very kernel: a
  // deadlock. CUDA reads this when it starts, with the first call.
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  int numGpus = 0;
  cudaError_t code = cudaGetDeviceCount(&numGpus);
  if (code == cudaSuccess && numGpus == 0)
    code = cudaErrorNoDevice;
  if (code != cudaSuccess)
    return Failure{
        cudaError("back end 'cuda': cudaGetDeviceCount", code).message};
  return std::unique_ptr<Backend>(
      std::make_unique<CudaBackend>(numRanks, options, numGpus));
}

} // namespace penstock::runtime
