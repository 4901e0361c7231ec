//===- embed.cpp - A verified program file, from C++ ----------------------===//

#include "penstock/Analysis/Certify.h"
#include "penstock/Analysis/Report.h"
#include "penstock/Analysis/Simulate.h"
#include "penstock/Lowering/Lowering.h"
#include "penstock/Program/File.h"
#include "penstock/Schedule/Schedule.h"

#include <cstdio>

using namespace penstock;

int main() {
  Problem problem;
  problem.name = "embedded";
  problem.numRanks = 4;
  problem.numMicrobatches = 8;
  problem.stages.resize(4); // unit costs, no sizes
  for (int32_t s = 0; s < 4; ++s)
    problem.stages[s].firstLayer = s;
  problem.placement = placeLoop(4, 4);

  Result<Program> program = oneForwardOneBackward(problem);
  if (!program) {
    std::fprintf(stderr, "%s\n", program.message().c_str());
    return 1;
  }
  appendSteps(*program);
  if (auto transfers = insertTransfers(*program); !transfers) {
    std::fprintf(stderr, "%s\n", transfers.message().c_str());
    return 1;
  }
  if (auto buffers = planBuffers(*program); !buffers) {
    std::fprintf(stderr, "%s\n", buffers.message().c_str());
    return 1;
  }

  const Verdict verdict = verify(*program);
  for (const Finding &finding : verdict.findings)
    std::fprintf(stderr, "%s\n", render(*program, finding).c_str());
  if (!verdict.accepted())
    return 1;
  certify(*program); // the proof travels with the file
  std::printf("makespan %g, bubble rate %.4f\n",
              simulateProgram(*program)->makespan,
              simulateProgram(*program)->bubbleRate);
  return writeProgramFile(*program, "embedded.psp") ? 0 : 1;
}
