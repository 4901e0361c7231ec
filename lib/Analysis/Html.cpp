//===- Html.cpp - A schedule as a page ------------------------------------===//

#include "penstock/Analysis/Html.h"

#include "Markup.h"
#include "penstock/Analysis/MemoryOverTime.h"
#include "penstock/Analysis/Report.h"
#include "penstock/Analysis/Timeline.h"
#include "penstock/Analysis/Verify.h"
#include "penstock/Program/Text.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace penstock {

namespace {

constexpr std::string_view kStyle =
    "body{font:14px/1.45 Helvetica,Arial,sans-serif;color:#222;"
    "max-width:1080px;margin:24px auto;padding:0 16px}"
    "h1{font-size:20px}h2{font-size:16px;margin-top:28px}"
    "table{border-collapse:collapse}"
    "th,td{padding:2px 10px;text-align:right;border-bottom:1px solid #ddd}"
    "th:nth-child(-n+2),td:first-child{text-align:left}"
    "pre{background:#f4f4f4;padding:8px;overflow-x:auto}"
    ".wide{overflow-x:auto}.bar{display:flex;width:200px;height:12px}"
    ".bar span{height:12px}i{display:inline-block;width:10px;height:10px;"
    "margin-right:4px}";

/// One way in which a rank spends its time.
struct Share {
  std::string_view name, colour;
  double RankWaiting::*waiting; ///< null: it works
};
constexpr Share kShares[] = {
    {"busy", "#4a7fb5", nullptr},
    {"before its first action", "#e3e3e3", &RankWaiting::first},
    {"waits for transfers", "#e27d4a", &RankWaiting::transfers},
    {"waits for others", "#f9d967", &RankWaiting::others},
    {"at the end", "#c8c8c8", &RankWaiting::end},
};

class Page {
public:
  Page(const Program &program, const Timing &timing)
      : program(program), timing(timing) {}

  std::string write(const std::string &title, std::string_view picture);

private:
  void writeVerdict();
  void writeRanks();
  void writeMemory();
  void writeMemoryOf(const std::vector<MemoryStep> &steps,
                     int64_t MemoryStep::*value, double largest);
  void writePath();

  /// What counts slices, where micro-batches are cut into some.
  std::string sliced(std::string_view what) const {
    return std::string(what) + (program.problem.slices > 1 ? " of slices" : "");
  }
  void heading(std::string_view text) { os << "<h2>" << text << "</h2>\n"; }
  void cell(std::string_view text) { os << "<td>" << text << "</td>"; }
  void pre(std::string_view text) {
    os << "<pre>";
    for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
      end = std::min(text.find('\n', begin), text.size());
      os << escaped(text.substr(begin, end - begin)) << '\n';
    }
    os << "</pre>\n";
  }
  /// A table begins with its head; names need no escape.
  void beginTable(const std::vector<std::string> &names) {
    os << "<div class=\"wide\"><table>\n<tr>";
    for (const std::string &name : names)
      os << "<th>" << name << "</th>";
    os << "</tr>\n";
  }
  void endTable() { os << "</table></div>\n"; }

  const Program &program;
  const Timing &timing;
  Writer os;
};

/// What a program's users have to know before they run it.
void Page::writeVerdict() {
  heading("Verdict");
  VerifyOptions options;
  options.order = program.isOrder();
  const Verdict verdict = verify(program, options);
  if (verdict.accepted())
    os << "<p>The verifier accepts "
       << (options.order
               ? "the order. It has no transfers yet, which may deadlock.</p>\n"
               : "the program: it cannot deadlock, and every tensor arrives "
                 "where it is used.</p>\n");
  else
    os << "<p>The verifier <b>refuses</b> this:</p>\n";
  for (const Finding &finding : verdict.findings)
    pre(render(program, finding));
  for (const Finding &warning : verdict.warnings)
    pre("warning: " + render(program, warning));
}

void Page::writeRanks() {
  heading("Ranks");
  const std::vector<RankWaiting> waiting = waitingTimes(program, timing);
  std::vector<std::string> names = {"rank", "share of the makespan"};
  for (const Share &share : kShares)
    names.push_back("<i style=\"background:" + std::string(share.colour) +
                    "\"></i>" + std::string(share.name));
  names.insert(names.end(), {sliced("peak activations"), "peak memory"});
  beginTable(names);
  for (size_t r = 0; r < timing.ranks.size(); ++r) {
    const RankTiming &rank = timing.ranks[r];
    auto timeOf = [&](const Share &share) {
      return share.waiting ? waiting[r].*share.waiting : rank.busy;
    };
    os << "<tr>";
    cell(std::to_string(r));
    os << "<td><div class=\"bar\">";
    for (const Share &share : kShares)
      if (const double part = 100 * (timeOf(share) / timing.makespan);
          part >= 0.005)
        os << "<span title=\"" << share.name << "\" style=\"width:" << part
           << "%;background:" << share.colour << "\"></span>";
    os << "</div></td>";
    for (const Share &share : kShares)
      cell(formatRounded(timeOf(share)));
    cell(std::to_string(rank.peakActivations));
    cell(rank.peakBytes > 0 ? formatBytes(rank.peakBytes) : "");
    os << "</tr>\n";
  }
  endTable();
}

constexpr double kPlotWidth = 720, kPlotHeight = 36;

/// A curve of steps. Of what falls into one pixel only the largest value is
/// drawn.
void Page::writeMemoryOf(const std::vector<MemoryStep> &steps,
                         int64_t MemoryStep::*value, double largest) {
  std::vector<double> columns(static_cast<size_t>(kPlotWidth));
  auto columnOf = [&](double time) {
    return std::min(static_cast<size_t>(time / timing.makespan * kPlotWidth),
                    columns.size() - 1);
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    const double end =
        i + 1 < steps.size() ? steps[i + 1].time : timing.makespan;
    const size_t last = columnOf(end);
    for (size_t c = columnOf(steps[i].time); c <= last; ++c)
      columns[c] = std::max(columns[c], static_cast<double>(steps[i].*value));
  }
  os << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << kPlotWidth
     << "\" height=\"" << kPlotHeight << "\"><path d=\"M0 " << kPlotHeight;
  double before = -1;
  for (size_t c = 0; c < columns.size(); ++c)
    if (columns[c] != before) {
      before = columns[c];
      os << (c == 0 ? "V" : "H");
      if (c > 0)
        os << static_cast<double>(c) << "V";
      os << kPlotHeight - (kPlotHeight - 2) * (before / largest);
    }
  os << "H" << kPlotWidth << "V" << kPlotHeight
     << "Z\" fill=\"#bcd4ea\" stroke=\"#4a7fb5\"/></svg>";
}

void Page::writeMemory() {
  const std::vector<std::vector<MemoryStep>> memory =
      memoryOverTime(program, timing);
  auto largestOf = [&](int64_t MemoryStep::*value) {
    int64_t largest = 0;
    for (const auto &steps : memory)
      for (const MemoryStep &step : steps)
        largest = std::max(largest, step.*value);
    return largest;
  };
  const bool hasBytes = largestOf(&MemoryStep::bytes) > 0;
  const auto value = hasBytes ? &MemoryStep::bytes : &MemoryStep::activations;
  const int64_t largest = largestOf(value);
  if (largest == 0)
    return;
  heading("Memory over time");
  os << "<p>"
     << (hasBytes ? "Bytes that a rank holds"
                  : sliced("Stage activations") + " that a rank holds")
     << ", all to one scale: the top of a row is "
     << (hasBytes ? formatBytes(largest)
                  : std::to_string(largest) + " activations")
     << ".</p>\n";
  beginTable({"rank", "over time", "largest"});
  for (size_t r = 0; r < memory.size(); ++r) {
    int64_t own = 0;
    for (const MemoryStep &step : memory[r])
      own = std::max(own, step.*value);
    os << "<tr>";
    cell(std::to_string(r));
    os << "<td>";
    writeMemoryOf(memory[r], value, static_cast<double>(largest));
    os << "</td>";
    cell(hasBytes ? formatBytes(own) : std::to_string(own));
    os << "</tr>\n";
  }
  endTable();
}

void Page::writePath() {
  heading("Critical path");
  const std::vector<CriticalStep> path = criticalPath(program, timing);
  os << "<p>To shorten anything else helps nothing. It goes to: "
     << escaped(describePath(program, path)) << ".</p>\n";
  constexpr size_t kMostSteps = 1000;
  const size_t shown = std::min(path.size(), kMostSteps);
  if (shown < path.size())
    os << "<details><summary>Its first " << std::to_string(shown)
       << " steps</summary>\n";
  else
    os << "<details><summary>Its steps</summary>\n";
  const std::string steps =
      renderCriticalPath(program, {path.begin(), path.begin() + shown});
  pre(std::string_view(steps).substr(steps.find('\n') + 1)); // without the sum
  os << "</details>\n";
}

std::string Page::write(const std::string &title, std::string_view picture) {
  const std::string name =
      escaped(title.empty() ? program.problem.name : title);
  os << "<!DOCTYPE html>\n"
        "<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n"
        "<meta charset=\"utf-8\"/>\n<title>"
     << name << "</title>\n<style>" << kStyle << "</style>\n</head>\n<body>\n"
     << "<h1>" << name << "</h1>\n<p>"
     << escaped(describeTiming(program, timing)) << ". "
     << (timing.ofOrder
             ? "An order in the literature&#8217;s model: ranks work in order, "
               "transfers are pure latency."
             : "A program with its queues and transfers as they are.")
     << "</p>\n<div class=\"wide\">\n"
     << picture << "</div>\n";
  writeVerdict();
  writeRanks();
  writeMemory();
  writePath();
  os << "</body>\n</html>\n";
  return std::move(os.out);
}

} // namespace

Result<std::string> renderHtml(const Program &program, const Timing &timing,
                               const SvgOptions &picture) {
  SvgOptions options = picture;
  options.title.clear(); // the page has it
  options.tooltips = true;
  const Result<std::string> svg = renderSvg(program, timing, options);
  if (!svg)
    return svg.failure();
  // Without the line that only a file of its own begins with.
  const std::string_view embedded =
      std::string_view(*svg).substr(svg->find("<svg"));
  return Page(program, timing).write(picture.title, embedded);
}

} // namespace penstock
