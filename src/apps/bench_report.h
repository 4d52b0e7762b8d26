#pragma once

// What `bench` measured, and how it is printed: a line for people or a JSON object.
//
// Threads: plain values.

#include <optional>
#include <string>
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
};

std::string measured_json(const Measured& measured);
std::string measured_text(const Measured& measured);

// A table: time, calls, GB/s, GOP/s and share of each operation.
std::string profile_text(const std::vector<models::OperationTime>& times);
// One object for each operation.
std::string profile_json(const std::string& name, const std::vector<models::OperationTime>& times);

}  // namespace deepinfer::apps
