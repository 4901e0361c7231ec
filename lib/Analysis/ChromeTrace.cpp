//===- ChromeTrace.cpp - A timeline for trace viewers ---------------------===//

#include "penstock/Analysis/ChromeTrace.h"

#include "penstock/Analysis/RunOrder.h"
#include "penstock/Analysis/Verify.h"
#include "penstock/Program/Text.h"
#include "penstock/Support/Json.h"

#include <array>
#include <utility>

using namespace penstock;

/// Text is handed on in pieces of this size.
static constexpr size_t kPiece = 1 << 16;

ChromeTrace::ChromeTrace(const Program &program, Sink sink)
    : program(program), sink(std::move(sink)) {
  *this << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
  for (size_t r = 0; r < program.ranks.size(); ++r) {
    auto name = [&](std::string_view event) {
      begin();
      *this << R"({"ph": "M", "name": ")" << event << R"(", "pid": )";
      value(r);
    };
    name("process_name");
    *this << R"(, "args": {"name": "rank )";
    value(r);
    *this << R"("}})";
    end();
    name("process_sort_index");
    *this << R"(, "args": {"sort_index": )";
    value(r);
    *this << "}}";
    end();
    std::array<bool, 256> named = {};
    for (const Instruction &inst : program.ranks[r].instructions) {
      if (std::exchange(named[inst.queue], true))
        continue;
      const int queue = inst.queue;
      name("thread_name");
      *this << R"(, "tid": )";
      value(queue);
      *this << R"(, "args": {"name": "queue )";
      value(queue);
      *this << (queue == 0 ? " (compute)" : "") << R"("}})";
      end();
    }
  }
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
                                  : "other")
        << R"(", "pid": )";
  value(site.rank);
  *this << R"(, "tid": )";
  value(int(inst.queue));
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
    value(site.rank);
    *this << R"(, "tid": )";
    value(int(program.ranks[site.rank].instructions[site.instruction].queue));
    *this << R"(, "ts": )";
    value(time);
    *this << "}";
    end();
  };
  write(R"("s")", from, fromTime);
  write(R"("f", "bp": "e")", to, toTime);
}

void penstock::writeChromeTrace(const Program &program, const Timing &timing,
                                ChromeTrace::Sink sink) {
  constexpr double kUnit = 1000; // a millisecond, in microseconds
  ChromeTrace trace(program, std::move(sink));
  const Matching matching =
      timing.ofOrder ? Matching() : matchTransfers(program);
  for (size_t r = 0; r < program.ranks.size(); ++r) {
    const auto &list = program.ranks[r].instructions;
    for (uint32_t i = 0; i < list.size(); ++i) {
      const Site site{static_cast<int32_t>(r), i};
      const double start = timing.start[r][i] * kUnit,
                   duration = (timing.end[r][i] - timing.start[r][i]) * kUnit;
      trace.slice(site, start, duration);
      if (list[i].op == Op::Send && !timing.ofOrder)
        trace.arrow(site, start + duration / 2,
                    {list[i].peer, matching.partner[r][i]},
                    start + duration / 2);
    }
  }
  if (timing.ofOrder)
    forEachHandOver(program, [&](Site from, Site to, int32_t) {
      const double start = timing.start[from.rank][from.instruction],
                   end = timing.end[from.rank][from.instruction];
      trace.arrow(from, (start + (end - start) / 2) * kUnit, to,
                  timing.start[to.rank][to.instruction] * kUnit);
    });
}
