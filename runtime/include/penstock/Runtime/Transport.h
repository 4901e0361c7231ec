//===- Transport.h - Sends, receives and collectives of one rank *- C++ -*-===//
//
// What the executor asks of the connection to other ranks. Everything is
// registered before the first step (a back end may make persistent requests of
// it) and then run by its number, inside the work of a queue.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_TRANSPORT_H
#define PENSTOCK_RUNTIME_TRANSPORT_H

#include "penstock/Program/File.h"
#include "penstock/Runtime/Error.h"

#include <cstddef>
#include <span>

namespace penstock::runtime {

/// One transfer and its memory, of `instruction->bytes` bytes.
struct Transfer {
  const Instruction *instruction = nullptr; ///< outlives the transport
  std::byte *data = nullptr;
};

/// Fails with Mismatch when a send and the receive that it meets do not belong
/// together: their sizes or names differ.
Error compareEnds(const Instruction &send, const Instruction &recv);

/// The endpoint of one rank. `add...` and `connect` come from one thread; `run`
/// comes from inside work, of several queues at a time if they use different
/// communicators; `abort` comes from any thread.
class Transport {
public:
  virtual ~Transport() = default;

  /// \name Preparation
  /// @{

  /// Registers a group of transfers, or a single one.
  virtual Result<uint32_t> addGroup(std::span<const Transfer> members) = 0;
  /// Registers a barrier or an all_reduce over `ranks` (sorted, with this
  /// rank). The ranks meet in those of equal (op, comm, ranks, stage, mb), the
  /// i-th with the i-th. An all_reduce leaves in `values` of every rank the
  /// sum, added in the order of the ranks.
  virtual Result<uint32_t> addCollective(const Instruction &instruction,
                                         std::span<const int32_t> ranks,
                                         std::span<float> values) = 0;
  /// Meets all ranks once, makes all connections and compares the programs.
  virtual Error connect(const ProgramHash &hash) = 0;
  /// All ranks alike, not inside a step: the first of the texts, by rank, that
  /// is not empty; empty if all are.
  virtual std::string agree(const std::string &text) { return text; }
  /// @}

  /// Runs what was registered as `id`: the members of a group are posted
  /// together, the i-th send of a channel (comm, source, destination) meets the
  /// i-th receive, and the group ends when all members have. No send ends
  /// before its receive is there, unless the library below buffers it. Ends
  /// where host work runs on the queue, else is issued to `nativeQueue`.
  virtual Error run(uint32_t id, void *nativeQueue) = 0;
  /// What has gone wrong with what was issued, as far as that is known.
  virtual Error check() { return {}; }

  /// Behind the last step, all ranks alike: leaves the others in peace. Without
  /// it the end of a transport is an abort.
  virtual Error disconnect() { return {}; }
  /// Ends everything that waits, on this rank, with ErrorKind::Aborted.
  virtual void abort() = 0;
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_TRANSPORT_H
