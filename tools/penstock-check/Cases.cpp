//===- Cases.cpp - Checks files of communication programs -----------------===//
//
// Each case gets the verdict of every model. A case is accepted when it ends
// under closure and every message lands where it belongs.
//
//===----------------------------------------------------------------------===//

#include "Check.h"

#include "penstock/Analysis/Report.h"
#include "penstock/Import/Cases.h"
#include "penstock/Import/TextFile.h"
#include "penstock/Program/Text.h"

#include <algorithm>
#include <array>
#include <iostream>

using namespace penstock;
using namespace penstock::check;

namespace {

/// Columns of the table: a key, and what to call it.
constexpr std::array<std::pair<const char *, const char *>, 9> kColumns = {{
    {"closure", "closure"},
    {"documented", "documented"},
    {"layered", "layered"},
    {"serialised", "serialised"},
    {"first_use", "first use"},
    {"buffered", "buffered"},
    {"serialised_buffered", "ser. buffered"},
    {"min_capacity", "capacity"},
    {"mismatch", "mismatch"},
}};

struct Judged {
  const Case &c;
  Json verdict;
  std::vector<std::string> differs;

  bool accepted() const {
    return verdict["closure"] == "ok" && verdict["mismatch"] == false;
  }
};

std::string cellText(const Json &value) {
  if (value.is_null())
    return "none";
  if (value.is_boolean())
    return value ? "yes" : "no";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// "rank 0, item 3: send x to 1 on w"
std::string placeText(const Json &place) {
  return "rank " + place["rank"].dump() + ", item " + place["item"].dump() +
         ": " + place["what"].get<std::string>();
}
std::string placeText(const Case &c, Site site) {
  return "rank " + std::to_string(c.ranks[site.rank]) + ", item " +
         std::to_string(c.items[site.rank][site.instruction]) + ": " +
         c.what(site);
}

void printTable(const std::vector<Judged> &list) {
  std::vector<std::vector<std::string>> rows = {{"case"}};
  for (const auto &[key, title] : kColumns)
    rows[0].push_back(title);
  for (const Judged &judged : list) {
    rows.push_back({judged.c.id});
    for (const auto &[key, title] : kColumns)
      rows.back().push_back(cellText(judged.verdict[key]));
  }
  std::vector<size_t> widths(rows[0].size());
  for (const auto &row : rows)
    for (size_t k = 0; k < row.size(); ++k)
      widths[k] = std::max(widths[k], row[k].size());
  for (const auto &row : rows) {
    std::string line;
    for (size_t k = 0; k < row.size(); ++k)
      line += row[k] + std::string(widths[k] - row[k].size() + 2, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    std::cout << line << '\n';
  }
}

void printText(const std::string &path, const std::vector<Judged> &list) {
  const size_t accepted = std::count_if(
      list.begin(), list.end(), [](const Judged &j) { return j.accepted(); });
  std::cout << path << ": " << counted(list.size(), "case") << ", " << accepted
            << " accepted, " << list.size() - accepted << " refused\n";
  printTable(list);
  for (const Judged &judged : list) {
    const Json &cycle = judged.verdict["cycle"];
    const Json &unmatched = judged.verdict["unmatched"];
    for (size_t k = 0; k < cycle.size(); ++k)
      std::cout << (k == 0 ? judged.c.id + ": " : std::string("  "))
                << placeText(cycle[k])
                << (k + 1 < cycle.size() ? ", which waits for\n"
                                         : ", which waits for the first\n");
    for (const Json &place : unmatched)
      std::cout << judged.c.id << ": " << placeText(place)
                << ", which has no partner\n";
    if (const auto swap = firstSwap(judged.c))
      std::cout << judged.c.id << ": " << placeText(judged.c, swap->first)
                << " is received by " << placeText(judged.c, swap->second)
                << '\n';
  }
  for (const Judged &judged : list)
    for (const std::string &key : judged.differs)
      std::cout << path << ": case " << judged.c.id << ": " << key << " is "
                << judged.verdict[key].dump() << ", but the file records "
                << judged.c.recorded[key].dump() << '\n';
  printAssumptions();
}

} // namespace

ExitStatus check::checkCaseFile(const Options &options) {
  auto fail = [&](const std::string &why) {
    return notReadable(options, options.path + ": " + why);
  };
  if (options.order || options.dump)
    return fail("--order and --dump are for programs and schedules, not "
                "for cases; leave them out");
  const Result<std::string> text = readTextFile(options.path);
  if (!text)
    return fail(text.message());
  const Result<std::vector<Case>> cases = readCases(*text);
  if (!cases)
    return fail(cases.message());

  std::vector<Judged> list;
  for (const Case &c : *cases) {
    Json verdict = judge(c);
    std::vector<std::string> differs = differences(c.recorded, verdict);
    list.push_back({c, std::move(verdict), std::move(differs)});
  }
  if (options.json) {
    Json json = {{"cases", Json::array()}, {"assumptions", assumptions()}};
    for (const Judged &judged : list) {
      Json item = {{"id", judged.c.id}, {"verdict", judged.verdict}};
      if (!judged.differs.empty())
        item["differs"] = judged.differs;
      json["cases"].push_back(std::move(item));
    }
    print(json);
  } else {
    printText(options.path, list);
  }
  return std::all_of(list.begin(), list.end(),
                     [](const Judged &j) { return j.accepted(); })
             ? Accepted
             : Refused;
}
