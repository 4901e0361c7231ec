//===- Text.cpp - Programs as readable text -------------------------------===//

#include "penstock/Program/Text.h"

#include <charconv>
#include <ostream>
#include <sstream>

namespace penstock {

std::string_view mnemonic(Op op) {
  switch (op) {
  case Op::Forward:
    return "forward";
  case Op::Backward:
    return "backward";
  case Op::BackwardInput:
    return "backward_input";
  case Op::BackwardWeight:
    return "backward_weight";
  case Op::Recompute:
    return "recompute";
  case Op::Send:
    return "send";
  case Op::Recv:
    return "recv";
  case Op::AllReduce:
    return "all_reduce";
  case Op::Barrier:
    return "barrier";
  case Op::ReduceGrad:
    return "reduce_grad";
  case Op::Unshard:
    return "unshard";
  case Op::Reshard:
    return "reshard";
  case Op::Offload:
    return "offload";
  case Op::Reload:
    return "reload";
  case Op::Step:
    return "step";
  }
  return "unknown";
}

char letter(Op op) {
  static constexpr char letters[] = {'F', 'B', 'I', 'W', 'R'};
  return isAction(op) ? letters[static_cast<unsigned>(op)] : 0;
}

std::string_view name(Payload payload) {
  switch (payload) {
  case Payload::Activation:
    return "activation";
  case Payload::Gradient:
    return "gradient";
  case Payload::None:
    break;
  }
  return "";
}

std::string formatNumber(double value) {
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  std::string text(buffer, end);
  size_t exponent = text.find('e');
  if (text.find('.') == std::string::npos &&
      text.find_first_not_of("-0123456789e+") == std::string::npos)
    text.insert(exponent == std::string::npos ? text.size() : exponent, ".0");
  return text;
}

/// The part of an instruction that says what it is, without its planning.
static void writeHead(std::ostream &os, const Instruction &inst) {
  os << mnemonic(inst.op);
  if (isTransfer(inst.op))
    os << ' ' << name(inst.payload);
  if (inst.stage >= 0)
    os << ' ' << inst.stage;
  if (inst.microbatch >= 0)
    os << " mb " << inst.microbatch;
  if (isTransfer(inst.op))
    os << (inst.op == Op::Send ? " to " : " from ") << inst.peer;
}

std::string describe(const Instruction &inst) {
  std::ostringstream os;
  writeHead(os, inst);
  return os.str();
}

std::string describe(const Program &program, Site site) {
  if (site.rank < 0)
    return "program";
  std::string text = "rank " + std::to_string(site.rank);
  if (site.instruction == kNoInstruction)
    return text;
  text += ", instruction " + std::to_string(site.instruction);
  if (static_cast<size_t>(site.rank) >= program.ranks.size())
    return text;
  const auto &instructions = program.ranks[site.rank].instructions;
  if (site.instruction < instructions.size())
    text += " (" + describe(instructions[site.instruction]) + ")";
  return text;
}

} // namespace penstock
