//===- SocketTransport.h - Transfers over sockets ---------------*- C++ -*-===//
//
// The transport `sockets`. A receive says that it is there; only then the send
// that it meets writes its name and its data, straight from slot to slot, and
// ends. So nothing is buffered beyond what sockets hold of a transfer whose
// both ends are there, as in `loopback`. The receiver compares the name with
// what it expects.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_NET_SOCKETTRANSPORT_H
#define PENSTOCK_RUNTIME_NET_SOCKETTRANSPORT_H

#include "../Host/Counter.h"
#include "../Processes/ExchangeTransport.h"
#include "Mesh.h"

namespace penstock::runtime {

class SocketTransport final : public ExchangeTransport, private Endpoint {
public:
  /// `number` is that of the run, the same on all ranks.
  SocketTransport(Mesh &mesh, uint64_t number, Meetings &meetings)
      : ExchangeTransport(mesh.number, meetings), mesh(mesh),
        runNumber(number) {}
  ~SocketTransport() override { mesh.detach(id, *this); }
  void abort() override;

private:
  class SocketExchange;
  struct Channel;
  /// One end of a message, and what it writes for it.
  struct Post : Outgoing {
    Message message;
    SocketExchange *exchange = nullptr;
    Channel *channel = nullptr;
    Post *behind = nullptr; ///< in the channel
  };
  struct Queue {
    Post *head = nullptr, *tail = nullptr;
    void push(Post &post);
    Post *pop();
  };
  /// Of (kind of message, other rank).
  struct Channel {
    Queue sends;           ///< whose receives are not there yet
    uint64_t numReady = 0; ///< receives whose sends are not there yet
    Queue receives;        ///< whose data are to come
  };

  Error open(const ProgramHash &hash) override;
  Error join(std::span<const uint16_t>, uint32_t) override { return {}; }
  Result<std::unique_ptr<Exchange>>
  makeExchange(uint16_t comm, std::vector<Message> messages) override;

  void onReady(int from, const Header &header) override;
  std::byte *onData(int from, const Header &header) override;
  void onEnd(int from) override;
  void post(Post &post);

  Mesh &mesh;
  const uint64_t runNumber;
  uint64_t id = 0;  ///< of the program and the run
  std::mutex mutex; ///< of what follows
  std::map<std::pair<uint32_t, int>, Channel> channels;
  std::map<int, Post *> coming; ///< whose data come, of each rank
  std::vector<SocketExchange *> exchanges;
  std::byte nothing{}; ///< where empty data go
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_NET_SOCKETTRANSPORT_H
