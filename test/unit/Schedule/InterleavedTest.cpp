//===- InterleavedTest.cpp - Families with several stages a rank ----------===//

#include "../Support/FamilyChecks.h"

#include "penstock/Analysis/RunOrder.h"

using namespace penstock;
using namespace penstock::test;

static Instruction action(Op op, int32_t stage, int32_t microbatch) {
  Instruction inst;
  inst.op = op;
  inst.stage = stage;
  inst.microbatch = microbatch;
  return inst;
}

/// The interleaved order for any group, deadlocked ones included: backwards
/// fused, a warm-up of `hop` forwards for each rank that follows.
static Program anyInterleaved(const Problem &problem, int32_t g, int32_t hop) {
  const int32_t p = problem.numRanks, m = problem.numMicrobatches,
                v = problem.numStages() / p;
  std::vector<std::pair<int32_t, int32_t>> table; // micro-batch, chunk
  for (int32_t a = 0; a < m; a += g)
    for (int32_t c = 0; c < v; ++c)
      for (int32_t i = a; i < std::min(m, a + g); ++i)
        table.push_back({i, c});
  Program order;
  order.problem = problem;
  order.ranks.resize(p);
  for (int32_t r = 0; r < p; ++r) {
    auto &list = order.ranks[r].instructions;
    size_t f = 0, b = 0;
    auto forward = [&] {
      list.push_back(
          action(Op::Forward, table[f].second * p + r, table[f].first));
      ++f;
    };
    auto backward = [&] {
      list.push_back(action(Op::Backward, (v - 1 - table[b].second) * p + r,
                            table[b].first));
      ++b;
    };
    const size_t warmup = hop * (p - 1 - r) + (v - 1) * g;
    while (f < std::min(table.size(), warmup))
      forward();
    while (f < table.size()) {
      forward();
      backward();
    }
    while (b < table.size())
      backward();
  }
  return order;
}

/// An order of F, B with each B as I W.
static std::string split(Program order) {
  splitBackward(order);
  return listing(Result<Program>(order));
}

//===----------------------------------------------------------------------===//
// Interleaved 1F1B
//===----------------------------------------------------------------------===//

TEST(Interleaved, Order) {
  EXPECT_EQ(listing(interleaved1F1B(loopedPipeline(2, 2, 4), 2)),
            "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3\n"
            "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"
            "\n");
  // The figure of The Llama 3 Herd of Models (arXiv:2407.21783), section 3.3.
  EXPECT_EQ(listing(interleaved1F1B(loopedPipeline(4, 2, 5), 5)),
            "0F0 0F1 0F2 0F3 0F4 4F0 4F1 4F2 4F3 4F4 4B0 4B1 4B2 4B3 4B4 0B0 "
            "0B1 0B2 0B3 0B4\n"
            "1F0 1F1 1F2 1F3 1F4 5F0 5F1 5F2 5F3 5F4 5B0 5B1 5B2 5B3 5B4 1B0 "
            "1B1 1B2 1B3 1B4\n"
            "2F0 2F1 2F2 2F3 2F4 6F0 6F1 6F2 6B0 6F3 6B1 6F4 6B2 6B3 6B4 2B0 "
            "2B1 2B2 2B3 2B4\n"
            "3F0 3F1 3F2 3F3 3F4 7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 7F4 7B4 3B0 "
            "3B1 3B2 3B3 3B4\n");
}

// The table of Megatron-LM's documentation of
// microbatch_group_size_per_vp_stage: p = 2, v = 2, m = 5, g = 3.
TEST(Interleaved, TableOfMegatron) {
  Result<Program> order = interleaved1F1B(loopedPipeline(2, 2, 5), 3);
  ASSERT_TRUE(order);
  std::string microbatches, chunks;
  for (const Instruction &inst : order->ranks[0].instructions)
    if (inst.op == Op::Forward) {
      microbatches += std::to_string(inst.microbatch);
      chunks += std::to_string(inst.stage / 2);
    }
  EXPECT_EQ(microbatches, "0120123434");
  EXPECT_EQ(chunks, "0001110011");
}

TEST(Interleaved, OneChunkIsOneForwardOneBackward) {
  for (int32_t p = 1; p <= 5; ++p)
    for (int32_t m = 1; m <= 9; ++m) {
      const Problem problem = pipeline(p, m);
      for (int32_t g = 0; g <= m; ++g)
        EXPECT_EQ(simulated(interleaved1F1B(problem, g)).makespan,
                  simulated(oneForwardOneBackward(problem)).makespan);
      EXPECT_EQ(listing(interleavedZB(problem)), listing(zbH1(problem)));
    }
}

TEST(Interleaved, OneMicrobatchIsTheNaiveOrder) {
  for (int32_t p = 1; p <= 5; ++p)
    for (int32_t v = 1; v <= 3; ++v) {
      const Problem problem = loopedPipeline(p, v, 1);
      const Result<Program> expected = naive(problem);
      EXPECT_EQ(listing(interleaved1F1B(problem)), listing(expected));
      EXPECT_EQ(listing(breadthFirst(problem)), listing(expected));
      EXPECT_EQ(listing(gis(problem)), split(*expected));
      // The weight parts come later than that.
      checked(interleavedZB(problem));
    }
}

TEST(Interleaved, TimelinesInTheSources) {
  expectTimelineInSource(interleaved1F1B(loopedPipeline(3, 2, 3)),
                         "Interleaved1F1B");
  expectTimelineInSource(breadthFirst(loopedPipeline(3, 2, 3)), "BreadthFirst");
  expectTimelineInSource(interleavedZB(loopedPipeline(3, 2, 3)),
                         "InterleavedZB");
  expectTimelineInSource(gis(loopedPipeline(3, 2, 3)), "GIS");
}

TEST(Interleaved, DefaultGroup) {
  EXPECT_EQ(interleavedGroup(4, 3), 3);
  EXPECT_EQ(interleavedGroup(4, 8), 4);
  EXPECT_EQ(interleavedGroup(4, 9), 5); // and a rest of 4
  EXPECT_EQ(interleavedGroup(4, 10), 5);
  EXPECT_EQ(interleavedGroup(8, 9), 9);
  // The rule of torch, where that has one: m / max(1, m div p).
  for (int32_t p = 1; p <= 16; ++p)
    for (int32_t m = 1; m <= 128; ++m)
      if (const int32_t rounds = std::max(1, m / p); m % rounds == 0) {
        EXPECT_EQ(interleavedGroup(p, m), m / rounds)
            << "p=" << p << " m=" << m;
      }
}

// A group deadlocks exactly where the order it would give has a cycle, and what
// it gives otherwise is that order.
TEST(Interleaved, RefusesTheGroupsThatDeadlock) {
  int refused = 0;
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t v = 1; v <= 3; ++v)
      for (int32_t m = 1; m <= (p <= 6 ? 3 : 2) * p; ++m)
        for (int32_t g = 1; g <= m; ++g)
          for (int32_t hop : {1, 2}) {
            const Problem problem = loopedPipeline(p, v, m);
            const Program expected = anyInterleaved(problem, g, hop);
            const Result<Program> order =
                hop == 1 ? gis(problem, g) : interleaved1F1B(problem, g);
            const bool runs = findOrderCycle(expected).empty();
            EXPECT_EQ(bool(order), runs)
                << "p=" << p << " v=" << v << " m=" << m << " g=" << g
                << " hop=" << hop;
            EXPECT_EQ(bool(interleavedZB(problem, g)) || hop == 2,
                      runs || hop == 2);
            refused += !runs;
            if (order) {
              EXPECT_EQ(listing(order),
                        hop == 1 ? split(expected)
                                 : listing(Result<Program>(expected)));
            }
          }
  EXPECT_GT(refused, 100);
}

// Groups g of p to m are without a bubble of their own if m mod g is 0 or >= p,
// and only then: the rule of Megatron-LM.
TEST(Interleaved, GroupRule) {
  for (int32_t p = 2; p <= 8; ++p)
    for (int32_t v = 2; v <= 4; ++v)
      for (int32_t m = p; m <= 3 * p; ++m)
        for (int32_t g = p; g <= m; ++g) {
          SCOPED_TRACE(testing::Message()
                       << "p=" << p << " v=" << v << " m=" << m << " g=" << g);
          const Result<Program> order =
              interleaved1F1B(loopedPipeline(p, v, m), g);
          if (m % g == 0 || m % g >= p) {
            EXPECT_EQ(idle(simulated(order)), 3 * (p - 1));
          } else if (order) {
            EXPECT_GT(idle(simulated(order)), 3 * (p - 1));
          }
        }
}

TEST(Interleaved, RestsThatCostTime) {
  // Bubble in the time of F + B = 3 of a rank, that is of two stages.
  auto rankBubble = [](int32_t p, int32_t m, int32_t g) {
    return idle(simulated(interleaved1F1B(loopedPipeline(p, 2, m), g))) / 2;
  };
  EXPECT_EQ(rankBubble(4, 9, 4), 10);
  EXPECT_EQ(rankBubble(4, 10, 4), 9.5);
  EXPECT_EQ(rankBubble(4, 10, 5), 4.5);
  EXPECT_EQ(rankBubble(4, 3, 3), 6);
  EXPECT_EQ(rankBubble(8, 20, 10), 10.5);
}

TEST(Interleaved, ExplainsDeadlocks) {
  auto message = [](int32_t p, int32_t v, int32_t m, int32_t g) {
    const Result<Program> order = interleaved1F1B(loopedPipeline(p, v, m), g);
    return order ? "accepted" : order.message();
  };
  EXPECT_EQ(message(8, 2, 20, 8),
            "interleaved_1f1b: groups of 8 of the 20 micro-batches deadlock on "
            "8 ranks: rank 0 has forward 8 mb 17 before backward 8 mb 8, which "
            "it needs; the nearest group that works is 10");
  EXPECT_EQ(message(8, 2, 21, 8),
            "interleaved_1f1b: groups of 8 of the 21 micro-batches deadlock on "
            "8 ranks: rank 0 has forward 8 mb 17 before backward 8 mb 8, which "
            "it needs; the nearest groups that work are 7 and 10");
  EXPECT_EQ(message(4, 3, 5, 4),
            "interleaved_1f1b: groups of 4 of the 5 micro-batches deadlock on "
            "4 ranks: rank 0 has forward 8 mb 4 before backward 8 mb 0, which "
            "it needs; the nearest group that works is 5");
  EXPECT_NE(message(5, 2, 7, 5), "accepted");
  EXPECT_NE(message(6, 2, 8, 6), "accepted");
  EXPECT_EQ(message(8, 2, 20, 10), "accepted");
}

TEST(Interleaved, ClosedFormsOnAGrid) {
  for (int32_t p = 1; p <= 16; ++p)
    for (int32_t v = 1; v <= 4; ++v)
      for (int32_t m : kMicrobatches) {
        // Of the large ones, which take time, one.
        if (m > 8 && m != kMicrobatches[11 - (p + v) % 4])
          continue;
        SCOPED_TRACE(testing::Message()
                     << "p=" << p << " v=" << v << " m=" << m);
        const StageCost c = cost(1, 1.5, 0.25);
        const Problem problem = loopedPipeline(p, v, m, c);
        const double work = c.forward + c.backward;
        const double least = ((p - 1) + (v - 1) * std::max(0, p - m)) * work;
        const Timing timing = checked(interleaved1F1B(problem));
        EXPECT_EQ(idle(timing), least);
        const int32_t g = interleavedGroup(p, m);
        for (int32_t r = 0; r < p; ++r)
          EXPECT_EQ(timing.ranks[r].peakActivations,
                    std::min(m * v, 2 * (p - 1 - r) + (v - 1) * g + 1));
        const Timing looped = checked(breadthFirst(problem));
        EXPECT_EQ(idle(looped), least);
        EXPECT_EQ(peaks(looped), std::vector<int64_t>(p, m * v));
        checked(interleavedZB(problem));
        checked(gis(problem));
      }
}

// V. Korthikanti et al., Reducing Activation Recomputation in Large Transformer
// Models (arXiv:2205.05198): rank 0 keeps 1 + (p-1)/(p v) of what 1F1B does.
TEST(Interleaved, PeakOfTheFirstRank) {
  for (int32_t p = 2; p <= 8; ++p)
    for (int32_t v = 2; v <= 4; ++v) {
      const Timing timing =
          simulated(interleaved1F1B(loopedPipeline(p, v, 4 * p)));
      EXPECT_EQ(timing.ranks[0].peakActivations, p * v + p - 1);
    }
  EXPECT_EQ(peaks(simulated(interleaved1F1B(loopedPipeline(4, 2, 8)))),
            (std::vector<int64_t>{11, 9, 7, 5}));
  EXPECT_EQ(peaks(simulated(interleaved1F1B(loopedPipeline(4, 2, 10)))),
            (std::vector<int64_t>{12, 10, 8, 6}));
  EXPECT_EQ(peaks(simulated(interleaved1F1B(loopedPipeline(8, 4, 16)))),
            (std::vector<int64_t>{39, 37, 35, 33, 31, 29, 27, 25}));
  EXPECT_EQ(peaks(simulated(interleaved1F1B(loopedPipeline(8, 2, 20), 10))),
            (std::vector<int64_t>{25, 23, 21, 19, 17, 15, 13, 11}));
}

TEST(Interleaved, Latency) {
  constexpr double latency = 1.0 / 64;
  for (int32_t p = 2; p <= 8; ++p)
    for (int32_t v = 2; v <= 4; ++v)
      for (int32_t rounds = 1; rounds <= 3; ++rounds) {
        const Problem problem =
            loopedPipeline(p, v, rounds * p, cost(1, 1, 1), latency);
        EXPECT_EQ(simulated(interleaved1F1B(problem)).makespan,
                  3 * (rounds * p * v + p - 1) + 2 * (p * v - 1) * latency);
      }
}

// A warm-up of one forward for each rank that follows has the bubble of one of
// two, but shows more transfers, unless backwards are split.
TEST(Interleaved, TransfersThatShow) {
  auto shown = [](int32_t hop, bool isSplit) {
    constexpr double latency = 1.0 / 64;
    Problem problem = loopedPipeline(4, 2, 16);
    Program order = anyInterleaved(problem, 4, hop);
    if (isSplit)
      splitBackward(order);
    const double ideal = simulated(Result<Program>(order)).makespan;
    order.problem.link.latency = latency;
    return (simulated(Result<Program>(order)).makespan - ideal) / latency;
  };
  EXPECT_EQ(shown(2, false), 14);
  EXPECT_EQ(shown(1, false), 54);
  EXPECT_EQ(shown(2, true), 10);
  EXPECT_EQ(shown(1, true), 10);
}

// P. Qi et al., Zero Bubble Pipeline Parallelism (arXiv:2401.10241), tables 5
// and 6. The column 1F1B-I hides p of the transfers that ranks which run
// strictly in order show: latency adds 2 p v - p - 2 of them.
TEST(Interleaved, BubbleRatesOfTheZeroBubblePaper) {
  const struct {
    int32_t p, m;
    double forward, input, weight, latency, published, inOrder;
  } rows[] = {
      {8, 24, 18.522, 18.086, 9.337, 0.601, .1055, .1090},
      {8, 32, 18.513, 18.086, 9.331, 0.626, .0818, .0847},
      {8, 64, 18.546, 18.097, 9.321, 0.762, .0443, .0461},
      {16, 48, 11.347, 11.248, 8.132, 0.377, .1104, .1136},
      {16, 64, 11.307, 11.254, 8.101, 0.379, .0852, .0878},
      {16, 128, 11.325, 11.308, 8.109, 0.378, .0445, .0459},
  };
  constexpr int32_t v = 3;
  for (const auto &row : rows) {
    Problem problem = loopedPipeline(
        row.p, v, row.m, cost(row.forward / v, row.input / v, row.weight / v),
        row.latency);
    EXPECT_NEAR(simulated(interleaved1F1B(problem)).bubbleRate, row.inOrder,
                0.00005);
    problem.link.latency = 0;
    const Timing timing = simulated(interleaved1F1B(problem));
    const double shown = (2 * row.p * v - row.p - 2) * row.latency;
    EXPECT_NEAR((idle(timing) + shown) / (timing.span + shown), row.published,
                0.00005);
  }
}

// D. Narayanan et al., Efficient Large-Scale Language Model Training on GPU
// Clusters (arXiv:2104.04473): the bubble is 1/v (p - 1)/m of the work.
TEST(Interleaved, BubbleFractionOfMegatron) {
  for (int32_t v = 1; v <= 4; ++v) {
    const Timing timing = simulated(interleaved1F1B(loopedPipeline(8, v, 32)));
    EXPECT_DOUBLE_EQ(idle(timing) / timing.ranks[0].busy, 7.0 / 32 / v);
  }
}

//===----------------------------------------------------------------------===//
// Breadth-first
//===----------------------------------------------------------------------===//

TEST(BreadthFirst, Order) {
  EXPECT_EQ(listing(breadthFirst(loopedPipeline(2, 2, 3))),
            "0F0 0F1 0F2 2F0 2F1 2F2 2B2 2B1 2B0 0B2 0B1 0B0\n"
            "1F0 1F1 1F2 3F0 3F1 3F2 3B2 3B1 3B0 1B2 1B1 1B0\n");
}

TEST(BreadthFirst, Figures) {
  auto rankBubble = [](int32_t p, int32_t v, int32_t m) {
    return idle(simulated(breadthFirst(loopedPipeline(p, v, m)))) / v;
  };
  EXPECT_EQ(rankBubble(4, 2, 8), 4.5);
  EXPECT_EQ(rankBubble(4, 4, 8), 2.25);
  EXPECT_EQ(rankBubble(8, 4, 8), 5.25);
}

//===----------------------------------------------------------------------===//
// Interleaved zero bubble and GIS
//===----------------------------------------------------------------------===//

TEST(InterleavedZB, Order) {
  EXPECT_EQ(listing(interleavedZB(loopedPipeline(2, 2, 4))),
            "0F0 0F1 2F0 2F1 2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 "
            "2I2 2W2 2I3 2W3 0I2 0W2 0I3 0W3\n"
            "1F0 1F1 3F0 3I0 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1 "
            "3F3 3I3 3W2 1I2 3W3 1I3 1W2 1W3\n");
}

TEST(InterleavedZB, ClosedForms) {
  for (const StageCost &c : {cost(1, 1, 1), cost(2, 1, 0.5), cost(1, 3, 1)})
    for (int32_t p = 1; p <= 16; ++p)
      for (int32_t v = 1; v <= 4; ++v)
        for (int32_t rounds : {1, 2, 3, 64 / p}) {
          const Timing timing =
              simulated(interleavedZB(loopedPipeline(p, v, rounds * p, c)));
          EXPECT_EQ(idle(timing), (p - 1) * (c.forward + c.input - c.weight));
          EXPECT_EQ(peaks(timing), std::vector<int64_t>(p, p * v));
        }
}

TEST(GIS, UnitTimes) {
  auto timing = [](int32_t p, int32_t v) {
    return simulated(gis(loopedPipeline(p, v, 2 * p)));
  };
  EXPECT_EQ(idle(timing(4, 2)), 6);
  EXPECT_EQ(timing(4, 2).ranks[0].peakActivations, 8);
  EXPECT_EQ(idle(timing(8, 2)), 14);
  EXPECT_EQ(timing(8, 2).ranks[0].peakActivations, 16);
  EXPECT_EQ(timing(8, 3).ranks[0].peakActivations, 24);
  EXPECT_EQ(timing(8, 4).ranks[0].peakActivations, 32);
}

TEST(GIS, ClosedForms) {
  for (const StageCost &c : {cost(1, 1, 1), cost(2, 1.5, 0.5), cost(2, 3, 1)})
    for (int32_t p = 2; p <= 16; p += 2)
      for (int32_t v = 1; v <= 4; ++v)
        for (int32_t g = p / 2; g <= p; ++g) {
          SCOPED_TRACE(testing::Message()
                       << "p=" << p << " v=" << v << " g=" << g);
          const double f = c.forward, i = c.input, w = c.weight;
          const Timing timing =
              simulated(gis(loopedPipeline(p, v, 4 * g, c), g));
          const double formula =
              (p - 1) * (f + i) + (p - g) * (v - 1) * (f + i - w);
          if (g == p || 2 * g == p || (f == i && i == w)) {
            EXPECT_EQ(idle(timing), formula);
          } else {
            EXPECT_LE(idle(timing), formula);
          }
          for (int32_t r = 0; r < p; ++r)
            EXPECT_EQ(timing.ranks[r].peakActivations, g * (v - 1) + p - r);
        }
}

// Where F and I differ by more than W, half groups lose time in every round.
TEST(GIS, BubbleOfHalfGroupsMayGrow) {
  auto of = [](int32_t m) {
    return idle(simulated(gis(loopedPipeline(4, 2, m, cost(2, 1, 0.5)), 2)));
  };
  EXPECT_EQ(of(4), 15);
  EXPECT_EQ(of(8), 17);
  EXPECT_EQ(of(12), 19);
}

//===----------------------------------------------------------------------===//
// Wrong input
//===----------------------------------------------------------------------===//

TEST(Interleaved, RefuseWhatTheyCannotSchedule) {
  const struct {
    std::string name;
    Result<Program> (*generate)(const Problem &);
  } families[] = {
      {"interleaved_1f1b: ",
       [](const Problem &p) { return interleaved1F1B(p); }},
      {"breadth_first: ", breadthFirst},
      {"interleaved_zb: ", [](const Problem &p) { return interleavedZB(p); }},
      {"gis: ", [](const Problem &p) { return gis(p); }}};
  for (const auto &[name, generate] : families) {
    auto message = [generate = generate](const Problem &problem) {
      const Result<Program> order = generate(problem);
      return order ? "accepted" : order.message();
    };
    Problem problem = loopedPipeline(4, 2, 8);
    problem.stages.resize(10);
    problem.placement = placeLoop(10, 4);
    EXPECT_EQ(message(problem),
              name + "needs the same number of stages on every rank, but there "
                     "are 10 stages and 4 ranks; give 8 or 12 stages");
    problem.stages.resize(3);
    problem.placement = placeLoop(3, 4);
    EXPECT_EQ(message(problem),
              name + "needs the same number of stages on every rank, but there "
                     "are 3 stages and 4 ranks; give 4 stages");
    problem = loopedPipeline(2, 2, 8);
    problem.placement = {0, 1, 1, 0};
    EXPECT_EQ(message(problem),
              name +
                  "needs its stages in a loop over the ranks, but stage 2 is "
                  "on rank 1; place it on rank 0 with stage 0");
    problem.placement = {0, 0, 1, 1};
    EXPECT_EQ(message(problem),
              name +
                  "needs one of the first 2 stages on every rank, but stages "
                  "0 and 1 are both on rank 0; place one of them elsewhere");
    problem.placement = {0, 1, 0, 1, 1, 0, 1, 0};
    problem.chains = {0, 1, 0, 1, 0, 1, 0, 1};
    EXPECT_EQ(message(problem),
              name + "the problem has 2 chains; this family has one");
    problem = loopedPipeline(2, 2, 8);
    problem.placement = {1, 0, 1, 0};
    checked(generate(problem));
  }
  for (int32_t group : {-1, 9}) {
    const Result<Program> order =
        interleaved1F1B(loopedPipeline(2, 2, 8), group);
    ASSERT_FALSE(order);
    EXPECT_EQ(order.message(),
              "interleaved_1f1b: groups of " + std::to_string(group) +
                  " micro-batches cannot be formed of 8; give a group of 1 to "
                  "8");
  }
}
