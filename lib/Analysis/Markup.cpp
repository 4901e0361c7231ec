//===- Markup.cpp - Text for SVG and HTML ---------------------------------===//

#include "Markup.h"

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
/// that XML allows.
static size_t characterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80)
    return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length)
    return 0;
  uint32_t code = lead & (0x7f >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80)
      return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code < kLeast[length] || code > 0x10ffff || surrogate ||
                 (code & 0xfffe) == 0xfffe
             ? 0
             : length;
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
