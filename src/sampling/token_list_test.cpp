#include "sampling/token_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace deepinfer::sampling {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(TokenList, NumbersAndRangesWithBothEnds) {
  EXPECT_THAT(parse_token_list("blacklist", "0..3,7,10..12", 100).value(),
              ElementsAre(0, 1, 2, 3, 7, 10, 11, 12));
  EXPECT_THAT(parse_token_list("blacklist", "99", 100).value(), ElementsAre(99));
  EXPECT_THAT(parse_token_list("blacklist", "", 100).value(), IsEmpty());
}

TEST(TokenList, ErrorsNameThePlace) {
  const std::pair<std::string, std::string> cases[] = {
      {"x", "no number at character 0"},
      {"1,", "',' at character 1 is out of place"},
      {",1", "no number at character 0"},
      {"1,,2", "no number at character 2"},
      {"1..", "no number at character 3"},
      {"1...3", "no number at character 3"},
      {"1.3", "'.' at character 1 is out of place"},
      {"-1", "no number at character 0"},
      {"1 ,2", "' ' at character 1 is out of place"},
      {"3,2", "2 at character 2 follows 3"},
      {"3,3", "3 at character 2 follows 3"},
      {"1..4,4", "4 at character 5 follows 4"},
      {"4..4", "the range 4..4 does not increase"},
      {"5..4", "the range 5..4 does not increase"},
      {"100", "the id at character 0 is not below the vocabulary of 100"},
      {"0..100", "the id at character 3 is not below"},
      {"99999999999999999999999", "the id at character 0 is not below"},
  };
  for (const auto& [text, message] : cases) {
    const auto result = parse_token_list("blacklist", text, 100);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.error().kind, ErrorKind::invalid);
    EXPECT_THAT(result.error().text(), HasSubstr("blacklist: " + message)) << text;
  }
}

}  // namespace
}  // namespace deepinfer::sampling
