//===- Transport.cpp - What all transports have in common -----------------===//

#include "penstock/Runtime/Transport.h"

#include "penstock/Program/Text.h"

namespace penstock::runtime {

Error compareEnds(const Instruction &from, const Instruction &to) {
  if (from.bytes == to.bytes && from.payload == to.payload &&
      from.stage == to.stage && from.microbatch == to.microbatch)
    return {};
  return {ErrorKind::Mismatch,
          "rank " + std::to_string(to.peer) + "'s " + quoted(from) + " of " +
              std::to_string(from.bytes) + " bytes meets rank " +
              std::to_string(from.peer) + "'s " + quoted(to) + " of " +
              std::to_string(to.bytes) + " bytes"};
}

} // namespace penstock::runtime
