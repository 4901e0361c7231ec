//===- Text.h - Programs as readable text -----------------------*- C++ -*-===//
//
// The text of a program is the assembly of the `pipe` dialect, written without
// MLIR: what `dump` writes, penstock-opt parses to the same program.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_PROGRAM_TEXT_H
#define PENSTOCK_PROGRAM_TEXT_H

#include "penstock/Program/Program.h"

#include <iosfwd>
#include <string>
#include <string_view>

namespace penstock {

/// Mnemonic of the op in the dialect: "forward", "backward_input", "send", ...
std::string_view mnemonic(Op op);
/// One-letter name of an action: F, B, I, W, R; 0 for other instructions.
char letter(Op op);
/// "activation", "gradient" or "".
std::string_view name(Payload payload);

/// The instruction without its planning, as messages and waits name it:
/// "forward 0 mb 3", "send activation 0 mb 1 to 1", "recv gradient 2 mb 0 from
/// 3", "all_reduce 3", "step".
std::string describe(const Instruction &inst);
/// The same in back quotes.
std::string quoted(const Instruction &inst);
/// "activation 1 mb 0", "stash 2 mb 3"
std::string describe(const Tensor &tensor);

/// "rank 2, instruction 17 (recv gradient 3 mb 1 from 3)", as far as the site
/// goes. The site may be out of range: then only its numbers are named.
std::string describe(const Program &program, Site site);

/// Shortest decimal form that parses back to the same double, always with a
/// '.' or an exponent: "1.0", "0.601", "1.0e+20".
std::string formatNumber(double value);
/// The same with at most six significant digits, for people: "61.78".
std::string formatRounded(double value);

/// "1 rank", "2 ranks", "3 micro-batches": a number of things.
std::string counted(int64_t number, std::string_view noun);

/// "4 micro-batches", or "4 micro-batches of 2 slices".
std::string countedMicrobatches(const Problem &problem);

/// A name as a symbol of MLIR: @train, or @"two words" with escapes where it
/// cannot stand bare.
std::string formatSymbol(std::string_view name);

/// Writes a well-formed program as one `pipe.schedule` op in full form.
///
/// A wait is written as the head of the instruction waited for, and reads as
/// the latest earlier one with that head: where the same head stands twice on a
/// rank, a wait for the first of them has no text.
void dump(const Program &program, std::ostream &os);
std::string dump(const Program &program);

} // namespace penstock

#endif // PENSTOCK_PROGRAM_TEXT_H
