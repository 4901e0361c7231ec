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

Result<Program> emptyOrderSnake(const Problem &problem, std::string_view family,
                                int32_t chunks) {
  Result<Program> order = emptyOrder(problem, family);
  if (!order)
    return order;
  if (problem.numChains() != 1)
    return refuse(family, "the problem has " +
                              std::to_string(problem.numChains()) +
                              " chains; this family has one");
  const int32_t p = problem.numRanks;
  const int64_t numStages = static_cast<int64_t>(p) * chunks;
  if (problem.numStages() != numStages)
    return refuse(family, "needs " + std::to_string(chunks) +
                              " stages on every rank, but there are " +
                              std::to_string(problem.numStages()) +
                              " stages and " + std::to_string(p) +
                              " ranks; make it " + std::to_string(numStages) +
                              " stages");
  const std::vector<int32_t> snake = placeSnake(problem.numStages(), p);
  std::vector<int32_t> stageOn(p, -1); // of the first p
  for (int32_t s = 0; s < problem.numStages(); ++s) {
    const int32_t rank = problem.placement[s];
    if (s < p && stageOn[rank] >= 0)
      return refuse(family, "stages " + std::to_string(stageOn[rank]) +
                                " and " + std::to_string(s) +
                                " are both on rank " + std::to_string(rank) +
                                "; place the first " + std::to_string(p) +
                                " stages on ranks of their own");
    if (s < p)
      stageOn[rank] = s;
    else if (rank != problem.placement[snake[s]])
      return refuse(family,
                    "stage " + std::to_string(s) + " is on rank " +
                        std::to_string(rank) +
                        ", but the stages go along the ranks and back; place "
                        "it on rank " +
                        std::to_string(problem.placement[snake[s]]) +
                        ", with stage " + std::to_string(snake[s]));
  }
  return order;
}

Result<Program> emptyOrderBothWays(const Problem &problem,
                                   std::string_view family) {
  Result<Program> order = emptyOrder(problem, family);
  if (!order)
    return order;
  const int32_t p = problem.numRanks;
  if (p % 2 != 0)
    return refuse(family, "needs an even number of ranks, but there are " +
                              std::to_string(p) + "; give " +
                              (p > 1 ? std::to_string(p - 1) + " or " : "") +
                              std::to_string(p + 1));
  if (problem.numStages() != p)
    return refuse(family, "needs as many stages as ranks, but there are " +
                              std::to_string(problem.numStages()) +
                              " stages and " + std::to_string(p) +
                              " ranks; make the numbers equal");
  if (problem.numChains() != 2)
    return refuse(family, "needs two chains, but the problem has " +
                              std::to_string(problem.numChains()) +
                              "; place every stage on two ranks");
  std::vector<int32_t> stageOn(p, -1); // of chain 0
  for (int32_t s = 0; s < p; ++s) {
    int32_t &other = stageOn[problem.placement[s]];
    if (other >= 0)
      return refuse(family, "needs one stage of either chain on every rank, "
                            "but stages " +
                                std::to_string(other) + " and " +
                                std::to_string(s) + " are both on rank " +
                                std::to_string(problem.placement[s]) +
                                "; place one of them elsewhere");
    other = s;
  }
  for (int32_t s = 0; s < p; ++s)
    if (problem.placement[p + s] != problem.placement[p - 1 - s])
      return refuse(family,
                    "stage " + std::to_string(s) + " of chain 1 is on rank " +
                        std::to_string(problem.placement[p + s]) +
                        ", but the two chains go against each other; place it "
                        "on rank " +
                        std::to_string(problem.placement[p - 1 - s]) +
                        ", with stage " + std::to_string(p - 1 - s) +
                        " of chain 0");
  return order;
}

} // namespace penstock
