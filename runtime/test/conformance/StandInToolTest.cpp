//===- StandInToolTest.cpp - penstock-run on GPUs that are none -----------===//
//
// penstock-run as it is, on the stand-in, in several processes: how they share
// devices, and what all of them say when one cannot take part. What happens
// when one is killed or stopped is for FaultRun.
//
//===----------------------------------------------------------------------===//

#include "../Crew.h"
#include "../TestPrograms.h"

#include "penstock/Program/File.h"

#include <gtest/gtest.h>

#include <filesystem>

using namespace penstock;
using namespace penstock::runtime;
using namespace penstock::runtime::test;

namespace {

class StandInTool : public testing::Test {
protected:
  StandInTool() {
    std::filesystem::create_directories(folder);
    EXPECT_TRUE(writeProgramFile(makeGPipe(2, 3), program));
  }
  ~StandInTool() override { std::filesystem::remove_all(folder); }

  using Variables = std::map<std::string, std::string>;
  /// Starts so many processes, each with these variables, and waits for all.
  void run(int number, const std::function<Variables(int)> &variables,
           const std::string &devices = "devices=1",
           const std::vector<std::string> &arguments = {}) {
    for (int p = 0; p < number; ++p) {
      std::vector<std::string> command = {
          PENSTOCK_RUN,   program,
          "--model=none", "--steps=3",
          "--rank",       std::to_string(p),
          "--backend",    "cuda",
          "--world-size", std::to_string(number),
          "--rendezvous", "file://" + (folder / "meet").string()};
      command.insert(command.end(), arguments.begin(), arguments.end());
      Variables all = variables(p);
      all["PENSTOCK_STANDIN"] = devices + ",processes";
      crew.start(command, all);
    }
    ASSERT_TRUE(crew.waitForAll(60));
  }
  void expectAll(int code, const std::string &text) {
    for (size_t p = 0; p < crew.size(); ++p) {
      EXPECT_EQ(crew[p].code, code) << p << ": " << crew[p].output;
      EXPECT_NE(crew[p].output.find(text), std::string::npos)
          << p << ": " << crew[p].output;
    }
  }
  static Variables ownHost(int process) {
    return {{"NCCL_HOSTID", "host" + std::to_string(process)}};
  }

  const std::filesystem::path folder =
      testing::TempDir() + "penstock-standin-" + std::to_string(getpid());
  const std::string program = folder / "gpipe.psp";
  Crew crew;
};

TEST_F(StandInTool, ProcessesHaveADeviceEach) {
  run(
      2, [](int) { return Variables(); }, "devices=2");
  expectAll(0, "");
  EXPECT_NE(crew[0].output.find("trained  3 steps"), std::string::npos);
  EXPECT_EQ(crew[1].output, "");
}

TEST_F(StandInTool, EachSeesOneOfThem) {
  run(2,
      [](int process) {
        return Variables{{"CUDA_VISIBLE_DEVICES", std::to_string(process + 2)}};
      },
      "devices=4", {"--graph", "--nccl-memory", "--pace=0.0001"});
  expectAll(0, "");
  EXPECT_NE(crew[0].output.find("graph    steps were captured and replayed"),
            std::string::npos)
      << crew[0].output;
}

TEST_F(StandInTool, OneDeviceNeedsHostIds) {
  run(2, [](int) { return Variables(); });
  expectAll(1, "perhaps two ranks are on one GPU, which NCCL refuses: ranks of "
               "one process need a GPU each, and so do processes, unless each "
               "has a host of its own in NCCL_HOSTID");
}

TEST_F(StandInTool, OneDeviceServesSeveralHosts) {
  run(2, ownHost);
  expectAll(0, "");
}

TEST_F(StandInTool, ProcessWithoutADeviceEndsAll) {
  run(2, [](int process) {
    return process == 0 ? Variables() : Variables{{"CUDA_VISIBLE_DEVICES", ""}};
  });
  expectAll(1, "process 1: back end 'cuda': cudaGetDeviceCount: ");
}

TEST_F(StandInTool, ProcessesMustBeAsManyAsRanks) {
  run(3, ownHost);
  expectAll(2, "the program has 2 ranks, but the launcher has started 3 "
               "processes; start it with --world-size=2");
}

#ifdef PENSTOCK_MPIRUN
TEST_F(StandInTool, ProcessesMeetThroughMpi) {
  crew.start({"/bin/sh", "-c",
              PENSTOCK_MPIRUN " -n 2 " PENSTOCK_RUN " " + program +
                  " --model=none --steps=3 --backend=cuda --rendezvous=mpi"},
             {{"PENSTOCK_STANDIN", "devices=2,processes"}});
  ASSERT_TRUE(crew.waitForAll(60));
  expectAll(0, "trained  3 steps");
}
#endif

} // namespace
