//===- ConformanceTest.cpp - What every device and transport promises -----===//
//
// One suite for all back ends. It speaks only the interfaces; TestBackend.h
// says what it runs on. Where the ranks are in several processes, all of them
// run each test alike, and what concerns a rank of another process does
// nothing. Where work issues, what a test wants to run on a queue is issued to
// it.
//
//===----------------------------------------------------------------------===//

#include "../TestPrograms.h"
#include "TestBackend.h"

#include <gtest/gtest.h>

#include <future>
#include <numeric>
#include <stdexcept>
#include <thread>

using namespace penstock;
using namespace penstock::runtime;
using namespace penstock::runtime::test;
using namespace std::chrono_literals;

namespace {

/// An operation that a rank runs, in this process or in another.
class Running {
public:
  Running() = default;
  explicit Running(std::future<Error> result, Transport *transport)
      : result(std::move(result)), transport(transport) {}
  bool ended() const {
    return result.valid() && result.wait_for(0s) == std::future_status::ready;
  }
  /// Waits; there is no error of another process.
  Error get() {
    Error error = result.valid() ? result.get() : Error();
    return error || !transport ? error : transport->check();
  }

private:
  std::future<Error> result;
  Transport *transport = nullptr; ///< who may know more of it
};

/// The parameter is the name of the back end.
class Conformance : public testing::TestWithParam<const char *> {
protected:
  static constexpr int32_t kNumRanks = 2;
  /// Makes the ranks, each with an arena of 4 KiB and two queues.
  void SetUp() override {
    backend = makeTestBackend(kNumRanks);
    arenas.resize(kNumRanks);
    devices.resize(kNumRanks);
    for (int32_t r : backend->localRanks()) {
      devices[r] = std::move(*backend->makeDevice(r));
      ASSERT_EQ(*devices[r]->addQueue(64), 0u);
      ASSERT_EQ(*devices[r]->addQueue(64), 1u);
      arenas[r] = *devices[r]->allocateArena(4096);
    }
    makeTransports();
  }
  void makeTransports() {
    transports.clear();
    transports.resize(kNumRanks);
    for (int32_t r : backend->localRanks())
      transports[r] = std::move(*backend->makeTransport(r));
  }
  void abortTransports() {
    for (auto &transport : transports)
      if (transport)
        transport->abort();
  }
  void TearDown() override {
    for (auto &device : devices)
      if (device)
        device->abort();
    abortTransports();
    for (auto &device : devices)
      if (device)
        (void)device->synchronize();
  }

  bool here(int32_t rank) const { return devices[rank] != nullptr; }
  /// The first device of this process.
  Device &ownDevice() { return *devices[backend->localRanks().front()]; }
  /// What all processes bring.
  std::vector<std::string> gather(const std::string &own) {
    return backend->peers() ? backend->peers()->gather(own)
                            : std::vector<std::string>{own};
  }
  /// Goes on when all processes are here.
  void meet() { gather(""); }

  uint32_t group(int32_t rank, std::vector<Instruction> members) {
    if (!here(rank))
      return 0;
    std::vector<Transfer> transfers;
    for (Instruction &inst : members) {
      kept.push_back(std::make_unique<Instruction>(inst));
      transfers.push_back(
          {kept.back().get(), arenas[rank] + inst.slots[Slot] * 256});
    }
    return *transports[rank]->addGroup(transfers);
  }
  uint32_t collective(int32_t rank, Op op, int32_t stage,
                      std::span<float> values = {}) {
    if (!here(rank))
      return 0;
    Instruction inst;
    inst.op = op;
    inst.stage = stage;
    kept.push_back(std::make_unique<Instruction>(inst));
    const std::vector<int32_t> everyone = {0, 1};
    return *transports[rank]->addCollective(*kept.back(), everyone, values);
  }
  /// Connects the ranks of this process, each from a thread of its own.
  std::vector<Running> connect(const std::vector<ProgramHash> &hashes) {
    connected = true;
    std::vector<Running> results;
    for (int32_t r : backend->localRanks())
      results.emplace_back(
          std::async(std::launch::async,
                     [=, this] { return transports[r]->connect(hashes[r]); }),
          nullptr);
    return results;
  }
  /// Runs an operation as work of a queue. What is registered comes before.
  /// Some transports find out when they connect what others find when they run.
  Running start(int32_t rank, uint32_t id, unsigned queue = 0) {
    if (!connected) {
      connectFaults.resize(kNumRanks);
      std::vector<Running> running = connect({{1, 2}, {1, 2}});
      for (size_t i = 0; i < running.size(); ++i)
        connectFaults[backend->localRanks()[i]] = running[i].get();
    }
    if (!here(rank))
      return {};
    auto promise = std::make_shared<std::promise<Error>>();
    if (connectFaults[rank])
      promise->set_value(connectFaults[rank]);
    else
      devices[rank]->enqueue(queue, [=, this](void *nativeQueue) {
        Error error = transports[rank]->run(id, nativeQueue);
        if (error)
          promise->set_value(error);
        else
          atQueue(nativeQueue, [=] { promise->set_value({}); });
      });
    return Running(promise->get_future(), transports[rank].get());
  }
  /// Waits for an error of any of these, in any process.
  Error faultOf(std::vector<Running> &all) {
    Error own;
    while (true) {
      for (Running &one : all)
        if (!own && one.ended())
          own = std::exchange(one, {}).get();
      for (const std::string &bytes : gather(pack(own)))
        if (Error error = unpackError(bytes))
          return error;
      std::this_thread::sleep_for(1ms);
    }
  }
  void write(int32_t rank, int32_t slot, uint64_t value) {
    if (here(rank))
      copy(arenas[rank] + slot * 256, &value, 8);
  }
  testing::AssertionResult holds(int32_t rank, int32_t slot,
                                 uint64_t expected) {
    uint64_t value = expected;
    if (here(rank))
      copy(&value, arenas[rank] + slot * 256, 8);
    if (value == expected)
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << value << ", expected " << expected;
  }
  static Instruction send(int32_t mb, int32_t peer, int32_t slot,
                          int64_t bytes = 8) {
    return transfer(Op::Send, Payload::Activation, 0, mb, peer, slot, bytes);
  }
  static Instruction recv(int32_t mb, int32_t peer, int32_t slot,
                          int64_t bytes = 8) {
    return transfer(Op::Recv, Payload::Activation, 0, mb, peer, slot, bytes);
  }

  std::unique_ptr<Backend> backend;
  std::vector<std::unique_ptr<Device>> devices; ///< null: of another process
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::byte *> arenas;
  std::vector<std::unique_ptr<Instruction>> kept;
  bool connected = false;
  std::vector<Error> connectFaults;
};

//===----------------------------------------------------------------------===//
// Device
//===----------------------------------------------------------------------===//

TEST_P(Conformance, ArenaIsAlignedAndZero) {
  for (int32_t r = 0; r < kNumRanks; ++r) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arenas[r]) % kSlotAlignment, 0u);
    EXPECT_TRUE(holds(r, 0, 0));
    EXPECT_TRUE(holds(r, 15, 0));
  }
}

TEST_P(Conformance, QueueRunsInOrder) {
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) // more than the queue is deep
    ownDevice().enqueue(0, [&order, i](void *queue) {
      atQueue(queue, [&order, i] { order.push_back(i); });
    });
  ASSERT_TRUE(ownDevice().synchronize());
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(order[i], i);
}

TEST_P(Conformance, CopiesGoToHostMemoryAndBackInOrder) {
  for (int32_t r : backend->localRanks()) {
    Device &device = *devices[r];
    const auto host = device.allocateHostArena(1024);
    ASSERT_TRUE(host) << host.message();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*host) % kSlotAlignment, 0u);
    std::byte *const arena = arenas[r];
    std::vector<uint8_t> values(1000), seen(1000);
    std::iota(values.begin(), values.end(), uint8_t(r));
    copy(arena, values.data(), values.size());
    device.enqueue(
        1, [&](void *queue) { device.copy(queue, *host, arena, 1000); });
    device.enqueue(
        1, [&](void *queue) { device.copy(queue, arena + 2048, *host, 1000); });
    device.enqueue(1,
                   [&](void *queue) { device.copy(queue, arena, *host, 0); });
    ASSERT_TRUE(device.synchronize());
    copy(seen.data(), arena + 2048, seen.size());
    EXPECT_EQ(seen, values);
  }
}

TEST_P(Conformance, EventOrdersTwoQueues) {
  Device &device = ownDevice();
  const Event event = device.addEvent();
  for (int round = 0; round < 20; ++round) {
    int value = 0, seen = -1; // no lock: the event must order them
    device.enqueue(0, [&](void *queue) {
      atQueue(queue, [&] {
        std::this_thread::sleep_for(100us);
        value = round + 1;
      });
    });
    device.record(0, event);
    device.wait(1, event);
    device.enqueue(1,
                   [&](void *queue) { atQueue(queue, [&] { seen = value; }); });
    ASSERT_TRUE(device.synchronize());
    EXPECT_EQ(seen, round + 1);
  }
}

TEST_P(Conformance, EventCoversOnlyWhatWasBefore) {
  if (kIsGpu)
    GTEST_SKIP() << "host functions may wait for each other";
  Device &device = ownDevice();
  const Event event = device.addEvent();
  std::promise<void> go;
  device.record(0, event);
  device.enqueue(
      0, [&](void *queue) { atQueue(queue, [&] { go.get_future().wait(); }); });
  device.wait(1, event);
  device.enqueue(1,
                 [&](void *queue) { atQueue(queue, [&] { go.set_value(); }); });
  EXPECT_TRUE(device.synchronize());
}

TEST_P(Conformance, EventThatWasNotRecordedHoldsNobody) {
  Device &device = ownDevice();
  bool ran = false;
  device.wait(1, device.addEvent());
  device.enqueue(1, [&](void *queue) { atQueue(queue, [&] { ran = true; }); });
  EXPECT_TRUE(device.synchronize());
  EXPECT_TRUE(ran);
}

TEST_P(Conformance, StampsGrowInQueueOrder) {
  Device &device = ownDevice();
  std::atomic<int64_t> first = 0, second = 0;
  std::atomic<uint64_t> count = 0;
  device.enqueue(0, [&](void *queue) { device.stamp(queue, first, count); });
  device.enqueue(0, [&](void *queue) {
    atQueue(queue, [] { std::this_thread::sleep_for(1ms); });
    device.stamp(queue, second, count);
  });
  ASSERT_TRUE(device.synchronize());
  EXPECT_GE(second - first, 1'000'000);
  EXPECT_EQ(count, 2u);
}

TEST_P(Conformance, StampsAreSeenWhileTheQueueHangs) {
  Device &device = ownDevice();
  std::atomic<int64_t> before = 0, behind = 0;
  std::atomic<uint64_t> count = 0;
  std::promise<void> go;
  device.enqueue(0, [&](void *queue) {
    device.stamp(queue, before, count);
    atQueue(queue, [&] { go.get_future().wait(); });
    device.stamp(queue, behind, count);
  });
  while (count == 0)
    std::this_thread::sleep_for(1ms);
  EXPECT_NE(before, 0);
  EXPECT_EQ(behind, 0);
  EXPECT_EQ(count, 1u);
  go.set_value();
  ASSERT_TRUE(device.synchronize());
  EXPECT_EQ(count, 2u);
}

TEST_P(Conformance, CaptureReplaysOrFails) {
  Device &device = ownDevice();
  const Event event = device.addEvent();
  std::vector<int> order;
  auto append = [&](unsigned queue, int value) {
    device.enqueue(queue, [&order, value](void *native) {
      atQueue(native, [&order, value] { order.push_back(value); });
    });
  };
  if (!device.issuesWork()) {
    const Status status = device.capture([&] { append(0, 1); });
    ASSERT_FALSE(status);
    EXPECT_EQ(status.message(), "this device has no graphs");
    EXPECT_TRUE(order.empty());
    return;
  }
  std::atomic<int64_t> time = 0;
  std::atomic<uint64_t> count = 0;
  const Status status = device.capture([&] {
    append(0, 1);
    device.record(0, event);
    device.wait(1, event);
    append(1, 2);
    device.record(1, event);
    device.wait(0, event);
    append(0, 3);
    device.enqueue(0, [&](void *queue) { device.stamp(queue, time, count); });
  });
  ASSERT_TRUE(status) << status.message();
  EXPECT_TRUE(order.empty());
  for (uint64_t round = 1; round <= 3; ++round) {
    time = 0;
    device.replay();
    ASSERT_TRUE(device.synchronize());
    EXPECT_NE(time, 0);
    EXPECT_EQ(count, round);
  }
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 1, 2, 3, 1, 2, 3}));
}

TEST_P(Conformance, ExceptionInWorkFailsTheDevice) {
  Device &device = ownDevice();
  const Event event = device.addEvent();
  std::atomic<bool> ran = false;
  device.enqueue(0, [](void *) { throw std::runtime_error("out of ink"); });
  device.record(0, event);
  device.wait(1, event);
  device.enqueue(1, [&](void *queue) { atQueue(queue, [&] { ran = true; }); });
  const Status status = device.synchronize();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.message(), "work on a queue threw: out of ink");
  EXPECT_FALSE(ran);
}

TEST_P(Conformance, AbortEndsWaitsAndSkipsWork) {
  Device &device = ownDevice();
  const Event event = device.addEvent();
  std::promise<void> go;
  std::atomic<bool> ran = false;
  device.enqueue(
      0, [&](void *queue) { atQueue(queue, [&] { go.get_future().wait(); }); });
  device.record(0, event);
  device.wait(1, event);
  device.enqueue(1, [&](void *queue) { atQueue(queue, [&] { ran = true; }); });
  device.abort();
  go.set_value();
  const Status status = device.synchronize();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.message(), "the device was aborted");
  // A native queue keeps what it has got.
  EXPECT_EQ(ran, device.issuesWork());
  device.enqueue(0, [](void *) { FAIL() << "work after the abort"; });
}

//===----------------------------------------------------------------------===//
// Transport
//===----------------------------------------------------------------------===//

TEST_P(Conformance, NoSendEndsBeforeItsReceive) {
  const uint32_t sends = group(0, {send(0, 1, 0)});
  const uint32_t receives = group(1, {recv(0, 0, 0)});
  for (uint64_t round = 1; round <= 3; ++round) {
    write(0, 0, round);
    auto sent = start(0, sends);
    std::this_thread::sleep_for(10ms);
    EXPECT_TRUE(kIsGpu || !sent.ended());
    meet();
    auto received = start(1, receives);
    EXPECT_FALSE(received.get());
    EXPECT_FALSE(sent.get());
    EXPECT_TRUE(holds(1, 0, round));
  }
}

TEST_P(Conformance, NoReceiveEndsBeforeItsSend) {
  const uint32_t sends = group(0, {send(0, 1, 0)});
  const uint32_t receives = group(1, {recv(0, 0, 0)});
  auto received = start(1, receives);
  std::this_thread::sleep_for(10ms);
  EXPECT_FALSE(received.ended());
  meet();
  write(0, 0, 42);
  EXPECT_FALSE(start(0, sends).get());
  EXPECT_FALSE(received.get());
  EXPECT_TRUE(holds(1, 0, 42));
}

TEST_P(Conformance, ChannelMatchesFirstToFirst) {
  // Three messages as a group on one side, one by one on the other.
  const uint32_t sends =
      group(0, {send(0, 1, 0), send(1, 1, 1), send(2, 1, 2)});
  const uint32_t first = group(1, {recv(0, 0, 5)}),
                 second = group(1, {recv(1, 0, 4)}),
                 third = group(1, {recv(2, 0, 3)});
  for (int32_t slot = 0; slot < 3; ++slot)
    write(0, slot, 100 + slot);
  auto sent = start(0, sends);
  EXPECT_FALSE(start(1, first).get());
  EXPECT_FALSE(start(1, second).get());
  meet();
  // A group ends with its last member.
  EXPECT_TRUE(kIsGpu || !sent.ended());
  meet();
  EXPECT_FALSE(start(1, third).get());
  EXPECT_FALSE(sent.get());
  EXPECT_TRUE(holds(1, 5, 100));
  EXPECT_TRUE(holds(1, 4, 101));
  EXPECT_TRUE(holds(1, 3, 102));
}

TEST_P(Conformance, CommunicatorsAreApart) {
  Instruction other = send(1, 1, 1), otherRecv = recv(1, 0, 1);
  other.comm = otherRecv.comm = 1;
  const uint32_t sendA = group(0, {send(0, 1, 0)}), sendB = group(0, {other});
  const uint32_t recvA = group(1, {recv(0, 0, 0)}),
                 recvB = group(1, {otherRecv});
  write(0, 0, 7);
  write(0, 1, 8);
  auto sentA = start(0, sendA, 0), sentB = start(0, sendB, 1);
  EXPECT_FALSE(start(1, recvB).get());
  EXPECT_FALSE(start(1, recvA).get());
  EXPECT_FALSE(sentA.get());
  EXPECT_FALSE(sentB.get());
  EXPECT_TRUE(holds(1, 0, 7));
  EXPECT_TRUE(holds(1, 1, 8));
}

TEST_P(Conformance, GroupsExchange) {
  const uint32_t a = group(0, {send(0, 1, 0), recv(1, 1, 1)});
  const uint32_t b = group(1, {send(1, 0, 0), recv(0, 0, 1)});
  for (uint64_t round = 0; round < 200; ++round) {
    write(0, 0, round);
    write(1, 0, ~round);
    auto left = start(0, a), right = start(1, b);
    ASSERT_FALSE(left.get());
    ASSERT_FALSE(right.get());
    ASSERT_TRUE(holds(0, 1, ~round));
    ASSERT_TRUE(holds(1, 1, round));
  }
}

TEST_P(Conformance, EmptyMessagesMeetToo) {
  const uint32_t sends = group(0, {send(0, 1, 0, 0)});
  const uint32_t receives = group(1, {recv(0, 0, 0, 0)});
  auto sent = start(0, sends);
  std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(kIsGpu || !sent.ended());
  meet();
  EXPECT_FALSE(start(1, receives).get());
  EXPECT_FALSE(sent.get());
}

TEST_P(Conformance, SizesMustAgree) {
  const uint32_t sends = group(0, {send(0, 1, 0, 16)});
  const uint32_t receives = group(1, {recv(0, 0, 0, 8)});
  std::vector<Running> running;
  running.push_back(start(0, sends));
  running.push_back(start(1, receives));
  const Error error = faultOf(running);
  EXPECT_EQ(error.kind, ErrorKind::Mismatch);
  EXPECT_EQ(error.message,
            "rank 0's `send activation 0 mb 0 to 1` of 16 bytes meets rank 1's "
            "`recv activation 0 mb 0 from 0` of 8 bytes");
}

TEST_P(Conformance, NamesMustAgree) {
  const uint32_t sends = group(0, {send(0, 1, 0)});
  const uint32_t receives = group(1, {recv(1, 0, 0)});
  std::vector<Running> running;
  running.push_back(start(0, sends));
  running.push_back(start(1, receives));
  const Error error = faultOf(running);
  EXPECT_EQ(error.kind, ErrorKind::Mismatch);
  EXPECT_NE(error.message.find("mb 1"), std::string::npos) << error.message;
}

TEST_P(Conformance, AbortWakesEveryone) {
  const uint32_t sends = group(0, {send(0, 1, 0)}),
                 receives = group(0, {recv(3, 1, 0)}),
                 barrier = collective(1, Op::Barrier, -1);
  std::vector<Running> running;
  running.push_back(start(0, sends));
  running.push_back(start(1, barrier));
  running.push_back(start(0, receives, 1));
  std::this_thread::sleep_for(5ms);
  const auto begin = std::chrono::steady_clock::now();
  abortTransports();
  for (size_t i = 0; i < running.size(); ++i)
    EXPECT_EQ(running[i].get().kind,
              here(i % 2) ? ErrorKind::Aborted : ErrorKind::None);
  for (auto &device : devices)
    EXPECT_TRUE(!device || device->synchronize());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kIsGpu ? 10s : 500ms);
}

TEST_P(Conformance, BarrierHoldsUntilAllAreThere) {
  const uint32_t a = collective(0, Op::Barrier, -1),
                 b = collective(1, Op::Barrier, -1);
  for (int round = 0; round < 3; ++round) {
    auto left = start(0, a);
    std::this_thread::sleep_for(5ms);
    EXPECT_FALSE(left.ended());
    meet();
    EXPECT_FALSE(start(1, b).get());
    EXPECT_FALSE(left.get());
  }
}

TEST_P(Conformance, AllReduceSumsOnAllRanks) {
  std::vector<float> left = {1, 2, 3}, right = {10, 20, 30};
  const uint32_t a = collective(0, Op::AllReduce, 0, left),
                 b = collective(1, Op::AllReduce, 0, right);
  auto first = start(0, a), second = start(1, b);
  for (Running *running : {&first, &second}) {
    const Error error = running->get();
    EXPECT_FALSE(error) << error.message;
  }
  const std::vector<float> sum = {11, 22, 33};
  EXPECT_TRUE(!here(0) || left == sum);
  EXPECT_TRUE(!here(1) || right == sum);
}

TEST_P(Conformance, AllReduceSizesMustAgree) {
  std::vector<float> left(3), right(2);
  const uint32_t a = collective(0, Op::AllReduce, 0, left),
                 b = collective(1, Op::AllReduce, 0, right);
  std::vector<Running> running;
  running.push_back(start(0, a));
  running.push_back(start(1, b));
  const Error error = faultOf(running);
  EXPECT_EQ(error.kind, ErrorKind::Mismatch);
  EXPECT_NE(error.message.find("all_reduce"), std::string::npos);
}

TEST_P(Conformance, CollectiveOfOthersIsRefused) {
  Instruction barrier;
  barrier.op = Op::Barrier;
  const std::vector<int32_t> others = {1};
  if (!here(0))
    return;
  const auto id = transports[0]->addCollective(barrier, others, {});
  ASSERT_FALSE(id);
  EXPECT_EQ(id.message(), "rank 0 is not in the rank set of its collective");
}

TEST_P(Conformance, ConnectComparesPrograms) {
  for (Running &running : connect({{1, 2}, {1, 2}}))
    EXPECT_FALSE(running.get());
  backend = makeTestBackend(kNumRanks);
  makeTransports();
  std::vector<Running> running = connect({{1, 2}, {1, 3}});
  const Error error = faultOf(running);
  EXPECT_EQ(error.kind, ErrorKind::Mismatch);
  EXPECT_NE(error.message.find("give the same file to all ranks"),
            std::string::npos);
  abortTransports();
}

INSTANTIATE_TEST_SUITE_P(Backends, Conformance, testing::Values(kBackendName),
                         [](const auto &info) { return info.param; });

} // namespace

#if !defined(PENSTOCK_TEST_JOB) && !defined(PENSTOCK_TEST_CUDA)
std::unique_ptr<Backend> test::makeTestBackend(int32_t numRanks) {
  return makeHostBackend(numRanks);
}
#endif
