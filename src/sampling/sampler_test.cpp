#include "sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace deepinfer::sampling {
namespace {

using ::testing::HasSubstr;

constexpr kernels::Isa kIsa = kernels::Isa::ref;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_logits(size_t count, uint32_t seed, float deviation = 3.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> logits(count);
  for (float& x : logits) x = normal(random);
  return logits;
}

Result<Sampled> sample(kernels::Isa isa, std::span<const float> logits,
                       const Parameters& parameters, uint64_t position,
                       std::span<const int32_t> seen, Workspace& workspace) {
  const SampleRow row = {.isa = isa, .logits = logits, .position = position, .seen = seen};
  return sample(row, parameters, workspace);
}

Sampled must_sample(const std::vector<float>& logits, const Parameters& parameters,
                    uint64_t position = 0, const std::vector<int32_t>& seen = {}) {
  Workspace workspace;
  auto result = sample(kIsa, logits, parameters, position, seen, workspace);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().text());
  return result.ok() ? std::move(result).value() : Sampled{};
}

// What the definition says, with a full sort and nothing clever: [id, probability], most likely
// first.
std::vector<std::pair<int32_t, double>> plain_distribution(const std::vector<float>& logits,
                                                           const Parameters& p) {
  std::vector<std::pair<int32_t, double>> all;
  const float top = *std::max_element(logits.begin(), logits.end());
  for (size_t i = 0; i < logits.size(); ++i) {
    all.emplace_back(static_cast<int32_t>(i), std::exp(double{logits[i] - top} / p.temperature));
  }
  std::sort(all.begin(), all.end(), [&](const auto& a, const auto& b) {
    const float x = logits[static_cast<size_t>(a.first)], y = logits[static_cast<size_t>(b.first)];
    return x != y ? x > y : a.first < b.first;
  });
  if (p.top_k > 0) all.resize(std::min(all.size(), static_cast<size_t>(p.top_k)));
  const auto sum = [&] {
    return std::accumulate(all.begin(), all.end(), 0.0,
                           [](double s, const auto& entry) { return s + entry.second; });
  };
  double mass = 0, wanted = p.top_p * sum();
  size_t keep = 0;
  while (keep < all.size() && mass < wanted) mass += all[keep++].second;
  if (p.top_p < 1.0f) all.resize(keep);
  std::erase_if(all, [&](const auto& entry) { return entry.second < p.min_p; });
  const double total = sum();
  for (auto& entry : all) entry.second /= total;
  return all;
}

TEST(Sample, GreedyTakesTheHighestAndTheLowestIdOfATie) {
  EXPECT_EQ(must_sample({0.5f, 2.0f, -1.0f, 2.0f}, {}).id, 1);
  EXPECT_EQ(must_sample({-kInfinity, -5.0f}, {}).id, 1);
}

TEST(Sample, LogprobsAreThoseOfTheRawLogits) {
  Parameters parameters{.temperature = 0.5f, .banned_ids = {1}, .top_logprobs = 3};
  const Sampled sampled = must_sample({1.0f, 3.0f, 2.0f, 2.0f}, parameters);
  const double log_sum = std::log(std::exp(1.0) + std::exp(3.0) + 2 * std::exp(2.0));
  ASSERT_EQ(sampled.top.size(), 3u);
  EXPECT_EQ(sampled.top[0].first, 1);
  EXPECT_EQ(sampled.top[1].first, 2);
  EXPECT_EQ(sampled.top[2].first, 3);
  EXPECT_NEAR(sampled.top[0].second, 3.0 - log_sum, 1e-6);
  EXPECT_NE(sampled.id, 1);
  EXPECT_NEAR(sampled.logprob, (sampled.id == 0 ? 1.0 : 2.0) - log_sum, 1e-6);
}

TEST(Sample, TopLogprobsAreClippedToTheVocabulary) {
  EXPECT_EQ(must_sample({1.0f, 3.0f}, {.top_logprobs = 5}).top.size(), 2u);
}

TEST(Sample, LogprobIsLeftOutWhenNotWanted) {
  EXPECT_EQ(must_sample({1.0f, 3.0f}, {.want_logprob = false}).logprob, 0.0f);
  EXPECT_NE(must_sample({1.0f, 3.0f}, {.top_logprobs = 1, .want_logprob = false}).logprob, 0.0f);
}

TEST(Sample, PenaltiesCountPromptAndOutput) {
  // Repetition divides positive and multiplies negative logits.
  EXPECT_EQ(must_sample({2.0f, 1.5f}, {.repetition_penalty = 2.0f}, 0, {0}).id, 1);
  EXPECT_EQ(must_sample({-1.0f, -1.5f}, {.repetition_penalty = 2.0f}, 0, {0}).id, 1);
  // Presence counts once, frequency every time.
  EXPECT_EQ(must_sample({2.0f, 0.5f}, {.presence_penalty = 1.0f}, 0, {0, 0, 0}).id, 0);
  EXPECT_EQ(must_sample({2.0f, 0.5f}, {.frequency_penalty = 1.0f}, 0, {0, 0, 0}).id, 1);
}

TEST(Sample, PenaltyCountsStartAtZeroInEveryCall) {
  Workspace workspace;
  const std::vector<float> logits = {2.0f, 0.5f};
  const std::vector<int32_t> seen = {0, 0};
  const Parameters parameters{.frequency_penalty = 0.5f};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(sample(kIsa, logits, parameters, 0, seen, workspace).value().id, 0);
  }
}

TEST(Sample, BannedIdsAreNeverChosen) {
  const std::vector<float> logits = {9.0f, 8.0f, 0.0f};
  EXPECT_EQ(must_sample(logits, {.banned_ids = {0}}).id, 1);
  for (uint64_t position = 0; position < 200; ++position) {
    ASSERT_EQ(must_sample(logits, {.temperature = 5.0f, .banned_ids = {0, 2}}, position).id, 1);
  }
  Workspace workspace;
  const auto none = sample(kIsa, logits, {.banned_ids = {0, 1, 2}}, 0, {}, workspace);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().kind, ErrorKind::invalid);
  EXPECT_THAT(none.error().text(), HasSubstr("none of the 3 ids"));
}

TEST(Sample, LogitsThatAreNoNumbersAreReported) {
  Workspace workspace;
  const auto nan = sample(kIsa, std::vector<float>{1.0f, kNan}, {}, 0, {}, workspace);
  ASSERT_FALSE(nan.ok());
  EXPECT_EQ(nan.error().kind, ErrorKind::internal);
  EXPECT_THAT(nan.error().text(), HasSubstr("NaN for id 1"));
  const auto infinite =
      sample(kIsa, std::vector<float>{1.0f, 2.0f, kInfinity}, {}, 0, {}, workspace);
  ASSERT_FALSE(infinite.ok());
  EXPECT_THAT(infinite.error().text(), HasSubstr("infinite for id 2"));
  EXPECT_FALSE(score(kIsa, std::vector<float>{1.0f, kNan}, 0, 0, workspace).ok());
}

TEST(Sample, SameSeedAndPositionSameId) {
  const std::vector<float> logits = random_logits(500, 1);
  Parameters parameters{.temperature = 1.0f, .top_p = 0.9f, .seed = 42};
  std::map<int32_t, int> drawn;
  Workspace used;
  for (uint64_t position = 0; position < 100; ++position) {
    const int32_t id = must_sample(logits, parameters, position).id;
    ASSERT_EQ(sample(kIsa, logits, parameters, position, {}, used).value().id, id);
    ++drawn[id];
  }
  EXPECT_GT(drawn.size(), 5u);  // different positions differ
  parameters.seed = 43;
  int equal = 0;
  for (uint64_t position = 0; position < 100; ++position) {
    Parameters other = parameters;
    other.seed = 42;
    equal +=
        must_sample(logits, parameters, position).id == must_sample(logits, other, position).id;
  }
  EXPECT_LT(equal, 60);
}

// Every draw lies in the set of the definition, and reaches its last members.
TEST(Sample, KeepsExactlyTheIdsOfTheDefinition) {
  std::mt19937 random(99);
  const float temperatures[] = {0.1f, 0.7f, 1.0f, 2.0f, 50.0f};
  for (int round = 0; round < 60; ++round) {
    const std::vector<float> logits = random_logits(3 + random() % 40, random(), 2.0f);
    Parameters p;
    p.temperature = temperatures[random() % 5];
    p.top_k = static_cast<int32_t>(random() % 3 == 0 ? 0 : 1 + random() % 12);
    p.top_p = random() % 3 == 0 ? 1.0f : 0.05f + 0.9f * static_cast<float>(random() % 1000) / 1000;
    p.min_p = random() % 2 == 0 ? 0.0f : 0.2f * static_cast<float>(random() % 1000) / 1000;
    p.seed = random();
    p.want_logprob = false;
    std::map<int32_t, double> expected;
    for (const auto& [id, probability] : plain_distribution(logits, p)) expected[id] = probability;
    std::map<int32_t, int> drawn;
    constexpr int kDraws = 2000;
    for (uint64_t position = 0; position < kDraws; ++position) {
      ++drawn[must_sample(logits, p, position).id];
    }
    for (const auto& [id, count] : drawn) {
      ASSERT_TRUE(expected.contains(id)) << "round " << round << " id " << id;
    }
    for (const auto& [id, probability] : expected) {
      if (probability > 0.01) {
        EXPECT_GT(drawn[id], 0) << "round " << round << " id " << id;
      }
    }
  }
}

// Pearson's statistic of 20,000 draws; 99.9 % quantiles. The seeds are fixed, so is the outcome.
TEST(Sample, FrequenciesFollowTheDistribution) {
  const std::vector<float> logits = {1.0f, 0.2f, -0.5f, 1.3f, 0.0f, -2.0f, 0.7f, 0.7f};
  const Parameters cases[] = {
      {.temperature = 1.0f, .seed = 3, .want_logprob = false},
      {.temperature = 0.6f, .top_k = 5, .seed = 4, .want_logprob = false},
      {.temperature = 1.5f, .top_p = 0.8f, .seed = 5, .want_logprob = false},
      {.temperature = 1.0f, .min_p = 0.3f, .seed = 6, .want_logprob = false},
      {.temperature = 1.2f,
       .top_k = 6,
       .top_p = 0.9f,
       .min_p = 0.2f,
       .seed = 7,
       .want_logprob = false},
  };
  constexpr int kDraws = 20000;
  for (const Parameters& p : cases) {
    std::map<int32_t, int> drawn;
    Workspace workspace;
    for (uint64_t position = 0; position < kDraws; ++position) {
      ++drawn[sample(kIsa, logits, p, position, {}, workspace).value().id];
    }
    const auto expected = plain_distribution(logits, p);
    double statistic = 0;
    for (const auto& [id, probability] : expected) {
      const double mean = probability * kDraws;
      statistic += (drawn[id] - mean) * (drawn[id] - mean) / mean;
    }
    EXPECT_LT(statistic, 24.3) << "seed " << p.seed;  // 7 degrees of freedom, the most there are
  }
}

TEST(Sample, LargeFlatVocabularyStillReachesTopP) {
  std::vector<float> logits(5000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = -20.0f * static_cast<float>(i) / 5000;
  const Parameters p{.temperature = 1.0f, .top_p = 0.999f, .seed = 1, .want_logprob = false};
  const size_t kept = plain_distribution(logits, p).size();
  int32_t last = 0;
  Workspace workspace;
  for (uint64_t position = 0; position < 3000; ++position) {
    last = std::max(last, sample(kIsa, logits, p, position, {}, workspace).value().id);
  }
  EXPECT_LT(static_cast<size_t>(last), kept);
  EXPECT_GT(static_cast<size_t>(last), kept * 3 / 4);
}

TEST(Sample, TinyTemperatureIsGreedy) {
  const std::vector<float> logits = random_logits(100, 5);
  const int32_t greedy = must_sample(logits, {}).id;
  EXPECT_EQ(must_sample(logits, {.temperature = 1e-40f, .seed = 9}).id, greedy);
}

TEST(Score, GivesLogprobOfAnyId) {
  const std::vector<float> logits = {0.0f, 1.0f, 2.0f};
  const double log_sum = std::log(1.0 + std::exp(1.0) + std::exp(2.0));
  Workspace workspace;
  const Sampled scored = score(kIsa, logits, 0, 2, workspace).value();
  EXPECT_EQ(scored.id, 0);
  EXPECT_NEAR(scored.logprob, -log_sum, 1e-6);
  ASSERT_EQ(scored.top.size(), 2u);
  EXPECT_EQ(scored.top[0].first, 2);
}

}  // namespace
}  // namespace deepinfer::sampling
