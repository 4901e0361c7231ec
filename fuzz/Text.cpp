//===- Text.cpp - Fuzz target: the text form of the dialect ---------------===//
//
// Whatever the text: refused with a diagnostic, or a module that prints as text
// which parses to the same text again.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include "penstock/Dialect/Pipe/IR/PipeDialect.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/raw_ostream.h"

#include <string>

using namespace mlir;

static std::string print(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream(text) << module;
  return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static MLIRContext *context = [] {
    auto *context = new MLIRContext(MLIRContext::Threading::DISABLED);
    context->loadDialect<penstock::pipe::PipeDialect>();
    return context;
  }();
  unsigned numErrors = 0;
  ScopedDiagnosticHandler handler(context, [&](Diagnostic &diagnostic) {
    numErrors += diagnostic.getSeverity() == DiagnosticSeverity::Error;
    return success();
  });
  // The lexer reads the zero behind the end.
  const std::string input(data, data + size);
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(input, context);
  if (!module) {
    REQUIRE(numErrors > 0);
    return 0;
  }
  const std::string text = print(*module);
  OwningOpRef<ModuleOp> again = parseSourceString<ModuleOp>(text, context);
  REQUIRE(again);
  REQUIRE(print(*again) == text);
  return 0;
}
