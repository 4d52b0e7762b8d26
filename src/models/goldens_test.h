#pragma once

// Ways to compare with goldens, for the tests of this folder.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/golden_error.h"
#include "tests/golden_file.h"

namespace deepinfer::models {

inline std::vector<int32_t> golden_ids(const GoldenTensor& tensor) {
  const std::span<const int32_t> ids = tensor.as<int32_t>();
  return {ids.begin(), ids.end()};
}

// Largest difference, infinite where a value is NaN; fails at once when the sizes differ.
inline float worst_of(std::span<const float> actual, std::span<const float> expected) {
  EXPECT_EQ(actual.size(), expected.size());
  if (actual.size() != expected.size()) return INFINITY;
  float worst = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const float difference = std::abs(actual[i] - expected[i]);
    if (std::isnan(difference)) return INFINITY;
    worst = std::max(worst, difference);
  }
  return worst;
}

}  // namespace deepinfer::models
