//===- Utf8.h - The characters of a text ------------------------*- C++ -*-===//

#ifndef PENSTOCK_SUPPORT_UTF8_H
#define PENSTOCK_SUPPORT_UTF8_H

#include <cstddef>
#include <string_view>

namespace penstock {

/// The length of the UTF-8 character at the front, or 0 if there is none.
inline size_t utf8Length(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const size_t size = first < 0x80                    ? 1
                      : first >= 0xc2 && first < 0xe0 ? 2
                      : first >= 0xe0 && first < 0xf0 ? 3
                      : first >= 0xf0 && first < 0xf5 ? 4
                                                      : 0;
  if (size > text.size())
    return 0;
  for (size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xc0) != 0x80)
      return 0;
  // Longer than needed, a surrogate, or behind the last character.
  if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0) ||
      (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90))
    return 0;
  return size;
}

} // namespace penstock

#endif // PENSTOCK_SUPPORT_UTF8_H
