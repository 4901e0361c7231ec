//===- CertifyTest.cpp - Certificates against executions ------------------===//
//
// On random programs: who ends under closure gets a certificate, who does not
// has none whatever times one tries, and what checkCertificate accepts ends,
// wherever the times come from.
//
//===----------------------------------------------------------------------===//

#include "penstock/Analysis/Certify.h"

#include "Program/Certified.h"
#include "Testing/Build.h"
#include "Testing/RandomProgram.h"

#include "penstock/Analysis/Interpret.h"
#include "penstock/Program/Certificate.h"
#include "penstock/Program/File.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

using namespace penstock;
using namespace penstock::test;

namespace {

bool ends(const Program &program) {
  return interpret(program, Semantics::Closure).finished;
}

/// The item of every instruction, numbered through the ranks.
std::vector<std::vector<uint32_t>> numberItems(const Program &program,
                                               uint32_t &count) {
  std::vector<std::vector<uint32_t>> items(program.ranks.size());
  count = 0;
  for (size_t r = 0; r < items.size(); ++r)
    for (const Instruction &inst : program.ranks[r].instructions)
      items[r].push_back(inst.joined ? count - 1 : count++);
  return items;
}

/// Whether some times are a certificate. Only their order matters, so that as
/// many values as there are items are enough.
bool hasSomeCertificate(Program program) {
  uint32_t count;
  const auto items = numberItems(program, count);
  std::vector<uint32_t> times(count);
  for (RankProgram &rank : program.ranks)
    rank.times.resize(rank.instructions.size());
  for (;;) {
    for (size_t r = 0; r < items.size(); ++r)
      for (size_t i = 0; i < items[r].size(); ++i)
        program.ranks[r].times[i] = times[items[r][i]];
    if (checkCertificate(program))
      return true;
    size_t digit = 0;
    while (digit < count && ++times[digit] == count)
      times[digit++] = 0;
    if (digit == count)
      return false;
  }
}

TEST(Certify, WhoEndsGetsACertificateAndNobodyElse) {
  std::mt19937 random(1);
  size_t accepted = 0, refused = 0, searched = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    SCOPED_TRACE(trial);
    Program program = randomProgram(random);
    const bool certified = certify(program);
    ASSERT_EQ(certified, ends(program));
    ASSERT_EQ(certified, hasCertificate(program));
    if (certified) {
      ++accepted;
      const Status status = checkCertificate(program);
      ASSERT_TRUE(status) << status.message();
      ASSERT_TRUE(SlowCertificate(program).holds());
      continue;
    }
    ++refused;
    uint32_t count;
    numberItems(program, count);
    if (count > 5)
      continue;
    ++searched;
    ASSERT_FALSE(hasSomeCertificate(program));
  }
  EXPECT_GT(accepted, 500u);
  EXPECT_GT(refused, 500u);
  EXPECT_GT(searched, 50u);
}

TEST(Certify, TheSearchFindsWhatThereIs) {
  std::mt19937 random(2);
  size_t found = 0;
  while (found < 20) {
    Program program = randomProgram(random);
    uint32_t count;
    numberItems(program, count);
    if (count > 5 || !certify(program))
      continue;
    ASSERT_TRUE(hasSomeCertificate(program));
    ++found;
  }
}

/// Puts times near those of a run on a program that is not quite the one that
/// ran.
void disturb(Program &program, std::mt19937 &random) {
  auto below = [&](size_t n) { return static_cast<uint32_t>(random() % n); };
  RankProgram &rank = program.ranks[below(program.ranks.size())];
  auto &list = rank.instructions;
  if (list.size() < 2)
    return;
  const uint32_t i = below(list.size() - 1);
  switch (below(7)) {
  case 0:
    rank.times[i] += 1;
    break;
  case 1:
    rank.times[i] -= 1;
    break;
  case 2:
    rank.times[i] = below(8);
    break;
  case 3:
    std::swap(rank.times[i], rank.times[below(list.size())]);
    break;
  case 4: // Neighbours change places, with their times or without.
    if (isTransfer(list[i].op) != isTransfer(list[i + 1].op))
      break;
    if (below(2))
      std::swap(rank.times[i], rank.times[i + 1]);
    std::swap(list[i].op, list[i + 1].op);
    std::swap(list[i].payload, list[i + 1].payload);
    std::swap(list[i].peer, list[i + 1].peer);
    std::swap(list[i].comm, list[i + 1].comm);
    std::swap(list[i].stage, list[i + 1].stage);
    std::swap(list[i].microbatch, list[i + 1].microbatch);
    break;
  case 5: // An item moves to another queue.
    if (!list[i].joined && !list[i + 1].joined)
      list[i].queue = static_cast<uint8_t>(below(3));
    break;
  case 6: // The last instruction is forgotten.
    list.pop_back();
    rank.times.pop_back();
    break;
  }
}

TEST(Certify, WhatIsAcceptedEnds) {
  std::mt19937 random(3);
  size_t accepted = 0, refused = 0, stuck = 0;
  for (int trial = 0; trial < 12000; ++trial) {
    SCOPED_TRACE(trial);
    Program program = randomProgram(random);
    if (!certify(program))
      for (RankProgram &rank : program.ranks)
        for (uint32_t i = 0; i < rank.instructions.size(); ++i)
          rank.times.push_back(i);
    for (uint32_t n = random() % 3; n > 0; --n)
      disturb(program, random);
    const Status status = checkCertificate(program);
    ASSERT_EQ(bool(status), SlowCertificate(program).holds());
    if (status) {
      ++accepted;
      ASSERT_TRUE(ends(program));
    } else {
      ++refused;
      stuck += !ends(program);
    }
  }
  EXPECT_GT(accepted, 1000u);
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(stuck, 500u);
}

TEST(Certify, EqualProgramsGetEqualTimes) {
  Program program = oneForwardOneBackward(4, 8, true);
  EXPECT_TRUE(certify(program));
  Program again = program;
  again.ranks[2].times[3] = 7;
  EXPECT_TRUE(certify(again));
  EXPECT_EQ(again, program);
}

TEST(Certify, ARefusedProgramLosesItsTimes) {
  Program program = makeProgram(2, 1);
  RankBuilder(program, 0).sendAct(0, 0, 1).recvGrad(1, 0, 1);
  RankBuilder(program, 1).sendGrad(1, 0, 0).recvAct(0, 0, 0);
  program.ranks[0].times = program.ranks[1].times = {0, 1};
  EXPECT_FALSE(certify(program));
  EXPECT_FALSE(hasCertificate(program));
}

TEST(Certify, TheVerifierTakesACertificateForTheSearch) {
  VerifyOptions options;
  options.useCertificate = true;
  Program program = oneForwardOneBackward(3, 4, true);
  EXPECT_TRUE(verify(program, options).accepted()) << "without one it searches";
  ASSERT_TRUE(certify(program));
  Verdict verdict = verify(program, options);
  EXPECT_TRUE(verdict.accepted());
  EXPECT_TRUE(verdict.deadlockFree);
  EXPECT_TRUE(verdict.documentedOk);
  EXPECT_EQ(verdict.minCapacity, 0);

  // It proves this one rule, and the others are checked.
  Program wrong = program;
  wrong.ranks[1].slotBytes[0] += 1;
  wrong.problem.memory = 1;
  verdict = verify(wrong, options);
  EXPECT_TRUE(verdict.deadlockFree);
  EXPECT_FALSE(verdict.accepted());

  // A program that ends, and times that do not prove it.
  program.ranks[1].times[2] = 0;
  EXPECT_TRUE(verify(program).accepted());
  verdict = verify(program, options);
  EXPECT_FALSE(verdict.deadlockFree);
  ASSERT_EQ(verdict.findings.size(), 1u);
  const Finding &finding = verdict.findings.front();
  EXPECT_EQ(finding.rule, Rule::Deadlock);
  EXPECT_EQ(finding.site.rank, 1);
  EXPECT_EQ(finding.message.find("the certificate does not hold: "), 0u);
}

/// Every single change of a time in a file is noticed. Who makes the hash match
/// too has to come up with a certificate.
TEST(Certify, CorruptedTimesInFiles) {
  std::mt19937 random(4);
  size_t programs = 0, stillRight = 0, wrong = 0;
  for (bool planned : {false, true})
    for (bool grouped : {false, true}) {
      Program program = oneForwardOneBackward(3, 4, planned, grouped);
      if (!certify(program))
        continue;
      ++programs;
      const std::vector<uint8_t> bytes = serialize(program);
      auto expectNoticed = [&](const Program &changed) {
        std::vector<uint8_t> corrupted = bytes;
        for (size_t r = 0; r < program.ranks.size(); ++r) {
          const auto &right = program.ranks[r].times;
          const auto *first = reinterpret_cast<const uint8_t *>(right.data());
          const auto at = std::search(corrupted.begin(), corrupted.end(), first,
                                      first + right.size() * sizeof(uint32_t));
          ASSERT_NE(at, corrupted.end());
          std::memcpy(&*at, changed.ranks[r].times.data(),
                      right.size() * sizeof(uint32_t));
        }
        const Result<Program> loaded = deserialize(corrupted);
        ASSERT_FALSE(loaded);
        EXPECT_EQ(loaded.message().find("the program file is damaged: the hash "
                                        "of its certificate is "),
                  0u);
        const bool holds = SlowCertificate(changed).holds();
        EXPECT_EQ(bool(deserialize(serialize(changed))), holds);
        ++(holds ? stillRight : wrong);
      };
      for (size_t r = 0; r < program.ranks.size(); ++r)
        for (uint32_t i = 0; i < program.ranks[r].times.size(); ++i) {
          Program changed = program;
          auto &times = changed.ranks[r].times;
          for (uint32_t time :
               {times[i] - 1, times[i] + 1, static_cast<uint32_t>(random())}) {
            times[i] = time;
            expectNoticed(changed);
            times[i] = program.ranks[r].times[i];
          }
          if (const uint32_t j = random() % times.size();
              times[i] != times[j]) {
            std::swap(times[i], times[j]);
            expectNoticed(changed);
          }
        }
    }
  EXPECT_GE(programs, 2u);
  EXPECT_GT(stillRight, 10u);
  EXPECT_GT(wrong, 200u);
}

} // namespace
