// A conversation with a random model: whatever it says, nothing of it is computed twice.

#include "llm/chat_session.h"

#include <gtest/gtest.h>

#include "llm/conversation_prompt.h"
#include "llm/tiny_chat_model.h"

namespace deepinfer::llm {
namespace {

Prompt settings(size_t max_tokens) {
  Prompt prompt;
  prompt.max_tokens = max_tokens;
  prompt.sampling.temperature = 1;
  prompt.sampling.seed = 3;
  return prompt;
}

Answer ask(ChatSession& session, const std::string& text) {
  Result<Answer> answer = session.ask(text, [](std::string_view) {}, nullptr);
  EXPECT_TRUE(answer.ok()) << (answer.ok() ? "" : answer.error().text());
  return answer.ok() ? std::move(answer).value() : Answer();
}

TEST(ChatSession, TheNextTurnComputesTheNewQuestionOnly) {
  const TinyChatModel model;
  const std::unique_ptr<Llm> llm = model.open();
  ChatSession session(*llm, settings(40));
  const Answer first = ask(session, "Tell me of the sea.");
  const Answer second = ask(session, "And the hills?");
  // All of the first turn but its last token, which was sampled and never computed.
  const bool ended = first.finish == engine::FinishReason::stop;
  EXPECT_EQ(second.stats.cached_tokens, first.stats.prompt_tokens + first.ids.size() - 1);
  EXPECT_EQ(second.stats.resume, "pages");
  const Answer third = ask(session, "Thanks.");
  EXPECT_EQ(third.stats.cached_tokens, second.stats.prompt_tokens + second.ids.size() - 1);
  // Rendered again from the text, the sampled ids would not come back.
  const text::Tokenizer tokenizer = llm->tokenizer().value();
  const std::vector<int32_t> text_ids =
      tokenizer.encode(first.text, text::SpecialTokens::plain).value();
  EXPECT_NE(text_ids.size(), first.ids.size() - (ended ? 1 : 0));
}

TEST(ChatSession, ARetryAndAnEditedTurnResumeWhereTheyLeave) {
  const TinyChatModel model;
  const std::unique_ptr<Llm> llm = model.open();
  ChatSession session(*llm, settings(30));
  const Answer first = ask(session, "Tell me of the sea.");
  const recipe::Conversation before = session.conversation();
  const Answer second = ask(session, "And the hills?");
  const Answer again = session.retry([](std::string_view) {}, nullptr).value();
  EXPECT_EQ(again.stats.prompt_tokens, second.stats.prompt_tokens);
  EXPECT_EQ(again.stats.cached_tokens, second.stats.prompt_tokens - 1);
  EXPECT_NE(again.ids, second.ids);  // the next seed
  session.replace(before);
  const Answer edited = ask(session, "What of rivers?");
  EXPECT_GE(edited.stats.cached_tokens, first.stats.prompt_tokens + first.ids.size() - 1);
  EXPECT_LT(edited.stats.cached_tokens, edited.stats.prompt_tokens);
}

TEST(ChatSession, ReuseChangesNoToken) {
  const TinyChatModel model;
  const std::unique_ptr<Llm> warm = model.open();
  LlmOptions cold_options;
  cold_options.prefix_cache = false;
  cold_options.loop = engine::LoopMode::plain;
  const std::unique_ptr<Llm> cold = model.open(cold_options);
  ChatSession a(*warm, settings(50)), b(*cold, settings(50));
  for (const char* question : {"Tell me of the sea.", "And the hills?", "Thanks."}) {
    const Answer left = ask(a, question), right = ask(b, question);
    EXPECT_EQ(left.ids, right.ids);
    EXPECT_EQ(left.logprobs, right.logprobs);
    EXPECT_EQ(right.stats.cached_tokens, 0u);
  }
}

TEST(ChatSession, AnAnswerThatAStopStringCutIsRenderedFromItsText) {
  const TinyChatModel model;
  const std::unique_ptr<Llm> llm = model.open();
  ChatSession probe(*llm, settings(20));
  const Answer whole = ask(probe, "Tell me of the sea.");
  ASSERT_GT(whole.text.size(), 8u);
  Prompt stopping = settings(20);
  stopping.stop = {whole.text.substr(5, 3)};
  ChatSession session(*llm, stopping);
  const Answer first = ask(session, "Tell me of the sea.");
  EXPECT_EQ(first.finish, engine::FinishReason::stop);
  EXPECT_EQ(whole.text.rfind(first.text, 0), 0u);
  const Answer second = ask(session, "And the hills?");
  EXPECT_GE(second.stats.cached_tokens, first.stats.prompt_tokens);
  EXPECT_EQ(llm->encode(session.conversation()).ok(), true);
}

TEST(ConversationPrompt, SystemPartsAndTurnsAreResumePoints) {
  const TinyChatModel model;
  const std::unique_ptr<Llm> llm = model.open();
  const text::Tokenizer tokenizer = llm->tokenizer().value();
  recipe::Conversation conversation{{{recipe::Role::system, "Be brief."},
                                     {recipe::Role::user, "Hello"},
                                     {recipe::Role::assistant, "Hi"},
                                     {recipe::Role::user, "Bye"}}};
  const ConversationPrompt prompt =
      encode_conversation(llm->layout().value(), conversation, tokenizer).value();
  const int32_t begin = *tokenizer.token_to_id("<|im_start|>");
  const int32_t end = *tokenizer.token_to_id("<|im_end|>");
  ASSERT_EQ(prompt.resume_points.size(), 4u);
  EXPECT_EQ(prompt.ids[prompt.resume_points[0] - 1], begin);  // of the first question
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(prompt.ids[prompt.resume_points[i] - 1], end);
  EXPECT_EQ(prompt.stop_ids, std::vector<int32_t>{end});
  // Another question shares the first point and all before it.
  conversation.messages = {{recipe::Role::system, "Be brief."}, {recipe::Role::user, "Why?"}};
  const ConversationPrompt other =
      encode_conversation(llm->layout().value(), conversation, tokenizer).value();
  ASSERT_FALSE(other.resume_points.empty());
  EXPECT_EQ(other.resume_points[0], prompt.resume_points[0]);
  EXPECT_TRUE(std::equal(prompt.ids.begin(), prompt.ids.begin() + prompt.resume_points[0],
                         other.ids.begin()));
}

}  // namespace
}  // namespace deepinfer::llm
