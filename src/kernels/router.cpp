#include "kernels/router.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace deepinfer::kernels {
namespace {

constexpr size_t kMaxExperts = 1024;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

float softplus(float v) {
  return v > 20.0f ? v : std::max(v, 0.0f) + std::log1p(std::exp(-std::abs(v)));
}

float score(RouterScore kind, float logit) {
  if (kind == RouterScore::sigmoid) return 1.0f / (1.0f + std::exp(-logit));
  // std::max would turn a NaN into 0.
  return std::isnan(logit) ? logit : std::sqrt(softplus(logit));
}

// exp(logit - highest) over its sum, in double in order; a NaN makes every score NaN.
void softmax(const float* logits, size_t size, float* scores) {
  const double highest = static_cast<double>(*std::max_element(logits, logits + size));
  double sum = 0.0;
  for (size_t e = 0; e < size; ++e) sum += std::exp(static_cast<double>(logits[e]) - highest);
  for (size_t e = 0; e < size; ++e) {
    scores[e] = static_cast<float>(std::exp(static_cast<double>(logits[e]) - highest) / sum);
  }
}

void all_scores(const RouterShape& shape, const float* logits, float* scores) {
  if (shape.score == RouterScore::softmax) return softmax(logits, shape.experts, scores);
  for (size_t e = 0; e < shape.experts; ++e) scores[e] = score(shape.score, logits[e]);
}

// What experts are ordered by: NaN below every number.
float rank_of(float score, float bias) {
  const float rank = score + bias;
  return std::isnan(rank) ? kLowest : rank;
}

// Marks the `count` largest of values [0, size) that are not taken yet; ties: lower index. Those
// found are appended to out.
void take_largest(const float* values, size_t size, size_t count, bool* taken, int32_t* out) {
  for (size_t i = 0; i < count; ++i) {
    size_t best = size;
    for (size_t e = 0; e < size; ++e) {
      if (!taken[e] && (best == size || values[e] > values[best])) best = e;
    }
    taken[best] = true;
    out[i] = static_cast<int32_t>(best);
  }
}

// taken[e] becomes true for the experts of groups that are not kept.
void drop_groups(const RouterShape& shape, const float* ranks, bool* taken) {
  const size_t size = shape.experts / shape.groups;
  std::array<float, kMaxExperts> group_scores{};
  std::array<bool, kMaxExperts> kept{};
  std::array<int32_t, kMaxExperts> order{};
  for (size_t g = 0; g < shape.groups; ++g) {
    float first = kLowest, second = kLowest;
    for (size_t e = g * size; e < (g + 1) * size; ++e) {
      second = std::max(second, std::min(first, ranks[e]));
      first = std::max(first, ranks[e]);
    }
    group_scores[g] = size == 1 ? first : first + second;
  }
  take_largest(group_scores.data(), shape.groups, shape.groups_kept, kept.data(), order.data());
  for (size_t e = 0; e < shape.experts; ++e) taken[e] = !kept[e / size];
}

}  // namespace

void route_row(const RouterShape& shape, const float* logits, const float* bias,
               const int32_t* given, int32_t* chosen, float* weights) {
  check(shape.experts <= kMaxExperts && shape.groups > 0, "more experts than the router holds");
  check(shape.groups_kept * (shape.experts / shape.groups) >= shape.per_token,
        "fewer experts than a token uses");
  std::array<float, kMaxExperts> scores;  // [experts]
  all_scores(shape, logits, scores.data());
  if (given != nullptr) {
    std::copy(given, given + shape.per_token, chosen);
  } else {
    std::array<float, kMaxExperts> ranks;  // [experts]
    std::array<bool, kMaxExperts> taken{};
    for (size_t e = 0; e < shape.experts; ++e) {
      ranks[e] = rank_of(scores[e], bias == nullptr ? 0.0f : bias[e]);
    }
    if (shape.groups_kept < shape.groups) drop_groups(shape, ranks.data(), taken.data());
    take_largest(ranks.data(), shape.experts, shape.per_token, taken.data(), chosen);
  }
  std::sort(chosen, chosen + shape.per_token);
  float sum = 0.0f;
  for (size_t i = 0; i < shape.per_token; ++i) sum += scores[static_cast<size_t>(chosen[i])];
  const float divisor = shape.normalize ? sum + 1e-20f : 1.0f;
  for (size_t i = 0; i < shape.per_token; ++i) {
    weights[i] = scores[static_cast<size_t>(chosen[i])] / divisor * shape.scaling;
  }
}

}  // namespace deepinfer::kernels
