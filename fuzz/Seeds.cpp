//===- Seeds.cpp - Writes the seeds that are not text ---------------------===//
//
//   fuzz-seeds DIRECTORY
//
// Program files change with their format, so they are made at build time.
//
//===----------------------------------------------------------------------===//

#include "../test/unit/RandomProgram.h"

#include "penstock/Lowering/Lowering.h"
#include "penstock/Program/File.h"
#include "penstock/Schedule/Schedule.h"

#include <filesystem>
#include <iostream>

using namespace penstock;

static Program compiled(int32_t numRanks, int32_t numMicrobatches, bool split) {
  Problem problem;
  problem.name = "seed";
  problem.numRanks = numRanks;
  problem.numMicrobatches = numMicrobatches;
  problem.stages.resize(numRanks);
  problem.placement = placeLoop(numRanks, numRanks);
  Program program = *oneForwardOneBackward(problem);
  if (split)
    splitBackward(program);
  appendSteps(program);
  if (!insertTransfers(program) || !planBuffers(program))
    std::abort();
  return program;
}

int main(int argc, char **argv) {
  if (argc != 2) {
    std::cerr << "usage: fuzz-seeds DIRECTORY\n";
    return 1;
  }
  const std::filesystem::path directory = argv[1];
  std::filesystem::create_directories(directory);
  int number = 0;
  auto write = [&](const Program &program) {
    const std::string file =
        directory / ("seed-" + std::to_string(number++) + ".psp");
    if (Status status = writeProgramFile(program, file); !status) {
      std::cerr << status.message() << "\n";
      std::exit(1);
    }
  };
  for (bool split : {false, true}) {
    write(compiled(2, 2, split));
    write(compiled(3, 4, split));
  }
  for (uint64_t seed = 1; seed <= 8; ++seed)
    write(test::RandomProgram(seed, 3, 6).make());
}
