//===- Mesh.h - A connection from each process to each ----------*- C++ -*-===//
//
// Carries messages and the data of transfers between the processes of a job,
// over one socket a pair. One thread reads all sockets, and writes what did not
// fit into them at once. It never waits for anybody else, so that the sockets
// are always emptied and nobody who writes can block another.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_NET_MESH_H
#define PENSTOCK_RUNTIME_NET_MESH_H

#include "../Processes/Messenger.h"
#include "Socket.h"

#include <cstddef>
#include <memory>
#include <thread>

namespace penstock::runtime {

/// In front of everything that goes through a socket.
struct Header {
  enum Kind : uint8_t {
    Text,  ///< `bytes` of a message of the stream `id`
    Ready, ///< a receive is there, with this name and size
    Data,  ///< `bytes` of a send with this name follow
    Bye,   ///< nothing more comes; `bytes` of why, or none
  };
  uint64_t id = 0; ///< of a stream, or of an endpoint: see Mesh::attach
  int64_t bytes = 0;
  uint32_t channel = 0;
  int32_t stage = 0, microbatch = 0;
  uint8_t payload = 0;
  uint8_t op = 0;
  Kind kind = Text;
  uint8_t magic = kMagic;

  static constexpr uint8_t kMagic = 0xa5;
};
static_assert(sizeof(Header) == 32);

/// One end of the transfers of a run. Called from the thread of the mesh, which
/// must not wait.
class Endpoint {
public:
  virtual ~Endpoint() = default;
  virtual void onReady(int from, const Header &header) = 0;
  /// Where the bytes go that follow; null: nowhere.
  virtual std::byte *onData(int from, const Header &header) = 0;
  /// They are there. Only where onData was not null.
  virtual void onEnd(int from) = 0;
};

/// What is to be written to a socket: a header and `header.bytes` bytes, or
/// none. It stays in place until it is written.
struct Outgoing {
  Header header;
  const std::byte *data = nullptr;
  /// Called when all has been written; must not wait.
  void (*onWritten)(Outgoing &) = nullptr;
  const Endpoint *owner = nullptr;
  size_t written = 0;
  Outgoing *next = nullptr;
};

class Mesh final : public Messenger {
public:
  /// `sockets` leads to each process, by number.
  Mesh(std::vector<Socket> sockets, int number);
  ~Mesh() override;

  /// Says good-bye, and waits a moment for that of the others. From then on
  /// nothing is heard or written. Not from a listener.
  void close();

  void send(int to, Stream stream, std::string bytes) override;

  /// Writes as much as fits into the socket now, and the rest later. If the
  /// connection is broken, it is never written.
  void post(int to, Outgoing &outgoing);
  /// Headers with this id are for `endpoint`. Those that nobody has attached to
  /// are dropped.
  void attach(uint64_t id, Endpoint &endpoint);
  /// Returns when the endpoint is called no more, and its outgoing data and
  /// the destinations that it gave are not touched any more.
  void detach(uint64_t id, const Endpoint &endpoint);

private:
  struct Connection {
    Socket socket;
    std::mutex readMutex; ///< of what follows
    Header header;
    size_t headerBytes = 0; ///< of it that have come
    Endpoint *endpoint = nullptr;
    std::byte *target = nullptr; ///< of the data; null: they are dropped
    std::string text;
    int64_t left = 0; ///< bytes that are still to come
    bool saidBye = false;
    Error fault;         ///< with that
    bool closed = false; ///< nothing can be read any more

    std::mutex writeMutex; ///< of what follows
    Outgoing *head = nullptr, *tail = nullptr;
    bool broken = false;
  };

  void run();
  void readAll(int from);
  bool readSome(int from, Connection &connection);
  bool beginData(int from, Connection &connection);
  void endData(int from, Connection &connection);
  static void append(Connection &connection, Outgoing &outgoing);
  static void flush(Connection &connection);
  void wake();

  std::vector<std::unique_ptr<Connection>> connections; ///< null: own
  std::mutex endpointsMutex;
  std::map<uint64_t, Endpoint *> endpoints;
  int wakeup = -1;                  ///< an eventfd
  std::vector<std::byte> scratch;   ///< of the thread
  std::atomic<int64_t> endTime = 0; ///< of the clock; 0: not yet
  std::once_flag closing;
  std::thread thread;
};

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_NET_MESH_H
