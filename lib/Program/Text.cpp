//===- Text.cpp - Programs as readable text -------------------------------===//

#include "penstock/Program/Text.h"

#include <charconv>
#include <ostream>

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
  case Op::ReduceTied:
    return "reduce_tied";
  case Op::ReduceState:
    return "reduce_state";
  case Op::Validate:
    return "validate";
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
  case Payload::Stash:
    return "stash";
  case Payload::State:
    return "state";
  case Payload::None:
    break;
  }
  return "";
}

/// The digits with a '.' or an exponent, so that they read as a double.
static std::string asDouble(std::string text) {
  size_t exponent = text.find('e');
  if (text.find('.') == std::string::npos &&
      text.find_first_not_of("-0123456789e+") == std::string::npos)
    text.insert(exponent == std::string::npos ? text.size() : exponent, ".0");
  return text;
}

std::string formatNumber(double value) {
  char buffer[40];
  return asDouble({buffer, std::to_chars(buffer, std::end(buffer), value).ptr});
}

std::string formatRounded(double value) {
  char buffer[40];
  return asDouble({buffer, std::to_chars(buffer, std::end(buffer), value,
                                         std::chars_format::general, 6)
                               .ptr});
}

std::string counted(int64_t number, std::string_view noun) {
  std::string text = std::to_string(number) + ' ' + std::string(noun);
  if (number != 1)
    text += noun.ends_with("ch") || noun.ends_with("sh") ? "es" : "s";
  return text;
}

std::string countedMicrobatches(const Problem &problem) {
  std::string text = counted(problem.numWholeMicrobatches(), "micro-batch");
  if (problem.slices != 1)
    text += " of " + counted(problem.slices, "slice");
  return text;
}

std::string formatSymbol(std::string_view name) {
  auto isLetter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  bool bare = !name.empty() && isLetter(name.front());
  for (char c : name)
    bare &= isLetter(c) || (c >= '0' && c <= '9') || c == '$' || c == '.';
  if (bare)
    return '@' + std::string(name);
  static constexpr char digits[] = "0123456789ABCDEF";
  std::string text = "@\"";
  for (unsigned char c : name) {
    if (c == '\\')
      text += "\\\\";
    else if (c >= ' ' && c < 0x7f && c != '"')
      text += static_cast<char>(c);
    else
      text += {'\\', digits[c >> 4], digits[c & 15]};
  }
  return text + '"';
}

namespace {

/// Appends to one string: a program may have millions of lines.
class Writer {
public:
  explicit Writer(std::string &out) : out(out) {}

  Writer &operator<<(std::string_view text) {
    out += text;
    return *this;
  }
  Writer &operator<<(const char *text) {
    return *this << std::string_view(text);
  }
  Writer &operator<<(char c) {
    out += c;
    return *this;
  }
  Writer &operator<<(double value) { return *this << formatNumber(value); }
  template <typename T>
  requires std::is_integral_v<T> Writer &operator<<(T value) {
    char buffer[24];
    out.append(buffer, std::to_chars(buffer, std::end(buffer), value).ptr);
    return *this;
  }

  /// "a, b, c"
  template <typename Range>
  Writer &list(const Range &range) {
    std::string_view separator;
    for (const auto &value : range) {
      *this << separator << value;
      separator = ", ";
    }
    return *this;
  }

private:
  std::string &out;
};

/// The part of an instruction that says what it is, without its planning.
void writeHead(Writer &os, const Instruction &inst) {
  os << mnemonic(inst.op);
  if (isTransfer(inst.op))
    os << ' ' << name(inst.payload);
  if (inst.stage >= 0)
    os << ' ' << inst.stage;
  if (inst.microbatch >= 0)
    os << " mb " << inst.microbatch;
  if (isTransfer(inst.op) || movesToRank(inst))
    os << (inst.op == Op::Send || inst.op == Op::Offload ? " to " : " from ")
       << inst.peer;
}

void writeProblem(Writer &os, const Problem &problem) {
  os << "pipe.schedule " << formatSymbol(problem.name) << " ranks("
     << problem.numRanks << ") microbatches(" << problem.numWholeMicrobatches()
     << ')';
  if (problem.slices != 1)
    os << " slices(" << problem.slices << ')';
  if (!problem.chains.empty()) {
    os << " chains([";
    os.list(problem.chains) << "])";
  }
  if (!problem.weights.empty()) {
    os << " weights([";
    os.list(problem.weights) << "])";
  }
  if (!problem.tied.empty()) {
    os << " tied(";
    for (const TiedStages &set : problem.tied) {
      os << (&set == problem.tied.data() ? "[" : ", [");
      os.list(set.stages) << ']';
      if (set.bytes != 0)
        os << " bytes " << set.bytes;
    }
    os << ')';
  }
  if (problem.overlap != 0)
    os << " overlap(" << problem.overlap << ')';
  if (problem.postValidation)
    os << " post_validation";
  if (problem.memory != 0)
    os << " memory(" << problem.memory << ')';
  if (problem.link != Link())
    os << " link(#pipe.link<latency = " << problem.link.latency
       << ", bytes_per_time = " << problem.link.bytesPerTime << ">)";
  if (problem.hostLink != Link())
    os << " host_link(#pipe.link<latency = " << problem.hostLink.latency
       << ", bytes_per_time = " << problem.hostLink.bytesPerTime << ">)";
  os << " {\n";

  const int32_t numChains = problem.numChains();
  for (int32_t s = 0; s < problem.numStages(); ++s) {
    const Stage &stage = problem.stages[s];
    os << "  stage " << s << " on ";
    if (numChains == 1) {
      os << problem.placement[s];
    } else {
      os << '(';
      for (int32_t chain = 0; chain < numChains; ++chain)
        os << (chain ? ", " : "")
           << problem.placement[static_cast<size_t>(chain) *
                                    problem.stages.size() +
                                s];
      os << ')';
    }
    if (stage.firstLayer != s || stage.numLayers != 1)
      os << " layers(" << stage.firstLayer << ", " << stage.numLayers << ')';
    const StageCost &cost = stage.cost;
    if (cost != StageCost())
      os << " costs(#pipe.cost<forward = " << cost.forward
         << ", backward = " << cost.backward << ", input = " << cost.input
         << ", weight = " << cost.weight << ", recompute = " << cost.recompute
         << ">)";
    const StageBytes &bytes = stage.bytes;
    if (bytes != StageBytes())
      os << " bytes(#pipe.bytes<output = " << bytes.output
         << ", stash = " << bytes.stash << ", parameters = " << bytes.parameters
         << ", gradients = " << bytes.gradients
         << ", optimizer = " << bytes.optimizer << ">)";
    os << '\n';
  }
}

/// One rank: an item is one line, or a block of lines in braces.
class RankWriter {
public:
  RankWriter(Writer &os, const Program &program, int32_t rank)
      : os(os), program(program), rank(program.ranks[rank]), index(rank) {}

  void write() {
    os << "  rank " << index;
    writeSlotSizes(" slots(", rank.slotBytes);
    writeSlotSizes(" host_slots(", rank.hostSlotBytes);
    os << " {\n";
    const auto &instructions = rank.instructions;
    for (uint32_t i = 0, end; i < instructions.size();) {
      end = itemEnd(instructions, i);
      writeItem(i, end);
      i = end;
    }
    os << "  }\n";
  }

private:
  /// Run-length, in slot order.
  void writeSlotSizes(std::string_view open,
                      const std::vector<int64_t> &bytes) {
    for (size_t i = 0; i < bytes.size();) {
      size_t end = i + 1;
      while (end < bytes.size() && bytes[end] == bytes[i])
        ++end;
      os << (i == 0 ? open : ", ") << end - i << " x " << bytes[i];
      i = end;
    }
    if (!bytes.empty())
      os << ')';
  }

  void writeItem(size_t begin, size_t end) {
    const Instruction &first = rank.instructions[begin];
    if (end - begin == 1) {
      os << "    ";
      writeInstruction(first);
      writeQueueAndWaits(first);
      os << '\n';
      return;
    }
    os << (isTransfer(first.op) ? "    group" : "    overlap");
    writeQueueAndWaits(first);
    os << " {\n";
    for (size_t i = begin; i < end; ++i) {
      os << "      ";
      writeInstruction(rank.instructions[i]);
      os << '\n';
    }
    os << "    }\n";
  }

  void writeInstruction(const Instruction &inst) {
    writeHead(os, inst);
    if (isAction(inst.op)) {
      static constexpr std::string_view roles[] = {" in(", " grad(", " out(",
                                                   " stash("};
      for (unsigned role = 0; role < inst.slots.size(); ++role)
        writeClause(roles[role], inst.slots[role], kNoSlot);
    } else if (isTransfer(inst.op)) {
      writeClause(" slot(", inst.slots[Slot], kNoSlot);
    } else if (movesToHost(inst)) {
      writeClause(" slot(", inst.slots[Slot], kNoSlot);
      writeClause(" host(", inst.slots[Host], kNoSlot);
    } else if (isCollective(inst.op) && inst.peer >= 0) {
      os << " ranks(";
      os.list(program.rankSets[inst.peer]) << ')';
    }
    if (usesComm(inst.op)) {
      writeClause<int64_t>(" bytes(", inst.bytes, 0);
      writeClause<int>(" comm(", inst.comm, 0);
    }
  }

  void writeQueueAndWaits(const Instruction &inst) {
    writeClause<int>(" queue(", inst.queue, 0);
    if (inst.numWaits == 0)
      return;
    for (unsigned k = 0; k < inst.numWaits; ++k) {
      os << (k == 0 ? " after(" : ", ");
      writeHead(os, rank.instructions[rank.waits[inst.firstWait + k]]);
    }
    os << ')';
  }

  template <typename T>
  void writeClause(std::string_view open, T value, T defaultValue) {
    if (value != defaultValue)
      os << open << value << ')';
  }

  Writer &os;
  const Program &program;
  const RankProgram &rank;
  int32_t index;
};

} // namespace

std::string describe(const Instruction &inst) {
  std::string text;
  Writer os(text);
  writeHead(os, inst);
  return text;
}

std::string quoted(const Instruction &inst) {
  std::string text = "`";
  text += describe(inst);
  return text += '`';
}

std::string describe(const Tensor &tensor) {
  std::string text = tensor.kind == TensorKind::Activation ? "activation "
                     : tensor.kind == TensorKind::Gradient ? "gradient "
                                                           : "stash ";
  Writer os(text);
  os << tensor.stage << " mb " << tensor.microbatch;
  return text;
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

std::string dump(const Program &program) {
  std::string text;
  Writer writer(text);
  writeProblem(writer, program.problem);
  for (int32_t rank = 0; rank < program.problem.numRanks; ++rank)
    RankWriter(writer, program, rank).write();
  writer << "}\n";
  return text;
}

void dump(const Program &program, std::ostream &os) { os << dump(program); }

} // namespace penstock
