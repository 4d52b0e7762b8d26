// A tiny model without tokenizer (ids in, ids out), and scripted failures around it.

#include "llm/llm.h"

#include <gtest/gtest.h>

#include "llm/model_path.h"

namespace deepinfer::llm {
namespace {

const std::string kTiny = std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/llama/llama";

std::unique_ptr<Llm> open_tiny(size_t max_rows = 512) {
  LlmOptions options;
  options.model.max_rows = max_rows;
  options.pool.threads = 2;
  Result<std::unique_ptr<Llm>> llm = Llm::open(kTiny, options);
  EXPECT_TRUE(llm.ok()) << (llm.ok() ? "" : llm.error().text());
  return std::move(llm).value();
}

Prompt ids_prompt(std::vector<int32_t> ids, size_t max_tokens = 8) {
  Prompt prompt;
  prompt.input = std::move(ids);
  prompt.max_tokens = max_tokens;
  prompt.want_text = false;
  prompt.ignore_eos = true;
  return prompt;
}

TEST(Llm, AnswersAreTheSameAloneAndTogether) {
  const std::unique_ptr<Llm> llm = open_tiny();
  const std::vector<Prompt> prompts = {ids_prompt({1, 2, 3}), ids_prompt({400}),
                                       ids_prompt({7, 7, 7, 7, 7, 9, 100})};
  const auto together = llm->generate(prompts, {});
  ASSERT_TRUE(together.ok()) << together.error().text();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto alone = llm->generate({&prompts[i], 1}, {});
    ASSERT_TRUE(alone.ok());
    EXPECT_EQ(alone.value()[0].ids, together.value()[i].ids);
    EXPECT_EQ(alone.value()[0].logprobs, together.value()[i].logprobs);
    EXPECT_EQ(together.value()[i].finish, engine::FinishReason::length);
    EXPECT_EQ(together.value()[i].ids.size(), 8u);
  }
}

TEST(Llm, ARefusedPromptLeavesTheOthersAlone) {
  const std::unique_ptr<Llm> llm = open_tiny();
  const std::vector<Prompt> prompts = {ids_prompt({1, 2, 3}), ids_prompt({1, 99999}),
                                       ids_prompt({})};
  size_t ends = 0;
  const auto answers =
      llm->generate(prompts, [&](const Delta& delta) { ends += delta.answer != nullptr; });
  ASSERT_TRUE(answers.ok());
  EXPECT_EQ(ends, 3u);
  EXPECT_FALSE(answers.value()[0].error.has_value());
  ASSERT_TRUE(answers.value()[1].error.has_value());
  EXPECT_EQ(answers.value()[1].error->kind, ErrorKind::invalid);
  EXPECT_NE(answers.value()[1].error->text().find("99999"), std::string::npos);
  EXPECT_TRUE(answers.value()[2].error.has_value());
}

TEST(Llm, APromptLongerThanTheContextIsRefusedByName) {
  const std::unique_ptr<Llm> llm = open_tiny();
  const size_t context = llm->model().config().context;
  const Prompt prompt = ids_prompt(std::vector<int32_t>(context + 1, 5));
  const auto answers = llm->generate({&prompt, 1}, {});
  ASSERT_TRUE(answers.ok());
  ASSERT_TRUE(answers.value()[0].error.has_value());
  const std::string text = answers.value()[0].error->text();
  EXPECT_NE(text.find(std::to_string(context)), std::string::npos) << text;
  EXPECT_NE(text.find(std::to_string(context + 1)), std::string::npos) << text;
}

TEST(Llm, TextNeedsATokenizer) {
  const std::unique_ptr<Llm> llm = open_tiny();
  Prompt prompt;
  prompt.input = std::string("Hello");
  const auto answers = llm->generate({&prompt, 1}, {});
  ASSERT_TRUE(answers.ok());
  ASSERT_TRUE(answers.value()[0].error.has_value());
  EXPECT_NE(answers.value()[0].error->text().find("tokenizer.json"), std::string::npos);
}

TEST(Llm, CancelEndsEverything) {
  const std::unique_ptr<Llm> llm = open_tiny();
  const std::atomic<bool> cancel{true};
  const std::vector<Prompt> prompts = {ids_prompt({1}, 50), ids_prompt({2}, 50)};
  const auto answers = llm->generate(prompts, {}, &cancel);
  ASSERT_TRUE(answers.ok());
  for (const Answer& answer : answers.value())
    EXPECT_EQ(answer.finish, engine::FinishReason::cancelled);
  // The engine is free again.
  const Prompt next = ids_prompt({3});
  EXPECT_EQ(llm->generate({&next, 1}, {}).value()[0].ids.size(), 8u);
}

TEST(Llm, APromptThatIsKnownIsNotComputedAgain) {
  const std::unique_ptr<Llm> llm = open_tiny();
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 200; ++i) ids.push_back(2 + i * 31 % 500);
  const Prompt prompt = ids_prompt(ids);
  const Answer cold = llm->generate({&prompt, 1}, {}).value()[0];
  const Answer warm = llm->generate({&prompt, 1}, {}).value()[0];
  EXPECT_EQ(cold.stats.cached_tokens, 0u);
  EXPECT_EQ(cold.stats.resume, "cold");
  EXPECT_EQ(warm.stats.cached_tokens, 199u);
  EXPECT_EQ(warm.stats.not_reused, "");
  EXPECT_EQ(warm.ids, cold.ids);
  EXPECT_EQ(warm.logprobs, cold.logprobs);
  Prompt tenant = prompt;
  tenant.salt = 1;
  EXPECT_EQ(llm->generate({&tenant, 1}, {}).value()[0].stats.cached_tokens, 0u);
  EXPECT_EQ(llm->engine()->pages_in_use(), 0u);
}

TEST(Llm, ChoicesAreSeededInARow) {
  const std::unique_ptr<Llm> llm = open_tiny();
  Prompt prompt = ids_prompt({1, 2, 3});
  prompt.sampling.temperature = 1;
  prompt.sampling.seed = 10;
  prompt.choices = 3;
  const Answer together = llm->generate({&prompt, 1}, {}).value()[0];
  ASSERT_EQ(together.others.size(), 2u);
  prompt.choices = 1;
  for (uint64_t i = 0; i < 3; ++i) {
    prompt.sampling.seed = 10 + i;
    const Answer alone = llm->generate({&prompt, 1}, {}).value()[0];
    EXPECT_EQ(alone.ids, i == 0 ? together.ids : together.others[i - 1].ids);
  }
  prompt.sampling.seed = 10;
  prompt.best_of = 3;
  const Answer best = llm->generate({&prompt, 1}, {}).value()[0];
  for (const Answer& one : together.others) EXPECT_GE(best.mean_logprob(), one.mean_logprob());
  EXPECT_GE(best.mean_logprob(), together.mean_logprob());
  EXPECT_TRUE(best.others.empty());
}

TEST(Llm, OptionsReachTheEngine) {
  const std::unique_ptr<Llm> llm = open_tiny();
  Prompt prompt = ids_prompt({1, 2, 3});
  const Answer plain = llm->generate({&prompt, 1}, {}).value()[0];
  Prompt forced = prompt;
  forced.forced_ids = {5, -1, 9};
  const Answer taught = llm->generate({&forced, 1}, {}).value()[0];
  EXPECT_EQ(taught.ids[0], 5);
  EXPECT_EQ(taught.ids[2], 9);
  Prompt stopped = prompt;
  stopped.stop_ids = {plain.ids[3]};
  stopped.sampling.top_logprobs = 2;
  stopped.want_prompt_logprobs = true;
  const Answer shorter = llm->generate({&stopped, 1}, {}).value()[0];
  EXPECT_EQ(shorter.finish, engine::FinishReason::stop);
  EXPECT_LE(shorter.ids.size(), 4u);
  EXPECT_EQ(shorter.top_logprobs.size(), shorter.ids.size());
  ASSERT_EQ(shorter.prompt_logprobs.size(), 2u);
  EXPECT_EQ(shorter.prompt_logprobs[1].id, 3);
  Prompt biased = prompt;
  biased.sampling.logit_bias = {{77, 100.0f}};
  EXPECT_EQ(llm->generate({&biased, 1}, {}).value()[0].ids, std::vector<int32_t>(8, 77));
  Prompt drafted = prompt;
  drafted.drafting = engine::Drafting::ngram;
  EXPECT_EQ(llm->generate({&drafted, 1}, {}).value()[0].ids, plain.ids);
}

TEST(Llm, MorePromptsThanMayWaitAreFedInTurn) {
  LlmOptions options;
  options.max_sequences = 2;
  options.pool.threads = 2;
  const std::unique_ptr<Llm> llm = Llm::open(kTiny, options).value();
  std::vector<Prompt> prompts;
  for (int32_t i = 0; i < 40; ++i) prompts.push_back(ids_prompt({i + 2, 3}, 3));
  const std::vector<Answer> answers = llm->generate(prompts, {}).value();
  for (const Answer& answer : answers) EXPECT_EQ(answer.ids.size(), 3u);
}

TEST(Llm, LimitsTellTheSnapshots) {
  const std::unique_ptr<Llm> llm = open_tiny();
  const Prompt prompt = ids_prompt({1});
  (void)llm->generate({&prompt, 1}, {}).value();
  EXPECT_NE(llm->engine()->limits().text().find("MiB of snapshots"), std::string::npos);
}

TEST(Llm, ScoresDoNotDependOnChunks) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 30; ++i) ids.push_back(i * 17 % 512);
  const std::vector<std::vector<int32_t>> sequences = {ids, {5, 6}};
  const auto whole = open_tiny()->score(sequences, 3);
  const auto steps = open_tiny(1)->score(sequences, 3);
  ASSERT_TRUE(whole.ok() && steps.ok());
  ASSERT_EQ(whole.value()[0].next.size(), ids.size() - 1);
  ASSERT_EQ(whole.value()[1].next.size(), 1u);
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    const sampling::Sampled& next = whole.value()[0].next[i];
    EXPECT_EQ(next.id, ids[i + 1]);
    EXPECT_EQ(next.logprob, steps.value()[0].next[i].logprob);
    ASSERT_EQ(next.top.size(), 3u);
    EXPECT_GE(next.top[0].second, next.top[1].second);
  }
}

TEST(ModelPath, UnknownNamesAreExplained) {
  const Result<std::string> path = resolve_model("no-such-model", {});
  ASSERT_FALSE(path.ok());
  EXPECT_EQ(path.error().kind, ErrorKind::not_found);
  EXPECT_NE(path.error().text().find("smollm2"), std::string::npos);
}

TEST(ModelPath, EnvironmentNamesTheDefault) {
  unsetenv("DEEPINFER_HF_MODEL_DIR");
  EXPECT_EQ(default_model(), "smollm2");
  setenv("DEEPINFER_HF_MODEL_DIR", "/some/where", 1);
  EXPECT_EQ(default_model(), "/some/where");
  unsetenv("DEEPINFER_HF_MODEL_DIR");
}

}  // namespace
}  // namespace deepinfer::llm
