//===- WriteFamilies.cpp - The programs of the families as files ----------===//
//
//   WriteFamilies FOLDER
//
// For FamiliesTest.cpp where only the runtime is built.
//
//===----------------------------------------------------------------------===//

#include "FamilyPrograms.h"

#include "penstock/Program/File.h"

#include <iostream>

using namespace penstock::runtime::test;

int main(int argc, char **argv) {
  if (argc != 2) {
    std::cerr << "usage: WriteFamilies FOLDER\n";
    return 2;
  }
  for (const FamilyCase &family : allFamilyCases()) {
    const std::string path =
        std::string(argv[1]) + "/" + nameOf(family) + ".psp";
    if (auto status =
            penstock::writeProgramFile(makeFamilyProgram(4, family), path);
        !status) {
      std::cerr << status.message() << "\n";
      return 1;
    }
  }
  return 0;
}
