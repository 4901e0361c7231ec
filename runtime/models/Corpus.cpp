//===- Corpus.cpp - The text a language model learns ----------------------===//

#include "Corpus.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace penstock::runtime {

Result<Corpus> Corpus::read(const std::string &path, int32_t context) {
  auto fail = [&](const std::string &why) {
    return Failure{"text file '" + path + "': " + why};
  };
  const std::string advice = "; name a readable text file of at least " +
                             std::to_string(context + 1) + " bytes";
  // Anything but a file may never end.
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status))
    return fail(error.message() + advice);
  if (!std::filesystem::is_regular_file(status))
    return fail("not a regular file" + advice);

  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file)
    return fail(std::string("cannot be opened: ") + std::strerror(errno) +
                advice);
  const std::streamoff size = file.tellg();
  std::vector<uint8_t> bytes;
  try {
    bytes.resize(static_cast<size_t>(size));
  } catch (const std::exception &) { // bad_alloc or length_error
    return fail("its " + std::to_string(size) +
                " bytes do not fit into memory; take a shorter text");
  }
  file.seekg(0);
  if (!file.read(reinterpret_cast<char *>(bytes.data()), size))
    return fail("cannot be read" + advice);
  if (bytes.size() <= static_cast<size_t>(context))
    return fail("has " + std::to_string(bytes.size()) +
                " bytes, but one sample takes " + std::to_string(context + 1) +
                ", the context and the next byte; take a longer text or a "
                "smaller context");
  return Corpus(std::move(bytes), context);
}

} // namespace penstock::runtime
