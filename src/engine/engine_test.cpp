#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine_run.h"

namespace deepinfer::engine {
namespace {

using ::testing::HasSubstr;

TEST(Engine, ContinuesAPrompt) {
  FakeModel model;
  EngineRun run(model);
  run.add({.id = 7, .prompt = prompt_of(200, 1), .max_tokens = 20, .ignore_eos = true});
  run.run();
  EXPECT_EQ(run.outcomes[7].ids, FakeModel::continuation(prompt_of(200, 1), 20, {}));
  EXPECT_EQ(run.outcomes[7].finish, FinishReason::length);
}

// Only the last rows of a prompt run the decoder, all of them when their logits are wanted.
TEST(Engine, PromptsRunTheDecoderForTheirTail) {
  FakeModel model;
  model.tail = 30;
  EngineRun run(model, {.max_rows = 64});
  run.add({.id = 1, .prompt = prompt_of(200, 1), .max_tokens = 5, .ignore_eos = true});
  run.add({.id = 2, .prompt = prompt_of(20, 2), .max_tokens = 1, .ignore_eos = true});
  run.run();
  EXPECT_EQ(run.outcomes[1].ids, FakeModel::continuation(prompt_of(200, 1), 5, {}));
  EXPECT_EQ(model.encoder_rows, 170u);
  EXPECT_EQ(model.decoder_rows, 30u + 4 + 20);
  run.add({.id = 3,
           .prompt = prompt_of(90, 3),
           .max_tokens = 1,
           .ignore_eos = true,
           .want_prompt_logprobs = true});
  run.run();
  EXPECT_EQ(model.encoder_rows, 170u);
}

TEST(Engine, StopsAtEosAndStopIdsWhichAreReported) {
  FakeModel model;
  EngineRun run(model);
  const std::vector<int32_t> prompt = prompt_of(9, 3);
  const std::vector<int32_t> free = FakeModel::continuation(prompt, 400, {});
  run.add({.id = 1, .prompt = prompt, .max_tokens = 400});
  run.add({.id = 2, .prompt = prompt, .max_tokens = 400, .stop_ids = {free[4]}});
  run.add({.id = 3, .prompt = prompt, .max_tokens = 400, .ignore_eos = true});
  run.run();
  EXPECT_EQ(run.outcomes[1].ids, FakeModel::continuation(prompt, 400));
  EXPECT_EQ(run.outcomes[1].ids.back(), FakeModel::kEos);
  EXPECT_EQ(run.outcomes[1].finish, FinishReason::stop);
  EXPECT_EQ(run.outcomes[2].ids, FakeModel::continuation(prompt, 400, {free[4], FakeModel::kEos}));
  EXPECT_EQ(run.outcomes[2].finish, FinishReason::stop);
  EXPECT_EQ(run.outcomes[3].ids, free);
  EXPECT_EQ(run.outcomes[3].finish, FinishReason::length);
}

TEST(Engine, SixtyFourRequestsRunTogetherAsIfAlone) {
  FakeModel model;
  EngineRun run(model, {.max_sequences = 64, .max_rows = 96});
  for (uint32_t i = 0; i < 64; ++i) {
    run.add({.id = i, .prompt = prompt_of(1 + i * 5 % 170, i), .max_tokens = 30 + i % 7});
  }
  run.run();
  for (uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(run.outcomes[i].ids,
              FakeModel::continuation(prompt_of(1 + i * 5 % 170, i), 30 + i % 7))
        << i;
  }
  EXPECT_LE(model.most_rows, 96u);
  EXPECT_GT(model.most_sequences, 10u);
  const auto& counters = run.engine->counters();
  EXPECT_EQ(counters.rows, counters.prefill_rows + counters.decode_rows);
  EXPECT_EQ(counters.preemptions, 0u);
}

TEST(Engine, StartsInOrderOfArrivalUpToMaxSequences) {
  FakeModel model;
  EngineRun run(model, {.max_sequences = 2});
  for (uint32_t i = 0; i < 5; ++i) {
    run.add({.id = 10 + i, .prompt = prompt_of(3, i), .max_tokens = 4, .ignore_eos = true});
  }
  run.run();
  EXPECT_EQ(model.most_sequences, 2u);
  EXPECT_EQ(run.finish_order, (std::vector<uint64_t>{10, 11, 12, 13, 14}));
}

TEST(Engine, DecodingGoesOnWhileALongPromptIsRead) {
  FakeModel model;
  EngineRun run(model, {.max_rows = 16});
  run.add({.id = 1, .prompt = prompt_of(4, 1), .max_tokens = 50, .ignore_eos = true});
  ASSERT_TRUE(run.step().ok());
  run.add({.id = 2, .prompt = prompt_of(150, 2), .max_tokens = 1});
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(run.step().ok());
  EXPECT_EQ(run.outcomes[1].ids.size(), 6u);  // one in every step
  EXPECT_TRUE(run.outcomes[2].ids.empty());
  run.run();
  EXPECT_EQ(run.outcomes[2].ids, FakeModel::continuation(prompt_of(150, 2), 1));
}

TEST(Engine, MaxTokensZeroReadsThePromptOnly) {
  FakeModel model;
  EngineRun run(model);
  run.add({.id = 1, .prompt = prompt_of(40, 1), .max_tokens = 0});
  run.run();
  EXPECT_EQ(run.outcomes[1].finish, FinishReason::length);
  EXPECT_TRUE(run.outcomes[1].ids.empty());
  EXPECT_EQ(model.most_wanted, 0u);
}

TEST(Engine, OutputEndsWithTheContext) {
  FakeModel model(/*context=*/140);
  EngineRun run(model);
  run.add({.id = 1, .prompt = prompt_of(120, 1), .max_tokens = 1000, .ignore_eos = true});
  run.add({.id = 2, .prompt = prompt_of(140, 2), .max_tokens = 5});
  run.run();
  EXPECT_EQ(run.outcomes[1].ids.size(), 20u);
  EXPECT_EQ(run.outcomes[1].finish, FinishReason::length);
  EXPECT_TRUE(run.outcomes[2].ids.empty());
  EXPECT_EQ(run.outcomes[2].finish, FinishReason::length);
}

TEST(Engine, PromptScoresAreThoseOfEveryPosition) {
  FakeModel model;
  EngineRun run(model, {.max_rows = 32});
  const std::vector<int32_t> prompt = prompt_of(100, 4);
  run.add({.id = 1,
           .prompt = prompt,
           .sampling = {.top_logprobs = 2},
           .max_tokens = 1,
           .ignore_eos = true,
           .want_prompt_logprobs = true});
  run.add({.id = 2, .prompt = prompt_of(60, 5), .max_tokens = 3, .ignore_eos = true});
  run.run();
  const Outcome& outcome = run.outcomes[1];
  ASSERT_EQ(outcome.scores.size(), 99u);
  for (size_t i = 1; i < prompt.size(); ++i) {
    const std::vector<float> logits =
        FakeModel::logits_after({prompt.begin(), prompt.begin() + static_cast<long>(i)});
    double sum = 0;
    for (float x : logits) sum += std::exp(double{x});
    const sampling::Sampled& score = outcome.scores[i - 1];
    EXPECT_EQ(score.id, prompt[i]);
    EXPECT_NEAR(score.logprob, logits[static_cast<size_t>(prompt[i])] - std::log(sum), 1e-5);
    ASSERT_EQ(score.top.size(), 2u);
    EXPECT_EQ(score.top[0].first, std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  EXPECT_EQ(outcome.ids, FakeModel::continuation(prompt, 1));
}

// Scoring a prompt must not need logits of all its rows at once.
TEST(Engine, LogitsOfAStepStayWithinTheLimit) {
  FakeModel model(1000, /*vocab=*/2'000'000);  // 8 rows are 64 MB
  EngineRun run(model, {.max_sequences = 3, .max_rows = 64});
  EXPECT_EQ(run.engine->limits().logits_rows, 8u);
  run.add({.id = 1, .prompt = prompt_of(30, 1), .max_tokens = 0, .want_prompt_logprobs = true});
  run.add({.id = 2, .prompt = prompt_of(20, 2), .max_tokens = 2, .ignore_eos = true});
  run.run();
  EXPECT_EQ(run.outcomes[1].scores.size(), 29u);
  EXPECT_EQ(run.outcomes[2].ids.size(), 2u);
  EXPECT_LE(model.most_wanted, 8u);
}

TEST(Engine, CancelTakesEffectBeforeTheNextStep) {
  FakeModel model;
  EngineRun run(model, {.max_sequences = 1});
  run.add({.id = 1, .prompt = prompt_of(3, 1), .max_tokens = 100, .ignore_eos = true});
  run.add({.id = 2, .prompt = prompt_of(3, 2), .max_tokens = 100, .ignore_eos = true});
  run.add({.id = 3, .prompt = prompt_of(3, 3), .max_tokens = 2, .ignore_eos = true});
  ASSERT_TRUE(run.step().ok());
  EXPECT_TRUE(run.engine->cancel(1).ok());
  EXPECT_TRUE(run.engine->cancel(1).ok());  // twice is once
  EXPECT_TRUE(run.engine->cancel(2).ok());
  ASSERT_TRUE(run.step().ok());
  EXPECT_EQ(run.outcomes[1].finish, FinishReason::cancelled);
  EXPECT_EQ(run.outcomes[1].ids.size(), 1u);
  EXPECT_EQ(run.outcomes[2].finish, FinishReason::cancelled);
  EXPECT_TRUE(run.outcomes[2].ids.empty());
  const auto unknown = run.engine->cancel(1);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().kind, ErrorKind::not_found);
  run.run();
  EXPECT_EQ(run.outcomes[3].finish, FinishReason::length);
}

TEST(Engine, CancellingTheLastRequestLeavesTheEngineIdle) {
  FakeModel model;
  EngineRun run(model);
  run.add({.id = 1, .prompt = prompt_of(3, 1)});
  ASSERT_TRUE(run.engine->cancel(1).ok());
  run.run();
  EXPECT_EQ(run.outcomes[1].finish, FinishReason::cancelled);
  EXPECT_EQ(run.engine->counters().steps, 0u);
  EXPECT_TRUE(run.step().ok());  // nothing to do is no error
}

TEST(Engine, RefusesAtAddWhatCanNeverRun) {
  FakeModel model(/*context=*/300);
  EngineRun run(model, {.max_waiting = 2});
  run.add({.id = 1, .prompt = {5}});
  EXPECT_THAT(run.refusal({.id = 1, .prompt = {5}}), HasSubstr("request 1: the id is in use"));
  EXPECT_THAT(run.refusal({.id = 2}), HasSubstr("prompt is empty"));
  EXPECT_THAT(run.refusal({.id = 2, .prompt = {5, 50}}), HasSubstr("prompt token 1 is id 50"));
  EXPECT_THAT(run.refusal({.id = 2, .prompt = {-1}}), HasSubstr("id -1, the vocabulary has 50"));
  EXPECT_THAT(run.refusal({.id = 2, .prompt = prompt_of(301, 1)}),
              HasSubstr("301 tokens, the context is 300"));
  EXPECT_THAT(run.refusal({.id = 2, .prompt = {5}, .sampling = {.temperature = -1}}),
              HasSubstr("temperature"));
  EXPECT_THAT(run.refusal({.id = 2, .prompt = {5}, .sampling = {.banned_ids = {99}}}),
              HasSubstr("banned token 0 is id 99"));
  run.add({.id = 2, .prompt = {6}});
  EXPECT_THAT(run.refusal({.id = 3, .prompt = {5}}), HasSubstr("2 requests wait already"));
  run.run();
  run.outcomes.clear();
  run.choices.clear();
  run.add({.id = 1, .prompt = {5}});  // an id may be used again
  run.run();
}

TEST(Engine, StatsComeFromTheClock) {
  FakeModel model;
  EngineRun run(model, {.max_rows = 10});
  run.clock.advance_ns(5'000'000);
  run.add({.id = 1, .prompt = prompt_of(25, 1), .max_tokens = 4, .ignore_eos = true});
  run.clock.advance_ns(2'000'000);
  run.run();
  const RequestStats stats = run.outcomes[1].stats;
  EXPECT_EQ(stats.prompt_tokens, 25u);
  EXPECT_EQ(stats.completion_tokens, 4u);
  EXPECT_DOUBLE_EQ(stats.ttft_ms, 2.0 + 3 * 10.0);  // three chunks of 10 ms each
  EXPECT_DOUBLE_EQ(stats.tpot_ms, 10.0);
  const auto& counters = run.engine->counters();
  EXPECT_EQ(counters.steps, 6u);
  EXPECT_EQ(counters.prefill_rows, 25u);
  EXPECT_EQ(counters.decode_rows, 3u);
  EXPECT_DOUBLE_EQ(counters.compute_seconds, 0.06);
  EXPECT_DOUBLE_EQ(counters.plan_seconds, 0.0);
}

TEST(Limits, AreComputedFromOptions) {
  FakeModel model(/*context=*/1000);
  EngineRun run(model, {.max_sequences = 8, .max_rows = 4, .cache_bytes = 5 * kFakePageBytes + 1});
  const Limits& limits = run.engine->limits();
  EXPECT_EQ(limits.sequences, 4u);  // not more than rows
  EXPECT_EQ(limits.pages, 5u);
  EXPECT_EQ(limits.context, 640u);  // what the pages hold
  EXPECT_EQ(limits.cache_bytes, 5 * kFakePageBytes);
  EXPECT_THAT(limits.text(), HasSubstr("4 sequences of 640 tokens"));

  EngineRun full(model, {.max_sequences = 2, .context = 200});
  EXPECT_EQ(full.engine->limits().context, 200u);
  EXPECT_EQ(full.engine->limits().pages, 4u);
}

TEST(Limits, ContradictionsAreRefused) {
  FakeModel model(/*context=*/1000);
  const ManualClock clock;
  const std::pair<Engine::Options, std::string> cases[] = {
      {{.max_sequences = 0}, "max_sequences"},
      {{.max_rows = 0}, "max_rows"},
      {{.max_waiting = 0}, "max_waiting"},
      {{.context = 1001}, "1001 asked for, the model was trained for 1000"},
      {{.cache_bytes = 100}, "100 bytes hold no page of 512 bytes"},
  };
  for (const auto& [options, text] : cases) {
    const auto engine = Engine::create(model, options, clock);
    ASSERT_FALSE(engine.ok()) << text;
    EXPECT_THAT(engine.error().text(), HasSubstr(text));
  }
}

}  // namespace
}  // namespace deepinfer::engine
