//===- ZeroBubbleTest.cpp - ZB-H1, ZB-H2 and their figures ----------------===//

#include "../Support/FamilyChecks.h"

using namespace penstock;
using namespace penstock::test;

TEST(ZeroBubble, OrderOfH1) {
  EXPECT_EQ(
      listing(zbH1(pipeline(4, 6))),
      "0F0 0F1 0F2 0F3 0I0 0W0 0F4 0I1 0W1 0F5 0I2 0W2 0I3 0W3 0I4 0W4 0I5 "
      "0W5\n"
      "1F0 1F1 1F2 1I0 1F3 1I1 1W0 1F4 1I2 1W1 1F5 1I3 1W2 1I4 1W3 1I5 1W4 "
      "1W5\n"
      "2F0 2F1 2I0 2F2 2I1 2F3 2I2 2W0 2F4 2I3 2W1 2F5 2I4 2W2 2I5 2W3 2W4 "
      "2W5\n"
      "3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3W0 3F4 3I4 3W1 3F5 3I5 3W2 3W3 3W4 "
      "3W5\n");
}

TEST(ZeroBubble, OrderOfH2) {
  EXPECT_EQ(
      listing(zbH2(pipeline(4, 8))),
      "0F0 0F1 0F2 0F3 0F4 0F5 0F6 0I0 0W0 0F7 0I1 0W1 0I2 0W2 0I3 0W3 0I4 "
      "0W4 0I5 0W5 0I6 0W6 0I7 0W7\n"
      "1F0 1F1 1F2 1F3 1F4 1I0 1F5 1I1 1F6 1I2 1W0 1F7 1I3 1W1 1I4 1W2 1I5 "
      "1W3 1I6 1W4 1I7 1W5 1W6 1W7\n"
      "2F0 2F1 2F2 2I0 2F3 2I1 2F4 2I2 2F5 2I3 2F6 2I4 2W0 2F7 2I5 2W1 2I6 "
      "2W2 2I7 2W3 2W4 2W5 2W6 2W7\n"
      "3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3F4 3I4 3F5 3I5 3F6 3I6 3W0 3F7 3I7 "
      "3W1 3W2 3W3 3W4 3W5 3W6 3W7\n");
}

TEST(ZeroBubble, TimelinesInTheSources) {
  expectTimelineInSource(zbH1(pipeline(4, 6)), "ZBH1");
  expectTimelineInSource(zbH2(pipeline(4, 8)), "ZBH2");
}

TEST(ZeroBubble, OneMicrobatchIsTheNaiveOrder) {
  for (int32_t p = 1; p <= 8; ++p) {
    Result<Program> order = naive(pipeline(p, 1));
    splitBackward(*order);
    EXPECT_EQ(listing(zbH1(pipeline(p, 1))), listing(order));
    EXPECT_EQ(listing(zbH2(pipeline(p, 1))), listing(order));
  }
}

// P. Qi et al., Zero Bubble Pipeline Parallelism (arXiv:2401.10241): times of
// table 6, bubble rates of table 5.
TEST(ZeroBubble, BubbleRatesOfThePaper) {
  const struct {
    int32_t p, m;
    double forward, input, weight, latency, h1, h2;
  } rows[] = {
      {8, 24, 18.522, 18.086, 9.337, 0.601, .1585, .1083},
      {8, 32, 18.513, 18.086, 9.331, 0.626, .1242, .0837},
      {8, 64, 18.546, 18.097, 9.321, 0.762, .0674, .0444},
      {16, 48, 11.347, 11.248, 8.132, 0.377, .1397, .0672},
      {16, 64, 11.307, 11.254, 8.101, 0.379, .1088, .0516},
      {16, 128, 11.325, 11.308, 8.109, 0.378, .0576, .0266},
  };
  for (const auto &row : rows) {
    const Problem problem = pipeline(
        row.p, row.m, cost(row.forward, row.input, row.weight), row.latency);
    EXPECT_NEAR(simulated(zbH1(problem)).bubbleRate, row.h1, 0.00005)
        << "p=" << row.p << " m=" << row.m;
    EXPECT_NEAR(simulated(zbH2(problem)).bubbleRate, row.h2, 0.00005)
        << "p=" << row.p << " m=" << row.m;
  }
}

TEST(ZeroBubble, UnitTimes) {
  const Timing h1 = simulated(zbH1(pipeline(4, 8)));
  EXPECT_EQ(idle(h1), 3);
  EXPECT_EQ(h1.makespan, 3 * 8 + 3);
  EXPECT_EQ(peaks(h1), std::vector<int64_t>(4, 4));
  const Timing h2 = simulated(zbH2(pipeline(4, 8)));
  EXPECT_EQ(idle(h2), 0);
  EXPECT_EQ(h2.makespan, 3 * 8 + 3);
  EXPECT_EQ(peaks(h2), std::vector<int64_t>(4, 7));
}

TEST(ZeroBubble, ClosedFormsOnAGrid) {
  // W <= F, the case of the closed forms.
  const StageCost costs[] = {cost(1, 1, 1), cost(2, 0.5, 0.25), cost(1, 3, 1),
                             cost(3, 1, 2)};
  for (int32_t p = 1; p <= 16; ++p)
    for (int32_t m : kMicrobatches)
      for (const StageCost &c : costs) {
        SCOPED_TRACE(testing::Message() << "p=" << p << " m=" << m);
        const double f = c.forward, i = c.input, w = c.weight;
        const Problem problem = pipeline(p, m, c);
        const Timing h1 = checked(zbH1(problem));
        const Timing h2 = checked(zbH2(problem));
        if (m <= p && w <= i) {
          EXPECT_EQ(h1.makespan, (m + p - 1) * (f + i) + w);
        }
        if (m >= p) {
          EXPECT_EQ(idle(h1), (p - 1) * (f + i - w));
        }
        if (m == p) {
          EXPECT_EQ(h2.span, h1.span);
        }
        if (m >= 2 * p - 1) {
          EXPECT_EQ(idle(h2), std::max(0.0, (p - 1) * (f + i - 2 * w)));
        }
        if (f == 1 && i == 1 && w == 1 && m >= p) {
          EXPECT_EQ(h1.makespan, 3 * m + p - 1);
        }
        EXPECT_EQ(peaks(h1), std::vector<int64_t>(p, std::min(m, p)));
        EXPECT_EQ(peaks(h2), std::vector<int64_t>(p, std::min(m, 2 * p - 1)));
      }
}

// The bubble formula of ZB-H1 is that of W <= F and no other.
TEST(ZeroBubble, LongWeightPartsLeaveABubbleInH1) {
  EXPECT_GT(idle(simulated(zbH1(pipeline(4, 8, cost(1, 1, 1.25))))),
            3 * (1 + 1 - 1.25));
}

TEST(ZeroBubble, Latency) {
  constexpr double latency = 1.0 / 64;
  for (int32_t p = 2; p <= 8; ++p)
    for (int32_t m = 2 * p; m <= 4 * p; ++m) {
      const Problem problem = pipeline(p, m, cost(1, 1, 0.75), latency);
      EXPECT_EQ(idle(simulated(zbH1(problem))),
                (p - 1) * 1.25 + 4 * (p - 1) * latency)
          << "p=" << p << " m=" << m;
      EXPECT_EQ(idle(simulated(zbH2(problem))),
                (p - 1) * 0.5 + 2 * (p - 1) * latency)
          << "p=" << p << " m=" << m;
    }
}
