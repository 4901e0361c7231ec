//===- Cases.cpp - Reads and judges communication programs ----------------===//
//
// The names of a case (queues, communicators, messages) become the numbers of
// a program, so that the verifier checks it as it checks any other.
//
//===----------------------------------------------------------------------===//

#include "penstock/Import/Cases.h"

#include "penstock/Analysis/Verify.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

using namespace penstock;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::string_view kSchema = "penstock-deadlock-cases";

/// The keys of a verdict, and what may stand there.
enum class Kind { Outcome, FirstUse, Capacity, Flag, Places };
constexpr std::pair<std::string_view, Kind> kVerdictKeys[] = {
    {"documented", Kind::Outcome},    {"buffered", Kind::Outcome},
    {"min_capacity", Kind::Capacity}, {"layered", Kind::Outcome},
    {"closure", Kind::Outcome},       {"first_use", Kind::FirstUse},
    {"serialised", Kind::Outcome},    {"serialised_buffered", Kind::Outcome},
    {"mismatch", Kind::Flag},         {"cycle", Kind::Places},
    {"unmatched", Kind::Places},
};

/// Text of a file as it can stand in a message.
std::string shown(std::string_view text) {
  static constexpr size_t kMax = 60;
  std::string out = Json(text.substr(0, kMax))
                        .dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMax)
    out.insert(out.size() - 1, "...");
  return out;
}

bool isIndex(const Json &json) {
  return json.is_number_unsigned() && json.get<uint64_t>() <= INT32_MAX;
}

/// Numbers names by their first use.
class Names {
public:
  size_t number(const std::string &name) {
    auto [it, isNew] = numbers.try_emplace(name, names.size());
    if (isNew)
      names.push_back(name);
    return it->second;
  }
  std::vector<std::string> names;

private:
  std::unordered_map<std::string, size_t> numbers;
};

/// Looks through JSON for faults of the text, and for a key that stands twice
/// in an object, of which the parser would keep one.
class KeyCheck final : public nlohmann::json_sax<Json> {
public:
  std::string fault;

  bool start_object(size_t) override {
    keys.emplace_back();
    return true;
  }
  bool end_object() override {
    keys.pop_back();
    return true;
  }
  bool key(std::string &name) override {
    if (keys.back().insert(name).second)
      return true;
    fault =
        "the key " + shown(name) + " stands twice in one object; remove one";
    return false;
  }
  bool parse_error(size_t, const std::string &,
                   const Json::exception &error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    const std::string_view what = error.what();
    fault = "is not JSON: ";
    fault += what.substr(std::min(what.find("] ") + 2, what.size()));
    return false;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string &) override { return true; }
  bool string(std::string &) override { return true; }
  bool binary(Json::binary_t &) override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }

private:
  std::vector<std::set<std::string>> keys; ///< of the objects that are open
};

class Reader {
public:
  Result<std::vector<Case>> read(std::string_view text);

private:
  bool fail(std::string why) {
    fault = (place.empty() ? "" : place + ": ") + std::move(why);
    return false;
  }
  bool parse(std::string_view text, Json &json);
  bool checkKeys(const Json &object, std::initializer_list<const char *> needed,
                 std::initializer_list<const char *> optional);
  bool readString(const Json &object, const char *key, std::string &value);
  bool readCase(const Json &json);
  bool readPrograms(const Json &json);
  bool readItem(const Json &json, int32_t rank);
  bool readTransfer(const Json &json, int32_t rank, Instruction &inst);
  bool readCollective(const Json &json, int32_t rank, Instruction &inst);
  bool readMessage(const Json &json, Instruction &inst);
  bool readComm(const Json &json, Instruction &inst);
  bool readQueue(const Json &json, Instruction &inst);
  bool readVerdict(const Json &json);
  bool checkPlaces(const std::string &key, const Json &json);
  /// The rank that the file calls so, or -1.
  int32_t findRank(int64_t number) const {
    auto it =
        std::lower_bound(current.ranks.begin(), current.ranks.end(), number);
    return it != current.ranks.end() && *it == number
               ? static_cast<int32_t>(it - current.ranks.begin())
               : -1;
  }
  void add(int32_t rank, const Instruction &inst) {
    current.program.ranks[rank].instructions.push_back(inst);
    current.items[rank].push_back(item);
  }

  std::string fault, place;
  std::vector<Case> cases;
  std::set<std::string> ids;

  // The case that is being read.
  Case current;
  Names messages, comms, queues;
  uint32_t item = 0;
  std::map<std::vector<int32_t>, int32_t> rankSets;
  struct Collective {
    int32_t rankSet, lastRank;
    std::string place;
  };
  std::map<std::pair<uint16_t, int32_t>, Collective> collectives;
};

} // namespace

Result<std::vector<Case>> Reader::read(std::string_view text) {
  Json json;
  auto readAll = [&] {
    if (!parse(text, json))
      return false;
    if (!json.is_object())
      return fail("the file must hold one object, {\"schema\": \"" +
                  std::string(kSchema) + "\", \"version\": 1, \"cases\": []}");
    if (auto it = json.find("schema"); it == json.end() || *it != Json(kSchema))
      return fail("is not a file of cases: \"schema\" must be \"" +
                  std::string(kSchema) + '"');
    if (!checkKeys(json, {"schema", "version", "cases"}, {"title"}))
      return false;
    if (json["version"] != 1)
      return fail("the version is " + json["version"].dump() +
                  "; this release reads version 1");
    if (std::string title; !readString(json, "title", title))
      return false;
    if (!json["cases"].is_array())
      return fail("\"cases\" must be a list");
    for (size_t i = 0; i < json["cases"].size(); ++i) {
      place = "case " + std::to_string(i);
      if (!readCase(json["cases"][i]))
        return false;
    }
    return true;
  };
  if (!readAll())
    return Failure{fault};
  return std::move(cases);
}

bool Reader::parse(std::string_view text, Json &json) {
  KeyCheck check;
  if (!Json::sax_parse(text, &check))
    return fail(check.fault);
  json = Json::parse(text);
  return true;
}

bool Reader::checkKeys(const Json &object,
                       std::initializer_list<const char *> needed,
                       std::initializer_list<const char *> optional) {
  for (const char *key : needed)
    if (!object.contains(key))
      return fail("has no \"" + std::string(key) + "\"; add it");
  for (const auto &[key, value] : object.items()) {
    auto isKey = [&](const char *known) { return key == known; };
    if (std::any_of(needed.begin(), needed.end(), isKey) ||
        std::any_of(optional.begin(), optional.end(), isKey))
      continue;
    std::string known;
    for (auto &list : {needed, optional})
      for (const char *k : list)
        known += (known.empty() ? "" : ", ") + std::string(k);
    return fail("has the unknown key " + shown(key) + "; there are " + known);
  }
  return true;
}

/// Leaves the value alone where there is none.
bool Reader::readString(const Json &object, const char *key,
                        std::string &value) {
  auto it = object.find(key);
  if (it == object.end())
    return true;
  if (!it->is_string())
    return fail("\"" + std::string(key) + "\" must be a string");
  value = it->get<std::string>();
  return true;
}

bool Reader::readCase(const Json &json) {
  current = {};
  messages = comms = {};
  rankSets.clear();
  collectives.clear();
  if (!json.is_object())
    return fail("must be an object");
  if (!readString(json, "id", current.id))
    return false;
  if (!current.id.empty())
    place = "case " + current.id;
  if (!checkKeys(json, {"id", "programs"}, {"source", "note", "verdict"}) ||
      !readString(json, "source", current.source) ||
      !readString(json, "note", current.note))
    return false;
  if (current.id.empty())
    return fail("its id is empty; give it a name");
  if (!ids.insert(current.id).second)
    return fail("there is another case with this id; rename one");
  if (!readPrograms(json["programs"]))
    return false;
  place = "case " + current.id;
  if (auto verdict = json.find("verdict");
      verdict != json.end() && !readVerdict(*verdict))
    return false;

  Problem &problem = current.program.problem;
  problem.name = current.id;
  problem.numRanks = static_cast<int32_t>(current.ranks.size());
  problem.numMicrobatches =
      std::max(1, static_cast<int32_t>(messages.names.size()));
  problem.stages.resize(1);
  problem.placement = {0};
  numberRankSets(current.program);
  current.messages = std::move(messages.names);
  current.comms = std::move(comms.names);
  cases.push_back(std::move(current));
  return true;
}

bool Reader::readPrograms(const Json &json) {
  if (!json.is_object() || json.empty())
    return fail("\"programs\" must be an object with a list for each rank, as "
                "in {\"0\": [], \"1\": []}");
  std::vector<const Json *> lists;
  std::vector<std::pair<int32_t, const Json *>> ranks;
  for (const auto &[key, list] : json.items()) {
    int32_t number = -1;
    auto [end, error] =
        std::from_chars(key.data(), key.data() + key.size(), number);
    if (error != std::errc() || number < 0 || std::to_string(number) != key)
      return fail("the key " + shown(key) +
                  " of \"programs\" is not the number of a rank; write 0, 1, "
                  "and so on");
    if (!list.is_array())
      return fail("rank " + key + " must be a list of items");
    ranks.push_back({number, &list});
  }
  if (ranks.size() > kMaxRanks)
    return fail("has " + std::to_string(ranks.size()) + " ranks; at most " +
                std::to_string(kMaxRanks) + " can be numbered");
  std::sort(ranks.begin(), ranks.end());
  for (auto &[number, list] : ranks)
    current.ranks.push_back(number);
  current.program.ranks.resize(ranks.size());
  current.items.resize(ranks.size());
  const std::string ofCase = place;
  for (size_t r = 0; r < ranks.size(); ++r) {
    queues = {};
    const Json &list = *ranks[r].second;
    for (item = 0; item < list.size(); ++item) {
      place = ofCase + ", rank " + std::to_string(ranks[r].first) + ", item " +
              std::to_string(item);
      if (!readItem(list[item], static_cast<int32_t>(r)))
        return false;
    }
  }
  return true;
}

bool Reader::readItem(const Json &json, int32_t rank) {
  if (!json.is_object())
    return fail("must be an object");
  std::string op;
  if (!json.contains("op"))
    return fail("has no \"op\"; add it");
  if (!readString(json, "op", op))
    return false;
  Instruction inst;
  inst.stage = 0;
  if (op == "compute") {
    inst.op = Op::Forward;
    if (!checkKeys(json, {"op", "queue", "message"}, {}) ||
        !readQueue(json, inst) || !readMessage(json, inst))
      return false;
    add(rank, inst);
    return true;
  }
  if (op == "send" || op == "recv") {
    if (!checkKeys(json, {"op", "queue", "comm", "peer", "message"}, {}) ||
        !readQueue(json, inst) || !readTransfer(json, rank, inst))
      return false;
    add(rank, inst);
    return true;
  }
  if (op == "collective") {
    inst.op = Op::AllReduce;
    if (!checkKeys(json, {"op", "queue", "comm", "ranks", "message"}, {}) ||
        !readQueue(json, inst) || !readCollective(json, rank, inst))
      return false;
    add(rank, inst);
    return true;
  }
  if (op != "group")
    return fail("has the op " + shown(op) +
                "; there are send, recv, group, collective, compute");

  if (!checkKeys(json, {"op", "queue", "members"}, {}) ||
      !readQueue(json, inst))
    return false;
  const Json &members = json["members"];
  if (!members.is_array() || members.empty())
    return fail("\"members\" must be a list of one or more sends and receives");
  const std::string ofGroup = place;
  for (size_t i = 0; i < members.size(); ++i) {
    place = ofGroup + ", member " + std::to_string(i);
    const Json &member = members[i];
    std::string memberOp;
    if (!member.is_object())
      return fail("must be an object");
    if (!member.contains("op"))
      return fail("has no \"op\"; add it");
    if (!readString(member, "op", memberOp))
      return false;
    if (memberOp != "send" && memberOp != "recv")
      return fail("has the op " + shown(memberOp) +
                  "; a group has only send and recv");
    if (member.contains("queue"))
      return fail("has a \"queue\"; give it to the group, whose members all "
                  "use the same");
    if (!checkKeys(member, {"op", "comm", "peer", "message"}, {}) ||
        !readTransfer(member, rank, inst))
      return false;
    inst.joined = i > 0;
    add(rank, inst);
  }
  return true;
}

bool Reader::readTransfer(const Json &json, int32_t rank, Instruction &inst) {
  inst.op = json["op"] == "send" ? Op::Send : Op::Recv;
  inst.payload = Payload::Activation;
  const Json &peer = json["peer"];
  if (!isIndex(peer))
    return fail("\"peer\" must be the number of a rank");
  inst.peer = findRank(peer.get<int64_t>());
  if (inst.peer < 0)
    return fail("its peer, rank " + peer.dump() +
                ", has no list in \"programs\"; correct it, or add the rank "
                "with an empty list");
  if (inst.peer == rank)
    return fail("its peer is the rank itself; a transfer joins two ranks");
  return readComm(json, inst) && readMessage(json, inst);
}

bool Reader::readCollective(const Json &json, int32_t rank, Instruction &inst) {
  if (!readComm(json, inst) || !readMessage(json, inst))
    return false;
  std::vector<int32_t> members;
  if (!json["ranks"].is_array())
    return fail("\"ranks\" must be a list of the numbers of ranks");
  for (const Json &number : json["ranks"]) {
    if (!isIndex(number))
      return fail("\"ranks\" must be a list of the numbers of ranks");
    members.push_back(findRank(number.get<int64_t>()));
    if (members.back() < 0)
      return fail("rank " + number.dump() +
                  " of \"ranks\" has no list in \"programs\"; correct it, or "
                  "add the rank with an empty list");
  }
  std::sort(members.begin(), members.end());
  if (auto twice = std::adjacent_find(members.begin(), members.end());
      twice != members.end())
    return fail("\"ranks\" names rank " +
                std::to_string(current.ranks[*twice]) + " twice; remove one");
  if (!std::binary_search(members.begin(), members.end(), rank))
    return fail("\"ranks\" lacks the rank itself; add " +
                std::to_string(current.ranks[rank]));

  auto &sets = current.program.rankSets;
  auto [set, isNew] =
      rankSets.try_emplace(std::move(members), int32_t(sets.size()));
  if (isNew)
    sets.push_back(set->first);
  inst.peer = set->second;
  auto [it, isFirst] = collectives.try_emplace(
      {inst.comm, inst.microbatch}, Collective{inst.peer, rank, place});
  if (isFirst)
    return true;
  if (it->second.lastRank == rank)
    return fail("this rank has a collective with the same comm and message "
                "already; name the second message otherwise");
  if (it->second.rankSet != inst.peer)
    return fail("its \"ranks\" are not those of the same collective in " +
                it->second.place + "; make them equal");
  it->second.lastRank = rank;
  return true;
}

bool Reader::readMessage(const Json &json, Instruction &inst) {
  std::string message;
  if (!readString(json, "message", message))
    return false;
  inst.microbatch = static_cast<int32_t>(messages.number(message));
  return true;
}

bool Reader::readComm(const Json &json, Instruction &inst) {
  std::string comm;
  if (!readString(json, "comm", comm))
    return false;
  const size_t number = comms.number(comm);
  if (number > UINT16_MAX)
    return fail("names more than " + std::to_string(UINT16_MAX + 1) +
                " communicators; a program can number no more");
  inst.comm = static_cast<uint16_t>(number);
  return true;
}

bool Reader::readQueue(const Json &json, Instruction &inst) {
  std::string queue;
  if (!readString(json, "queue", queue))
    return false;
  const size_t number = queues.number(queue);
  if (number > UINT8_MAX)
    return fail("names more than " + std::to_string(UINT8_MAX + 1) +
                " queues of its rank; a program can number no more");
  inst.queue = static_cast<uint8_t>(number);
  return true;
}

bool Reader::readVerdict(const Json &json) {
  place += ", verdict";
  if (!json.is_object())
    return fail("must be an object");
  for (const auto &[key, value] : json.items()) {
    auto known =
        std::find_if(std::begin(kVerdictKeys), std::end(kVerdictKeys),
                     [&, &key = key](const auto &k) { return k.first == key; });
    if (known == std::end(kVerdictKeys)) {
      std::string names;
      for (const auto &k : kVerdictKeys)
        names += (names.empty() ? "" : ", ") + std::string(k.first);
      return fail("has the unknown key " + shown(key) + "; there are " + names);
    }
    const std::string quotedKey = '"' + key + '"';
    switch (known->second) {
    case Kind::Outcome:
      if (value != "ok" && value != "deadlock")
        return fail(quotedKey + " must be \"ok\" or \"deadlock\"");
      break;
    case Kind::FirstUse:
      if (value != "ok" && value != "deadlock" && value != "error")
        return fail(quotedKey + " must be \"ok\", \"deadlock\" or \"error\"");
      break;
    case Kind::Capacity:
      if (!value.is_null() && !isIndex(value))
        return fail(quotedKey + " must be a number of messages or null");
      break;
    case Kind::Flag:
      if (!value.is_boolean())
        return fail(quotedKey + " must be true or false");
      break;
    case Kind::Places:
      if (!checkPlaces(quotedKey, value))
        return false;
      break;
    }
  }
  current.recorded = json;
  return true;
}

bool Reader::checkPlaces(const std::string &key, const Json &json) {
  const bool isList =
      json.is_array() && !json.empty() &&
      std::all_of(json.begin(), json.end(), [](const Json &entry) {
        return entry.is_object() && entry.size() == 3 &&
               entry.contains("rank") && isIndex(entry["rank"]) &&
               entry.contains("item") && isIndex(entry["item"]) &&
               entry.contains("what") && entry["what"].is_string();
      });
  if (isList || json.is_null())
    return true;
  return fail(key + " must be null or a list of {\"rank\": 0, \"item\": 0, "
                    "\"what\": \"send x to 1 on w\"}");
}

Result<std::vector<Case>> penstock::readCases(std::string_view text) {
  return Reader().read(text);
}

std::string Case::what(Site site) const {
  const Instruction &inst =
      program.ranks[site.rank].instructions[site.instruction];
  const std::string &message = messages[inst.microbatch];
  auto peer = [&] { return std::to_string(ranks[inst.peer]); };
  switch (inst.op) {
  case Op::Send:
    return "send " + message + " to " + peer() + " on " + comms[inst.comm];
  case Op::Recv:
    return "recv " + message + " from " + peer() + " on " + comms[inst.comm];
  case Op::AllReduce:
    return "collective " + message + " on " + comms[inst.comm];
  default:
    return "compute " + message;
  }
}

//===----------------------------------------------------------------------===//
// Verdicts
//===----------------------------------------------------------------------===//

std::optional<std::pair<Site, Site>> penstock::firstSwap(const Case &c) {
  const Matching matching = matchTransfers(c.program);
  for (int32_t r = 0; r < c.program.problem.numRanks; ++r) {
    const auto &insts = c.program.ranks[r].instructions;
    for (uint32_t i = 0; i < insts.size(); ++i) {
      if (insts[i].op != Op::Send || matching.partner[r][i] == kNoInstruction)
        continue;
      const Site recv = {insts[i].peer, matching.partner[r][i]};
      if (c.program.ranks[recv.rank]
              .instructions[recv.instruction]
              .microbatch != insts[i].microbatch)
        return std::pair(Site{r, i}, recv);
    }
  }
  return std::nullopt;
}

/// Some channel has unequal numbers of sends and receives.
static bool hasUnmatched(const Program &program) {
  const Matching matching = matchTransfers(program);
  for (size_t r = 0; r < program.ranks.size(); ++r) {
    const auto &insts = program.ranks[r].instructions;
    for (size_t i = 0; i < insts.size(); ++i)
      if (isTransfer(insts[i].op) && matching.partner[r][i] == kNoInstruction)
        return true;
  }
  return false;
}

Json penstock::judge(const Case &c) {
  const Program &program = c.program;
  auto outcome = [&](const Semantics &semantics) {
    return name(checkDeadlock(program, semantics).outcome());
  };
  auto places = [&](const std::vector<Site> &sites) {
    if (sites.empty())
      return Json();
    Json list = Json::array();
    for (Site site : sites)
      list.push_back({{"rank", c.ranks[site.rank]},
                      {"item", c.items[site.rank][site.instruction]},
                      {"what", c.what(site)}});
    return list;
  };
  constexpr int64_t kUnlimited = Semantics::kUnlimited;
  const DeadlockResult documented =
      checkDeadlock(program, Semantics::Documented);
  const std::optional<int64_t> capacity = minCapacity(program);
  return {
      {"documented", name(documented.outcome())},
      {"buffered", outcome({Semantics::Documented, kUnlimited})},
      {"min_capacity", capacity ? Json(*capacity) : Json()},
      {"layered", outcome(Semantics::Layered)},
      {"closure", outcome(Semantics::Closure)},
      {"first_use", outcome({Semantics::Documented, 0, false, true})},
      {"serialised", outcome({Semantics::Documented, 0, true})},
      {"serialised_buffered",
       outcome({Semantics::Documented, kUnlimited, true})},
      {"mismatch", hasUnmatched(program) || firstSwap(c)},
      {"cycle", places(documented.cycle)},
      {"unmatched", places(documented.unmatched)},
  };
}

std::vector<std::string> penstock::differences(const Json &recorded,
                                               const Json &verdict) {
  std::vector<std::string> keys;
  for (const auto &[key, value] : recorded.items()) {
    const Json &found = verdict[key];
    const bool isSame = key == "cycle" && value.is_array() && found.is_array()
                            ? found.size() <= value.size()
                            : found == value;
    if (!isSame)
      keys.push_back(key);
  }
  return keys;
}
