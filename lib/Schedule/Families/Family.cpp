//===- Family.cpp - What every schedule family needs ----------------------===//

#include "Family.h"

#include "penstock/Program/File.h"

#include <string>

namespace penstock {

static Failure refuse(std::string_view family, const std::string &why) {
  return Failure{std::string(family) + ": " + why};
}

Result<Program> emptyOrder(const Problem &problem, std::string_view family) {
  if (problem.numRanks < 1)
    return refuse(family, "there are no ranks; give at least one");
  if (problem.numMicrobatches < 1)
    return refuse(family, "there are no micro-batches; give at least one");
  if (problem.stages.empty())
    return refuse(family, "there are no stages; give at least one");
  const size_t numStages = problem.stages.size();
  if (problem.placement.empty() || problem.placement.size() % numStages != 0)
    return refuse(family, "the placement has " +
                              std::to_string(problem.placement.size()) +
                              " entries; give every chain one entry for each "
                              "of the " +
                              std::to_string(numStages) + " stages");
  for (size_t i = 0; i < problem.placement.size(); ++i)
    if (problem.placement[i] < 0 || problem.placement[i] >= problem.numRanks)
      return refuse(family, "stage " + std::to_string(i % numStages) +
                                " is placed on rank " +
                                std::to_string(problem.placement[i]) +
                                "; place it on a rank below " +
                                std::to_string(problem.numRanks));
  // Two actions for each stage and micro-batch, and two transfers of two ends
  // each between neighbouring stages on different ranks.
  const double perMicrobatch =
      2.0 * static_cast<double>(numStages) +
      (problem.numRanks > 1 ? 4.0 * static_cast<double>(numStages - 1) : 0.0);
  const double most = static_cast<double>(kMaxProgramFileBytes) /
                      (perMicrobatch * sizeof(Instruction));
  if (problem.numMicrobatches > most)
    return refuse(family,
                  std::to_string(problem.numMicrobatches) +
                      " micro-batches on " + std::to_string(numStages) +
                      " stages are more instructions than a program can hold; "
                      "give at most " +
                      std::to_string(static_cast<int64_t>(most)) +
                      " micro-batches");
  Program order;
  order.problem = problem;
  order.ranks.resize(problem.numRanks);
  return order;
}

Result<Program> emptyOrderOneStagePerRank(const Problem &problem,
                                          std::string_view family) {
  Result<Program> order = emptyOrder(problem, family);
  if (!order)
    return order;
  if (problem.numChains() != 1)
    return refuse(family, "the problem has " +
                              std::to_string(problem.numChains()) +
                              " chains; this family has one");
  if (problem.numStages() != problem.numRanks)
    return refuse(family, "needs one stage on every rank, but there are " +
                              std::to_string(problem.numStages()) +
                              " stages and " +
                              std::to_string(problem.numRanks) +
                              " ranks; make the numbers equal");
  std::vector<int32_t> stageOn(problem.numRanks, -1);
  for (int32_t s = 0; s < problem.numStages(); ++s) {
    int32_t &other = stageOn[problem.placement[s]];
    if (other >= 0)
      return refuse(family, "needs one stage on every rank, but stages " +
                                std::to_string(other) + " and " +
                                std::to_string(s) + " are both on rank " +
                                std::to_string(problem.placement[s]) +
                                "; place one of them elsewhere");
    other = s;
  }
  return order;
}

} // namespace penstock
