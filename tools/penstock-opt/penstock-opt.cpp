//===- penstock-opt.cpp - Runs passes on pipe IR --------------------------===//

#include "penstock/Dialect/Pipe/IR/PipeDialect.h"
#include "penstock/Dialect/Pipe/Transforms/Passes.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  registry.insert<penstock::pipe::PipeDialect>();
  penstock::pipe::registerPipePasses();
  penstock::pipe::registerPipePipelines();
  return mlir::asMainReturnCode(mlir::MlirOptMain(
      argc, argv, "Penstock's compiler for pipeline schedules\n", registry));
}
