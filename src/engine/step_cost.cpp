#include "engine/step_cost.h"

#include <algorithm>
#include <bit>

namespace deepinfer::engine {
namespace {

// A mean over about the last 32 steps of a group.
constexpr double kKeep = 31.0 / 32.0;
constexpr double kOutlier = 4;
// Before that many steps nothing is an outlier.
constexpr uint64_t kFirstSteps = 8;

}  // namespace

size_t StepCost::group_of(size_t rows) {
  const size_t octave = static_cast<size_t>(std::bit_width(rows)) - 1;
  const size_t half = octave > 0 && rows >= (size_t{3} << (octave - 1)) ? 1 : 0;
  return std::min(kGroups - 1, 2 * octave + half);
}

void StepCost::observe(size_t rows, double context_tokens, double seconds) {
  if (rows == 0 || !(seconds > 0)) return;
  if (observed_ >= kFirstSteps) {
    seconds = std::min(seconds, kOutlier * this->seconds(rows, context_tokens));
  }
  ++observed_;
  Group& group = groups_[group_of(rows)];
  for (double* sum : {&group.weight, &group.rows, &group.context, &group.seconds,
                      &group.context_squared, &group.context_seconds}) {
    *sum *= kKeep;
  }
  group.weight += 1;
  group.rows += static_cast<double>(rows);
  group.context += context_tokens;
  group.seconds += seconds;
  group.context_squared += context_tokens * context_tokens;
  group.context_seconds += context_tokens * seconds;
  update_slope();
}

void StepCost::update_slope() {
  double covariance = 0, variance = 0;
  for (const Group& group : groups_) {
    if (group.weight == 0) continue;
    covariance += group.context_seconds - group.context * group.seconds / group.weight;
    variance += group.context_squared - group.context * group.context / group.weight;
  }
  // Longer contexts never make a step faster.
  slope_ = variance > 0 ? std::max(0.0, covariance / variance) : 0;
}

double StepCost::seconds(size_t rows, double context_tokens) const {
  const double wanted = static_cast<double>(rows);
  const double explained = slope_ * context_tokens;
  double below_rows = 0, below = 0;
  for (const Group& group : groups_) {
    if (group.weight == 0) continue;
    const double at = group.rows / group.weight;
    const double base =
        std::max({below, (group.seconds - slope_ * group.context) / group.weight, 0.0});
    if (at >= wanted) {
      if (below_rows == 0) return base + explained;
      const double share = (wanted - below_rows) / (at - below_rows);
      return below + share * (base - below) + explained;
    }
    below_rows = at;
    below = base;
  }
  return below_rows == 0 ? 0 : below * wanted / below_rows + explained;
}

size_t StepCost::rows_within(double target, size_t rows, double context_tokens, double context,
                             size_t limit) const {
  if (!known()) return limit;
  const auto fits = [&](size_t more) {
    return seconds(rows + more, context_tokens + context * static_cast<double>(more)) <= target;
  };
  size_t low = 0, high = limit + 1;  // low fits (or is 0), high does not
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace deepinfer::engine
