#pragma once

// What `bench` measured, and how it is printed: a line for people or a JSON object.
//
// Threads: plain values.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/model.h"

namespace deepinfer::apps {

struct Spread {
  double least = 0;
  double median = 0;
  double most = 0;
};
// Requires at least one value.
Spread spread_of(std::vector<double> values);

struct Measured {
  std::string name;
  std::string model;  // empty: no model
  std::string unit;
  Spread spread;
  double limit = 0;        // in the same unit; 0: none
  std::string limit_name;  // "memory reads at 36.1 GB/s"
  std::string isa;
  size_t threads = 0;
  double load = 0;  // share of all CPUs that others used meanwhile
  struct Peer {
    std::string name;
    Spread spread;
  };
  std::vector<Peer> peers;
  std::vector<std::pair<std::string, double>> details;  // more members of the JSON line
  std::vector<std::string> notes;                       // more lines of the text
};

std::string measured_json(const Measured& measured);
std::string measured_text(const Measured& measured);

// What the machine does in a second at most, all threads together.
struct MachineLimits {
  double read_bytes = 0;
  double f32 = 0, int8_signed = 0, int8_unsigned = 0;  // operations
};
// The seconds below which an operation cannot be done: its weights read from memory, or its
// products and other arithmetic at the instructions' peaks, whichever takes longer.
double floor_seconds(const models::OperationTime& time, const MachineLimits& limits);

// A table: time, calls, GB/s, GOP/s, share of the time and of the limit of each operation.
std::string profile_text(const std::vector<models::OperationTime>& times,
                         const MachineLimits& limits);
// One object for each operation.
std::string profile_json(const std::string& name, const std::vector<models::OperationTime>& times,
                         const MachineLimits& limits);

}  // namespace deepinfer::apps
