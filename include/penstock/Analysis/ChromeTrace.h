//===- ChromeTrace.h - A timeline for trace viewers -------------*- C++ -*-===//
//
// Chrome trace events, for https://ui.perfetto.dev and chrome://tracing: a rank
// is a process, a queue a thread, arrows lead from sends to receives. What a
// simulation found and what the runtime recorded look alike.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_ANALYSIS_CHROMETRACE_H
#define PENSTOCK_ANALYSIS_CHROMETRACE_H

#include "penstock/Analysis/Simulate.h"
#include "penstock/Analysis/Verify.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// Writes events as they come, one a line, in pieces of some kilobytes: a trace
/// may be larger than memory. Times are finite, in microseconds.
class ChromeTrace {
public:
  using Sink = std::function<void(std::string_view)>;

  /// Names the ranks and queues of a well-formed program, once for each of
  /// several timelines that are shown one beside the other: rank 0 of the
  /// timeline " predicted" is named "rank 0 predicted".
  ChromeTrace(const Program &program, Sink sink,
              std::vector<std::string> timelines = {""});
  /// Ends the list of events.
  ~ChromeTrace();
  ChromeTrace(const ChromeTrace &) = delete;
  ChromeTrace &operator=(const ChromeTrace &) = delete;

  /// Of which timeline that which follows is; at the beginning the first one.
  void useTimeline(size_t number) { timeline = number; }
  /// An instruction that ran. `args` are further members of a JSON object,
  /// `"step": 3`, or empty.
  void slice(Site site, double start, double duration,
             std::string_view args = {});
  /// One that has not ended.
  void openSlice(Site site, double start, std::string_view args = {});
  /// An arrow from one instruction, at a time when it runs, to another.
  void arrow(Site from, double fromTime, Site to, double toTime);
  /// All that was simulated, with its arrows: that of a program is in the
  /// middle of its transfer, that of an order leads from the middle of an
  /// action to the start of the one that needs its result. Time 0 is at
  /// `origin`, and one unit of the costs is shown as `unit`.
  void simulated(const Timing &timing, double origin, double unit,
                 std::string_view args = {});

  /// The sends and receives of the program.
  const Matching &matching();

private:
  void begin();
  void beginSlice(std::string_view phase, Site site, double start);
  void endSlice(Site site, std::string_view args);
  void end();
  ChromeTrace &operator<<(std::string_view text);
  template <typename T>
  void value(const T &value);
  void processOf(int32_t rank);
  /// The queue of an instruction; in an order moves of stashes have their own.
  int threadOf(const Instruction &inst) const;

  const Program &program;
  Sink sink;
  std::string text;
  const size_t numTimelines;
  const bool isOrder;
  size_t timeline = 0;
  std::optional<Matching> matched;
  bool any = false;
  size_t arrows = 0;
};

/// Writes the simulated timeline of a well-formed order or program; one unit of
/// its costs is shown as a millisecond.
void writeChromeTrace(const Program &program, const Timing &timing,
                      ChromeTrace::Sink sink);

} // namespace penstock

#endif // PENSTOCK_ANALYSIS_CHROMETRACE_H
