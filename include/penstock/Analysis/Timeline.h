//===- Timeline.h - A schedule as text --------------------------*- C++ -*-===//
//
// Draws what a simulation found, one row a rank, for terminals and comments.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_ANALYSIS_TIMELINE_H
#define PENSTOCK_ANALYSIS_TIMELINE_H

#include "penstock/Analysis/CriticalPath.h"

#include <string>

namespace penstock {

/// "p = 4, m = 8, makespan 33.0, bubble rate 0.2727": what stands over a
/// timeline.
std::string describeTiming(const Program &program, const Timing &timing);

/// Draws the actions of every rank to scale, with letter and micro-batch, and
/// the time below; a dot is idle time:
///
///     rank 0 F0F1F2......B0--B1--B2--
///     rank 1 ..F0B0--F1B1--F2B2--....
///     time   |0        |5        |10
///
/// Where ranks hold several stages, or are part of several chains, the letters
/// of every second of those are small. Lines have at most `maxColumns` columns,
/// at least 40. A schedule that is longer is scaled down to one column per
/// action, without micro-batches where these do not fit, and then cut; the last
/// line says so.
std::string renderTimeline(const Program &program, const Timing &timing,
                           unsigned maxColumns);

/// "F 2.0, B 2.0, transfers 0.5": what a critical path goes to; "nothing takes
/// time" where nothing does.
std::string describePath(const Program &program,
                         const std::vector<CriticalStep> &path);

/// Sums a critical path up and lists the steps that take time, one a line:
///
///     critical path: F 2.0, B 2.0, transfers 0.5
///     0.0  rank 0       forward 0 mb 0
///     1.0  rank 0 to 1  send activation 0 mb 0 to 1
///     1.5  rank 1       forward 1 mb 0
std::string renderCriticalPath(const Program &program,
                               const std::vector<CriticalStep> &path);

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_TIMELINE_H
