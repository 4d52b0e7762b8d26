// The DSpark drafter of V4.1 against the reference, and what drafting must not change.

#include "models/deepseek_v41/deepseek_v41_draft.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "models/deepseek_v41/v41_goldens_test.h"

namespace deepinfer::models {
namespace {

class V41Draft : public ::testing::TestWithParam<kernels::Isa> {
 protected:
  static ModelRunner open(KvMode kv, size_t threads = 1) {
    return ModelRunner::open(
        v41_path("base"),
        {.isa = GetParam(), .kv = kv, .threads = threads, .max_rows = 128, .pages = 24});
  }
  static std::unique_ptr<V41Drafter> drafter_of(ModelRunner& runner) {
    return value_or_die(V41Drafter::create(v41_model(runner)));
  }
};

V41Drafter::Draft draft_of(V41Drafter& drafter, std::vector<V41Drafter::Anchor> anchors) {
  V41Drafter::Draft draft;
  const Result<void> done = drafter.draft(anchors, draft);
  EXPECT_TRUE(done.ok()) << done.error().text();
  return draft;
}

TEST_P(V41Draft, FirstRound) {
  for (const bool official : {false, true}) {
    ModelRunner runner = open(official ? KvMode::official : KvMode::f32);
    const auto drafter = drafter_of(runner);
    const GoldenFile golden = v41_golden(official ? "b_kvquant" : "a_fp32");
    const std::vector<int32_t> ids = golden_ids(golden["input_ids"]);
    for (size_t chunk : {64, 9}) {
      cache::SequenceCache sequence = runner.new_sequence();
      for (size_t first = 0; first < ids.size(); first += chunk) {
        runner.step({{&sequence, part(ids, first, std::min(ids.size(), first + chunk)), false}});
      }
      const V41Drafter::Draft draft =
          draft_of(*drafter, {{&sequence, ids.size(), golden["spec.anchor"].as<int32_t>()[0]}});
      const Difference d = difference(draft.logits, golden["draft0.logits"].as<float>());
      const std::string name = official ? "deepseek_v41/b_kvquant" : "deepseek_v41/a_fp32";
      if (official) {
        expect_error(name, "first draft: logits, rms", d.rms, 0.1);
      } else {
        expect_error(name, "first draft: logits, largest", d.largest, 1e-3);
      }
      const auto expected = golden["spec.draft"].as<int32_t>().first(5);
      EXPECT_EQ(draft.ids, std::vector<int32_t>(expected.begin(), expected.end()));
      const auto confidence = golden["spec.conf"].as<float>().first(5);
      expect_error(name, "first draft: confidences, largest",
                   difference(draft.confidence, confidence).largest, official ? 1e-2 : 1e-4);
    }
  }
}

// What one round of greedy speculation did.
struct Round {
  uint64_t position = 0;
  int32_t anchor = 0;
  std::vector<int32_t> draft = {};
  std::vector<float> confidence = {};
  size_t accepted = 0;
  int32_t next = 0;
};

// Drafts, verifies and rolls back once, with another sequence in the same calls.
Round speculate(ModelRunner& runner, V41Drafter& drafter, cache::SequenceCache& sequence,
                cache::SequenceCache& other, int32_t anchor) {
  Round round{.position = sequence.length(), .anchor = anchor};
  const V41Drafter::Draft draft =
      draft_of(drafter, {{&other, other.length(), 7}, {&sequence, sequence.length(), anchor}});
  const auto block = static_cast<long>(drafter.block());
  round.draft.assign(draft.ids.begin() + block, draft.ids.end());
  round.confidence.assign(draft.confidence.begin() + block, draft.confidence.end());
  std::vector<int32_t> rows = {anchor};
  rows.insert(rows.end(), round.draft.begin(), round.draft.end());
  const std::vector<float> logits = runner.step({{&sequence, rows, true}, {&other, {7}, true}});
  const auto choice = [&](size_t row) {
    return static_cast<int32_t>(
        argmax(std::span(logits).subspan(row * runner.vocab(), runner.vocab())));
  };
  while (round.accepted < round.draft.size() &&
         round.draft[round.accepted] == choice(round.accepted)) {
    ++round.accepted;
  }
  round.next = choice(round.accepted);
  sequence.set_length(round.position + 1 + round.accepted);
  return round;
}

// Every round is the reference's.
TEST_P(V41Draft, EveryRound) {
  ModelRunner runner = open(KvMode::f32);
  const auto drafter = drafter_of(runner);
  const GoldenFile golden = v41_golden("a_fp32");
  const std::vector<int32_t> ids = golden_ids(golden["input_ids"]);
  const auto golden_of = [&](const std::string& name) {
    return golden["spec." + name].as<int32_t>();
  };
  cache::SequenceCache sequence = runner.new_sequence(), other = runner.new_sequence();
  runner.step({{&sequence, ids, false}, {&other, part(ids, 10, 40), false}});
  int32_t anchor = golden_of("anchor")[0];
  for (size_t i = 0; i < golden_of("pos").size(); ++i) {
    const Round round = speculate(runner, *drafter, sequence, other, anchor);
    EXPECT_EQ(round.position, static_cast<uint64_t>(golden_of("pos")[i]));
    const auto draft = golden_of("draft").subspan(5 * i, 5);
    ASSERT_EQ(round.draft, std::vector<int32_t>(draft.begin(), draft.end())) << "round " << i;
    const auto confidence = golden["spec.conf"].as<float>().subspan(5 * i, 5);
    expect_error("deepseek_v41/a_fp32", "19 rounds: confidences, largest",
                 difference(round.confidence, confidence).largest, 1e-4,
                 "round " + std::to_string(i));
    EXPECT_EQ(static_cast<int32_t>(round.accepted), golden_of("accepted")[i]);
    EXPECT_EQ(round.next, golden_of("next")[i]);
    anchor = round.next;
  }
}

// With drafts or without, the tokens are the same. (With official cache rows one code on a rounding
// edge changes what is drafted, so the rounds are not compared.)
TEST_P(V41Draft, SpeculationKeepsTheTokens) {
  for (const bool official : {false, true}) {
    ModelRunner runner = open(official ? KvMode::official : KvMode::f32);
    const auto drafter = drafter_of(runner);
    const GoldenFile golden = v41_golden(official ? "b_kvquant" : "a_fp32");
    const std::vector<int32_t> ids = golden_ids(golden["input_ids"]);
    const std::vector<int32_t> greedy = golden_ids(golden["greedy_tokens"]);
    cache::SequenceCache sequence = runner.new_sequence(), other = runner.new_sequence();
    runner.step({{&sequence, ids, false}, {&other, part(ids, 10, 40), false}});
    std::vector<int32_t> tokens = {greedy[0]};
    size_t accepted = 0;
    while (tokens.size() < greedy.size()) {
      const Round round = speculate(runner, *drafter, sequence, other, tokens.back());
      tokens.insert(tokens.end(), round.draft.begin(),
                    round.draft.begin() + static_cast<long>(round.accepted));
      tokens.push_back(round.next);
      accepted += round.accepted;
    }
    tokens.resize(greedy.size());
    EXPECT_EQ(tokens, greedy);
    EXPECT_GT(accepted, 0u);
  }
}

// The rows that feed the drafter, at an odd position.
TEST_P(V41Draft, FedRowsAreThoseOfTheReference) {
  ModelRunner runner = open(KvMode::f32);
  const auto drafter = drafter_of(runner);
  const GoldenFile golden = v41_golden("e_resume");
  const std::vector<int32_t> ids = golden_ids(golden["input_ids"]);
  const size_t at = static_cast<size_t>(golden["snapshot_pos"].as<int32_t>()[0]);
  cache::SequenceCache sequence = runner.new_sequence();
  runner.step({{&sequence, part(ids, 0, at), false}});
  size_t offset = 0, seen = 0;
  for (const cache::FrontierStream& stream : runner.model().cache_layout().frontier) {
    if (stream.name.starts_with("drafter")) {
      const auto expected = golden["snap.draft." + std::to_string(seen++)].as<float>();
      const size_t rows = stream.bytes_per_sequence / (64 * sizeof(float));
      for (size_t i = 0; i < 8; ++i) {
        const float* row =
            reinterpret_cast<const float*>(sequence.frontier() + offset) + (at - 8 + i) % rows * 64;
        expect_error("deepseek_v41/e_resume", "drafter rows, largest",
                     difference({row, 64}, expected.subspan(i * 64, 64)).largest, 1e-4,
                     stream.name + " row " + std::to_string(i));
      }
    }
    offset += stream.bytes_per_sequence;
  }
  EXPECT_EQ(seen, 3u);
}

// Drafts depend on their own sequence, and drafting changes no logits.
TEST_P(V41Draft, CompanyThreadsAndCopiesDoNotMatter) {
  ModelRunner runner = open(KvMode::official), threads = open(KvMode::official, 3);
  const auto drafter = drafter_of(runner), with_threads = drafter_of(threads);
  const std::vector<int32_t> ids = golden_ids(v41_golden("a_fp32")["input_ids"]);
  cache::SequenceCache a = runner.new_sequence(), b = runner.new_sequence();
  cache::SequenceCache c = threads.new_sequence();
  runner.step({{&a, part(ids, 0, 30), false}});
  runner.step({{&b, part(ids, 20, 64), false}});
  threads.step({{&c, part(ids, 0, 30), false}});
  const V41Drafter::Draft alone = draft_of(*drafter, {{&a, 30, 9}});
  const V41Drafter::Draft both = draft_of(*drafter, {{&b, 44, 3}, {&a, 30, 9}});
  EXPECT_TRUE(std::equal(alone.logits.begin(), alone.logits.end(),
                         both.logits.begin() + static_cast<long>(alone.logits.size())));
  EXPECT_TRUE(draft_of(*with_threads, {{&c, 30, 9}}).logits == alone.logits);
  cache::SequenceCache copy = copy_of(runner, a, true);
  EXPECT_TRUE(draft_of(*drafter, {{&copy, 30, 9}}).logits == alone.logits);
  const std::vector<float> after = runner.step({{&a, part(ids, 30, 40)}});
  ModelRunner plain = open(KvMode::official);
  cache::SequenceCache d = plain.new_sequence();
  plain.step({{&d, part(ids, 0, 30), false}});
  EXPECT_TRUE(plain.step({{&d, part(ids, 30, 40)}}) == after);
}

INSTANTIATE_TEST_SUITE_P(AllIsas, V41Draft, ::testing::ValuesIn(isas_of_this_machine()),
                         [](const auto& parameter) {
                           return std::string(kernels::isa_name(parameter.param));
                         });

}  // namespace
}  // namespace deepinfer::models
