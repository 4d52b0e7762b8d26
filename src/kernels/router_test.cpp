#include "kernels/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace deepinfer::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Route {
  std::vector<int32_t> chosen;
  std::vector<float> weights;
};

Route route(const RouterShape& shape, const std::vector<float>& logits,
            const std::vector<float>& bias = {}, const std::vector<int32_t>& given = {}) {
  Route out{std::vector<int32_t>(shape.per_token), std::vector<float>(shape.per_token)};
  route_row(shape, logits.data(), bias.empty() ? nullptr : bias.data(),
            given.empty() ? nullptr : given.data(), out.chosen.data(), out.weights.data());
  return out;
}

double score(RouterScore kind, double v) {
  return kind == RouterScore::sigmoid
             ? 1.0 / (1.0 + std::exp(-v))
             : std::sqrt(std::max(v, 0.0) + std::log1p(std::exp(-std::abs(v))));
}

std::vector<float> normal(size_t n, unsigned seed, float deviation = 2.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0.0f, deviation);
  std::vector<float> out(n);
  for (float& value : out) value = distribution(random);
  return out;
}

TEST(Router, ChoosesByBiasedScoreAndWeighsByScore) {
  for (RouterScore kind : {RouterScore::sqrt_softplus, RouterScore::sigmoid}) {
    for (size_t experts : {1, 6, 7, 64, 256, 384, 1024}) {
      for (bool normalize : {true, false}) {
        const RouterShape shape{.experts = experts,
                                .per_token = std::min<size_t>(experts, 6),
                                .score = kind,
                                .normalize = normalize,
                                .scaling = 1.5f};
        const auto logits = normal(experts, 1), bias = normal(experts, 2, 0.3f);
        const Route got = route(shape, logits, bias);
        std::vector<int32_t> order(experts);
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
          const size_t i = static_cast<size_t>(a), j = static_cast<size_t>(b);
          return score(kind, logits[i]) + bias[i] > score(kind, logits[j]) + bias[j];
        });
        order.resize(shape.per_token);
        std::sort(order.begin(), order.end());
        EXPECT_EQ(got.chosen, order) << experts;
        double sum = 0.0;
        for (int32_t e : order) sum += score(kind, logits[static_cast<size_t>(e)]);
        for (size_t i = 0; i < order.size(); ++i) {
          const double s = score(kind, logits[static_cast<size_t>(order[i])]);
          EXPECT_NEAR(got.weights[i], (normalize ? s / sum : s) * 1.5, 2e-6) << experts;
        }
      }
    }
  }
}

TEST(Router, SoftmaxWeighsByTheShareOfAllExperts) {
  const auto logits = normal(64, 9);
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  for (bool normalize : {true, false}) {
    const Route got = route({.experts = 64,
                             .per_token = 6,
                             .score = RouterScore::softmax,
                             .normalize = normalize,
                             .scaling = 1.5f},
                            logits);
    std::vector<float> sorted = logits;
    std::sort(sorted.begin(), sorted.end(), std::greater<float>());
    double of_chosen = 0.0;
    for (const int32_t e : got.chosen) {
      EXPECT_GE(logits[static_cast<size_t>(e)], sorted[5]);
      of_chosen += std::exp(static_cast<double>(logits[static_cast<size_t>(e)]));
    }
    for (size_t i = 0; i < 6; ++i) {
      const double of = std::exp(static_cast<double>(logits[static_cast<size_t>(got.chosen[i])]));
      EXPECT_NEAR(got.weights[i], of / (normalize ? of_chosen : sum) * 1.5, 2e-6);
    }
  }
  // Logits that exp() alone cannot hold.
  const Route far = route({.experts = 3, .per_token = 1, .score = RouterScore::softmax},
                          {2000.0f, 1000.0f, -2000.0f});
  EXPECT_EQ(far.chosen[0], 0);
  EXPECT_EQ(far.weights[0], 1.0f);
}

TEST(Router, OfEqualScoresTheLowerExpertWins) {
  const RouterShape shape{.experts = 8, .per_token = 3};
  EXPECT_EQ(route(shape, std::vector<float>(8, 0.5f)).chosen, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(route(shape, {0, 1, 2, 1, 2, 2, 1, 2}).chosen, (std::vector<int32_t>{2, 4, 5}));
  EXPECT_EQ(route(shape, {0, 1, 0, 1, 0, 1, 0, 1}).chosen, (std::vector<int32_t>{1, 3, 5}));
}

TEST(Router, BiasChoosesAndNeverWeighs) {
  const RouterShape shape{.experts = 4, .per_token = 2, .scaling = 2.0f};
  const std::vector<float> logits = {3.0f, 2.0f, 1.0f, 1.0f}, bias = {0.0f, 0.0f, 9.0f, 9.0f};
  const Route got = route(shape, logits, bias);
  EXPECT_EQ(got.chosen, (std::vector<int32_t>{2, 3}));
  EXPECT_FLOAT_EQ(got.weights[0], 1.0f);
  EXPECT_FLOAT_EQ(got.weights[1], 1.0f);
}

// The group of the two best together wins, not the group of the best.
TEST(Router, ExpertsOutsideOfTheKeptGroupsCannotBeChosen) {
  const RouterShape shape{
      .experts = 8, .per_token = 3, .groups = 4, .groups_kept = 2, .score = RouterScore::sigmoid};
  const std::vector<float> logits = {4, -8, 2, 2.5f, 1, 1.5f, 2.2f, 2.1f};
  EXPECT_EQ(route(shape, logits).chosen, (std::vector<int32_t>{3, 6, 7}));
}

TEST(Router, OfEqualGroupsTheLowerIsKeptAndNegativeRanksDoNotEscape) {
  RouterShape shape{
      .experts = 6, .per_token = 2, .groups = 3, .groups_kept = 1, .score = RouterScore::sigmoid};
  EXPECT_EQ(route(shape, std::vector<float>(6, 1.0f)).chosen, (std::vector<int32_t>{0, 1}));
  // Group 1 wins by expert 2; its other expert ranks below everybody outside.
  const std::vector<float> bias = {0, 0, 9, -5, 0, 0};
  EXPECT_EQ(route(shape, std::vector<float>(6, 1.0f), bias).chosen, (std::vector<int32_t>{2, 3}));
  shape.groups = 6;  // groups of one expert: its score alone
  shape.groups_kept = 2;
  EXPECT_EQ(route(shape, {0, 3, 1, 2, 3, 0}).chosen, (std::vector<int32_t>{1, 4}));
}

TEST(Router, GivenExpertsWeighByTheirScoresEachTimeTheyAreNamed) {
  const RouterShape shape{.experts = 5, .per_token = 4, .scaling = 1.0f};
  const std::vector<float> logits = {1, 2, 3, 4, 5};
  const Route got = route(shape, logits, {}, {3, 1, 3, 0});
  EXPECT_EQ(got.chosen, (std::vector<int32_t>{0, 1, 3, 3}));
  const RouterScore kind = RouterScore::sqrt_softplus;
  const double sum = score(kind, 1) + score(kind, 2) + 2 * score(kind, 4);
  EXPECT_NEAR(got.weights[0], score(kind, 1) / sum, 1e-6);
  EXPECT_NEAR(got.weights[2], score(kind, 4) / sum, 1e-6);
  EXPECT_EQ(got.weights[2], got.weights[3]);
}

TEST(Router, SoftplusNeitherOverflowsNorVanishesEarly) {
  const RouterShape shape{.experts = 4, .per_token = 4, .normalize = false};
  const Route got = route(shape, {1e30f, 100.0f, -80.0f, -200.0f});
  EXPECT_FLOAT_EQ(got.weights[0], 1e15f);
  EXPECT_FLOAT_EQ(got.weights[1], 10.0f);
  EXPECT_NEAR(got.weights[2] / std::exp(-40.0), 1.0, 1e-5);
  EXPECT_EQ(got.weights[3], 0.0f);
}

TEST(Router, AllScoresZeroGiveZeroWeights) {
  const RouterShape shape{.experts = 3, .per_token = 2};
  const Route got = route(shape, {-500.0f, -500.0f, -500.0f});
  EXPECT_EQ(got.weights, (std::vector<float>{0.0f, 0.0f}));
}

TEST(Router, NanLogitsAreChosenLastAndOnce) {
  const RouterShape shape{.experts = 5, .per_token = 4};
  EXPECT_EQ(route(shape, {kNaN, 1, kNaN, 2, 3}).chosen, (std::vector<int32_t>{0, 1, 3, 4}));
  const Route all = route(shape, std::vector<float>(5, kNaN));
  EXPECT_EQ(std::set<int32_t>(all.chosen.begin(), all.chosen.end()).size(), 4u);
}

}  // namespace
}  // namespace deepinfer::kernels
