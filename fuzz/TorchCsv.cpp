//===- TorchCsv.cpp - Fuzz target: schedules of torch ---------------------===//
//
// Whatever the text: refused with a reason, or a table that can be verified
// and, when it is well-formed, written and read again.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include "penstock/Analysis/Verify.h"
#include "penstock/Import/TorchCsv.h"
#include "penstock/Program/File.h"

using namespace penstock;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view text(reinterpret_cast<const char *>(data), size);
  for (TorchPlacement placement :
       {TorchPlacement::Rows, TorchPlacement::Loop, TorchPlacement::V}) {
    const Result<TorchTable> table = readTorchCsv(text, placement);
    if (!table) {
      REQUIRE(!table.message().empty());
      continue;
    }
    VerifyOptions options;
    options.order = table->format == TorchFormat::ComputeOnly;
    for (const Finding &finding : verify(table->program, options).findings)
      REQUIRE(!finding.message.empty());
    if (!wellFormed(table->program))
      continue;
    const bool accepted = verify(table->program, options).accepted();
    for (Fifo fifo : {Fifo::Rank, Fifo::Pair, Fifo::Edge}) {
      Program program = table->program;
      if (setFifos(program, fifo))
        REQUIRE(wellFormed(program));
    }
    const Result<std::string> written = writeTorchCsv(table->program);
    if (written && accepted)
      REQUIRE(readTorchCsv(*written, placement));
  }
  return 0;
}
