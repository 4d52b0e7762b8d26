#include "base/metrics.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace deepinfer {
namespace {

TEST(Metrics, TextFollowsTheExpositionFormat) {
  Metrics metrics;
  metrics.counter("tokens_total", "Tokens.\nOf all \\ kinds.").add(3);
  metrics.counter("requests_total", "Requests.", {{"status", "a\"b\\c\nd"}}).add();
  metrics.gauge("rows", "Rows.").set(2.5);
  Histogram& step = metrics.histogram("step_seconds", "Step.", {0.1, 1.0}, {{"kind", "decode"}});
  for (double value : {0.05, 0.1, 0.5, 7.0}) step.observe(value);
  EXPECT_EQ(metrics.text(),
            "# HELP tokens_total Tokens.\\nOf all \\\\ kinds.\n# TYPE tokens_total counter\n"
            "tokens_total 3\n"
            "# HELP requests_total Requests.\n# TYPE requests_total counter\n"
            "requests_total{status=\"a\\\"b\\\\c\\nd\"} 1\n"
            "# HELP rows Rows.\n# TYPE rows gauge\nrows 2.5\n"
            "# HELP step_seconds Step.\n# TYPE step_seconds histogram\n"
            "step_seconds_bucket{kind=\"decode\",le=\"0.1\"} 2\n"
            "step_seconds_bucket{kind=\"decode\",le=\"1\"} 3\n"
            "step_seconds_bucket{kind=\"decode\",le=\"+Inf\"} 4\n"
            "step_seconds_sum{kind=\"decode\"} 7.65\n"
            "step_seconds_count{kind=\"decode\"} 4\n");
}

TEST(Metrics, TheSameNameAndLabelsAreTheSameMetric) {
  Metrics metrics;
  Counter& a = metrics.counter("n_total", "N.", {{"k", "1"}});
  Counter& b = metrics.counter("n_total", "N.", {{"k", "2"}});
  EXPECT_NE(&a, &b);
  EXPECT_EQ(&a, &metrics.counter("n_total", "N.", {{"k", "1"}}));
}

TEST(Metrics, ThreadsLoseNothing) {
  Metrics metrics;
  Counter& counter = metrics.counter("n_total", "N.");
  Gauge& gauge = metrics.gauge("g", "G.");
  Histogram& histogram = metrics.histogram("h", "H.", {1.0, 2.0});
  std::vector<std::thread> threads;
  for (int t = 0; t < 40; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        counter.add();
        gauge.add(1.0);
        histogram.observe(1.5);
        if (i % 500 == 0) metrics.text();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.value(), 40'000u);
  EXPECT_EQ(gauge.value(), 40'000.0);
  EXPECT_EQ(histogram.snapshot().count, 40'000u);
  EXPECT_EQ(histogram.snapshot().counts[1], 40'000u);
  EXPECT_EQ(histogram.snapshot().sum, 60'000.0);
}

TEST(Histogram, QuantilesInterpolate) {
  Histogram histogram({1.0, 2.0, 4.0});
  EXPECT_EQ(histogram.quantile(0.5), 0.0);
  for (int i = 0; i < 10; ++i) histogram.observe(1.5);
  EXPECT_DOUBLE_EQ(histogram.quantile(0.5), 1.5);
  EXPECT_DOUBLE_EQ(histogram.quantile(1.0), 2.0);
  for (int i = 0; i < 90; ++i) histogram.observe(100.0);
  EXPECT_DOUBLE_EQ(histogram.quantile(0.99), 4.0);
  EXPECT_EQ(Histogram({}).quantile(0.5), 0.0);
}

TEST(Histogram, NanGoesToTheLastBucketAndSparesTheSum) {
  Histogram histogram({1.0});
  histogram.observe(std::numeric_limits<double>::quiet_NaN());
  histogram.observe(0.5);
  EXPECT_EQ(histogram.snapshot().counts, (std::vector<uint64_t>{1, 1}));
  EXPECT_EQ(histogram.snapshot().sum, 0.5);
}

TEST(MetricsDeathTest, MisuseIsABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Metrics metrics;
  metrics.counter("n_total", "N.");
  metrics.histogram("h", "H.", {1.0});
  EXPECT_DEATH(metrics.gauge("n_total", "N."), "another type");
  EXPECT_DEATH(metrics.counter("1n", "N."), "not a metric name");
  EXPECT_DEATH(metrics.histogram("h", "H.", {2.0}), "other bounds");
  EXPECT_DEATH(Histogram({2.0, 1.0}), "ascend");
}

}  // namespace
}  // namespace deepinfer
