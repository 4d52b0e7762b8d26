#include "tests/golden_error.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace deepinfer {
namespace {

// What the running test has recorded under a name; "" if nothing.
std::string recorded(const std::string& key) {
  const auto& result = *::testing::UnitTest::GetInstance()->current_test_info()->result();
  for (int i = 0; i < result.test_property_count(); ++i) {
    if (result.GetTestProperty(i).key() == key) return result.GetTestProperty(i).value();
  }
  return "";
}

TEST(GoldenError, TheLargestErrorIsKept) {
  expect_error("family/tiny", "logits, largest", 2e-5, 1e-3);
  expect_error("family/tiny", "logits, largest", 1e-3, 1e-3);
  expect_error("family/tiny", "logits, largest", 3e-5, 1e-3);
  EXPECT_EQ(recorded("golden.family/tiny.logits, largest"), "0.001 <= 0.001");
}

TEST(GoldenError, TheSmallestAgreementIsKept) {
  expect_agreement("family/tiny", "rows, share", 0.96, 0.9);
  expect_agreement("family/tiny", "rows, share", 0.9, 0.9);
  expect_agreement("family/tiny", "rows, share", 1, 0.9);
  EXPECT_EQ(recorded("golden.family/tiny.rows, share"), "0.9 >= 0.9");
}

TEST(GoldenError, WhatIsOutOfBoundsFailsAndSaysWhere) {
  EXPECT_NONFATAL_FAILURE(expect_error("family/tiny", "logits, rms", 2, 1, "row 7"),
                          "family/tiny: logits, rms is 2, its tolerance 1; row 7");
  EXPECT_NONFATAL_FAILURE(expect_agreement("family/tiny", "rows, share", 0.5, 0.75),
                          "family/tiny: rows, share is 0.5, must be 0.75");
}

TEST(GoldenError, NaNFailsAndIsTheWorst) {
  EXPECT_NONFATAL_FAILURE(expect_error("family/tiny", "logits, rms", NAN, 1), "is nan");
  expect_error("family/tiny", "logits, rms", 0.5, 1);
  EXPECT_EQ(recorded("golden.family/tiny.logits, rms"), "nan <= 1");
  EXPECT_NONFATAL_FAILURE(expect_agreement("family/tiny", "rows, share", NAN, 0.5), "is nan");
}

}  // namespace
}  // namespace deepinfer
