//===- ExchangeTransport.h - Transfers between processes --------*- C++ -*-===//
//
// What the transports between processes have in common: rank r is process r,
// and whatever the program asks for is an exchange of messages with other
// ranks, under strict rendezvous. A group is one exchange. A collective brings
// the values of all ranks to the first of them, which adds them in order, and
// takes the sums back.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_PROCESSES_EXCHANGETRANSPORT_H
#define PENSTOCK_RUNTIME_PROCESSES_EXCHANGETRANSPORT_H

#include "Messenger.h"
#include "penstock/Runtime/Transport.h"

#include <deque>
#include <memory>

namespace penstock::runtime {

/// One end of a message. The i-th send of a (channel, source, destination)
/// meets the i-th receive.
struct Message {
  bool sends = false;
  int32_t peer = 0;
  void *data = nullptr;
  int64_t bytes = 0;
  /// Kinds of messages, numbered alike on all ranks.
  uint32_t channel = 0;
  /// What it is; of a collective with its bytes, and what its ranks agree in.
  Instruction label;
};

/// Messages that are posted together, again and again.
class Exchange {
public:
  virtual ~Exchange() = default;
  /// Ends when all messages have. No send ends before its receive is there.
  virtual Error run() = 0;
};

/// Fails with Mismatch when a send with this label does not belong to the
/// receive `own` that it meets.
Error compareLabels(const Instruction &send, const Message &own);

class ExchangeTransport : public Transport {
public:
  /// `meetings` are of this transport alone, and outlive it.
  ExchangeTransport(int32_t rank, Meetings &meetings)
      : rank(rank), meetings(meetings) {}

  Result<uint32_t> addGroup(std::span<const Transfer> members) override;
  Result<uint32_t> addCollective(const Instruction &instruction,
                                 std::span<const int32_t> ranks,
                                 std::span<float> values) override;
  Error connect(const ProgramHash &hash) override;
  Error run(uint32_t id, void *nativeQueue) override;
  void abort() override { aborted = true; }

protected:
  /// Begins before any rank can send; `hash` is that of the program.
  virtual Error open(const ProgramHash &) { return {}; }
  /// When all ranks are there. `comms` are the communicators of the program.
  virtual Error join(std::span<const uint16_t> comms, uint32_t numChannels) = 0;
  virtual Result<std::unique_ptr<Exchange>>
  makeExchange(uint16_t comm, std::vector<Message> messages) = 0;
  /// Why a message of so many bytes cannot be; success: it can.
  virtual Status checkBytes(int64_t) const { return success(); }

  const int32_t rank;
  std::atomic<bool> aborted = false;

private:
  struct Operation {
    uint16_t comm = 0;
    std::vector<Message> out, back;
    std::unique_ptr<Exchange> exchanges[2]; ///< of these; null: nothing to do
    std::string key; ///< of a collective: what its ranks agree in
    std::span<float> values;
    std::vector<std::vector<float>> others; ///< on the first rank
  };

  static std::string nameOf(const Operation &operation);
  Error compare(const ProgramHash &hash, std::vector<std::string> &all);

  Meetings &meetings;
  std::deque<Operation> operations;
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_PROCESSES_EXCHANGETRANSPORT_H
