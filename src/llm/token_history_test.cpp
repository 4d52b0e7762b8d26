// Ids that were sampled stay, whatever a tokenizer would make of their text.

#include "llm/token_history.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace deepinfer::llm {
namespace {

text::Tokenizer tokenizer() {
  const std::string path =
      std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/tiny_chat/tokenizer.json";
  return text::Tokenizer::from_json(read_file(path).value(), path).value();
}

void add(recipe::PromptPieces& pieces, std::string_view role, std::string_view text) {
  pieces.control("<|im_start|>");
  pieces.plain(role);
  pieces.plain(text);
  pieces.control("<|im_end|>");
}

// A question, and the header of the answer.
recipe::PromptPieces asked(std::string_view question) {
  recipe::PromptPieces pieces;
  add(pieces, "user ", question);
  pieces.control("<|im_start|>");
  pieces.plain("assistant ");
  return pieces;
}

// The same, answered, and another question.
recipe::PromptPieces asked_again(std::string_view question, std::string_view answer,
                                 std::string_view next) {
  recipe::PromptPieces pieces = asked(question);
  pieces.plain(answer);
  pieces.control("<|im_end|>");
  add(pieces, "user ", next);
  return pieces;
}

// One id a byte, which no tokenizer with merges would give.
std::vector<int32_t> bytes_of(std::string_view text) {
  std::vector<int32_t> ids;
  for (char letter : text) ids.push_back(*tokenizer().token_to_id({&letter, 1}));
  return ids;
}

TEST(TokenHistory, SampledIdsStay) {
  TokenHistory history;
  const std::vector<int32_t> first = history.encode(asked("why"), tokenizer()).value();
  EXPECT_EQ(first, asked("why").encode(tokenizer()).value());
  history.append("the rest", bytes_of("the rest"));
  const size_t known = first.size() + 8;
  EXPECT_EQ(history.known_tokens(), known);
  const recipe::PromptPieces next = asked_again("why", "the rest", "and");
  const std::vector<int32_t> ids = history.encode(next, tokenizer()).value();
  EXPECT_EQ(history.reused_tokens(), known);
  std::vector<int32_t> head = first;
  for (int32_t id : bytes_of("the rest")) head.push_back(id);
  ASSERT_GT(ids.size(), known);
  EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(known)), head);
  EXPECT_EQ(tokenizer().decode(ids, text::SkipSpecial::no), next.text());
}

TEST(TokenHistory, OtherTextIsCutAtTheLastMarkThatBothHave) {
  TokenHistory history;
  const std::vector<int32_t> first = history.encode(asked("why"), tokenizer()).value();
  history.append("the rest", bytes_of("the rest"));
  // The same question again: all of its ids, none of the answer's.
  EXPECT_EQ(history.encode(asked("why"), tokenizer()).value(), first);
  EXPECT_EQ(history.reused_tokens(), first.size());
  // Another one: nothing is known.
  EXPECT_EQ(history.encode(asked("how"), tokenizer()).value(),
            asked("how").encode(tokenizer()).value());
  EXPECT_EQ(history.reused_tokens(), 0u);
}

TEST(TokenHistory, AnAnswerThatGoesOnIsNotCutInsideOfItsText) {
  TokenHistory history;
  (void)history.encode(asked("why"), tokenizer()).value();
  history.append("the re", bytes_of("the re"));
  // Where the known text ends there is more text now: the tokens around it may be others.
  const recipe::PromptPieces next = asked_again("why", "the rest", "and");
  const std::vector<int32_t> ids = history.encode(next, tokenizer()).value();
  EXPECT_EQ(tokenizer().decode(ids, text::SkipSpecial::no), next.text());
  EXPECT_EQ(ids, next.encode(tokenizer()).value());
}

}  // namespace
}  // namespace deepinfer::llm
