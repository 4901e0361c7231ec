//===- HtmlTest.cpp - A schedule as a page --------------------------------===//

#include "Testing/Build.h"

#include "penstock/Analysis/Html.h"

#include <gtest/gtest.h>
#include <regex>

using namespace penstock;
using namespace penstock::test;

namespace {

std::string page(const Program &program, const SvgOptions &options = {}) {
  std::optional<Timing> timing =
      program.isOrder() ? simulateOrder(program) : simulateProgram(program);
  EXPECT_TRUE(timing);
  Result<std::string> html = renderHtml(program, *timing, options);
  EXPECT_TRUE(html) << html.message();
  return html ? *html : std::string();
}

bool has(const std::string &text, const std::string &what) {
  return text.find(what) != text.npos;
}

/// 1F1B on two ranks, by hand.
Program twoRanks() {
  Program program = makeProgram(2, 2);
  RankBuilder(program, 0).f(0, 0).f(0, 1).b(0, 0).b(0, 1).step();
  RankBuilder(program, 1).f(1, 0).b(1, 0).f(1, 1).b(1, 1).step();
  return program;
}

} // namespace

TEST(Html, OfAnOrder) {
  SvgOptions options;
  options.title = "<two ranks>";
  const std::string html = page(twoRanks(), options);
  EXPECT_TRUE(html.starts_with("<!DOCTYPE html>\n"));
  EXPECT_TRUE(has(html, "<h1>&lt;two ranks&gt;</h1>"));
  EXPECT_TRUE(has(html, "p = 2, m = 2, makespan 9.0, bubble rate 0.3333. An "
                        "order in the literature"));
  // The picture is part of the page, which has the title already.
  EXPECT_FALSE(has(html, "<?xml"));
  EXPECT_FALSE(has(html, ">&lt;two ranks&gt;</text>"));
  EXPECT_TRUE(has(html, "<title>backward 0 mb 1: 7 to 9</title>"));
  EXPECT_TRUE(has(html, "The verifier accepts the order."));
  // Rank 0: works 6 of 9, waits 2 before B0 and 1 before B1.
  EXPECT_TRUE(has(html, "<td>6.0</td><td>0.0</td><td>0.0</td><td>3.0</td>"
                        "<td>0.0</td><td>2</td><td></td></tr>"));
  // Rank 1: 1 before its first action, 2 behind its last.
  EXPECT_TRUE(has(html, "<td>6.0</td><td>1.0</td><td>0.0</td><td>0.0</td>"
                        "<td>2.0</td><td>1</td><td></td></tr>"));
  EXPECT_TRUE(has(html, "the top of a row is 2 activations."));
  EXPECT_TRUE(has(html, "It goes to: F 3.0, B 6.0."));
  EXPECT_TRUE(has(html, "<summary>Its steps</summary>\n<pre>0.0  rank 0  "
                        "forward 0 mb 0\n1.0  rank 1  forward 1 mb 0\n"));
}

TEST(Html, OfAProgram) {
  Program program = oneForwardOneBackward(3, 4, /*planned=*/true);
  program.problem.link.latency = 0.25;
  for (Stage &stage : program.problem.stages)
    stage.bytes.parameters = 3 << 20;
  const std::string html = page(program);
  EXPECT_TRUE(has(html, "A program with its queues and transfers"));
  EXPECT_TRUE(has(html, "The verifier accepts the program"));
  EXPECT_TRUE(has(html, "Bytes that a rank holds"));
  EXPECT_TRUE(has(html, "MiB</td></tr>"));
  EXPECT_FALSE(has(html, "refuses"));
}

TEST(Html, SaysWhyTheVerifierRefuses) {
  Program program = oneForwardOneBackward(2, 2, /*planned=*/true);
  auto &list = program.ranks[1].instructions;
  ASSERT_EQ(list[1].op, Op::Forward);
  list.push_back(list[1]); // a second time
  const std::string html = page(program);
  EXPECT_TRUE(has(html, "The verifier <b>refuses</b> this:</p>\n<pre>"));
  EXPECT_TRUE(has(html, "forward 1 mb 0")) << html;
}

/// A page is as long as its picture: curves have a step a pixel, and of the
/// critical path only the first steps are listed.
TEST(Html, OfALongSchedule) {
  Program program = makeProgram(1, 3000);
  for (int32_t mb = 0; mb < 3000; ++mb)
    RankBuilder(program, 0).f(0, mb).b(0, mb);
  const std::string html = page(program);
  EXPECT_TRUE(has(html, "<summary>Its first 1000 steps</summary>"));
  EXPECT_FALSE(has(html, "forward 0 mb 500\n"));
  std::smatch curve;
  ASSERT_TRUE(std::regex_search(html, curve,
                                std::regex("<path d=\"M0 36V[^\"]*"
                                           "Z\" fill=\"#bcd4ea")));
  EXPECT_LT(curve.length(), 720 * 24);
}

TEST(Html, FailsAsThePicture) {
  Program program = makeProgram(1, 1);
  program.problem.stages[0].cost.forward = 0;
  program.problem.stages[0].cost.backward = 0;
  RankBuilder(program, 0).f(0, 0).b(0, 0);
  const Result<std::string> html = renderHtml(program, *simulateOrder(program));
  ASSERT_FALSE(html);
  EXPECT_EQ(html.message(), "no action takes time, so there is nothing to "
                            "draw; give the stages costs");
}
