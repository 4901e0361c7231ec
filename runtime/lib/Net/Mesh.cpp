//===- Mesh.cpp - A connection from each process to each ------------------===//

#include "Mesh.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace penstock::runtime {

/// No message is longer; what says so is not one.
static constexpr int64_t kMaxText = int64_t(1) << 32;
/// Bytes that are read from one socket before the others have their turn.
static constexpr size_t kTurn = size_t(1) << 20;
/// How long the processes wait for each other's good-bye.
static constexpr auto kByeTime = std::chrono::seconds(1);

namespace {
/// Owns its bytes, and goes when they are written.
struct OwningOutgoing : Outgoing {
  explicit OwningOutgoing(std::string bytes) : text(std::move(bytes)) {
    data = reinterpret_cast<const std::byte *>(text.data());
    onWritten = [](Outgoing &outgoing) {
      delete static_cast<OwningOutgoing *>(&outgoing);
    };
  }
  const std::string text;
};
} // namespace

Mesh::Mesh(std::vector<Socket> sockets, int number)
    : Messenger(static_cast<int>(sockets.size()), number),
      wakeup(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), scratch(1 << 16) {
  for (Socket &socket : sockets) {
    connections.push_back(socket ? std::make_unique<Connection>() : nullptr);
    if (socket)
      connections.back()->socket = std::move(socket);
  }
  thread = std::thread([this] { run(); });
}

void Mesh::close() {
  std::call_once(closing, [this] {
    const Error why = fault();
    for (int p = 0; p < size; ++p)
      if (connections[p]) {
        auto bye =
            std::make_unique<OwningOutgoing>(why ? pack(why) : std::string());
        bye->header.kind = Header::Bye;
        bye->header.bytes = static_cast<int64_t>(bye->text.size());
        post(p, *bye.release());
      }
    endTime = (Clock::now() + kByeTime).time_since_epoch().count();
    wake();
    thread.join();
  });
}

Mesh::~Mesh() {
  close();
  ::close(wakeup);
  // The messages that could not be written.
  for (auto &connection : connections)
    while (connection && connection->head) {
      Outgoing &outgoing = *connection->head;
      connection->head = outgoing.next;
      if (!outgoing.owner)
        outgoing.onWritten(outgoing);
    }
}

void Mesh::wake() {
  const uint64_t one = 1;
  // Can only fail when it is awake already.
  [[maybe_unused]] const ssize_t size = ::write(wakeup, &one, sizeof(one));
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

void Mesh::send(int to, Stream stream, std::string bytes) {
  auto outgoing = std::make_unique<OwningOutgoing>(std::move(bytes));
  outgoing->header.id = stream;
  outgoing->header.bytes = static_cast<int64_t>(outgoing->text.size());
  post(to, *outgoing.release());
}

void Mesh::append(Connection &connection, Outgoing &outgoing) {
  outgoing.next = nullptr;
  outgoing.written = 0;
  (connection.head ? connection.tail->next : connection.head) = &outgoing;
  connection.tail = &outgoing;
}

void Mesh::post(int to, Outgoing &outgoing) {
  Connection &connection = *connections[to];
  std::lock_guard lock(connection.writeMutex);
  const bool first = !connection.head;
  append(connection, outgoing);
  if (!first)
    return; // the thread has its eyes on it
  flush(connection);
  if (connection.head)
    wake();
}

/// Writes until the socket is full or all is written. With the lock.
void Mesh::flush(Connection &connection) {
  while (connection.head && !connection.broken) {
    Outgoing &first = *connection.head;
    const size_t total =
        sizeof(Header) + (first.data ? size_t(first.header.bytes) : 0);
    iovec parts[2] = {
        {&first.header, sizeof(Header)},
        {const_cast<std::byte *>(first.data), total - sizeof(Header)}};
    size_t skip = first.written;
    for (iovec &part : parts) {
      const size_t size = std::min(skip, part.iov_len);
      part.iov_base = static_cast<char *>(part.iov_base) + size;
      part.iov_len -= size;
      skip -= size;
    }
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t size =
        sendmsg(connection.socket.descriptor(), &message, MSG_NOSIGNAL);
    if (size < 0) {
      if (errno == EINTR)
        continue;
      // What a broken connection means, who reads from it finds out.
      connection.broken = errno != EAGAIN && errno != EWOULDBLOCK;
      return;
    }
    first.written += size;
    if (first.written < total)
      continue;
    connection.head = first.next;
    if (first.onWritten)
      first.onWritten(first);
  }
}

//===----------------------------------------------------------------------===//
// Endpoints
//===----------------------------------------------------------------------===//

void Mesh::attach(uint64_t id, Endpoint &endpoint) {
  std::lock_guard lock(endpointsMutex);
  endpoints[id] = &endpoint;
}

void Mesh::detach(uint64_t id, const Endpoint &endpoint) {
  {
    std::lock_guard lock(endpointsMutex);
    if (const auto found = endpoints.find(id);
        found != endpoints.end() && found->second == &endpoint)
      endpoints.erase(found);
  }
  for (auto &connection : connections) {
    if (!connection)
      continue;
    {
      std::lock_guard lock(connection->readMutex);
      if (connection->endpoint == &endpoint) {
        connection->endpoint = nullptr;
        connection->target = nullptr;
      }
    }
    std::lock_guard lock(connection->writeMutex);
    for (Outgoing **link = &connection->head; *link;) {
      Outgoing &outgoing = **link;
      if (outgoing.owner != &endpoint) {
        link = &outgoing.next;
        continue;
      }
      *link = outgoing.next;
      // The other side waits for all of what has begun.
      if (outgoing.written > 0) {
        const auto *data = reinterpret_cast<const char *>(outgoing.data);
        auto rest = std::make_unique<OwningOutgoing>(
            data ? std::string(data, outgoing.header.bytes) : std::string());
        if (!data)
          rest->data = nullptr;
        rest->header = outgoing.header;
        rest->written = outgoing.written;
        rest->next = outgoing.next;
        *link = rest.release();
        link = &(*link)->next;
      }
    }
    connection->tail = connection->head;
    while (connection->tail && connection->tail->next)
      connection->tail = connection->tail->next;
  }
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Rather than text.
static bool isData(const Header &header) {
  return header.kind == Header::Ready || header.kind == Header::Data;
}

void Mesh::run() {
  std::vector<pollfd> entries(connections.size() + 1);
  while (true) {
    bool open = false, writing = false;
    for (size_t p = 0; p < connections.size(); ++p) {
      entries[p] = {-1, 0, 0};
      if (!connections[p])
        continue;
      Connection &connection = *connections[p];
      short events = connection.closed ? 0 : POLLIN;
      {
        std::lock_guard lock(connection.writeMutex);
        if (connection.head && !connection.broken)
          events |= POLLOUT;
      }
      open |= !connection.closed;
      writing |= (events & POLLOUT) != 0;
      if (events)
        entries[p] = {connection.socket.descriptor(), events, 0};
    }
    entries.back() = {wakeup, POLLIN, 0};
    int wait = -1;
    if (const int64_t end = endTime) {
      const Clock::time_point limit{Clock::duration(end)};
      if ((!open && !writing) || Clock::now() >= limit)
        return;
      // All is said: the other side may know.
      for (size_t p = 0; p < connections.size(); ++p)
        if (connections[p] && !(entries[p].events & POLLOUT))
          shutdown(connections[p]->socket.descriptor(), SHUT_WR);
      wait = pollTime(limit);
    }
    poll(entries.data(), entries.size(), wait);
    uint64_t count = 0;
    if (entries.back().revents) [[maybe_unused]]
      const ssize_t size = ::read(wakeup, &count, sizeof(count));
    for (int p = 0; p < this->size; ++p) {
      if (entries[p].revents & POLLOUT) {
        Connection &connection = *connections[p];
        std::lock_guard lock(connection.writeMutex);
        flush(connection);
      }
      if (entries[p].revents & ~POLLOUT)
        readAll(p);
    }
  }
}

void Mesh::readAll(int from) {
  Connection &connection = *connections[from];
  bool goesOn = !connection.closed;
  while (goesOn)
    goesOn = readSome(from, connection);
  if (connection.closed)
    leave(from, {!connection.saidBye, connection.fault});
}

/// Reads what is there, up to the end of one message; false: nothing is left,
/// or others should have their turn.
bool Mesh::readSome(int from, Connection &connection) {
  std::string text;
  {
    std::lock_guard lock(connection.readMutex);
    const bool inHeader = connection.headerBytes < sizeof(Header);
    auto *target = inHeader
                       ? reinterpret_cast<std::byte *>(&connection.header) +
                             connection.headerBytes
                       : connection.target;
    size_t wanted = inHeader ? sizeof(Header) - connection.headerBytes
                             : std::min<size_t>(connection.left, kTurn);
    if (!inHeader && !target) {
      target = scratch.data();
      wanted = std::min(wanted, scratch.size());
    }
    const ssize_t size =
        recv(connection.socket.descriptor(), target, wanted, 0);
    if (size < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return false;
      connection.closed = true;
      return false;
    }
    if (size == 0) {
      connection.closed = true;
      return false;
    }
    if (inHeader) {
      connection.headerBytes += size;
      if (connection.headerBytes < sizeof(Header))
        return true;
      if (!beginData(from, connection)) {
        connection.closed = true; // this is no process of ours
        return false;
      }
    } else {
      connection.left -= size;
      if (!isData(connection.header))
        connection.text.append(reinterpret_cast<const char *>(target), size);
      else if (connection.target)
        connection.target += size;
    }
    if (connection.left > 0)
      return size_t(size) < kTurn;
    connection.headerBytes = 0;
    if (isData(connection.header)) {
      endData(from, connection);
      return true;
    }
    text.swap(connection.text);
  }
  if (connection.header.kind == Header::Bye) {
    connection.saidBye = true;
    if (!text.empty())
      connection.fault = unpackError(text);
    return true;
  }
  // Without the lock: who hears it may detach an endpoint.
  hear(from, connection.header.id, std::move(text));
  return true;
}

/// A header is complete. False if it is not one.
bool Mesh::beginData(int from, Connection &connection) {
  const Header &header = connection.header;
  connection.endpoint = nullptr;
  connection.target = nullptr;
  connection.left = 0;
  if (header.magic != Header::kMagic || header.kind > Header::Bye ||
      header.bytes < 0)
    return false;
  if (!isData(header)) {
    connection.left = header.bytes;
    return header.bytes <= kMaxText;
  }
  {
    std::lock_guard lock(endpointsMutex);
    if (const auto found = endpoints.find(header.id); found != endpoints.end())
      connection.endpoint = found->second;
  }
  if (header.kind == Header::Ready) {
    if (connection.endpoint)
      connection.endpoint->onReady(from, header);
    return true;
  }
  connection.left = header.bytes;
  if (connection.endpoint)
    connection.target = connection.endpoint->onData(from, header);
  if (!connection.target)
    connection.endpoint = nullptr;
  return true;
}

void Mesh::endData(int from, Connection &connection) {
  if (connection.header.kind == Header::Data && connection.endpoint)
    connection.endpoint->onEnd(from);
  connection.endpoint = nullptr;
  connection.target = nullptr;
}

} // namespace penstock::runtime
