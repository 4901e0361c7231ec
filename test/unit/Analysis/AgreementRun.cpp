//===- AgreementRun.cpp - Verifier and interpreter, a long run ------------===//
//
//   AgreementRun [--programs=N] [--seed=S]
//
// Compares the verifier with the interpreter on N random programs and prints
// how many each model has accepted. Stops at the first disagreement, prints the
// program and exits with 1.
//
//===----------------------------------------------------------------------===//

#include "Testing/Agreement.h"
#include "Testing/RandomProgram.h"

#include "penstock/Program/Text.h"

#include <charconv>
#include <cstdio>
#include <cstring>

using namespace penstock;
using namespace penstock::test;

/// The number behind `--name=`, or false.
static bool parse(const char *argument, std::string_view name,
                  uint32_t &value) {
  std::string_view text = argument;
  if (!text.starts_with(name))
    return false;
  text.remove_prefix(name.size());
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

int main(int argc, char **argv) {
  uint32_t programs = 100000, seed = 1;
  for (int i = 1; i < argc; ++i)
    if (!parse(argv[i], "--programs=", programs) &&
        !parse(argv[i], "--seed=", seed)) {
      std::fprintf(stderr, "usage: AgreementRun [--programs=N] [--seed=S]\n");
      return 2;
    }
  std::mt19937 random(seed);
  Tally tally;
  for (uint32_t n = 0; n < programs; ++n) {
    const Program program = randomProgram(random);
    const std::string problem = compare(program, tally);
    if (!problem.empty()) {
      std::printf("program %u of seed %u: %s\n%s", n, seed, problem.c_str(),
                  dump(program).c_str());
      return 1;
    }
  }
  for (const auto &[model, count] : tally.models)
    std::printf("%-55s %7zu ok %7zu deadlock %7zu error\n", model.c_str(),
                count.accepted, count.refused, count.errors);
  for (const auto &[capacity, count] : tally.capacities)
    std::printf("least capacity %2lld: %zu\n", static_cast<long long>(capacity),
                count);
  std::printf("%zu cycles, %zu of them against all others, %zu sets of "
              "buffers\n%u programs of seed %u: no disagreement\n",
              tally.cycles, tally.shortest, tally.needs, programs, seed);
  return 0;
}
