// Stop rules, time limits, refusals and what is counted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/engine_run.h"

namespace deepinfer::engine {
namespace {

using ::testing::HasSubstr;

TEST(EngineRules, StopSequencesEndTheOutputAndAreReported) {
  FakeModel model;
  EngineRun run(model);
  const std::vector<int32_t> prompt = prompt_of(9, 3);
  const std::vector<int32_t> free = FakeModel::continuation(prompt, 40, {});
  run.add({.id = 1,
           .prompt = prompt,
           .max_tokens = 40,
           .stop_sequences = {{free[3], free[4], free[6]}, {free[5], free[6], free[7]}},
           .ignore_eos = true});
  // What ends in the prompt does not count.
  run.add({.id = 2,
           .prompt = prompt,
           .max_tokens = 5,
           .stop_sequences = {{prompt.back(), free[0]}},
           .ignore_eos = true});
  run.run();
  EXPECT_EQ(run.outcomes[1].ids, (std::vector<int32_t>{free.begin(), free.begin() + 8}));
  EXPECT_EQ(run.outcomes[1].finish, FinishReason::stop);
  EXPECT_EQ(run.outcomes[2].finish, FinishReason::length);
}

TEST(EngineRules, BeforeMinTokensNothingStops) {
  FakeModel model;
  EngineRun run(model);
  const std::vector<int32_t> prompt = prompt_of(9, 3);
  const std::vector<int32_t> free = FakeModel::continuation(prompt, 40, {});
  Request request{.id = 1, .prompt = prompt, .max_tokens = 40, .min_tokens = 12};
  request.stop_ids = {free[4]};
  request.ignore_eos = true;
  run.add(request);
  run.run();
  const std::vector<int32_t>& ids = run.outcomes[1].ids;
  ASSERT_GE(ids.size(), 13u);
  for (size_t i = 0; i < 12; ++i) EXPECT_NE(ids[i], free[4]) << i;
  EXPECT_EQ((std::vector<int32_t>{ids.begin(), ids.begin() + 4}),
            (std::vector<int32_t>{free.begin(), free.begin() + 4}));
}

TEST(EngineRules, ForcedIdsStandWhateverTheLogitsSay) {
  FakeModel model;
  EngineRun run(model);
  run.add({.id = 1,
           .prompt = prompt_of(9, 3),
           .max_tokens = 6,
           .ignore_eos = true,
           .forced_ids = {11, -1, 13}});
  run.run();
  const std::vector<int32_t>& ids = run.outcomes[1].ids;
  ASSERT_EQ(ids.size(), 6u);
  EXPECT_EQ(ids[0], 11);
  EXPECT_EQ(ids[2], 13);
  std::vector<int32_t> so_far = prompt_of(9, 3);
  so_far.insert(so_far.end(), ids.begin(), ids.begin() + 3);
  EXPECT_EQ((std::vector<int32_t>{ids.begin() + 3, ids.end()}),
            FakeModel::continuation(so_far, 3, {}));
}

TEST(EngineRules, TimeLimitsEndARequestWithAnError) {
  FakeModel model;
  EngineRun run(model, {.max_sequences = 1});
  run.add({.id = 1, .prompt = prompt_of(9, 3), .max_tokens = 100, .ignore_eos = true});
  run.add({.id = 2, .prompt = prompt_of(9, 4), .max_tokens = 10, .timeout_ms = 200});
  run.run();  // 10 ms a step
  EXPECT_EQ(run.outcomes[1].ids.size(), 100u);
  EXPECT_EQ(run.outcomes[2].finish, FinishReason::error);
  EXPECT_THAT(run.outcomes[2].error, HasSubstr("timed out after 200 ms"));
}

TEST(EngineRules, OptionsThatMakeNoSenseAreRefusedByName) {
  FakeModel model;
  EngineRun run(model);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::pair<Request, std::string> cases[] = {
      {{.max_tokens = 3, .min_tokens = 4}, "min_tokens is 4, max_tokens only 3"},
      {{.stop_ids = {50}}, "stop token 0 is id 50"},
      {{.stop_sequences = {{}}}, "a stop sequence is empty"},
      {{.stop_sequences = {{3, -1}}}, "stop sequence token 1 is id -1"},
      {{.forced_ids = {-1, -2}}, "forced token 1 is id -2"},
      {{.choices = 0}, "0 choices, allowed are 1"},
      {{.priority = 9}, "priority is 9"},
      {{.weight = 0}, "weight is 0"},
      {{.weight = nan}, "weight is nan"},
      {{.ttft_target_ms = -1}, "ttft_target_ms is -1"},
      {{.timeout_ms = nan}, "timeout_ms is nan"},
  };
  for (const auto& [request, text] : cases) {
    Request with_prompt = request;
    with_prompt.id = 1;
    with_prompt.prompt = {5};
    EXPECT_THAT(run.refusal(with_prompt), HasSubstr(text));
  }
  EXPECT_FALSE(run.engine->busy());
}

TEST(EngineRules, EverythingIsCounted) {
  FakeModel model;
  Metrics metrics;
  EngineRun run(model, {.prefix_cache = true, .metrics = &metrics});
  run.add({.id = 1, .prompt = prompt_of(200, 1), .max_tokens = 5, .ignore_eos = true});
  run.run();
  run.add({.id = 2, .prompt = prompt_of(200, 1), .max_tokens = 5, .ignore_eos = true});
  run.run();
  const std::string text = metrics.text();
  EXPECT_THAT(text, HasSubstr("deepinfer_generation_tokens_total 10"));
  EXPECT_THAT(text, HasSubstr("deepinfer_prompt_tokens_total 400"));
  EXPECT_THAT(text, HasSubstr("deepinfer_prefix_cache_queries_total 400"));
  EXPECT_THAT(text, HasSubstr("deepinfer_prefix_cache_hits_total 199"));
  EXPECT_THAT(text, HasSubstr("deepinfer_step_rows_total{kind=\"prefill\"} 200"));
  EXPECT_THAT(text, HasSubstr("deepinfer_step_rows_total{kind=\"decode\"} 9"));
  EXPECT_THAT(text, HasSubstr("deepinfer_request_success_total{finished_reason=\"length\"} 2"));
  EXPECT_THAT(text, HasSubstr("deepinfer_time_to_first_token_seconds_count 2"));
  EXPECT_THAT(text, HasSubstr("deepinfer_inter_token_latency_seconds_count 8"));
}

}  // namespace
}  // namespace deepinfer::engine
