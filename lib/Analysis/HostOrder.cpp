//===- HostOrder.cpp - Programs that end even in host order ---------------===//

#include "HostOrder.h"

namespace penstock {

bool runsInHostOrder(const Channels &channels) {
  return runsInHostOrder(channels, [](std::span<const HostStepMember>) {});
}

} // namespace penstock
