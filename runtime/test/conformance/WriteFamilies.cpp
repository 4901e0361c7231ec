//===- WriteFamilies.cpp - Programs for machines without schedules --------===//
//
//   WriteFamilies FOLDER [MODEL]
//
// Writes the programs of all families for FamiliesTest.cpp and, where a model
// is named, large-1.psp and large-4.psp: five layers of it on one rank, and on
// four as one-forward-one-backward. Prints the bytes of its weights.
//
//===----------------------------------------------------------------------===//

#include "FamilyPrograms.h"

#include "penstock/Program/File.h"

#include <iostream>

using namespace penstock;
using namespace penstock::runtime;
using namespace penstock::runtime::test;

static Result<Program> makeLarge(const ByteLmConfig &config, int32_t p) {
  constexpr int32_t kLayers = 5, kMicrobatches = 8;
  Problem problem;
  problem.name = "large";
  problem.numRanks = p;
  problem.numMicrobatches = kMicrobatches;
  for (int32_t s = 0; s < p; ++s) {
    Stage stage;
    stage.firstLayer = s == 0 ? 0 : s + 1; // the first stage has what is left
    stage.numLayers = s == 0 ? kLayers - p + 1 : 1;
    stage.bytes = bytesOf(stage, kLayers, config);
    problem.stages.push_back(stage);
  }
  penstock::test::kOneForwardOneBackward.place(problem);
  Result<Program> program =
      penstock::test::kOneForwardOneBackward.make(problem);
  if (!program)
    return program;
  appendSteps(*program);
  if (const auto made = insertTransfers(*program); !made)
    return made.failure();
  if (const auto made = planBuffers(*program); !made)
    return made.failure();
  return program;
}

int main(int argc, char **argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: WriteFamilies FOLDER [MODEL]\n";
    return 2;
  }
  const std::string folder = argv[1];
  auto write = [&](const Program &program, const std::string &name) {
    const Status status =
        writeProgramFile(program, folder + "/" + name + ".psp");
    if (!status)
      std::cerr << status.message() << "\n";
    return bool(status);
  };
  for (const FamilyCase &family : allFamilyCases())
    if (!write(makeFamilyProgram(4, family), nameOf(family)))
      return 1;
  if (argc < 3)
    return 0;
  const auto config = ByteLmConfig::parse(argv[2]);
  if (!config) {
    std::cerr << config.message() << "\n";
    return 1;
  }
  for (int32_t p : {1, 4}) {
    const auto program = makeLarge(*config, p);
    if (!program) {
      std::cerr << program.message() << "\n";
      return 1;
    }
    int64_t bytes = 0;
    for (const Stage &stage : program->problem.stages)
      bytes += stage.bytes.parameters;
    std::cout << "large-" << p << ": " << bytes << " bytes of weights\n";
    if (!write(*program, "large-" + std::to_string(p)))
      return 1;
  }
  return 0;
}
