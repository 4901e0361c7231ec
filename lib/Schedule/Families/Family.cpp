//===- Family.cpp - What every schedule family needs ----------------------===//

#include "Family.h"

#include "penstock/Program/File.h"

#include <algorithm>
#include <string>

namespace penstock {

Failure refuse(std::string_view family, const std::string &why) {
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

/// The order, if the problem has one chain that runs round the ranks in a loop.
static Result<Program> requireLoop(Result<Program> order,
                                   std::string_view family) {
  const Problem &problem = order->problem;
  const int32_t p = problem.numRanks, numStages = problem.numStages();
  if (numStages % p != 0) {
    const int32_t below = numStages / p * p;
    return refuse(family,
                  "needs the same number of stages on every rank, but there "
                  "are " +
                      std::to_string(numStages) + " stages and " +
                      std::to_string(p) + " ranks; give " +
                      (below > 0 ? std::to_string(below) + " or " : "") +
                      std::to_string(below + p) + " stages");
  }
  std::vector<int32_t> stageOn(p, -1);
  for (int32_t s = 0; s < p; ++s) {
    int32_t &other = stageOn[problem.placement[s]];
    if (other >= 0)
      return refuse(
          family, "needs one " +
                      (numStages == p
                           ? std::string("stage")
                           : "of the first " + std::to_string(p) + " stages") +
                      " on every rank, but stages " + std::to_string(other) +
                      " and " + std::to_string(s) + " are both on rank " +
                      std::to_string(problem.placement[s]) +
                      "; place one of them elsewhere");
    other = s;
  }
  for (int32_t s = p; s < numStages; ++s)
    if (problem.placement[s] != problem.placement[s - p])
      return refuse(family, "needs its stages in a loop over the ranks, but "
                            "stage " +
                                std::to_string(s) + " is on rank " +
                                std::to_string(problem.placement[s]) +
                                "; place it on rank " +
                                std::to_string(problem.placement[s - p]) +
                                " with stage " + std::to_string(s - p));
  return order;
}

static Result<Program> emptyOrderOneChain(const Problem &problem,
                                          std::string_view family) {
  Result<Program> order = emptyOrder(problem, family);
  if (order && problem.numChains() != 1)
    return refuse(family, "the problem has " +
                              std::to_string(problem.numChains()) +
                              " chains; this family has one");
  return order;
}

Result<Program> emptyOrderOneStagePerRank(const Problem &problem,
                                          std::string_view family) {
  Result<Program> order = emptyOrderOneChain(problem, family);
  if (order && problem.numStages() != problem.numRanks)
    return refuse(family, "needs one stage on every rank, but there are " +
                              std::to_string(problem.numStages()) +
                              " stages and " +
                              std::to_string(problem.numRanks) +
                              " ranks; make the numbers equal");
  return order ? requireLoop(std::move(order), family) : order;
}

Result<Program> emptyOrderLooped(const Problem &problem,
                                 std::string_view family) {
  Result<Program> order = emptyOrderOneChain(problem, family);
  return order ? requireLoop(std::move(order), family) : order;
}

Result<Program> emptyOrderSnake(const Problem &problem, std::string_view family,
                                int32_t chunks, const std::string &otherwise) {
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
                              " stages" + otherwise);
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

std::array<std::vector<int32_t>, 2>
microbatchesOfChains(const Problem &problem) {
  std::array<std::vector<int32_t>, 2> microbatches;
  for (int32_t mb = 0; mb < problem.numMicrobatches; ++mb)
    microbatches[problem.chainOf(mb)].push_back(mb);
  return microbatches;
}

} // namespace penstock
