// What a SampleRow adds to the parameters: masks, bans, forced ids, biases, and what is reported.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "sampling/distribution.h"
#include "sampling/philox.h"
#include "sampling/sampler.h"

namespace deepinfer::sampling {
namespace {

using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<kernels::Isa> isas() {
  std::vector<kernels::Isa> all = {kernels::Isa::ref};
  if (kernels::cpu_features().avx2) {
    all.push_back(kernels::Isa::avx2);
    all.push_back(kernels::Isa::emulated512);
  }
  if (kernels::cpu_features().avx512_vnni) all.push_back(kernels::Isa::avx512);
  return all;
}

std::vector<float> random_logits(size_t count, uint32_t seed, float deviation = 3.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> logits(count);
  for (float& x : logits) x = normal(random);
  return logits;
}

std::vector<uint32_t> mask_of(size_t vocab, const std::vector<int32_t>& ids) {
  std::vector<uint32_t> mask((vocab + 31) / 32, 0);
  for (int32_t id : ids) mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  return mask;
}

Sampled must_sample(const SampleRow& row, const Parameters& parameters) {
  Workspace workspace;
  auto result = sample(row, parameters, workspace);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().text());
  return result.ok() ? std::move(result).value() : Sampled{};
}

std::string error_of(const SampleRow& row, const Parameters& parameters) {
  Workspace workspace;
  const auto result = sample(row, parameters, workspace);
  return result.ok() ? "no error" : result.error().text();
}

TEST(SampleRow, OnlyIdsOfTheMaskAreChosen) {
  const std::vector<float> logits = random_logits(1100, 1);
  const std::vector<int32_t> allowed = {3, 31, 32, 700, 1099};
  const std::vector<uint32_t> mask = mask_of(logits.size(), allowed);
  for (kernels::Isa isa : isas()) {
    SampleRow row = {.isa = isa, .logits = logits, .mask = mask};
    const auto best = std::max_element(allowed.begin(), allowed.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] < logits[static_cast<size_t>(b)];
    });
    EXPECT_EQ(must_sample(row, {}).id, *best);
    std::vector<bool> drawn(logits.size());
    for (row.position = 0; row.position < 300; ++row.position) {
      drawn[static_cast<size_t>(must_sample(row, {.temperature = 20.0f}).id)] = true;
    }
    for (size_t id = 0; id < logits.size(); ++id) {
      const bool in_mask = std::find(allowed.begin(), allowed.end(), id) != allowed.end();
      EXPECT_EQ(drawn[id], in_mask) << id;
    }
  }
}

TEST(SampleRow, BansOfRowAndParametersAndMaskAllCount) {
  const std::vector<float> logits = {5.0f, 4.0f, 3.0f, 2.0f, 1.0f};
  const std::vector<uint32_t> mask = mask_of(5, {0, 1, 3, 4});
  const std::vector<int32_t> banned = {1};
  const SampleRow row = {.logits = logits, .mask = mask, .banned = banned};
  EXPECT_EQ(must_sample(row, {.banned_ids = {0}}).id, 3);
  EXPECT_THAT(error_of(row, {.banned_ids = {0, 3, 4}}),
              HasSubstr("none of the 5 ids is allowed: a mask allows 4, 4 are banned"));
}

TEST(SampleRow, NumbersThatAreNoneAreReportedBehindTheMaskToo) {
  std::vector<float> logits = {1.0f, 2.0f, 3.0f};
  const std::vector<uint32_t> mask = mask_of(3, {0});
  logits[2] = kNan;
  EXPECT_THAT(error_of({.logits = logits, .mask = mask}, {}), HasSubstr("logits: NaN for id 2"));
  EXPECT_THAT(error_of({.logits = logits, .forced = 0}, {}), HasSubstr("logits: NaN for id 2"));
  logits[2] = kInfinity;
  EXPECT_THAT(error_of({.logits = logits, .mask = mask}, {}), HasSubstr("infinite for id 2"));
}

TEST(SampleRow, WhatIsOutsideTheVocabularyIsNamed) {
  const std::vector<float> logits(40, 0.0f);
  const std::vector<int32_t> banned = {40};
  const std::vector<uint32_t> mask(1, ~0u);
  EXPECT_THAT(error_of({.logits = logits, .banned = banned}, {}), HasSubstr("id 40"));
  EXPECT_THAT(error_of({.logits = logits, .forced = 40}, {}), HasSubstr("forced id: id 40"));
  EXPECT_THAT(error_of({.logits = logits}, {.banned_ids = {41}}), HasSubstr("id 41"));
  EXPECT_THAT(error_of({.logits = logits}, {.logit_bias = {{42, 1.0f}}}), HasSubstr("id 42"));
  EXPECT_THAT(error_of({.logits = logits, .mask = mask}, {}),
              HasSubstr("has 1 words, 40 ids need 2"));
}

TEST(SampleRow, AForcedIdStandsAndItsLogprobIsReported) {
  const std::vector<float> logits = {1.0f, 3.0f, 2.0f};
  const double log_sum = std::log(std::exp(1.0) + std::exp(3.0) + std::exp(2.0));
  const std::vector<uint32_t> mask = mask_of(3, {1, 2});
  const SampleRow row = {.logits = logits, .mask = mask, .forced = 0};
  const Sampled raw = must_sample(row, {.banned_ids = {0}, .top_logprobs = 2});
  EXPECT_EQ(raw.id, 0);
  EXPECT_NEAR(raw.logprob, 1.0 - log_sum, 1e-6);
  ASSERT_EQ(raw.top.size(), 2u);
  EXPECT_EQ(raw.top[0].first, 1);
  const Parameters filtered = {
      .temperature = 1.0f, .top_logprobs = 3, .logprobs = LogprobKind::filtered};
  const Sampled out = must_sample(row, filtered);
  EXPECT_EQ(out.id, 0);
  EXPECT_EQ(out.logprob, kLogprobFloor);
  ASSERT_EQ(out.top.size(), 2u);
  EXPECT_NEAR(out.top[1].second, 2.0 - std::log(std::exp(3.0) + std::exp(2.0)), 1e-6);
}

TEST(SampleRow, BiasComesBeforePenaltiesAndDoesNotShowInRawLogprobs) {
  const std::vector<float> logits = {1.0f, -3.5f, 0.0f};
  const double log_sum = std::log(std::exp(1.0) + std::exp(-3.5) + 1.0);
  EXPECT_EQ(must_sample({.logits = logits}, {.logit_bias = {{1, 100.0f}}}).id, 1);
  EXPECT_NEAR(must_sample({.logits = logits}, {.logit_bias = {{1, 100.0f}}}).logprob,
              -3.5 - log_sum, 1e-6);
  EXPECT_EQ(must_sample({.logits = logits}, {.logit_bias = {{0, -100.0f}}}).id, 2);
  // 1 - 2 = -1 is multiplied by 4: -4 is below -3.5. Divided first it would be 0.25 - 2.
  const std::vector<int32_t> seen = {0};
  const Parameters p = {.repetition_penalty = 4.0f, .banned_ids = {2}, .logit_bias = {{0, -2.0f}}};
  EXPECT_EQ(must_sample({.logits = logits, .seen = seen}, p).id, 1);
}

TEST(SampleRow, BansWinOverBiases) {
  const std::vector<float> logits = {1.0f, 2.0f};
  const std::vector<int32_t> banned = {0};
  const std::vector<uint32_t> mask = mask_of(2, {1});
  const Parameters p = {.logit_bias = {{0, 100.0f}}};
  EXPECT_EQ(must_sample({.logits = logits, .banned = banned}, p).id, 1);
  EXPECT_EQ(must_sample({.logits = logits, .mask = mask}, p).id, 1);
}

// Filtered log-probabilities of everything that is kept add up to 1 and are those of the draws.
TEST(SampleRow, FilteredLogprobsDescribeTheDraws) {
  const std::vector<float> logits = {1.0f, 0.2f, -0.5f, 1.3f, 0.0f, -2.0f, 0.7f, 0.7f};
  const Parameters cases[] = {
      {.temperature = 0.8f},
      {.temperature = 1.0f, .top_k = 3},
      {.temperature = 1.5f, .top_p = 0.7f},
      {.temperature = 1.0f, .min_p = 0.4f},
      {.temperature = 1.2f, .top_k = 6, .top_p = 0.9f, .min_p = 0.2f},
      {.temperature = 1.2f, .top_k = 4, .top_p = 0.9f, .generator = Generator::deepinfer},
      {.temperature = 0.9f, .generator = Generator::deepinfer},
      {.temperature = 0.9f, .top_p = 0.8f, .generator = Generator::deepinfer, .force_top_k = 5},
  };
  constexpr int kDraws = 4000;
  for (kernels::Isa isa : isas()) {
    for (Parameters p : cases) {
      p.logprobs = LogprobKind::filtered;
      p.top_logprobs = 8;
      p.seed = 17;
      std::vector<int> drawn(logits.size());
      Sampled last;
      for (uint64_t i = 0; i < kDraws; ++i) {
        last = must_sample({.isa = isa, .logits = logits, .position = i, .output_index = i}, p);
        ++drawn[static_cast<size_t>(last.id)];
      }
      double sum = 0, statistic = 0;
      int counted = 0;
      for (const auto& [id, logprob] : last.top) {
        const double probability = std::exp(static_cast<double>(logprob));
        sum += probability;
        const double mean = probability * kDraws;
        const int count = drawn[static_cast<size_t>(id)];
        statistic += (count - mean) * (count - mean) / mean;
        counted += count;
        if (id == last.id) EXPECT_EQ(logprob, last.logprob);
      }
      EXPECT_NEAR(sum, 1.0, 1e-5);
      EXPECT_EQ(counted, kDraws);  // nothing else was drawn
      EXPECT_LT(statistic, 24.3);  // 99.9 % quantile of 7 degrees of freedom, fixed seeds
    }
  }
}

TEST(SampleRow, FilteredLogprobsOfGreedyAreAtTemperatureOne) {
  const std::vector<float> logits = {1.0f, 3.0f, 2.0f};
  const Parameters p = {
      .top_k = 1, .banned_ids = {1}, .top_logprobs = 3, .logprobs = LogprobKind::filtered};
  const Sampled sampled = must_sample({.logits = logits}, p);
  EXPECT_EQ(sampled.id, 2);
  ASSERT_EQ(sampled.top.size(), 2u);
  EXPECT_NEAR(sampled.logprob, -std::log(1 + std::exp(-1.0)), 1e-6);
}

TEST(SampleRow, TopListsEqualAFullSort) {
  for (kernels::Isa isa : isas()) {
    for (size_t vocab : {5u, 1000u, 5000u}) {
      std::vector<float> logits = random_logits(vocab, 8, 6.0f);
      for (size_t i = 3; i < vocab; i += 7) logits[i] = logits[i - 3];  // ties
      std::vector<int32_t> order(vocab);
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
        return x != y ? x > y : a < b;
      });
      const Sampled sampled =
          must_sample({.isa = isa, .logits = logits}, {.top_logprobs = kMaxTopLogprobs});
      ASSERT_EQ(sampled.top.size(), std::min<size_t>(vocab, 1000));
      for (size_t i = 0; i < sampled.top.size(); ++i) {
        ASSERT_EQ(sampled.top[i].first, order[i]) << i;
      }
      EXPECT_EQ(sampled.top[0].second, sampled.logprob);
    }
  }
}

TEST(SampleRow, LogprobsHaveAFloor) {
  const std::vector<float> logits = {0.0f, -kInfinity, -20000.0f};
  EXPECT_EQ(must_sample({.logits = logits, .forced = 1}, {}).logprob, -9999.0f);
  const Sampled sampled = must_sample({.logits = logits, .forced = 2}, {.top_logprobs = 3});
  EXPECT_EQ(sampled.logprob, -9999.0f);
  EXPECT_EQ(sampled.top.size(), 2u);  // what cannot come has no place in the list
}

TEST(SampleRow, SmallerSumCountsUpToTheChosen) {
  const std::vector<float> logits = {0.0f, 1.0f, 1.0f, 2.0f, -kInfinity};
  const double total = 1 + 2 * std::exp(1.0) + std::exp(2.0);
  const auto sum = [&](int32_t forced) {
    const Parameters p = {.temperature = 1.0f, .want_smaller_sum = true};
    return must_sample({.logits = logits, .forced = forced}, p).smaller_sum;
  };
  EXPECT_NEAR(sum(0), 1 / total, 1e-6);
  EXPECT_NEAR(sum(1), (1 + std::exp(1.0)) / total, 1e-6);
  EXPECT_NEAR(sum(2), (1 + 2 * std::exp(1.0)) / total, 1e-6);
  EXPECT_NEAR(sum(3), 1.0, 1e-6);
  EXPECT_EQ(must_sample({.logits = logits}, {.temperature = 1.0f}).smaller_sum, -1.0f);
}

// The draw is the inverse of the cumulative distribution in the order of ids, over several blocks.
TEST(SampleRow, UnfilteredDrawsInvertTheDistribution) {
  const std::vector<float> logits = random_logits(5000, 21, 1.0f);
  std::vector<double> cumulative;
  double total = 0;
  for (float x : logits) cumulative.push_back(total += std::exp(static_cast<double>(x) / 1.5));
  for (kernels::Isa isa : isas()) {
    for (uint64_t position = 0; position < 300; ++position) {
      const Parameters p = {.temperature = 1.5f, .seed = 5, .want_logprob = false};
      const size_t id = static_cast<size_t>(
          must_sample({.isa = isa, .logits = logits, .position = position}, p).id);
      const double target = uniform(5, position) * total;
      EXPECT_LE(target, cumulative[id] + 1e-6 * total);
      EXPECT_GE(target, (id > 0 ? cumulative[id - 1] : 0.0) - 1e-6 * total);
    }
  }
}

TEST(SampleRow, ADraftersNumbersAreItsOwn) {
  const std::vector<float> logits(64, 0.0f);
  for (Generator generator : {Generator::position, Generator::deepinfer}) {
    const Parameters p = {.temperature = 1.0f, .generator = generator};
    int equal = 0;
    for (uint64_t i = 0; i < 200; ++i) {
      SampleRow row = {.logits = logits, .position = i, .output_index = i};
      const int32_t token = must_sample(row, p).id;
      row.stream = Stream::draft;
      equal += token == must_sample(row, p).id;
    }
    EXPECT_LT(equal, 20) << static_cast<int>(generator);
  }
}

TEST(LogProbabilities, AreThoseOfTheDraws) {
  const std::vector<float> logits = random_logits(50, 4);
  const Parameters cases[] = {{.temperature = 0.7f},
                              {.temperature = 0.7f, .top_k = 7},
                              {.temperature = 1.0f, .generator = Generator::deepinfer},
                              {}};
  for (const Parameters& p : cases) {
    Workspace workspace;
    const SampleRow row = {.logits = logits};
    const Distribution d = distribution(row, p, workspace).value();
    std::vector<float> out(logits.size());
    write_log_probabilities(d, out, workspace);
    double sum = 0;
    for (size_t id = 0; id < out.size(); ++id) {
      sum += std::exp(static_cast<double>(out[id]));
      const double one = log_probability(d, static_cast<int32_t>(id), workspace);
      if (std::isinf(one)) {
        EXPECT_EQ(out[id], -kInfinity);
      } else {
        EXPECT_NEAR(out[id], one, 1e-4);
      }
    }
    EXPECT_NEAR(sum, 1.0, 1e-5);
  }
}

// Every field against every other: the id is allowed, numbers are numbers, and a used workspace
// gives the bits of a fresh one on each instruction set.
TEST(SampleRow, AnyCombinationOfOptionsWorks) {
  std::mt19937 random(2024);
  const auto maybe = [&](auto value, auto off) { return random() % 2 == 0 ? value : off; };
  Workspace used;
  for (int round = 0; round < 1500; ++round) {
    const size_t vocab = 1 + random() % 2500;
    const std::vector<float> logits = random_logits(vocab, random(), 4.0f);
    const auto any_id = [&] { return static_cast<int32_t>(random() % vocab); };
    Parameters p;
    p.generator = maybe(Generator::position, Generator::deepinfer);
    p.temperature = maybe(0.05f + static_cast<float>(random() % 100) * 0.02f, 0.0f);
    p.top_k = maybe(static_cast<int32_t>(random() % 60), 0);
    p.top_p = maybe(0.01f + 0.98f * static_cast<float>(random() % 1000) / 1000, 1.0f);
    if (p.generator == Generator::position) p.min_p = maybe(0.1f, 0.0f);
    if (p.generator == Generator::deepinfer) p.force_top_k = maybe(1 + any_id(), 0);
    p.repetition_penalty = maybe(1.3f, 1.0f);
    p.presence_penalty = maybe(0.5f, 0.0f);
    p.frequency_penalty = maybe(-0.5f, 0.0f);
    p.seed = random();
    p.top_logprobs = maybe(static_cast<int32_t>(random() % 30), 0);
    p.want_logprob = random() % 4 != 0;
    p.want_smaller_sum = random() % 4 == 0;
    p.logprobs = maybe(LogprobKind::raw, LogprobKind::filtered);
    if (random() % 2 == 0) p.logit_bias = {{any_id(), 3.0f}};
    if (random() % 2 == 0) p.banned_ids = {any_id()};
    std::erase_if(p.banned_ids,
                  [&](int32_t id) { return !p.logit_bias.empty() && p.logit_bias[0].first == id; });
    ASSERT_TRUE(validate(p, vocab).ok());
    const std::vector<int32_t> seen = {any_id(), any_id(), any_id()}, banned = {any_id()};
    std::vector<uint32_t> mask((vocab + 31) / 32, 0);
    for (uint32_t& word : mask) word = random() | 0x01010101;
    SampleRow row = {.isa = isas()[random() % isas().size()],
                     .logits = logits,
                     .position = random(),
                     .output_index = random(),
                     .row_offset = static_cast<uint32_t>(random() % 4)};
    if (random() % 2 == 0) row.mask = mask;
    if (random() % 2 == 0) row.seen = seen;
    if (random() % 2 == 0) row.banned = banned;
    if (random() % 8 == 0) row.forced = any_id();
    Workspace fresh;
    const auto first = sample(row, p, fresh), second = sample(row, p, used);
    ASSERT_EQ(first.ok(), second.ok());
    if (!first.ok()) {
      EXPECT_THAT(first.error().text(), HasSubstr("ids is allowed")) << round;
      continue;
    }
    const Sampled& s = first.value();
    EXPECT_EQ(s.id, second.value().id) << round;
    EXPECT_EQ(s.logprob, second.value().logprob) << round;
    EXPECT_EQ(s.top, second.value().top) << round;
    EXPECT_EQ(s.smaller_sum, second.value().smaller_sum) << round;
    ASSERT_GE(s.id, 0);
    ASSERT_LT(static_cast<size_t>(s.id), vocab);
    EXPECT_GE(s.logprob, kLogprobFloor);
    EXPECT_LE(s.logprob, 1e-5f);
    if (row.forced >= 0) {
      EXPECT_EQ(s.id, row.forced);
      continue;
    }
    const size_t id = static_cast<size_t>(s.id);
    if (!row.mask.empty()) EXPECT_TRUE(mask[id / 32] >> id % 32 & 1) << round;
    if (!row.banned.empty()) EXPECT_NE(s.id, banned[0]) << round;
    if (!p.banned_ids.empty()) EXPECT_NE(s.id, p.banned_ids[0]) << round;
  }
}

}  // namespace
}  // namespace deepinfer::sampling
