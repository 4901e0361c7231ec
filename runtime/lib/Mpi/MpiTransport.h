//===- MpiTransport.h - Transfers between processes -------------*- C++ -*-===//
//
// The transport `mpi`: rank r is process r. A send is synchronous and so ends
// only when its receive is there, as in `loopback`: nothing relies on
// buffering. In front of each message goes its instruction, so that the
// receiver notices what does not belong together.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_MPI_MPITRANSPORT_H
#define PENSTOCK_RUNTIME_MPI_MPITRANSPORT_H

#include "World.h"
#include "penstock/Runtime/Transport.h"

#include <deque>
#include <map>

namespace penstock::runtime {

class MpiTransport final : public Transport {
public:
  /// `base` has one process for each rank. A communicator of the program gets
  /// a copy of it when the ranks connect.
  MpiTransport(MPI_Comm base, int32_t rank) : base(base), rank(rank) {}
  ~MpiTransport() override;

  Result<uint32_t> addGroup(std::span<const Transfer> members) override;
  Result<uint32_t> addCollective(const Instruction &instruction,
                                 std::span<const int32_t> ranks,
                                 std::span<float> values) override;
  Error connect(const ProgramHash &hash) override;
  Error run(uint32_t id, void *nativeQueue) override;
  void abort() override { aborted = true; }

private:
  /// One message and the label that goes in front of it, as persistent
  /// requests.
  struct Message {
    const Instruction *instruction = nullptr;
    bool sends = false;
    int32_t peer = 0;
    void *data = nullptr;
    int64_t bytes = 0;
    int tag = 0; ///< of the label; that of the data follows
    Instruction label;
    bool unchecked = false; ///< its label is to come
  };
  /// Requests 2 i and 2 i + 1 are of message i: its label, its data.
  struct Exchange {
    std::vector<Message> messages;
    std::vector<MPI_Request> requests;
  };
  /// A group is one exchange. A collective brings the values of all ranks to
  /// the first of them, which adds them in order, and takes the sums back.
  struct Operation {
    uint16_t comm = 0;
    Exchange out, back;
    bool isCollective = false;
    std::string key; ///< of a collective: what its ranks agree in
    std::span<float> values;
    std::vector<std::vector<float>> others; ///< on the first rank
  };

  Error makeRequests(Operation &operation, Exchange &exchange);
  Error compare(const ProgramHash &hash, std::vector<std::string> &all);
  Error run(Operation &operation, Exchange &exchange);
  Error checkLabel(const Operation &operation, const Message &message) const;

  const MPI_Comm base;
  const int32_t rank;
  std::atomic<bool> aborted = false;
  std::deque<Operation> operations;
  std::map<uint16_t, MPI_Comm> comms; ///< of the program
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_MPI_MPITRANSPORT_H
