#include "speculation/draft_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace deepinfer::speculation {
namespace {

struct Totals {
  size_t drafted = 0;
  double tokens = 0;
  double time = 0;
};

// Each draft stands with probability `acceptance`, given those before it.
Totals run(DraftGate& gate, int steps, size_t most, double cost, double acceptance,
           std::mt19937& random) {
  std::bernoulli_distribution stands(acceptance);
  Totals totals;
  for (int i = 0; i < steps; ++i) {
    const size_t drafted = gate.drafts(most, cost);
    EXPECT_LE(drafted, most);
    size_t accepted = 0;
    while (accepted < drafted && stands(random)) ++accepted;
    if (drafted > 0) gate.observe(drafted, accepted);
    totals.drafted += drafted;
    totals.tokens += 1.0 + static_cast<double>(accepted);
    totals.time += 1.0 + static_cast<double>(drafted) * cost;
  }
  return totals;
}

TEST(DraftGate, LosesLittleWhereNoDraftStands) {
  std::mt19937 random(1);
  for (double cost : {0.0, 0.001, 0.02, 0.1, 0.3, 0.6, 0.95, 1.0, 5.0}) {
    for (size_t most : {1u, 5u, 32u, 100u}) {
      DraftGate gate;
      size_t drafted = 0;
      for (int steps = 200; steps <= 10000; steps += 200) {
        drafted += run(gate, 200, most, cost, 0.0, random).drafted;
        ASSERT_LE(drafted, static_cast<size_t>(steps) * 3 / 100) << cost << ' ' << most;
      }
      EXPECT_FALSE(gate.open() && cost >= 0.1);
      if (cost < 0.9) EXPECT_GT(drafted, 50u);  // it goes on trying
    }
  }
}

TEST(DraftGate, OpensWithinAFewStepsWhereEverythingStands) {
  std::mt19937 random(1);
  for (double cost : {0.01, 0.1, 0.3}) {
    DraftGate gate;
    run(gate, 8, 5, cost, 1.0, random);
    EXPECT_TRUE(gate.open());
    EXPECT_EQ(gate.drafts(5, cost), 5u) << cost;
  }
}

TEST(DraftGate, ReopensAfterALongTimeOff) {
  std::mt19937 random(1);
  for (double cost : {0.05, 0.3, 0.7}) {
    DraftGate gate;
    run(gate, 5000, 5, cost, 0.0, random);
    run(gate, 80, 5, cost, 1.0, random);
    EXPECT_TRUE(gate.open()) << cost;
    EXPECT_GE(gate.drafts(5, cost), 4u) << cost;
  }
}

TEST(DraftGate, ClosesSoonWhereNothingStandsAnyMore) {
  std::mt19937 random(1);
  DraftGate gate;
  run(gate, 2000, 5, 0.3, 1.0, random);
  EXPECT_EQ(gate.drafts(5, 0.3), 5u);
  run(gate, 3, 5, 0.3, 0.0, random);
  EXPECT_FALSE(gate.open());
  EXPECT_LE(run(gate, 200, 5, 0.3, 0.0, random).drafted, 6u);
  // A budget that is left is not spent at once: tries become rarer.
  DraftGate single;
  run(single, 2000, 1, 0.3, 1.0, random);
  EXPECT_LE(run(single, 200, 1, 0.3, 0.0, random).drafted, 10u);
  // Rows that cost little are given up later: after the time of 4 steps.
  DraftGate cheap;
  run(cheap, 2000, 5, 0.02, 1.0, random);
  EXPECT_LE(run(cheap, 2000, 5, 0.02, 0.0, random).drafted, 4 / 0.02 + 0.02 * 2000 + 1);
}

// Whatever stands, rows that were lost since any moment stay within the budget and its earnings.
TEST(DraftGate, LossesAreBoundedForEveryText) {
  std::mt19937 random(5);
  for (double cost : {0.05, 0.3, 0.6}) {
    for (uint32_t malice : {2u, 3u, 5u, 9u}) {
      DraftGate gate;
      run(gate, 500, 5, cost, 1.0, random);
      double lost = 0;
      for (int step = 1; step <= 3000; ++step) {
        const size_t drafted = gate.drafts(5, cost);
        // Counts that grow are punished, small ones are encouraged.
        const size_t accepted = drafted == 1 || (drafted > 1 && random() % malice == 0) ? 1 : 0;
        if (drafted > 0) gate.observe(drafted, accepted);
        lost += static_cast<double>(drafted) - static_cast<double>(accepted) / cost;
        ASSERT_LE(lost, std::max(16.0, 4 / cost) + DraftGate::kEarned * step) << cost;
      }
    }
  }
}

TEST(DraftGate, ACountThatWasTooSmallGrowsAgain) {
  DraftGate gate;
  for (int i = 0; i < 300; ++i) {  // only the first stands
    const size_t drafted = gate.drafts(5, 0.3);
    if (drafted > 0) gate.observe(drafted, 1);
  }
  EXPECT_EQ(gate.drafts(5, 0.3), 1u);
  std::mt19937 random(1);
  run(gate, 200, 5, 0.3, 1.0, random);
  EXPECT_EQ(gate.drafts(5, 0.3), 5u);
}

// Tokens for the time of the best fixed count of drafts.
double best_rate(size_t most, double cost, double acceptance) {
  double best = 1, tokens = 1;
  for (size_t g = 1; g <= most; ++g) {
    tokens += std::pow(acceptance, static_cast<double>(g));
    best = std::max(best, tokens / (1.0 + static_cast<double>(g) * cost));
  }
  return best;
}

TEST(DraftGate, ComesCloseToTheBestFixedCount) {
  std::mt19937 random(7);
  for (double acceptance : {0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0}) {
    for (double cost : {0.02, 0.1, 0.2, 0.3, 0.5, 0.8}) {
      DraftGate gate;
      const Totals totals = run(gate, 20000, 5, cost, acceptance, random);
      const double rate = totals.tokens / totals.time;
      EXPECT_GE(rate, 0.92 * best_rate(5, cost, acceptance)) << acceptance << ' ' << cost;
      EXPECT_GE(rate, 0.97) << acceptance << ' ' << cost;  // of plain decoding
    }
  }
}

TEST(DraftGate, EstimatesAcceptanceByPosition) {
  DraftGate gate;
  std::mt19937 random(3);
  double first = 0, second = 0;
  constexpr int kSteps = 4000;
  for (int i = 0; i < kSteps; ++i) {
    // The first stands 9 times in 10, the second then 1 in 2, the third never.
    const size_t accepted = random() % 10 == 0 ? 0 : random() % 2 == 0 ? 1 : 2;
    gate.observe(3, accepted);
    first += gate.acceptance(0);
    second += gate.acceptance(1);
  }
  EXPECT_NEAR(first / kSteps, 0.9, 0.05);
  EXPECT_NEAR(second / kSteps, 0.5, 0.06);
  EXPECT_LT(gate.acceptance(2), 0.15);
  EXPECT_GE(gate.acceptance(1000), 0.0);
}

TEST(DraftGate, DraftsWhatPaysAtTheCost) {
  DraftGate gate;
  for (int i = 0; i < 200; ++i) gate.observe(5, i % 5 == 0 ? 0 : 5);  // the first decides
  gate.drafts(5, 0.3);
  EXPECT_EQ(gate.drafts(5, 0.3), 5u);
  EXPECT_EQ(gate.drafts(2, 0.3), 2u);
  EXPECT_EQ(gate.drafts(0, 0.3), 0u);
  EXPECT_EQ(gate.drafts(5, 1.0), 0u);  // rows that cost a step
  EXPECT_EQ(gate.drafts(5, 0.0), 5u);  // unknown
  EXPECT_EQ(gate.drafts(5, std::numeric_limits<double>::quiet_NaN()), 5u);
  EXPECT_EQ(gate.drafts(5, -1.0), 5u);
}

TEST(DraftGate, ATryLastsUntilThereIsSomethingToTry) {
  DraftGate gate;
  std::mt19937 random(1);
  run(gate, 1000, 5, 0.3, 0.0, random);
  ASSERT_FALSE(gate.open());
  for (int i = 0; i < 100; ++i) gate.drafts(5, 0.3);  // the drafter proposes nothing
  EXPECT_EQ(gate.drafts(5, 0.3), 1u);
}

}  // namespace
}  // namespace deepinfer::speculation
