#pragma once

// Counters, gauges and histograms, and their Prometheus text (exposition format 0.0.4).
//
//   Metrics metrics;
//   Counter& tokens = metrics.counter("deepinfer_tokens_total", "Tokens generated.");
//   Histogram& step = metrics.histogram("deepinfer_step_seconds", "Step time.", {0.01, 0.1, 1});
//   tokens.add(3);
//   step.observe(0.02);
//   std::string page = metrics.text();
//
// Updates never lock: each thread adds to one of a few padded shards, and text() sums them. A page
// that is read during updates may see some of them and not others, but never a value that falls.
//
// Ownership: metrics live in their Metrics until it ends. Threads: all functions from any.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepinfer {

// {{"model", "smollm2"}, {"status", "ok"}}
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

inline constexpr size_t kMetricShards = 16;

// Which shard the calling thread adds to.
size_t metric_shard();

class Counter {
 public:
  void add(uint64_t count = 1) {
    shards_[metric_shard()].value.fetch_add(count, std::memory_order_relaxed);
  }
  uint64_t value() const;

 private:
  struct alignas(64) Shard {
    std::atomic<uint64_t> value{0};
  };
  std::array<Shard, kMetricShards> shards_;
};

class Gauge {
 public:
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  void add(double by) { value_.fetch_add(by, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0.0};
};

class Histogram {
 public:
  // bounds: upper ends of the buckets, ascending; one more bucket takes the rest.
  explicit Histogram(std::vector<double> bounds);

  void observe(double value);

  struct Snapshot {
    std::vector<uint64_t> counts;  // [bounds + 1], not cumulative
    uint64_t count = 0;            // their sum
    double sum = 0.0;
  };
  Snapshot snapshot() const;
  const std::vector<double>& bounds() const { return bounds_; }

  // The value below which the share q (0..1) of the observations lies, interpolated inside of its
  // bucket; 0 without observations, the last bound when it lies above it.
  double quantile(double q) const;

 private:
  struct alignas(64) Shard {
    std::unique_ptr<std::atomic<uint64_t>[]> counts;  // [bounds + 1]
    std::atomic<double> sum{0.0};
  };
  std::vector<double> bounds_;
  std::array<Shard, kMetricShards> shards_;
};

class Metrics {
 public:
  Metrics();
  ~Metrics();

  // The metric of this name and these labels, made at the first call. Names follow
  // [a-zA-Z_:][a-zA-Z0-9_:]*; one name is of one type and a histogram's bounds are those of the
  // first call (checked).
  Counter& counter(std::string_view name, std::string_view help, MetricLabels labels = {});
  Gauge& gauge(std::string_view name, std::string_view help, MetricLabels labels = {});
  Histogram& histogram(std::string_view name, std::string_view help,
                       const std::vector<double>& bounds, MetricLabels labels = {});

  // Families in the order in which they were made.
  std::string text() const;

 private:
  struct Family;
  struct Series;
  enum class Type { counter, gauge, histogram };
  Series& series(std::string_view name, std::string_view help, Type type, MetricLabels labels);

  mutable std::mutex mutex_;  // guards families_, not the values
  std::vector<std::unique_ptr<Family>> families_;
};

}  // namespace deepinfer
