// Page pressure, failures and random schedules: tokens never change, others never notice.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/engine_run.h"

namespace deepinfer::engine {
namespace {

using ::testing::HasSubstr;

TEST(EnginePressure, WaitsUntilThePagesOfThePromptAreFree) {
  FakeModel model;
  EngineRun run(model, {.cache_bytes = 4 * kFakePageBytes});
  run.add({.id = 1, .prompt = prompt_of(300, 1), .max_tokens = 3, .ignore_eos = true});
  run.add({.id = 2, .prompt = prompt_of(300, 2), .max_tokens = 3, .ignore_eos = true});
  ASSERT_TRUE(run.step().ok());
  EXPECT_EQ(model.most_sequences, 1u);  // 3 pages, and 3 more are not there
  run.run();
  EXPECT_EQ(run.engine->counters().preemptions, 0u);
  EXPECT_EQ(run.outcomes[2].ids, FakeModel::continuation(prompt_of(300, 2), 3, {}));
}

TEST(EnginePressure, TheNewestGivesWayAndIsComputedAgain) {
  FakeModel model;
  EngineRun run(model, {.cache_bytes = 5 * kFakePageBytes});
  for (uint32_t i = 0; i < 4; ++i) {
    run.add({.id = i, .prompt = prompt_of(100, i), .max_tokens = 250, .ignore_eos = true});
  }
  run.run();
  EXPECT_GT(run.engine->counters().preemptions, 0u);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(run.outcomes[i].ids, FakeModel::continuation(prompt_of(100, i), 250, {})) << i;
  }
  EXPECT_EQ(run.finish_order.front(), 0u);  // the oldest is never held up
}

TEST(EnginePressure, ScoresAreReportedOnceWhenAPromptIsComputedAgain) {
  FakeModel model;
  EngineRun run(model, {.max_rows = 40, .cache_bytes = 4 * kFakePageBytes});
  run.add({.id = 1, .prompt = prompt_of(120, 1), .max_tokens = 300, .ignore_eos = true});
  run.add({.id = 2,
           .prompt = prompt_of(120, 2),
           .max_tokens = 300,
           .ignore_eos = true,
           .want_prompt_logprobs = true});
  run.run();
  EXPECT_GT(run.engine->counters().preemptions, 0u);
  EXPECT_EQ(run.outcomes[2].scores.size(), 119u);
  EXPECT_EQ(run.outcomes[2].ids, FakeModel::continuation(prompt_of(120, 2), 300, {}));
}

TEST(EnginePressure, DrawsDoNotDependOnTheSchedule) {
  const auto request = [](uint32_t i) {
    return Request{.id = i,
                   .prompt = prompt_of(90 + i, i),
                   .sampling = {.temperature = 1.0f, .top_p = 0.9f, .seed = 100 + i},
                   .max_tokens = 150,
                   .ignore_eos = true};
  };
  FakeModel model;
  EngineRun tight(model, {.max_rows = 33, .cache_bytes = 3 * kFakePageBytes});
  for (uint32_t i = 0; i < 3; ++i) tight.add(request(i));
  tight.run();
  EXPECT_GT(tight.engine->counters().preemptions, 0u);
  for (uint32_t i = 0; i < 3; ++i) {
    EngineRun alone(model);
    alone.add(request(i));
    alone.run();
    EXPECT_EQ(tight.outcomes[i].ids, alone.outcomes[i].ids) << i;
  }
}

TEST(EngineFailure, LogitsThatAreNaNEndOneRequestOnly) {
  FakeModel model;
  model.nan_on = 0;  // an id that prompt_of() does not make
  EngineRun run(model);
  run.add({.id = 1, .prompt = prompt_of(5, 1), .max_tokens = 1});
  run.add({.id = 2, .prompt = {4, 5, 0}, .max_tokens = 30});
  run.add({.id = 3, .prompt = prompt_of(5, 3), .max_tokens = 1});
  run.run();
  EXPECT_EQ(run.outcomes[2].finish, FinishReason::error);
  EXPECT_THAT(run.outcomes[2].error, HasSubstr("NaN for id 7"));
  for (uint64_t id : {1, 3}) {
    EXPECT_EQ(run.outcomes[id].ids,
              FakeModel::continuation(prompt_of(5, static_cast<uint32_t>(id)), 1));
  }
}

TEST(EngineFailure, ModelErrorEndsOnlyTheRequestThatCausedIt) {
  FakeModel model;
  model.fails_on = 0;
  EngineRun run(model, {.max_sequences = 3, .max_rows = 16});
  run.add({.id = 1, .prompt = prompt_of(5, 1), .max_tokens = 40, .ignore_eos = true});
  EXPECT_TRUE(run.step().ok());  // request 1 decodes when the others come
  run.add({.id = 2, .prompt = {4, 5, 0}});
  run.add({.id = 3, .prompt = prompt_of(70, 3), .max_tokens = 5, .ignore_eos = true});
  run.add({.id = 4, .prompt = prompt_of(5, 4), .max_tokens = 1});
  run.run();
  EXPECT_EQ(run.outcomes[2].finish, FinishReason::error);
  EXPECT_THAT(run.outcomes[2].error, HasSubstr("layer 3 ffn down"));
  EXPECT_EQ(run.outcomes[1].ids, FakeModel::continuation(prompt_of(5, 1), 40, {}));
  EXPECT_EQ(run.outcomes[3].ids, FakeModel::continuation(prompt_of(70, 3), 5, {}));
  EXPECT_EQ(run.outcomes[4].ids, FakeModel::continuation(prompt_of(5, 4), 1));
}

// A disk that fails for a moment: nobody ends, whoever was in the step.
TEST(EngineFailure, ModelErrorThatDoesNotComeAgainEndsNobody) {
  FakeModel model;
  EngineRun run(model, {.max_sequences = 3, .max_rows = 16});
  for (uint32_t id : {1u, 2u}) {
    run.add({.id = id, .prompt = prompt_of(40, id), .max_tokens = 20, .ignore_eos = true});
  }
  for (int step = 0; run.engine->busy(); ++step) {
    model.fails_once = step % 3 == 2;
    EXPECT_TRUE(run.step().ok());
  }
  for (uint32_t id : {1u, 2u}) {
    EXPECT_EQ(run.outcomes[id].ids, FakeModel::continuation(prompt_of(40, id), 20, {})) << id;
  }
}

TEST(EngineFailure, ModelErrorIsReturnedWhenNobodyIsLeft) {
  FakeModel model;
  model.fails_on = 0;
  EngineRun run(model);
  run.add({.id = 2, .prompt = {4, 5, 0}});
  const auto stepped = run.step();
  ASSERT_FALSE(stepped.ok());
  EXPECT_THAT(stepped.error().text(), HasSubstr("layer 3 ffn down"));
  EXPECT_EQ(run.outcomes[2].finish, FinishReason::error);
  EXPECT_FALSE(run.engine->busy());
  EXPECT_EQ(run.engine->pages_in_use(), 0u);
}

TEST(EngineFailure, BanningEveryIdEndsTheRequestOnly) {
  FakeModel model;
  EngineRun run(model);
  Request banned{.id = 1, .prompt = {5}};
  for (int32_t id = 0; id < static_cast<int32_t>(FakeModel::kVocab); ++id) {
    banned.sampling.banned_ids.push_back(id);
  }
  run.add(std::move(banned));
  run.add({.id = 2, .prompt = {6}, .max_tokens = 2, .ignore_eos = true});
  run.run();
  EXPECT_EQ(run.outcomes[1].finish, FinishReason::error);
  EXPECT_EQ(run.outcomes[2].ids, FakeModel::continuation({6}, 2, {}));
}

// Random arrivals, lengths, cancels and limits; the seed is in the trace of a failure.
class EngineSimulation : public ::testing::TestWithParam<uint32_t> {};

TEST_P(EngineSimulation, EveryRequestGetsItsTokens) {
  std::mt19937 random(GetParam());
  FakeModel model(/*context=*/500);
  EngineRun run(model, {.max_sequences = 1 + random() % 8,
                        .max_rows = 8 + random() % 60,
                        .cache_bytes = (4 + random() % 12) * kFakePageBytes});
  std::map<uint64_t, Request> requests;
  std::map<uint64_t, bool> cancelled;
  uint64_t next_id = 0;
  for (int round = 0; round < 600; ++round) {
    if (next_id < 40 && random() % 4 == 0) {
      Request request{.id = next_id++,
                      .prompt = prompt_of(1 + random() % 200, random()),
                      .max_tokens = random() % 200,
                      .ignore_eos = random() % 2 == 0,
                      .want_prompt_logprobs = random() % 3 == 0};
      requests[request.id] = request;
      run.add(std::move(request));
    }
    if (next_id > 0 && random() % 40 == 0) {
      const uint64_t victim = random() % next_id;
      if (run.engine->cancel(victim).ok()) cancelled[victim] = true;
    }
    ASSERT_TRUE(run.step().ok());
  }
  run.run();
  ASSERT_EQ(run.finish_order.size(), requests.size());
  for (const auto& [id, request] : requests) {
    const std::vector<int32_t> stops =
        request.ignore_eos ? std::vector<int32_t>{} : std::vector<int32_t>{FakeModel::kEos};
    std::vector<int32_t> expected =
        FakeModel::continuation(request.prompt, request.max_tokens, stops);
    const Outcome& outcome = run.outcomes[id];
    if (outcome.finish == FinishReason::cancelled) {
      ASSERT_TRUE(cancelled[id]);
      ASSERT_LE(outcome.ids.size(), expected.size());
      expected.resize(outcome.ids.size());
    } else if (request.want_prompt_logprobs) {
      ASSERT_EQ(outcome.scores.size(), request.prompt.size() - 1) << "request " << id;
    }
    ASSERT_EQ(outcome.ids, expected) << "request " << id;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, EngineSimulation, ::testing::Range(0u, 12u));

}  // namespace
}  // namespace deepinfer::engine
