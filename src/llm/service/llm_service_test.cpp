// Prompts from many threads through one engine in the background.

#include "llm/service/llm_service.h"

#include <gtest/gtest.h>

#include <thread>

#include "llm/tiny_chat_model.h"

namespace deepinfer::llm {
namespace {

using engine::FinishReason;
constexpr std::chrono::seconds kSoon{60};

Prompt question(const std::string& text, size_t max_tokens = 24) {
  Prompt prompt;
  prompt.input = recipe::Conversation{{{recipe::Role::user, text}}};
  prompt.max_tokens = max_tokens;
  prompt.sampling.temperature = 1;
  prompt.sampling.seed = 7;
  prompt.ignore_eos = true;
  return prompt;
}

std::unique_ptr<LlmService> start(const TinyChatModel& model) {
  Result<std::unique_ptr<LlmService>> service = LlmService::start(model.open());
  EXPECT_TRUE(service.ok()) << (service.ok() ? "" : service.error().text());
  return std::move(service).value();
}

TEST(LlmService, GivesWhatGenerateGives) {
  const TinyChatModel model;
  Prompt prompt = question("Tell me of the sea.");
  prompt.choices = 2;
  const std::vector<Answer> wanted = model.open()->generate({&prompt, 1}, {}).value();
  const std::unique_ptr<LlmService> service = start(model);
  const LlmService::Ticket ticket = service->submit(prompt).value();
  std::string text[2];
  while (const auto piece = ticket.reply->next(kSoon)) text[piece->choice] += piece->text;
  const Answer& answer = ticket.reply->wait();
  EXPECT_EQ(answer.ids, wanted[0].ids);
  EXPECT_EQ(answer.text, wanted[0].text);
  EXPECT_EQ(text[0], wanted[0].text);
  ASSERT_EQ(answer.others.size(), 1u);
  EXPECT_EQ(answer.others[0].ids, wanted[0].others[0].ids);
  EXPECT_EQ(text[1], answer.others[0].text);
  EXPECT_NE(answer.ids, answer.others[0].ids);
}

TEST(LlmService, TextBeforeAStopStringOnlyAndTheEngineIsTold) {
  const TinyChatModel model;
  const std::unique_ptr<LlmService> service = start(model);
  const std::string whole =
      service->submit(question("Tell me of the sea.")).value().reply->wait().text;
  ASSERT_GT(whole.size(), 10u);
  Prompt prompt = question("Tell me of the sea.", 400);
  prompt.stop = {whole.substr(4, 3)};
  const LlmService::Ticket ticket = service->submit(prompt).value();
  std::string text;
  while (const auto piece = ticket.reply->next(kSoon)) text += piece->text;
  EXPECT_EQ(text, ticket.reply->wait().text);
  EXPECT_EQ(whole.rfind(text, 0), 0u);
  EXPECT_EQ(text.find(prompt.stop[0]), std::string::npos);
  EXPECT_EQ(ticket.reply->wait().finish, FinishReason::stop);
}

TEST(LlmService, ManyThreadsManyPromptsEachItsOwnAnswer) {
  const TinyChatModel model;
  std::vector<std::string> wanted;
  const std::unique_ptr<Llm> alone = model.open();
  for (int i = 0; i < 12; ++i) {
    const Prompt prompt = question("number " + std::to_string(i));
    wanted.push_back(alone->generate({&prompt, 1}, {}).value()[0].text);
  }
  const std::unique_ptr<LlmService> service = start(model);
  std::vector<std::string> seen(12);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < 12; i += 4)
        seen[i] =
            service->submit(question("number " + std::to_string(i))).value().reply->wait().text;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen, wanted);
  service->drain(kSoon);
  EXPECT_EQ(service->thread().heartbeat().live, 0u);
}

TEST(LlmService, CancelAndDestructionEndEveryAnswer) {
  const TinyChatModel model;
  std::unique_ptr<LlmService> service = start(model);
  const LlmService::Ticket first = service->submit(question("a", 400)).value();
  ASSERT_TRUE(first.reply->next(kSoon).has_value());
  service->cancel(first.request);
  service->cancel(first.request);
  service->cancel(12345);
  EXPECT_EQ(first.reply->wait().finish, FinishReason::cancelled);
  const LlmService::Ticket second = service->submit(question("b", 400)).value();
  std::atomic<int> ends{0};
  ASSERT_TRUE(
      service
          ->submit(question("c", 400), [&](const Delta& delta) { ends += delta.answer != nullptr; })
          .ok());
  service.reset();
  EXPECT_TRUE(second.reply->ended());
  EXPECT_EQ(second.reply->wait().finish, FinishReason::cancelled);
  EXPECT_EQ(ends, 1);
}

TEST(LlmService, RefusalsComeAtOnceAndLeaveNothingBehind) {
  const TinyChatModel model;
  const std::unique_ptr<LlmService> service = start(model);
  Prompt bad = question("a");
  bad.sampling.temperature = -1;
  const auto refused = service->submit(bad);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid);
  EXPECT_NE(refused.error().text().find("temperature"), std::string::npos);
  bad = question("a");
  bad.resume = engine::Resume::replay;
  EXPECT_NE(service->submit(bad).error().text().find("bounded replay"), std::string::npos);
  EXPECT_EQ(service->thread().heartbeat().live, 0u);
  service->drain(std::chrono::milliseconds(0));
  EXPECT_EQ(service->submit(question("late")).error().kind, ErrorKind::cancelled);
}

}  // namespace
}  // namespace deepinfer::llm
