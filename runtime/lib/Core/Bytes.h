//===- Bytes.h - Values as bytes, and back ----------------------*- C++ -*-===//

#ifndef PENSTOCK_RUNTIME_CORE_BYTES_H
#define PENSTOCK_RUNTIME_CORE_BYTES_H

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace penstock::runtime {

template <typename T>
void append(std::string &bytes, const T &value) {
  bytes.append(reinterpret_cast<const char *>(&value), sizeof(value));
}

/// The value at the front, which goes; zero behind the end.
template <typename T>
T take(std::string_view &bytes) {
  T value{};
  const size_t size = std::min(bytes.size(), sizeof(value));
  std::memcpy(&value, bytes.data(), size);
  bytes.remove_prefix(size);
  return value;
}

/// Text of any length.
inline void appendText(std::string &bytes, std::string_view text) {
  append<uint64_t>(bytes, text.size());
  bytes += text;
}

inline std::string takeText(std::string_view &bytes) {
  const auto size = take<uint64_t>(bytes);
  const std::string text(bytes.substr(0, size));
  bytes.remove_prefix(text.size());
  return text;
}

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_CORE_BYTES_H
