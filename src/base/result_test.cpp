#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace deepinfer {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) return Error::invalid("number " + std::to_string(number), "is odd");
  return number / 2;
}

Result<int> quarter(int number) { return half(TRY(half(number))); }

Result<void> need_even(int number) {
  TRY(half(number));
  return {};
}

TEST(Result, TryPassesValuesAndErrors) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().text(), "number 3: is odd");
  EXPECT_TRUE(need_even(2).ok());
  EXPECT_EQ(need_even(3).error().kind, ErrorKind::invalid);
}

TEST(Result, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 5);
}

TEST(Result, TextPutsTheHintInParentheses) {
  EXPECT_EQ(Error::io("f", "cannot open", "check the path").text(),
            "f: cannot open (check the path)");
  EXPECT_EQ(Error::io("", "w").text(), "w");
  EXPECT_EQ(Error::io("f", "").text(), "f");
}

TEST(ResultDeathTest, TheWrongSideIsABug) {
  EXPECT_DEATH(half(3).value(), "check failed");
  EXPECT_DEATH((void)half(2).error(), "check failed");
  EXPECT_DEATH(check(false, "seven is not eight"), "bug: .*seven is not eight");
}

}  // namespace
}  // namespace deepinfer
