// Drafts cost rows and save steps; they never change what comes out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_run.h"

namespace deepinfer::engine {
namespace {

using ::testing::HasSubstr;

// Texts that repeat themselves after a while.
constexpr size_t kMemory = 1;

struct Answer {
  Outcome outcome;
  uint64_t steps = 0;
};

Answer answer_of(Request request, Drafting drafting, size_t rollback = 8) {
  FakeModel model;
  model.add_windows(16, rollback, true);
  model.memory = kMemory;
  EngineRun run(model);
  request.id = 1;
  request.drafting = drafting;
  request.most_drafts = 8;
  run.add(std::move(request));
  run.run();
  return {run.outcomes[1], run.engine->counters().steps};
}

void expect_same(const Request& request, size_t rollback = 8) {
  const Answer plain = answer_of(request, Drafting::none, rollback);
  const Answer drafted = answer_of(request, Drafting::ngram, rollback);
  EXPECT_EQ(drafted.outcome.ids, plain.outcome.ids);
  EXPECT_EQ(drafted.outcome.logprobs, plain.outcome.logprobs);
  EXPECT_EQ(drafted.outcome.finish, plain.outcome.finish);
  EXPECT_EQ(drafted.outcome.stats.logprob_sum, plain.outcome.stats.logprob_sum);
}

TEST(EngineDrafts, StandWhereTheTextRepeatsItself) {
  const Request request{.prompt = prompt_of(20, 1), .max_tokens = 300, .ignore_eos = true};
  expect_same(request);
  const Answer plain = answer_of(request, Drafting::none);
  const Answer drafted = answer_of(request, Drafting::ngram);
  EXPECT_EQ(plain.outcome.stats.drafted, 0u);
  EXPECT_GT(drafted.outcome.stats.accepted, 150u);
  EXPECT_LT(drafted.steps * 2, plain.steps);
  EXPECT_EQ(drafted.steps + drafted.outcome.stats.accepted, plain.steps);
}

TEST(EngineDrafts, EndWhereTheTextEnds) {
  const Request base{.prompt = prompt_of(20, 1), .max_tokens = 200, .ignore_eos = true};
  const std::vector<int32_t> free = answer_of(base, Drafting::none).outcome.ids;
  for (size_t end : {60, 61, 62, 63, 64, 65, 66}) {
    Request limited = base;
    limited.max_tokens = end;
    expect_same(limited);
    Request stopped = base;
    stopped.stop_ids = {free[end]};
    stopped.min_tokens = 50;
    expect_same(stopped);
    Request sequence = base;
    sequence.stop_sequences = {{free[end - 1], free[end], free[end + 1]}};
    expect_same(sequence);
    Request forced = base;
    forced.forced_ids.assign(150, -1);
    forced.forced_ids[end] = 7;
    forced.forced_ids[end + 40] = 9;
    expect_same(forced);
  }
}

TEST(EngineDrafts, SampledTextsAreKeyedByPosition) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Request request{.prompt = prompt_of(20, 1), .max_tokens = 200, .ignore_eos = true};
    request.sampling = {.temperature = 0.15f, .seed = seed, .top_logprobs = 2};
    expect_same(request);
    request.sampling.repetition_penalty = 1.1f;
    expect_same(request);
  }
}

TEST(EngineDrafts, KeepWithinWhatTheModelCanForget) {
  for (size_t rollback : {1, 2, 5}) {
    expect_same({.prompt = prompt_of(20, 3), .max_tokens = 200, .ignore_eos = true}, rollback);
  }
}

TEST(EngineDrafts, MoreThanAStepCanHoldAreRefused) {
  FakeModel model;
  EngineRun run(model);
  EXPECT_THAT(run.refusal({.id = 1, .prompt = {5}, .most_drafts = 33}),
              HasSubstr("33 drafts in a step, at most 32"));
}

}  // namespace
}  // namespace deepinfer::engine
