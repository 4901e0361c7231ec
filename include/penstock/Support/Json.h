//===- Json.h - Writing JSON ------------------------------------*- C++ -*-===//
//
// For reports and traces of code that must build with the standard library
// alone. What is written is valid JSON whatever the values are.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_SUPPORT_JSON_H
#define PENSTOCK_SUPPORT_JSON_H

#include "penstock/Support/Utf8.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// In quotes, and escaped. A byte that is not UTF-8 becomes U+FFFD.
inline void appendJson(std::string &json, std::string_view text) {
  auto isPlain = [](char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  };
  json += '"';
  while (!text.empty()) {
    const char c = text.front();
    if (isPlain(c)) {
      const size_t run =
          std::find_if_not(text.begin(), text.end(), isPlain) - text.begin();
      json += text.substr(0, run);
      text.remove_prefix(run);
      continue;
    }
    const size_t size = utf8Length(text);
    if (size == 0)
      json += "\xef\xbf\xbd";
    else if (c == '"' || c == '\\')
      (json += '\\') += c;
    else if (c == '\n')
      json += "\\n";
    else if (c == '\t')
      json += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20)
      ((json += "\\u00") += c < 0x10 ? '0' : '1') += "0123456789abcdef"[c & 15];
    else
      json += text.substr(0, size);
    text.remove_prefix(size == 0 ? 1 : size);
  }
  json += '"';
}
inline void appendJson(std::string &json, const char *text) {
  appendJson(json, std::string_view(text));
}

/// The shortest text that reads back as the same number; null for what is not
/// finite.
template <typename Number>
requires std::integral<Number> || std::floating_point<Number>
void appendJson(std::string &json, Number value) {
  char digits[32];
  if constexpr (std::same_as<Number, bool>)
    json += value ? "true" : "false";
  else if (std::floating_point<Number> && !std::isfinite(double(value)))
    json += "null";
  else
    json.append(digits,
                std::to_chars(digits, std::end(digits), value).ptr - digits);
}

/// An object; its members keep the order in which they were first set.
class JsonObject {
public:
  /// Sets or replaces a member: text, a number, a bool.
  template <typename T>
  void set(std::string_view key, const T &value);
  /// A member that is an object; made if it is not there.
  JsonObject &object(std::string_view key);
  /// Over several lines, without a line break at the end.
  std::string str(size_t indent = 0) const;

private:
  struct Member;
  Member &at(std::string_view key);

  std::vector<Member> members;
};

struct JsonObject::Member {
  std::string key, text;
  JsonObject object; ///< if there is no text
};

inline JsonObject::Member &JsonObject::at(std::string_view key) {
  for (Member &member : members)
    if (member.key == key)
      return member;
  members.push_back({std::string(key), {}, {}});
  return members.back();
}

template <typename T>
void JsonObject::set(std::string_view key, const T &value) {
  Member &member = at(key);
  member.text.clear();
  appendJson(member.text, value);
}

inline JsonObject &JsonObject::object(std::string_view key) {
  return at(key).object;
}

inline std::string JsonObject::str(size_t indent) const {
  std::string json = "{";
  for (const Member &member : members) {
    json += json.size() > 1 ? ",\n" : "\n";
    json.append(indent + 2, ' ');
    appendJson(json, member.key);
    json += ": ";
    json += member.text.empty() ? member.object.str(indent + 2) : member.text;
  }
  if (!members.empty())
    json.append(1, '\n').append(indent, ' ');
  return json + "}";
}

} // namespace penstock

#endif // PENSTOCK_SUPPORT_JSON_H
