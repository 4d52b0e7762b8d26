#include "sampling/parameters.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace deepinfer::sampling {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class Value>
Error out_of_range(const char* field, Value value, const std::string& range) {
  return Error::invalid(field, std::to_string(value) + " is not " + range);
}

Result<void> validate_id(const char* field, int32_t id, size_t vocab) {
  if (id < 0) return out_of_range(field, id, "an id, which is 0 or more");
  if (vocab > 0 && static_cast<size_t>(id) >= vocab) {
    return out_of_range(field, id, "an id of the vocabulary of " + std::to_string(vocab));
  }
  return {};
}

// Written so that NaN fails every test.
Result<void> validate_filters(const Parameters& p) {
  if (!(p.temperature >= 0.0f && p.temperature < kInfinity)) {
    return out_of_range("temperature", p.temperature, "0 or a positive number");
  }
  if (p.top_k < 0) return out_of_range("top_k", p.top_k, "0 or a positive number");
  if (!(p.top_p > 0.0f && p.top_p <= 1.0f)) {
    return out_of_range("top_p", p.top_p, "above 0 and up to 1");
  }
  if (!(p.min_p >= 0.0f && p.min_p <= 1.0f)) return out_of_range("min_p", p.min_p, "0 to 1");
  if (p.force_top_k < 0) {
    return out_of_range("force_top_k", p.force_top_k, "0 or a positive number");
  }
  if (p.min_p > 0.0f && p.generator == Generator::deepinfer) {
    return Error::invalid(
        "min_p", std::to_string(p.min_p) + " with Generator::deepinfer, " + "which has no min_p");
  }
  if (p.force_top_k > 0 && p.generator != Generator::deepinfer) {
    return Error::invalid("force_top_k",
                          std::to_string(p.force_top_k) + " needs Generator::deepinfer",
                          "top_k does the same elsewhere");
  }
  return {};
}

Result<void> validate_penalties(const Parameters& p) {
  if (!(p.repetition_penalty >= 0.01f && p.repetition_penalty <= 100.0f)) {
    return out_of_range("repetition_penalty", p.repetition_penalty, "0.01 to 100");
  }
  if (!(std::abs(p.presence_penalty) <= 2.0f)) {
    return out_of_range("presence_penalty", p.presence_penalty, "-2 to 2");
  }
  if (!(std::abs(p.frequency_penalty) <= 2.0f)) {
    return out_of_range("frequency_penalty", p.frequency_penalty, "-2 to 2");
  }
  return {};
}

Result<void> validate_ids(const Parameters& p, size_t vocab) {
  for (int32_t id : p.banned_ids) TRY(validate_id("banned_ids", id, vocab));
  std::vector<int32_t> biased;
  biased.reserve(p.logit_bias.size());
  for (const auto& [id, bias] : p.logit_bias) {
    TRY(validate_id("logit_bias", id, vocab));
    if (!(std::abs(bias) <= kMaxLogitBias)) {
      return Error::invalid("logit_bias", std::to_string(bias) + " for id " + std::to_string(id) +
                                              " is not -100 to 100");
    }
    biased.push_back(id);
  }
  std::sort(biased.begin(), biased.end());
  const auto twice = std::adjacent_find(biased.begin(), biased.end());
  if (twice != biased.end()) {
    return Error::invalid("logit_bias", "id " + std::to_string(*twice) + " has two biases");
  }
  for (int32_t id : p.banned_ids) {
    if (!std::binary_search(biased.begin(), biased.end(), id)) continue;
    return Error::invalid("logit_bias", "id " + std::to_string(id) + " is in banned_ids too");
  }
  return {};
}

}  // namespace

Result<void> validate(const Parameters& p, size_t vocab) {
  TRY(validate_filters(p));
  TRY(validate_penalties(p));
  if (p.top_logprobs < 0 || p.top_logprobs > kMaxTopLogprobs) {
    return out_of_range("top_logprobs", p.top_logprobs, "0 to " + std::to_string(kMaxTopLogprobs));
  }
  return validate_ids(p, vocab);
}

}  // namespace deepinfer::sampling
