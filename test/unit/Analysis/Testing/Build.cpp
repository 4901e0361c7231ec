//===- Build.cpp - Small programs, written by hand ------------------------===//

#include "Build.h"

#include <algorithm>

using namespace penstock;

namespace {

/// Writes one rank of 1F1B. Micro-batch i uses the i-th slot, modulo the number
/// of micro-batches in flight, of five kinds: input, output, gradient, gradient
/// out, stash.
class OneForwardOneBackward {
public:
  OneForwardOneBackward(Program &program, int32_t rank, bool planned)
      : program(program), rank(program.ranks[rank]), s(rank),
        last(static_cast<int32_t>(program.ranks.size()) - 1),
        m(program.problem.numMicrobatches), planned(planned) {
    inFlight = std::min(m, last - s + 1);
    if (planned)
      for (int32_t kind = 0; kind < 5; ++kind)
        for (int32_t k = 0; k <= inFlight; ++k)
          this->rank.slotBytes.push_back(
              kind == 4 ? program.problem.stages[s].bytes.stash
              : kind == 0 || kind == 3
                  ? (s > 0 ? program.problem.stages[s - 1].bytes.output : 0)
                  : program.problem.stages[s].bytes.output);
    forwardOf.assign(m, kNoInstruction);
    backwardOf = sentAct = sentGrad = recvAct = recvGrad = forwardOf;
  }

  /// Megatron-LM's order: in the steady state a forward send goes together with
  /// the gradient that comes back for it, on both sides.
  void run(bool grouped) {
    const int32_t warmup = std::min(m, last - s), steady = m - warmup;
    for (int32_t i = 0; i < warmup; ++i) {
      receive(Payload::Activation, i, false);
      forward(i);
      send(Payload::Activation, i, false);
    }
    if (steady > 0)
      receive(Payload::Activation, warmup, false);
    for (int32_t i = 0; i < steady; ++i) {
      forward(warmup + i);
      send(Payload::Activation, warmup + i, false);
      receive(Payload::Gradient, i, grouped);
      backward(i);
      send(Payload::Gradient, i, false);
      if (i + 1 < steady)
        receive(Payload::Activation, warmup + i + 1, grouped);
    }
    for (int32_t i = steady; i < m; ++i) {
      receive(Payload::Gradient, i, false);
      backward(i);
      send(Payload::Gradient, i, false);
    }
    Instruction step;
    step.op = Op::Step;
    rank.instructions.push_back(step);
  }

private:
  int32_t slotOf(int32_t kind, int32_t mb) const {
    return planned ? kind * (inFlight + 1) + mb % (inFlight + 1) : kNoSlot;
  }

  void add(Instruction inst, std::vector<uint32_t> waits) {
    std::erase(waits, kNoInstruction);
    uint32_t head = static_cast<uint32_t>(rank.instructions.size());
    rank.instructions.push_back(inst);
    if (!planned || waits.empty())
      return;
    while (rank.instructions[head].joined)
      --head;
    Instruction &first = rank.instructions[head];
    if (first.numWaits == 0)
      first.firstWait = static_cast<uint32_t>(rank.waits.size());
    for (uint32_t wait : waits) {
      rank.waits.push_back(wait);
      ++first.numWaits;
    }
  }

  /// What used a slot before: micro-batch mb - (inFlight + 1).
  uint32_t before(const std::vector<uint32_t> &of, int32_t mb) const {
    return mb > inFlight ? of[mb - inFlight - 1] : kNoInstruction;
  }

  void forward(int32_t mb) {
    Instruction inst;
    inst.op = Op::Forward;
    inst.stage = s;
    inst.microbatch = mb;
    if (s > 0)
      inst.slots[Input] = slotOf(0, mb);
    if (s < last)
      inst.slots[Output] = slotOf(1, mb);
    inst.slots[Stash] = slotOf(4, mb);
    forwardOf[mb] = static_cast<uint32_t>(rank.instructions.size());
    add(inst, {recvAct[mb], before(sentAct, mb)});
  }

  void backward(int32_t mb) {
    Instruction inst;
    inst.op = Op::Backward;
    inst.stage = s;
    inst.microbatch = mb;
    if (s > 0) {
      inst.slots[Input] = slotOf(0, mb);
      inst.slots[Output] = slotOf(3, mb);
    }
    if (s < last)
      inst.slots[Gradient] = slotOf(2, mb);
    inst.slots[Stash] = slotOf(4, mb);
    backwardOf[mb] = static_cast<uint32_t>(rank.instructions.size());
    add(inst, {recvGrad[mb], before(sentGrad, mb)});
  }

  void transfer(Op op, Payload payload, int32_t mb, bool joined) {
    const bool act = payload == Payload::Activation, isSend = op == Op::Send;
    const int32_t peer = act == isSend ? s + 1 : s - 1;
    if (peer < 0 || peer > last)
      return;
    Instruction inst;
    inst.op = op;
    inst.payload = payload;
    inst.joined = joined;
    inst.queue = planned ? 1 : 0;
    inst.stage = isSend ? s : peer;
    inst.microbatch = mb;
    inst.peer = peer;
    inst.bytes = program.problem.stages[std::min(s, peer)].bytes.output;
    inst.slots[Slot] = slotOf(act ? isSend : isSend ? 3 : 2, mb);
    auto &of = act      ? (isSend ? sentAct : recvAct)
               : isSend ? sentGrad
                        : recvGrad;
    of[mb] = static_cast<uint32_t>(rank.instructions.size());
    if (isSend)
      add(inst, {act ? forwardOf[mb] : backwardOf[mb]});
    else
      add(inst, {before(backwardOf, mb)});
  }
  void send(Payload payload, int32_t mb, bool joined) {
    transfer(Op::Send, payload, mb, joined);
  }
  void receive(Payload payload, int32_t mb, bool joined) {
    transfer(Op::Recv, payload, mb, joined);
  }

  Program &program;
  RankProgram &rank;
  const int32_t s, last, m;
  int32_t inFlight;
  const bool planned;
  std::vector<uint32_t> forwardOf, backwardOf, sentAct, sentGrad, recvAct,
      recvGrad;
};

} // namespace

Program penstock::test::oneForwardOneBackward(int32_t numRanks,
                                              int32_t numMicrobatches,
                                              bool planned, bool grouped) {
  Program program = makeProgram(numRanks, numMicrobatches);
  for (Stage &stage : program.problem.stages)
    stage.bytes = {16, 64, 32, 32, 64};
  for (int32_t r = 0; r < numRanks; ++r)
    OneForwardOneBackward(program, r, planned).run(grouped);
  return program;
}

Program penstock::test::breadthFirstForward(int32_t p, int32_t v, int32_t m,
                                            int64_t bytes) {
  Program program = makeProgram(p, m, p * v);
  for (int32_t r = 0; r < p; ++r) {
    RankBuilder rank(program, r);
    for (int32_t s = r; s < p * v; s += p)
      for (int32_t mb = 0; mb < m; ++mb) {
        if (s > 0)
          rank.recvAct(s - 1, mb, (r + p - 1) % p);
        rank.f(s, mb);
        if (s + 1 < p * v)
          rank.sendAct(s, mb, (r + 1) % p);
      }
  }
  for (RankProgram &rank : program.ranks)
    for (Instruction &inst : rank.instructions)
      if (isTransfer(inst.op))
        inst.bytes = bytes;
  return program;
}
