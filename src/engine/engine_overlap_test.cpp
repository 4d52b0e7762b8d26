// The overlapped loop gives what the plain one gives, ends and cancels included.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/engine_run.h"

namespace deepinfer::engine {
namespace {

struct Loop {
  const char* name;
  LoopMode mode;
  bool thread;
};

constexpr Loop kLoops[] = {{"plain", LoopMode::plain, false},
                           {"inline", LoopMode::overlapped, false},
                           {"thread", LoopMode::overlapped, true}};

Engine::Options options_of(const Loop& loop, Engine::Options options = {}) {
  options.mode = loop.mode;
  options.compute_thread = loop.thread;
  return options;
}

std::vector<Request> random_requests(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  for (uint64_t id = 0; id < 24; ++id) {
    Request request{.id = id,
                    .prompt = prompt_of(1 + random() % 180, random() % 6),
                    .sampling = {.temperature = random() % 2 == 0 ? 0.0f : 0.8f,
                                 .repetition_penalty = random() % 3 == 0 ? 1.3f : 1.0f,
                                 .seed = id,
                                 .top_logprobs = static_cast<int32_t>(random() % 3)},
                    .max_tokens = random() % 60,
                    .ignore_eos = random() % 2 == 0,
                    .want_prompt_logprobs = random() % 4 == 0};
    request.min_tokens = std::min<size_t>(request.max_tokens, random() % 10);
    request.choices = random() % 4 == 0 ? 3 : 1;
    request.drafting = random() % 2 == 0 ? Drafting::ngram : Drafting::none;
    if (random() % 3 == 0) request.resume_points = {random() % 100};
    requests.push_back(std::move(request));
  }
  return requests;
}

class EngineOverlap : public ::testing::TestWithParam<uint32_t> {};

// Alone on a cold engine; then together in every loop, with few pages and a prefix cache.
TEST_P(EngineOverlap, TokensAndScoresAreThoseOfEachRequestAlone) {
  const std::vector<Request> requests = random_requests(GetParam());
  std::map<std::pair<uint64_t, uint32_t>, Outcome> alone;
  for (const Request& request : requests) {
    FakeModel model(300);
    model.add_windows(20, 6, true);
    model.memory = 3;
    EngineRun run(model);
    Request plain = request;
    plain.drafting = Drafting::none;
    run.add(plain);
    run.run();
    alone.merge(run.choices);
  }
  const auto pool = ThreadPool::create({.threads = 2}).value();
  for (const Loop& loop : kLoops) {
    FakeModel model(300);
    model.add_windows(20, 6, true);
    model.memory = 3;
    EngineRun run(model, options_of(loop, {.max_sequences = 5,
                                           .max_rows = 48,
                                           .cache_bytes = 9 * kFakePageBytes,
                                           .snapshot_bytes = 1 << 16,
                                           .prefix_cache = true,
                                           .snapshot_every_pages = 1,
                                           .pool = pool.get()}));
    for (size_t i = 0; i < requests.size(); ++i) {
      run.add(requests[i]);
      if (i % 3 == 0) ASSERT_TRUE(run.step().ok());
    }
    run.run();
    ASSERT_EQ(run.choices.size(), alone.size()) << loop.name;
    for (const auto& [key, expected] : alone) {
      const Outcome& outcome = run.choices[key];
      EXPECT_EQ(outcome.ids, expected.ids) << loop.name << " request " << key.first;
      EXPECT_EQ(outcome.logprobs, expected.logprobs) << loop.name << " request " << key.first;
      EXPECT_EQ(outcome.finish, expected.finish) << loop.name << " request " << key.first;
      ASSERT_EQ(outcome.scores.size(), expected.scores.size());
      for (size_t i = 0; i < outcome.scores.size(); ++i) {
        EXPECT_EQ(outcome.scores[i].logprob, expected.scores[i].logprob);
      }
    }
    EXPECT_EQ(run.engine->counters().discarded_rows, 0u) << loop.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, EngineOverlap, ::testing::Range(0u, 6u));

TEST(EngineOverlapEnds, ACancelledSequenceWastesOneRowAtMost) {
  for (const Loop& loop : kLoops) {
    FakeModel model;
    EngineRun run(model, options_of(loop));
    for (uint32_t i = 0; i < 4; ++i) {
      run.add({.id = i, .prompt = prompt_of(5, i), .max_tokens = 100, .ignore_eos = true});
    }
    for (int step = 0; step < 5; ++step) ASSERT_TRUE(run.step().ok());
    ASSERT_TRUE(run.engine->cancel(2).ok());
    ASSERT_TRUE(run.step().ok());
    ASSERT_TRUE(run.step().ok());
    EXPECT_EQ(run.outcomes[2].finish, FinishReason::cancelled) << loop.name;
    EXPECT_LE(run.engine->counters().discarded_rows, 1u) << loop.name;
    EXPECT_EQ(run.engine->pages_in_use(), 3u) << loop.name;
    run.run();
    for (uint32_t i : {0u, 1u, 3u}) {
      EXPECT_EQ(run.outcomes[i].ids, FakeModel::continuation(prompt_of(5, i), 100, {}));
    }
  }
}

TEST(EngineOverlapEnds, DrainDeliversTheStepInFlight) {
  for (const Loop& loop : kLoops) {
    FakeModel model;
    EngineRun run(model, options_of(loop));
    run.add({.id = 1, .prompt = prompt_of(5, 1), .max_tokens = 50, .ignore_eos = true});
    for (int step = 0; step < 4; ++step) ASSERT_TRUE(run.step().ok());
    size_t tokens = run.outcomes[1].ids.size();
    ASSERT_TRUE(
        run.engine->drain([&](const Event& event) { tokens += event.has_token ? 1 : 0; }).ok());
    EXPECT_EQ(tokens, model.steps) << loop.name;
  }
}

TEST(EngineOverlapEnds, AStepThatFailsIsComputedAgainInFlight) {
  for (const Loop& loop : kLoops) {
    FakeModel model;
    model.add_windows(20, 6, true);
    model.fails_on = 0;
    EngineRun run(model, options_of(loop, {.max_rows = 32}));
    run.add({.id = 1, .prompt = prompt_of(90, 1), .max_tokens = 40, .ignore_eos = true});
    run.add({.id = 2, .prompt = {4, 5, 0}});
    run.add({.id = 3, .prompt = prompt_of(70, 3), .max_tokens = 5, .ignore_eos = true});
    for (int step = 0; run.engine->busy(); ++step) {
      if (!loop.thread) model.fails_once = step % 3 == 2;
      EXPECT_TRUE(run.step().ok());
    }
    EXPECT_EQ(run.outcomes[2].finish, FinishReason::error) << loop.name;
    EXPECT_EQ(run.outcomes[1].ids, FakeModel::continuation(prompt_of(90, 1), 40, {}));
    EXPECT_EQ(run.outcomes[3].ids, FakeModel::continuation(prompt_of(70, 3), 5, {}));
  }
}

}  // namespace
}  // namespace deepinfer::engine
