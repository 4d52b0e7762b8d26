// Events of a request, given by hand, to the answers of a prompt.

#include "llm/prompt_stream.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace deepinfer::llm {
namespace {

using engine::FinishReason;
using Then = PromptStream::Then;

text::Tokenizer tokenizer() {
  const std::string path =
      std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/tiny_chat/tokenizer.json";
  return text::Tokenizer::from_json(read_file(path).value(), path).value();
}

engine::Event letter(uint32_t choice, char byte, float logprob,
                     FinishReason finish = FinishReason::none) {
  engine::Event event;
  event.choice = choice;
  event.has_token = true;
  event.token.id = *tokenizer().token_to_id({&byte, 1});
  event.token.logprob = logprob;
  event.finish = finish;
  return event;
}

struct Heard {
  std::vector<std::string> text = std::vector<std::string>(8);
  size_t ends = 0;
  PromptStream::OnDelta sink() {
    return [this](const Delta& delta) {
      text[delta.choice] += delta.text;
      ends += delta.answer != nullptr;
    };
  }
};

TEST(PromptStream, ChoicesArriveApartAndEndTogether) {
  const text::Tokenizer made = tokenizer();
  Prompt prompt;
  prompt.choices = 2;
  PromptStream stream(5, "m", prompt, &made);
  Heard heard;
  EXPECT_EQ(stream.take(letter(0, 'a', -1), heard.sink()), Then::go_on);
  stream.take(letter(1, 'x', -3), heard.sink());
  stream.take(letter(1, 'y', -3, FinishReason::length), heard.sink());
  EXPECT_EQ(heard.ends, 0u);
  stream.take(letter(0, 'b', -9, FinishReason::length), heard.sink());
  EXPECT_EQ(heard.ends, 1u);
  ASSERT_TRUE(stream.done());
  EXPECT_EQ(heard.text[0], "ab");
  EXPECT_EQ(heard.text[1], "xy");
  EXPECT_EQ(stream.answer().text, "ab");  // not ranked
  ASSERT_EQ(stream.answer().others.size(), 1u);
  EXPECT_EQ(stream.answer().others[0].text, "xy");
}

TEST(PromptStream, TheBestOfThreeByMeanLogprob) {
  const text::Tokenizer made = tokenizer();
  Prompt prompt;
  prompt.choices = 2;
  prompt.best_of = 3;
  PromptStream stream(0, "m", prompt, &made);
  Heard heard;
  stream.take(letter(0, 'a', -5, FinishReason::length), heard.sink());
  stream.take(letter(1, 'b', -1), heard.sink());
  EXPECT_EQ(heard.text[0] + heard.text[1], "");  // nobody knows yet which will stay
  stream.take(letter(1, 'b', -2, FinishReason::length), heard.sink());
  stream.take(letter(2, 'c', -2, FinishReason::length), heard.sink());
  EXPECT_EQ(heard.text[0], "bb");
  EXPECT_EQ(heard.text[1], "c");
  EXPECT_EQ(stream.answer().text, "bb");
  EXPECT_DOUBLE_EQ(stream.answer().mean_logprob(), -1.5);
  ASSERT_EQ(stream.answer().others.size(), 1u);
  EXPECT_EQ(stream.answer().others[0].text, "c");
}

TEST(PromptStream, IsCancelledWhenAllChoicesMetTheirStopString) {
  const text::Tokenizer made = tokenizer();
  Prompt prompt;
  prompt.choices = 2;
  prompt.stop = {"!"};
  PromptStream stream(0, "m", prompt, &made);
  Heard heard;
  stream.take(letter(0, 'a', -1), heard.sink());
  EXPECT_EQ(stream.take(letter(0, '!', -1), heard.sink()), Then::go_on);
  stream.take(letter(0, 'z', -1), heard.sink());  // computed on, unseen
  EXPECT_EQ(stream.take(letter(1, '!', -1), heard.sink()), Then::cancel);
  EXPECT_EQ(stream.take(letter(1, 'z', -1), heard.sink()), Then::go_on);  // said once
  for (uint32_t choice : {0u, 1u}) {
    engine::Event end;
    end.choice = choice;
    end.finish = FinishReason::cancelled;
    stream.take(end, heard.sink());
  }
  ASSERT_TRUE(stream.done());
  EXPECT_EQ(stream.answer().text, "a");
  EXPECT_EQ(stream.answer().finish, FinishReason::stop);
  EXPECT_EQ(stream.answer().ids.size(), 2u);
  EXPECT_EQ(stream.answer().others[0].finish, FinishReason::stop);
}

TEST(PromptStream, AChoiceThatFailedIsRankedLast) {
  Prompt prompt;
  prompt.best_of = 2;
  PromptStream stream(0, "model x", prompt, nullptr);
  engine::Event end;
  end.finish = FinishReason::error;
  end.error = "no memory";
  stream.take(end, {});
  stream.take(letter(1, 'a', -700, FinishReason::length), {});
  ASSERT_TRUE(stream.done());
  EXPECT_FALSE(stream.answer().error.has_value());
  EXPECT_EQ(stream.answer().ids.size(), 1u);
}

TEST(CheckPrompt, ContradictionsAreNamed) {
  const auto refusal = [](auto change) {
    Prompt prompt;
    change(prompt);
    const Result<void> checked = check_prompt(prompt);
    return checked.ok() ? std::string("accepted") : checked.error().text();
  };
  EXPECT_EQ(refusal([](Prompt&) {}), "accepted");
  EXPECT_NE(refusal([](Prompt& p) { p.choices = 0; }).find("0 choices"), std::string::npos);
  EXPECT_NE(refusal([](Prompt& p) {
              p.choices = 3;
              p.best_of = 2;
            }).find("best_of is 2, n is 3"),
            std::string::npos);
  EXPECT_NE(refusal([](Prompt& p) { p.replay_tokens = 140; }).find("140"), std::string::npos);
  EXPECT_NE(refusal([](Prompt& p) {
              p.want_text = false;
              p.stop = {"x"};
            }).find("stop strings"),
            std::string::npos);
}

}  // namespace
}  // namespace deepinfer::llm
