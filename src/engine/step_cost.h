#pragma once

// StepCost: how long a step will take, learned from the steps that were.
//
//   seconds(rows, context) = base(rows) + slope * sum over rows of the context they read
//
// base is a table over row counts 1, 2, 4, 8, ... (and what lies between, interpolated), each the
// median of its last measurements; the slope is the median over recent steps of what base does not
// explain. Until a size was measured its neighbours answer, scaled by rows.
// Source: spec deepinfer_engine.md section 6.2, with the context made explicit.
//
// Threads: one thread at a time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepinfer::engine {

class StepCost {
 public:
  // context_tokens: sum over rows of the tokens each one reads.
  void observe(size_t rows, double context_tokens, double seconds);
  bool known() const;  // anything was observed
  double seconds(size_t rows, double context_tokens) const;
  // Most further rows, each with `context` tokens, so that a step of `rows` rows stays within
  // `target` seconds; at most `limit`. limit when nothing is known.
  size_t rows_within(double target, size_t rows, double context_tokens, double context,
                     size_t limit) const;

 private:
  static constexpr size_t kSizes = 16;  // up to 2^15 rows
  static constexpr size_t kWindow = 32;
  struct Samples {
    std::array<double, kWindow> seconds{};
    size_t count = 0;
    double median = 0;
  };
  std::array<Samples, kSizes> base_;
  std::array<double, 256> slopes_{};
  size_t slope_count_ = 0;
  double slope_ = 0;
};

}  // namespace deepinfer::engine
