//===- Report.h - Findings as text ------------------------------*- C++ -*-===//
//
// How the tools without a compiler print what the verifier says. (The compiler
// prints findings as diagnostics at the ops.)
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_ANALYSIS_REPORT_H
#define PENSTOCK_ANALYSIS_REPORT_H

#include "penstock/Analysis/Verify.h"

#include <functional>

namespace penstock {

/// "rank 0, instruction 5 (send activation 0 mb 1 to 1): deadlock: ..." and one
/// indented line per note; every line ends with a newline.
std::string render(const Program &program, const Finding &finding);
/// The same, with other names for places. Not called for the whole program.
std::string render(const Finding &finding,
                   const std::function<std::string(Site)> &place);

/// What a verdict of the verifier rests on (docs/semantics.md): sentences,
/// numbered A1, A2, ... in this order.
std::span<const std::string_view> assumptions();

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_REPORT_H
