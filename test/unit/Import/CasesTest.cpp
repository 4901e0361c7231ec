//===- CasesTest.cpp - Files of communication programs --------------------===//

#include "penstock/Import/Cases.h"

#include "penstock/Analysis/Verify.h"
#include "penstock/Program/File.h"

#include <fstream>
#include <gtest/gtest.h>

using namespace penstock;
using Json = nlohmann::ordered_json;

namespace {

std::string contents(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A file with these cases.
std::string cases(const std::string &list) {
  return R"({"schema": "penstock-deadlock-cases", "version": 1, "cases": [)" +
         list + "]}";
}

/// The file of one case with these programs.
std::string file(const std::string &programs, const std::string &more = "") {
  return cases(R"({"id": "X", "programs": )" + programs + more + "}");
}

std::string faultOf(const std::string &text) {
  const Result<std::vector<Case>> cases = readCases(text);
  return cases ? "" : cases.message();
}

/// What is wrong with one item of rank 0; rank 1 does nothing.
std::string faultOfItem(const std::string &item) {
  const std::string place = "case X, rank 0, item 0: ";
  const std::string fault =
      faultOf(file(R"({"0": [)" + item + R"(], "1": []})"));
  return fault.starts_with(place) ? fault.substr(place.size()) : "?" + fault;
}

/// Each entry waits for the next, the last for the first.
void expectRealCycle(const Case &c, const std::vector<Site> &cycle) {
  const Matching matching = matchTransfers(c.program);
  for (size_t k = 0; k < cycle.size(); ++k) {
    const Site from = cycle[k], to = cycle[(k + 1) % cycle.size()];
    const Instruction &a =
        c.program.ranks[from.rank].instructions[from.instruction];
    const Instruction &b =
        c.program.ranks[to.rank].instructions[to.instruction];
    if (from.rank == to.rank) {
      EXPECT_LT(to.instruction, from.instruction) << c.id;
      EXPECT_TRUE(a.queue == b.queue ||
                  (usesComm(a.op) && usesComm(b.op) && a.comm == b.comm))
          << c.id;
    } else if (isTransfer(a.op)) {
      EXPECT_EQ(matching.partner[from.rank][from.instruction], to.instruction)
          << c.id;
      EXPECT_EQ(a.peer, to.rank) << c.id;
    } else {
      EXPECT_EQ(a.op, Op::AllReduce) << c.id;
      EXPECT_EQ(a.microbatch, b.microbatch) << c.id;
    }
  }
}

TEST(Cases, RecordedVerdictsAreReproduced) {
  const Result<std::vector<Case>> cases =
      readCases(contents(PENSTOCK_SOURCE_DIR "/test/cases/deadlock.json"));
  ASSERT_TRUE(cases) << cases.message();
  ASSERT_EQ(cases->size(), 23u);
  for (const Case &c : *cases) {
    const Status status = wellFormed(c.program);
    ASSERT_TRUE(status) << c.id << ": " << status.message();
    ASSERT_EQ(c.recorded.size(), 11u) << c.id;
    const Json verdict = judge(c);
    for (const std::string &key : differences(c.recorded, verdict))
      ADD_FAILURE() << c.id << " (" << c.source << "): " << key << " is "
                    << verdict[key] << ", recorded " << c.recorded[key];
    const DeadlockResult documented =
        checkDeadlock(c.program, Semantics::Documented);
    expectRealCycle(c, documented.cycle);
    EXPECT_EQ(verdict["cycle"].size(), documented.cycle.size());
  }
}

TEST(Cases, BecomePrograms) {
  const Result<std::vector<Case>> cases = readCases(file(
      R"({
    "4": [{"op": "recv", "queue": "q", "comm": "c", "peer": 2, "message": "x"}],
    "2": [
      {"op": "compute", "queue": "main", "message": "F"},
      {"op": "group", "queue": "side", "members": [
        {"op": "send", "comm": "c", "peer": 4, "message": "x"},
        {"op": "recv", "comm": "d", "peer": 4, "message": "F"}]},
      {"op": "collective", "queue": "main", "comm": "d", "ranks": [4, 2],
       "message": "init"}]})",
      R"(, "note": "n")"));
  ASSERT_TRUE(cases) << cases.message();
  ASSERT_EQ(cases->size(), 1u);
  const Case &c = cases->front();
  EXPECT_TRUE(wellFormed(c.program));
  EXPECT_EQ(c.note, "n");
  EXPECT_TRUE(c.recorded.is_null());
  EXPECT_EQ(c.ranks, (std::vector<int32_t>{2, 4}));
  EXPECT_EQ(c.program.problem.numMicrobatches, 3);
  const auto &insts = c.program.ranks[0].instructions;
  ASSERT_EQ(insts.size(), 4u);
  EXPECT_EQ(c.items[0], (std::vector<uint32_t>{0, 1, 1, 2}));
  EXPECT_EQ(insts[0].op, Op::Forward);
  EXPECT_EQ(insts[0].queue, 0);
  EXPECT_EQ(insts[1].queue, 1);
  EXPECT_FALSE(insts[1].joined);
  EXPECT_TRUE(insts[2].joined);
  EXPECT_EQ(insts[2].queue, 1);
  EXPECT_NE(insts[1].comm, insts[3].comm);
  EXPECT_EQ(insts[2].comm, insts[3].comm);
  EXPECT_EQ(insts[3].queue, 0);
  EXPECT_EQ(c.program.rankSets, (std::vector<std::vector<int32_t>>{{0, 1}}));
  EXPECT_EQ(c.what({0, 0}), "compute F");
  EXPECT_EQ(c.what({0, 1}), "send x to 4 on c");
  EXPECT_EQ(c.what({0, 2}), "recv F from 4 on d");
  EXPECT_EQ(c.what({0, 3}), "collective init on d");
  EXPECT_EQ(c.what({1, 0}), "recv x from 2 on c");
}

TEST(Cases, Differences) {
  const Json cycle = {{{"rank", 0}, {"item", 0}, {"what", "a"}},
                      {{"rank", 1}, {"item", 0}, {"what", "b"}}};
  Json shorter = cycle, longer = cycle;
  shorter.erase(0);
  longer.push_back(cycle[0]);
  const Json recorded = {{"closure", "ok"}, {"cycle", cycle}};
  auto with = [&](const Json &other) {
    return differences(recorded, {{"closure", "ok"}, {"cycle", other}});
  };
  using Keys = std::vector<std::string>;
  EXPECT_EQ(with(cycle), Keys{});
  EXPECT_EQ(with(shorter), Keys{});
  EXPECT_EQ(with(longer), Keys{"cycle"});
  EXPECT_EQ(with(nullptr), Keys{"cycle"});
  EXPECT_EQ(differences({{"cycle", nullptr}}, {{"cycle", cycle}}),
            Keys{"cycle"});
  EXPECT_EQ(differences({{"closure", "ok"}}, {{"closure", "deadlock"}}),
            Keys{"closure"});
  EXPECT_EQ(differences({}, {{"closure", "deadlock"}}), Keys{});
}

TEST(Cases, FaultsOfTheFile) {
  for (const char *text : {"", "{\"schema\": }", "{", "\xff"})
    EXPECT_EQ(faultOf(text).find("is not JSON: parse error at line 1, column"),
              0u)
        << faultOf(text);
  EXPECT_EQ(faultOf("[]"),
            "the file must hold one object, {\"schema\": "
            "\"penstock-deadlock-cases\", \"version\": 1, \"cases\": []}");
  EXPECT_EQ(faultOf("{}"), "is not a file of cases: \"schema\" must be "
                           "\"penstock-deadlock-cases\"");
  auto head = [](const std::string &rest) {
    return faultOf(R"({"schema": "penstock-deadlock-cases")" + rest + "}");
  };
  EXPECT_EQ(head(""), "has no \"version\"; add it");
  EXPECT_EQ(head(R"(, "version": 1)"), "has no \"cases\"; add it");
  EXPECT_EQ(head(R"(, "version": 2, "cases": [])"),
            "the version is 2; this release reads version 1");
  EXPECT_EQ(head(R"(, "version": 1, "cases": 3)"), "\"cases\" must be a list");
  EXPECT_EQ(head(R"(, "version": 1, "cases": [], "title": 1)"),
            "\"title\" must be a string");
  EXPECT_EQ(head(R"(, "version": 1, "cases": [], "name": "a")"),
            "has the unknown key \"name\"; there are schema, version, cases, "
            "title");
  EXPECT_EQ(head(R"(, "version": 1, "version": 1, "cases": [])"),
            "the key \"version\" stands twice in one object; remove one");
  EXPECT_EQ(head(R"(, "version": 1, "cases": [])"), "");
}

TEST(Cases, FaultsOfACase) {
  auto fault = [](const std::string &list) { return faultOf(cases(list)); };
  EXPECT_EQ(fault("1"), "case 0: must be an object");
  EXPECT_EQ(fault(R"({"programs": {}})"), "case 0: has no \"id\"; add it");
  EXPECT_EQ(fault(R"({"id": "", "programs": {"0": []}})"),
            "case 0: its id is empty; give it a name");
  EXPECT_EQ(fault(R"({"id": 1})"), "case 0: \"id\" must be a string");
  EXPECT_EQ(fault(R"({"id": "A"})"), "case A: has no \"programs\"; add it");
  EXPECT_EQ(fault(R"({"id": "A", "programs": {"0": []}, "nots": 1})"),
            "case A: has the unknown key \"nots\"; there are id, programs, "
            "source, note, verdict");
  EXPECT_EQ(fault(R"({"id": "A", "programs": {"0": []}, "note": 1})"),
            "case A: \"note\" must be a string");
  EXPECT_EQ(fault(R"({"id": "A", "programs": {"0": []}, "source": 1})"),
            "case A: \"source\" must be a string");
  EXPECT_EQ(fault(R"({"id": "A", "programs": {"0": []}},
                     {"id": "A", "programs": {"0": []}})"),
            "case A: there is another case with this id; rename one");
  for (const char *programs : {"{}", "[]"})
    EXPECT_EQ(faultOf(file(programs)),
              "case X: \"programs\" must be an object with a list for each "
              "rank, as in {\"0\": [], \"1\": []}");
  for (const char *key : {"one", "-1", "01", "", "1 ", "4294967296"})
    EXPECT_EQ(faultOf(file(R"({")" + std::string(key) + R"(": []})")),
              "case X: the key \"" + std::string(key) +
                  "\" of \"programs\" is not the number of a rank; write 0, 1, "
                  "and so on");
  EXPECT_EQ(faultOf(file(R"({"0": {}})")),
            "case X: rank 0 must be a list of items");
  EXPECT_EQ(faultOf(file(R"({"0": [], "0": []})")),
            "the key \"0\" stands twice in one object; remove one");
}

TEST(Cases, FaultsOfAnItem) {
  EXPECT_EQ(faultOfItem("[]"), "must be an object");
  EXPECT_EQ(faultOfItem("{}"), "has no \"op\"; add it");
  EXPECT_EQ(faultOfItem(R"({"op": "copy"})"),
            "has the op \"copy\"; there are send, recv, group, collective, "
            "compute");
  EXPECT_EQ(faultOfItem(R"({"op": 1})"), "\"op\" must be a string");
  EXPECT_EQ(faultOfItem(R"({"op": "compute", "queue": "q"})"),
            "has no \"message\"; add it");
  EXPECT_EQ(faultOfItem(R"({"op": "compute", "queue": "q", "message": "F",
                            "comm": "w"})"),
            "has the unknown key \"comm\"; there are op, queue, message");
  EXPECT_EQ(faultOfItem(R"({"op": "compute", "queue": 0, "message": "F"})"),
            "\"queue\" must be a string");
  EXPECT_EQ(faultOfItem(R"({"op": "compute", "queue": "q", "message": 1})"),
            "\"message\" must be a string");

  auto send = [](const std::string &peer, const std::string &comm = R"("w")") {
    return faultOfItem(R"({"op": "send", "queue": "q", "comm": )" + comm +
                       R"(, "message": "x", "peer": )" + peer + "}");
  };
  EXPECT_EQ(send("1"), "?");
  EXPECT_EQ(send("1", "0"), "\"comm\" must be a string");
  for (const char *peer : {"-1", "\"1\"", "1.0", "null", "99999999999"})
    EXPECT_EQ(send(peer), "\"peer\" must be the number of a rank");
  EXPECT_EQ(send("0"),
            "its peer is the rank itself; a transfer joins two ranks");
  EXPECT_EQ(send("2"),
            "its peer, rank 2, has no list in \"programs\"; correct it, or add "
            "the rank with an empty list");
  EXPECT_EQ(faultOfItem(R"({"op": "recv", "queue": "q"})"),
            "has no \"comm\"; add it");

  auto group = [](const std::string &members) {
    return faultOfItem(R"({"op": "group", "queue": "q", "members": )" +
                       members + "}");
  };
  for (const char *members : {"[]", "{}", "1"})
    EXPECT_EQ(group(members),
              "\"members\" must be a list of one or more sends and receives");
  EXPECT_EQ(faultOfItem(R"({"op": "group", "queue": "q"})"),
            "has no \"members\"; add it");
}

TEST(Cases, FaultsOfAMember) {
  auto fault = [](const std::string &member) {
    return faultOf(file(R"({"1": [], "0": [{"op": "group", "queue": "q",
      "members": [{"op": "send", "comm": "w", "peer": 1, "message": "x"}, )" +
                        member + "]}]}"));
  };
  const std::string place = "case X, rank 0, item 0, member 1: ";
  EXPECT_EQ(fault("1"), place + "must be an object");
  EXPECT_EQ(fault(R"({"op": 1})"), place + "\"op\" must be a string");
  EXPECT_EQ(fault(R"({})"), place + "has no \"op\"; add it");
  EXPECT_EQ(fault(R"({"op": "compute"})"),
            place + "has the op \"compute\"; a group has only send and recv");
  EXPECT_EQ(fault(R"({"op": "send", "queue": "q"})"),
            place + "has a \"queue\"; give it to the group, whose members all "
                    "use the same");
  EXPECT_EQ(fault(R"({"op": "send", "comm": "w", "peer": 1})"),
            place + "has no \"message\"; add it");
}

TEST(Cases, FaultsOfACollective) {
  auto fault = [](const std::string &ranks) {
    return faultOfItem(R"({"op": "collective", "queue": "q", "comm": "w",
                           "message": "init", "ranks": )" +
                       ranks + "}");
  };
  EXPECT_EQ(fault("[0, 1]"), "?");
  for (const char *ranks : {"3", "[\"0\"]", "[-1]"})
    EXPECT_EQ(fault(ranks), "\"ranks\" must be a list of the numbers of ranks");
  EXPECT_EQ(fault("[0, 2]"),
            "rank 2 of \"ranks\" has no list in \"programs\"; correct it, or "
            "add the rank with an empty list");
  EXPECT_EQ(fault("[0, 0]"), "\"ranks\" names rank 0 twice; remove one");
  for (const char *ranks : {"[1]", "[]"})
    EXPECT_EQ(fault(ranks), "\"ranks\" lacks the rank itself; add 0");

  const std::string init = R"({"op": "collective", "queue": "q", "comm": "w",
                               "message": "init", "ranks": )";
  EXPECT_EQ(faultOf(file(R"({"0": [)" + init + "[0, 1]}, " + init +
                         R"([0, 1]}], "1": []})")),
            "case X, rank 0, item 1: this rank has a collective with the same "
            "comm and message already; name the second message otherwise");
  EXPECT_EQ(faultOf(file(R"({"0": [)" + init + R"([0, 1]}], "1": [)" + init +
                         R"([0, 1, 2]}], "2": []})")),
            "case X, rank 1, item 0: its \"ranks\" are not those of the same "
            "collective in case X, rank 0, item 0; make them equal");
}

TEST(Cases, FaultsOfAVerdict) {
  auto fault = [](const std::string &verdict) {
    return faultOf(file(R"({"0": []})", R"(, "verdict": )" + verdict));
  };
  const std::string place = "case X, verdict: ";
  EXPECT_EQ(fault("{}"), "");
  EXPECT_EQ(fault("1"), place + "must be an object");
  EXPECT_EQ(fault(R"({"closed": "ok"})"),
            place + "has the unknown key \"closed\"; there are documented, "
                    "buffered, min_capacity, layered, closure, first_use, "
                    "serialised, serialised_buffered, mismatch, cycle, "
                    "unmatched");
  for (const char *value : {"\"error\"", "1", "null"})
    EXPECT_EQ(fault(R"({"closure": )" + std::string(value) + "}"),
              place + "\"closure\" must be \"ok\" or \"deadlock\"");
  EXPECT_EQ(fault(R"({"first_use": "error"})"), "");
  EXPECT_EQ(fault(R"({"first_use": true})"),
            place + "\"first_use\" must be \"ok\", \"deadlock\" or \"error\"");
  EXPECT_EQ(fault(R"({"min_capacity": -1})"),
            place + "\"min_capacity\" must be a number of messages or null");
  EXPECT_EQ(fault(R"({"mismatch": "no"})"),
            place + "\"mismatch\" must be true or false");
  for (const char *value : {"[]", "{}", R"([{"rank": 0, "item": 0}])",
                            R"([{"rank": 0, "item": -1, "what": "x"}])",
                            R"([{"rank": 0, "item": 0, "what": 1}])"})
    EXPECT_EQ(fault(R"({"cycle": )" + std::string(value) + "}"),
              place + "\"cycle\" must be null or a list of {\"rank\": 0, "
                      "\"item\": 0, \"what\": \"send x to 1 on w\"}");
}

TEST(Cases, TooManyNames) {
  auto list = [](int count, const std::string &begin, const std::string &end) {
    std::string items;
    for (int i = 0; i < count; ++i)
      items += (i ? "," : "") + begin + std::to_string(i) + end;
    return items;
  };
  EXPECT_EQ(
      faultOf(file(R"({"0": [)" +
                   list(257, R"({"op": "compute", "message": "F", "queue": "q)",
                        R"("})") +
                   "]}")),
      "case X, rank 0, item 256: names more than 256 queues of its rank; a "
      "program can number no more");
  EXPECT_EQ(
      faultOf(file(R"({"1": [], "0": [)" +
                   list(65537,
                        R"({"op": "send", "queue": "q", "peer": 1,
                            "message": "x", "comm": "c)",
                        R"("})") +
                   "]}")),
      "case X, rank 0, item 65536: names more than 65536 communicators; a "
      "program can number no more");
}

TEST(Cases, StrangeTextInMessages) {
  EXPECT_EQ(faultOfItem("{\"op\": \"" + std::string(100, 'a') + "\"}"),
            "has the op \"" + std::string(60, 'a') +
                "...\"; there are send, recv, group, collective, compute");
  EXPECT_EQ(faultOfItem(R"({"op": "a\nb\u00e4"})"),
            "has the op \"a\\nb\\u00e4\"; there are send, recv, group, "
            "collective, compute");
}

} // namespace
