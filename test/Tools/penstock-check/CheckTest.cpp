//===- CheckTest.cpp - penstock-check, run as a program -------------------===//

#include "penstock/Analysis/Certify.h"
#include "penstock/Analysis/Report.h"
#include "penstock/Lowering/Lowering.h"
#include "penstock/Program/File.h"
#include "penstock/Program/Text.h"
#include "penstock/Schedule/Schedule.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

namespace fs = std::filesystem;
using namespace penstock;
using Json = nlohmann::json;

namespace {

/// A 1F1B program, planned.
Program oneForwardOneBackwardProgram(int32_t numRanks = 4,
                                     int32_t numMicrobatches = 8) {
  Problem problem;
  problem.name = "train";
  problem.numRanks = numRanks;
  problem.numMicrobatches = numMicrobatches;
  problem.stages.resize(numRanks);
  for (int32_t s = 0; s < numRanks; ++s) {
    problem.stages[s].firstLayer = s;
    problem.stages[s].bytes = {64, 256, 8, 8, 16};
  }
  problem.placement = placeLoop(numRanks, numRanks);
  Result<Program> program = oneForwardOneBackward(problem);
  EXPECT_TRUE(program);
  EXPECT_TRUE(insertTransfers(*program));
  EXPECT_TRUE(planBuffers(*program));
  return *program;
}

/// Rank 0 runs `forward 0 mb 0` and sends it, rank 1 receives it after a
/// gradient that it never gets in time: both wait for the other's second step.
Program crossed() {
  Program program = oneForwardOneBackwardProgram(2, 1);
  for (RankProgram &rank : program.ranks) {
    rank.waits.clear();
    for (Instruction &inst : rank.instructions) {
      inst.firstWait = inst.numWaits = 0;
      inst.queue = 0;
    }
  }
  // forward, send, recv, backward  ->  forward, recv, send, backward
  auto &list = program.ranks[0].instructions;
  auto send = std::find_if(list.begin(), list.end(), [](const Instruction &i) {
    return i.op == Op::Send;
  });
  std::iter_swap(send, send + 1);
  return program;
}

class CheckTest : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "pspXXXXXX").string();
    directory = mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(directory); }

  std::string path(const std::string &name) {
    return (directory / name).string();
  }
  std::string write(const Program &program) {
    Status status = writeProgramFile(program, path("a.psp"));
    EXPECT_TRUE(status) << status.message();
    return path("a.psp");
  }
  std::string contents(const std::string &path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// Runs penstock-check; sets out and err and returns the exit status.
  int check(const std::string &arguments) {
    const int status =
        std::system((std::string(PENSTOCK_CHECK) + ' ' + arguments + " >" +
                     path("out") + " 2>" + path("err"))
                        .c_str());
    out = contents(path("out"));
    err = contents(path("err"));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  fs::path directory;
  std::string out, err;
};

constexpr const char *kAssumptions =
    R"(The verdict assumes:
  A1  all channels are connected before the first transfer
  A2  kernels are loaded before the first transfer, or loading is eager
  A3  the host never blocks: what is in flight stays below the launch queue
  A4  no other work of the device waits on these queues
  A5  every group fits into one plan of the transport
  A6  no rank, link or device fails
)";

TEST_F(CheckTest, Accepted) {
  const Program program = oneForwardOneBackwardProgram();
  const std::string file = write(program);
  EXPECT_EQ(check(file), 0);
  EXPECT_EQ(out,
            file + ": accepted: @train, 4 ranks, 4 stages, 8 micro-batches, " +
                std::to_string(program.numInstructions()) +
                " instructions, hash " + hashProgram(program).str() + '\n' +
                "Certificate: none\n" + kAssumptions);
  EXPECT_EQ(err, "");
}

TEST_F(CheckTest, OptionsOfOtherFiles) {
  const std::string file = write(oneForwardOneBackwardProgram());
  EXPECT_EQ(check(file + " --placement=v"), 2);
  EXPECT_EQ(err, file + ": --placement is for schedules of torch (.csv) only; "
                        "leave it out\n");
  EXPECT_EQ(check(file + " --fifo=rank"), 2);
  EXPECT_EQ(err, file + ": --fifo is for schedules of torch (.csv) only; leave "
                        "it out\n");
  const std::string cases = path("a.json");
  std::ofstream(cases) << "[]";
  EXPECT_EQ(check(cases + " --fifo=edge --json"), 2);
  EXPECT_EQ(Json::parse(out)["error"],
            cases + ": --fifo is for schedules of torch (.csv) only; leave it "
                    "out");
}

TEST_F(CheckTest, AcceptedJson) {
  const Program program = oneForwardOneBackwardProgram();
  EXPECT_EQ(check("--json " + write(program)), 0);
  const Json expected = {
      {"accepted", true},
      {"deadlock", false},
      {"rule", nullptr},
      {"cycle", Json::array()},
      {"min_capacity", 0},
      {"closure", "ok"},
      {"documented", "ok"},
      {"serialised", "ok"},
      {"buffers", Json::array()},
      {"certificate", nullptr},
      {"findings", Json::array()},
      {"warnings", Json::array()},
      {"assumptions", assumptions()},
      {"name", "train"},
      {"ranks", 4},
      {"stages", 4},
      {"microbatches", 8},
      {"instructions", program.numInstructions()},
      {"hash", hashProgram(program).str()},
  };
  EXPECT_EQ(Json::parse(out), expected);
  EXPECT_EQ(err, "");
}

TEST_F(CheckTest, Certificates) {
  Program program = oneForwardOneBackwardProgram();
  ASSERT_TRUE(certify(program));
  EXPECT_EQ(check(write(program)), 0);
  EXPECT_NE(out.find("\nCertificate: valid\n"), std::string::npos) << out;
  EXPECT_EQ(check("--json " + write(program)), 0);
  EXPECT_EQ(Json::parse(out)["certificate"], "valid");

  // One that does not hold: the file is not readable.
  program.ranks[1].times[2] = 0;
  const std::vector<uint8_t> bytes = serialize(program);
  std::ofstream(path("b.psp"), std::ios::binary)
      .write(reinterpret_cast<const char *>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  EXPECT_EQ(check(path("b.psp")), 2);
  EXPECT_EQ(out, "");
  EXPECT_NE(err.find(path("b.psp") + ": rank 1, instruction 2 ("),
            std::string::npos)
      << err;
  EXPECT_NE(err.find("): the certificate does not hold: "), std::string::npos)
      << err;
}

TEST_F(CheckTest, Deadlock) {
  const Program program = crossed();
  const Verdict verdict = verify(program);
  ASSERT_FALSE(verdict.accepted());
  const std::string file = write(program);
  EXPECT_EQ(check(file), 1);
  std::string expected = file +
                         ": refused: @train, 2 ranks, 2 stages, 1 micro-batch, "
                         "8 instructions, hash " +
                         hashProgram(program).str() + '\n';
  for (const Finding &finding : verdict.findings)
    expected += file + ": " + render(program, finding);
  expected += "Under the documented semantics of groups it deadlocks too; no "
              "buffering of sends would help.\n";
  EXPECT_EQ(out, expected + "Certificate: none\n" + kAssumptions);
}

TEST_F(CheckTest, DeadlockJson) {
  const Program program = crossed();
  const Verdict verdict = verify(program);
  EXPECT_EQ(check(write(program) + " --json"), 1);
  const Json json = Json::parse(out);
  EXPECT_EQ(json["accepted"], false);
  EXPECT_EQ(json["deadlock"], true);
  EXPECT_EQ(json["closure"], "deadlock");
  EXPECT_EQ(json["documented"], "deadlock");
  EXPECT_EQ(json["serialised"], "deadlock");
  EXPECT_EQ(json["min_capacity"], nullptr);
  EXPECT_EQ(json["rule"], name(verdict.findings.front().rule));
  ASSERT_FALSE(verdict.cycle.empty());
  ASSERT_EQ(json["cycle"].size(), verdict.cycle.size());
  for (size_t i = 0; i < verdict.cycle.size(); ++i) {
    const Site site = verdict.cycle[i];
    const Instruction &inst =
        program.ranks[site.rank].instructions[site.instruction];
    EXPECT_EQ(json["cycle"][i], (Json{{"rank", site.rank},
                                      {"instruction", site.instruction},
                                      {"what", describe(inst)}}));
  }
  ASSERT_EQ(json["findings"].size(), verdict.findings.size());
  for (size_t i = 0; i < verdict.findings.size(); ++i) {
    const Finding &finding = verdict.findings[i];
    const Json &item = json["findings"][i];
    EXPECT_EQ(item["rule"], name(finding.rule));
    EXPECT_EQ(item["message"], finding.message);
    ASSERT_EQ(item["notes"].size(), finding.notes.size());
    for (size_t k = 0; k < finding.notes.size(); ++k)
      EXPECT_EQ(item["notes"][k]["message"], finding.notes[k].text);
  }
}

TEST_F(CheckTest, BufferingWouldHelp) {
  // Both send first: it runs as long as the messages are small.
  Program program = crossed();
  for (RankProgram &rank : program.ranks) {
    Instruction send;
    send.op = Op::Send;
    send.payload = Payload::Activation;
    send.stage = send.microbatch = 0;
    send.peer = &rank == &program.ranks[0];
    Instruction recv = send;
    recv.op = Op::Recv;
    rank.instructions = {send, recv};
  }
  const std::string file = write(program);
  EXPECT_EQ(check(file), 1);
  EXPECT_NE(out.find("Under the documented semantics of groups it deadlocks "
                     "too; it ends where every channel buffers 1 message, "
                     "as small tests do.\n"),
            std::string::npos)
      << out;
  EXPECT_EQ(check(file + " --json"), 1);
  EXPECT_EQ(Json::parse(out)["min_capacity"], 1);
  EXPECT_EQ(Json::parse(out)["buffers"],
            Json::parse(R"([{"comm": 0, "source": 0, "destination": 1,
                             "messages": 1, "bytes": 0,
                             "message": {"rank": 0, "instruction": 0,
                               "what": "send activation 0 mb 0 to 1"}}])"));

  // One side in a group: the documented semantics would let it end.
  program.ranks[0].instructions[1].joined = true;
  EXPECT_EQ(check(write(program)), 1);
  EXPECT_NE(out.find("Under the documented semantics of groups it ends; it "
                     "needs no buffering of sends.\n"),
            std::string::npos)
      << out;
}

TEST_F(CheckTest, AWarningRefusesNothing) {
  Program program = oneForwardOneBackwardProgram();
  program.problem.numRanks = 1;
  program.problem.numMicrobatches = 2;
  program.problem.stages.resize(1);
  program.problem.placement = {0};
  program.ranks.assign(1, {});
  for (Op op : {Op::Forward, Op::Backward})
    for (int32_t mb : {1, 0}) {
      Instruction inst;
      inst.op = op;
      inst.stage = 0;
      inst.microbatch = mb;
      program.ranks[0].instructions.push_back(inst);
    }
  const std::string file = write(program);
  EXPECT_EQ(check(file), 0);
  EXPECT_NE(out.find(file + ": warning: rank 0, instruction 1 (forward 0 mb "
                            "0): completeness: computes a loss after "),
            std::string::npos)
      << out;
  EXPECT_EQ(check(file + " --json"), 0);
  const Json json = Json::parse(out);
  EXPECT_EQ(json["accepted"], true);
  EXPECT_EQ(json["rule"], nullptr);
  ASSERT_EQ(json["warnings"].size(), 1u);
  EXPECT_EQ(json["warnings"][0]["instruction"], 1);
  EXPECT_EQ(json["warnings"][0]["notes"][0]["instruction"], 0);
}

TEST_F(CheckTest, AWholeRankIsRefused) {
  Program program = oneForwardOneBackwardProgram();
  program.problem.memory = 1;
  const std::string file = write(program);
  EXPECT_EQ(check(file), 1);
  EXPECT_NE(out.find(file + ": rank 0: memory: "), std::string::npos) << out;
  EXPECT_EQ(check(file + " --json"), 1);
  const Json json = Json::parse(out);
  EXPECT_EQ(json["rule"], "memory");
  EXPECT_EQ(json["deadlock"], false);
  EXPECT_EQ(json["closure"], "ok");
  EXPECT_EQ(json["findings"][0]["rank"], 0);
  EXPECT_EQ(json["findings"][0]["instruction"], nullptr);
  EXPECT_EQ(json["findings"][0]["what"], nullptr);
}

TEST_F(CheckTest, Orders) {
  Program order = oneForwardOneBackwardProgram();
  Result<Program> made = oneForwardOneBackward(order.problem);
  ASSERT_TRUE(made);
  const std::string file = write(*made);
  EXPECT_EQ(check("--order " + file), 0) << out;
  EXPECT_EQ(check(file), 1);
  EXPECT_EQ(err, file + ": note: the file holds an order without transfers; "
                        "check it with --order, or lower it first "
                        "(penstock-opt --pipe-compile)\n");
  // An order that nobody can run: what a deadlock would be is not known.
  made->ranks[0].instructions.clear();
  EXPECT_EQ(check("--order --json " + write(*made)), 1);
  const Json json = Json::parse(out);
  EXPECT_EQ(json["rule"], "completeness");
  EXPECT_EQ(json["deadlock"], false);
  EXPECT_EQ(json["closure"], nullptr);
  EXPECT_EQ(json["documented"], nullptr);
}

TEST_F(CheckTest, Dump) {
  const Program program = crossed();
  EXPECT_EQ(check(write(program) + " --dump"), 0);
  EXPECT_EQ(out, dump(program));
  EXPECT_EQ(err, "");
  EXPECT_EQ(check(write(program) + " --dump --json"), 2);
}

TEST_F(CheckTest, NamesThatAreNoText) {
  Program program = oneForwardOneBackwardProgram();
  program.problem.name = "a\n\xff";
  const std::string file = write(program);
  EXPECT_EQ(check(file), 0);
  EXPECT_NE(out.find("accepted: @\"a\\0A\\FF\", 4 ranks"), std::string::npos);
  EXPECT_EQ(check(file + " --json"), 0);
  EXPECT_EQ(Json::parse(out)["name"], "a\n\xef\xbf\xbd");
}

TEST_F(CheckTest, NotReadable) {
  EXPECT_EQ(check(path("none.psp")), 2);
  EXPECT_EQ(out, "");
  EXPECT_EQ(err, path("none.psp") + ": cannot be opened: No such file or "
                                    "directory; check the path\n");

  std::ofstream(path("text.psp")) << "pipe.schedule @train ranks(4)\n";
  EXPECT_EQ(check(path("text.psp") + " --json"), 2);
  EXPECT_EQ(Json::parse(out), (Json{{"error", err.substr(0, err.size() - 1)}}));
  EXPECT_EQ(err, path("text.psp") +
                     ": the program file is text and no compiled program; "
                     "compile a spec with penstock-opt SPEC.mlir "
                     "--pipe-compile | penstock-translate --pipe-to-program - "
                     "-o FILE.psp\n");

  for (const char *name : {"a.csv", "a.json"}) {
    EXPECT_EQ(check(path(name)), 2);
    EXPECT_EQ(out, "");
    EXPECT_EQ(err, path(name) + ": cannot be opened: No such file or "
                                "directory; check the path\n");
    fs::create_directory(path(name));
    EXPECT_EQ(check(path(name)), 2);
    EXPECT_EQ(err, path(name) + ": is a directory; a file is needed\n");
  }
}

/// torch's expected table of deferred receives (pytorch/pytorch#178815).
constexpr const char *kDeferred =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
    "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD\n";

TEST_F(CheckTest, TorchOrder) {
  const std::string file = path("order.csv");
  std::ofstream(file) << "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
  EXPECT_EQ(check(file), 0);
  EXPECT_EQ(out, file +
                     ": accepted: compute_only, 2 ranks, 2 stages, 2 "
                     "micro-batches, 8 actions\n" +
                     kAssumptions);
  EXPECT_EQ(check("--order --json " + file), 0);
  Json json = Json::parse(out);
  EXPECT_EQ(json["accepted"], true);
  EXPECT_EQ(json["deadlock"], false);
  EXPECT_EQ(json["format"], "compute_only");
  EXPECT_EQ(json["fifo"], nullptr);
  EXPECT_EQ(json["fifos"], Json::object());

  std::ofstream(file) << "0F0\n1F0,1B0\n";
  EXPECT_EQ(check(file), 1);
  EXPECT_EQ(out.find(file +
                     ": refused: compute_only, 2 ranks, 2 stages, 1 "
                     "micro-batch, 3 actions\n" +
                     file + ": rank 0, cell 0 (0F0): completeness: stage 0 of"),
            0u)
      << out;
  EXPECT_EQ(check("--json " + file), 1);
  json = Json::parse(out);
  EXPECT_EQ(json["rule"], "completeness");
  EXPECT_EQ(json["findings"][0]["cell"], 0);
  EXPECT_EQ(json["findings"][0]["action"], "0F0");

  EXPECT_EQ(check("--placement=loop " + file), 1);
  std::ofstream(file) << "0F0,0B0,2F0,2B0\n1F0,1B0\n";
  EXPECT_EQ(check("--placement=v " + file), 2);
  EXPECT_EQ(err, file +
                     ": placement v needs a multiple of 2 stages, the number "
                     "of ranks; the rows have 3\n");
}

TEST_F(CheckTest, TorchProgram) {
  const std::string file = path("comms.csv");
  std::ofstream(file) << kDeferred;
  const std::string crossed =
      "deadlock; under the documented semantics of groups it deadlocks too; it "
      "ends where every channel buffers 1 message, as small tests do\n";
  EXPECT_EQ(check(file), 1);
  EXPECT_EQ(out.find(file +
                     ": refused: compute_comms, 2 ranks, 2 stages, 2 "
                     "micro-batches, 18 actions\n" +
                     file + ": rank 0, cell 3 (0SEND_F1): deadlock"),
            0u)
      << out;
  EXPECT_NE(out.find("\n  rank 1, cell 3 (1SEND_B0): "), std::string::npos);
  const std::string tail = "one FIFO per rank (decides): " + crossed +
                           "one FIFO per pair of ranks: " + crossed +
                           "one FIFO per directed edge: accepted\n" +
                           kAssumptions;
  EXPECT_TRUE(out.ends_with(tail)) << out;

  EXPECT_EQ(check("--json --fifo=pair " + file), 1);
  Json json = Json::parse(out);
  EXPECT_EQ(json["deadlock"], true);
  EXPECT_EQ(json["rule"], "deadlock");
  EXPECT_EQ(json["min_capacity"], 1);
  EXPECT_EQ(json["format"], "compute_comms");
  EXPECT_EQ(json["fifo"], "pair");
  std::vector<std::string> cycle;
  for (const Json &entry : json["cycle"])
    cycle.push_back(entry["action"]);
  std::sort(cycle.begin(), cycle.end());
  EXPECT_EQ(cycle, (std::vector<std::string>{"0RECV_B0", "0SEND_F1", "1RECV_F1",
                                             "1SEND_B0"}));
  EXPECT_EQ(json["fifos"]["rank"]["accepted"], false);
  EXPECT_EQ(json["fifos"]["rank"]["min_capacity"], 1);
  EXPECT_EQ(json["fifos"]["pair"]["cycle"], json["cycle"]);
  const Json edge = {{"accepted", true},
                     {"deadlock", false},
                     {"rule", nullptr},
                     {"cycle", Json::array()},
                     {"min_capacity", 0}};
  EXPECT_EQ(json["fifos"]["edge"], edge);
  EXPECT_EQ(json["warnings"], Json::array());

  EXPECT_EQ(check("--fifo=edge " + file), 0);
  EXPECT_NE(out.find("one FIFO per directed edge (decides): accepted\n"),
            std::string::npos);
  EXPECT_EQ(check("--order " + file), 2);
  EXPECT_EQ(err, file + ": has sends and receives (compute_comms), so that it "
                        "is no order; check it without --order\n");
  EXPECT_EQ(check("--fifo=none " + file), 2);
  EXPECT_EQ(err.find("--fifo: none not in {edge,pair,rank}"), 0u) << err;
  EXPECT_EQ(check("--placement=w " + file), 2);
  EXPECT_EQ(err.find("--placement: w not in {loop,rows,v}"), 0u) << err;

  // What keeps it from being a program is said once.
  std::ofstream(file) << "0F0,0SEND_F0,0B0\n0F1,1RECV_F0,1F0,1B0\n";
  EXPECT_EQ(check(file), 1);
  EXPECT_NE(out.find("completeness: "), std::string::npos) << out;
  std::ofstream(file) << "0F0,0SEND_F0,1F0\n2F0\n";
  EXPECT_EQ(check(file), 1);
  EXPECT_NE(out.find(": rank 0, cell 1 (0SEND_F0): structure: is a transfer of "
                     "the rank with itself"),
            std::string::npos)
      << out;
  EXPECT_EQ(out.find("one FIFO"), std::string::npos) << out;
  EXPECT_EQ(check("--dump " + file), 2);
  EXPECT_EQ(err, file +
                     ": rank 0, cell 1 (0SEND_F0): is a transfer of the rank "
                     "with itself; use the tensor where it is\n");
}

TEST_F(CheckTest, TorchDump) {
  const std::string file = path("comms.csv");
  std::ofstream(file) << kDeferred;
  EXPECT_EQ(check("--dump --fifo=pair " + file), 0);
  EXPECT_NE(out.find("send activation 0 mb 0 to 1 queue(1)"), std::string::npos)
      << out;
}

TEST_F(CheckTest, TorchNotReadable) {
  const std::string file = path("old.csv");
  std::ofstream(file) << "0F0,0BW0\n";
  EXPECT_EQ(check("--json " + file), 2);
  EXPECT_TRUE(Json::parse(out).contains("error"));
  EXPECT_EQ(err.find(file + ": line 1, column 5 (rank 0, cell 1): `0BW0` is "),
            0u)
      << err;
}

TEST_F(CheckTest, Cases) {
  const std::string file = PENSTOCK_SOURCE_DIR "/test/cases/deadlock.json";
  EXPECT_EQ(check("--json " + file), 1);
  const Json json = Json::parse(out);
  const Json recorded = Json::parse(contents(file));
  ASSERT_EQ(json["cases"].size(), 23u);
  EXPECT_EQ(json["assumptions"], assumptions());
  for (size_t i = 0; i < 23; ++i) {
    const Json &found = json["cases"][i];
    const Json &wanted = recorded["cases"][i];
    EXPECT_EQ(found["id"], wanted["id"]);
    EXPECT_FALSE(found.contains("differs")) << found;
    ASSERT_EQ(found["verdict"].size(), 11u);
    for (const auto &[key, value] : wanted["verdict"].items()) {
      if (key == "cycle")
        EXPECT_LE(found["verdict"][key].size(), value.size()) << found;
      else
        EXPECT_EQ(found["verdict"][key], value) << found["id"] << ' ' << key;
    }
  }

  EXPECT_EQ(check(file), 1);
  EXPECT_EQ(out.find(file + ": 23 cases, 8 accepted, 15 refused\n"
                            "case    closure   documented  layered   serialised"
                            "  first use  buffered  ser. buffered  capacity  "
                            "mismatch\n"
                            "C01     deadlock  deadlock    deadlock  deadlock  "
                            "  error      ok        ok             1         "
                            "no\n"),
            0u)
      << out;
  EXPECT_NE(out.find("\nC11: rank 0, item 0: send x to 1 on w, which has no "
                     "partner\n"),
            std::string::npos);
  EXPECT_NE(out.find("\nC13: rank 0, item 0: send grad0 to 1 on w is received "
                     "by rank 1, item 0: recv act0 from 0 on w\n"),
            std::string::npos);
  EXPECT_NE(out.find("\nC01: rank 0, item 0: send x0 to 1 on w, which waits "
                     "for\n  rank 1, item 1: recv x0 from 0 on w, which waits "
                     "for\n"),
            std::string::npos);
  EXPECT_EQ(out.find("records"), std::string::npos);
  EXPECT_TRUE(out.ends_with(kAssumptions));
}

TEST_F(CheckTest, CasesThatDiffer) {
  const std::string file = path("a.json");
  std::ofstream(file) << R"({"schema": "penstock-deadlock-cases", "version": 1,
    "cases": [{"id": "A", "programs": {"0": []},
               "verdict": {"closure": "deadlock", "layered": "ok"}}]})";
  EXPECT_EQ(check(file), 0);
  EXPECT_NE(out.find(file + ": case A: closure is \"ok\", but the file records "
                            "\"deadlock\"\n"),
            std::string::npos)
      << out;
  EXPECT_EQ(out.find("layered is"), std::string::npos);
  EXPECT_EQ(check("--json " + file), 0);
  EXPECT_EQ(Json::parse(out)["cases"][0]["differs"], Json{"closure"});

  EXPECT_EQ(check("--dump " + file), 2);
  EXPECT_EQ(err, file + ": --order and --dump are for programs and schedules, "
                        "not for cases; leave them out\n");
  std::ofstream(file) << "[";
  EXPECT_EQ(check(file), 2);
  EXPECT_EQ(err.find(file + ": is not JSON: "), 0u) << err;
}

TEST_F(CheckTest, OutputThatIsLostIsNoticed) {
  const std::string command = std::string(PENSTOCK_CHECK) + ' ' +
                              write(oneForwardOneBackwardProgram()) +
                              " >/dev/full 2>" + path("err");
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_EQ(contents(path("err")),
            "penstock-check: cannot write the output; is the disk full?\n");
}

TEST_F(CheckTest, Usage) {
  EXPECT_EQ(check(""), 2);
  EXPECT_NE(err.find("FILE is required"), std::string::npos) << err;
  EXPECT_EQ(check("--no-such-option a.psp"), 2);
  EXPECT_EQ(check("--help"), 0);
  for (const char *option : {"FILE", "--json", "--dump", "--order"})
    EXPECT_NE(out.find(option), std::string::npos) << out;
}

TEST(Report, Render) {
  Program program;
  program.ranks.resize(2);
  Instruction inst;
  inst.stage = inst.microbatch = 0;
  program.ranks[0].instructions = {inst};
  Finding finding{Rule::DataFlow, {0, 0}, "reads nothing.", {}};
  EXPECT_EQ(render(program, finding),
            "rank 0, instruction 0 (forward 0 mb 0): data-flow: reads "
            "nothing.\n");
  finding.site = {1, kNoInstruction};
  finding.notes = {{{0, 0}, "it is here"}, {{}, "nowhere"}};
  EXPECT_EQ(render(program, finding),
            "rank 1: data-flow: reads nothing.\n"
            "  rank 0, instruction 0 (forward 0 mb 0): it is here\n"
            "  nowhere\n");
  finding.site = {};
  finding.notes.clear();
  EXPECT_EQ(render(program, finding), "data-flow: reads nothing.\n");
}

} // namespace
