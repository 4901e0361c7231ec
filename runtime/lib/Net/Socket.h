//===- Socket.h - TCP connections with deadlines ----------------*- C++ -*-===//
//
// The little of POSIX sockets that processes need to find each other: listen,
// connect, read and write so many bytes, each until a deadline. All sockets are
// non-blocking, and closed on exec.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_NET_SOCKET_H
#define PENSTOCK_RUNTIME_NET_SOCKET_H

#include "penstock/Program/Result.h"

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace penstock::runtime {

using Deadline = std::chrono::steady_clock::time_point;

/// The milliseconds until then, for poll(2): at least 0, rounded up.
int pollTime(Deadline deadline);

struct Address {
  std::string host; ///< a name or number, without brackets
  uint16_t port = 0;

  std::string str() const;
};

/// Reads HOST:PORT or [HOST]:PORT.
Result<Address> parseAddress(std::string_view text);

class Socket {
public:
  Socket() = default;
  explicit Socket(int fd) : fd(fd) {}
  Socket(Socket &&other) noexcept : fd(std::exchange(other.fd, -1)) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(fd, other.fd);
    return *this;
  }
  ~Socket();

  int descriptor() const { return fd; }
  explicit operator bool() const { return fd >= 0; }

  /// \name Of a connection or a listener
  /// @{
  Address ownAddress() const;
  Address peerAddress() const;
  /// @}

  /// Takes the next connection; none: nobody waits.
  Socket accept() const;

  /// Whether there is anything to read by then.
  bool waitToRead(Deadline deadline) const;
  /// \name All of these bytes, or a failure that says what went wrong
  /// @{
  Status write(std::string_view bytes, Deadline deadline) const;
  Status read(std::span<char> bytes, Deadline deadline) const;
  /// @}

private:
  int fd = -1;
};

/// Listens there; port 0: at any free one.
Result<Socket> listenAt(const Address &address);
/// Connects; tries all that the name stands for.
Result<Socket> connectTo(const Address &address, Deadline deadline);

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_NET_SOCKET_H
