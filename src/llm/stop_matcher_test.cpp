#include "llm/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace deepinfer::llm {
namespace {

// The text before the first stop string, the slow way.
std::string expected(const std::string& text, const std::vector<std::string>& stops) {
  size_t first = text.size();
  for (const std::string& stop : stops) first = std::min(first, text.find(stop));
  return text.substr(0, first);
}

TEST(StopMatcher, FindsStopsHoweverTheTextIsCut) {
  const std::vector<std::vector<std::string>> stop_lists = {{"END"},        {"aab"}, {"\n\n"},
                                                            {"abab", "ba"}, {"x"},   {}};
  const std::vector<std::string> texts = {"hello END more", "aaaab", "one\n\ntwo", "abaabab",
                                          "no stop here",   "EN",    "",           "x"};
  for (const auto& stops : stop_lists) {
    for (const std::string& text : texts) {
      for (size_t size = 1; size <= text.size() + 1; ++size) {
        StopMatcher matcher(stops);
        std::string seen;
        for (size_t at = 0; at < text.size(); at += size) {
          seen += matcher.push(text.substr(at, size));
          // What was sent is always right: it can not be taken back.
          EXPECT_TRUE(expected(text, stops).starts_with(seen)) << text;
        }
        seen += matcher.flush();
        EXPECT_EQ(seen, expected(text, stops)) << "pieces of " << size;
        EXPECT_EQ(matcher.stopped(), seen.size() < text.size());
      }
    }
  }
}

TEST(StopMatcher, HoldsBackNoMoreThanNeeded) {
  StopMatcher matcher({"\n\nUser:"});
  EXPECT_EQ(matcher.push("Hello"), "Hello");
  EXPECT_EQ(matcher.push(" you\n"), " you");
  EXPECT_EQ(matcher.push("next"), "\nnext");
}

TEST(StopMatcher, NothingComesAfterTheStop) {
  StopMatcher matcher({"stop"});
  EXPECT_EQ(matcher.push("a stop b"), "a ");
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.flush(), "");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, EmptyStopStringsDoNothing) {
  StopMatcher matcher({""});
  EXPECT_EQ(matcher.push("text"), "text");
  EXPECT_FALSE(matcher.stopped());
}

}  // namespace
}  // namespace deepinfer::llm
