//===- Passes.h - Passes of the pipe dialect --------------------*- C++ -*-===//
//
// The passes on the way from a spec to a program, and `pipe-compile`, the
// pipeline of all of them.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_DIALECT_PIPE_TRANSFORMS_PASSES_H
#define PENSTOCK_DIALECT_PIPE_TRANSFORMS_PASSES_H

#include "penstock/Dialect/Pipe/IR/PipeOps.h"
#include "penstock/Lowering/Lowering.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassOptions.h"

#include <limits>

#include <memory>
#include <string>

namespace penstock::pipe {

#define GEN_PASS_DECL
#include "penstock/Dialect/Pipe/Transforms/Passes.h.inc"

/// Options of `pipe-compile`. The first three override the spec.
struct CompileOptions : mlir::PassPipelineOptions<CompileOptions> {
  Option<std::string> schedule{
      *this, "schedule",
      llvm::cl::desc("Family to use instead of the schedule's own")};
  Option<int64_t> microbatches{
      *this, "microbatches",
      llvm::cl::desc("Number of micro-batches instead of the schedule's own"),
      llvm::cl::init(std::numeric_limits<int64_t>::min())};
  Option<int64_t> ranks{
      *this, "ranks",
      llvm::cl::desc("Number of ranks instead of the schedule's own"),
      llvm::cl::init(std::numeric_limits<int64_t>::min())};
  Option<bool> splitBackward{
      *this, "split-backward",
      llvm::cl::desc("Split every backward in its input and weight part"),
      llvm::cl::init(false)};
  Option<unsigned> transferQueue{
      *this, "transfer-queue",
      llvm::cl::desc("Queue for transfers; 0 runs all in host order"),
      llvm::cl::init(1)};
  Option<bool> verify{*this, "verify",
                      llvm::cl::desc("Prove the program right at the end"),
                      llvm::cl::init(true)};
};

/// From a spec to a verified program.
void buildCompilePipeline(mlir::OpPassManager &pm,
                          const CompileOptions &options);

/// Registers `pipe-compile`; registerPipePasses() registers the passes.
void registerPipePipelines();

#define GEN_PASS_REGISTRATION
#include "penstock/Dialect/Pipe/Transforms/Passes.h.inc"

} // namespace penstock::pipe

#endif // PENSTOCK_DIALECT_PIPE_TRANSFORMS_PASSES_H
