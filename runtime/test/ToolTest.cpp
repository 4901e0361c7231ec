//===- ToolTest.cpp - penstock-run as its users see it --------------------===//

#include "ByteLmConfig.h"
#include "Crew.h"

#include "penstock/Lowering/Lowering.h"
#include "penstock/Program/File.h"
#include "penstock/Schedule/Schedule.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

using namespace penstock;
using namespace penstock::runtime;
using penstock::runtime::test::Crew;

namespace {

const std::string kModel =
    "byte-lm:width=16,hidden=16,context=4,embed=4,samples=8";

class RunTool : public testing::Test {
protected:
  void SetUp() override {
    directory = std::filesystem::path(testing::TempDir()) /
                (std::string("penstock-run-") +
                 testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory);
    std::filesystem::create_directories(directory);
    std::ofstream text(path("text"));
    for (int line = 0; line < 200; ++line)
      text << "the quick brown fox jumps over the lazy dog " << line << "\n";
  }
  void TearDown() override { std::filesystem::remove_all(directory); }

  std::string path(const std::string &name) const { return directory / name; }

  /// A program of 1F1B for the model, or only its order.
  static Program compile(int32_t numRanks, bool order = false,
                         BufferOptions buffers = {},
                         int32_t numMicrobatches = 2, bool validates = false) {
    const ByteLmConfig config = *ByteLmConfig::parse(kModel);
    Problem problem;
    problem.name = "tool";
    problem.numRanks = numRanks;
    problem.numMicrobatches = numMicrobatches;
    const int32_t numLayers = numRanks + 1; // stage 0 has two
    for (int32_t s = 0; s < numRanks; ++s) {
      Stage stage;
      stage.firstLayer = s == 0 ? 0 : s + 1;
      stage.numLayers = s == 0 ? 2 : 1;
      stage.bytes = bytesOf(stage, numLayers, config);
      problem.stages.push_back(stage);
      problem.placement.push_back(s);
    }
    problem.postValidation = validates;
    Program program = *oneForwardOneBackward(problem);
    appendSteps(program);
    if (order)
      return program;
    EXPECT_TRUE(insertTransfers(program, {.group = false}));
    EXPECT_TRUE(planBuffers(program, buffers));
    return program;
  }
  std::string write(const Program &program) const {
    const std::string file = path("program.psp");
    const Status status = writeProgramFile(program, file);
    EXPECT_TRUE(status) << (status ? "" : status.message());
    return file;
  }

  static std::string contents(const std::string &file) {
    std::ifstream in(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }

  /// Runs the tool; what it prints, on both streams, is in `output`.
  int run(const std::string &arguments) {
    return shell(PENSTOCK_RUN " " + arguments);
  }
  int shell(const std::string &command) {
    FILE *pipe = popen((command + " 2>&1").c_str(), "r");
    output.clear();
    char buffer[4096];
    while (size_t size = fread(buffer, 1, sizeof(buffer), pipe))
      output.append(buffer, size);
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string arguments(const std::string &file) const {
    return file + " --model=" + kModel + " --text=" + path("text");
  }
  testing::AssertionResult says(std::string_view part) const {
    if (output.find(part) != std::string::npos)
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << "missing: " << part << "\nin:\n"
                                       << output;
  }

  std::filesystem::path directory;
  std::string output;
};

TEST_F(RunTool, SaysHowOftenAStepRanInVain) {
  const std::string file = write(compile(2, false, {}, 2, /*validates=*/true));
  // Every norm is larger: all steps but the last void the next one once.
  const std::string clipped = file + " --model=" + kModel +
                              ",clip=0.0001 --text=" + path("text") +
                              " --steps=4";
  EXPECT_EQ(run(clipped), 0) << output;
  EXPECT_TRUE(says("void     3 times a step ran again, because the one before "
                   "was amended"));
  EXPECT_EQ(run(clipped + " --json"), 0) << output;
  EXPECT_EQ(nlohmann::json::parse(output)["void_steps"], 3);
  EXPECT_EQ(run(arguments(file) + " --steps=4 --check-gradients --json"), 0)
      << output;
  EXPECT_EQ(nlohmann::json::parse(output)["void_steps"], 0);
  EXPECT_EQ(run(file + " --model=none --steps=4 --json"), 0) << output;
  EXPECT_EQ(run(arguments(write(compile(2))) + " --json"), 0) << output;
  EXPECT_FALSE(nlohmann::json::parse(output).contains("void_steps"));
}

TEST_F(RunTool, OutputThatIsLostIsNoticed) {
  const std::string file = write(compile(2));
  for (const std::string &arguments :
       {file + " --model=none --steps=1", file + " --model=none --json",
        std::string("--print-model=4")}) {
    const std::string command = std::string(PENSTOCK_RUN) + ' ' + arguments +
                                " >/dev/full 2>" + path("err");
    EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1) << arguments;
    EXPECT_EQ(contents(path("err")),
              "penstock-run: cannot write the output; is the disk full?\n");
  }
}

TEST_F(RunTool, TrainsAndSaysWhatItDid) {
  ASSERT_EQ(run(arguments(write(compile(2))) +
                " --backend=host --steps=20 --check-gradients --trace=" +
                path("trace.json")),
            0)
      << output;
  EXPECT_TRUE(says("program  2 ranks, 2 stages, 2 micro-batches, "));
  EXPECT_TRUE(says("check    all "));
  EXPECT_TRUE(says(" gradients and parameters are bitwise equal to the "
                   "unpipelined model's after 2 steps"));
  EXPECT_TRUE(says("step 20/20  loss "));
  EXPECT_TRUE(says("trained  20 steps in "));
  EXPECT_TRUE(says("bubble   predicted "));
  EXPECT_TRUE(says("trace    " + path("trace.json")));
  std::ifstream trace(path("trace.json"));
  EXPECT_GT(nlohmann::json::parse(trace)["traceEvents"].size(), 20u);
}

TEST_F(RunTool, PrintsJson) {
  ASSERT_EQ(run(arguments(write(compile(3))) +
                " --steps=30 --check-gradients --json"),
            0)
      << output;
  const nlohmann::json json = nlohmann::json::parse(output);
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(json["steps"], 30);
  EXPECT_EQ(json["gradients"]["equal"], true);
  EXPECT_GT(json["gradients"]["values"], 1000);
  EXPECT_LT(json["loss"]["last"], json["loss"]["first"]);
  EXPECT_GT(json["steps_per_second"], 0);
  // (p - 1) / m of the work, with F = 1 and B = 2: 2 / (2 + 2).
  EXPECT_NEAR(json["bubble_rate"]["predicted"], 0.5, 1e-9);
  for (const char *key : {"predicted_from_measured", "measured"}) {
    EXPECT_GE(json["bubble_rate"][key], 0) << key;
    EXPECT_LT(json["bubble_rate"][key], 1) << key;
  }
}

TEST_F(RunTool, SeedChangesTheRunAndRepeatsIt) {
  const std::string command =
      arguments(write(compile(2))) + " --steps=3 --json --seed=";
  auto lossOf = [&](const std::string &seed) {
    EXPECT_EQ(run(command + seed), 0) << output;
    return nlohmann::json::parse(output)["loss"]["last"].get<double>();
  };
  const double seven = lossOf("7");
  EXPECT_EQ(lossOf("7"), seven);
  EXPECT_NE(lossOf("8"), seven);
}

TEST_F(RunTool, FileThatIsNoProgram) {
  EXPECT_EQ(run(arguments(path("text"))), 2);
  EXPECT_TRUE(says("penstock-run: " + path("text")));
  EXPECT_EQ(run(arguments(path("missing"))), 2);
  EXPECT_TRUE(says("penstock-run: " + path("missing")));
}

TEST_F(RunTool, OrderMustBeCompiled) {
  EXPECT_EQ(run(arguments(write(compile(2, true)))), 2);
  EXPECT_TRUE(says("compile it with penstock-opt --pipe-compile"));
}

TEST_F(RunTool, TextMustBeThere) {
  const std::string file = write(compile(2));
  EXPECT_EQ(run(file + " --model=" + kModel + " --text=" + path("missing")), 2);
  EXPECT_TRUE(says("text file '" + path("missing") + "'"));
  std::ofstream(path("short")) << "ab";
  EXPECT_EQ(run(file + " --model=" + kModel + " --text=" + path("short")), 2);
  EXPECT_TRUE(says("text file '" + path("short") + "'"));
  EXPECT_EQ(run(file), 2);
  EXPECT_TRUE(says("no text given; name a file to train on with --text=FILE"));
  EXPECT_EQ(run(""), 2);
  EXPECT_TRUE(says("no program given; name a .psp file"));
}

TEST_F(RunTool, SpecIsNoProgram) {
  std::ofstream(path("train.mlir")) << "// 1F1B\npipe.schedule @train\n";
  EXPECT_EQ(run(path("train.mlir")), 2);
  EXPECT_EQ(output,
            "penstock-run: " + path("train.mlir") +
                ": the program file is text and no compiled program; compile a "
                "spec with penstock-opt SPEC.mlir --pipe-compile | "
                "penstock-translate --pipe-to-program - -o FILE.psp\n");
}

TEST_F(RunTool, OutputsMayHaveTheLongestNames) {
  const std::string file = write(compile(2));
  const std::string longest(255, 'n');
  for (const char *what : {"trace", "profile"}) {
    const std::string option =
        " --model=none --steps=1 --" + std::string(what) + "=";
    EXPECT_EQ(run(file + option + path(longest)), 0) << output;
    EXPECT_NE(contents(path(longest)), "");
    EXPECT_EQ(run(file + option + path(longest + 'n')), 2);
    EXPECT_TRUE(says("cannot write the " + std::string(what) + " to '"));
  }
  EXPECT_TRUE(writeProgramFile(compile(2), path(longest)));
  EXPECT_EQ(run(path(longest) + " --model=none --steps=1"), 0) << output;
}

TEST_F(RunTool, PrintsTheModelOfTheExample) {
  EXPECT_EQ(run("--print-model 1"), 2);
  EXPECT_TRUE(says("byte-lm has from 2 to"));
  EXPECT_EQ(run("--print-model 8 >" + path("model")), 0);
  auto text = [](const std::string &file) {
    std::ifstream in(file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string model = text(path("model"));
  EXPECT_EQ(run("--print-model=8 --json"), 0);
  EXPECT_EQ(nlohmann::json::parse(output)["ok"], true);
  EXPECT_EQ(nlohmann::json::parse(output)["model"].get<std::string>() + "\n",
            model);
  EXPECT_NE(model, "");
  EXPECT_NE(text(PENSTOCK_SOURCE_DIR "/examples/byte_lm.mlir").find(model),
            std::string::npos);
}

TEST_F(RunTool, ModelMustSuitTheProgram) {
  Program program = compile(2);
  program.problem.stages[0].bytes.parameters += 4;
  EXPECT_EQ(run(arguments(write(program))), 2);
  EXPECT_TRUE(says("stage 0"));
  EXPECT_EQ(run(arguments(write(program)) + " --check-gradients"), 2);
}

TEST_F(RunTool, UnknownModelAndBackEnd) {
  const std::string program = write(compile(2));
  const std::string file = program + " --text=" + path("text");
  for (const std::string &given : {program, file}) {
    EXPECT_EQ(run(given + " --model=gpt-9"), 2);
    EXPECT_TRUE(
        says("unknown model 'gpt-9'; the known models are: byte-lm, none\n"));
  }
  EXPECT_EQ(run(file + " --backend=tpu"), 2);
  EXPECT_TRUE(says("back end 'tpu' is unknown; there are: host, mpi, cuda"));
}

TEST_F(RunTool, CommandLinesThatAreWrong) {
  const std::string file = write(compile(2)), command = arguments(file) + " ";
  auto fails = [&](const std::string &arguments, const std::string &message) {
    EXPECT_EQ(run(command + arguments), 2) << output;
    EXPECT_EQ(output, "penstock-run: " + message + "\n");
  };
  fails("--seed=-1", "--seed: '-1' is not an integer from 0 to "
                     "18446744073709551615");
  fails("--seed 1x",
        "--seed: '1x' is not an integer from 0 to 18446744073709551615");
  fails("--steps=0", "--steps: '0' is not an integer from 1 to 1099511627776");
  fails("--steps=", "--steps: '' is not an integer from 1 to 1099511627776");
  fails("--trace-steps=1001",
        "--trace-steps: '1001' is not an integer from 1 to 1000");
  for (const char *name :
       {"timeout", "pace", "call-timeout", "rendezvous-timeout"}) {
    for (const char *value : {"1e-400", "4e-320"})
      fails(std::string("--") + name + "=" + value,
            std::string("--") + name + ": '" + value +
                "' is not a number from 0 to 1e9 that can be told from 0; "
                "write 0 if you mean it, else 1e-300 at least");
    for (const char *value : {"nan", "-1", "x", "1e10", "inf"})
      fails(std::string("--") + name + "=" + value,
            std::string("--") + name + ": '" + value +
                "' is not a number from 0 to 1e9");
  }
  fails("--step=3", "there is no option --step; did you mean --steps?");
  fails("--chek-gradients",
        "there is no option --chek-gradients; did you mean --check-gradients?");
  fails("--nonsense", "there is no option --nonsense; --help names all");
  fails("-s 3", "there is no option -s; options begin with --, and --help "
                "names all");
  fails("--steps", "--steps needs a value; write --steps=N");
  fails("--steps=3 --steps=4", "--steps is given twice; leave one out");
  fails("--json=yes", "--json takes no value; leave '=yes' out");
  fails("another.psp", "'another.psp' is one FILE.psp too many; name one, and "
                       "begin options with --");
  fails("--trace=" + path("no/such/trace.json"),
        "cannot write the trace to '" + path("no/such/trace.json") +
            "'; name a file in a directory that exists");
  // A name that looks like an option, and a value that does.
  std::filesystem::copy_file(file, path("-x"));
  EXPECT_EQ(shell("cd " + directory.string() +
                  "; " PENSTOCK_RUN
                  " --model none --steps 1 --json --trace --json -- -x"),
            0)
      << output;
  EXPECT_EQ(nlohmann::json::parse(output)["trace"], "--json");
}

TEST_F(RunTool, DeadlockIsRefusedAndEndsByTheWatchdogWithForce) {
  Program program = compile(2, false, {.transferQueue = 0});
  auto &insts = program.ranks[0].instructions;
  auto find = [&](Op op, int32_t mb) {
    return std::find_if(insts.begin(), insts.end(), [&](const auto &inst) {
      return inst.op == op && inst.microbatch == mb;
    });
  };
  std::iter_swap(find(Op::Send, 0), find(Op::Recv, 0));
  const std::string command = arguments(write(program));
  EXPECT_EQ(run(command), 1);
  EXPECT_TRUE(says("the verifier refuses the program"));
  EXPECT_EQ(
      run(command + " --force --timeout=0.2 --trace=" + path("trace.json")), 1);
  EXPECT_TRUE(says("no progress for 0.2 s in step 0:"));
  EXPECT_TRUE(says("deadlock: under documented semantics rank "));
  std::ifstream trace(path("trace.json"));
  EXPECT_GT(nlohmann::json::parse(trace)["traceEvents"].size(), 2u);
  EXPECT_EQ(run(command + " --force --timeout=0.2 --json"), 1);
  EXPECT_TRUE(says("\"kind\": \"timeout\""));
}

TEST_F(RunTool, NoModelShowsTheTimingOfAnyProgram) {
  Program program = compile(2);
  for (Stage &stage : program.problem.stages)
    stage.bytes.parameters = 0; // byte-lm would refuse it
  const std::string file = write(program);
  ASSERT_EQ(run(file + " --model=none --steps=2 --pace=0.001 --json"), 0)
      << output;
  const nlohmann::json json = nlohmann::json::parse(output);
  EXPECT_FALSE(json.contains("loss"));
  EXPECT_GE(json["seconds"], 0.012); // a rank works 6 units a step
  ASSERT_EQ(run(file + " --model=none --steps=2"), 0) << output;
  EXPECT_TRUE(says("step 2/2  "));
  EXPECT_FALSE(says("loss"));
  EXPECT_EQ(run(file + " --model=none --check-gradients"), 2);
  EXPECT_TRUE(says("the model 'none' has no gradients to check"));
}

TEST_F(RunTool, LossThatIsNotFiniteFails) {
  const std::string file = write(compile(2));
  const std::string diverges = file + " --steps=400 --text=" + path("text") +
                               " --model=" + kModel + ",optimizer=sgd,lr=1e30";
  EXPECT_EQ(run(diverges), 1) << output;
  EXPECT_TRUE(says("the loss of micro-batch "));
  // The check finds where it began, a stage before the loss.
  EXPECT_EQ(run(diverges + " --check-finite --json"), 1) << output;
  EXPECT_TRUE(says("\"kind\": \"not-finite\""));
  EXPECT_TRUE(says("penstock-run: rank 0, instruction "));
  EXPECT_TRUE(says(" (forward 0 mb 0): value "));
  EXPECT_TRUE(says(" of what it has computed is "));
  EXPECT_TRUE(says("; lower the learning rate or check the input\n"));
  // And changes nothing where there is nothing to find.
  auto lossWith = [&](const std::string &option) {
    EXPECT_EQ(run(arguments(file) + " --json" + option), 0) << output;
    return nlohmann::json::parse(output)["loss"];
  };
  EXPECT_EQ(lossWith(" --check-finite"), lossWith(""));
}

TEST_F(RunTool, EveryFailureIsJsonAndKeepsTheOldTrace) {
  const std::string trace = path("trace.json"), old = "an older trace";
  std::ofstream(trace) << old;
  auto kindOf = [&](const std::string &command, int code) {
    EXPECT_EQ(
        run(command + " --json --trace=" + trace + " 2>" + path("err") + " #"),
        code)
        << output;
    EXPECT_EQ(contents(trace), old);
    EXPECT_NE(contents(path("err")), "");
    const auto json = nlohmann::json::parse(output, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << output;
    EXPECT_EQ(json["ok"], false);
    EXPECT_EQ("penstock-run: " + json["error"]["message"].get<std::string>() +
                  "\n",
              contents(path("err")));
    return json["error"]["kind"].get<std::string>();
  };
  Program program = compile(2);
  EXPECT_EQ(kindOf(write(program), 2), "bad-input"); // no text
  EXPECT_EQ(kindOf(arguments(path("missing")), 2), "bad-input");
  EXPECT_EQ(kindOf(arguments(write(compile(2, true))), 2), "invalid-program");
  program.ranks[1].instructions.pop_back(); // its step
  program.problem.stages[0].bytes.parameters += 4;
  EXPECT_EQ(kindOf(arguments(write(program)) + " --force", 2), "bad-model");
  EXPECT_EQ(kindOf(arguments(write(program)) + " --force --check-gradients", 2),
            "bad-model");
  program.problem.stages[0].bytes.parameters -= 4;
  EXPECT_EQ(kindOf(arguments(write(program)) + " --force --check-gradients", 1),
            "gradients-differ");
  EXPECT_NE(output.find("\"different\""), std::string::npos);
  program.ranks[0].instructions[0].stage = 1; // not on this rank
  EXPECT_EQ(kindOf(arguments(write(program)), 1), "refused");
  EXPECT_EQ(kindOf(arguments(write(program)) + " --check-gradients", 1),
            "refused");
}

TEST_F(RunTool, TraceReplacesNoInput) {
  const std::string file = write(compile(2)), before = contents(file);
  std::filesystem::create_symlink(file, path("link"));
  for (const std::string &name : {file, path("link"), path("text")}) {
    EXPECT_EQ(run(arguments(file) + " --trace=" + name), 2);
    EXPECT_TRUE(says("the trace would overwrite '"));
  }
  EXPECT_EQ(contents(file), before);
  EXPECT_EQ(run(arguments(file) + " --trace=" + path("out") +
                " --profile=" + directory.string() + "/./out"),
            2);
  EXPECT_TRUE(says("the profile would overwrite the trace, '" + path("out") +
                   "'; name another file with --profile=FILE\n"));
  std::filesystem::create_symlink(path("loop"), path("loop"));
  EXPECT_EQ(run(arguments(file) + " --trace=" + path("loop")), 2);
  EXPECT_TRUE(says("cannot write the trace to '" + path("loop") + "': "));
  std::filesystem::remove(path("loop"));
  EXPECT_EQ(run(arguments(file) + " --trace=" + directory.string()), 2);
  EXPECT_TRUE(says("cannot write the trace to '"));
  EXPECT_EQ(run(arguments(file) + " --steps=1 --trace=/dev/null"), 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  // A pipe, and a file that is open.
  EXPECT_EQ(run(arguments(file) + " --steps=1 --trace=/dev/stdout"), 0);
  EXPECT_TRUE(says("traceEvents"));
  EXPECT_TRUE(says("\ntrained  1 steps"));
  EXPECT_EQ(
      run(arguments(file) + " --steps=1 --trace=/dev/stdout > " + path("new")),
      0);
  EXPECT_NE(contents(path("new")).find("traceEvents"), std::string::npos);
  EXPECT_NE(contents(path("new")).find("\ntrained  1 steps"),
            std::string::npos);
  // Only complete traces are left, and no temporary files.
  EXPECT_EQ(run(arguments(file) + " --steps=1 --trace=" + path("new")), 0);
  size_t count = 0;
  for (auto &entry : std::filesystem::directory_iterator(directory)) {
    (void)entry;
    ++count;
  }
  EXPECT_EQ(count, 4u); // text, program, link, new
}

TEST_F(RunTool, ProfileIsForTheNextCompile) {
  const std::string file = write(compile(2)), before = contents(file);
  ASSERT_EQ(run(arguments(file) + " --profile=" + path("measured.mlir")), 0)
      << output;
  EXPECT_TRUE(says("profile  " + path("measured.mlir") + "\n"));
  const std::string profile = contents(path("measured.mlir"));
  EXPECT_NE(profile.find("pipe.model @measured {\n  layer \"stage 0\""),
            std::string::npos)
      << profile;
  EXPECT_NE(profile.find("pipe.cluster @measured_on ranks(2)"),
            std::string::npos)
      << profile;
  EXPECT_EQ(run(arguments(file) + " --json --profile=" + path("measured.mlir")),
            0);
  EXPECT_EQ(nlohmann::json::parse(output)["profile"], path("measured.mlir"));
  EXPECT_EQ(run(arguments(file) + " --profile=" + file), 2);
  EXPECT_TRUE(says("the profile would overwrite '" + file +
                   "'; name another file with --profile=FILE"));
  EXPECT_EQ(contents(file), before);
  EXPECT_EQ(run(arguments(file) + " --profile=" + path("no/such")), 2);
  EXPECT_TRUE(says("cannot write the profile to '"));
}

TEST_F(RunTool, SignalEndsTheRunWithItsResults) {
  // As timeout(1) does, to the process and to its group.
  const std::string command =
      "--help >/dev/null; " PENSTOCK_RUN " " + arguments(write(compile(2))) +
      " --steps=1000000 --pace=0.01 --json --trace=" + path("trace.json") +
      " & sleep 0.7; kill $!; sleep 0.1; kill $!; wait $!";
  EXPECT_EQ(run(command), 1);
  const auto json = nlohmann::json::parse(
      output.substr(0, output.rfind('}') + 1), nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << output;
  EXPECT_EQ(json["error"]["kind"], "aborted");
  EXPECT_TRUE(nlohmann::json::accept(contents(path("trace.json"))));
}

TEST_F(RunTool, SecondSignalKills) {
  // After the first one the tool waits for a reader of the trace.
  EXPECT_EQ(run("--help >/dev/null; mkfifo " + path("fifo") +
                "; " PENSTOCK_RUN " " + arguments(write(compile(2))) +
                " --steps=1000000 --pace=0.01 --trace=" + path("fifo") +
                " & sleep 0.5; while kill $! 2>/dev/null; do sleep 0.7; done; "
                "wait $!"),
            128 + SIGTERM)
      << output;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(RunTool, MemoryThatDoesNotSufficeIsAnError) {
  std::ofstream(path("huge")) << "text";
  std::filesystem::resize_file(path("huge"), uint64_t(8) << 30); // sparse
  // Most of it is address space of NCCL, which does not count.
  const std::string limited = "--help >/dev/null; ulimit -v 450000; "
                              "exec " PENSTOCK_RUN " ";
  EXPECT_EQ(run(limited + write(compile(2)) + " --text=" + path("huge")), 2);
  EXPECT_TRUE(says("its 8589934592 bytes do not fit into memory; take a "
                   "shorter text"));
  // The recorder of so many instructions and steps.
  const std::string file = write(compile(2, false, {}, 3000));
  EXPECT_EQ(run(limited + arguments(file) + " --trace-steps=1000 --json"), 1);
  EXPECT_TRUE(says("\"kind\": \"out-of-memory\""));
  EXPECT_TRUE(says("penstock-run: out of memory"));
}
#endif

TEST_F(RunTool, ByteLmOnGpus) {
  const std::string gpu = "CUDA_VISIBLE_DEVICES= " PENSTOCK_RUN " ",
                    file =
                        write(compile(2)) + " --text=" + path("text") +
                        " --backend=cuda --check-gradients --model=" + kModel;
  EXPECT_EQ(shell(gpu + file + ",clip=1"), 2);
#ifdef PENSTOCK_WITH_GPU_MODEL
  EXPECT_TRUE(says("penstock-run: byte-lm cannot clip on GPUs"));
  EXPECT_EQ(shell(gpu + file), 1);
  EXPECT_TRUE(says("penstock-run: back end 'cuda': cudaGetDeviceCount: "));
#else
  EXPECT_TRUE(says("penstock-run: byte-lm is not built in for GPUs; install "
                   "CUDA with nvcc and cuBLAS, NCCL and GCC, and configure "
                   "with -DPENSTOCK_ENABLE_CUDA=ON, or use --backend=host"));
#endif
}

TEST_F(RunTool, CudaNeedsAGpu) {
  const std::string command = "CUDA_VISIBLE_DEVICES= " PENSTOCK_RUN " " +
                              write(compile(2)) +
                              " --model=none --backend=cuda --json";
  EXPECT_EQ(shell(command), 1);
#ifdef PENSTOCK_WITH_CUDA
  EXPECT_TRUE(says("penstock-run: back end 'cuda': cudaGetDeviceCount: "));
  EXPECT_TRUE(says("; use a machine with an NVIDIA GPU and its driver, or the "
                   "back end 'host'"));
#else
  EXPECT_TRUE(
      says("penstock-run: back end 'cuda' is not built in; install CUDA "
           "and NCCL and configure with -DPENSTOCK_ENABLE_CUDA=ON"));
#endif
  EXPECT_TRUE(says("\"kind\": \"device-error\""));
}

TEST_F(RunTool, GraphThatCannotBeIsSaid) {
  const std::string command = write(compile(2)) + " --model=none --graph";
  EXPECT_EQ(run(command), 0) << output;
  EXPECT_TRUE(says("graph    not used: rank 0: this device has no graphs\n"));
  EXPECT_EQ(run(command + " --json"), 0) << output;
  const auto json = nlohmann::json::parse(output);
  EXPECT_EQ(json["graph"]["replayed"], false);
  EXPECT_EQ(json["graph"]["fault"], "rank 0: this device has no graphs");
}

static size_t count(const std::string &text, const std::string &part) {
  size_t number = 0;
  for (size_t at = text.find(part); at != text.npos;
       at = text.find(part, at + 1))
    ++number;
  return number;
}

//===----------------------------------------------------------------------===//
// Processes connected by sockets
//===----------------------------------------------------------------------===//

class RunToolSockets : public RunTool {
protected:
  static std::vector<std::string> words(const std::string &text) {
    std::istringstream in(text);
    return {std::istream_iterator<std::string>(in), {}};
  }
  /// Starts a process that meets the others at a file.
  void start(int rank, int size, const std::string &arguments) {
    crew.start(words(PENSTOCK_RUN " --rendezvous=file://" + path("meet") +
                     " --rank=" + std::to_string(rank) + " --world-size=" +
                     std::to_string(size) + " " + arguments));
  }
  /// Runs all to the end, and expects each exit code to be `code`.
  void finish(int code) {
    EXPECT_TRUE(crew.waitForAll(120));
    for (size_t p = 0; p < crew.size(); ++p)
      EXPECT_EQ(crew[p].code, code) << "process " << p << ":\n"
                                    << crew[p].output;
  }
  /// Expects every process but one to say this, once, as its fault.
  void expectFault(const std::string &message, int butProcess = -1) {
    for (int p = 0; p < int(crew.size()); ++p) {
      if (p == butProcess)
        continue;
      output = crew[p].output;
      EXPECT_TRUE(says("penstock-run: " + message));
      EXPECT_EQ(count(output, "penstock-run: "), 1u) << output;
    }
  }

  Crew crew;
};

// The command of docs/runtime.md, "Over sockets".
TEST_F(RunToolSockets, TrainAsThreadsDo) {
  const std::string file = write(compile(4));
  const std::string command =
      arguments(file) +
      " --steps=20 --check-gradients --json --trace=" + path("trace.json");
  ASSERT_EQ(run(command), 0) << output;
  const auto host = nlohmann::json::parse(output);
  for (int p : {2, 0, 3, 1})
    start(p, 4, command);
  finish(0);
  const auto json = nlohmann::json::parse(crew[1].output, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << crew[1].output;
  EXPECT_EQ(json["loss"], host["loss"]);
  EXPECT_EQ(json["gradients"], host["gradients"]);
  EXPECT_EQ(json["steps"], 20);
  EXPECT_NE(json["start"].get<std::string>().find(
                "process 0 of 4, as the options (--rank, --world-size) say; "
                "they met at 127.0.0.1:"),
            std::string::npos);
  for (size_t other : {0, 2, 3})
    EXPECT_EQ(crew[other].output, "");
  const std::string trace = contents(path("trace.json"));
  EXPECT_TRUE(nlohmann::json::accept(trace));
  EXPECT_GT(count(trace, "\"ph\": \"s\""), 0u);
  EXPECT_EQ(count(trace, "\"ph\": \"s\""), count(trace, "\"ph\": \"f\""));
}

TEST_F(RunToolSockets, TorchrunsVariablesSuffice) {
  const std::string file = write(compile(2));
  int port = 0;
  {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    ASSERT_EQ(bind(fd, (sockaddr *)&address, length), 0);
    getsockname(fd, (sockaddr *)&address, &length);
    port = ntohs(address.sin_port);
    close(fd);
  }
  for (int p : {0, 1})
    crew.start(
        words(PENSTOCK_RUN " --rendezvous=env --steps=2 --model=none " + file),
        {{"RANK", std::to_string(p)},
         {"WORLD_SIZE", "2"},
         {"MASTER_ADDR", "127.0.0.1"},
         {"MASTER_PORT", std::to_string(port)}});
  finish(0);
  output = crew[0].output;
  EXPECT_TRUE(says("start    process 0 of 2, as torchrun's variables (RANK, "
                   "WORLD_SIZE) say; they met at 127.0.0.1:" +
                   std::to_string(port) + " (MASTER_ADDR and MASTER_PORT)\n"));
  EXPECT_TRUE(says("step 2/2"));
  EXPECT_EQ(crew[1].output, "");
}

TEST_F(RunToolSockets, CommandLinesThatCannotBe) {
  const std::string file = write(compile(2)) + " --model=none ";
  auto fails = [&](const std::string &arguments, const std::string &message) {
    EXPECT_EQ(
        shell("unset WORLD_SIZE; RANK=1 " PENSTOCK_RUN " " + file + arguments),
        2);
    EXPECT_TRUE(says("penstock-run: " + message));
  };
  fails("--rendezvous=env --rank=0 --world-size=2", "MASTER_ADDR is not set, ");
  fails("--rendezvous=env --rank=0",
        "contradiction: --rank says that this process's rank is 0, but RANK "
        "says 1; unset the wrong one, ");
  fails("--rendezvous=tcp://here --world-size=2",
        "--rendezvous=tcp://here: 'here' is not HOST:PORT ");
  fails("--rank=0", "--rank and --world-size are for ranks in several "
                    "processes; say where they meet with --rendezvous\n");
  fails("--backend=mpi --rendezvous=env",
        "the processes of --backend=mpi meet through MPI, not by "
        "--rendezvous=env; take --backend=host for sockets\n");
  fails("--rendezvous=tcp://127.0.0.1:1 --world-size=2 "
        "--rendezvous-timeout=0.2",
        "process 0 of 2 was not found within 0.2 s; process 0 does not answer "
        "at 127.0.0.1:1 (tcp://127.0.0.1:1): Connection refused\n");
  fails("--rendezvous=file://" + path("meet") +
            " --rank=0 --world-size=3 --rendezvous-timeout=0.2 --json",
        "processes 1, 2 of 3 have not come to 127.0.0.1:");
  EXPECT_TRUE(says("\"kind\": \"bad-input\""));
  EXPECT_EQ(run(file + "--rendezvous-timeout=x"), 2);
}

TEST_F(RunToolSockets, ProcessesMustHaveTheSame) {
  const std::string file = write(compile(2));
  std::filesystem::copy_file(file, path("first"));
  write(compile(2, false, {}, 3));
  {
    start(0, 2, arguments(path("first")));
    start(1, 2, arguments(file));
    finish(1);
    expectFault("rank 1 has program ");
  }
  const std::pair<std::string, std::string> differing[] = {
      {"--steps=4", "--steps=3"},
      {"--trace-steps=4", "--trace-steps=3"},
      {"--graph=false", "--graph"},
      {"--backend=host", "--backend=cuda"}};
  for (const auto &[second, first] : differing) {
    const size_t begin = crew.size();
    const std::string none = file + " --model=none ";
    start(0, 2, none + first);
    start(1, 2, none + (first == "--graph" ? "" : second));
    EXPECT_TRUE(crew.waitForAll(120));
    for (size_t p : {begin, begin + 1}) {
      EXPECT_EQ(crew[p].code, 2);
      output = crew[p].output;
      EXPECT_TRUE(says("penstock-run: process 1 has " + second +
                       ", but process 0 has " + first +
                       (first == "--graph" ? "=true" : "") +
                       "; start all processes with the same options\n"))
          << output;
    }
  }
}

// Its sockets must not get the numbers of streams that are closed.
TEST_F(RunToolSockets, ClosedStreamsAreNoSockets) {
  const std::string command = PENSTOCK_RUN " " + write(compile(2)) +
                              " --model=none --steps=2 --world-size=2 "
                              "--rendezvous=file://" +
                              path("meet") + " --rank=";
  crew.start({"/bin/sh", "-c", command + "0 <&- >&-"});
  crew.start(words(command + "1"));
  EXPECT_TRUE(crew.waitForAll(120));
  output = crew[0].output;
  EXPECT_EQ(output,
            "penstock-run: cannot write the output; is the disk full?\n");
  EXPECT_EQ(crew[0].code, 1);
  EXPECT_EQ(crew[1].code, 0) << crew[1].output;
}

TEST_F(RunToolSockets, AsManyAsRanks) {
  for (int p : {0, 1, 2})
    start(p, 3, arguments(write(compile(2))));
  finish(2);
  expectFault("the program has 2 ranks, but the launcher has started 3 "
              "processes; start it with --world-size=2\n");
}

TEST_F(RunToolSockets, FaultOfOneProcessNamesIt) {
  const std::string file = write(compile(2));
  start(0, 2, arguments(file));
  start(1, 2, arguments(path("missing")));
  finish(2);
  expectFault("process 1: " + path("missing"));
}

TEST_F(RunToolSockets, FrozenBeforeTheRunIsNamedAndSlowIsNot) {
  const std::string file = write(compile(3));
  // Process 2 waits for its program.
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  auto begin = [&](int p, const std::string &program) {
    start(p, 3, program + " --model=none --rendezvous-timeout=2");
  };
  const auto isThere = [&] { return std::filesystem::exists(path("meet")); };
  begin(0, file);
  ASSERT_TRUE(crew.waitUntil(isThere, 60));
  begin(1, file);
  begin(2, path("fifo"));
  ASSERT_TRUE(crew.waitUntil([&] { return !isThere(); }, 60)); // all have met
  crew.waitUntil([] { return false; }, 4);
  for (int p = 0; p < 3; ++p)
    EXPECT_LT(crew[p].code, 0) << crew[p].output;
  crew.signal(2, SIGSTOP);
  EXPECT_TRUE(crew.waitUntil(
      [&] { return crew[0].code >= 0 && crew[1].code >= 0; }, 30));
  crew.signal(2, SIGKILL);
  EXPECT_TRUE(crew.waitForAll(60));
  for (int p : {0, 1})
    EXPECT_EQ(crew[p].code, 1);
  expectFault("rank 2 gives no sign of life while the others wait for it, for "
              "2 s; its process is frozen or lost\n",
              2);
}

TEST_F(RunToolSockets, FrozenProcess0IsNamed) {
  const std::string file = write(compile(2)) + " --model=none ";
  start(0, 2, file);
  ASSERT_TRUE(crew.waitUntil(
      [&] { return std::filesystem::exists(path("meet")); }, 60));
  crew.signal(0, SIGSTOP);
  start(1, 2, file + "--rendezvous-timeout=1");
  EXPECT_TRUE(crew.waitUntil([&] { return crew[1].code >= 0; }, 60));
  crew.signal(0, SIGKILL);
  EXPECT_TRUE(crew.waitForAll(60));
  EXPECT_EQ(crew[1].code, 2);
  expectFault("process 0 of 2 was not found within 1 s; what listens at ", 0);
}

TEST_F(RunToolSockets, KilledPeerIsNamedWithTheLastThatItHasDone) {
  const std::string file = write(compile(4));
  for (int p = 0; p < 4; ++p)
    start(p, 4,
          file +
              " --model=none --steps=1000000 --pace=0.002 --timeout=2 "
              "--trace=" +
              path("trace.json"));
  ASSERT_TRUE(crew.waitUntil(
      [&] { return crew[0].output.find("program") != std::string::npos; }, 60));
  crew.waitUntil([] { return false; }, 1); // some signs of life
  crew.signal(2, SIGKILL);
  EXPECT_TRUE(crew.waitForAll(60));
  // Who is left is in the trace.
  const auto trace = nlohmann::json::parse(contents(path("trace.json")));
  std::set<int> ranks;
  for (const auto &event : trace["traceEvents"])
    if (event["pid"] < 4 && event["ph"] != "M")
      ranks.insert(event["pid"].get<int>());
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 3}));
  expectFault("rank 2 is lost: its process was killed, has crashed or cannot "
              "be reached any more; the last that it is known to have ended is "
              "`",
              2);
  for (int p : {0, 1, 3})
    EXPECT_EQ(crew[p].code, 1);
}

TEST_F(RunToolSockets, FrozenPeerIsNamedWithAllWaits) {
  const std::string file = write(compile(4));
  // On a busy machine somebody may answer too late: then once more.
  std::string missing;
  for (int attempt = 0; attempt < 4; ++attempt) {
    Crew frozen;
    std::swap(crew, frozen);
    missing.clear();
    for (int p = 0; p < 4; ++p)
      start(p, 4,
            file + " --model=none --steps=1000000 --pace=0.001 --timeout=1");
    ASSERT_TRUE(crew.waitUntil(
        [&] { return crew[0].output.find("program") != std::string::npos; },
        60));
    crew.waitUntil([] { return false; }, 0.5);
    crew.signal(3, SIGSTOP);
    EXPECT_TRUE(crew.waitUntil(
        [&] {
          return crew[0].code >= 0 && crew[1].code >= 0 && crew[2].code >= 0;
        },
        60));
    crew.signal(3, SIGKILL);
    EXPECT_TRUE(crew.waitForAll(60));
    expectFault("rank 3 gives no sign of life; its process is frozen or lost\n"
                "no progress for 1 s in step ",
                3);
    // Whoever looks first asks the others where they are.
    for (int p : {0, 1, 2})
      for (const char *part : {"\n  rank 0, queue ", "\n  rank 1, queue ",
                               "\n  rank 2, queue ", " for rank 3's `"})
        if (crew[p].output.find(part) == std::string::npos)
          missing += part + (" in:\n" + crew[p].output);
    if (missing.empty())
      return;
  }
  FAIL() << missing;
}

TEST_F(RunToolSockets, HangIsExplainedWithTheCycle) {
  // Rank 0 receives before it sends what that waits for.
  Program program = compile(3, false, {.transferQueue = 0});
  auto &insts = program.ranks[0].instructions;
  auto find = [&](Op op, int32_t mb) {
    return std::find_if(insts.begin(), insts.end(), [&](const auto &inst) {
      return inst.op == op && inst.microbatch == mb;
    });
  };
  std::iter_swap(find(Op::Send, 0), find(Op::Recv, 0));
  const std::string file = write(program);
  for (int p = 0; p < 3; ++p)
    start(p, 3,
          file + " --model=none --force --timeout=0.5 --trace=" +
              path("trace.json"));
  finish(1);
  // The trace has all ranks, whoever has noticed.
  const auto trace = nlohmann::json::parse(contents(path("trace.json")));
  std::set<int> open;
  for (const auto &event : trace["traceEvents"])
    if (event["ph"] == "B")
      open.insert(event["pid"].get<int>());
  EXPECT_EQ(open, (std::set<int>{0, 1, 2}));
  expectFault("no progress for 0.5 s in step 0:\n");
  for (int p = 0; p < 3; ++p) {
    output = crew[p].output;
    for (const char *rank : {"0", "1", "2"})
      EXPECT_TRUE(says(std::string("  rank ") + rank + ", queue 0: "));
    EXPECT_TRUE(says("deadlock: under documented semantics rank "));
  }
}

TEST_F(RunToolSockets, WhoWaitsForOthersCanBeStopped) {
  const std::string file = write(compile(2));
  const auto isThere = [&] { return std::filesystem::exists(path("meet")); };
  for (int number : {SIGTERM, SIGINT}) {
    start(0, 2, file + " --model=none");
    EXPECT_TRUE(crew.waitUntil(isThere, 20));
    crew.signal(crew.size() - 1, number);
    EXPECT_TRUE(crew.waitForAll(20));
    EXPECT_FALSE(isThere());
  }
  start(1, 2, file + " --model=none");
  crew.waitUntil([] { return false; }, 0.3);
  crew.signal(crew.size() - 1, SIGTERM);
  finish(1);
  expectFault("the run was stopped by its caller\n");
}

TEST_F(RunToolSockets, StopOfOneProcessStopsAll) {
  const std::string file = write(compile(2));
  for (int p : {0, 1})
    start(p, 2, file + " --model=none --steps=1000000 --pace=0.001");
  ASSERT_TRUE(crew.waitUntil(
      [&] { return crew[0].output.find("step") != std::string::npos; }, 60));
  crew.signal(1, SIGTERM);
  finish(1);
  expectFault("the run was stopped by its caller\n");
}

#ifndef PENSTOCK_MPIRUN
TEST_F(RunTool, MpiIsNotBuiltIn) {
  EXPECT_EQ(run(write(compile(2)) + " --model=none --backend=mpi"), 2);
  EXPECT_TRUE(says("back end 'mpi' is not built in; install libopenmpi-dev and "
                   "configure with -DPENSTOCK_ENABLE_MPI=ON"));
}
#else
/// A command line of mpirun.
static std::string onProcesses(int count, const std::string &command) {
  return PENSTOCK_MPIRUN " -n " + std::to_string(count) + " " + command;
}

// The command of docs/runtime.md, "Over MPI".
TEST_F(RunTool, MpiTrainsAsThreadsDo) {
  const std::string file = write(compile(4));
  const std::string command =
      arguments(file) +
      " --steps=20 --check-gradients --json --trace=" + path("trace.json");
  ASSERT_EQ(run(command), 0) << output;
  const auto host = nlohmann::json::parse(output);
  // Open MPI may have more to say.
  ASSERT_EQ(shell(onProcesses(4, PENSTOCK_RUN " --backend=mpi " + command +
                                     " 2>" + path("err") + " #")),
            0)
      << output << contents(path("err"));
  const auto mpi = nlohmann::json::parse(output, nullptr, false);
  ASSERT_FALSE(mpi.is_discarded()) << output;
  EXPECT_EQ(mpi["loss"], host["loss"]);
  EXPECT_EQ(mpi["gradients"], host["gradients"]);
  EXPECT_EQ(mpi["steps"], 20);
  EXPECT_GT(mpi["bubble_rate"]["measured"], 0);
  // The trace has the transfers of all ranks: an arrow has two ends.
  const std::string trace = contents(path("trace.json"));
  EXPECT_TRUE(nlohmann::json::accept(trace));
  EXPECT_GT(count(trace, "\"ph\": \"s\""), 0u);
  EXPECT_EQ(count(trace, "\"ph\": \"s\""), count(trace, "\"ph\": \"f\""));
}

TEST_F(RunTool, MpiFaultsAreToldOnce) {
  const std::string file = write(compile(4));
  auto fails = [&](int processes, const std::string &arguments, int code,
                   const std::string &message) {
    EXPECT_EQ(shell(onProcesses(processes,
                                PENSTOCK_RUN " --backend=mpi " + arguments)),
              code);
    EXPECT_TRUE(says(message));
    EXPECT_EQ(count(output, "penstock-run: "), 1u) << output;
  };
  fails(3, arguments(file), 2,
        "penstock-run: the program has 4 ranks, but mpirun has started 3 "
        "processes; start it with mpirun -n 4\n");
  fails(1, arguments(file), 2,
        "but mpirun has started 1 process; start it with mpirun -n 4\n");
  fails(4, arguments(path("missing")), 2,
        "penstock-run: " + path("missing") + ": ");
  Program program = compile(2);
  program.ranks[1].instructions.pop_back(); // its step
  fails(2, arguments(write(program)), 1, "the verifier refuses the program");
  fails(2, arguments(write(program)) + " --force --check-gradients", 1,
        "gradients and parameters differ");
}

TEST_F(RunTool, MpiFaultOfOneProcessNamesIt) {
  const std::string file = write(compile(2)), link = path("link");
  // Process 1 has no program.
  EXPECT_EQ(
      shell(onProcesses(1, PENSTOCK_RUN " --backend=mpi " + arguments(file)) +
            " : -n 1 " PENSTOCK_RUN " --backend=mpi " +
            arguments(path("missing"))),
      2);
  EXPECT_TRUE(says("penstock-run: process 1: " + path("missing")));
  // Or another one.
  std::filesystem::copy_file(file, path("first"));
  write(compile(2, false, {}, 3));
  EXPECT_EQ(shell(onProcesses(1, PENSTOCK_RUN " --backend=mpi " +
                                     arguments(path("first"))) +
                  " : -n 1 " PENSTOCK_RUN " --backend=mpi " + arguments(file)),
            1);
  EXPECT_TRUE(says("penstock-run: rank 1 has program "));
  EXPECT_TRUE(says("; give the same file to all ranks\n"));
}

TEST_F(RunTool, MpiProcessesMustHaveTheSameOptions) {
  const std::string tool = PENSTOCK_RUN " --backend=mpi ";
  const std::string file = write(compile(2));
  auto fails = [&](const std::string &second, const std::string &message) {
    EXPECT_EQ(shell(onProcesses(1, tool + arguments(file) + " --steps=3 : ") +
                    "-n 1 " + tool + file + " " + second),
              2);
    EXPECT_TRUE(says("penstock-run: process 1" + message));
    EXPECT_EQ(count(output, "penstock-run: "), 1u) << output;
  };
  const std::string text = "--text=" + path("text"),
                    model = "--model=" + kModel;
  const std::string end = "; start all processes with the same options\n";
  fails(text + " --model=byte-lm:width=x",
        ": model byte-lm: 'width=x' is not an integer from 1 to 8192\n");
  fails(text + " " + model + " --steps=3 --seed=3",
        " has --model=" + kModel +
            ",seed=3, but process 0 has "
            "--model=" +
            kModel + end);
  fails(text + " " + model + " --steps=4",
        " has --steps=4, but process 0 has --steps=3" + end);
  std::ofstream(path("other")) << contents(path("text")) << "!";
  fails(model + " --steps=3 --text=" + path("other"), " has --text with hash ");
}

TEST_F(RunToolSockets, MpiFrozenBeforeTheRunIsNamedAndSlowIsNot) {
  // Process 2 waits for its program.
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  const std::string tool = PENSTOCK_RUN " --backend=mpi --model=none "
                                        "--rendezvous-timeout=2 ";
  crew.start(
      {"/bin/sh", "-c",
       "exec " + onProcesses(1, tool + write(compile(2)) +
                                    " : -n 1 sh -c 'echo $$ >" + path("pid") +
                                    "; exec " + tool + path("fifo") + "'")});
  // MPI has started when somebody reads there.
  int fd = -1;
  ASSERT_TRUE(crew.waitUntil(
      [&] {
        fd = open(path("fifo").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        return fd >= 0;
      },
      60));
  crew.waitUntil([] { return false; }, 4);
  EXPECT_LT(crew[0].code, 0) << crew[0].output;
  kill(std::stoi(contents(path("pid"))), SIGSTOP);
  EXPECT_TRUE(crew.waitForAll(60));
  close(fd);
  EXPECT_EQ(crew[0].code, 1);
  output = crew[0].output;
  EXPECT_TRUE(says("penstock-run: rank 1 gives no sign of life while the "
                   "others wait for it, for 2 s; its process is frozen or "
                   "lost\n"));
}

TEST_F(RunTool, MpiHangEndsWithATimeout) {
  Program program = compile(2);
  auto &list = program.ranks[1].instructions;
  const auto send =
      std::find_if(list.begin(), list.end(),
                   [](const Instruction &i) { return i.op == Op::Send; });
  ASSERT_NE(send, list.end());
  send->comm = 1; // its receive is not there
  const std::string file = write(program);
  EXPECT_EQ(shell(onProcesses(
                2, PENSTOCK_RUN " --backend=mpi --model=none --force --json "
                                "--timeout=0.5 " +
                       file + " 2>" + path("err") + " #")),
            1);
  const auto json = nlohmann::json::parse(output, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << output;
  EXPECT_EQ(json["error"]["kind"], "timeout");
  const std::string message = json["error"]["message"];
  EXPECT_NE(message.find("no progress for 0.5 s in step 0:"), message.npos);
  EXPECT_NE(message.find(", queue 1: waits in `"), message.npos) << message;
  EXPECT_NE(message.find("deadlock: under documented semantics rank 1 waits in "
                         "`send gradient 1 mb 0 to 0` for ever"),
            message.npos)
      << message;
}

/// Two processes that train until they get a signal.
class RunToolSignal : public RunTool {
protected:
  /// Sends the signal to process `to`, or to mpirun if that is -1. Returns the
  /// exit code of mpirun; expects that it leaves nobody behind.
  int signal(const std::string &name, int to,
             const std::string &arguments = "") {
    const std::string tool = "sh -c 'echo $$ >" + path("") +
                             "pid.$OMPI_COMM_WORLD_RANK; exec " PENSTOCK_RUN
                             " --backend=mpi --model=none --pace=0.01 "
                             "--steps=1000000 " +
                             arguments + " " + write(compile(2)) + "'";
    const std::string pids[] = {path("pid.0"), path("pid.1")};
    const std::string target = to < 0 ? "$job" : "$(cat " + pids[to] + ")";
    const int code = shell("( " + onProcesses(2, tool) +
                           " & job=$!; for i in $(seq 300); do [ -s " +
                           pids[0] + " ] && [ -s " + pids[1] +
                           " ] && break; sleep 0.1; done; sleep 1; kill -" +
                           name + " " + target + "; wait $job )");
    for (const std::string &file : pids) {
      const pid_t process = std::stoi(contents(file));
      for (int i = 0; i < 300 && kill(process, 0) == 0; ++i)
        usleep(100'000);
      EXPECT_NE(kill(process, 0), 0) << file;
    }
    return code;
  }
};

TEST_F(RunToolSignal, KilledPeerEndsTheJob) {
  for (int process : {0, 1}) {
    EXPECT_NE(signal("KILL", process), 0);
    EXPECT_TRUE(says("signal 9"));
  }
}

TEST_F(RunToolSignal, InterruptEndsTheJob) {
  EXPECT_NE(signal("INT", -1), 0);
  EXPECT_NE(signal("TERM", -1), 0);
  // One process that is told to stop takes the others with it.
  EXPECT_EQ(signal("TERM", 1), 1);
  EXPECT_TRUE(says("penstock-run: the run was stopped by its caller\n"));
  EXPECT_EQ(count(output, "penstock-run: "), 1u) << output;
}

TEST_F(RunToolSignal, FrozenPeerIsNamed) {
  for (int process : {0, 1}) {
    EXPECT_EQ(signal("STOP", process, "--timeout=0.5"), 1);
    EXPECT_TRUE(says("penstock-run: rank " + std::to_string(process) +
                     " gives no sign of life; its process is frozen or "
                     "lost\nno progress for 0.5 s in step "));
    EXPECT_EQ(count(output, "penstock-run: "), 1u) << output;
  }
}
#endif

TEST_F(RunTool, HelpNamesOptionsDefaultsAndModels) {
  for (const char *option : {"--help", "-h", "--steps=3 --help --nonsense"}) {
    EXPECT_EQ(run(option), 0);
    EXPECT_TRUE(says("Usage: penstock-run [OPTIONS] [FILE.psp]\n"));
    EXPECT_TRUE(says("\n  --steps=N                   Steps to train ["));
    EXPECT_TRUE(says("\n  --check-gradients           Compare the gradients"));
    EXPECT_TRUE(says("\nModels:\nbyte-lm"));
    EXPECT_TRUE(says("Exit codes"));
  }
  EXPECT_EQ(run("--help"), 0);
  EXPECT_TRUE(says("Steps to train [100]\n"));
  EXPECT_TRUE(says("[byte-lm]\n"));
}

} // namespace
