#include "engine/step_cost.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace deepinfer::engine {
namespace {

// 10 ms, 0.5 ms a row, 1 us for a thousand tokens of context.
double true_seconds(size_t rows, double context) {
  return 0.010 + 0.0005 * static_cast<double>(rows) + 1e-9 * context;
}

void observe(StepCost& cost, size_t rows, double context) {
  cost.observe(rows, context, true_seconds(rows, context));
}

TEST(StepCost, KnowsNothingAtFirst) {
  const StepCost cost;
  EXPECT_FALSE(cost.known());
  EXPECT_EQ(cost.seconds(64, 1e6), 0);
  EXPECT_EQ(cost.rows_within(0.001, 64, 1e6, 100, 500), 500u);
}

TEST(StepCost, OneMeasurementAnswersForItsNeighbours) {
  StepCost cost;
  cost.observe(8, 0, 0.02);
  EXPECT_DOUBLE_EQ(cost.seconds(8, 0), 0.02);
  EXPECT_DOUBLE_EQ(cost.seconds(1, 0), 0.02);   // the weights are read for one row too
  EXPECT_DOUBLE_EQ(cost.seconds(16, 0), 0.04);  // nothing says that more rows are cheaper
}

TEST(StepCost, LearnsRowsAndContext) {
  StepCost cost;
  for (int round = 0; round < 20; ++round) {
    for (size_t rows : {1, 4, 16, 64, 256}) {
      observe(cost, rows, static_cast<double>(rows) * (round % 5) * 20'000);
    }
  }
  for (size_t rows : {1, 3, 16, 40, 200}) {
    for (double context : {0.0, 1e5, 4e6}) {
      EXPECT_NEAR(cost.seconds(rows, context), true_seconds(rows, context),
                  0.03 * true_seconds(rows, context))
          << rows << " rows, context " << context;
    }
  }
}

TEST(StepCost, GrowsWithRowsEvenWhenMeasurementsDoNot) {
  StepCost cost;
  cost.observe(4, 0, 0.030);
  cost.observe(16, 0, 0.020);
  double last = 0;
  for (size_t rows = 1; rows < 64; ++rows) {
    EXPECT_GE(cost.seconds(rows, 0), last);
    last = cost.seconds(rows, 0);
  }
}

TEST(StepCost, AStepThatWasDisturbedWeighsLittle) {
  StepCost calm, disturbed;
  for (int i = 0; i < 40; ++i) {
    observe(calm, 16, 0);
    observe(disturbed, 16, 0);
  }
  disturbed.observe(16, 0, 100.0);  // a machine that slept
  EXPECT_LE(disturbed.seconds(16, 0), 1.2 * calm.seconds(16, 0));
  for (int i = 0; i < 200; ++i) observe(disturbed, 16, 0);
  EXPECT_NEAR(disturbed.seconds(16, 0), calm.seconds(16, 0), 1e-4);
}

TEST(StepCost, FollowsAMachineThatBecameSlower) {
  StepCost cost;
  for (int i = 0; i < 100; ++i) cost.observe(16, 0, 0.010);
  for (int i = 0; i < 200; ++i) cost.observe(16, 0, 0.060);
  EXPECT_NEAR(cost.seconds(16, 0), 0.060, 0.001);
}

TEST(StepCost, RowsWithinIsTheMostThatFits) {
  StepCost cost;
  for (int i = 0; i < 10; ++i) {
    for (size_t rows : {1, 16, 128, 512}) observe(cost, rows, static_cast<double>(rows * i) * 1000);
  }
  for (double target : {0.005, 0.012, 0.02, 0.1, 10.0}) {
    const size_t rows = cost.rows_within(target, 16, 16'000, 2'000, 400);
    const auto after = [&](size_t more) {
      return cost.seconds(16 + more, 16'000 + 2'000.0 * static_cast<double>(more));
    };
    if (rows > 0) EXPECT_LE(after(rows), target);
    if (rows < 400) EXPECT_GT(after(rows + 1), target);
  }
}

TEST(StepCost, NonsenseIsIgnored) {
  StepCost cost;
  cost.observe(0, 0, 1);
  cost.observe(1, 0, 0);
  cost.observe(1, 0, -1);
  EXPECT_FALSE(cost.known());
}

}  // namespace
}  // namespace deepinfer::engine
