//===- Network.cpp - Between the processes of the stand-in ----------------===//

#include "Network.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <thread>

using namespace penstock::standin;

/// A name of the abstract namespace, which no file has.
static socklen_t makeName(const std::string &address, sockaddr_un &name) {
  name = {};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path + 1, address.data(), address.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                address.size());
}

static bool readAll(int fd, void *to, size_t size) {
  for (auto *at = static_cast<char *>(to); size > 0;) {
    const ssize_t got = recv(fd, at, size, 0);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return false;
    at += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}
static bool writeAll(int fd, const void *from, size_t size) {
  for (const auto *at = static_cast<const char *>(from); size > 0;) {
    const ssize_t put = ::send(fd, at, size, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR)
      continue;
    if (put < 0)
      return false;
    at += put;
    size -= static_cast<size_t>(put);
  }
  return true;
}

Network::Network(Listener who) : listener(std::move(who)) {
  std::random_device random;
  own = "penstock-stand-in-" + std::to_string(getpid()) + "-" +
        std::to_string(random()) + std::to_string(random());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un name;
  const socklen_t length = makeName(own, name);
  if (bind(fd, reinterpret_cast<sockaddr *>(&name), length) != 0 ||
      listen(fd, 1024) != 0)
    return; // then nobody reaches this process, and init fails
  start([this, fd] {
    for (int guest; (guest = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;)
      start([this, guest] { receive(guest); });
  });
}

void Network::start(std::function<void()> code) {
  std::thread([this, code = std::move(code)] {
    listener.begin();
    code();
  }).detach();
}

void Network::receive(int fd) {
  std::string from, bytes;
  for (size_t size; readAll(fd, &size, sizeof(size));) {
    bytes.resize(size);
    if (!readAll(fd, bytes.data(), size))
      break;
    if (from.empty())
      from = bytes;
    else if (!bytes.empty())
      listener.onMessage(bytes);
  }
  close(fd);
  listener.onGone(from);
}

void Network::write(Link &link) {
  std::unique_lock lock(link.mutex);
  while (true) {
    link.wake.wait(lock, [&] { return !link.messages.empty(); });
    const std::string bytes = std::move(link.messages.front());
    link.messages.pop_front();
    lock.unlock();
    const size_t size = bytes.size();
    if (!writeAll(link.fd, &size, sizeof(size)) ||
        !writeAll(link.fd, bytes.data(), size))
      return;
    lock.lock();
  }
}

bool Network::send(const std::string &to, std::string bytes) {
  std::shared_ptr<Link> link;
  {
    std::lock_guard lock(mutex);
    std::shared_ptr<Link> &known = links[to];
    if (!known) {
      known = std::make_shared<Link>();
      known->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_un name;
      const socklen_t length = makeName(to, name);
      if (connect(known->fd, reinterpret_cast<sockaddr *>(&name), length) !=
          0) {
        close(known->fd);
        known->fd = -1;
        return false;
      }
      known->messages.push_back(own);
      start([link = known] { write(*link); });
      // Nothing comes this way but the end.
      start([this, link = known, to] {
        char byte;
        readAll(link->fd, &byte, 1);
        listener.onGone(to);
      });
    }
    link = known;
  }
  if (link->fd < 0)
    return false;
  {
    std::lock_guard lock(link->mutex);
    link->messages.push_back(std::move(bytes));
  }
  link->wake.notify_one();
  return true;
}
