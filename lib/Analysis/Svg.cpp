//===- Svg.cpp - A schedule as a picture ----------------------------------===//

#include "penstock/Analysis/Svg.h"

#include "Cells.h"
#include "Markup.h"
#include "penstock/Analysis/RunOrder.h"
#include "penstock/Analysis/Timeline.h"
#include "penstock/Program/Text.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <vector>

namespace penstock {

namespace {

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

/// An estimate for the usual sans-serif fonts, that of the wider ones.
double widthOf(std::string_view ascii, double fontSize) {
  double em = 0;
  for (char c : ascii)
    em += c == 'W' || c == 'm'                               ? 0.97
          : std::string_view(" .,:;()-fijlt").find(c) < 13   ? 0.36
          : (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ? 0.64
                                                             : 0.6;
  return em * fontSize;
}

//===----------------------------------------------------------------------===//
// Colours and patterns
//===----------------------------------------------------------------------===//

struct Colour {
  uint8_t red, green, blue;

  /// 0 leaves it as it is, 1 is the other one.
  Colour mixedWith(Colour other, double part) const {
    auto mix = [&](uint8_t value, uint8_t with) {
      return static_cast<uint8_t>(value + (with - value) * part + 0.5);
    };
    return {mix(red, other.red), mix(green, other.green),
            mix(blue, other.blue)};
  }
  /// Relative luminance (WCAG 2.1).
  double luminance() const {
    auto linear = [](uint8_t value) {
      const double part = value / 255.0;
      return part <= 0.04045 ? part / 12.92
                             : std::pow((part + 0.055) / 1.055, 2.4);
    };
    return 0.2126 * linear(red) + 0.7152 * linear(green) +
           0.0722 * linear(blue);
  }
  std::string hex() const {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (uint8_t value : {red, green, blue})
      text += {digits[value >> 4], digits[value & 15]};
    return text;
  }
};

constexpr Colour kBlack{0, 0, 0}, kWhite{255, 255, 255};

/// A kind of action: its colours differ by at least 20 (CIE 1976) for
/// trichromats and, after Machado et al. 2009, for protanopes, deuteranopes and
/// tritanopes. Its pattern is drawn into squares of 6 pixels.
struct Kind {
  Colour colour;
  std::string_view pattern;
  std::string_view name;
};
constexpr Kind kKinds[] = {
    {{0x6d, 0xb6, 0xe6}, "", "forward"},
    {{0xe2, 0x7d, 0x4a}, "M0 0L6 6M-1 5L1 7M5 -1L7 1", "backward"},
    {{0xf9, 0xd9, 0x67}, "M0 3H6", "input gradient"},
    {{0x6f, 0xa3, 0x89}, "M1.5 1.5h.01M4.5 4.5h.01", "weight gradient"},
    {{0x7d, 0x4f, 0xa3}, "M3 0V6", "recompute"},
};
constexpr std::string_view kIdlePattern = "M0 6L6 0M-1 1L1 -1M5 7L7 5";

/// The look of the actions of one kind and one part of their rank.
struct Fill {
  std::string id, paint;
  Colour colour;
  bool whiteText;
};

Fill makeFill(Op op, double shade) {
  const Kind &kind = kKinds[static_cast<size_t>(op)];
  Fill fill;
  fill.colour = kind.colour.mixedWith(kWhite, 0.5 * shade);
  const std::string hex = fill.colour.hex();
  if (!kind.pattern.empty())
    fill.id = letter(op) + hex; // also unique on a page of several pictures
  fill.paint = fill.id.empty() ? '#' + hex : "url(#" + fill.id + ')';
  // Both have the same contrast to a colour of this luminance.
  fill.whiteText = fill.colour.luminance() < 0.179;
  return fill;
}

void definePattern(Writer &os, std::string_view id, std::string_view colour,
                   std::string_view path, std::string_view stroke) {
  os << "<pattern id=\"" << id
     << "\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
        "<rect width=\"6\" height=\"6\" fill=\"#"
     << colour << "\"/><path d=\"" << path << "\" stroke=\"#" << stroke
     << "\" stroke-linecap=\"round\"/></pattern>\n";
}

//===----------------------------------------------------------------------===//
// The picture
//===----------------------------------------------------------------------===//

constexpr double kPad = 8, kFont = 10, kLine = 16;

/// Places things from left to right, and in the next line where there is no
/// room.
class Flow {
public:
  Flow(double left, double right, double top)
      : left(left), right(right), x(left), y(top) {}

  struct Place {
    double x, y; ///< left end, and middle of the line
  };
  Place add(double width) {
    if (x > left && x + width > right) {
      x = left;
      y += kLine;
    }
    const Place place{x, y + kLine / 2};
    x += width + 14;
    return place;
  }
  double bottom() const { return y + kLine; }

private:
  double left, right, x, y;
};

class Picture {
public:
  Picture(const Program &program, const Timing &timing,
          const SvgOptions &options, const CellTimes &times)
      : program(program), problem(program.problem), timing(timing),
        options(options), times(times), parts(problem) {}

  std::string draw();

private:
  enum class Labels { LettersAndNumbers, Numbers, None };

  void layOut();
  void drawRows();
  void drawIdle(size_t rank);
  void drawRank(size_t rank);
  void drawCopies(size_t rank);
  void drawTransfers();
  void drawAxis(double y);
  double drawLegend(double y);
  double drawCaption(double y);

  double scaled(double time) const { return time * scale; }
  double xOf(double userTime) const {
    return left + scaled(times.fromUser(userTime));
  }
  double topOf(size_t rank) const {
    return top + pitch * static_cast<double>(rank);
  }
  /// 0 for the first part, 1 for the last.
  double shareOf(int32_t part) const {
    const size_t last = parts.names.size() - 1;
    return last == 0 ? 0 : part / static_cast<double>(last);
  }
  const Fill &fillOf(Op op, int32_t part);
  void text(Writer &os, double x, double middle, std::string_view xml,
            double fontSize = kFont) {
    os << "<text x=\"" << x << "\" y=\"" << middle + 0.35 * fontSize << "\">"
       << xml << "</text>\n";
  }
  void box(Writer &os, double x, double y, double w, double h,
           std::string_view paint, std::string_view tooltip = {}) {
    os << "<rect x=\"" << x << "\" y=\"" << y << "\" width=\"" << w
       << "\" height=\"" << h << "\" fill=\"" << paint << '"';
    if (tooltip.empty())
      os << "/>\n";
    else
      os << "><title>" << tooltip << "</title></rect>\n";
  }
  std::string tooltipOf(const Instruction &inst, const Cell &cell) const {
    return describe(inst) + ": " + formatMark(times.toUser(cell.start)) +
           " to " + formatMark(times.toUser(cell.finish));
  }
  /// The bar of a part, along the lower edge of its box.
  void bar(Writer &os, double x, double bottom, double w, int32_t part) {
    if (part > 0)
      os << "M" << x << " " << bottom - 1.5 << "h" << w * shareOf(part);
  }
  std::string labelOf(const Instruction &inst, Labels how) const {
    std::string label;
    if (how == Labels::LettersAndNumbers)
      label += letter(inst.op);
    if (how != Labels::None)
      label += std::to_string(inst.microbatch);
    return label;
  }

  const Program &program;
  const Problem &problem;
  const Timing &timing;
  const SvgOptions &options;
  const CellTimes &times;
  const Parts parts;

  // The layout, in pixels.
  double left = 0, top = 0, width = 0; ///< `left` and `top` of the first row
  double scale = 0;                    ///< pixels per scaled time
  double pitch = 0, height = 0;        ///< of a row, and of its boxes
  Labels labels = Labels::None;
  bool outlines = false, bars = false, numbered = false;
  bool offloads = false, reloads = false; ///< some are drawn

  /// By kind and shade; those that were used are defined.
  std::map<std::pair<Op, int>, Fill> fills;
  std::array<bool, std::size(kKinds)> used = {};
  Writer body;
};

/// Shades beyond these would look the same.
constexpr int kShades = 9;

const Fill &Picture::fillOf(Op op, int32_t part) {
  used[static_cast<size_t>(op)] = true;
  const int shade = static_cast<int>(shareOf(part) * (kShades - 1) + 0.5);
  auto [at, isNew] = fills.try_emplace({op, shade});
  if (isNew)
    at->second = makeFill(op, shade / double(kShades - 1));
  return at->second;
}

void Picture::layOut() {
  const size_t numRanks = program.ranks.size();
  left = kPad + widthOf("rank " + std::to_string(numRanks - 1), kFont) + 6;
  const double right = kPad + widthOf(formatMark(timing.makespan), kFont) / 2;
  const double available = std::max(options.width, 320u) - left - right;

  double letters = 0, numbers = 0;
  for (const RankProgram &rank : program.ranks)
    for (const Instruction &inst : rank.instructions)
      if (isAction(inst.op)) {
        letters = std::max(
            letters, widthOf(labelOf(inst, Labels::LettersAndNumbers), kFont));
        numbers =
            std::max(numbers, widthOf(labelOf(inst, Labels::Numbers), kFont));
      }
  constexpr double kRoom = 4; // on both sides of a label together
  scale = std::min(std::max(20.0, letters + kRoom) / times.unit,
                   available / times.makespan);
  const double shortest = scaled(times.unit);
  labels = shortest >= letters + kRoom   ? Labels::LettersAndNumbers
           : shortest >= numbers + kRoom ? Labels::Numbers
                                         : Labels::None;
  outlines = shortest >= 3;
  bars = shortest >= 3 && parts.names.size() > 1;

  // Enough room for every action of an overlap, less where there are many
  // ranks.
  const double gap = options.transfers ? 14 : 5;
  height = std::max(22.0, 15.0 * std::min(times.largestCell, 3u));
  constexpr double kMostHeight = 1200;
  pitch = std::clamp(kMostHeight / static_cast<double>(numRanks), 3.0,
                     height + gap);
  height *= pitch / (height + gap);
  width = std::max(left + scaled(times.makespan) + right, 460.0);
  width = std::min(width, static_cast<double>(std::max(options.width, 320u)));
}

/// Between the actions, not behind them: it would shine through the seams of
/// many narrow ones.
void Picture::drawIdle(size_t rank) {
  std::vector<std::pair<double, double>> busy;
  forEachCell(program, timing, times.exponent, rank, [&](const Cell &cell) {
    busy.emplace_back(scaled(cell.start), scaled(cell.finish));
    return true;
  });
  std::sort(busy.begin(), busy.end()); // queues may run side by side
  const double end = scaled(times.makespan);
  busy.emplace_back(end, end);
  double now = 0;
  for (auto [start, finish] : busy) {
    if (start - now >= 0.01)
      box(body, left + now, topOf(rank), start - now, height, "url(#idle)");
    now = std::max(now, finish);
  }
}

void Picture::drawRank(size_t rank) {
  const auto &list = program.ranks[rank].instructions;
  Writer boxes, black, white, lines;
  forEachCell(program, timing, times.exponent, rank, [&](const Cell &cell) {
    const double x = scaled(cell.start);
    const double w = scaled(cell.finish) - x;
    const double h = height / (cell.end - cell.begin);
    for (uint32_t i = cell.begin; i < cell.end; ++i) {
      const Instruction &inst = list[i];
      const double y = h * (i - cell.begin);
      const int32_t part = parts.of(inst);
      const Fill &fill = fillOf(inst.op, part);
      box(boxes, x, y, w, h, fill.paint,
          options.tooltips ? tooltipOf(inst, cell) : std::string());
      const bool barred = bars && h >= 8;
      if (barred)
        bar(lines, x, y + h, w, part);
      std::string label = labelOf(inst, labels);
      if (labels == Labels::None)
        label = labelOf(inst, Labels::Numbers);
      if (widthOf(label, kFont) + 2 > w || h < kFont + 1)
        continue;
      numbered = true;
      text(fill.whiteText ? white : black, x + w / 2,
           y + (barred ? h - 2 : h) / 2, label);
    }
    return true;
  });
  body << "<g transform=\"translate(" << left << "," << topOf(rank)
       << ")\">\n<g stroke=\"#333\" stroke-width=\"" << (outlines ? "0.6" : "0")
       << "\">\n"
       << boxes.out << "</g>\n";
  if (!lines.out.empty())
    body << "<path d=\"" << lines.out
         << "\" stroke=\"#222\" stroke-width=\"3\"/>\n";
  if (!black.out.empty())
    body << "<g text-anchor=\"middle\">\n" << black.out << "</g>\n";
  if (!white.out.empty())
    body << "<g text-anchor=\"middle\" fill=\"#fff\">\n"
         << white.out << "</g>\n";
  body << "</g>\n";
}

/// Copies to host memory and back run below the actions of their rank.
constexpr double kCopyHeight = 2.5;
constexpr std::string_view kOffload = "#444", kReload = "#999";

void Picture::drawCopies(size_t rank) {
  if (pitch - height < kCopyHeight + 1)
    return;
  const auto number = static_cast<int32_t>(rank);
  auto at =
      std::lower_bound(timing.moves.begin(), timing.moves.end(), number,
                       [](Site move, int32_t r) { return move.rank < r; });
  for (; at != timing.moves.end() && at->rank == number; ++at) {
    const Instruction &inst = program.ranks[rank].instructions[at->instruction];
    if (!movesToHost(inst))
      continue;
    const Cell cell{
        at->instruction, at->instruction + 1,
        times.fromUser(timing.start[rank][at->instruction]),
        std::min(times.makespan,
                 times.fromUser(timing.end[rank][at->instruction]))};
    if (!(cell.finish > cell.start))
      continue;
    const bool goes = inst.op == Op::Offload;
    (goes ? offloads : reloads) = true;
    box(body, left + scaled(cell.start), topOf(rank) + height + 1,
        scaled(cell.finish) - scaled(cell.start), kCopyHeight,
        goes ? kOffload : kReload,
        options.tooltips ? tooltipOf(inst, cell) : std::string());
  }
}

void Picture::drawRows() {
  const size_t numRanks = program.ranks.size();
  body << "<g text-anchor=\"end\">\n";
  const auto every = static_cast<size_t>(std::ceil((kFont + 2) / pitch));
  for (size_t rank = 0; rank < numRanks; rank += every)
    text(body, left - 6, topOf(rank) + height / 2,
         "rank " + std::to_string(rank));
  body << "</g>\n";
  for (size_t rank = 0; rank < numRanks; ++rank)
    drawIdle(rank);
  if (options.transfers)
    drawTransfers();
  for (size_t rank = 0; rank < numRanks; ++rank) {
    drawRank(rank);
    drawCopies(rank);
  }
}

/// An arrow of a transfer, without its attributes: a line, and the head.
static void drawArrow(Writer &lines, Writer &heads, double x0, double y0,
                      double x1, double y1) {
  const double length = std::hypot(x1 - x0, y1 - y0);
  if (!(length > 0))
    return;
  constexpr double kLong = 4, kWide = 1.7;
  const double ux = (x1 - x0) / length, uy = (y1 - y0) / length;
  const double bx = x1 - kLong * ux, by = y1 - kLong * uy;
  lines << "M" << x0 << " " << y0 << "L" << bx << " " << by;
  heads << "M" << x1 << " " << y1 << "L" << bx - kWide * uy << " "
        << by + kWide * ux << "L" << bx + kWide * uy << " " << by - kWide * ux
        << "Z";
}

/// What an arrow carries, and how it is drawn.
struct Carried {
  std::string_view name, dashes;
};
static constexpr Carried kCarried[] = {
    {"activation sent", ""},
    {"gradient sent", " stroke-dasharray=\"2.5 1.5\""},
    {"state sent", " stroke-dasharray=\"0.8 1.6\""},
    {"stash sent", " stroke-dasharray=\"6 1.5 1 1.5\""},
};
enum : size_t {
  CarriesActivation,
  CarriesGradient,
  CarriesState,
  CarriesStash
};

static size_t carriedBy(const Instruction &send) {
  return movesState(send)                    ? CarriesState
         : send.payload == Payload::Stash    ? CarriesStash
         : send.payload == Payload::Gradient ? CarriesGradient
                                             : CarriesActivation;
}

static void drawArrows(Writer &os, const Writer &lines, const Writer &heads,
                       size_t carried) {
  if (lines.out.empty())
    return;
  os << "<path d=\"" << lines.out << "\" stroke=\"#222\" stroke-width=\"0.8\""
     << kCarried[carried].dashes << " fill=\"none\"/>\n<path d=\"" << heads.out
     << "\" fill=\"#222\"/>\n";
}

void Picture::drawTransfers() {
  Writer lines[std::size(kCarried)], heads[std::size(kCarried)];
  auto draw = [&](size_t carried, size_t from, size_t to, double start,
                  double end) {
    // Down and up at one time stand side by side.
    const bool down = from < to;
    const double shift = down ? -1.5 : 1.5;
    drawArrow(lines[carried], heads[carried], xOf(start) + shift,
              topOf(from) + (down ? height : 0), xOf(end) + shift,
              topOf(to) + (down ? 0 : height));
  };
  if (!program.isOrder()) {
    for (size_t r = 0; r < program.ranks.size(); ++r) {
      const auto &list = program.ranks[r].instructions;
      for (size_t i = 0; i < list.size(); ++i)
        if (list[i].op == Op::Send)
          draw(carriedBy(list[i]), r, list[i].peer, timing.start[r][i],
               timing.end[r][i]);
    }
  } else {
    forEachHandOver(program, [&](Site from, Site to, int32_t stage) {
      const Instruction &inst =
          program.ranks[to.rank].instructions[to.instruction];
      const double ended = timing.end[from.rank][from.instruction];
      draw(stage > inst.stage ? CarriesGradient : CarriesActivation, from.rank,
           to.rank, ended, ended + handOverTime(problem, stage, inst));
    });
  }
  for (size_t carried = 0; carried < std::size(kCarried); ++carried)
    drawArrows(body, lines[carried], heads[carried], carried);
}

void Picture::drawAxis(double y) {
  const double end = scaled(times.makespan);
  const double apart =
      std::max(50.0, widthOf(formatMark(timing.makespan), kFont) + 12);
  const double step = roundStep(times.toUser(apart / scale));
  Writer marks, numbers;
  for (int tick = 0;; ++tick) {
    const double time = tick > 0 ? tick * step : 0; // the step may be infinite
    const double x = scaled(times.fromUser(time));
    if (!(x <= end + 0.01))
      break;
    marks << "M" << left + x << " " << y << "v4";
    text(numbers, left + x, y + 10, formatMark(time));
  }
  body << "<path d=\"M" << left << " " << y << "h" << end << marks.out
       << "\" stroke=\"#333\" stroke-width=\"0.8\" fill=\"none\"/>\n"
          "<g text-anchor=\"end\">\n";
  text(body, left - 10, y + 10, "time");
  body << "</g>\n<g text-anchor=\"middle\">\n" << numbers.out << "</g>\n";
}

double Picture::drawLegend(double y) {
  Flow flow(left, width - kPad, y);
  constexpr double kBox = 22, kHigh = 12;
  auto entry = [&](std::string_view name, auto &&drawSample) {
    const auto [x, middle] = flow.add(kBox + 4 + widthOf(name, kFont));
    drawSample(x, middle - kHigh / 2);
    text(body, x + kBox + 4, middle, name);
  };
  auto outlined = [&](double x, double top, double high,
                      std::string_view paint) {
    body << "<g stroke=\"#333\" stroke-width=\"0.6\">";
    box(body, x, top, kBox, high, paint);
    body << "</g>\n";
  };
  for (size_t kind = 0; kind < std::size(kKinds); ++kind) {
    if (!used[kind])
      continue;
    const Op op = static_cast<Op>(kind);
    const Fill fill = fillOf(op, 0);
    entry(kKinds[kind].name, [&](double x, double top) {
      outlined(x, top, kHigh, fill.paint);
      if (labels != Labels::LettersAndNumbers)
        return;
      body << "<g text-anchor=\"middle\""
           << (fill.whiteText ? " fill=\"#fff\">" : ">");
      text(body, x + kBox / 2, top + kHigh / 2, std::string(1, letter(op)));
      body << "</g>\n";
    });
  }
  entry("idle",
        [&](double x, double top) { outlined(x, top, kHigh, "url(#idle)"); });
  if (const auto count = static_cast<int32_t>(parts.names.size()); count > 1) {
    const Op sample = static_cast<Op>(
        std::find(used.begin(), used.end(), true) - used.begin());
    constexpr int32_t kMostNamed = 6;
    for (int32_t part = 0; part < count; ++part) {
      if (count > kMostNamed && part == 2)
        part = count - 1; // the shades and bars between are between
      entry(parts.names[part], [&](double x, double top) {
        outlined(x, top, kHigh, fillOf(sample, part).paint);
        if (part == 0)
          return;
        body << "<path d=\"";
        bar(body, x, top + kHigh, kBox, part);
        body << "\" stroke=\"#222\" stroke-width=\"3\"/>\n";
      });
    }
  }
  if (options.transfers) {
    bool has[std::size(kCarried)] = {true, true};
    for (const RankProgram &rank : program.ranks)
      for (const Instruction &inst : rank.instructions)
        if (inst.op == Op::Send)
          has[carriedBy(inst)] = true;
    for (size_t carried = 0; carried < std::size(kCarried); ++carried) {
      if (!has[carried])
        continue;
      entry(kCarried[carried].name, [&](double x, double top) {
        Writer line, head;
        drawArrow(line, head, x, top + kHigh / 2, x + kBox, top + kHigh / 2);
        drawArrows(body, line, head, carried);
      });
    }
  }
  auto addCopies = [&](bool any, std::string_view name,
                       std::string_view paint) {
    if (any)
      entry(name, [&](double x, double top) {
        box(body, x, top + (kHigh - kCopyHeight) / 2, kBox, kCopyHeight, paint);
      });
  };
  addCopies(offloads, "to host memory", kOffload);
  addCopies(reloads, "back from there", kReload);
  auto note = [&](std::string_view what) {
    const auto [x, middle] = flow.add(widthOf(what, kFont));
    text(body, x, middle, what);
  };
  if (numbered)
    note(problem.slices > 1
             ? "numbers: slices, " + std::to_string(problem.slices) +
                   " for each micro-batch"
             : "numbers: micro-batches");
  if (times.largestCell > 1)
    note("stacked: run together");
  return flow.bottom();
}

double Picture::drawCaption(double y) {
  Flow flow(left, width - kPad, y);
  auto add = [&](const std::string &what) {
    const auto [x, middle] = flow.add(widthOf(what, kFont));
    text(body, x, middle, what);
  };
  const std::string summary = describeTiming(program, timing);
  for (size_t begin = 0, end = 0; end != summary.npos; begin = end + 2) {
    end = summary.find(", ", begin);
    add(summary.substr(begin, end - begin));
  }
  auto addPeak = [&](auto member, auto &&describe) {
    const auto rank =
        std::max_element(timing.ranks.begin(), timing.ranks.end(),
                         [&](const RankTiming &a, const RankTiming &b) {
                           return a.*member < b.*member;
                         });
    if ((*rank).*member > 0)
      add("peak " + describe((*rank).*member) + " (rank " +
          std::to_string(rank - timing.ranks.begin()) + ")");
  };
  addPeak(&RankTiming::peakActivations, [&](int64_t count) {
    return counted(count, "activation") +
           (problem.slices > 1 ? " of slices" : "");
  });
  addPeak(&RankTiming::peakBytes, formatBytes);
  addPeak(&RankTiming::peakHostBytes,
          [](int64_t bytes) { return formatBytes(bytes) + " in host memory"; });
  if (times.timeless > 0)
    add(counted(static_cast<int64_t>(times.timeless), "action") +
        " without time not drawn");
  return flow.bottom();
}

std::string Picture::draw() {
  layOut();
  const auto most =
      static_cast<size_t>((width - left - kPad) / (0.63 * (kFont + 1)));
  top = kPad;
  if (!options.title.empty()) {
    body << "<g font-weight=\"bold\" font-size=\"" << kFont + 1 << "\">\n";
    text(body, left, top + kLine / 2, escaped(options.title, most), kFont + 1);
    body << "</g>\n";
    top += kLine + 4;
  }
  drawRows();
  const double bottom = topOf(program.ranks.size()) - (pitch - height);
  drawAxis(bottom + 4);
  double y = drawLegend(bottom + 4 + 22);
  y = drawCaption(y + 2) + kPad;

  Writer os;
  os << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\""
     << std::ceil(width) << "\" height=\"" << std::ceil(y)
     << "\" viewBox=\"0 0 " << std::ceil(width) << " " << std::ceil(y)
     << "\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"" << kFont
     << "\">\n<title>"
     << escaped(options.title.empty() ? problem.name : options.title)
     << "</title>\n<defs>\n";
  definePattern(os, "idle", "ffffff", kIdlePattern, "bbbbbb");
  for (const auto &[key, fill] : fills)
    if (!fill.id.empty())
      definePattern(
          os, fill.id, fill.colour.hex(),
          kKinds[static_cast<size_t>(key.first)].pattern,
          fill.colour.mixedWith(fill.whiteText ? kWhite : kBlack, 0.18).hex());
  os << "</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
     << body.out << "</svg>\n";
  return std::move(os.out);
}

} // namespace

Result<std::string> renderSvg(const Program &program, const Timing &timing,
                              const SvgOptions &options) {
  const size_t numRanks = program.ranks.size();
  if (numRanks > kMaxDrawnRanks)
    return Failure{"a picture of " + std::to_string(numRanks) +
                   " ranks shows nothing; at most " +
                   std::to_string(kMaxDrawnRanks) +
                   " can be drawn, compile the schedule for fewer"};
  const CellTimes times = measureCells(program, timing);
  if (times.actions > kMaxDrawnActions)
    return Failure{"a picture of " + std::to_string(times.actions) +
                   " actions shows nothing; at most " +
                   std::to_string(kMaxDrawnActions) +
                   " can be drawn, compile the schedule for fewer "
                   "micro-batches or ranks"};
  size_t sends = 0;
  if (options.transfers)
    for (const RankProgram &rank : program.ranks)
      for (const Instruction &inst : rank.instructions)
        sends += inst.op == Op::Send;
  if (sends > kMaxDrawnActions)
    return Failure{"arrows for " + std::to_string(sends) +
                   " transfers show nothing; at most " +
                   std::to_string(kMaxDrawnActions) +
                   " can be drawn, draw none"};
  if (times.makespan == 0)
    return Failure{"no action takes time, so there is nothing to draw; give "
                   "the stages costs"};
  return Picture(program, timing, options, times).draw();
}

} // namespace penstock
