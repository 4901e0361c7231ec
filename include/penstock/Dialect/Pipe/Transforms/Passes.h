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

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace penstock::pipe {
/// The value of an option that need not be given; then it prints as nothing.
struct OptionalCount : std::optional<int64_t> {
  using optional::optional;
};
inline llvm::raw_ostream &operator<<(llvm::raw_ostream &os,
                                     const OptionalCount &count) {
  return count ? os << *count : os;
}
} // namespace penstock::pipe

template <>
class llvm::cl::parser<penstock::pipe::OptionalCount>
    : public basic_parser<penstock::pipe::OptionalCount> {
public:
  using Count = penstock::pipe::OptionalCount;
  explicit parser(Option &option) : basic_parser(option), number(option) {}

  /// True on an error.
  bool parse(Option &option, StringRef name, StringRef text, Count &count) {
    long value = 0;
    if (!text.empty() && number.parse(option, name, text, value))
      return true;
    count = text.empty() ? Count() : Count(value);
    return false;
  }
  void printOptionDiff(const Option &, const Count &, const OptVal &,
                       size_t) const {}
  StringRef getValueName() const override { return number.getValueName(); }

private:
  parser<long> number;
};

namespace penstock::pipe {

#define GEN_PASS_DECL
#include "penstock/Dialect/Pipe/Transforms/Passes.h.inc"

/// Options of `pipe-compile`. The first three override the spec.
struct CompileOptions : mlir::PassPipelineOptions<CompileOptions> {
  Option<std::string> schedule{
      *this, "schedule",
      llvm::cl::desc("Family to use instead of the schedule's own")};
  Option<OptionalCount> microbatches{
      *this, "microbatches",
      llvm::cl::desc("Number of micro-batches instead of the schedule's own")};
  Option<OptionalCount> ranks{
      *this, "ranks",
      llvm::cl::desc("Number of ranks instead of the schedule's own")};
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
