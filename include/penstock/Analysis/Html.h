//===- Html.h - A schedule as a page ----------------------------*- C++ -*-===//
//
// All that there is to say about a simulated schedule, on one page for a
// browser: the picture, what every rank does and holds, the critical path, and
// what the verifier says.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_ANALYSIS_HTML_H
#define PENSTOCK_ANALYSIS_HTML_H

#include "penstock/Analysis/Svg.h"

namespace penstock {

/// The page of an order or a program with its Timing, as text in UTF-8 that is
/// well-formed XML and refers to nothing outside itself, without scripts. The
/// picture has a tooltip for every action; `picture.tooltips` is not looked at.
/// `timing` must be that of `program`. Fails where renderSvg() does.
Result<std::string> renderHtml(const Program &program, const Timing &timing,
                               const SvgOptions &picture = {});

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_HTML_H
