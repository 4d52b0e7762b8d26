#pragma once

// Comparisons with goldens that leave their figure behind, for the tests of every folder: each one
// asserts, and records the worst figure of the running test as the property
// `golden.<golden>.<measure>`. tools/golden_table.py makes a table of them.
//
//   expect_error("deepseek_v41/a_fp32", "logits, largest", largest, 1e-3, "chunks of 7");
//   expect_agreement("deepseek_v41/c_long", "rows of the same top-1, share", same / 128.0, 0.95);
//
// `golden` is "<family>/<golden>" as in tests/golden and has no dot. `measure` says what is
// compared and, after a comma, how: largest, rms, relative, share, cosine.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <string>
#include <string_view>

namespace deepinfer {

// "<value> <relation> <bound>", the form of the property.
inline std::string golden_figure(double value, std::string_view relation, double bound) {
  char text[80];
  std::snprintf(text, sizeof text, "%.6g %.*s %.6g", value, static_cast<int>(relation.size()),
                relation.data(), bound);
  return text;
}

// Keeps the property of this test that says the worse of two values: NaN, else the larger one for
// `<=` and the smaller one for `>=`.
inline void record_golden(const std::string& golden, const std::string& measure, double value,
                          std::string_view relation, double bound) {
  const std::string key = "golden." + golden + "." + measure;
  const ::testing::TestResult& result =
      *::testing::UnitTest::GetInstance()->current_test_info()->result();
  for (int i = 0; i < result.test_property_count(); ++i) {
    if (result.GetTestProperty(i).key() != key) continue;
    const double before = std::strtod(result.GetTestProperty(i).value(), nullptr);
    const bool worse = relation == "<=" ? value > before : value < before;
    if (std::isnan(before) || !(std::isnan(value) || worse)) return;
  }
  ::testing::Test::RecordProperty(key, golden_figure(value, relation, bound));
}

// value <= tolerance; `where` tells cases of one test apart when it fails.
inline void expect_error(const std::string& golden, const std::string& measure, double value,
                         double tolerance, const std::string& where = "",
                         std::source_location at = std::source_location::current()) {
  record_golden(golden, measure, value, "<=", tolerance);
  if (value <= tolerance) return;
  ADD_FAILURE_AT(at.file_name(), static_cast<int>(at.line()))
      << golden << ": " << measure << " is " << value << ", its tolerance " << tolerance
      << (where.empty() ? "" : "; ") << where;
}

// share >= least; 1 is perfect.
inline void expect_agreement(const std::string& golden, const std::string& measure, double share,
                             double least, const std::string& where = "",
                             std::source_location at = std::source_location::current()) {
  record_golden(golden, measure, share, ">=", least);
  if (share >= least) return;
  ADD_FAILURE_AT(at.file_name(), static_cast<int>(at.line()))
      << golden << ": " << measure << " is " << share << ", must be " << least
      << (where.empty() ? "" : "; ") << where;
}

}  // namespace deepinfer
