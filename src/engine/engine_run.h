#pragma once

// EngineRun: an engine over a FakeModel and what its events added up to, for the tests of this
// folder. The invariants are checked after every step.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/fake_model.h"

namespace deepinfer::engine {

struct Outcome {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;            // [ids]
  std::vector<sampling::Sampled> scores;  // entry i is about prompt id i + 1
  FinishReason finish = FinishReason::none;
  std::string error;
  RequestStats stats;
};

class EngineRun {
 public:
  explicit EngineRun(FakeModel& model, const Engine::Options& options = {}) {
    auto created = Engine::create(model, options, clock);
    EXPECT_TRUE(created.ok()) << (created.ok() ? "" : created.error().text());
    engine = std::move(created).value();
    model.clock = &clock;
  }

  void add(Request request) {
    const auto added = engine->add(std::move(request));
    EXPECT_TRUE(added.ok()) << (added.ok() ? "" : added.error().text());
  }
  std::string refusal(Request request) {
    const auto added = engine->add(std::move(request));
    return added.ok() ? "accepted" : added.error().text();
  }

  Result<void> step() {
    const auto result = engine->step([&](Event event) { take(std::move(event)); });
    engine->check_invariants();
    return result;
  }
  void run(size_t most_steps = 100000) {
    while (engine->busy() && most_steps-- > 0) EXPECT_TRUE(step().ok());
    EXPECT_FALSE(engine->busy());
    EXPECT_EQ(engine->pages_in_use(), 0u);
  }

  ManualClock clock;
  std::unique_ptr<Engine> engine;
  std::map<uint64_t, Outcome> outcomes;                      // of choice 0
  std::map<std::pair<uint64_t, uint32_t>, Outcome> choices;  // of all
  std::vector<uint64_t> finish_order;

 private:
  void take(Event event) {
    take(event, choices[{event.request, event.choice}]);
    if (event.choice > 0) return;
    Outcome& outcome = outcomes[event.request];
    const bool ends = event.finish != FinishReason::none;
    const uint64_t request = event.request;
    take(event, outcome);
    if (ends) finish_order.push_back(request);
  }
  static void take(Event event, Outcome& outcome) {
    EXPECT_EQ(outcome.finish, FinishReason::none) << "event after the end of " << event.request;
    if (!event.prompt_scores.empty()) {
      EXPECT_EQ(event.prompt_first, outcome.scores.size() + 1);
      EXPECT_TRUE(outcome.ids.empty()) << "score after a token";
    }
    for (auto& score : event.prompt_scores) outcome.scores.push_back(std::move(score));
    if (event.has_token) outcome.ids.push_back(event.token.id);
    if (event.has_token) outcome.logprobs.push_back(event.token.logprob);
    outcome.finish = event.finish;
    if (event.finish == FinishReason::none) return;
    EXPECT_EQ(event.error.empty(), event.finish != FinishReason::error);
    EXPECT_EQ(event.stats.completion_tokens, outcome.ids.size());
    outcome.error = event.error;
    outcome.stats = event.stats;
  }
};

// Ids 2 .. vocab - 1: never the end of sequence.
inline std::vector<int32_t> prompt_of(size_t count, uint32_t seed) {
  std::vector<int32_t> ids(count);
  uint32_t state = seed * 2654435761u + 12345u;
  for (int32_t& id : ids) {
    state = state * 1664525u + 1013904223u;
    id = static_cast<int32_t>(2 + (state >> 8) % (FakeModel::kVocab - 2));
  }
  return ids;
}

}  // namespace deepinfer::engine
