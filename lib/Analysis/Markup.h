//===- Markup.h - Text for SVG and HTML -------------------------*- C++ -*-===//
//
// What all that writes XML needs: numbers, escaped text, and a string to append
// to.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_LIB_ANALYSIS_MARKUP_H
#define PENSTOCK_LIB_ANALYSIS_MARKUP_H

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

/// At most two digits behind the point, and no more than it needs.
std::string number(double value);

/// "1.5 MiB"
std::string formatBytes(int64_t bytes);

/// The text as XML: at most `most` characters, of which the last is an ellipsis
/// when there are more. What is no character becomes U+FFFD.
std::string escaped(std::string_view text, size_t most = ~size_t(0));

/// Appends to one string: a picture may have a hundred thousand lines.
class Writer {
public:
  Writer &operator<<(std::string_view text) {
    out += text;
    return *this;
  }
  Writer &operator<<(const char *text) {
    return *this << std::string_view(text);
  }
  Writer &operator<<(char c) {
    out += c;
    return *this;
  }
  Writer &operator<<(double value) { return *this << number(value); }

  std::string out;
};

} // namespace penstock

#endif // PENSTOCK_LIB_ANALYSIS_MARKUP_H
