//===- Cases.h - Small communication programs with verdicts -----*- C++ -*-===//
//
// Reads the JSON in which deadlocks are collected: per rank a list of sends,
// receives, groups, collectives and computes. Judges each program under every
// model. docs/import.md has the format.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_IMPORT_CASES_H
#define PENSTOCK_IMPORT_CASES_H

#include "penstock/Program/Result.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

/// A program of a case file. Its names have become numbers.
struct Case {
  std::string id, source, note;
  /// Well-formed. A message is the activation of stage 0 and of the micro-batch
  /// that is its number in `messages`, a collective the all-reduce and a
  /// compute the forward of that number.
  Program program;
  std::vector<std::string> messages; ///< by micro-batch
  std::vector<std::string> comms;    ///< by communicator
  std::vector<int32_t> ranks;        ///< number in the file, by rank, ascending
  /// items[rank][i]: position of instruction i in the list of its rank.
  std::vector<std::vector<uint32_t>> items;
  /// The verdict that the file records, or as much of it as it does; else null.
  nlohmann::ordered_json recorded;

  /// "send x0 to 1 on w", "collective init on w", "compute F"
  std::string what(Site site) const;
};

/// Reads a file of cases. Strict: an unknown key or op, a wrong type, a peer
/// that is no rank is a failure that names case, rank and item, and says what
/// would be right.
Result<std::vector<Case>> readCases(std::string_view text);

/// The first send whose message arrives in the place of another one, with the
/// receive; nothing where there is none.
std::optional<std::pair<Site, Site>> firstSwap(const Case &c);

/// The verdict of every model: an object with the keys of the file.
nlohmann::ordered_json judge(const Case &c);

/// The keys in which a verdict contradicts the recorded one. A cycle may be
/// another one, but no longer.
std::vector<std::string> differences(const nlohmann::ordered_json &recorded,
                                     const nlohmann::ordered_json &verdict);

} // namespace penstock

#endif // PENSTOCK_IMPORT_CASES_H
