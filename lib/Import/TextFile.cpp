//===- TextFile.cpp - Other people's files, read whole --------------------===//

#include "penstock/Import/TextFile.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>

using namespace penstock;

Result<std::string> penstock::readTextFile(const std::string &path) {
  const auto reason = [] {
    return std::error_code(errno, std::generic_category()).message();
  };
  if (std::error_code error; std::filesystem::is_directory(path, error))
    return Failure{"is a directory; a file is needed"};
  const std::unique_ptr<std::FILE, int (*)(std::FILE *)> stream(
      std::fopen(path.c_str(), "rb"), std::fclose);
  if (!stream)
    return Failure{"cannot be opened: " + reason() + "; check the path"};
  std::string text;
  for (size_t got = 1; got > 0;) {
    const size_t old = text.size();
    text.resize(old + (1 << 16));
    got = std::fread(text.data() + old, 1, text.size() - old, stream.get());
    text.resize(old + got);
  }
  if (std::ferror(stream.get()))
    return Failure{"cannot be read: " + reason()};
  return text;
}
