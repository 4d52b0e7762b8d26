#include "speculation/verifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sampling/distribution.h"
#include "sampling/philox.h"

namespace deepinfer::speculation {
namespace {

using sampling::Generator;
using sampling::LogprobKind;
using sampling::Parameters;
using sampling::SampleRow;
using sampling::Workspace;
using ::testing::HasSubstr;

constexpr size_t kVocab = 8;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
const std::vector<float> kTarget = {1.0f, 0.2f, -0.5f, 1.3f, 0.0f, -2.0f, 0.7f, 0.7f};
const std::vector<float> kDrafter = {0.5f, 1.2f, -0.5f, 0.3f, 0.1f, -1.0f, 0.7f, -3.0f};

std::vector<float> random_logits(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> logits(count);
  for (float& x : logits) x = normal(random);
  return logits;
}

// A row for the i-th draw of either generator.
SampleRow row_at(const std::vector<float>& logits, uint64_t i) {
  return {.logits = logits, .position = i, .output_index = i};
}

// A draft with its own random numbers, and what it was drawn with.
int32_t draw_draft(const Parameters& parameters, uint64_t i, std::vector<float>& log_q) {
  Workspace workspace;
  SampleRow row = row_at(kDrafter, i);
  row.stream = sampling::Stream::draft;
  log_q.resize(kVocab);
  const auto q = sampling::distribution(row, parameters, workspace).value();
  sampling::write_log_probabilities(q, log_q, workspace);
  return q.greedy ? q.best : sampling::draw(q, row, parameters, workspace);
}

TEST(SampleMatch, TokenAndLogprobsAreThoseWithoutADraft) {
  const std::vector<float> logits = random_logits(300, 1);
  Workspace workspace, other;
  for (Generator generator : {Generator::position, Generator::deepinfer}) {
    for (float temperature : {0.0f, 1.0f}) {
      for (uint64_t i = 0; i < 100; ++i) {
        const Parameters p = {.temperature = temperature,
                              .top_p = 0.9f,
                              .top_logprobs = 3,
                              .logprobs = i % 2 == 0 ? LogprobKind::raw : LogprobKind::filtered,
                              .generator = generator};
        const SampleRow row = row_at(logits, i);
        const sampling::Sampled plain = sampling::sample(row, p, other).value();
        for (int32_t draft : {-1, plain.id, (plain.id + 1) % 300, 300, 1 << 30}) {
          const VerifyRow verified = {.sample = row, .draft = draft};
          const Verdict v = verify(Acceptance::sample_match, verified, p, workspace).value();
          EXPECT_EQ(v.token.id, plain.id);
          EXPECT_EQ(v.token.logprob, plain.logprob);
          EXPECT_EQ(v.token.top, plain.top);
          EXPECT_EQ(v.accepted, draft == plain.id);
        }
      }
    }
  }
}

// Pearson's statistic of tokens against probabilities; 99.9 % quantile of 7 degrees of freedom.
void expect_follows(const std::vector<int>& drawn, const std::vector<double>& expected, int draws,
                    const std::string& what) {
  double statistic = 0;
  for (size_t id = 0; id < kVocab; ++id) {
    const double mean = expected[id] * draws;
    if (mean == 0) {
      EXPECT_EQ(drawn[id], 0) << what;
      continue;
    }
    statistic += (drawn[id] - mean) * (drawn[id] - mean) / mean;
  }
  EXPECT_LT(statistic, 24.3) << what;
}

std::vector<double> target_probabilities(const Parameters& parameters, const SampleRow& row) {
  Workspace workspace;
  const auto p = sampling::distribution(row, parameters, workspace).value();
  std::vector<double> out;
  for (size_t id = 0; id < kVocab; ++id) {
    out.push_back(std::exp(sampling::log_probability(p, static_cast<int32_t>(id), workspace)));
  }
  return out;
}

// Text drawn through drafts has the distribution of text drawn without, whatever the drafter.
TEST(Stochastic, TokensFollowTheTarget) {
  const std::vector<uint32_t> mask = {0b10111011};
  const Parameters cases[] = {{.temperature = 1.0f},
                              {.temperature = 0.7f, .top_k = 5},
                              {.temperature = 1.3f, .top_p = 0.8f},
                              {.temperature = 1.0f, .banned_ids = {3}}};
  constexpr int kDraws = 20000;
  for (Generator generator : {Generator::position, Generator::deepinfer}) {
    for (Parameters p : cases) {
      for (bool certain : {false, true}) {
        p.generator = generator;
        p.seed = 99;
        p.want_logprob = false;
        std::vector<int> drawn(kVocab);
        std::vector<float> log_q;
        double accepted = 0, acceptance = 0;
        Workspace workspace;
        for (uint64_t i = 0; i < kDraws; ++i) {
          VerifyRow row = {.sample = row_at(kTarget, i)};
          row.sample.mask = mask;
          row.draft = certain ? static_cast<int32_t>(i % kVocab) : draw_draft(p, i, log_q);
          if (!certain) row.draft_log_probabilities = log_q;
          const Verdict v = verify(Acceptance::stochastic, row, p, workspace).value();
          EXPECT_TRUE(!v.accepted || v.token.id == row.draft);
          ++drawn[static_cast<size_t>(v.token.id)];
          accepted += v.accepted;
          acceptance += static_cast<double>(v.acceptance);
        }
        SampleRow row = row_at(kTarget, 0);
        row.mask = mask;
        const std::string what = "generator " + std::to_string(static_cast<int>(generator)) +
                                 " top_k " + std::to_string(p.top_k) + " top_p " +
                                 std::to_string(p.top_p) + (certain ? " certain" : " drawn");
        expect_follows(drawn, target_probabilities(p, row), kDraws, what);
        EXPECT_GT(accepted, kDraws / 20) << what;
        EXPECT_NEAR(accepted / kDraws, acceptance / kDraws, 0.012) << what;
      }
    }
  }
}

TEST(Stochastic, DeepinferStreamsAreThoseOfTheSpecification) {
  const Parameters p = {.temperature = 1.0f, .seed = 1234, .generator = Generator::deepinfer};
  Workspace workspace;
  const std::vector<double> probabilities = target_probabilities(p, row_at(kTarget, 0));
  int accepted = 0;
  for (uint64_t i = 0; i < 300; ++i) {
    VerifyRow row = {.sample = row_at(kTarget, i), .draft = 3};
    row.sample.row_offset = 2;
    const Verdict v = verify(Acceptance::stochastic, row, p, workspace).value();
    // Case 2 of position i + 2 * 10000019 decides; the draft was certain.
    const uint64_t position = i + 20'000'038;
    const uint32_t x = sampling::philox4x32(1234, 0, 3 * position + 2)[0];
    const float u = static_cast<float>(x) * 0x1p-32f + 0x1p-33f;
    EXPECT_EQ(v.accepted, u < static_cast<float>(probabilities[3])) << i;
    accepted += v.accepted;
    if (v.accepted) continue;
    // Case 1 draws from max(p - e^-5e-5 q, 0); eight lanes of one column each.
    uint64_t total = 0, ends[kVocab];
    for (size_t id = 0; id < kVocab; ++id) {
      const double rest = probabilities[id] - (id == 3 ? std::exp(-5e-5) : 0.0);
      ends[id] = total += static_cast<uint32_t>(static_cast<float>(std::max(rest, 0.0)) * 0x1p31);
    }
    const uint64_t draw = sampling::philox4x32(1234, 0, 3 * position + 1)[0];
    if (draw >= 0xFFFFFFFFull / total * total) continue;
    const auto end = std::upper_bound(ends, ends + kVocab, draw % total);
    EXPECT_EQ(v.token.id, end - ends) << i;
  }
  EXPECT_GT(accepted, 50);
  EXPECT_LT(accepted, 150);
}

TEST(Stochastic, NumbersByPositionAreThoseOfTheirPurposes) {
  const Parameters p = {.temperature = 1.0f, .seed = 77};
  const std::vector<double> probabilities = target_probabilities(p, row_at(kTarget, 0));
  Workspace workspace;
  for (uint64_t i = 0; i < 300; ++i) {
    const VerifyRow row = {.sample = row_at(kTarget, i), .draft = 3};
    const Verdict v = verify(Acceptance::stochastic, row, p, workspace).value();
    const bool accepted = sampling::uniform(77, i, sampling::Purpose::accept) < probabilities[3];
    EXPECT_EQ(v.accepted, accepted) << i;
    if (accepted) continue;
    double left = sampling::uniform(77, i, sampling::Purpose::residual) * (1 - probabilities[3]);
    int32_t id = 0;
    for (; left >= (id == 3 ? 0.0 : probabilities[static_cast<size_t>(id)]); ++id) {
      left -= id == 3 ? 0.0 : probabilities[static_cast<size_t>(id)];
    }
    EXPECT_EQ(v.token.id, id) << i;
  }
}

// Where the drafter is the target but for the draft itself, the shrink leaves all others a share.
TEST(Stochastic, TheShrinkLeavesAResidual) {
  const Parameters p = {.temperature = 1.0f, .generator = Generator::deepinfer};
  std::vector<float> log_q;
  for (double x : target_probabilities(p, row_at(kTarget, 0))) {
    log_q.push_back(static_cast<float>(std::log(x)));
  }
  log_q[0] += 0.5f;
  std::set<int32_t> instead;
  Workspace workspace;
  for (uint64_t i = 0; i < 300; ++i) {
    const VerifyRow row = {
        .sample = row_at(kTarget, i), .draft = 0, .draft_log_probabilities = log_q};
    const Verdict v = verify(Acceptance::stochastic, row, p, workspace).value();
    if (!v.accepted) instead.insert(v.token.id);
    EXPECT_NEAR(v.acceptance, 1.0f, 1e-4f);
  }
  EXPECT_THAT(instead, ::testing::ElementsAre(1, 2, 3, 4, 5, 6, 7));
}

TEST(Stochastic, AnEmptyResidualGivesTheMostLikely) {
  for (Generator generator : {Generator::position, Generator::deepinfer}) {
    const Parameters p = {.temperature = 1.0f, .generator = generator};
    std::vector<float> log_q;  // more than p everywhere
    for (double x : target_probabilities(p, row_at(kTarget, 0))) {
      log_q.push_back(static_cast<float>(std::log(x)) + 0.5f);
    }
    Workspace workspace;
    int rejected = 0;
    for (uint64_t i = 0; i < 200; ++i) {
      const VerifyRow row = {
          .sample = row_at(kTarget, i), .draft = 0, .draft_log_probabilities = log_q};
      const Verdict v = verify(Acceptance::stochastic, row, p, workspace).value();
      EXPECT_EQ(v.token.id, v.accepted ? 0 : 3);
      rejected += !v.accepted;
    }
    EXPECT_GT(rejected, 20);
  }
}

TEST(Stochastic, TheResidualOfEqualDistributionsIsNotMissed) {
  // Nothing is ever rejected when the drafter is the target, with numbers of its own.
  const Parameters p = {.temperature = 1.0f};
  std::vector<float> log_q;
  for (double x : target_probabilities(p, row_at(kTarget, 0))) {
    log_q.push_back(static_cast<float>(std::log(x)));
  }
  Workspace workspace;
  for (uint64_t i = 0; i < 500; ++i) {
    const VerifyRow row = {.sample = row_at(kTarget, i),
                           .draft = static_cast<int32_t>(i % kVocab),
                           .draft_log_probabilities = log_q};
    const Verdict v = verify(Acceptance::stochastic, row, p, workspace).value();
    EXPECT_TRUE(v.accepted);
    EXPECT_NEAR(v.acceptance, 1.0f, 1e-5f);
    EXPECT_EQ(v.draft_logprob, log_q[i % kVocab]);
  }
}

TEST(Verify, GreedyComparesWithTheMostLikely) {
  Workspace workspace;
  for (Acceptance acceptance : {Acceptance::sample_match, Acceptance::stochastic}) {
    for (int32_t draft = 0; draft < static_cast<int32_t>(kVocab); ++draft) {
      const VerifyRow row = {.sample = row_at(kTarget, 5), .draft = draft};
      const Verdict v = verify(acceptance, row, {}, workspace).value();
      EXPECT_EQ(v.token.id, 3);
      EXPECT_EQ(v.accepted, draft == 3);
      EXPECT_EQ(v.acceptance, draft == 3 ? 1.0f : 0.0f);
      EXPECT_EQ(v.draft_logprob, 1.0f);
    }
  }
}

TEST(Verify, AForcedIdDecides) {
  Workspace workspace;
  const std::vector<uint32_t> mask = {0b00001111};
  for (Acceptance acceptance : {Acceptance::sample_match, Acceptance::stochastic}) {
    for (int32_t draft : {5, 3, -1}) {
      VerifyRow row = {.sample = row_at(kTarget, 5), .draft = draft};
      row.sample.forced = 5;
      row.sample.mask = mask;
      const Verdict v = verify(acceptance, row, {.temperature = 1.0f}, workspace).value();
      EXPECT_EQ(v.token.id, 5);
      EXPECT_EQ(v.accepted, draft == 5);
    }
  }
}

TEST(Verify, WhatMaskFiltersOrDrafterExcludeNeverStands) {
  Workspace workspace;
  const std::vector<uint32_t> mask = {0b11110111};
  const std::vector<float> excluded = {-1.0f, -1.0f, -1.0f, -1.0f, -1.0f, -1.0f, -kInfinity, -1.0f};
  for (Acceptance acceptance : {Acceptance::sample_match, Acceptance::stochastic}) {
    for (Generator generator : {Generator::position, Generator::deepinfer}) {
      for (uint64_t i = 0; i < 100; ++i) {
        const Parameters p = {.temperature = 1.0f, .top_k = 6, .generator = generator};
        VerifyRow row = {.sample = row_at(kTarget, i), .draft = 3};
        row.sample.mask = mask;
        for (int32_t draft : {3, 5, 8, 1 << 30}) {  // masked, behind top-k, outside
          row.draft = draft;
          const Verdict v = verify(acceptance, row, p, workspace).value();
          EXPECT_FALSE(v.accepted) << draft;
          EXPECT_NE(v.token.id, 3);
          EXPECT_NE(v.token.id, 5);
        }
        if (acceptance == Acceptance::sample_match) continue;
        row.draft = 6;
        row.draft_log_probabilities = excluded;
        EXPECT_FALSE(verify(acceptance, row, p, workspace).value().accepted);
      }
    }
  }
}

TEST(Verify, WithoutADraftItIsASample) {
  Workspace workspace, other;
  for (uint64_t i = 0; i < 50; ++i) {
    const Parameters p = {.temperature = 1.0f};
    const VerifyRow row = {.sample = row_at(kTarget, i)};
    const Verdict v = verify(Acceptance::stochastic, row, p, workspace).value();
    EXPECT_EQ(v.token.id, sampling::sample(row.sample, p, other).value().id);
    EXPECT_FALSE(v.accepted);
    EXPECT_EQ(v.acceptance, 0.0f);
  }
}

TEST(Verify, ErrorsAreThoseOfTheSampler) {
  Workspace workspace;
  std::vector<float> logits = kTarget;
  logits[6] = std::numeric_limits<float>::quiet_NaN();
  for (Acceptance acceptance : {Acceptance::sample_match, Acceptance::stochastic}) {
    const VerifyRow row = {.sample = row_at(logits, 0), .draft = 1};
    const auto result = verify(acceptance, row, {.temperature = 1.0f}, workspace);
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.error().text(), HasSubstr("NaN for id 6"));
  }
}

}  // namespace
}  // namespace deepinfer::speculation
