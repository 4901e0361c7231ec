//===- TestPrograms.h - Small programs and a model to run them --*- C++ -*-===//
//
// A model of integers whose result depends on every value that flows, and
// planned programs for it that are right by inspection: every tensor has a slot
// of its own.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_TEST_TESTPROGRAMS_H
#define PENSTOCK_RUNTIME_TEST_TESTPROGRAMS_H

#include "penstock/Runtime/Run.h"

namespace penstock::runtime::test {

/// A problem of one stage a rank, all tensors of 8 bytes.
Problem makeProblem(int32_t numRanks, int32_t numMicrobatches);

struct Shape {
  bool split = false;        ///< I and W instead of B
  bool transferQueue = true; ///< transfers on queue 1, with waits
  bool steps = true;         ///< ends with a step
};

/// All forwards, then all backwards.
Program makeGPipe(int32_t numRanks, int32_t numMicrobatches, Shape shape = {});

/// F, offload, reload and B on one rank, all on queue 0.
Program makeOffloaded();

/// Two ranks that each send before they receive: right in all but deadlock.
Program makeDeadlock();

/// Appends an instruction with waits.
uint32_t add(Program &program, int32_t rank, Instruction inst,
             std::vector<uint32_t> waits = {});
Instruction action(Op op, int32_t stage, int32_t mb);
Instruction transfer(Op op, Payload payload, int32_t stage, int32_t mb,
                     int32_t peer, int32_t slot, int64_t bytes = 8);

/// What a test adds to the calls of a model.
struct Hooks {
  /// Before each forward and backward; may throw or sleep.
  std::function<void(const ActionContext &, Op)> onCall;
  std::function<void(int64_t step)> onBeginStep;
  std::function<double(double)> onLoss; ///< of each micro-batch
  std::function<void(int32_t stage)> onStep;
  uint64_t delaySeed = 0; ///< not 0: random delays in calls
  /// What Model::gradients and tiedGradients show.
  std::function<std::span<float>(int32_t rank)> gradients;
};

/// Integers: forward, backward and step mix all their operands, so that a wrong
/// or stale operand changes every later loss.
ModelFactory makeTestModel(Hooks hooks = {});

/// The loss of each step, computed by plain loops.
std::vector<double> referenceLosses(const Problem &problem, int64_t steps);

/// Runs and returns all losses; expects success.
std::vector<double> runLosses(const Program &program, int64_t steps,
                              const ModelFactory &model, RunOptions options);
std::vector<double> runLosses(const Program &program, int64_t steps,
                              Hooks hooks = {}, RunOptions options = {});

} // namespace penstock::runtime::test

#endif // PENSTOCK_RUNTIME_TEST_TESTPROGRAMS_H
