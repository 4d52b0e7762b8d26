// The prefix cache behind the engine: what was computed once is not computed again, and every
// answer is that of a cold engine.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/engine_run.h"

namespace deepinfer::engine {
namespace {

using ::testing::HasSubstr;

// How a family of models can be resumed.
enum class Family { entries, snapshots, decoder };

constexpr size_t kWindow = 24;
constexpr size_t kRollback = 6;

void become(FakeModel& model, Family family) {
  if (family == Family::entries) return;
  model.add_windows(kWindow, kRollback, family == Family::decoder);
  if (family == Family::snapshots) model.replay = UINT64_MAX;
  if (family == Family::snapshots) model.bounded = 0;
}

Engine::Options cached_options(Engine::Options options = {}) {
  options.prefix_cache = true;
  options.snapshot_bytes = 1 << 20;
  return options;
}

std::vector<int32_t> joined(std::vector<int32_t> left, const std::vector<int32_t>& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

std::vector<int32_t> head(const std::vector<int32_t>& ids, size_t count) {
  return {ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count)};
}

class EngineResume : public ::testing::TestWithParam<Family> {
 protected:
  EngineResume() {
    become(model, GetParam());
    run.emplace(model, cached_options({.max_rows = 64, .cache_bytes = 64 * kFakePageBytes}));
  }

  // Rows that this request took; its answer must be that of a cold engine.
  size_t rows_of(Request request) {
    const uint64_t before = run->engine->counters().rows;
    const uint64_t id = request.id;
    request.ignore_eos = true;
    const std::vector<int32_t> expected =
        FakeModel::continuation(request.prompt, request.max_tokens, {});
    run->add(std::move(request));
    run->run();
    EXPECT_EQ(run->outcomes[id].ids, expected) << "request " << id;
    return run->engine->counters().rows - before;
  }
  const Outcome& choice_of(uint64_t id, uint32_t choice) { return run->choices[{id, choice}]; }
  const RequestStats& stats(uint64_t id) { return run->outcomes[id].stats; }

  FakeModel model;
  std::optional<EngineRun> run;
};

TEST_P(EngineResume, TheSamePromptAgainComputesItsLastToken) {
  EXPECT_EQ(rows_of({.id = 1, .prompt = prompt_of(300, 1), .max_tokens = 4}), 303u);
  EXPECT_EQ(stats(1).resume, "cold");
  EXPECT_EQ(stats(1).cached_tokens, 0u);
  EXPECT_EQ(stats(1).not_reused, "unknown tokens");
  EXPECT_EQ(rows_of({.id = 2, .prompt = prompt_of(300, 1), .max_tokens = 4}), 4u);
  EXPECT_EQ(stats(2).cached_tokens, 299u);
  EXPECT_EQ(stats(2).not_reused, "");
  EXPECT_EQ(stats(2).resume, GetParam() == Family::entries ? "pages" : "snapshot");
}

TEST_P(EngineResume, AFollowUpComputesItsNewTokens) {
  std::vector<int32_t> chat = prompt_of(200, 1);
  rows_of({.id = 1, .prompt = chat, .max_tokens = 9});
  for (uint32_t turn = 2; turn < 6; ++turn) {
    chat = joined(joined(chat, run->outcomes[turn - 1].ids), prompt_of(20, turn));
    // The last token of the answer was never computed.
    EXPECT_EQ(rows_of({.id = turn, .prompt = chat, .max_tokens = 9}), 21u + 8u) << turn;
    EXPECT_EQ(stats(turn).cached_tokens, chat.size() - 21);
  }
}

TEST_P(EngineResume, EveryPlaceInAPageIsAPlaceToResume) {
  uint64_t id = 0;
  for (size_t length : {2, 127, 128, 129, 130, 255, 256, 257, 383, 384, 385}) {
    const std::vector<int32_t> prompt = prompt_of(length, static_cast<uint32_t>(length));
    rows_of({.id = ++id, .prompt = prompt, .max_tokens = 3});
    rows_of({.id = ++id, .prompt = joined(prompt, prompt_of(40, 9)), .max_tokens = 30});
    EXPECT_GE(stats(id).cached_tokens, length - 1) << length;
  }
}

TEST_P(EngineResume, AnEditedTurnResumesAtTheLastPointBeforeIt) {
  const std::vector<int32_t> system = prompt_of(120, 1);
  rows_of({.id = 1,
           .prompt = joined(system, prompt_of(90, 2)),
           .max_tokens = 5,
           .resume_points = {120}});
  rows_of({.id = 2, .prompt = joined(system, prompt_of(80, 3)), .max_tokens = 5});
  EXPECT_EQ(stats(2).cached_tokens, 120u);
}

TEST_P(EngineResume, WhereOthersWentAnotherWayAPointIsMade) {
  const std::vector<int32_t> system = prompt_of(150, 1);
  for (uint32_t i = 0; i < 4; ++i) {
    rows_of({.id = i, .prompt = joined(system, prompt_of(70, 10 + i)), .max_tokens = 5});
  }
  EXPECT_EQ(stats(0).cached_tokens, 0u);
  if (GetParam() == Family::snapshots) {
    EXPECT_EQ(stats(1).not_reused, "no snapshot");
  }
  EXPECT_EQ(stats(2).cached_tokens, 150u);
  EXPECT_EQ(stats(3).cached_tokens, 150u);
}

// A shorter prompt than the one that left the snapshots, and a retry of the same.
TEST_P(EngineResume, LongPromptsLeaveAGridOfPoints) {
  run.emplace(model, cached_options({.max_rows = 64, .snapshot_every_pages = 1}));
  rows_of({.id = 1, .prompt = prompt_of(500, 1), .max_tokens = 5});
  rows_of(
      {.id = 2, .prompt = joined(head(prompt_of(500, 1), 400), prompt_of(60, 2)), .max_tokens = 5});
  EXPECT_GE(stats(2).cached_tokens, GetParam() == Family::entries ? 400u : 300u);
}

TEST_P(EngineResume, ACancelledAnswerIsNotComputedAgain) {
  run->add({.id = 1, .prompt = prompt_of(200, 1), .max_tokens = 50, .ignore_eos = true});
  while (run->outcomes[1].ids.size() < 10) ASSERT_TRUE(run->step().ok());
  ASSERT_TRUE(run->engine->cancel(1).ok());
  run->run();
  const std::vector<int32_t> so_far = joined(prompt_of(200, 1), run->outcomes[1].ids);
  EXPECT_LE(rows_of({.id = 2, .prompt = so_far, .max_tokens = 3}), 4u);
}

TEST_P(EngineResume, OtherTenantsAndThoseWhoKeepNothingShareNothing) {
  rows_of({.id = 1, .prompt = prompt_of(200, 1), .max_tokens = 2, .salt = 5});
  rows_of({.id = 2, .prompt = prompt_of(200, 1), .max_tokens = 2, .salt = 6});
  EXPECT_EQ(stats(2).cached_tokens, 0u);
  rows_of({.id = 3, .prompt = prompt_of(200, 1), .max_tokens = 2, .salt = 6});
  EXPECT_EQ(stats(3).cached_tokens, 199u);
  rows_of({.id = 4, .prompt = prompt_of(220, 2), .max_tokens = 2, .keep = false});
  rows_of({.id = 5, .prompt = prompt_of(220, 2), .max_tokens = 2});
  EXPECT_EQ(stats(5).cached_tokens, 0u);
  rows_of({.id = 6, .prompt = prompt_of(220, 2), .max_tokens = 2, .resume = Resume::none});
  EXPECT_EQ(stats(6).cached_tokens, 0u);
  EXPECT_EQ(stats(6).not_reused, "not asked for");
}

TEST_P(EngineResume, PromptScoresAreCompleteAfterAHit) {
  rows_of({.id = 1, .prompt = prompt_of(150, 1), .max_tokens = 2, .want_prompt_logprobs = true});
  rows_of({.id = 2, .prompt = prompt_of(150, 1), .max_tokens = 2, .want_prompt_logprobs = true});
  ASSERT_EQ(run->outcomes[2].scores.size(), 149u);
  for (size_t i = 0; i < 149; ++i) {
    EXPECT_EQ(run->outcomes[2].scores[i].logprob, run->outcomes[1].scores[i].logprob);
  }
  EXPECT_EQ(stats(2).not_reused, "prompt log-probabilities");
}

// What gives way keeps its state, and goes on from there.
TEST_P(EngineResume, APreemptedSequenceGoesOnFromItsSnapshot) {
  run.emplace(model, cached_options({.max_rows = 64, .cache_bytes = 6 * kFakePageBytes}));
  for (uint32_t i = 0; i < 4; ++i) {
    run->add({.id = i, .prompt = prompt_of(100 + i, i), .max_tokens = 200, .ignore_eos = true});
  }
  run->run();
  EXPECT_GT(run->engine->counters().preemptions, 0u);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(run->outcomes[i].ids, FakeModel::continuation(prompt_of(100 + i, i), 200, {})) << i;
  }
}

// A snapshot that does not work must not fail its request for ever.
TEST_P(EngineResume, AResumedSequenceThatFailsIsComputedCold) {
  rows_of({.id = 1, .prompt = prompt_of(300, 1), .max_tokens = 4});
  model.failures = 2;  // the step, and the same alone
  rows_of({.id = 2, .prompt = prompt_of(300, 1), .max_tokens = 4});
  EXPECT_EQ(stats(2).cached_tokens, 0u);
  EXPECT_EQ(stats(2).not_reused, "the resume point failed");
}

TEST_P(EngineResume, ChoicesShareThePrompt) {
  const auto request = [](uint64_t id, uint32_t choices, uint64_t seed) {
    return Request{.id = id,
                   .prompt = prompt_of(200, 1),
                   .sampling = {.temperature = 1.0f, .seed = seed},
                   .max_tokens = 40,
                   .ignore_eos = true,
                   .choices = choices,
                   .resume = Resume::none};
  };
  const uint64_t before = run->engine->counters().rows;
  run->add(request(1, 5, 70));
  run->run();
  EXPECT_EQ(run->engine->counters().rows - before, 200u + 5 * 39);
  for (uint32_t choice = 0; choice < 5; ++choice) {
    run->add(request(10 + choice, 1, 70 + choice));
  }
  run->run();
  for (uint32_t choice = 0; choice < 5; ++choice) {
    EXPECT_EQ(choice_of(1, choice).ids, run->outcomes[10 + choice].ids) << choice;
    EXPECT_EQ(choice_of(1, choice).stats.resume, choice == 0 ? "cold" : "fork");
  }
  EXPECT_NE((choice_of(1, 0).ids), (choice_of(1, 1).ids));
}

// More choices than run at once, and too few pages for all.
TEST_P(EngineResume, ChoicesThatFindNoRoomComeLater) {
  run.emplace(model, cached_options(
                         {.max_sequences = 3, .max_rows = 32, .cache_bytes = 5 * kFakePageBytes}));
  run->add({.id = 1,
            .prompt = prompt_of(140, 1),
            .sampling = {.temperature = 1.0f, .seed = 9},
            .max_tokens = 150,
            .ignore_eos = true,
            .choices = 7});
  run->run();
  for (uint32_t choice = 0; choice < 7; ++choice) {
    run->add({.id = 10 + choice,
              .prompt = prompt_of(140, 1),
              .sampling = {.temperature = 1.0f, .seed = 9 + choice},
              .max_tokens = 150,
              .ignore_eos = true});
    run->run();
    EXPECT_EQ(choice_of(1, choice).ids, run->outcomes[10 + choice].ids) << choice;
  }
}

std::string family_name(const ::testing::TestParamInfo<Family>& info) {
  static constexpr const char* kNames[] = {"entries", "snapshots", "decoder"};
  return kNames[static_cast<size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Families, EngineResume,
                         ::testing::Values(Family::entries, Family::snapshots, Family::decoder),
                         family_name);

// Without a snapshot windows are computed again from entries; the answer is the same.
TEST(EngineReplay, ExactReplayComputesTheWindowsAgain) {
  FakeModel model;
  become(model, Family::decoder);
  EngineRun run(model, {.max_rows = 64, .prefix_cache = true});
  run.add({.id = 1, .prompt = prompt_of(300, 1), .max_tokens = 4, .ignore_eos = true});
  run.run();
  const uint64_t before = run.engine->counters().rows;
  run.add({.id = 2, .prompt = prompt_of(300, 1), .max_tokens = 4, .ignore_eos = true});
  run.run();
  EXPECT_EQ(run.outcomes[2].ids, FakeModel::continuation(prompt_of(300, 1), 4, {}));
  EXPECT_EQ(run.engine->counters().rows - before, 2 * (kWindow - 1) + 4);
  EXPECT_EQ(run.outcomes[2].stats.resume, "pages");
}

// Constant cost; other bits, which nobody else gets.
TEST(EngineReplay, BoundedReplayIsCheapAndItsResultsStayApart) {
  FakeModel model;
  become(model, Family::decoder);
  EngineRun run(model, {.max_rows = 64, .prefix_cache = true});
  const std::vector<int32_t> prompt = prompt_of(400, 1);
  run.add({.id = 1, .prompt = prompt, .max_tokens = 1, .ignore_eos = true});
  run.run();
  uint64_t before = run.engine->counters().rows;
  const std::vector<int32_t> longer = joined(prompt, prompt_of(50, 2));
  run.add(
      {.id = 2, .prompt = longer, .max_tokens = 2, .ignore_eos = true, .resume = Resume::replay});
  run.run();
  EXPECT_EQ(run.engine->counters().rows - before, 50 + kWindow + kRollback - 1 + 1);
  EXPECT_EQ(run.outcomes[2].stats.resume, "replay");
  run.add(
      {.id = 3, .prompt = joined(longer, prompt_of(5, 3)), .max_tokens = 9, .ignore_eos = true});
  run.run();
  EXPECT_EQ(run.outcomes[3].ids, FakeModel::continuation(joined(longer, prompt_of(5, 3)), 9, {}));
  EXPECT_LE(run.outcomes[3].stats.cached_tokens, 400u);
}

TEST(EngineReplay, IsRefusedWhereItDoesNotExist) {
  FakeModel model;
  EngineRun run(model);
  EXPECT_THAT(run.refusal({.id = 1, .prompt = {5}, .resume = Resume::replay}),
              HasSubstr("no bounded replay"));
  FakeModel windows;
  become(windows, Family::decoder);
  EngineRun other(windows);
  EXPECT_THAT(
      other.refusal({.id = 1, .prompt = {5}, .resume = Resume::replay, .replay_tokens = kWindow}),
      HasSubstr("replay_tokens is 24, this model needs 30"));
}

}  // namespace
}  // namespace deepinfer::engine
