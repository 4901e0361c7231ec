//===- OldWeights.h - Who needs which weights -------------------*- C++ -*-===//
//
// Schedules without a flush update while micro-batches are in the pipe. Whoever
// goes forward is noted, and goes back with the same weights; before an update
// the newest ones are copied if somebody needs them. This says which copy is
// whose; the copies are the model's.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_MODELS_OLDWEIGHTS_H
#define PENSTOCK_RUNTIME_MODELS_OLDWEIGHTS_H

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace penstock::runtime {

/// The versions of a stage's weights that micro-batches in the pipe still need,
/// beside the newest one. Without copies everything is the newest.
class OldWeights {
public:
  static constexpr int32_t kNewest = -1;

  OldWeights() = default;
  /// For so many copies, numbered from 0.
  OldWeights(int32_t count, int32_t numMicrobatches)
      : versionOf(numMicrobatches, kNewest), usersOf(count, 0) {
    newestUsers.reserve(numMicrobatches); // no allocation in a step
  }

  void goForward(int32_t microbatch) {
    if (usersOf.empty())
      return;
    versionOf[microbatch] = kNewest;
    newestUsers.push_back(microbatch);
  }
  /// The copy with the weights of the micro-batch, or kNewest.
  int32_t of(int32_t microbatch) const {
    return usersOf.empty() ? kNewest : versionOf[microbatch];
  }
  /// The micro-batch needs its weights no more.
  void leave(int32_t microbatch) {
    if (const int32_t version = of(microbatch); version != kNewest)
      --usersOf[version];
    else
      std::erase(newestUsers, microbatch);
  }
  /// The copy to which the newest weights must go before they change; kNewest
  /// if nobody needs them.
  int32_t beforeUpdate() {
    if (newestUsers.empty())
      return kNewest;
    const auto unused = std::ranges::find(usersOf, 0);
    if (unused == usersOf.end())
      throw std::logic_error("more versions of the weights are needed than the "
                             "program has room for");
    const auto version = static_cast<int32_t>(unused - usersOf.begin());
    for (int32_t microbatch : newestUsers)
      versionOf[microbatch] = version;
    *unused = static_cast<int32_t>(newestUsers.size());
    newestUsers.clear();
    return version;
  }

private:
  std::vector<int32_t> versionOf;   ///< of each micro-batch, a copy
  std::vector<int32_t> usersOf;     ///< of each copy; 0: it is free
  std::vector<int32_t> newestUsers; ///< micro-batches
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_MODELS_OLDWEIGHTS_H
