//===- SvgTest.cpp - A schedule as a picture ------------------------------===//

#include "Testing/Build.h"

#include "penstock/Analysis/Svg.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <regex>
#include <set>
#include <sstream>

using namespace penstock;
using namespace penstock::test;

namespace {

/// A box of an action, in pixels from the start of its row.
struct Box {
  double x, y, width, height;
  std::string paint;
};

/// What a test reads back from a picture.
struct Picture {
  explicit Picture(const std::string &svg);

  /// The labels of a rank, from left to right.
  std::string labelsOf(size_t rank) const {
    std::string all;
    auto list = labels[rank];
    std::sort(list.begin(), list.end());
    for (const auto &[x, label] : list)
      all += (all.empty() ? "" : " ") + label;
    return all;
  }

  std::vector<std::vector<Box>> boxes; ///< by rank
  std::vector<std::pair<double, double>> origins;
  std::vector<std::vector<std::pair<double, std::string>>> labels;
  std::vector<size_t> bars;
  std::vector<Box> idle;          ///< in pixels of the picture
  std::vector<std::string> texts; ///< outside of the rows
  double width = 0;
  double end = 0; ///< of the last action
};

size_t count(const std::string &text, const std::string &what) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; ++at)
    ++n;
  return n;
}

Picture::Picture(const std::string &svg) {
  static const std::regex number("([a-z0-9]+)=\"([^\"]*)\"");
  std::istringstream lines(svg);
  int depth = 0; // of the group of a rank
  for (std::string line; std::getline(lines, line);) {
    std::map<std::string, std::string> attributes;
    for (std::sregex_iterator it(line.begin(), line.end(), number), end;
         it != end; ++it)
      attributes[(*it)[1]] = (*it)[2];
    auto value = [&](const char *name) { return std::stod(attributes[name]); };
    if (line.starts_with("<svg"))
      width = value("width");
    if (line.starts_with("<g transform")) {
      double x = 0, y = 0;
      EXPECT_EQ(std::sscanf(attributes["transform"].c_str(),
                            "translate(%lf,%lf)", &x, &y),
                2);
      origins.emplace_back(x, y);
      boxes.emplace_back();
      labels.emplace_back();
      bars.push_back(0);
      depth = 1;
    } else if (depth > 0 && line.starts_with("<g")) {
      ++depth;
    } else if (depth > 0 && line == "</g>") {
      --depth;
    }
    if (line.starts_with("<rect x")) {
      const Box box{value("x"), value("y"), value("width"), value("height"),
                    attributes["fill"]};
      if (depth > 0) {
        boxes.back().push_back(box);
        end = std::max(end, box.x + box.width);
      } else if (box.paint == "url(#idle)") {
        idle.push_back(box);
      }
    }
    if (line.starts_with("<text")) {
      const size_t begin = line.find('>') + 1;
      std::string text = line.substr(begin, line.find("</text>") - begin);
      if (depth > 0)
        labels.back().emplace_back(value("x"), text);
      else
        texts.push_back(text);
    }
    if (depth > 0 && line.starts_with("<path d"))
      bars.back() += count(line, "M");
  }
}

std::string draw(const Program &program, const SvgOptions &options = {}) {
  std::optional<Timing> timing =
      program.isOrder() ? simulateOrder(program) : simulateProgram(program);
  EXPECT_TRUE(timing);
  Result<std::string> svg = renderSvg(program, *timing, options);
  EXPECT_TRUE(svg) << svg.message();
  return svg ? *svg : std::string();
}

std::string whyNot(const Program &program, const SvgOptions &options = {}) {
  Result<std::string> svg =
      renderSvg(program, *simulateProgram(program), options);
  return svg ? "drawn" : svg.message();
}

/// 1F1B on two ranks, by hand.
Program twoRanks() {
  Program program = makeProgram(2, 2);
  RankBuilder(program, 0).f(0, 0).f(0, 1).b(0, 0).b(0, 1).step();
  RankBuilder(program, 1).f(1, 0).b(1, 0).f(1, 1).b(1, 1).step();
  return program;
}

/// One rank that runs F and B of m micro-batches in turn.
Program alternating(int32_t m, double forward, double backward) {
  Program program = makeProgram(1, m);
  program.problem.stages[0].cost.forward = forward;
  program.problem.stages[0].cost.backward = backward;
  for (int32_t mb = 0; mb < m; ++mb)
    RankBuilder(program, 0).f(0, mb).b(0, mb);
  return program;
}

bool has(const std::vector<std::string> &texts, const std::string &text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

/// Every action has one box, at its time and of its kind's colour; between them
/// it is hatched.
void expectToScale(const Program &program, const Timing &timing,
                   const Picture &picture) {
  ASSERT_EQ(picture.boxes.size(), program.ranks.size());
  const double scale = picture.end / timing.makespan;
  std::map<std::string, Op> kinds;
  for (size_t r = 0; r < program.ranks.size(); ++r) {
    const auto &list = program.ranks[r].instructions;
    size_t next = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      if (!isAction(list[i].op))
        continue;
      ASSERT_LT(next, picture.boxes[r].size());
      const Box &box = picture.boxes[r][next++];
      EXPECT_NEAR(box.x, timing.start[r][i] * scale, 0.02);
      EXPECT_NEAR(box.x + box.width, timing.end[r][i] * scale, 0.02);
      EXPECT_EQ(kinds.try_emplace(box.paint, list[i].op).first->second,
                list[i].op);
    }
    EXPECT_EQ(next, picture.boxes[r].size());

    auto [left, top] = picture.origins[r];
    std::vector<Box> all = picture.boxes[r];
    for (Box box : picture.idle)
      if (box.y == top) {
        box.x -= left;
        all.push_back(box);
      }
    std::sort(all.begin(), all.end(),
              [](const Box &a, const Box &b) { return a.x < b.x; });
    double now = 0;
    for (const Box &box : all) {
      EXPECT_NEAR(box.x, now, 0.03);
      now = box.x + box.width;
    }
    EXPECT_NEAR(now, picture.end, 0.03);
  }
}

} // namespace

TEST(Svg, EveryActionOnceAndToScale) {
  for (int32_t p : {1, 2, 5, 40})
    for (int32_t m : {1, 3, 50})
      for (unsigned width : {320u, 960u}) {
        SCOPED_TRACE(testing::Message() << p << ' ' << m << ' ' << width);
        Program program = oneForwardOneBackward(p, m, /*planned=*/true);
        program.problem.link.latency = 0.25;
        SvgOptions options;
        options.width = width;
        const Picture picture(draw(program, options));
        expectToScale(program, *simulateProgram(program), picture);
        EXPECT_LE(picture.width, width);
        EXPECT_LE(picture.origins[0].first + picture.end, picture.width);
      }
}

TEST(Svg, OrdersAreDrawnInTheModelOfTheLiterature) {
  Program program = twoRanks();
  program.problem.link.latency = 0.5;
  const Picture picture(draw(program));
  expectToScale(program, *simulateOrder(program), picture);
  EXPECT_EQ(picture.labelsOf(0), "F0 F1 B0 B1");
  EXPECT_EQ(picture.labelsOf(1), "F0 B0 F1 B1");
  for (const char *text :
       {"p = 2", "m = 2", "makespan 10.0", "rank 0", "rank 1", "time",
        "forward", "backward", "idle", "numbers: micro-batches"})
    EXPECT_TRUE(has(picture.texts, text)) << text;
}

TEST(Svg, Tooltips) {
  SvgOptions options;
  EXPECT_EQ(count(draw(twoRanks(), options), "<title>"), 1u);
  options.tooltips = true;
  const std::string svg = draw(twoRanks(), options);
  EXPECT_EQ(count(svg, "<title>"), 1u + 8);
  EXPECT_EQ(count(svg, "\"><title>backward 0 mb 1: 7 to 9</title></rect>\n"),
            1u);
}

TEST(Svg, IdleTimeIsHatched) {
  const std::string svg = draw(twoRanks());
  EXPECT_EQ(count(svg, "<pattern id=\"idle\""), 1u);
  const Picture picture(svg);
  // F0F1....B0--..B1-- and ..F0B0--F1B1--....
  ASSERT_EQ(picture.idle.size(), 4u);
  const double unit = picture.boxes[0][0].width;
  const double expected[][2] = {{2, 2}, {6, 1}, {0, 1}, {7, 2}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(picture.idle[i].x - picture.origins[0].first,
                expected[i][0] * unit, 0.02);
    EXPECT_NEAR(picture.idle[i].width, expected[i][1] * unit, 0.02);
    EXPECT_EQ(picture.idle[i].y, picture.origins[i / 2].second);
  }
}

/// Queues of a rank may run side by side; its idle time is where none does.
TEST(Svg, IdleTimeOfSeveralQueues) {
  Program program = makeProgram(1, 3);
  program.problem.stages[0].cost.forward = 4;
  RankBuilder rank(program, 0);
  rank.f(0, 0).onQueue(1).b(0, 0).onQueue(0).f(0, 1).f(0, 2);
  rank.onQueue(1).after({3}).b(0, 1).b(0, 2);
  const Picture picture(draw(program));
  EXPECT_EQ(picture.boxes[0].size(), 6u);
  EXPECT_TRUE(picture.idle.empty());
}

TEST(Svg, TheActionsOfAnOverlapShareTheirTime) {
  Program program = alternating(2, 1, 2); // F0 {B0 F1} B1
  program.ranks[0].instructions[2].joined = true;
  const Picture picture(draw(program));
  const auto &boxes = picture.boxes[0];
  ASSERT_EQ(boxes.size(), 4u);
  EXPECT_EQ(boxes[1].x, boxes[2].x);
  EXPECT_EQ(boxes[1].width, boxes[2].width);
  EXPECT_EQ(boxes[1].width, 3 * boxes[0].width);
  EXPECT_EQ(boxes[1].height, boxes[2].height);
  EXPECT_EQ(boxes[2].y, boxes[1].y + boxes[1].height);
  EXPECT_EQ(boxes[1].height + boxes[2].height, boxes[0].height);
  EXPECT_EQ(count(picture.labelsOf(0), "B0"), 1u);
  EXPECT_EQ(count(picture.labelsOf(0), "F1"), 1u);
  EXPECT_TRUE(has(picture.texts, "stacked: run together"));
}

TEST(Svg, KindsDifferInColourAndPattern) {
  Program program = makeProgram(1, 2);
  RankBuilder(program, 0).f(0, 0).r(0, 0).b(0, 0).f(0, 1).i(0, 1).w(0, 1);
  const std::string svg = draw(program);
  const Picture picture(svg);
  EXPECT_EQ(picture.labelsOf(0), "F0 R0 B0 F1 I1 W1");
  for (const char *kind : {"forward", "backward", "input gradient",
                           "weight gradient", "recompute"})
    EXPECT_TRUE(has(picture.texts, kind)) << kind;
  static const std::regex pattern(
      "<pattern id=\"([^\"]*)\".*<path d=\"([^\"]*)");
  std::set<std::string> ids, paths;
  for (std::sregex_iterator it(svg.begin(), svg.end(), pattern), end; it != end;
       ++it) {
    ids.insert((*it)[1]);
    paths.insert((*it)[2]);
  }
  EXPECT_EQ(ids.size(), 5u); // those of B, I, W, R and of idle time
  EXPECT_EQ(paths.size(), 5u);
}

TEST(Svg, StagesOfARankDifferInShadeAndBar) {
  Program program = makeProgram(1, 1, 3);
  RankBuilder rank(program, 0);
  for (int32_t s : {0, 1, 2})
    rank.f(s, 0);
  for (int32_t s : {2, 1, 0})
    rank.b(s, 0);
  const Picture picture(draw(program));
  const auto &boxes = picture.boxes[0];
  EXPECT_NE(boxes[0].paint, boxes[1].paint);
  EXPECT_NE(boxes[1].paint, boxes[2].paint);
  EXPECT_EQ(picture.bars[0], 4u);
  for (const char *part : {"chunk 0", "chunk 1", "chunk 2"})
    EXPECT_TRUE(has(picture.texts, part)) << part;
  EXPECT_EQ(Picture(draw(twoRanks())).bars[0], 0u);
}

TEST(Svg, TheLegendNamesFewOfManyStages) {
  Program program = makeProgram(1, 1, 40);
  for (int32_t s = 0; s < 40; ++s)
    RankBuilder(program, 0).f(s, 0);
  for (int32_t s = 39; s >= 0; --s)
    RankBuilder(program, 0).b(s, 0);
  const Picture picture(draw(program));
  EXPECT_TRUE(has(picture.texts, "chunk 1"));
  EXPECT_FALSE(has(picture.texts, "chunk 2"));
  EXPECT_TRUE(has(picture.texts, "chunk 39"));
}

TEST(Svg, ChainsDifferLikeStages) {
  Program program = makeProgram(2, 2);
  program.problem.placement = {0, 1, 1, 0};
  program.problem.chains = {0, 1};
  RankBuilder(program, 0).f(0, 0).f(1, 1).b(1, 1).b(0, 0);
  RankBuilder(program, 1).f(0, 1).f(1, 0).b(1, 0).b(0, 1);
  const Picture picture(draw(program));
  for (size_t rank : {0, 1}) {
    EXPECT_EQ(picture.bars[rank], 2u);
    EXPECT_NE(picture.boxes[rank][0].paint, picture.boxes[rank][1].paint);
  }
  EXPECT_EQ(picture.boxes[0][0].paint, picture.boxes[1][1].paint);
  EXPECT_TRUE(has(picture.texts, "chain 0"));
  EXPECT_TRUE(has(picture.texts, "chain 1"));
}

//===----------------------------------------------------------------------===//
// Transfers
//===----------------------------------------------------------------------===//

/// The lines of the arrows: of activations, of gradients, and of states.
static std::vector<std::string> arrowsOf(const std::string &svg) {
  static const std::regex line(
      "<path d=\"([^\"]*)\" stroke=\"#222\" stroke-width=\"0.8\"");
  std::vector<std::string> found;
  for (std::sregex_iterator it(svg.begin(), svg.end(), line), end; it != end;
       ++it)
    found.push_back((*it)[1]);
  return found;
}

TEST(Svg, OneArrowATransfer) {
  SvgOptions options;
  options.transfers = true;
  for (bool planned : {false, true}) {
    const auto arrows =
        arrowsOf(draw(oneForwardOneBackward(3, 4, planned), options));
    ASSERT_EQ(arrows.size(), 4u); // two in the legend
    EXPECT_EQ(count(arrows[0], "M"), 8u);
    EXPECT_EQ(count(arrows[1], "M"), 8u);
  }
  const auto arrows = arrowsOf(draw(twoRanks(), options));
  ASSERT_EQ(arrows.size(), 4u);
  EXPECT_EQ(count(arrows[0], "M"), 2u);
  EXPECT_EQ(count(arrows[1], "M"), 2u);
  EXPECT_TRUE(arrowsOf(draw(twoRanks())).empty());
}

TEST(Svg, StatesHaveArrowsOfTheirOwn) {
  Program program = oneForwardOneBackward(2, 2, false);
  program.problem.postValidation = true;
  Instruction state;
  state.payload = Payload::State;
  state.bytes = kStateBytes;
  for (int32_t r : {0, 1}) {
    state.op = r == 0 ? Op::Send : Op::Recv;
    state.peer = 1 - r;
    program.ranks[r].instructions.push_back(state);
  }
  SvgOptions options;
  options.transfers = true;
  const auto arrows = arrowsOf(draw(program, options));
  ASSERT_EQ(arrows.size(), 6u); // three in the legend
  EXPECT_EQ(count(arrows[0], "M"), 2u);
  EXPECT_EQ(count(arrows[1], "M"), 2u);
  EXPECT_EQ(count(arrows[2], "M"), 1u);
}

TEST(Svg, StashesHaveArrowsOfTheirOwn) {
  Program program = oneForwardOneBackward(2, 2, false);
  Instruction stash;
  stash.payload = Payload::Stash;
  stash.stage = 0;
  stash.microbatch = 1;
  for (int32_t r : {0, 1}) {
    stash.op = r == 0 ? Op::Send : Op::Recv;
    stash.peer = 1 - r;
    program.ranks[r].instructions.push_back(stash);
  }
  SvgOptions options;
  options.transfers = true;
  const std::string svg = draw(program, options);
  const auto arrows = arrowsOf(svg);
  ASSERT_EQ(arrows.size(), 6u); // three in the legend
  EXPECT_EQ(count(arrows[0], "M"), 2u);
  EXPECT_EQ(count(arrows[1], "M"), 2u);
  EXPECT_EQ(count(arrows[2], "M"), 1u);
  EXPECT_TRUE(has(Picture(svg).texts, "stash sent"));
}

TEST(Svg, CopiesToHostMemoryRunBelowTheirRank) {
  Program program = makeProgram(2, 2);
  program.problem.stages[0].bytes.stash = 1 << 20;
  program.problem.hostLink.latency = 0.5;
  RankBuilder(program, 0)
      .f(0, 0)
      .action(Op::Offload, 0, 0)
      .f(0, 1)
      .action(Op::Reload, 0, 0)
      .b(0, 0)
      .b(0, 1);
  RankBuilder(program, 1).f(1, 0).b(1, 0).f(1, 1).b(1, 1);
  SvgOptions options;
  options.tooltips = true;
  const std::string svg = draw(program, options);
  const Picture picture(svg);
  EXPECT_EQ(count(svg, "fill=\"#444\""), 2u); // one in the legend
  EXPECT_EQ(count(svg, "fill=\"#999\""), 2u);
  EXPECT_NE(svg.find("<title>offload 0 mb 0: 1 to 1.5</title>"), svg.npos);
  EXPECT_NE(svg.find("<title>reload 0 mb 0: 2 to 2.5</title>"), svg.npos);
  EXPECT_TRUE(has(picture.texts, "to host memory"));
  EXPECT_TRUE(has(picture.texts, "back from there"));
  EXPECT_TRUE(has(picture.texts, "peak 1 MiB in host memory (rank 0)"));
  // Without time there is nothing to draw.
  program.problem.hostLink = {};
  EXPECT_EQ(count(draw(program), "fill=\"#444\""), 0u);
  EXPECT_FALSE(has(Picture(draw(program)).texts, "to host memory"));
}

TEST(Svg, AnArrowGoesFromTheEndOfTheActionToTheStartOfItsReader) {
  SvgOptions options;
  options.transfers = true;
  Program program = twoRanks();
  program.problem.link.latency = 2;
  const std::string svg = draw(program, options);
  const Picture picture(svg);
  double x0, y0, x1, y1;
  ASSERT_EQ(std::sscanf(arrowsOf(svg)[0].c_str(), "M%lf %lfL%lf %lf", &x0, &y0,
                        &x1, &y1),
            4);
  const Box &sender = picture.boxes[0][0], &reader = picture.boxes[1][0];
  const double left = picture.origins[0].first;
  EXPECT_NEAR(x0, left + sender.x + sender.width, 2);
  EXPECT_NEAR(x1, left + reader.x, 8); // and the head
  EXPECT_NEAR(y0, picture.origins[0].second + sender.height, 0.02);
  EXPECT_LT(y1, picture.origins[1].second);
  EXPECT_GT(y1, y0);
}

/// A recompute reads what its forward has received.
TEST(Svg, ARecomputeReceivesNothing) {
  Program program = makeProgram(2, 1);
  RankBuilder(program, 0).f(0, 0).r(0, 0).b(0, 0);
  RankBuilder(program, 1).f(1, 0).r(1, 0).b(1, 0);
  SvgOptions options;
  options.transfers = true;
  EXPECT_EQ(count(arrowsOf(draw(program, options))[0], "M"), 1u);
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

TEST(Svg, TitlesAreEscaped) {
  SvgOptions options;
  auto titleOf = [&](const std::string &title) {
    options.title = title;
    return Picture(draw(twoRanks(), options)).texts.front();
  };
  EXPECT_EQ(titleOf("a<b> & \"c\""), "a&lt;b&gt; &amp; \"c\"");
  EXPECT_EQ(titleOf("]]>"), "]]&gt;");
  EXPECT_EQ(titleOf("\u00fc \u65e5 \U0001f600"), "\u00fc \u65e5 \U0001f600");
  // What XML does not allow: control characters, and what is not UTF-8.
  for (const char *bad : {"\x01", "\n", "\x7f", "\xff", "\xc0\xaf", "\xe2\x82",
                          "\xed\xa0\x80", "\xef\xbf\xbf", "\xf4\x90\x80\x80"}) {
    const std::string title = titleOf(std::string("x") + bad + "y");
    EXPECT_TRUE(title.starts_with("x\ufffd")) << title;
    EXPECT_TRUE(title.ends_with("y")) << title;
  }
}

TEST(Svg, LongTitlesAreCutInTheLineOnly) {
  SvgOptions options;
  options.title = std::string(1000, 'n');
  const std::string svg = draw(twoRanks(), options);
  const std::string line = Picture(svg).texts.front();
  EXPECT_TRUE(line.ends_with("\u2026"));
  EXPECT_LT(line.size(), 100u);
  EXPECT_EQ(count(svg, "<title>" + options.title + "</title>"), 1u);
}

TEST(Svg, TheCaptionNamesTheLargestMemory) {
  Program program = twoRanks();
  EXPECT_TRUE(has(Picture(draw(program)).texts, "peak 2 activations (rank 0)"));
  program.problem.stages[1].bytes.stash = 3 << 19;
  const Picture picture(draw(program));
  EXPECT_TRUE(has(picture.texts, "peak 1.5 MiB (rank 1)"));
  for (const std::string &text : Picture(draw(twoRanks())).texts)
    EXPECT_EQ(text.find(" B ("), text.npos) << text;
}

TEST(Svg, LabelsGoWhereTheyDoNotFit) {
  auto labels = [](int32_t m) {
    return Picture(draw(alternating(m, 1, 1))).labelsOf(0);
  };
  EXPECT_EQ(labels(2), "F0 B0 F1 B1");
  EXPECT_TRUE(labels(30).starts_with("0 0 1 1 2 2 ")) << labels(30);
  EXPECT_EQ(labels(400), "");
  const Picture narrow(draw(alternating(400, 1, 1)));
  EXPECT_EQ(narrow.boxes[0].size(), 800u);
  EXPECT_FALSE(has(narrow.texts, "numbers: micro-batches"));
}

//===----------------------------------------------------------------------===//
// Limits
//===----------------------------------------------------------------------===//

TEST(Svg, ActionsWithoutTimeAreCounted) {
  const Picture picture(draw(alternating(2, 0, 3)));
  EXPECT_EQ(picture.labelsOf(0), "B0 B1");
  EXPECT_TRUE(has(picture.texts, "2 actions without time not drawn"));
  const std::string nothing =
      "no action takes time, so there is nothing to draw; give the stages "
      "costs";
  EXPECT_EQ(whyNot(alternating(2, 0, 0)), nothing);
  EXPECT_EQ(whyNot(Program()), nothing);
}

TEST(Svg, TooMuchIsRefused) {
  EXPECT_EQ(whyNot(alternating(50'001, 1, 1)),
            "a picture of 100002 actions shows nothing; at most 100000 can be "
            "drawn, compile the schedule for fewer micro-batches or ranks");
  Program program = makeProgram(4097, 1);
  EXPECT_EQ(whyNot(program),
            "a picture of 4097 ranks shows nothing; at most 4096 can be drawn, "
            "compile the schedule for fewer");
  Program talk = makeProgram(2, 1);
  RankBuilder sender(talk, 0), receiver(talk, 1);
  for (int i = 0; i <= 100'000; ++i) {
    sender.sendAct(0, 0, 1);
    receiver.recvAct(0, 0, 0);
  }
  SvgOptions options;
  options.transfers = true;
  EXPECT_EQ(whyNot(talk, options),
            "arrows for 100001 transfers show nothing; at most 100000 can be "
            "drawn, draw none");
}

TEST(Svg, ManyRanksAreThinRows) {
  const Picture picture(draw(oneForwardOneBackward(300, 2, true)));
  EXPECT_EQ(picture.boxes.size(), 300u);
  EXPECT_TRUE(has(picture.texts, "rank 0"));
  EXPECT_FALSE(has(picture.texts, "rank 1"));
  EXPECT_LT(picture.origins[299].second, 1400);
}

TEST(Svg, AnyFiniteTime) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  constexpr double kLeast = std::numeric_limits<double>::denorm_min();
  SvgOptions options;
  options.transfers = true;
  for (auto [forward, backward] :
       {std::pair(kLargest / 4, kLargest / 2), std::pair(kLeast, 2 * kLeast),
        std::pair(kLeast, kLargest / 4), std::pair(1e-200, 1e200)}) {
    const std::string svg = draw(alternating(1, forward, backward), options);
    const Picture picture(svg);
    EXPECT_LE(picture.width, options.width);
    EXPECT_GE(picture.boxes[0].size(), 1u);
    EXPECT_EQ(count(svg, "nan"), 0u);
    EXPECT_EQ(count(svg, "inf"), 0u);
  }
}
