//===- AgreementRun.cpp - Verifier and stand-in, a long run ---------------===//
//
//   StandInAgreement [--programs=N] [--seed=S] [--delay=MICROSECONDS]
//
// Compares what the verifier says about N random programs with what happens on
// the stand-in, under every model that both know. Stops at the first
// disagreement, prints the program and exits with 1.
//
//===----------------------------------------------------------------------===//

#include "Agreement.h"
#include "Testing/RandomProgram.h"

#include "penstock/Program/Text.h"

#include <charconv>
#include <cstdio>
#include <random>

using namespace penstock;

/// The number behind `--name=`, or false.
static bool parse(std::string_view text, std::string_view name,
                  uint32_t &value) {
  if (!text.starts_with(name))
    return false;
  text.remove_prefix(name.size());
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

int main(int argc, char **argv) {
  uint32_t programs = 10000, seed = 1, delay = 0;
  for (int i = 1; i < argc; ++i)
    if (!parse(argv[i], "--programs=", programs) &&
        !parse(argv[i], "--seed=", seed) &&
        !parse(argv[i], "--delay=", delay)) {
      std::fprintf(stderr, "usage: StandInAgreement [--programs=N] [--seed=S] "
                           "[--delay=MICROSECONDS]\n");
      return 2;
    }
  std::mt19937 random(seed);
  std::map<std::string, std::map<Outcome, size_t>> tally;
  for (uint32_t n = 0; n < programs; ++n) {
    const Program program = test::randomProgram(random);
    const std::string problem =
        standin::test::compare(program, tally, n + 1, delay);
    if (!problem.empty()) {
      std::printf("program %u of seed %u: %s\n%s", n, seed, problem.c_str(),
                  dump(program).c_str());
      return 1;
    }
  }
  for (auto &[model, count] : tally)
    std::printf("%-55s %7zu ok %7zu deadlock %7zu error\n", model.c_str(),
                count[Outcome::Ok], count[Outcome::Deadlock],
                count[Outcome::Error]);
  std::printf("%u programs of seed %u: no disagreement\n", programs, seed);
  return 0;
}
