#include "apps/answer_printer.h"

#include <gtest/gtest.h>

namespace deepinfer::apps {
namespace {

std::vector<PromptLine> three_prompts() {
  std::vector<PromptLine> prompts(3);
  for (size_t i = 0; i < 3; ++i) prompts[i].heading = "question " + std::to_string(i);
  return prompts;
}

llm::Answer ended(const std::string& text) {
  llm::Answer answer;
  answer.text = text;
  answer.ids = {1, 2};
  answer.logprobs = {-0.5f, -1.0f};
  answer.finish = engine::FinishReason::stop;
  return answer;
}

TEST(AnswerPrinter, KeepsTheOrderOfThePrompts) {
  const std::vector<PromptLine> prompts = three_prompts();
  const llm::Answer a = ended("A1A2"), b = ended("B"), c = ended("C\n");
  testing::internal::CaptureStdout();
  AnswerPrinter printer(prompts, AnswerPrinter::Form::headings, false);
  printer.take({1, 0, "B", nullptr});
  printer.take({0, 0, "A1", nullptr});
  printer.take({2, 0, "C\n", &c});
  printer.take({0, 0, "A2", &a});
  printer.take({1, 0, "", &b});
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "> question 0\nA1A2\n\n> question 1\nB\n\n> question 2\nC\n\n");
}

TEST(AnswerPrinter, JsonIsOneLineEach) {
  const std::vector<PromptLine> prompts = three_prompts();
  const llm::Answer a = ended("A\n"), b = ended("B");
  testing::internal::CaptureStdout();
  AnswerPrinter printer(prompts, AnswerPrinter::Form::json, true);
  printer.take({1, 0, "B", &b});
  printer.take({0, 0, "A\n", &a});
  const std::string out = testing::internal::GetCapturedStdout();
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 2);
  EXPECT_TRUE(
      out.starts_with("{\"index\":0,\"text\":\"A\\n\",\"ids\":[1,2],"
                      "\"finish_reason\":\"stop\""))
      << out;
  EXPECT_NE(out.find("\"logprobs\":[-0.5,-1"), std::string::npos) << out;
}

TEST(AnswerPrinter, PlainIsTheTextAlone) {
  const std::vector<PromptLine> prompts(1);
  const llm::Answer a = ended("A");
  testing::internal::CaptureStdout();
  AnswerPrinter printer(prompts, AnswerPrinter::Form::plain, false);
  printer.take({0, 0, "A", &a});
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "A\n");
}

}  // namespace
}  // namespace deepinfer::apps
