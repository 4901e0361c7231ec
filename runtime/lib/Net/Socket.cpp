//===- Socket.cpp - TCP connections with deadlines ------------------------===//

#include "Socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace penstock::runtime {

int pollTime(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1'000'000));
}

std::string Address::str() const {
  const bool isV6 = host.find(':') != std::string::npos;
  std::string text = isV6 ? "[" : "";
  text.append(host).append(isV6 ? "]:" : ":");
  return text.append(std::to_string(port));
}

Result<Address> parseAddress(std::string_view text) {
  Address address;
  const size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (bracketed)
    host = host.substr(1, host.size() - 2);
  bool ok = colon != std::string_view::npos && !host.empty() &&
            (bracketed || host.find(':') == std::string_view::npos);
  if (ok) {
    const char *end = text.data() + text.size();
    const auto [rest, error] =
        std::from_chars(text.data() + colon + 1, end, address.port);
    ok = error == std::errc() && rest == end && address.port > 0;
  }
  if (!ok)
    return Failure{std::string("'").append(text).append(
        "' is not HOST:PORT with a port from 1 to 65535")};
  address.host = host;
  return address;
}

Socket::~Socket() {
  if (fd >= 0)
    ::close(fd);
}

using AddressOf = int (*)(int, sockaddr *, socklen_t *);
static Address addressOf(int fd, AddressOf function) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof(storage);
  auto *address = reinterpret_cast<sockaddr *>(&storage);
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "0";
  if (function(fd, address, &length) == 0)
    getnameinfo(address, length, host, sizeof(host), port, sizeof(port),
                NI_NUMERICHOST | NI_NUMERICSERV);
  return {host, static_cast<uint16_t>(std::atoi(port))};
}

Address Socket::ownAddress() const { return addressOf(fd, getsockname); }
Address Socket::peerAddress() const { return addressOf(fd, getpeername); }

/// Small messages leave at once.
static void setNoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

Socket Socket::accept() const {
  Socket socket(::accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket)
    setNoDelay(socket.fd);
  return socket;
}

static Failure failure(int code) { return Failure{std::strerror(code)}; }

/// Waits for `events`; false at the deadline.
static bool waitFor(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd entry = {fd, events, 0};
    const int number = poll(&entry, 1, pollTime(deadline));
    if (number > 0)
      return true;
    if (std::chrono::steady_clock::now() >= deadline)
      return false;
  }
}

bool Socket::waitToRead(Deadline deadline) const {
  return waitFor(fd, POLLIN, deadline);
}

Status Socket::write(std::string_view bytes, Deadline deadline) const {
  while (!bytes.empty()) {
    const ssize_t size = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (size > 0)
      bytes.remove_prefix(size);
    else if (errno == EAGAIN ? !waitFor(fd, POLLOUT, deadline) : errno != EINTR)
      return failure(errno == EAGAIN ? ETIMEDOUT : errno);
  }
  return success();
}

Status Socket::read(std::span<char> bytes, Deadline deadline) const {
  while (!bytes.empty()) {
    const ssize_t size = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (size > 0)
      bytes = bytes.subspan(size);
    else if (size == 0)
      return Failure{"the connection was closed"};
    else if (errno == EAGAIN ? !waitFor(fd, POLLIN, deadline) : errno != EINTR)
      return failure(errno == EAGAIN ? ETIMEDOUT : errno);
  }
  return success();
}

/// What a name and a port stand for.
using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
static Result<AddressList> resolve(const Address &address, int flags) {
  addrinfo hints = {}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  if (const int code =
          getaddrinfo(address.host.c_str(),
                      std::to_string(address.port).c_str(), &hints, &list))
    return Failure{gai_strerror(code)};
  return AddressList(list, &freeaddrinfo);
}

static Socket makeSocket(const addrinfo &info) {
  return Socket(::socket(info.ai_family,
                         info.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                         info.ai_protocol));
}

Result<Socket> listenAt(const Address &address) {
  Result<AddressList> list = resolve(address, AI_PASSIVE);
  if (!list)
    return list.failure();
  int code = 0;
  for (const addrinfo *info = list->get(); info; info = info->ai_next) {
    Socket socket = makeSocket(*info);
    const int on = 1;
    if (socket &&
        setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on,
                   sizeof(on)) == 0 &&
        ::bind(socket.descriptor(), info->ai_addr, info->ai_addrlen) == 0 &&
        ::listen(socket.descriptor(), SOMAXCONN) == 0)
      return socket;
    code = errno;
  }
  return failure(code);
}

Result<Socket> connectTo(const Address &address, Deadline deadline) {
  Result<AddressList> list = resolve(address, 0);
  if (!list)
    return list.failure();
  int code = 0;
  for (const addrinfo *info = list->get(); info; info = info->ai_next) {
    Socket socket = makeSocket(*info);
    if (!socket) {
      code = errno;
      continue;
    }
    code = ::connect(socket.descriptor(), info->ai_addr, info->ai_addrlen) == 0
               ? 0
               : errno;
    if (code == EINPROGRESS) {
      socklen_t length = sizeof(code);
      if (!waitFor(socket.descriptor(), POLLOUT, deadline))
        code = ETIMEDOUT;
      else
        getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &code, &length);
    }
    // A free port of this machine may be given to the socket that tries it.
    if (code == 0 && socket.ownAddress().str() == socket.peerAddress().str())
      code = ECONNREFUSED;
    if (code == 0) {
      setNoDelay(socket.descriptor());
      return socket;
    }
  }
  return failure(code);
}

} // namespace penstock::runtime
