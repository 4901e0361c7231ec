//===- RangesTest.cpp - What a profiler sees of a run ---------------------===//
//
// This program is its own profiler: NVTX asks it for the functions to call.
//
//===----------------------------------------------------------------------===//

#include "TestPrograms.h"
#include "conformance/TestBackend.h"

#include <gtest/gtest.h>

// What a tool needs: the types, without the code of those who are watched.
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

using namespace penstock;
using namespace penstock::runtime;
using namespace penstock::runtime::test;

namespace {

/// The names of the ranges that are open and, in their order, of all: with two
/// spaces more for each that they are in.
struct Seen {
  std::vector<std::string> open, all;
  bool wellNested = true;
};
std::mutex seenMutex;
std::map<std::thread::id, Seen> seen;

int NVTX_API push(const char *name) {
  std::lock_guard lock(seenMutex);
  Seen &own = seen[std::this_thread::get_id()];
  own.all.push_back(std::string(2 * own.open.size(), ' ') + name);
  own.open.emplace_back(name);
  return static_cast<int>(own.open.size()) - 1;
}

int NVTX_API pop() {
  std::lock_guard lock(seenMutex);
  Seen &own = seen[std::this_thread::get_id()];
  own.wellNested &= !own.open.empty();
  if (!own.open.empty())
    own.open.pop_back();
  return static_cast<int>(own.open.size());
}

int NVTX_API attach(NvtxGetExportTableFunc_t getTable) {
  const auto *callbacks = static_cast<const NvtxExportTableCallbacks *>(
      getTable(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks ||
      !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size))
    return 0;
  *table[NVTX_CBID_CORE_RangePushA] =
      reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

} // namespace

extern "C" {
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = attach;
}

namespace {

/// The ranges of the thread that has issued an instruction with this name.
Seen rangesOf(const Program &program, const std::string &name, bool replay) {
  seen.clear();
  const auto backend = makeTestBackend(program.problem.numRanks);
  RunOptions options;
  options.backend = backend.get();
  options.replay = replay;
  runLosses(program, 3, onDevice(makeTestModel()), options);
  for (const auto &[thread, ranges] : seen) {
    EXPECT_TRUE(ranges.wellNested);
    EXPECT_TRUE(ranges.open.empty());
    if (std::find(ranges.all.begin(), ranges.all.end(), "  " + name) !=
        ranges.all.end())
      return ranges;
  }
  ADD_FAILURE() << "no range " << name;
  return {};
}

TEST(Ranges, AreThoseOfStepsAndInstructions) {
  Program program = makeGPipe(2, 2, {.transferQueue = false});
  // F0, send, F1, {send, recv}, B0, recv, B1, step
  program.ranks[0].instructions[4].joined = true;
  program.ranks[1].instructions[4].joined = false;
  auto &other = program.ranks[1].instructions;
  std::rotate(other.begin() + 2, other.begin() + 4, other.begin() + 6);
  other[4].joined = true;
  const std::vector<std::string> step = {
      "  forward 0 mb 0",  "  send activation 0 mb 0 to 1",
      "  forward 0 mb 1",  "  send activation 0 mb 1 to 1 and 1 more",
      "  backward 0 mb 0", "  recv gradient 1 mb 1 from 1",
      "  backward 0 mb 1", "  step"};
  std::vector<std::string> expected;
  for (const char *number : {"step 0", "step 1", "step 2"}) {
    expected.emplace_back(number);
    expected.insert(expected.end(), step.begin(), step.end());
  }
  EXPECT_EQ(rangesOf(program, "forward 0 mb 0", false).all, expected);
  // The second step is captured, and so is the issue of what it has.
  expected.resize(expected.size() - step.size());
  EXPECT_EQ(rangesOf(program, "forward 0 mb 0", true).all, expected);
}

} // namespace
