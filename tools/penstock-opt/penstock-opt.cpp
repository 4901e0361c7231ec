//===- penstock-opt.cpp - Runs passes on pipe IR --------------------------===//

#include "../OutputErrors.h"
#include "penstock/Dialect/Pipe/IR/PipeDialect.h"
#include "penstock/Dialect/Pipe/Transforms/Passes.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"

/// Leaves the verification of ops between passes to those who ask for it with
/// --verify-each. What the parser gets is verified, all passes write through
/// one write-back, and pipe-verify judges the result; to visit a million ops
/// after each pass takes a third of the time of pipe-compile.
static void verifyOnlyOnRequest() {
  llvm::cl::Option *option =
      llvm::cl::getRegisteredOptions().lookup("verify-each");
  if (option && option->getNumOccurrences() == 0)
    option->addOccurrence(/*pos=*/0, option->ArgStr, "false");
}

int main(int argc, char **argv) {
  penstock::nameOutputInErrors("penstock-opt");
  mlir::DialectRegistry registry;
  registry.insert<penstock::pipe::PipeDialect>();
  penstock::pipe::registerPipePasses();
  penstock::pipe::registerPipePipelines();
  auto [input, output] = mlir::registerAndParseCLIOptions(
      argc, argv, "Penstock's compiler for pipeline schedules\n", registry);
  verifyOnlyOnRequest();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, input, output, registry));
}
