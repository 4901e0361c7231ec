//===- RendezvousTest.cpp - How processes find each other -----------------===//
//
// Jobs whose processes are threads of this one, and strangers who disturb them.
//
//===----------------------------------------------------------------------===//

#include "Net/Launch.h"
#include "penstock/Runtime/Job.h"
#include "penstock/Support/Hash.h"

#include <gtest/gtest.h>

#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <thread>

using namespace penstock;
using namespace penstock::runtime;
using namespace std::chrono_literals;

namespace {

//===----------------------------------------------------------------------===//
// What the launcher says
//===----------------------------------------------------------------------===//

using Variables = std::map<std::string, std::string>;

Result<Place> place(const Variables &variables, Rendezvous rendezvous = {}) {
  return findPlace(rendezvous, [&](const char *name) -> const char * {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string faultOf(const Variables &variables, Rendezvous rendezvous = {}) {
  const Result<Place> result = place(variables, std::move(rendezvous));
  return result ? "none" : result.message();
}

Rendezvous at(const std::string &where, std::optional<int32_t> number = {},
              std::optional<int32_t> size = {}) {
  Rendezvous rendezvous;
  rendezvous.where = where;
  rendezvous.number = number;
  rendezvous.size = size;
  return rendezvous;
}

const Variables kTorch = {{"RANK", "2"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "1"},
                          {"MASTER_ADDR", "node1"},
                          {"MASTER_PORT", "29500"}};

Variables with(Variables variables, const Variables &more) {
  for (const auto &[name, value] : more)
    variables[name] = value;
  return variables;
}

TEST(Launch, TorchrunSaysAll) {
  const Result<Place> found = place(kTorch);
  ASSERT_TRUE(found) << found.message();
  EXPECT_EQ(found->number, 2);
  EXPECT_EQ(found->size, 4);
  EXPECT_EQ(found->localNumber, 1);
  EXPECT_EQ(found->address.str(), "node1:29500");
  EXPECT_EQ(found->source, "torchrun's variables (RANK, WORLD_SIZE)");
  EXPECT_EQ(found->where, "MASTER_ADDR and MASTER_PORT");
  EXPECT_EQ(place(with(kTorch, {{"TORCHELASTIC_RUN_ID", "7"}}))->runId,
            "TORCHELASTIC_RUN_ID=7 ");
  EXPECT_EQ(place(with(kTorch, {{"MASTER_ADDR", "fe80::1"}}))->address.str(),
            "[fe80::1]:29500");
}

TEST(Launch, TorchrunKeepsItsPort) {
  const Result<Place> found =
      place(with(kTorch, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  ASSERT_TRUE(found) << found.message();
  EXPECT_EQ(found->address.str(), "node1:29501");
  EXPECT_EQ(found->where, "MASTER_ADDR and MASTER_PORT, the next port because "
                          "torchrun has that one");
  EXPECT_EQ(place(with(kTorch, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}))
                ->address.port,
            29500);
}

TEST(Launch, OpenMpiAndSlurm) {
  const Result<Place> mpi = place({{"OMPI_COMM_WORLD_RANK", "1"},
                                   {"OMPI_COMM_WORLD_SIZE", "2"},
                                   {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}},
                                  at("tcp://10.0.0.1:4000"));
  ASSERT_TRUE(mpi) << mpi.message();
  EXPECT_EQ(mpi->number, 1);
  EXPECT_EQ(mpi->localNumber, 0);
  EXPECT_EQ(
      mpi->source,
      "Open MPI's variables (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE)");
  EXPECT_EQ(mpi->address.str(), "10.0.0.1:4000");

  const Variables slurm = {
      {"SLURM_PROCID", "5"},  {"SLURM_NTASKS", "8"},
      {"SLURM_LOCALID", "1"}, {"SLURM_JOB_ID", "77"},
      {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", "gpu[07-08,11]"}};
  const Result<Place> found = place(slurm);
  ASSERT_TRUE(found) << found.message();
  EXPECT_EQ(found->number, 5);
  EXPECT_EQ(found->localNumber, 1);
  EXPECT_EQ(found->address.host, "gpu07");
  EXPECT_GE(found->address.port, 10'000);
  EXPECT_NE(found->address.port,
            place(with(slurm, {{"SLURM_STEP_ID", "1"}}))->address.port);
  EXPECT_EQ(found->runId, "SLURM_JOB_ID=77 SLURM_STEP_ID=0 ");
  EXPECT_EQ(firstHost("a"), "a");
  EXPECT_EQ(firstHost("a,b"), "a");
  EXPECT_EQ(firstHost("a[3,5]-ib,b"), "a3-ib");
  EXPECT_EQ(firstHost("a[12"), "a12");
  EXPECT_EQ(firstHost(""), "");
}

TEST(Launch, ContradictionsAreRefused) {
  EXPECT_EQ(faultOf(with(kTorch, {{"OMPI_COMM_WORLD_RANK", "1"},
                                  {"OMPI_COMM_WORLD_SIZE", "4"}})),
            "contradiction: RANK says that this process's rank is 2, but "
            "OMPI_COMM_WORLD_RANK says 1; unset the wrong one, or give both "
            "--rank and --world-size, which overrule all variables");
  EXPECT_EQ(faultOf(with(kTorch, {{"SLURM_NTASKS", "3"}})),
            "contradiction: WORLD_SIZE says that the number of processes is 4, "
            "but SLURM_NTASKS says 3; unset the wrong one, or give both --rank "
            "and --world-size, which overrule all variables");
  EXPECT_EQ(faultOf(kTorch, at("env", 1)).substr(0, 45),
            "contradiction: --rank says that this process'");
  // Who agrees may speak; two options overrule all.
  EXPECT_EQ(faultOf(with(kTorch, {{"SLURM_PROCID", "2"}})), "none");
  const Result<Place> found = place(kTorch, at("env", 0, 3));
  ASSERT_TRUE(found) << found.message();
  EXPECT_EQ(found->number, 0);
  EXPECT_EQ(found->size, 3);
  EXPECT_EQ(found->source, "the options (--rank, --world-size)");
  EXPECT_EQ(place(kTorch, at("env", 2))->source,
            "the options (--rank) and torchrun's variables (WORLD_SIZE)");
}

TEST(Launch, WhatIsMissingOrMalformed) {
  EXPECT_NE(faultOf({}).find("nothing says which of how many processes this "
                             "is: there are no variables of torchrun"),
            std::string::npos);
  EXPECT_EQ(faultOf({{"RANK", "1"}}),
            "RANK says that this is process 1, but nothing of how many; give "
            "--world-size or set WORLD_SIZE");
  EXPECT_EQ(faultOf({{"WORLD_SIZE", "2"}}),
            "WORLD_SIZE says that there are 2 processes, but nothing which of "
            "them this is; give --rank or set RANK");
  for (const char *bad : {"x", "-1", "1x", "99999999999999999999"})
    EXPECT_EQ(faultOf(with(kTorch, {{"RANK", bad}})),
              std::string("RANK is '") + bad +
                  "' and not a number from 0 to 65536; unset it, or give "
                  "--rank and --world-size");
  EXPECT_EQ(faultOf(with(kTorch, {{"RANK", "4"}})),
            "there is no process 4 (RANK) among 4 (WORLD_SIZE); they are "
            "numbered from 0, and there are at most 65536");
  EXPECT_NE(faultOf(kTorch, at("env", 0, 0)).find("among 0 (--world-size)"),
            std::string::npos);
  EXPECT_NE(faultOf(kTorch, at("env", -1, 2)).find("no process -1 (--rank)"),
            std::string::npos);
  EXPECT_EQ(faultOf({{"RANK", "0"}, {"WORLD_SIZE", "1"}}),
            "MASTER_ADDR is not set, so that nothing says where process 0 "
            "listens; set MASTER_ADDR and MASTER_PORT, or give "
            "--rendezvous=tcp://HOST:PORT");
  EXPECT_EQ(faultOf(with(kTorch, {{"MASTER_PORT", "x"}})),
            "MASTER_ADDR and MASTER_PORT: 'node1:x' is not HOST:PORT with a "
            "port from 1 to 65535");
  for (const char *bad : {"", "host", "host:", ":1", "host:0", "host:65536",
                          "host:1x", "::1:5", "[]:5"})
    EXPECT_EQ(faultOf(kTorch, at(std::string("tcp://") + bad)),
              std::string("--rendezvous=tcp://") + bad + ": '" + bad +
                  "' is not HOST:PORT with a port from 1 to 65535");
  EXPECT_EQ(place(kTorch, at("tcp://[::1]:5"))->address.host, "::1");
  EXPECT_EQ(faultOf(kTorch, at("file://")),
            "--rendezvous=file:// names no path; give one that all processes "
            "see, as file:///shared/job7");
  EXPECT_EQ(faultOf(kTorch, at("carrier pigeon")),
            "--rendezvous=carrier pigeon is unknown; there are: env, "
            "tcp://HOST:PORT, file://PATH, mpi");
}

//===----------------------------------------------------------------------===//
// Meeting
//===----------------------------------------------------------------------===//

class Meeting : public testing::Test {
protected:
  using Made = Result<std::unique_ptr<Job>>;

  Meeting() {
    std::filesystem::remove_all(directory);
    std::filesystem::create_directories(directory);
  }
  ~Meeting() override { std::filesystem::remove_all(directory); }

  /// An address where nobody listens.
  static Address freeAddress() {
    return listenAt({"127.0.0.1", 0})->ownAddress();
  }
  std::string file() const { return directory / "meet"; }
  std::string atFile() const { return "file://" + file(); }

  static std::future<Made> come(Rendezvous rendezvous, double timeout = 20) {
    rendezvous.timeout = timeout;
    return std::async(std::launch::async,
                      [=] { return makeSocketJob(rendezvous); });
  }
  /// All of these have become one job.
  static void expectJob(std::vector<std::future<Made>> processes) {
    std::vector<std::unique_ptr<Job>> jobs;
    for (auto &process : processes) {
      Made made = process.get();
      ASSERT_TRUE(made) << made.message();
      jobs.push_back(std::move(*made));
    }
    std::vector<std::future<std::vector<std::string>>> gathered;
    for (auto &job : jobs)
      gathered.push_back(std::async(std::launch::async, [&job] {
        return job->gather(std::to_string(job->number()));
      }));
    for (auto &all : gathered) {
      const auto texts = all.get();
      ASSERT_EQ(texts.size(), jobs.size());
      for (size_t p = 0; p < texts.size(); ++p)
        EXPECT_EQ(texts[p], std::to_string(p));
    }
    // Each says good-bye while the others do.
    std::vector<std::thread> threads;
    for (auto &job : jobs)
      threads.emplace_back([&job] { job.reset(); });
    for (std::thread &thread : threads)
      thread.join();
  }
  /// What a stranger says to whoever listens there, before he hangs up.
  static Socket say(const Address &address, const std::string &bytes) {
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (std::chrono::steady_clock::now() < end)
      if (auto socket = connectTo(address, end)) {
        (void)socket->write(bytes, end); // he may be shown the door
        return std::move(*socket);
      } else {
        std::this_thread::sleep_for(1ms);
      }
    ADD_FAILURE() << "nobody listens at " << address.str();
    return Socket();
  }
  /// Everything that comes until the other side hangs up.
  static std::string readAll(const Socket &socket) {
    std::string text;
    char c;
    while (socket.read({&c, 1}, std::chrono::steady_clock::now() + 10s))
      text += c;
    return text;
  }
  static std::string messageOf(std::future<Made> process) {
    Made made = process.get();
    return made ? "no fault" : made.message();
  }
  static testing::AssertionResult contains(const std::string &text,
                                           const std::string &part) {
    if (text.find(part) != text.npos)
      return testing::AssertionSuccess();
    return testing::AssertionFailure()
           << "missing: " << part << "\nin: " << text;
  }

  /// What process 0 says now and then to those who have come.
  const std::string kWaits{"penstock\3\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0", 24};
  const std::filesystem::path directory =
      std::filesystem::path(testing::TempDir()) /
      ("penstock-rendezvous-" + std::to_string(getpid()));
};

TEST_F(Meeting, AtAnAddressInAnyOrder) {
  const std::string where = "tcp://" + freeAddress().str();
  std::vector<std::future<Made>> processes;
  for (int32_t number : {3, 1, 0, 4, 2}) {
    processes.push_back(come(at(where, number, 5)));
    std::this_thread::sleep_for(20ms);
  }
  std::swap(processes[0], processes[2]); // by number
  std::swap(processes[2], processes[4]);
  std::swap(processes[3], processes[4]);
  expectJob(std::move(processes));
}

TEST_F(Meeting, AtAFileThatGoesAgain) {
  for (int round = 0; round < 2; ++round) {
    std::vector<std::future<Made>> processes;
    for (int32_t number : {0, 1, 2})
      processes.push_back(come(at(atFile(), number, 3)));
    expectJob(std::move(processes));
    EXPECT_TRUE(std::filesystem::is_empty(directory));
  }
}

TEST_F(Meeting, OldFileMisleadsNobody) {
  // To where nobody listens, to strangers who speak or do not, and to another
  // run.
  const Socket stranger = std::move(*listenAt({"127.0.0.1", 0}));
  const Address other = freeAddress();
  int speaks = 0;
  auto otherRun = come(at("tcp://" + other.str(), 0, 2));
  for (const Address &address :
       {freeAddress(), stranger.ownAddress(), stranger.ownAddress(), other}) {
    std::ofstream(file()) << "penstock-rendezvous 1\n"
                          << address.str() << "\n12345\n";
    std::vector<std::future<Made>> processes(2);
    processes[1] = come(at(atFile(), 1, 2));
    std::this_thread::sleep_for(50ms);
    Socket visitor = stranger.accept();
    if (visitor && speaks++ == 0)
      (void)visitor.write("220 mail.example.com ESMTP\r\n",
                          std::chrono::steady_clock::now() + 1s);
    processes[0] = come(at(atFile(), 0, 2));
    expectJob(std::move(processes));
  }
  auto last = come(at("tcp://" + other.str(), 1, 2));
  std::vector<std::future<Made>> processes;
  processes.push_back(std::move(otherRun));
  processes.push_back(std::move(last));
  expectJob(std::move(processes));
}

TEST_F(Meeting, WhoIsMissingIsNamed) {
  const Address address = freeAddress();
  std::vector<std::future<Made>> processes;
  for (int32_t number : {0, 2})
    processes.push_back(come(at("tcp://" + address.str(), number, 5), 3));
  const auto begin = std::chrono::steady_clock::now();
  for (auto &process : processes)
    EXPECT_EQ(messageOf(std::move(process)),
              "processes 1, 3, 4 of 5 have not come to " + address.str() +
                  " within 3 s; look for what they say themselves, or give "
                  "more time with --rendezvous-timeout");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  EXPECT_TRUE(contains(
      messageOf(come(at("tcp://" + address.str(), 1, 2), 0.3)),
      "process 0 of 2 was not found within 0.3 s; process 0 does not answer "
      "at " +
          address.str() + " (tcp://" + address.str() +
          "): Connection refused"));
  EXPECT_EQ(messageOf(come(at(atFile(), 1, 2), 0.3)),
            "process 0 of 2 was not found within 0.3 s; '" + file() +
                "' is not there; process 0 writes it, on a file system that "
                "all share");
  EXPECT_TRUE(contains(messageOf(come(at(atFile(), 0, 2), 0.3)),
                       "process 1 of 2 has not come to 127.0.0.1:"));
  EXPECT_TRUE(std::filesystem::is_empty(directory));
}

TEST_F(Meeting, ProcessesMustAgree) {
  const std::string where = "tcp://" + freeAddress().str();
  auto first = come(at(where, 0, 3)), second = come(at(where, 1, 3)),
       twin = come(at(where, 1, 3));
  const std::string pid = "pid " + std::to_string(getpid());
  for (auto *process : {&first, &second, &twin})
    EXPECT_TRUE(contains(messageOf(std::move(*process)),
                         "two processes say that they are process 1 of 3, " +
                             pid + " at 127.0.0.1 and " + pid +
                             " at 127.0.0.1; give each its own --rank"));
  first = come(at(where, 0, 3));
  second = come(at(where, 1, 4));
  for (auto *process : {&first, &second})
    EXPECT_EQ(messageOf(std::move(*process)),
              "process 1 has been told that the job has 4 processes, but "
              "process 0 that it has 3; start all with the same --world-size");
  // Of another run: it leaves, and the job goes on.
  first = come(at(where, 0, 2));
  Rendezvous other = at(where, 1, 2);
  other.runId = "other";
  EXPECT_TRUE(contains(messageOf(come(other)), " is process 0 of another run"));
  std::vector<std::future<Made>> processes;
  processes.push_back(std::move(first));
  processes.push_back(come(at(where, 1, 2)));
  expectJob(std::move(processes));
}

TEST_F(Meeting, StrangersDoNotDisturb) {
  const Address address = freeAddress();
  const std::string where = "tcp://" + address.str();
  std::vector<std::future<Made>> processes;
  processes.push_back(come(at(where, 0, 2)));
  // Nothing, half a word, another protocol, garbage, and too much of it.
  std::vector<Socket> strangers;
  strangers.push_back(say(address, ""));
  strangers.push_back(say(address, "penst"));
  strangers.push_back(say(address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  strangers.push_back(say(address, std::string(40, '\0')));
  strangers.push_back(say(address, std::string(100'000, 'p')));
  say(address, ""); // hangs up
  say(address, "pen");
  // Another version hears which one is spoken here, however much it says.
  for (const auto &[version, bytes] : {std::pair(2, 32), {4, 64}}) {
    std::string hello("penstock\0\0\0\0\2\0\0\0\1\0\0\0", 20);
    hello[8] = char(version);
    hello.resize(bytes);
    EXPECT_TRUE(contains(readAll(say(address, hello)),
                         "process 1 speaks version " + std::to_string(version) +
                             " of the protocol, and process 0 version 3; use "
                             "the same build everywhere"));
  }
  processes.push_back(come(at(where, 1, 2)));
  expectJob(std::move(processes));

  // They are named when nobody else comes.
  auto waiting = come(at(where, 0, 2), 3);
  say(address, "GET / HTTP/1.1\r\n");
  EXPECT_TRUE(contains(messageOf(std::move(waiting)),
                       "; refused: 1 connection, the last from 127.0.0.1:"));
}

TEST_F(Meeting, WhoDiesWhileAllWaitMayComeAgain) {
  const Address address = freeAddress();
  const std::string where = "tcp://" + address.str();
  std::vector<std::future<Made>> processes;
  processes.push_back(come(at(where, 0, 3)));
  {
    // As process 1 says it, of no run.
    std::string hello("penstock\3\0\0\0\3\0\0\0\1\0\0\0\0\0\0\0", 24);
    Hasher noRun;
    noRun.add(0);
    const uint64_t token = noRun.finish().low;
    hello.append(reinterpret_cast<const char *>(&token), sizeof(token));
    const Socket dying = say(address, hello + std::string(8, '\0'));
    // It is let in: process 0 says that it waits for others.
    std::string said(kWaits.size(), '\0');
    EXPECT_TRUE(dying.read(said, std::chrono::steady_clock::now() + 10s));
    EXPECT_EQ(said, kWaits);
  }
  processes.push_back(come(at(where, 1, 3)));
  processes.push_back(come(at(where, 2, 3)));
  expectJob(std::move(processes));
}

TEST_F(Meeting, WhatListensThereMayBeNoProcess0) {
  const Socket stranger = std::move(*listenAt({"127.0.0.1", 0}));
  const std::string at0 = stranger.ownAddress().str();
  auto visit = [&](const std::string &says, double timeout) {
    auto process = come(at("tcp://" + at0, 1, 2), timeout);
    Socket visitor;
    while (!(visitor = stranger.accept()))
      std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(visitor.write(says, std::chrono::steady_clock::now() + 1s));
    if (timeout > 1)
      visitor = Socket();
    return messageOf(std::move(process));
  };
  EXPECT_TRUE(contains(visit("HTTP/1.1 400 Bad Request\r\n\r\n", 20),
                       "what listens at " + at0 + " (tcp://" + at0 +
                           ") says 'HTTP/1.1' and is no process 0 of "
                           "penstock-run; use another port"));
  const std::string silent = "what listens at " + at0 + " (tcp://" + at0 +
                             ") does not answer as a process 0 of "
                             "penstock-run does: ";
  EXPECT_TRUE(contains(visit("", 20), silent));
  EXPECT_TRUE(contains(visit("", 0.1), silent + "Connection timed out"));
  EXPECT_TRUE(contains(
      visit(std::string("penstock\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24), 20),
      "speaks version 4 of the protocol, this process version 3"));
  // A text longer than any.
  EXPECT_TRUE(contains(
      visit(std::string("penstock\3\0\0\0\1\0\0\0\xff\xff\xff\x7f\0\0\0\0", 24),
            20),
      "does not answer as a process 0"));
}

TEST_F(Meeting, FrozenProcess0IsNamedAndSlowIsNot) {
  const Socket frozen = std::move(*listenAt({"127.0.0.1", 0}));
  const std::string at0 = frozen.ownAddress().str();
  std::ofstream(file()) << "penstock-rendezvous 1\n" << at0 << "\n12345\n";
  for (const std::string &where : {"tcp://" + at0, atFile()}) {
    // It has never said anything: nothing is to be expected of it beyond the
    // time limit, unlike of one that lives.
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(contains(messageOf(come(at(where, 1, 2), 0.1)),
                         "what listens at " + at0 + " (" + where +
                             ") does not answer as a process 0 of penstock-run "
                             "does: Connection timed out; has process 0 ended, "
                             "is it frozen, or is it another program?"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
    // It has said that it waits, now and then.
    for (bool lives : {false, true}) {
      while (frozen.accept())
        ;
      auto process = come(at(where, 1, 2), 1.2);
      Socket visitor;
      while (!(visitor = frozen.accept()))
        std::this_thread::sleep_for(1ms);
      do
        EXPECT_TRUE(
            visitor.write(kWaits, std::chrono::steady_clock::now() + 1s));
      while (lives && process.wait_for(100ms) != std::future_status::ready);
      EXPECT_TRUE(contains(
          messageOf(std::move(process)),
          "process 0 of 2 at " + at0 + " (" + where +
              (lives ? ") still waits for others after 1.2 s; look for what "
                       "they say themselves"
                     : ") gives no sign of life while the others wait for it, "
                       "after 1.2 s; its process is frozen or lost")));
    }
  }
}

TEST_F(Meeting, TwoProcesses0AtOneFileAreNamed) {
  const auto waitForFile = [&] {
    while (!std::filesystem::exists(file()))
      std::this_thread::sleep_for(1ms);
  };
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  const std::string pid = "pid " + std::to_string(getpid()),
                    own = pid + " on " + host,
                    twins = "two processes say that they are process 0 of 2, ",
                    wayOut = "; give each its own --rank, and each run its own "
                             "--run-id and --rendezvous";
  auto first = come(at(atFile(), 0, 2));
  waitForFile();
  auto second = come(at(atFile(), 0, 2));
  for (auto *process : {&first, &second})
    EXPECT_EQ(messageOf(std::move(*process)),
              twins + own + " and " + pid + " at 127.0.0.1" + wayOut);
  EXPECT_TRUE(std::filesystem::is_empty(directory));
  // They came at the same time, and the other one has ended meanwhile.
  first = come(at(atFile(), 0, 2));
  waitForFile();
  std::ofstream(file()) << "penstock-rendezvous 1\n"
                        << freeAddress().str() << "\n12345\npid 7 on there\n";
  EXPECT_EQ(messageOf(std::move(first)),
            twins + own + " and pid 7 on there" + wayOut);
  EXPECT_TRUE(std::filesystem::exists(file()));
  // And taken its file along.
  first = come(at(atFile(), 0, 2));
  std::string contents;
  while (contents.find(own) == contents.npos)
    std::getline(std::ifstream(file()), contents, '\0');
  std::filesystem::remove(file());
  EXPECT_EQ(messageOf(std::move(first)),
            "'" + file() + "', by which the others find process 0 (" + own +
                "), is not there any more; has another process 0 been there, "
                "or has somebody removed it?");
}

TEST_F(Meeting, Process0MustBeAbleToListen) {
  const Socket taken = std::move(*listenAt({"127.0.0.1", 0}));
  EXPECT_TRUE(contains(
      messageOf(come(at("tcp://" + taken.ownAddress().str(), 0, 2))),
      "process 0 cannot listen at " + taken.ownAddress().str() + " (tcp://" +
          taken.ownAddress().str() +
          "): Address already in use; give an address of the machine of "
          "process 0, and a port that is free"));
  EXPECT_TRUE(contains(messageOf(come(at("tcp://192.0.2.1:4000", 0, 2))),
                       "process 0 cannot listen at 192.0.2.1:4000"));
  EXPECT_TRUE(contains(messageOf(come(at("file:///no/such/directory/x", 0, 2))),
                       "cannot write '/no/such/directory/x'; name a path in a "
                       "directory that exists"));
  std::ofstream(file()) << "my thesis\n";
  EXPECT_EQ(messageOf(come(at(atFile(), 0, 2))),
            "'" + file() +
                "' exists and is no rendezvous file of penstock-run; name "
                "another path");
  EXPECT_TRUE(std::filesystem::exists(file()));
}

TEST_F(Meeting, OneProcessIsAJobToo) {
  std::vector<std::future<Made>> processes;
  processes.push_back(come(at(atFile(), 0, 1)));
  expectJob(std::move(processes));
}

TEST_F(Meeting, WhoLeavesWithAFaultTellsIt) {
  auto first = come(at(atFile(), 0, 2)), second = come(at(atFile(), 1, 2));
  std::unique_ptr<Job> left = std::move(*first.get()),
                       right = std::move(*second.get());
  left->fail(1, {ErrorKind::Aborted, "process 0: out of ink", {0}});
  EXPECT_TRUE(right->gather("").empty());
  EXPECT_EQ(right->lostPeer().message, "process 0: out of ink");
}

} // namespace
