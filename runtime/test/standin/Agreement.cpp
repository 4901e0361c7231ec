//===- Agreement.cpp - Programs on the stand-in ---------------------------===//

#include "Agreement.h"

#include "StandIn.h"
#include "Testing/Agreement.h"

#include <algorithm>
#include <atomic>
#include <set>

using namespace penstock;
using namespace penstock::standin;
using namespace penstock::standin::test;

namespace {

/// What identifies a collective, but for its occurrence.
using CollectiveKey =
    std::tuple<Op, uint16_t, int32_t, int32_t, std::vector<int32_t>>;

class Runner {
public:
  Runner(const Program &program, const Semantics &semantics, uint64_t seed,
         unsigned maxDelay)
      : program(program), numRanks(static_cast<int>(program.ranks.size())) {
    Options options;
    options.devices = numRanks;
    options.groups = semantics.groups == Semantics::Closure ? Groups::Closure
                     : semantics.groups == Semantics::Layered
                         ? Groups::Layered
                         : Groups::Documented;
    options.capacity = static_cast<size_t>(semantics.capacity);
    if (semantics.serialised)
      options.queues = Queues::Shared;
    options.firstUse = semantics.firstUse;
    options.kernelPerComm = false;
    options.planLimit = 0;
    options.checkPairs = false; // the rule is another one
    options.seed = seed;
    options.maxDelay = maxDelay;
    reset(options);
    prepare();
  }

  Outcome run() {
    runThreads(numRanks, [&](int rank) { issue(rank); });
    const Outcome outcome = crossed          ? Outcome::Error
                            : isDeadlocked() ? Outcome::Deadlock
                                             : Outcome::Ok;
    problem += findings();
    reset();
    return outcome;
  }
  std::string problem; ///< calls that failed, and findings

private:
  struct Rank {
    std::map<uint8_t, cudaStream_t> streams;
    std::map<uint32_t, cudaEvent_t> events; ///< of what is waited for
    std::vector<ncclComm_t> comms;
    std::vector<std::string> tags; ///< of collectives
    float *memory = nullptr;
  };

  void check(bool ok, const char *what) {
    if (!ok)
      problem += std::string(what) + " has failed\n";
  }

  void prepare() {
    ranks.resize(numRanks);
    size_t numComms = 0;
    for (const RankProgram &rank : program.ranks)
      for (const Instruction &inst : rank.instructions)
        if (usesComm(inst.op))
          numComms = std::max<size_t>(numComms, inst.comm + 1u);
    std::vector<ncclComm_t> comms(numRanks);
    for (size_t c = 0; c < numComms; ++c) {
      check(ncclCommInitAll(comms.data(), numRanks, nullptr) == ncclSuccess,
            "ncclCommInitAll");
      for (int r = 0; r < numRanks; ++r)
        ranks[r].comms.push_back(comms[r]);
    }
    for (int r = 0; r < numRanks; ++r) {
      Rank &rank = ranks[r];
      check(cudaSetDevice(r) == cudaSuccess, "cudaSetDevice");
      void *memory = nullptr;
      check(cudaMalloc(&memory, 8) == cudaSuccess, "cudaMalloc");
      rank.memory = static_cast<float *>(memory);
      const RankProgram &list = program.ranks[r];
      rank.tags.resize(list.instructions.size());
      for (const Instruction &inst : list.instructions)
        if (cudaStream_t &stream = rank.streams[inst.queue]; !stream)
          check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) ==
                    cudaSuccess,
                "cudaStreamCreateWithFlags");
      for (uint32_t target : list.waits)
        if (cudaEvent_t &event = rank.events[target]; !event)
          check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) ==
                    cudaSuccess,
                "cudaEventCreateWithFlags");
    }
    matchCollectives();
  }

  std::vector<int32_t> rankSet(const Instruction &collective) const {
    if (collective.peer >= 0)
      return program.rankSets[collective.peer];
    std::vector<int32_t> all(numRanks);
    for (int32_t r = 0; r < numRanks; ++r)
      all[r] = r;
    return all;
  }
  /// Collectives that do not have exactly the ranks of their set never end:
  /// these get a tag of their own.
  void matchCollectives() {
    std::map<std::pair<CollectiveKey, size_t>, std::vector<Site>> met;
    for (int32_t r = 0; r < numRanks; ++r) {
      std::map<CollectiveKey, size_t> occurrences;
      const auto &list = program.ranks[r].instructions;
      for (uint32_t i = 0; i < list.size(); ++i) {
        const Instruction &inst = list[i];
        if (!isCollective(inst.op))
          continue;
        const CollectiveKey key = {inst.op, inst.comm, inst.stage,
                                   inst.microbatch, rankSet(inst)};
        met[{key, occurrences[key]++}].push_back({r, i});
      }
    }
    size_t number = 0;
    for (const auto &[key, sites] : met) {
      std::vector<int32_t> issued;
      for (const Site &site : sites)
        issued.push_back(site.rank);
      const bool complete = issued == std::get<4>(key.first);
      for (const Site &site : sites)
        ranks[site.rank].tags[site.instruction] =
            complete ? std::to_string(number) : std::string();
      ++number;
    }
  }

  /// Issues one instruction. False if NCCL refuses it.
  bool issueOne(int r, uint32_t i, cudaStream_t stream) {
    const Instruction &inst = program.ranks[r].instructions[i];
    Rank &rank = ranks[r];
    switch (inst.op) {
    case Op::Send:
      return good(ncclSend(rank.memory, 1, ncclFloat, inst.peer,
                           rank.comms[inst.comm], stream));
    case Op::Recv:
      return good(ncclRecv(rank.memory + 1, 1, ncclFloat, inst.peer,
                           rank.comms[inst.comm], stream));
    default:
      break;
    }
    if (!isCollective(inst.op))
      return cudaLaunchHostFunc(
                 stream, [](void *) {}, nullptr) == cudaSuccess;
    const std::string &tag = rank.tags[i];
    const std::vector<int32_t> set = rankSet(inst);
    if (!tag.empty())
      return good(
          meet(rank.comms[inst.comm], tag, {set.begin(), set.end()}, stream));
    // With somebody who never comes.
    return good(meet(rank.comms[inst.comm],
                     "never " + std::to_string(r) + " " + std::to_string(i),
                     {r, (r + 1) % numRanks}, stream));
  }
  bool good(ncclResult_t result) {
    if (result == ncclSuccess)
      return true;
    if (std::string_view(ncclGetLastError(nullptr))
            .starts_with("two ranks present different"))
      crossed = true;
    return false;
  }

  void issue(int r) {
    Rank &rank = ranks[r];
    const RankProgram &list = program.ranks[r];
    if (cudaSetDevice(r) != cudaSuccess)
      return;
    for (uint32_t i = 0; i < list.instructions.size();) {
      const Instruction &head = list.instructions[i];
      const uint32_t end = itemEnd(list.instructions, i);
      cudaStream_t stream = rank.streams[head.queue];
      for (uint32_t w = 0; w < head.numWaits; ++w)
        if (cudaStreamWaitEvent(stream,
                                rank.events[list.waits[head.firstWait + w]],
                                0) != cudaSuccess)
          return;
      const bool grouped = end - i > 1 && isTransfer(head.op);
      bool ok = !grouped || good(ncclGroupStart());
      for (uint32_t k = i; k < end && ok; ++k)
        ok = issueOne(r, k, stream);
      if (grouped && ok)
        ok = good(ncclGroupEnd());
      if (!ok)
        return;
      for (uint32_t k = i; k < end; ++k)
        if (auto it = rank.events.find(k); it != rank.events.end())
          if (cudaEventRecord(it->second, stream) != cudaSuccess)
            return;
      i = end;
    }
    for (const auto &[queue, stream] : rank.streams)
      if (cudaStreamSynchronize(stream) != cudaSuccess)
        return;
  }

  const Program &program;
  const int numRanks;
  std::vector<Rank> ranks;
  std::atomic<bool> crossed{false};
};

} // namespace

Outcome penstock::standin::test::runProgram(const Program &program,
                                            const Semantics &semantics,
                                            uint64_t seed, unsigned maxDelay) {
  return Runner(program, semantics, seed, maxDelay).run();
}

std::string penstock::standin::test::compare(
    const Program &program,
    std::map<std::string, std::map<Outcome, size_t>> &tally, uint64_t seed,
    unsigned maxDelay) {
  for (const Semantics &semantics : penstock::test::allModels()) {
    Runner runner(program, semantics, seed, maxDelay);
    const Outcome outcome = runner.run();
    const std::string model = penstock::name(semantics);
    ++tally[model][outcome];
    if (!runner.problem.empty())
      return model + ": " + runner.problem;
    const Outcome expected = checkDeadlock(program, semantics).outcome();
    if (outcome != expected)
      return model + ": the verifier says " +
             std::string(penstock::name(expected)) + ", the stand-in " +
             std::string(penstock::name(outcome));
  }
  return {};
}
