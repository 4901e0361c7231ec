//===- ChromeTraceTest.cpp - A timeline for trace viewers -----------------===//

#include "Testing/Build.h"

#include "penstock/Analysis/ChromeTrace.h"
#include "penstock/Program/Text.h"

#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>

using namespace penstock;
using namespace penstock::test;
using nlohmann::json;

static std::string textOf(const Program &program, const Timing &timing) {
  std::string text;
  writeChromeTrace(program, timing,
                   [&](std::string_view piece) { text += piece; });
  return text;
}

TEST(ChromeTrace, HasEveryInstructionAndAnArrowForEveryTransfer) {
  Program program = oneForwardOneBackward(3, 4, /*planned=*/true);
  program.problem.link.latency = 0.5;
  program.problem.stages[0].bytes.output = 16;
  const Timing timing = *simulateProgram(program);
  const std::string text = textOf(program, timing);
  EXPECT_EQ(text, textOf(program, timing));
  const json trace = json::parse(text);

  std::map<int, json> starts, ends;
  std::map<std::pair<int, std::string>, json> slices;
  std::map<std::pair<int, int>, std::string> names;
  for (const json &event : trace["traceEvents"]) {
    const std::string ph = event["ph"];
    if (ph == "X")
      slices[{event["pid"], event["name"]}] = event;
    else if (ph == "s")
      starts[event["id"]] = event;
    else if (ph == "f")
      ends[event["id"]] = event;
    else if (event["name"] == "thread_name")
      names[{event["pid"], event["tid"]}] = event["args"]["name"];
    else if (event["name"] == "process_name")
      names[{event["pid"], -1}] = event["args"]["name"];
  }
  EXPECT_EQ(names, (std::map<std::pair<int, int>, std::string>{
                       {{0, -1}, "rank 0"},
                       {{0, 0}, "queue 0 (compute)"},
                       {{0, 1}, "queue 1"},
                       {{1, -1}, "rank 1"},
                       {{1, 0}, "queue 0 (compute)"},
                       {{1, 1}, "queue 1"},
                       {{2, -1}, "rank 2"},
                       {{2, 0}, "queue 0 (compute)"},
                       {{2, 1}, "queue 1"}}));
  size_t numSends = 0, numInstructions = 0;
  for (int32_t r = 0; r < 3; ++r) {
    const auto &list = program.ranks[r].instructions;
    for (size_t i = 0; i < list.size(); ++i) {
      ++numInstructions;
      numSends += list[i].op == Op::Send;
      ASSERT_TRUE(slices.count({r, describe(list[i])})) << describe(list[i]);
      const json &slice = slices[{r, describe(list[i])}];
      EXPECT_EQ(slice["tid"], list[i].queue);
      EXPECT_EQ(slice["ts"], 1000 * timing.start[r][i]);
      EXPECT_EQ(slice["dur"], 1000 * (timing.end[r][i] - timing.start[r][i]));
      EXPECT_EQ(slice["args"]["mb"], list[i].microbatch);
      EXPECT_EQ(slice["args"]["bytes"], list[i].bytes);
    }
  }
  EXPECT_EQ(slices.size(), numInstructions);
  EXPECT_EQ(starts.size(), numSends);
  ASSERT_EQ(ends.size(), numSends);
  for (const auto &[id, start] : starts) {
    EXPECT_EQ(start["ts"], ends[id]["ts"]);
    EXPECT_EQ(start["tid"], 1);
    EXPECT_EQ(std::abs(int(start["pid"]) - int(ends[id]["pid"])), 1);
    EXPECT_EQ(ends[id]["bp"], "e");
  }
}

TEST(ChromeTrace, OfAnOrderHasArrowsFromActionToAction) {
  Program program = makeProgram(2, 1);
  program.problem.link.latency = 0.5;
  RankBuilder(program, 0).f(0, 0).b(0, 0).step();
  RankBuilder(program, 1).f(1, 0).b(1, 0);
  const json trace = json::parse(textOf(program, *simulateOrder(program)));
  std::vector<std::pair<int, double>> arrows; // rank and time of each end
  for (const json &event : trace["traceEvents"])
    if (event["ph"] == "s" || event["ph"] == "f")
      arrows.emplace_back(event["pid"], event["ts"]);
  EXPECT_EQ(arrows, (std::vector<std::pair<int, double>>{
                        {1, 3500}, {0, 5000}, {0, 500}, {1, 1500}}));
}

TEST(ChromeTrace, CopiesOfAnOrderHaveAThreadOfTheirOwn) {
  Program program = makeProgram(1, 1);
  program.problem.hostLink.latency = 0.5;
  RankBuilder(program, 0)
      .f(0, 0)
      .action(Op::Offload, 0, 0)
      .action(Op::Reload, 0, 0)
      .b(0, 0);
  const json trace = json::parse(textOf(program, *simulateOrder(program)));
  std::vector<std::pair<int, double>> slices; // thread and duration
  std::vector<std::string> names;
  for (const json &event : trace["traceEvents"])
    if (event["ph"] == "X")
      slices.emplace_back(event["tid"], event["dur"]);
    else if (event["name"] == "thread_name")
      names.push_back(event["args"]["name"]);
  EXPECT_EQ(slices, (std::vector<std::pair<int, double>>{
                        {0, 1000}, {1, 500}, {1, 500}, {0, 2000}}));
  EXPECT_EQ(names, (std::vector<std::string>{"queue 0 (compute)",
                                             "queue 1 (host memory)"}));
}

TEST(ChromeTrace, ComesInPieces) {
  Program program = makeProgram(1, 1);
  RankBuilder rank(program, 0);
  for (int k = 0; k < 10000; ++k)
    rank.f(0, 0);
  size_t largest = 0, total = 0;
  writeChromeTrace(program, *simulateProgram(program),
                   [&](std::string_view piece) {
                     largest = std::max(largest, piece.size());
                     total += piece.size();
                   });
  EXPECT_GT(total, 1000000u);
  EXPECT_LT(largest, 100000u);
}

TEST(ChromeTrace, OfNothingIsValid) {
  const Program program = makeProgram(0, 0);
  EXPECT_TRUE(
      json::parse(textOf(program, *simulateProgram(program)))["traceEvents"]
          .empty());
}
