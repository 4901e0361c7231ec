//===- Markup.cpp - Text for SVG and HTML ---------------------------------===//

#include "Markup.h"

#include "penstock/Support/Utf8.h"

#include <algorithm>
#include <charconv>

namespace penstock {

std::string number(double value) {
  char buffer[400];
  char *end = std::to_chars(buffer, std::end(buffer), value,
                            std::chars_format::fixed, 2)
                  .ptr;
  while (end[-1] == '0')
    --end;
  if (end[-1] == '.')
    --end;
  const std::string_view text(buffer, end);
  return std::string(text == "-0" ? "0" : text);
}

std::string formatBytes(int64_t bytes) {
  static constexpr std::string_view units[] = {" B", " KiB", " MiB", " GiB",
                                               " TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit)
    value /= 1024;
  return number(value) + std::string(units[unit]);
}

/// Length in bytes of the character at the start of `text`, 0 when it is none
/// that XML allows: no control character, and not the last two of a plane.
static size_t characterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const size_t length = utf8Length(text);
  const bool isControl = byte(0) < 0x20 || byte(0) == 0x7f;
  const bool isLast =
      (length == 3 && byte(0) == 0xef && byte(1) == 0xbf && byte(2) >= 0xbe) ||
      (length == 4 && (byte(1) & 0x0f) == 0x0f && byte(2) == 0xbf &&
       byte(3) >= 0xbe);
  return isControl || isLast ? 0 : length;
}

std::string escaped(std::string_view text, size_t most) {
  std::string xml;
  for (size_t count = 0; !text.empty(); ++count) {
    const size_t length = characterLength(text);
    if (count + 1 >= most && text.size() > std::max<size_t>(length, 1))
      return xml + "\u2026";
    const std::string_view character = text.substr(0, length);
    if (length == 0)
      xml += "\ufffd";
    else if (character == "&")
      xml += "&amp;";
    else if (character == "<")
      xml += "&lt;";
    else if (character == ">")
      xml += "&gt;";
    else
      xml += character;
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return xml;
}

} // namespace penstock
