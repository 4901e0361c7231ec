//===- RecorderTest.cpp - Recorded times, bubbles and traces --------------===//

#include "TestPrograms.h"

#include "penstock/Analysis/Simulate.h"
#include "penstock/Program/Text.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <map>
#include <sstream>

using namespace penstock;
using namespace penstock::runtime;
using namespace penstock::runtime::test;

namespace {

TEST(Recorder, EveryInstructionHasItsTimesInOrder) {
  const Program program = makeGPipe(3, 2);
  Recorder recorder(program, 2);
  RunOptions options;
  options.recorder = &recorder;
  runLosses(program, 3, Hooks(), options);
  for (int32_t r = 0; r < 3; ++r) {
    EXPECT_EQ(recorder.currentStep(r), 2);
    for (int64_t step : {1, 2})
      for (uint32_t i = 0; i < program.ranks[r].instructions.size(); ++i) {
        const Stamps &time = recorder.stamps(r, step, i);
        EXPECT_GT(time.enqueued, 0);
        EXPECT_LE(time.enqueued, time.started);
        EXPECT_LE(time.started, time.ended);
        for (uint32_t k = 0; k < program.ranks[r].instructions[i].numWaits; ++k)
          EXPECT_LE(
              recorder
                  .stamps(r, step,
                          program.ranks[r].waits
                              [program.ranks[r].instructions[i].firstWait + k])
                  .ended,
              time.started);
      }
  }
}

TEST(Recorder, MembersOfAGroupShareTheirTimes) {
  Program program = makeGPipe(2, 1);
  program.ranks[0].instructions = {
      transfer(Op::Send, Payload::Activation, 0, 0, 1, 0),
      transfer(Op::Recv, Payload::Gradient, 1, 0, 1, 1),
      action(Op::Forward, 0, 0), action(Op::Backward, 0, 0)};
  program.ranks[0].instructions[1].joined = true;
  program.ranks[0].instructions[3].joined = true;
  const Recorder recorder(program);
  EXPECT_EQ(recorder.leader(0, 0), 0u);
  EXPECT_EQ(recorder.leader(0, 1), 0u);
  EXPECT_EQ(recorder.leader(0, 2), 2u);
  EXPECT_EQ(recorder.leader(0, 3), 3u); // an overlap's actions have their own
}

TEST(Recorder, StepOfARankForAnotherProcess) {
  const Program program = makeGPipe(2, 2);
  Recorder here(program, 2), there(program, 2);
  EXPECT_EQ(here.lastEnded(1), "");
  EXPECT_TRUE(there.unpackStep(1, here.packStep(1)));
  EXPECT_EQ(there.currentStep(1), -1);

  RunOptions options;
  options.recorder = &here;
  runLosses(program, 3, Hooks(), options);
  Stamps *row = here.beginStep(1, 3);
  EXPECT_TRUE(here.lastEnded(1).ends_with(" in step 2"));
  row[0].ended = here.stamps(1, 2, 0).ended + 1'000'000'000;
  const Instruction &first = program.ranks[1].instructions[0];
  EXPECT_EQ(here.lastEnded(1), quoted(first) + " in step 3");

  const std::string bytes = here.packStep(1);
  EXPECT_TRUE(there.unpackStep(1, bytes));
  EXPECT_EQ(there.currentStep(1), 3);
  EXPECT_EQ(there.stamps(1, 3, 0).ended, row[0].ended);
  EXPECT_EQ(there.stamps(1, 3, 1).ended, 0);
  EXPECT_FALSE(there.unpackStep(1, bytes.substr(1)));
  EXPECT_FALSE(there.unpackStep(1, ""));
  EXPECT_FALSE(there.unpackStep(1, std::string(bytes.size(), '\x80')));
}

TEST(Recorder, AllOfARankForAnotherProcess) {
  const Program program = makeGPipe(2, 2);
  Recorder here(program, 2), there(program, 2), other(program, 3);
  RunOptions options;
  options.recorder = &here;
  runLosses(program, 3, Hooks(), options);
  const std::string bytes = here.pack(1);
  EXPECT_TRUE(there.unpack(1, bytes));
  EXPECT_EQ(there.pack(1), bytes);
  for (const std::string &wrong :
       {std::string(), bytes.substr(1), bytes + '\0', other.pack(1),
        std::string(bytes.size(), '\x80')})
    EXPECT_FALSE(there.unpack(1, wrong));
  EXPECT_EQ(there.pack(1), bytes);
}

TEST(Recorder, BubbleIsThatOfTheSimulator) {
  // Span 10, busiest 6.
  EXPECT_DOUBLE_EQ(bubbleRate({{0, 10, 6}, {5, 9, 4}}), 0.4);
  EXPECT_EQ(bubbleRate({{0, 0, 0}}), 0);
}

TEST(Recorder, PacedRunTakesThePredictedTimes) {
  Program program = makeGPipe(4, 4);
  program.problem.link.latency = 0.25;
  for (int32_t s = 0; s < 4; ++s)
    program.problem.stages[s].cost.backward = 2 + s % 2;
  const auto predicted = simulateProgram(program);
  ASSERT_TRUE(predicted);

  // A pace is a lower limit. How close the run comes to it depends on what else
  // the machine does, so one good run of some is enough.
  bool close = false;
  for (int attempt = 0; attempt < 5 && !close; ++attempt) {
    Recorder recorder(program);
    RunOptions options;
    options.recorder = &recorder;
    options.steps = 3;
    options.pace = 0.01;
    const RunReport report = runProgram(program, makeTestModel(), options);
    ASSERT_TRUE(report) << report.error.message;

    Program again = program;
    again.problem = recorder.measuredProblem();
    const Problem &measured = again.problem;
    for (int32_t s = 0; s < 4; ++s) {
      EXPECT_GE(measured.stages[s].cost.forward, 0.01);
      EXPECT_GE(measured.stages[s].cost.backward, 0.02 + s % 2 * 0.01);
      EXPECT_EQ(measured.stages[s].cost.weight, 0); // did not run
    }
    EXPECT_GE(measured.link.latency, 0.0025);
    EXPECT_EQ(measured.link.bytesPerTime, 0);
    close =
        measured.stages[0].cost.forward < 0.015 &&
        measured.stages[1].cost.backward < 0.04 &&
        measured.link.latency < 0.006 &&
        std::abs(report.bubbleRate - predicted->bubbleRate) < 0.1 &&
        std::abs(simulateProgram(again)->bubbleRate - report.bubbleRate) < 0.1;
  }
  EXPECT_TRUE(close);
}

TEST(Recorder, CopiesToHostMemoryArePacedAndMeasured) {
  Program program = makeOffloaded();
  program.problem.hostLink.bytesPerTime = 8; // a unit for each copy
  Recorder recorder(program);
  RunOptions options;
  options.recorder = &recorder;
  options.pace = 0.005;
  const RunReport report = runProgram(program, makeTestModel(), options);
  ASSERT_TRUE(report) << report.error.message;
  const Problem measured = recorder.measuredProblem();
  EXPECT_GE(measured.hostLink.latency, 0.005);
  EXPECT_EQ(measured.hostLink.bytesPerTime, 0);
  std::ostringstream profile;
  writeProfile(profile, measured);
  EXPECT_NE(profile.str().find(" host_link(#pipe.link<latency = "),
            std::string::npos)
      << profile.str();
}

// Costs are those of whole micro-batches.
TEST(Recorder, MeasuredCostsOfSlices) {
  Program program = makeGPipe(2, 2);
  program.problem.slices = 2;
  Recorder recorder(program);
  RunOptions options;
  options.recorder = &recorder;
  options.pace = 0.01;
  options.force = true; // sizes and order are those of whole micro-batches
  const RunReport report = runProgram(program, makeTestModel(), options);
  ASSERT_TRUE(report) << report.error.message;
  for (const Stage &stage : recorder.measuredProblem().stages)
    EXPECT_GE(stage.cost.forward, 0.01); // 0.005 of each slice
}

TEST(Recorder, ProfileHasTheLayersOfEveryStage) {
  Problem problem = makeProblem(2, 4);
  problem.memory = 1 << 20;
  problem.link.latency = 1.23456e-5;
  Stage &first = problem.stages[0], &last = problem.stages[1];
  // A backward in one piece, and one in two.
  first.cost = {0.002, 0.004, 0, 0, 0};
  first.bytes = {64, 100, 30, 30, 0};
  first.numLayers = 1;
  last.cost = {0.003, 0, 0.0062, 0.00123456789, 0.003};
  last.bytes = {0, 100, 31, 31, 62};
  last.firstLayer = 1;
  last.numLayers = 3;
  std::ostringstream os;
  writeProfile(os, problem);
  EXPECT_EQ(
      os.str(),
      "// Times in seconds, per micro-batch, as penstock-run has measured "
      "them.\n"
      "pipe.model @measured {\n"
      "  layer \"stage 0\" costs(#pipe.cost<forward = 0.002, backward = 0.004>)"
      " bytes(#pipe.bytes<output = 64, stash = 100, parameters = 30, gradients "
      "= 30>)\n"
      "  layer \"stage 1\" costs(#pipe.cost<forward = 0.001, input = 0.002067, "
      "weight = 0.0004115, recompute = 0.001>) bytes(#pipe.bytes<output = 64, "
      "stash = 34, parameters = 11, gradients = 11, optimizer = 21>)\n"
      "  layer \"stage 1\" costs(#pipe.cost<forward = 0.001, input = 0.002067, "
      "weight = 0.0004115, recompute = 0.001>) bytes(#pipe.bytes<output = 64, "
      "stash = 33, parameters = 10, gradients = 10, optimizer = 21>)\n"
      "  layer \"stage 1\" costs(#pipe.cost<forward = 0.001, input = 0.002067, "
      "weight = 0.0004115, recompute = 0.001>) bytes(#pipe.bytes<stash = 33, "
      "parameters = 10, gradients = 10, optimizer = 20>)\n"
      "}\n"
      "\n"
      "pipe.cluster @measured_on ranks(2) memory(1048576) "
      "link(#pipe.link<latency = 1.235e-05>)\n");
}

/// Equal layers are one line; without memory and latency there are none.
TEST(Recorder, ProfileOfEqualLayers) {
  Problem problem = makeProblem(1, 1);
  problem.stages[0].numLayers = 4;
  problem.stages[0].cost = {4, 8, 0, 0, 0};
  problem.stages[0].bytes = {};
  std::ostringstream os;
  writeProfile(os, problem);
  EXPECT_NE(
      os.str().find("  layer \"stage 0\" times 4 costs(#pipe.cost<forward "
                    "= 1.0, backward = 2.0>)\n}\n\n"
                    "pipe.cluster @measured_on ranks(1)\n"),
      std::string::npos)
      << os.str();
}

TEST(Trace, HasEveryInstructionAndAnArrowForEveryTransfer) {
  const Program program = makeGPipe(3, 2);
  Recorder recorder(program, 2);
  RunOptions options;
  options.recorder = &recorder;
  runLosses(program, 3, Hooks(), options);
  std::ostringstream os;
  recorder.writeTrace(os);
  const nlohmann::json trace = nlohmann::json::parse(os.str());

  std::map<std::tuple<int, int, std::string>, int> slices;
  std::map<int, nlohmann::json> starts, ends;
  std::map<int, std::string> names;
  for (const nlohmann::json &event : trace["traceEvents"]) {
    const std::string ph = event["ph"];
    if (event["pid"] >= 3 && event["name"] != "process_name")
      continue; // predicted
    if (ph == "X") {
      ++slices[{event["pid"], event["tid"], event["name"]}];
      EXPECT_GE(event["dur"], 0);
      EXPECT_GE(event["ts"], event["args"]["enqueued"]);
      EXPECT_GE(event["args"]["step"], 1); // two steps are kept
    } else if (ph == "s") {
      starts[event["id"]] = event;
    } else if (ph == "f") {
      ends[event["id"]] = event;
    } else if (event["name"] == "process_name") {
      names[event["pid"]] = event["args"]["name"];
    }
  }
  size_t numSends = 0;
  for (int32_t r = 0; r < 3; ++r)
    for (const Instruction &inst : program.ranks[r].instructions) {
      const int count = slices[{r, inst.queue, describe(inst)}];
      EXPECT_EQ(count, 2) << describe(inst);
      numSends += inst.op == Op::Send;
    }
  EXPECT_EQ(names[2], "rank 2");
  EXPECT_EQ(names[5], "rank 2 predicted from measured times");
  EXPECT_EQ(starts.size(), 2 * numSends);
  ASSERT_EQ(ends.size(), starts.size());
  for (auto &[id, start] : starts) {
    EXPECT_EQ(start["ts"], ends[id]["ts"]);
    EXPECT_EQ(std::abs(int(start["pid"]) - int(ends[id]["pid"])), 1);
  }
}

/// The predicted slices of a trace, by step, rank and name: (start, end).
using Slices =
    std::map<std::tuple<int, int, std::string>, std::pair<double, double>>;
static Slices predictedOf(const Recorder &recorder, int32_t numRanks,
                          std::string &from, size_t &numArrows) {
  std::ostringstream os;
  recorder.writeTrace(os);
  Slices slices;
  numArrows = 0;
  const nlohmann::json trace = nlohmann::json::parse(os.str());
  for (const nlohmann::json &event : trace["traceEvents"]) {
    const int pid = event["pid"];
    if (pid < numRanks)
      continue;
    if (event["name"] == "process_name")
      from = event["args"]["name"];
    numArrows += event["ph"] == "s";
    if (event["ph"] != "X")
      continue;
    const double start = event["ts"], duration = event["dur"];
    slices[{event["args"]["step"], pid - numRanks, event["name"]}] = {
        start, start + duration};
  }
  return slices;
}

TEST(Trace, HasThePredictionBesideWhatWasMeasured) {
  const Program program = makeGPipe(3, 2);
  Recorder recorder(program, 3);
  RunOptions options;
  options.recorder = &recorder;
  options.pace = 0.002;
  runLosses(program, 4, Hooks(), options);
  std::string from;
  size_t numArrows = 0;
  const Slices slices = predictedOf(recorder, 3, from, numArrows);
  EXPECT_EQ(from, "rank 2 predicted from measured times");

  Program measured = program;
  measured.problem = recorder.measuredProblem();
  const Timing timing = *simulateProgram(measured);
  size_t numSends = 0, numInstructions = 0;
  std::map<int, double> starts; // of the steps
  for (int step = 1; step <= 3; ++step) {
    for (int32_t r = 0; r < 3; ++r)
      for (size_t i = 0; i < program.ranks[r].instructions.size(); ++i) {
        const Instruction &inst = program.ranks[r].instructions[i];
        const auto at = slices.find({step, r, describe(inst)});
        ASSERT_NE(at, slices.end()) << describe(inst);
        const auto [start, end] = at->second;
        const double origin =
            starts.try_emplace(step, start - 1e6 * timing.start[r][i])
                .first->second;
        EXPECT_NEAR(start, origin + 1e6 * timing.start[r][i], 0.01);
        EXPECT_NEAR(end, origin + 1e6 * timing.end[r][i], 0.01);
        numSends += inst.op == Op::Send;
        ++numInstructions;
      }
    // It lies over the measured step, or behind the one before.
    int64_t first = std::numeric_limits<int64_t>::max(), origin = first;
    for (int32_t r = 0; r < 3; ++r) {
      first = std::min<int64_t>(first, recorder.stamps(r, step, 0).started);
      origin = std::min<int64_t>(origin, recorder.stamps(r, 1, 0).enqueued);
    }
    EXPECT_GE(starts[step], double(first - origin) / 1e3 - 0.01);
    if (step == 1) {
      EXPECT_NEAR(starts[1], double(first - origin) / 1e3, 0.01);
    }
    for (const auto &[key, times] : slices) {
      const auto &[ofStep, rank, name] = key;
      const auto before = slices.find({step - 1, rank, name});
      if (ofStep == step && before != slices.end()) {
        EXPECT_GE(times.first, before->second.second - 0.01);
      }
    }
  }
  EXPECT_EQ(slices.size(), numInstructions);
  EXPECT_EQ(numArrows, numSends);
}

// The run ends in its first step, so nothing was measured.
TEST(Trace, PredictsFromTheCostsOfTheProgramIfItMust) {
  const Program program = makeGPipe(2, 2);
  Recorder recorder(program);
  RunOptions options;
  options.recorder = &recorder;
  options.pace = 0.01;
  Hooks hooks;
  hooks.onCall = [](const ActionContext &, Op op) {
    if (op == Op::Backward)
      throw std::runtime_error("enough");
  };
  EXPECT_EQ(runProgram(program, makeTestModel(hooks), options).error.kind,
            ErrorKind::ModelError);
  std::string from;
  size_t numArrows = 0;
  const Slices slices = predictedOf(recorder, 2, from, numArrows);
  EXPECT_EQ(from, "rank 1 predicted from the program's costs");
  const Timing timing = *simulateProgram(program);
  const auto first = slices.at({0, 0, "forward 0 mb 0"});
  // A unit took 0.01 s at least.
  EXPECT_GE(first.second - first.first,
            1e4 * (timing.end[0][0] - timing.start[0][0]) * 0.99);
}

TEST(Trace, ShowsWhatHangs) {
  const Program program = makeDeadlock();
  Recorder recorder(program);
  RunOptions options;
  options.recorder = &recorder;
  options.force = true;
  options.timeout = 0.05;
  EXPECT_EQ(runProgram(program, makeTestModel(), options).error.kind,
            ErrorKind::Timeout);
  std::ostringstream os;
  recorder.writeTrace(os);
  std::vector<std::string> open;
  const nlohmann::json trace = nlohmann::json::parse(os.str());
  for (const nlohmann::json &event : trace["traceEvents"])
    if (event["ph"] == "B")
      open.push_back(event["name"]);
  EXPECT_EQ(open, (std::vector<std::string>{"recv gradient 1 mb 0 from 1",
                                            "recv activation 0 mb 1 from 0"}));
}

TEST(Trace, OfNothingIsEmptyButValid) {
  const Program program = makeGPipe(2, 1);
  const Recorder recorder(program);
  std::ostringstream os;
  recorder.writeTrace(os);
  const nlohmann::json trace = nlohmann::json::parse(os.str());
  for (const nlohmann::json &event : trace["traceEvents"])
    EXPECT_EQ(event["ph"], "M");
}

} // namespace
