// Generator::deepinfer against a plain form of spec deepinfer_engine.md 7.1 to 7.4: dense arrays, a
// full sort, every lane.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "sampling/fixed_draw.h"
#include "sampling/philox.h"
#include "sampling/sampler.h"

namespace deepinfer::sampling {
namespace {

std::vector<float> random_logits(size_t count, uint32_t seed, float deviation = 2.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> logits(count);
  for (float& x : logits) x = normal(random);
  return logits;
}

// [vocab] probabilities after the filters.
std::vector<float> plain_probabilities(const std::vector<float>& logits, float temperature,
                                       size_t top_k, float top_p) {
  const float top = *std::max_element(logits.begin(), logits.end());
  std::vector<float> p;
  double total = 0;
  for (float x : logits) {
    p.push_back(static_cast<float>(
        std::exp((static_cast<double>(x) - static_cast<double>(top)) / temperature)));
    total += static_cast<double>(p.back());
  }
  for (float& x : p) x = static_cast<float>(static_cast<double>(x) / total);
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  size_t keep = top_k == 0 ? order.size() : std::min(top_k, order.size());
  if (top_p < 1.0f) {
    const uint64_t wanted = static_cast<uint64_t>(static_cast<double>(top_p) * 0x1p31) + 1;
    uint64_t mass = 0;
    for (size_t i = 0; i < keep; ++i) {
      mass += static_cast<uint32_t>(static_cast<double>(p[order[i]]) * 0x1p31);
      if (mass >= wanted) keep = i + 1;
    }
  }
  double mass = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i >= keep) p[order[i]] = 0;
  }
  for (float x : p) mass += static_cast<double>(x);
  for (float& x : p) x = static_cast<float>(static_cast<double>(x) / mass);
  return p;
}

// Every column in the order lane by lane.
size_t plain_draw(const std::vector<float>& p, uint64_t seed, uint64_t position) {
  size_t lanes = 1;
  while (lanes < p.size()) lanes *= 2;
  if (p.size() >= 8192) lanes = 2048;
  std::vector<size_t> columns;
  std::vector<uint64_t> ends;
  uint64_t total = 0;
  for (size_t lane = 0; lane < lanes; ++lane) {
    for (size_t column = lane; column < p.size(); column += lanes) {
      columns.push_back(column);
      ends.push_back(total += static_cast<uint32_t>(static_cast<double>(p[column]) * 0x1p31));
    }
  }
  const uint64_t bound = 0xFFFFFFFFull / total * total;
  for (uint64_t i = 0;; ++i) {
    const uint64_t x = philox4x32(seed, i / 4, 3 * position)[i % 4];
    if (x >= bound) continue;
    return columns[static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), x % total) -
                                       ends.begin())];
  }
}

TEST(DeepinferMode, DrawsAsThePlainForm) {
  std::mt19937 random(77);
  Workspace workspace;
  for (int round = 0; round < 400; ++round) {
    const size_t vocab = round % 40 == 0 ? 9000 : 2 + random() % 900;
    const std::vector<float> logits = random_logits(vocab, random());
    Parameters p = {.temperature = 0.2f + static_cast<float>(random() % 100) / 50,
                    .top_k = static_cast<int32_t>(random() % 2 == 0 ? 0 : 1 + random() % 40),
                    .top_p = random() % 2 == 0 ? 1.0f : static_cast<float>(1 + random() % 99) / 100,
                    .seed = random(),
                    .want_logprob = false,
                    .generator = Generator::deepinfer};
    const std::vector<float> plain =
        plain_probabilities(logits, p.temperature, static_cast<size_t>(p.top_k), p.top_p);
    for (uint64_t output = 0; output < 20; ++output) {
      for (uint32_t offset : {0u, 3u}) {
        const SampleRow row = {.logits = logits, .output_index = output, .row_offset = offset};
        const size_t expected = plain_draw(plain, p.seed, output + 10'000'019ull * offset);
        ASSERT_EQ(static_cast<size_t>(sample(row, p, workspace).value().id), expected)
            << "round " << round << " output " << output << " row " << offset;
      }
    }
  }
}

TEST(DeepinferMode, LogprobsAreThoseAfterFiltersAndRenormalisation) {
  const std::vector<float> logits = random_logits(100, 3);
  const Parameters p = {.temperature = 0.8f,
                        .top_k = 12,
                        .top_p = 0.7f,
                        .top_logprobs = 100,
                        .logprobs = LogprobKind::filtered,
                        .generator = Generator::deepinfer};
  const std::vector<float> plain = plain_probabilities(logits, 0.8f, 12, 0.7f);
  Workspace workspace;
  const Sampled sampled = sample({.logits = logits}, p, workspace).value();
  const size_t kept =
      static_cast<size_t>(std::count_if(plain.begin(), plain.end(), [](float x) { return x > 0; }));
  ASSERT_EQ(sampled.top.size(), kept);
  for (const auto& [id, logprob] : sampled.top) {
    EXPECT_NEAR(std::exp(logprob), plain[static_cast<size_t>(id)], 1e-6);
  }
}

// top-k and top-p each look at the whole distribution; one after the other would keep fewer.
TEST(DeepinferMode, TopKAndTopPAreJoint) {
  const std::vector<float> logits = {std::log(0.4f), std::log(0.2f), std::log(0.2f),
                                     std::log(0.2f)};
  Parameters p = {.temperature = 1.0f,
                  .top_k = 3,
                  .top_p = 0.7f,
                  .top_logprobs = 4,
                  .logprobs = LogprobKind::filtered};
  Workspace workspace;
  // 0.7 of the three's 0.8 is 0.56: two are enough.
  EXPECT_EQ(sample({.logits = logits}, p, workspace).value().top.size(), 2u);
  p.generator = Generator::deepinfer;
  EXPECT_EQ(sample({.logits = logits}, p, workspace).value().top.size(), 3u);
  // Within three logits the softmax sees these only.
  p.top_k = 0;
  p.force_top_k = 3;
  p.top_p = 0.74f;
  EXPECT_EQ(sample({.logits = logits}, p, workspace).value().top.size(), 2u);
  p.top_p = 1.0f;
  EXPECT_EQ(sample({.logits = logits}, p, workspace).value().top.size(), 3u);
  EXPECT_EQ(sample({.logits = logits, .forced = 3}, p, workspace).value().logprob, kLogprobFloor);
}

TEST(DeepinferMode, GreedySplitsEqualMaximaByTheStream) {
  const std::vector<float> logits = {1.0f, 4.0f, 3.999f, 4.0f};
  const Parameters p = {
      .top_k = 1, .seed = 3, .logprobs = LogprobKind::filtered, .generator = Generator::deepinfer};
  std::set<int32_t> drawn;
  Workspace workspace;
  for (uint64_t output = 0; output < 100; ++output) {
    const SampleRow row = {.logits = logits, .output_index = output};
    drawn.insert(sample(row, p, workspace).value().id);
  }
  EXPECT_EQ(drawn, (std::set<int32_t>{1, 3}));
  const SampleRow forced = {.logits = logits, .forced = 2};
  // The gap times 10^5.
  EXPECT_NEAR(sample(forced, p, workspace).value().logprob, -100.0 - std::log(2.0), 0.1);
}

}  // namespace
}  // namespace deepinfer::sampling
