//===- Network.h - Between the processes of the stand-in --------*- C++ -*-===//
//
// Messages between processes that run the stand-in, over local sockets whose
// names lead from one process to another: a unique id has that of the process
// that made it. Nothing here waits for anybody: messages leave and come on
// threads of their own.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_TEST_STANDIN_NETWORK_H
#define PENSTOCK_RUNTIME_TEST_STANDIN_NETWORK_H

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace penstock::standin {

/// Lives as long as the process.
class Network {
public:
  /// From threads of the network: a message, and that nothing more goes to or
  /// comes from this process. `begin` is called first on each of the threads.
  struct Listener {
    std::function<void()> begin;
    std::function<void(std::string_view bytes)> onMessage;
    std::function<void(const std::string &address)> onGone;
  };
  explicit Network(Listener listener);

  const std::string &address() const { return own; }
  /// Sends a message, in their order. False: there is no such process.
  bool send(const std::string &address, std::string bytes);

private:
  struct Link {
    int fd = -1;
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::string> messages;
  };

  void start(std::function<void()> code);
  void receive(int fd);
  static void write(Link &link);

  const Listener listener;
  std::string own;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Link>> links; ///< to others
};

/// \name The parts of a message
/// @{
template <typename T>
void pack(std::string &bytes, const T &value) {
  bytes.append(reinterpret_cast<const char *>(&value), sizeof(T));
}
inline void pack(std::string &bytes, const std::string &text) {
  pack(bytes, text.size());
  bytes += text;
}
template <typename T>
T unpack(std::string_view &bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return value;
}
template <>
inline std::string unpack<std::string>(std::string_view &bytes) {
  const auto size = unpack<size_t>(bytes);
  std::string text(bytes.substr(0, size));
  bytes.remove_prefix(size);
  return text;
}
/// @}

} // namespace penstock::standin

#endif // PENSTOCK_RUNTIME_TEST_STANDIN_NETWORK_H
