#include "apps/thinking_style.h"

#include <gtest/gtest.h>

namespace deepinfer::apps {
namespace {

std::string shown(const std::string& text, size_t piece, bool decorated, bool starts_thinking) {
  ThinkingStyle style(decorated, starts_thinking);
  std::string out;
  for (size_t at = 0; at < text.size(); at += piece) out += style.push(text.substr(at, piece));
  return out + style.flush();
}

TEST(ThinkingStyle, DimsWhatIsBetweenTheTagsHoweverItIsCut) {
  const std::string text = "<think>hm < 3</think>\n\nFour <thinks>.";
  for (size_t piece = 1; piece <= text.size(); ++piece)
    EXPECT_EQ(shown(text, piece, true, false), "\033[2mhm < 3\033[0m\n\nFour <thinks>.") << piece;
}

TEST(ThinkingStyle, PromptMayHaveOpenedIt) {
  EXPECT_EQ(shown("hm</think>x", 3, true, true), "\033[2mhm\033[0mx");
  EXPECT_EQ(shown("hm, and cut", 3, true, true), "\033[2mhm, and cut\033[0m");
}

TEST(ThinkingStyle, PlainOutputIsUntouched) {
  const std::string text = "<think>hm</think>x";
  EXPECT_EQ(shown(text, 4, false, true), text);
}

}  // namespace
}  // namespace deepinfer::apps
