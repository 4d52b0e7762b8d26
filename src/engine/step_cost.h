#pragma once

// StepCost: how long a step will take, learned from the steps that were.
//
//   seconds(rows, context) = base(rows) + slope * sum over rows of the context they read
//
// Row counts are gathered in half octaves (1, 2, 3, 4, 6, 8, 12, ...). Each keeps moving means of
// its steps; the slope is the regression of time on context within the groups, pooled over them;
// base runs through the groups' means, less what the slope explains, in straight lines. Below the
// smallest measured row count the smallest answers (a step of one row reads the weights too), above
// the largest the time grows in proportion. Steps that took four times what was expected count as
// four times: the machine was busy elsewhere.
// Source: spec deepinfer_engine.md section 6.2, with the context made explicit.
//
// Threads: one thread at a time.

#include <array>
#include <cstddef>
#include <cstdint>

namespace deepinfer::engine {

class StepCost {
 public:
  // context_tokens: sum over rows of the tokens each one reads.
  void observe(size_t rows, double context_tokens, double seconds);
  bool known() const { return observed_ > 0; }
  // 0 while nothing is known.
  double seconds(size_t rows, double context_tokens) const;
  // Most further rows, each with `context` tokens, so that a step of `rows` rows stays within
  // `target` seconds; at most `limit`. limit when nothing is known.
  size_t rows_within(double target, size_t rows, double context_tokens, double context,
                     size_t limit) const;

 private:
  static constexpr size_t kGroups = 48;  // up to 2^24 rows
  // Decayed sums over the steps of one group.
  struct Group {
    double weight = 0;
    double rows = 0, context = 0, seconds = 0;
    double context_squared = 0, context_seconds = 0;
  };
  static size_t group_of(size_t rows);
  void update_slope();

  std::array<Group, kGroups> groups_;
  double slope_ = 0;
  uint64_t observed_ = 0;
};

}  // namespace deepinfer::engine
