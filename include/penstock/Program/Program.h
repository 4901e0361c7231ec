//===- Program.h - Instructions of all ranks, in flat arrays ----*- C++ -*-===//
//
// A program is what runs: for each rank a list of fixed-size instructions in
// host issue order. An order is a program that has only actions yet. Every
// algorithm of Penstock works on this form; the `pipe` dialect and the program
// file are two ways to write it down.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_PROGRAM_PROGRAM_H
#define PENSTOCK_PROGRAM_PROGRAM_H

#include "penstock/Program/Problem.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace penstock {

/// What an instruction does. The values are part of the program file: append,
/// never renumber.
enum class Op : uint8_t {
  Forward = 0,        ///< F(stage, mb)
  Backward = 1,       ///< B(stage, mb): input and weight gradient
  BackwardInput = 2,  ///< I(stage, mb)
  BackwardWeight = 3, ///< W(stage, mb)
  Recompute = 4,      ///< R(stage, mb): the forward again, for its stash
  Send = 5,           ///< payload of (stage, mb) to peer
  Recv = 6,           ///< payload of (stage, mb) from peer
  AllReduce = 7,      ///< weight gradients of stage, over a rank set
  Barrier = 8,        ///< all ranks of a rank set meet
  ReduceGrad = 9,     ///< data-parallel reduction of a stage's gradients
  Unshard = 10,       ///< gather a stage's sharded parameters
  Reshard = 11,       ///< drop them again
  Offload = 12,       ///< stash of (stage, mb) to host memory, or in an order
                      ///< to the rank `peer`
  Reload = 13,        ///< and back
  Step = 14,          ///< optimizer update; stage -1: all stages of the rank
  ReduceTied = 15,    ///< gradient that tied stages share, over a rank set;
                      ///< stage: the first of them
  ReduceState = 16,   ///< adds the rank's own gradients to the state of the
                      ///< batch; see Problem::postValidation
  Validate = 17,      ///< of the batch before: amends the optimizer update if
                      ///< the state of all ranks says so
};
inline constexpr unsigned kNumOps = 18;

/// What a transfer moves, named by the stage that produced it: the activation
/// of stage s is the output of s, the gradient of stage s is what s sends to
/// s - 1, the stash of stage s is what its F keeps, which another rank may hold
/// for it until its B. The state of a batch, which tells whether its optimizer
/// step is right, belongs to no stage: every rank has it once.
enum class Payload : uint8_t {
  None = 0,
  Activation = 1,
  Gradient = 2,
  Stash = 3,
  State = 4
};
inline constexpr unsigned kNumPayloads = 5;
/// Bytes of the state of a batch: the sum of the squares of its gradients, and
/// marks.
inline constexpr int64_t kStateBytes = 16;

/// Roles of the slots of an action, as indices into Instruction::slots. Other
/// instructions use Slot only.
enum SlotRole : unsigned {
  Input = 0,    ///< the activation that the stage reads
  Gradient = 1, ///< the gradient that a backward reads
  Output = 2,   ///< the activation or gradient that the action writes
  Stash = 3,    ///< what F keeps for B, or for I and W
  Slot = 0,     ///< of a transfer: what it sends or where it receives; of an
                ///< offload or reload: the stash on the rank
  Host = 1      ///< of these: the stash in host memory, one of hostSlotBytes
};

inline constexpr int32_t kNoSlot = -1;
inline constexpr uint32_t kNoInstruction = ~0u;

/// One instruction: 48 bytes, no pointers. The layout is that of the program
/// file.
struct Instruction {
  Op op = Op::Forward;
  /// True: issued together with the instruction before it. Joined transfers
  /// form a group, joined actions an overlap. The instructions from one that is
  /// not joined up to the next such one are an *item*; all share one queue, and
  /// only the first of them has waits.
  bool joined = false;
  Payload payload = Payload::None; ///< transfers only
  uint8_t queue = 0;               ///< 0 computes
  uint16_t comm = 0;     ///< communicator, of transfers and collectives
  uint16_t numWaits = 0; ///< see RankProgram::waits
  int32_t stage = -1;
  int32_t microbatch = -1;
  int32_t peer = -1; ///< transfers: the other rank; offload and reload: the
                     ///< rank that holds the stash, -1 for host memory;
                     ///< collectives: an index into Program::rankSets, -1 for
                     ///< all ranks
  uint32_t firstWait = 0;
  int64_t bytes = 0; ///< of a transfer or collective
  std::array<int32_t, 4> slots = {kNoSlot, kNoSlot, kNoSlot, kNoSlot};

  bool operator==(const Instruction &) const = default;
};
static_assert(sizeof(Instruction) == 48, "the program file relies on it");

inline bool isAction(Op op) { return op <= Op::Recompute; }
/// Needs the stash that F, or R, has left.
inline bool readsStash(Op op) {
  return op == Op::Backward || op == Op::BackwardInput ||
         op == Op::BackwardWeight;
}
inline bool isTransfer(Op op) { return op == Op::Send || op == Op::Recv; }
inline bool isCollective(Op op) {
  return op == Op::AllReduce || op == Op::Barrier || op == Op::ReduceTied;
}
/// Uses the state of a batch, without moving it.
inline bool usesState(Op op) {
  return op == Op::ReduceState || op == Op::Validate;
}
/// Moves the state of a batch.
inline bool movesState(const Instruction &inst) {
  return isTransfer(inst.op) && inst.payload == Payload::State;
}
/// Moves a stash to another rank or back. Only orders say so; in a program
/// these are transfers.
inline bool movesToRank(const Instruction &inst) {
  return (inst.op == Op::Offload || inst.op == Op::Reload) && inst.peer >= 0;
}
/// Copies a stash to host memory or back.
inline bool movesToHost(const Instruction &inst) {
  return (inst.op == Op::Offload || inst.op == Op::Reload) && inst.peer < 0;
}
/// Uses a communicator: keeps host order with all that uses the same one.
inline bool usesComm(Op op) { return isTransfer(op) || isCollective(op); }

/// Index behind the last instruction of the item that starts at `begin`.
inline uint32_t itemEnd(std::span<const Instruction> list, uint32_t begin) {
  uint32_t end = begin + 1;
  while (end < list.size() && list[end].joined)
    ++end;
  return end;
}

/// The instructions of one rank, in host issue order.
struct RankProgram {
  std::vector<Instruction> instructions;
  /// Instruction i waits until the instructions
  /// waits[firstWait .. firstWait + numWaits), indices into `instructions`,
  /// all smaller than i, have ended. Canonical: firstWait counts up without
  /// gaps in instruction order, and is 0 where there is no wait.
  std::vector<uint32_t> waits;
  /// Bytes of each slot; empty before buffer planning.
  std::vector<int64_t> slotBytes;
  /// Likewise of the slots in host memory, for offloaded stashes.
  std::vector<int64_t> hostSlotBytes;
  /// A certificate: one time per instruction, or empty (Certificate.h). It is
  /// about the program and no part of it: neither text nor hash know it, and
  /// whoever changes the program drops it.
  std::vector<uint32_t> times;

  bool operator==(const RankProgram &) const = default;
};

/// The complete program: what runs, nothing implicit.
struct Program {
  Problem problem;
  std::vector<RankProgram> ranks; ///< problem.numRanks of them
  /// Sorted sets of ranks, for collectives. Canonical: numbered in the order of
  /// their first use, rank by rank; none twice, none unused.
  std::vector<std::vector<int32_t>> rankSets;

  size_t numInstructions() const {
    size_t n = 0;
    for (const RankProgram &rank : ranks)
      n += rank.instructions.size();
    return n;
  }
  /// True when there are no transfers, collectives, slots or uses of a state:
  /// only an order yet.
  bool isOrder() const;
  /// True when some rank has slots.
  bool isPlanned() const;
  bool operator==(const Program &) const = default;
};

/// Makes the rank sets canonical, whatever order they were collected in. Every
/// index into them must be in range.
void numberRankSets(Program &program);

/// An instruction of a program; `instruction` is kNoInstruction when a fault
/// concerns a whole rank, `rank` is -1 when it concerns the whole program.
struct Site {
  int32_t rank = -1;
  uint32_t instruction = kNoInstruction;

  bool operator==(const Site &) const = default;
};

/// The tensors that flow through a program. A tensor is named by
/// (kind, stage, mb).
enum class TensorKind : uint8_t { Activation, Gradient, Stash };
struct Tensor {
  TensorKind kind = TensorKind::Activation;
  int32_t stage = -1;
  int32_t microbatch = -1;

  bool operator==(const Tensor &) const = default;
};

/// What a transfer of a payload moves.
inline TensorKind kindOf(Payload payload) {
  return payload == Payload::Stash      ? TensorKind::Stash
         : payload == Payload::Gradient ? TensorKind::Gradient
                                        : TensorKind::Activation;
}
inline Payload payloadOf(TensorKind kind) {
  return kind == TensorKind::Stash      ? Payload::Stash
         : kind == TensorKind::Gradient ? Payload::Gradient
                                        : Payload::Activation;
}

/// How an instruction touches one tensor.
struct Access {
  enum Mode : uint8_t { Read, Write, Update } mode; ///< Update reads and writes
  uint8_t role;                                     ///< index into slots
  Tensor tensor;
};

/// Calls `fn(Access)` if `inst` touches a stash, see forEachAccess().
template <typename Fn>
inline void forEachStashAccess(const Instruction &inst, Fn &&fn) {
  Access::Mode mode = Access::Read;
  switch (inst.op) {
  case Op::Forward:
  case Op::Recompute:
    mode = Access::Write;
    break;
  case Op::Backward:
  case Op::BackwardWeight:
    break;
  case Op::BackwardInput:
    mode = Access::Update;
    break;
  case Op::Send:
  case Op::Recv:
    if (inst.payload != Payload::Stash)
      return;
    mode = inst.op == Op::Send ? Access::Read : Access::Write;
    break;
  default:
    return;
  }
  fn(Access{mode,
            static_cast<uint8_t>(isTransfer(inst.op) ? Slot : Stash),
            {TensorKind::Stash, inst.stage, inst.microbatch}});
}

/// Calls `fn(Access)` for every tensor that `inst` touches: the meaning of the
/// instructions, in one place.
///
///   F(s,i)  reads activation s-1, writes activation s and the stash of s
///   B(s,i)  reads activation s-1, gradient s+1, the stash; writes gradient s
///   I(s,i)  as B, and updates the stash, which W still needs
///   W(s,i)  reads activation s-1, gradient s+1, the stash
///   R(s,i)  reads activation s-1, writes the stash
///   send reads, recv writes its payload, unless that is a state
///
/// Stage 0 reads no activation and writes no gradient; the last stage writes
/// no activation and reads no gradient. `numStages` is that of the problem.
template <typename Fn>
inline void forEachAccess(const Instruction &inst, int32_t numStages, Fn &&fn) {
  const int32_t s = inst.stage, mb = inst.microbatch;
  const bool first = s == 0, last = s == numStages - 1;
  auto act = [&](int32_t stage) {
    return Tensor{TensorKind::Activation, stage, mb};
  };
  auto grad = [&](int32_t stage) {
    return Tensor{TensorKind::Gradient, stage, mb};
  };
  switch (inst.op) {
  case Op::Forward:
    if (!first)
      fn(Access{Access::Read, Input, act(s - 1)});
    if (!last)
      fn(Access{Access::Write, Output, act(s)});
    break;
  case Op::Backward:
  case Op::BackwardInput:
  case Op::BackwardWeight:
    if (!first)
      fn(Access{Access::Read, Input, act(s - 1)});
    if (!last)
      fn(Access{Access::Read, Gradient, grad(s + 1)});
    if (!first && inst.op != Op::BackwardWeight)
      fn(Access{Access::Write, Output, grad(s)});
    break;
  case Op::Recompute:
    if (!first)
      fn(Access{Access::Read, Input, act(s - 1)});
    break;
  case Op::Send:
  case Op::Recv:
    if (inst.payload == Payload::Activation ||
        inst.payload == Payload::Gradient)
      fn(Access{inst.op == Op::Send ? Access::Read : Access::Write, Slot,
                Tensor{kindOf(inst.payload), s, mb}});
    break;
  default:
    return;
  }
  forEachStashAccess(inst, fn);
}

/// Bytes of a tensor. The gradient of stage s is as large as the activation
/// that it belongs to, the output of stage s - 1. That of a slice is its part
/// of the micro-batch's, rounded up.
inline int64_t bytesOf(const Problem &problem, const Tensor &t) {
  auto part = [&](int64_t bytes) {
    return problem.slices == 1 ? bytes
                               : (bytes + problem.slices - 1) / problem.slices;
  };
  switch (t.kind) {
  case TensorKind::Activation:
    return part(problem.stages[t.stage].bytes.output);
  case TensorKind::Gradient:
    return t.stage > 0 ? part(problem.stages[t.stage - 1].bytes.output) : 0;
  case TensorKind::Stash:
    return part(problem.stages[t.stage].bytes.stash);
  }
  return 0;
}

/// Time of one instruction when nothing holds it up: the cost of the action,
/// of a slice its part, the link time of a transfer, the time of a copy to host
/// memory or back, 0 for everything else.
inline double durationOf(const Problem &problem, const Instruction &inst) {
  if (isTransfer(inst.op))
    return problem.link.time(inst.bytes);
  if (!isAction(inst.op))
    return movesToHost(inst)
               ? problem.hostLink.time(bytesOf(
                     problem, {TensorKind::Stash, inst.stage, inst.microbatch}))
               : 0;
  const StageCost &cost = problem.stages[inst.stage].cost;
  auto part = [&](double time) {
    return problem.slices == 1 ? time : time / problem.slices;
  };
  switch (inst.op) {
  case Op::Forward:
    return part(cost.forward);
  case Op::Backward:
    return part(cost.backward);
  case Op::BackwardInput:
    return part(cost.input);
  case Op::BackwardWeight:
    return part(cost.weight);
  default:
    return part(cost.recompute);
  }
}
/// Time of an item of actions: of several, what they take together.
inline double durationOfItem(const Problem &problem,
                             std::span<const Instruction> actions) {
  double sum = 0, longest = 0;
  for (const Instruction &action : actions) {
    const double duration = durationOf(problem, action);
    sum += duration;
    longest = std::max(longest, duration);
  }
  return problem.together(sum, longest);
}

/// Gradients that several ranks have parts of, and add up before a step: of a
/// stage with copies on several ranks by all_reduce, of tied stages by
/// reduce_tied.
struct GradientSum {
  Op op = Op::AllReduce;
  int32_t stage = -1;         ///< of tied stages the first
  std::vector<int32_t> ranks; ///< ascending
  int64_t bytes = 0;
};
/// Those of a problem, copies first, by stage.
std::vector<GradientSum> gradientSums(const Problem &problem);

/// Slots are laid out in ascending order in one arena per rank, each aligned to
/// this many bytes (a CUDA allocation's alignment).
inline constexpr int64_t kSlotAlignment = 256;

/// Offset of each slot in an arena; the last entry is the size of the arena in
/// bytes.
std::vector<int64_t> slotOffsets(const std::vector<int64_t> &slotBytes);
/// Of the slots on a rank.
inline std::vector<int64_t> slotOffsets(const RankProgram &rank) {
  return slotOffsets(rank.slotBytes);
}

} // namespace penstock

#endif // PENSTOCK_PROGRAM_PROGRAM_H
