//===- Svg.h - A schedule as a picture --------------------------*- C++ -*-===//
//
// Draws what a simulation found as an SVG picture for papers and web pages: one
// row a rank, time to scale.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_ANALYSIS_SVG_H
#define PENSTOCK_ANALYSIS_SVG_H

#include "penstock/Analysis/Simulate.h"
#include "penstock/Program/Result.h"

#include <string>

namespace penstock {

struct SvgOptions {
  std::string title;      ///< the first line, any bytes; the rest is escaped
  bool transfers = false; ///< an arrow for each transfer
  bool tooltips = false;  ///< of every box what it is and when
  unsigned width = 960;   ///< largest width in pixels, at least 320
};

/// A picture with more actions or ranks than this shows nothing.
inline constexpr size_t kMaxDrawnActions = 100'000;
inline constexpr size_t kMaxDrawnRanks = 4096;

/// Draws an order or a program with its Timing, as text in UTF-8 that is
/// well-formed XML and refers to nothing outside itself:
///
///  - every action that takes time is one box at its time, told apart by
///    colour, by pattern and, where it fits, by letter and micro-batch; actions
///    of one overlap share their time, one above the other;
///  - where ranks hold several stages, or are part of several chains, shade and
///    a bar that grows tell those apart;
///  - idle time is hatched; arrows go from the end of a send to the end of its
///    receive (of an order: from the end of the action to where its result is
///    there);
///  - below are a legend, and in the caption p, m, makespan, bubble rate and
///    the largest memory of a rank, in activations and, if known, bytes.
///
/// Boxes become as narrow as the width demands, and then lose their letters,
/// their numbers, their outlines. `timing` must be that of `program`. Fails
/// when no action takes time, and when there are too many to draw.
Result<std::string> renderSvg(const Program &program, const Timing &timing,
                              const SvgOptions &options = {});

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_SVG_H
