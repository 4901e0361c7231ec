//===- GradientUses.h - Who uses the gradients of a batch -------*- C++ -*-===//
//
// Part of the rule of completeness: what uses parameters stands on a rank that
// has them, every gradient is added up once and used once, and all ranks do it
// alike.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_LIB_ANALYSIS_GRADIENTUSES_H
#define PENSTOCK_LIB_ANALYSIS_GRADIENTUSES_H

#include "Rules.h"

#include <functional>
#include <string>
#include <vector>

namespace penstock {

class GradientUses {
public:
  /// Both outlive this object.
  GradientUses(const Program &program, Findings &findings);

  /// Each instruction that is no action, rank by rank.
  void enter(Site site, const Instruction &inst);

  /// The B or W that makes the weight gradient of (stage, micro-batch) on its
  /// rank, or kNoInstruction.
  using GradientFn = std::function<uint32_t(int32_t stage, int32_t mb)>;
  /// When all have been entered. An order has no sums yet.
  void check(bool isOrder, const GradientFn &gradientOf);

private:
  /// Who uses the weight gradients of the whole batch, by chain and stage.
  struct Uses {
    Site first;
    std::vector<uint8_t> seen;
  };

  void findSums();
  void findPlaces();
  void checkPlace(Site site, int32_t stage);
  void checkTiedPlace(Site site, int32_t firstStage);
  void enterSum(Site site, const Instruction &inst);
  void checkHasNoSum(Site site, const Instruction &inst);
  std::string describeParts(const GradientSum &sum) const;
  void checkUses(Op op, const Uses &uses);
  void checkSums();
  void checkStepsOnTheWay(const GradientFn &gradientOf);
  void checkStep(Site site, const Instruction &step, Site before,
                 uint32_t gradient);

  const Program &program;
  const Problem &problem;
  Findings &findings;
  Uses steps, reductions;
  std::vector<uint32_t> firstPlace, places; ///< the placement, by ranks
  const std::vector<GradientSum> sums;
  std::vector<std::vector<uint8_t>> sumSeen;   ///< of each rank of each sum
  std::vector<int32_t> sumOfCopies, sumOfTied; ///< of each stage, or -1
  std::vector<int32_t> sumOnRank;              ///< some sum of each rank, or -1
  Site firstSum;
  bool stepsOnTheWay = false; ///< some step is for one micro-batch
};

} // namespace penstock

#endif // PENSTOCK_LIB_ANALYSIS_GRADIENTUSES_H
