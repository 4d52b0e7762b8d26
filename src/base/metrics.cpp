#include "base/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/check.h"

namespace deepinfer {

size_t metric_shard() {
  static std::atomic<size_t> next{0};
  thread_local const size_t shard = next.fetch_add(1, std::memory_order_relaxed) % kMetricShards;
  return shard;
}

uint64_t Counter::value() const {
  uint64_t sum = 0;
  for (const Shard& shard : shards_) sum += shard.value.load(std::memory_order_relaxed);
  return sum;
}

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)) {
  check(std::is_sorted(bounds_.begin(), bounds_.end()), "histogram bounds must ascend");
  for (Shard& shard : shards_) {
    shard.counts = std::make_unique<std::atomic<uint64_t>[]>(bounds_.size() + 1);
  }
}

void Histogram::observe(double value) {
  // NaN compares false with every bound and lands in the last bucket, but does not spoil the sum.
  size_t bucket = 0;
  while (bucket < bounds_.size() && !(value <= bounds_[bucket])) ++bucket;
  Shard& shard = shards_[metric_shard()];
  shard.counts[bucket].fetch_add(1, std::memory_order_relaxed);
  if (std::isfinite(value)) shard.sum.fetch_add(value, std::memory_order_relaxed);
}

Histogram::Snapshot Histogram::snapshot() const {
  Snapshot out;
  out.counts.resize(bounds_.size() + 1);
  for (const Shard& shard : shards_) {
    for (size_t i = 0; i < out.counts.size(); ++i) {
      out.counts[i] += shard.counts[i].load(std::memory_order_relaxed);
    }
    out.sum += shard.sum.load(std::memory_order_relaxed);
  }
  for (uint64_t count : out.counts) out.count += count;
  return out;
}

double Histogram::quantile(double q) const {
  const Snapshot now = snapshot();
  if (now.count == 0 || bounds_.empty()) return 0.0;
  const double rank = std::clamp(q, 0.0, 1.0) * static_cast<double>(now.count);
  double below = 0.0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    const double count = static_cast<double>(now.counts[i]);
    if (count > 0.0 && below + count >= rank) {
      const double low = i > 0 ? bounds_[i - 1] : std::min(0.0, bounds_[0]);
      return low + (bounds_[i] - low) * (rank - below) / count;
    }
    below += count;
  }
  return bounds_.back();
}

struct Metrics::Series {
  MetricLabels labels;
  std::unique_ptr<Counter> counter;
  std::unique_ptr<Gauge> gauge;
  std::unique_ptr<Histogram> histogram;
};

struct Metrics::Family {
  std::string name;
  std::string help;
  Type type;
  std::vector<std::unique_ptr<Series>> series;
};

namespace {

bool valid_name(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
  };
  if (name.empty() || !letter(name[0])) return false;
  return std::all_of(name.begin(), name.end(),
                     [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

// Help texts escape backslash and newline, label values the quote as well.
std::string escaped(std::string_view text, bool quote) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\\' || (quote && c == '"')) {
      out += '\\';
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

// {a="1",le="0.5"}, nothing without labels.
std::string label_text(const MetricLabels& labels, std::string_view le = "") {
  std::string out;
  for (const auto& [key, value] : labels) {
    out += fmt::format("{}{}=\"{}\"", out.empty() ? "" : ",", key, escaped(value, true));
  }
  if (!le.empty()) out += fmt::format("{}le=\"{}\"", out.empty() ? "" : ",", le);
  return out.empty() ? out : "{" + out + "}";
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

void append_histogram(std::string& out, const std::string& name, const MetricLabels& labels,
                      const Histogram& histogram) {
  const Histogram::Snapshot now = histogram.snapshot();
  uint64_t below = 0;
  for (size_t i = 0; i < now.counts.size(); ++i) {
    below += now.counts[i];
    const std::string le =
        i < histogram.bounds().size() ? number_text(histogram.bounds()[i]) : "+Inf";
    fmt::format_to(std::back_inserter(out), "{}_bucket{} {}\n", name, label_text(labels, le),
                   below);
  }
  fmt::format_to(std::back_inserter(out), "{0}_sum{1} {2}\n{0}_count{1} {3}\n", name,
                 label_text(labels), number_text(now.sum), now.count);
}

}  // namespace

Metrics::Metrics() = default;
Metrics::~Metrics() = default;

Metrics::Series& Metrics::series(std::string_view name, std::string_view help, Type type,
                                 MetricLabels labels) {
  check(valid_name(name), "not a metric name");
  Family* known_family = nullptr;
  for (const auto& family : families_) {
    if (family->name == name) known_family = family.get();
  }
  if (!known_family) {
    families_.push_back(
        std::make_unique<Family>(Family{std::string(name), std::string(help), type, {}}));
    known_family = families_.back().get();
  }
  Family& found = *known_family;
  check(found.type == type, "a metric of this name has another type");
  for (const auto& known : found.series) {
    if (known->labels == labels) return *known;
  }
  found.series.push_back(std::make_unique<Series>());
  found.series.back()->labels = std::move(labels);
  return *found.series.back();
}

Counter& Metrics::counter(std::string_view name, std::string_view help, MetricLabels labels) {
  const std::lock_guard lock(mutex_);
  Series& found = series(name, help, Type::counter, std::move(labels));
  if (!found.counter) found.counter = std::make_unique<Counter>();
  return *found.counter;
}

Gauge& Metrics::gauge(std::string_view name, std::string_view help, MetricLabels labels) {
  const std::lock_guard lock(mutex_);
  Series& found = series(name, help, Type::gauge, std::move(labels));
  if (!found.gauge) found.gauge = std::make_unique<Gauge>();
  return *found.gauge;
}

Histogram& Metrics::histogram(std::string_view name, std::string_view help,
                              const std::vector<double>& bounds, MetricLabels labels) {
  const std::lock_guard lock(mutex_);
  Series& found = series(name, help, Type::histogram, std::move(labels));
  if (!found.histogram) found.histogram = std::make_unique<Histogram>(bounds);
  check(found.histogram->bounds() == bounds, "a histogram of this name has other bounds");
  return *found.histogram;
}

std::string Metrics::text() const {
  constexpr std::string_view kTypes[] = {"counter", "gauge", "histogram"};
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const auto& family : families_) {
    fmt::format_to(std::back_inserter(out), "# HELP {0} {1}\n# TYPE {0} {2}\n", family->name,
                   escaped(family->help, false), kTypes[static_cast<size_t>(family->type)]);
    for (const auto& item : family->series) {
      if (item->histogram) {
        append_histogram(out, family->name, item->labels, *item->histogram);
        continue;
      }
      const std::string value = item->counter ? fmt::format("{}", item->counter->value())
                                              : number_text(item->gauge->value());
      out += family->name + label_text(item->labels) + " " + value + "\n";
    }
  }
  return out;
}

}  // namespace deepinfer
