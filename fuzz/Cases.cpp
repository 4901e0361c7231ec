//===- Cases.cpp - Fuzz target: files of deadlock cases -------------------===//
//
// Whatever the text: refused with a reason, or cases whose programs are
// well-formed and can be judged.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include "penstock/Import/Cases.h"
#include "penstock/Program/File.h"

using namespace penstock;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const Result<std::vector<Case>> cases =
      readCases({reinterpret_cast<const char *>(data), size});
  if (!cases) {
    REQUIRE(!cases.message().empty());
    return 0;
  }
  for (const Case &c : *cases) {
    REQUIRE(wellFormed(c.program));
    // Enough for a verdict; long programs would make the fuzzer slow.
    if (c.program.numInstructions() <= 64)
      REQUIRE(!judge(c).empty());
  }
  return 0;
}
