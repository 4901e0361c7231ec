//===- OutputErrors.h - Output that cannot be written -----------*- C++ -*-===//
//
// The drivers of MLIR leave it to LLVM's streams, which end the program with a
// fatal error that says neither which file nor what to do.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_TOOLS_OUTPUTERRORS_H
#define PENSTOCK_TOOLS_OUTPUTERRORS_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/raw_ostream.h"

#include <string>

namespace penstock {

/// Says for a fatal error that output cannot be written, and where to: the
/// value of the option -o. Others are said as they are. Then the program ends
/// with exit status 1. `tool` must stay.
inline void nameOutputInErrors(const char *tool) {
  llvm::install_fatal_error_handler(
      [](void *tool, const char *reason, bool) {
        llvm::errs() << static_cast<const char *>(tool) << ": ";
        llvm::StringRef why = reason;
        if (!why.consume_front("IO failure on output stream: ")) {
          llvm::errs() << why << '\n';
          return;
        }
        llvm::cl::Option *option = llvm::cl::getRegisteredOptions().lookup("o");
        const std::string file =
            option
                ? static_cast<llvm::cl::opt<std::string> *>(option)->getValue()
                : "-";
        llvm::errs() << "cannot write "
                     << (file == "-" ? "the output" : "'" + file + "'") << ": "
                     << why
                     << "; is the disk full? Give another file with -o\n";
      },
      const_cast<char *>(tool));
}

} // namespace penstock

#endif // PENSTOCK_TOOLS_OUTPUTERRORS_H
