//===- ProgramFile.cpp - Fuzz target: the loader of program files ---------===//
//
// Whatever the bytes: refused with a reason, or a program that can be written
// and loaded again as the same one. Mutations repair the hash, so that they get
// past it.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include "Program_generated.h"
#include "penstock/Program/File.h"

#include <cstring>

using namespace penstock;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const Result<Program> program = deserialize({data, size});
  if (!program) {
    REQUIRE(!program.message().empty());
    return 0;
  }
  const Result<Program> again = deserialize(serialize(*program));
  REQUIRE(again && *again == *program);
  return 0;
}

/// Writes the hash of the content over the stored one. The loader says what it
/// should be: "the hash of its content is X, not Y".
static void repairHash(uint8_t *data, size_t size) {
  const Result<Program> program = deserialize({data, size});
  if (program)
    return;
  static constexpr std::string_view says = "the hash of its content is ";
  const std::string &message = program.message();
  const size_t at = message.find(says);
  if (at == std::string::npos)
    return;
  const std::string digits = message.substr(at + says.size(), 32);
  const uint64_t high = std::stoull(digits.substr(0, 16), nullptr, 16);
  const uint64_t low = std::stoull(digits.substr(16), nullptr, 16);
  // The loader read the hash, so the structure holds.
  if (const file::Hash *hash = file::GetSizePrefixedProgram(data)->hash()) {
    const file::Hash right(low, high);
    std::memcpy(const_cast<file::Hash *>(hash), &right, sizeof(right));
  }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                               unsigned) {
  size = LLVMFuzzerMutate(data, size, maxSize);
  // The accessors need the alignment that malloc gives.
  if (reinterpret_cast<uintptr_t>(data) % alignof(uint64_t) == 0)
    repairHash(data, size);
  return size;
}
