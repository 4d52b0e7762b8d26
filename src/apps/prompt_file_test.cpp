#include "apps/prompt_file.h"

#include <gtest/gtest.h>

namespace deepinfer::apps {
namespace {

std::string error_of(const std::string& content, PromptRules rules = {}) {
  const auto prompts = parse_prompts(content, "p.jsonl", {}, rules);
  return prompts.ok() ? "no error" : prompts.error().text();
}

TEST(PromptFile, ReadsTheThreeKindsOfPrompt) {
  const auto prompts = parse_prompts(
      "{\"prompt\": \"Hi\", \"max_tokens\": 8, \"temperature\": 0.5, \"stop\": [\"a,b\", \"c\"]}\n"
      "\n"
      "{\"ids\": [1, 2, 3], \"seed\": 7}\r\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}]}\n",
      "p.jsonl", {}, {});
  ASSERT_TRUE(prompts.ok()) << prompts.error().text();
  ASSERT_EQ(prompts.value().size(), 3u);
  const llm::Prompt& first = prompts.value()[0].prompt;
  EXPECT_EQ(std::get<std::string>(first.input), "Hi");
  EXPECT_EQ(first.max_tokens, 8u);
  EXPECT_FLOAT_EQ(first.sampling.temperature, 0.5f);
  EXPECT_EQ(first.stop, (std::vector<std::string>{"a,b", "c"}));
  const llm::Prompt& second = prompts.value()[1].prompt;
  EXPECT_EQ(std::get<std::vector<int32_t>>(second.input), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(second.sampling.seed, 7u);
  EXPECT_EQ(second.max_tokens, 256u) << "options of one line do not leak into the next";
  EXPECT_EQ(prompts.value()[2].heading, "Q");
  EXPECT_EQ(prompts.value()[2].place, "p.jsonl line 4");
}

TEST(PromptFile, ChatMakesAMessageOfAText) {
  const auto prompts = parse_prompts("{\"prompt\": \"Hi\"}", "p.jsonl", {}, {.chat = true});
  ASSERT_TRUE(prompts.ok());
  const auto& conversation = std::get<recipe::Conversation>(prompts.value()[0].prompt.input);
  EXPECT_EQ(conversation, (recipe::Conversation{{{recipe::Role::user, "Hi"}}}));
}

TEST(PromptFile, TextFilesHaveOnePromptALine) {
  const auto prompts = parse_prompts("one\n\n{two}\n", "p.txt", {}, {});
  ASSERT_TRUE(prompts.ok());
  ASSERT_EQ(prompts.value().size(), 2u);
  EXPECT_EQ(std::get<std::string>(prompts.value()[1].prompt.input), "{two}");
}

TEST(PromptFile, ErrorsNameLineAndField) {
  EXPECT_NE(error_of("{\"prompt\": \"a\"}\n{\"prompt\": 3}").find("line 2"), std::string::npos);
  EXPECT_NE(error_of("{\"prompt\": \"a\", \"max_tokens\": 0}").find("max_tokens"),
            std::string::npos);
  EXPECT_NE(error_of("{\"prompt\": \"a\", \"colour\": 1}").find("colour"), std::string::npos);
  EXPECT_NE(error_of("{\"prompt\": \"a\", \"ids\": [1]}").find("needs one of"), std::string::npos);
  EXPECT_NE(error_of("{}").find("needs one of"), std::string::npos);
  EXPECT_NE(error_of("{\"ids\": [1.5]}").find("ids"), std::string::npos);
  EXPECT_NE(error_of("{\"prompt\": ").find("line 1"), std::string::npos);
  EXPECT_NE(error_of("\n\n").find("no prompt"), std::string::npos);
  EXPECT_NE(error_of("{\"prompt\": \"a\"}", {.ids = true}).find("--ids"), std::string::npos);
}

TEST(PromptFile, ParsesIdsInEveryCommonForm) {
  for (const char* text : {"1 2 3", "1,2,3", "[1, 2, 3]", " 1\t2 3 "}) {
    const auto ids = parse_ids(text, "here");
    ASSERT_TRUE(ids.ok()) << text;
    EXPECT_EQ(ids.value(), (std::vector<int32_t>{1, 2, 3})) << text;
  }
  for (const char* text : {"1 two", "1.5", "99999999999", "1-2"})
    EXPECT_FALSE(parse_ids(text, "here").ok()) << text;
}

}  // namespace
}  // namespace deepinfer::apps
