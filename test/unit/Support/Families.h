//===- Families.h - Every family with a placement that suits it -*- C++ -*-===//

#ifndef PENSTOCK_TEST_UNIT_SUPPORT_FAMILIES_H
#define PENSTOCK_TEST_UNIT_SUPPORT_FAMILIES_H

#include "Offload.h"

#include "penstock/Schedule/Schedule.h"

#include <ostream>

namespace penstock::test {

enum class Shape { Loop, Snake, BothWays };
struct PlacedFamily {
  const char *name;
  Result<Program> (*make)(const Problem &);
  int32_t chunks = 1; ///< stages a rank
  Shape shape = Shape::Loop;
  int32_t slices = 1;

  /// Places the stages of a problem, `chunks` for each rank, and cuts its
  /// micro-batches.
  void place(Problem &problem) const {
    setSlices(problem, slices);
    if (shape == Shape::BothWays)
      placeBothWays(problem);
    else
      problem.placement =
          shape == Shape::Snake
              ? placeSnake(problem.numStages(), problem.numRanks)
              : placeLoop(problem.numStages(), problem.numRanks);
  }
};

inline void PrintTo(const PlacedFamily &family, std::ostream *os) {
  *os << family.name;
}

inline const PlacedFamily kNaive{"naive", naive}, kGPipe{"gpipe", gpipe},
    kOneForwardOneBackward{"one_f_one_b", oneForwardOneBackward};

/// They update while micro-batches are in the pipe.
inline const PlacedFamily kPipeDream{"pipedream", pipeDream},
    kPipeDream2BW{"pipedream_2bw",
                  [](const Problem &problem) { return pipeDream2BW(problem); }};
/// Two slices of every micro-batch.
inline const PlacedFamily kSeq1F1B{"seq_1f1b", seq1F1B, 1, Shape::Loop, 2};

inline Result<Program> offloaded(Result<Program> order) {
  if (order)
    offloadStashes(*order, /*ahead=*/1);
  return order;
}

/// Each stage adds up its gradients in the order of the micro-batches.
inline const PlacedFamily kInOrder[] = {
    {"eager", eagerOneForwardOneBackward},
    {"bpipe", bPipe},
    {"zb_h1", zbH1},
    {"zb_h2", zbH2},
    {"interleaved_1f1b",
     [](const Problem &problem) { return interleaved1F1B(problem); }, 2},
    {"interleaved_zb",
     [](const Problem &problem) { return interleavedZB(problem); }, 2},
    {"gis", [](const Problem &problem) { return gis(problem); }, 3},
    {"zb_v", zbV, 2, Shape::Snake},
    {"v_half", vHalf, 2, Shape::Snake},
    {"v_min", vMin, 2, Shape::Snake},
    {"dualpipe_v", dualPipeV, 2, Shape::Snake},
    {"hanayo", [](const Problem &problem) { return hanayo(problem, 2); }, 4,
     Shape::Snake},
};

/// Those that go back from the last micro-batch, or have two copies of each
/// stage.
inline const PlacedFamily kInAnotherOrder[] = {
    {"gpipe_descending",
     [](const Problem &problem) {
       return gpipe(problem, {.descending = true, .recompute = true});
     }},
    {"breadth_first", breadthFirst, 2},
    kSeq1F1B,
    {"dualpipe", dualPipe, 1, Shape::BothWays},
    {"chimera", chimera, 1, Shape::BothWays},
};

/// Those of above with every second stash in host memory between its F and its
/// B or I.
inline const PlacedFamily kInHostMemory[] = {
    {"one_f_one_b_offloaded",
     [](const Problem &problem) {
       return offloaded(oneForwardOneBackward(problem));
     }},
    {"zb_h1_offloaded",
     [](const Problem &problem) { return offloaded(zbH1(problem)); }},
    {"zb_v_offloaded",
     [](const Problem &problem) { return offloaded(zbV(problem)); }, 2,
     Shape::Snake},
};

} // namespace penstock::test

#endif // PENSTOCK_TEST_UNIT_SUPPORT_FAMILIES_H
