//===- ChromeTrace.cpp - A timeline for trace viewers ---------------------===//

#include "penstock/Analysis/ChromeTrace.h"

#include "penstock/Analysis/RunOrder.h"
#include "penstock/Program/Text.h"
#include "penstock/Support/Json.h"

#include <array>
#include <string>
#include <utility>

using namespace penstock;

/// Text is handed on in pieces of this size.
static constexpr size_t kPiece = 1 << 16;

ChromeTrace::ChromeTrace(const Program &program, Sink sink,
                         std::vector<std::string> timelines)
    : program(program), sink(std::move(sink)), numTimelines(timelines.size()),
      isOrder(program.isOrder()) {
  *this << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
  for (size_t r = 0; r < program.ranks.size(); ++r)
    for (timeline = 0; timeline < numTimelines; ++timeline) {
      const auto rank = static_cast<int32_t>(r);
      auto name = [&](std::string_view event) {
        begin();
        *this << R"({"ph": "M", "name": ")" << event << R"(", "pid": )";
        processOf(rank);
      };
      name("process_name");
      *this << R"(, "args": {"name": )";
      value("rank " + std::to_string(r) + timelines[timeline]);
      *this << "}}";
      end();
      name("process_sort_index");
      *this << R"(, "args": {"sort_index": )";
      value(r * numTimelines + timeline);
      *this << "}}";
      end();
      std::array<bool, 256> named = {};
      for (const Instruction &inst : program.ranks[r].instructions) {
        const int queue = threadOf(inst);
        if (std::exchange(named[queue], true))
          continue;
        name("thread_name");
        *this << R"(, "tid": )";
        value(queue);
        *this << R"(, "args": {"name": "queue )";
        value(queue);
        *this << (queue == 0          ? " (compute)"
                  : movesToHost(inst) ? " (host memory)"
                                      : "")
              << R"("}})";
        end();
      }
    }
  timeline = 0;
}

ChromeTrace::~ChromeTrace() {
  *this << "\n]}\n";
  sink(text);
}

ChromeTrace &ChromeTrace::operator<<(std::string_view more) {
  text += more;
  return *this;
}

template <typename T>
void ChromeTrace::value(const T &value) {
  appendJson(text, value);
}

/// The first timeline has the numbers of the ranks.
void ChromeTrace::processOf(int32_t rank) {
  value(timeline * program.ranks.size() + rank);
}

int ChromeTrace::threadOf(const Instruction &inst) const {
  const bool moves = inst.op == Op::Offload || inst.op == Op::Reload;
  return isOrder && moves && inst.queue < 255 ? inst.queue + 1 : inst.queue;
}

const Matching &ChromeTrace::matching() {
  if (!matched)
    matched = matchTransfers(program);
  return *matched;
}

void ChromeTrace::begin() {
  *this << (std::exchange(any, true) ? ",\n  " : "\n  ");
}

void ChromeTrace::end() {
  if (text.size() < kPiece)
    return;
  sink(text);
  text.clear();
}

void ChromeTrace::beginSlice(std::string_view phase, Site site, double start) {
  const Instruction &inst =
      program.ranks[site.rank].instructions[site.instruction];
  begin();
  *this << R"({"ph": ")" << phase << R"(", "name": )";
  value(describe(inst));
  *this << R"(, "cat": ")"
        << (isAction(inst.op)     ? "action"
            : isTransfer(inst.op) ? "transfer"
            : movesToHost(inst)   ? "copy"
                                  : "other")
        << R"(", "pid": )";
  processOf(site.rank);
  *this << R"(, "tid": )";
  value(threadOf(inst));
  *this << R"(, "ts": )";
  value(start);
}

void ChromeTrace::endSlice(Site site, std::string_view args) {
  const Instruction &inst =
      program.ranks[site.rank].instructions[site.instruction];
  *this << R"(, "args": {"stage": )";
  value(inst.stage);
  *this << R"(, "mb": )";
  value(inst.microbatch);
  *this << R"(, "bytes": )";
  value(inst.bytes);
  *this << (args.empty() ? "" : ", ") << args << "}}";
  end();
}

void ChromeTrace::slice(Site site, double start, double duration,
                        std::string_view args) {
  beginSlice("X", site, start);
  *this << R"(, "dur": )";
  value(duration);
  endSlice(site, args);
}

void ChromeTrace::openSlice(Site site, double start, std::string_view args) {
  beginSlice("B", site, start);
  endSlice(site, args);
}

void ChromeTrace::arrow(Site from, double fromTime, Site to, double toTime) {
  ++arrows;
  auto write = [&](std::string_view phase, Site site, double time) {
    begin();
    // Arrows bind to the slice that encloses their time.
    *this << R"({"ph": )" << phase << R"(, "id": )";
    value(arrows);
    *this << R"(, "name": "transfer", "cat": "transfer", "pid": )";
    processOf(site.rank);
    *this << R"(, "tid": )";
    value(threadOf(program.ranks[site.rank].instructions[site.instruction]));
    *this << R"(, "ts": )";
    value(time);
    *this << "}";
    end();
  };
  write(R"("s")", from, fromTime);
  write(R"("f", "bp": "e")", to, toTime);
}

void ChromeTrace::simulated(const Timing &timing, double origin, double unit,
                            std::string_view args) {
  for (size_t r = 0; r < program.ranks.size(); ++r) {
    const auto &list = program.ranks[r].instructions;
    for (uint32_t i = 0; i < list.size(); ++i) {
      const Site site{static_cast<int32_t>(r), i};
      const double start = origin + timing.start[r][i] * unit,
                   duration = (timing.end[r][i] - timing.start[r][i]) * unit;
      slice(site, start, duration, args);
      if (list[i].op == Op::Send && !timing.ofOrder)
        arrow(site, start + duration / 2,
              {list[i].peer, matching().partner[r][i]}, start + duration / 2);
    }
  }
  if (timing.ofOrder)
    forEachHandOver(program, [&](Site from, Site to, int32_t) {
      const double start = timing.start[from.rank][from.instruction],
                   end = timing.end[from.rank][from.instruction];
      arrow(from, origin + (start + (end - start) / 2) * unit, to,
            origin + timing.start[to.rank][to.instruction] * unit);
    });
}

void penstock::writeChromeTrace(const Program &program, const Timing &timing,
                                ChromeTrace::Sink sink) {
  constexpr double kUnit = 1000; // a millisecond, in microseconds
  ChromeTrace(program, std::move(sink)).simulated(timing, 0, kUnit);
}
