#include "apps/bench_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/json_writer.h"

namespace deepinfer::apps {
namespace {

double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

void write_spread(JsonWriter& json, const Spread& spread) {
  json.member("min", spread.least);
  json.member("median", spread.median);
  json.member("max", spread.most);
}

double total_seconds(const std::vector<models::OperationTime>& times) {
  double total = 0;
  for (const models::OperationTime& time : times) total += time.seconds;
  return total;
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  check(!values.empty(), "a spread of nothing");
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {values.front(), median, values.back()};
}

std::string measured_json(const Measured& measured) {
  std::string line;
  JsonWriter json(line);
  json.begin_object();
  json.member("name", measured.name);
  if (!measured.model.empty()) json.member("model", measured.model);
  json.member("value", measured.spread.median);
  json.member("unit", measured.unit);
  write_spread(json, measured.spread);
  if (measured.limit > 0) {
    json.member("limit", measured.limit);
    json.member("share", measured.spread.median / measured.limit);
    json.member("limit_name", measured.limit_name);
  }
  json.member("isa", measured.isa);
  json.member("threads", measured.threads);
  json.member("load", measured.load);
  for (const auto& [name, value] : measured.details) json.member(name, value);
  const auto write_peer = [&](const Measured::Peer& peer) {
    json.begin_object();
    json.member("name", peer.name);
    write_spread(json, peer.spread);
    json.member("ratio", rate(measured.spread.median, peer.spread.median));
    json.end_object();
  };
  if (!measured.peers.empty()) {
    json.key("peer");
    write_peer(measured.peers.front());
  }
  if (measured.peers.size() > 1) {
    json.key("peers");
    json.begin_array();
    for (const Measured::Peer& peer : measured.peers) write_peer(peer);
    json.end_array();
  }
  json.end_object();
  return line + "\n";
}

std::string measured_text(const Measured& measured) {
  const auto figures = [](const Spread& spread) {
    return fmt::format("{:>9.1f}  (min {:.1f}, max {:.1f})", spread.median, spread.least,
                       spread.most);
  };
  std::string text =
      fmt::format("{:<16}{} {}  {}, {} thread{}, others {:.0f} %\n", measured.name,
                  figures(measured.spread), measured.unit, measured.isa, measured.threads,
                  measured.threads == 1 ? "" : "s", 100 * measured.load);
  if (measured.limit > 0) {
    const double share = measured.spread.median / measured.limit;
    text += fmt::format("  limit         {:>9.1f}  {}: {:.0f} %{}\n", measured.limit,
                        measured.limit_name, 100 * share,
                        share > 1 ? " (part of the weights stays in the processor's cache)" : "");
  }
  for (const std::string& note : measured.notes) text += "  " + note + "\n";
  for (const Measured::Peer& peer : measured.peers) {
    text += fmt::format("  {:<14}{}  ours is {:.2f} times as fast\n", peer.name,
                        figures(peer.spread), rate(measured.spread.median, peer.spread.median));
  }
  return text;
}

double floor_seconds(const models::OperationTime& time, const MachineLimits& limits) {
  const double f32 = std::max(0.0, time.operations - time.int8_signed - time.int8_unsigned);
  const double arithmetic = rate(f32, limits.f32) + rate(time.int8_signed, limits.int8_signed) +
                            rate(time.int8_unsigned, limits.int8_unsigned);
  return std::max(arithmetic, rate(static_cast<double>(time.weight_bytes), limits.read_bytes));
}

std::string profile_text(const std::vector<models::OperationTime>& times,
                         const MachineLimits& limits) {
  const double total = total_seconds(times);
  std::string text = fmt::format("  {:<20}{:>10}{:>9}{:>9}{:>9}{:>10}{:>11}\n", "operation", "ms",
                                 "share", "calls", "GB/s", "GOP/s", "of limit");
  double floors = 0;
  const auto of_limit = [](double floor, double seconds) {
    return floor > 0 ? fmt::format("{:.0f} %", 100 * rate(floor, seconds)) : std::string();
  };
  for (const models::OperationTime& time : times) {
    const double floor = floor_seconds(time, limits);
    floors += floor;
    text += fmt::format("  {:<20}{:>10.2f}{:>7.1f} %{:>9}{:>9.1f}{:>10.1f}{:>11}\n", time.name,
                        1e3 * time.seconds, 100 * rate(time.seconds, total), time.calls,
                        rate(static_cast<double>(time.weight_bytes), time.seconds) / 1e9,
                        rate(time.operations, time.seconds) / 1e9, of_limit(floor, time.seconds));
  }
  text += fmt::format("  {:<20}{:>10.2f}{:>48}\n", "all", 1e3 * total, of_limit(floors, total));
  return text;
}

std::string profile_json(const std::string& name, const std::vector<models::OperationTime>& times,
                         const MachineLimits& limits) {
  const double total = total_seconds(times);
  std::string lines;
  for (const models::OperationTime& time : times) {
    JsonWriter json(lines);
    json.begin_object();
    json.member("name", name + " profile");
    json.member("operation", time.name);
    json.member("seconds", time.seconds);
    json.member("share", rate(time.seconds, total));
    json.member("calls", time.calls);
    json.member("weight_bytes", time.weight_bytes);
    json.member("operations", time.operations);
    json.member("share_of_limit", rate(floor_seconds(time, limits), time.seconds));
    json.end_object();
    lines += '\n';
  }
  return lines;
}

}  // namespace deepinfer::apps
