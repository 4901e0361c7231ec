//===- Replay.cpp - Runs a fuzz target without a fuzzer -------------------===//
//
// Feeds a target with every file below the paths on the command line, then with
// mutations of them. Everything is a function of the files and of --seed, so a
// failure repeats; the input that fails is written to the working directory.
//
//   fuzz-TARGET [--mutations=N] [--seed=N] PATH...
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;

extern "C" __attribute__((weak)) size_t
LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned) {
  return LLVMFuzzerMutate(data, size, maxSize);
}

static std::mt19937_64 rng;
static size_t below(size_t n) { return n ? rng() % n : 0; }

/// Like libFuzzer's: one small change.
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize) {
  const size_t at = below(size);
  switch (below(6)) {
  case 0: // flip a bit
    if (size)
      data[at] ^= static_cast<uint8_t>(1u << below(8));
    return size;
  case 1: // set a byte
    if (size)
      data[at] = static_cast<uint8_t>(rng());
    return size;
  case 2: // cut the end
    return below(size + 1);
  case 3: { // erase a few bytes
    const size_t count = std::min(size - at, 1 + below(8));
    std::memmove(data + at, data + at + count, size - at - count);
    return size - count;
  }
  case 4: { // insert a copy of what is there
    const size_t count = std::min({size - at, 1 + below(16), maxSize - size});
    std::memmove(data + at + count, data + at, size - at);
    return size + count;
  }
  default: { // a number as they come: small, large, around powers of two
    static constexpr int64_t values[] = {
        0, 1, -1, 127, 255, 256, 65535, 65536, 1 << 30, INT32_MAX, INT32_MIN};
    const int64_t value = values[below(std::size(values))];
    const size_t count = std::min(size - at, size_t(1) << below(4));
    std::memcpy(data + at, &value, std::min(count, sizeof(value)));
    return size;
  }
  }
}

static Bytes current;

static void keepInput(int number) {
  std::ofstream out("fuzz-failure", std::ios::binary);
  out.write(reinterpret_cast<const char *>(current.data()),
            static_cast<std::streamsize>(current.size()));
  out.close();
  std::cerr << "the input that fails is in " << fs::current_path()
            << "/fuzz-failure\n";
  std::signal(number, SIG_DFL);
  std::raise(number);
}

static void run(const Bytes &input) {
  current = input;
  LLVMFuzzerTestOneInput(current.data(), current.size());
}

int main(int argc, char **argv) {
  size_t numMutations = 0;
  uint64_t seed = 1;
  std::vector<fs::path> files;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--mutations=", 0) == 0)
      numMutations = std::stoull(argument.substr(12));
    else if (argument.rfind("--seed=", 0) == 0)
      seed = std::stoull(argument.substr(7));
    else if (fs::is_directory(argument))
      for (const auto &entry : fs::recursive_directory_iterator(argument)) {
        if (entry.is_regular_file())
          files.push_back(entry.path());
      }
    else
      files.emplace_back(argument);
  }
  std::sort(files.begin(), files.end());
  for (int number : {SIGABRT, SIGSEGV, SIGFPE, SIGILL, SIGBUS})
    std::signal(number, keepInput);

  std::vector<Bytes> inputs = {{}};
  for (const fs::path &file : files) {
    std::ifstream in(file, std::ios::binary);
    if (!in) {
      std::cerr << "cannot read " << file << "\n";
      return 1;
    }
    inputs.emplace_back(std::istreambuf_iterator<char>(in),
                        std::istreambuf_iterator<char>());
  }
  if (files.empty()) {
    std::cerr << "no inputs\n";
    return 1;
  }
  for (const Bytes &input : inputs)
    run(input);
  rng.seed(seed);
  for (size_t i = 0; i < numMutations; ++i) {
    Bytes input = inputs[below(inputs.size())];
    size_t size = input.size();
    const size_t maxSize = size + 256;
    input.resize(maxSize);
    for (size_t change = 0, count = 1 + below(4); change < count; ++change)
      size = LLVMFuzzerCustomMutator(input.data(), size, maxSize,
                                     static_cast<unsigned>(rng()));
    input.resize(size);
    run(input);
  }
  std::cout << inputs.size() << " inputs and " << numMutations
            << " mutations of them (seed " << seed << ")\n";
}
